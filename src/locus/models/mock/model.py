"""The mock model: it replays a script, or answers from the conversation."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from locus.core.messages import Message, Role, ToolCall
from locus.errors import ConfigurationError
from locus.models.base import STOP, TOOL_CALLS, ModelChunk, ModelResponse, ToolSpec, usage_of
from locus.models.errors import ModelError
from locus.models.mock.facts import acknowledgement, answer_about, facts_in, facts_told, is_question
from locus.models.mock.tool_calls import plan_calls

Scripted = str | Message | ModelResponse | BaseException | type[BaseException] | Callable[..., Any]
"""An item of a script: an answer, an exception to raise, or a `function(messages, tools)` that returns one."""


@dataclass(frozen=True)
class MockCall:
    """The arguments of one call of a scripted mock."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    options: dict[str, Any]


class MockModel:
    """A model without a network. Options of other models (`max_tokens=…`) are accepted, and change nothing.

    With a script, `calls` lists the calls that were made, and a call past the script's end raises `ModelError`.
    """

    provider = "mock"

    def __init__(self, model: str = "mock", *, script: Iterable[Scripted] | None = None, **options: Any) -> None:
        self.model = model
        self.options = options
        self.calls: list[MockCall] = []
        self._script = None if script is None else list(script)
        for item in self._script or ():
            if not isinstance(item, str | Message | ModelResponse | BaseException) and not callable(item):
                raise ConfigurationError(
                    f"a script holds messages, responses, exceptions and functions, not {item!r:.80}"
                )

    def __repr__(self) -> str:
        return "MockModel()" if self._script is None else f"MockModel(script of {len(self._script)})"

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None = None, **kwargs: Any
    ) -> ModelResponse:
        if self._script is not None:
            return await self._replayed(self._script, MockCall(tuple(messages), tuple(tools or ()), kwargs))
        return _counted(_answer(messages, tools or ()), messages)

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None = None, **kwargs: Any
    ) -> AsyncIterator[ModelChunk]:
        response = await self.complete(messages, tools, **kwargs)
        for piece in re.findall(r"\s*\S+\s*$|\s*\S+", response.message.text):
            yield ModelChunk(text=piece)
        yield ModelChunk(response=response)

    async def _replayed(self, script: list[Scripted], call: MockCall) -> ModelResponse:
        self.calls.append(call)
        if len(self.calls) > len(script):
            raise ModelError(f"the script has {len(script)} responses, and the mock was called {len(self.calls)} times")
        item: Any = script[len(self.calls) - 1]
        if callable(item) and not isinstance(item, type):
            item = item(call.messages, call.tools)
            item = await item if inspect.isawaitable(item) else item
        if isinstance(item, BaseException) or (isinstance(item, type) and issubclass(item, BaseException)):
            raise item
        if isinstance(item, ModelResponse):
            return item
        if not isinstance(item, str | Message):
            raise ModelError(f"response {len(self.calls)} of the script is a {type(item).__name__}: {item!r:.80}")
        return _counted(Message.assistant(item) if isinstance(item, str) else item, call.messages)


def _counted(message: Message, messages: Sequence[Message]) -> ModelResponse:
    usage = usage_of(sum(map(_tokens, messages)), _tokens(message))
    return ModelResponse(message=message, usage=usage, stop_reason=TOOL_CALLS if message.tool_calls else STOP)


def _tokens(message: Message) -> int:
    """A rough count of tokens: one for four characters, and a few for the frame."""
    return 4 + len(message.text) // 4 + sum(8 + len(str(call.arguments)) // 4 for call in message.tool_calls)


def _answer(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
    request_index = max((n for n, message in enumerate(messages) if message.role is Role.USER), default=-1)
    if request_index < 0:
        return Message.assistant("Hello! How can I help?")
    request = messages[request_index].text
    since = messages[request_index + 1 :]
    instructions = "\n".join(message.text for message in messages if message.role is Role.SYSTEM)
    steps = plan_calls(request, tools, instructions)
    done = sum(1 for message in since if message.tool_calls)
    if done < len(steps):
        step = steps[done]
        return Message.assistant(step.question) if step.question else _calling(step.calls, messages)
    results = [message for message in since if message.role is Role.TOOL]
    return Message.assistant(_reply(request, messages[:request_index], results))


def _calling(calls: Iterable[tuple[str, dict[str, Any]]], messages: Sequence[Message]) -> Message:
    """A message with calls, whose ids depend on the conversation alone."""
    before = hashlib.sha256("\0".join(f"{m.role}:{m.text}:{len(m.tool_calls)}" for m in messages).encode()).hexdigest()
    made = [
        ToolCall(id=f"call_{before[:12]}_{number}", name=name, arguments=arguments)
        for number, (name, arguments) in enumerate(calls)
    ]
    return Message.assistant(None, made)


def _reply(request: str, earlier: Sequence[Message], results: Sequence[Message]) -> str:
    facts = facts_in(request)
    failed = [message for message in results if message.metadata.get("error") is not None]
    if failed:
        return "That did not work. " + "\n".join(f"{message.name}: {message.text}" for message in failed)
    if results and not facts:
        return "\n".join(message.text for message in results if message.text) or "Done."
    if facts:
        return acknowledgement(facts)
    if is_question(request):
        return answer_about(request, facts_told(earlier)) or "I don't know: nothing in this conversation says it."
    if re.match(r"(?i)\W*(?:hello|hi|hey|good (?:morning|evening|afternoon))\b", request):
        return "Hello! How can I help?"
    return f"Noted: {request.strip()}" if request.strip() else "I'm listening."
