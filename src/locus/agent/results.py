"""The result of a run, and its metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

from locus.core.events import Interrupt
from locus.core.events import StopReason as StopReason
from locus.core.state import AgentState


@dataclass(frozen=True)
class AgentMetrics:
    """The costs of a run: calls, tokens, checkpoints and time."""

    iterations: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    checkpoints: int = 0
    duration_ms: float = 0.0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class AgentResult:
    """The end of a run: the answer, the state, why it stopped, and what it cost.

    `thread_id` is the thread that holds the state; after `on_conflict="fork"` it is not the one that was asked for.
    `nothing_to_resume`: the thread was finished already. `message` is the answer that it had; the model was not asked,
    and nothing was saved.
    """

    message: str
    state: AgentState
    stop_reason: StopReason
    metrics: AgentMetrics = field(default_factory=AgentMetrics)
    thread_id: str | None = None
    checkpoint_id: str | None = None
    interrupt: Interrupt | None = None
    nothing_to_resume: bool = False

    def __str__(self) -> str:
        return self.message
