"""Models, tools and looks into threads that the tests of agents share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from locus.core.events import Event
from locus.core.messages import Message, Role, ToolCall
from locus.core.state import AgentState
from locus.memory.checkpointer import Checkpointer
from locus.models.base import ModelResponse, ToolSpec
from locus.tools import Tool, tool

Step = Message | str | Callable[[Sequence[Message]], Message | str]


class Following:
    """A model that goes by the conversation: its n-th answer to a user's message is the n-th step.

    So another process that loads the conversation goes on with the right step. It cannot stream.
    """

    def __init__(self, *steps: Step, usage: dict[str, int] | None = None) -> None:
        self.steps = steps
        self.usage = usage or {}
        self.asked: list[list[Message]] = []

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None = None, **_options: Any
    ) -> ModelResponse:
        self.asked.append(list(messages))
        step = self.steps[min(answers_since_the_user(messages), len(self.steps) - 1)]
        answer = step(messages) if callable(step) else step
        message = Message.assistant(answer) if isinstance(answer, str) else answer
        return ModelResponse(message=message, usage=self.usage)


def answers_since_the_user(messages: Sequence[Message]) -> int:
    count = 0
    for message in reversed(messages):
        if message.role is Role.USER:
            break
        count += message.role is Role.ASSISTANT
    return count


def asks(*calls: ToolCall, text: str | None = None) -> Message:
    """A message of an assistant that asks for tools."""
    return Message.assistant(text, calls)


def a_call(name: str, call_id: str | None = None, /, **arguments: Any) -> ToolCall:
    return ToolCall(name=name, arguments=arguments, **({} if call_id is None else {"id": call_id}))


def results_told(messages: Sequence[Message]) -> str:
    """An answer that repeats what the tools said, so that the final answer shows it."""
    told = []
    for message in reversed(messages):
        if message.role is Role.USER:
            break
        if message.role is Role.TOOL:
            told.append(f"{message.name}={message.text}")
    return "; ".join(reversed(told))


class Effects:
    """Tools that do something, and how often each thing was done."""

    def __init__(self) -> None:
        self.done: list[str] = []

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.done)

    def pay(self) -> Tool[..., Any]:
        @tool
        async def pay(amount: int) -> str:
            """Pay. Must not be repeated."""
            self.done.append(f"pay {amount}")
            return f"paid {amount}"

        return pay

    def look(self) -> Tool[..., Any]:
        @tool(idempotent=True)
        async def look(at: str) -> str:
            """Look at something."""
            self.done.append(f"look {at}")
            return f"saw {at}"

        return look


def spoken(state: AgentState | Sequence[Message]) -> list[tuple[str, str]]:
    """Who said what."""
    messages = state.messages if isinstance(state, AgentState) else state
    return [(message.role.value, message.text) for message in messages]


def shape(messages: Sequence[Message]) -> list[tuple[str, str, str | None, tuple[str, ...]]]:
    """The conversation without what differs from run to run."""
    return [
        (message.role.value, message.text, message.tool_call_id, tuple(call.id for call in message.tool_calls))
        for message in messages
    ]


async def steps_of(checkpointer: Checkpointer, thread_id: str) -> list[str]:
    """The steps that a thread's checkpoints were saved for, oldest first."""
    entries = await checkpointer.history(thread_id, limit=None)
    return [entry.metadata["step"] for entry in reversed(entries)]


async def loaded(checkpointer: Checkpointer, thread_id: str, checkpoint_id: str | None = None) -> AgentState:
    state = await checkpointer.load(thread_id, checkpoint_id)
    assert state is not None
    return state


def kinds(events: Sequence[Event]) -> list[str]:
    return [type(event).__name__.removesuffix("Event") for event in events]


def is_sound(messages: Sequence[Message]) -> bool:
    """Whether every provider accepts this history: each call has its result right after it, and nothing else has."""
    open_ids: set[str | None] = set()
    for message in messages:
        if message.role is Role.TOOL:
            if message.tool_call_id not in open_ids:
                return False
            open_ids.discard(message.tool_call_id)
        elif open_ids:
            return False
        if message.role is Role.ASSISTANT:
            open_ids = {call.id for call in message.tool_calls}
    return not open_ids
