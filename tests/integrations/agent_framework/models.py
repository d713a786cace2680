"""Agents of the framework whose model is a function: it answers with how much it was shown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    ContextProvider,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
)

Answer = Callable[[Sequence[Message]], Message]


class Scripted(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    """A chat client that asks a function what to say, and remembers what it was shown."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer
        self.shown: list[list[str]] = []

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **_asked: Any
    ) -> Awaitable[ChatResponse] | ResponseStream[ChatResponseUpdate, ChatResponse]:
        self.shown.append(texts(messages))
        said = self.answer(messages)
        if stream:
            return ResponseStream(_updates(said), finalizer=ChatResponse.from_updates)

        async def respond() -> ChatResponse:
            return ChatResponse(messages=[said])

        return respond()


async def _updates(said: Message) -> Any:
    for content in said.contents:
        yield ChatResponseUpdate(role="assistant", contents=[content])


def counts(messages: Sequence[Message]) -> Message:
    """Says how many messages it sees."""
    return Message("assistant", [f"I see {len(messages)}."])


def calls(name: str, **arguments: Any) -> Answer:
    """Calls a tool, and then says what came of it."""

    def answer(messages: Sequence[Message]) -> Message:
        last = messages[-1]
        if last.role == "tool":
            return Message("assistant", [f"It is {last.contents[0].result}."])
        call_id = f"call_{len(messages)}"
        return Message("assistant", [Content.from_function_call(call_id, name, arguments=arguments)])

    return answer


def agent(
    answer: Answer, *providers: ContextProvider, tools: Sequence[Callable[..., Any]] = ()
) -> tuple[Agent[Any], Scripted]:
    client = Scripted(answer)
    return Agent(client=client, name="clerk", context_providers=list(providers), tools=list(tools)), client


def texts(messages: Sequence[Message]) -> list[str]:
    """What messages say, in short."""
    return [_text(message) for message in messages]


def _text(message: Message) -> str:
    for content in message.contents:
        if content.type == "function_call":
            return f"call {content.name}"
        if content.type == "function_result":
            return f"result {content.result}"
    return message.text
