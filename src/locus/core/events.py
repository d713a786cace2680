"""The events that an agent reports while it works: one small class for each kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from locus.core.messages import Message, ToolCall, ToolResult

StopReason = Literal[
    "complete",
    "interrupt",
    "max_iterations",
    "token_budget",
    "time_limit",
    "no_answer",
    "tool_loop",
]


@dataclass(frozen=True)
class Event:
    """Something that happened in a run. `thread_id` is None in a run that is not kept."""

    run_id: str
    thread_id: str | None


@dataclass(frozen=True)
class WaitingEvent(Event):
    """The run has not begun yet, and `run_id` is empty: another worker's run is under way in the thread, or was killed.

    Without a sign of life of that worker, this run begins in `seconds`. If there is one, a resume ends with a
    `ThreadBusyError`.
    """

    seconds: float


@dataclass(frozen=True)
class ThinkingEvent(Event):
    """A model call begins."""

    iteration: int


@dataclass(frozen=True)
class ModelChunkEvent(Event):
    """A piece of the model's answer, from models that stream."""

    text: str


@dataclass(frozen=True)
class ModelCompleteEvent(Event):
    """The model has answered."""

    message: Message
    usage: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolStartEvent(Event):
    """A tool is about to run."""

    call: ToolCall


@dataclass(frozen=True)
class ToolCompleteEvent(Event):
    """A tool has run, and its result is recorded. `recovered`: it ran before the process was restarted."""

    call: ToolCall
    result: ToolResult
    recovered: bool = False


@dataclass(frozen=True)
class CheckpointSavedEvent(Event):
    """The state is saved: `checkpoint_id` holds the first `messages` messages of the thread."""

    checkpoint_id: str
    messages: int


@dataclass(frozen=True)
class InterruptEvent(Event):
    """The run stops, and waits for a decision: `agent.resume(thread_id, decision=…)`."""

    interrupt: Interrupt


@dataclass(frozen=True)
class TerminateEvent(Event):
    """The run is over, and `message` is its answer.

    `nothing_to_resume`: the thread was finished already. `message` is the answer that it had; the model was not asked.
    """

    stop_reason: StopReason
    message: str
    nothing_to_resume: bool = False


@dataclass(frozen=True)
class Interrupt:
    """A question to a person, who has to decide before the run goes on.

    `kind` is "approval" (these calls need a yes) or "unknown_outcome" (these calls were under way when the
    process was killed, and may or may not have happened).
    """

    kind: str
    calls: tuple[ToolCall, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "calls": [call.model_dump() for call in self.calls]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Interrupt:
        return cls(data["kind"], tuple(ToolCall.model_validate(call) for call in data["calls"]))
