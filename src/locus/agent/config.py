"""What an agent is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from locus.agent.middleware import Middleware
from locus.agent.sessions import OnConflict
from locus.core.protocols import PlainStore
from locus.errors import ConfigurationError
from locus.memory.conversation import AgentCheckpointer
from locus.models.base import Model
from locus.tools import Tool

UnknownOutcome = Literal["ask", "retry", "skip"]
Tools = Sequence[Tool[..., Any] | Callable[..., Any]]
Store = PlainStore | str
"""A checkpointer, a storage backend, any object with their methods, or a URL."""


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """The settings of an agent.

    `model` is a model or its name ("openai:gpt-4.1"); `checkpointer` a checkpointer, a storage backend or a
    URL. `unknown_outcome` says what happens to a call that was under way when a process was killed, and must
    not simply be repeated: "skip" tells the model so, "ask" stops the run for a decision, "retry" repeats it.
    `on_conflict` says what happens when another worker was faster in the same thread: "raise" a
    `ConflictError`, go on in a "fork", or "wait" for its run to end.
    """

    model: Model | str | None = None
    tools: Tools = ()
    system_prompt: str | None = None
    checkpointer: Store | None = None
    memory: Store | AgentCheckpointer | None = None
    agent_id: str | None = None
    checkpoint_every_n_iterations: int = 1
    reflexion: bool = False
    middleware: Sequence[Middleware] = ()
    max_iterations: int = 20
    max_tokens: int | None = None
    max_seconds: float | None = None
    tool_timeout: float | None = 120.0
    on_conflict: OnConflict = "raise"
    wait_seconds: float = 60.0
    unknown_outcome: UnknownOutcome = "skip"

    def __post_init__(self) -> None:
        for name in ("checkpoint_every_n_iterations", "max_iterations"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, got {getattr(self, name)!r}")
        for name in ("max_tokens", "max_seconds", "tool_timeout", "wait_seconds"):
            limit = getattr(self, name)
            if limit is not None and not limit > 0:
                raise ConfigurationError(f"{name} must be above 0, got {limit!r}")
        for name, allowed in (
            ("on_conflict", ("raise", "fork", "wait")),
            ("unknown_outcome", ("ask", "retry", "skip")),
        ):
            if getattr(self, name) not in allowed:
                raise ConfigurationError(f"{name} is one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if self.checkpointer is not None and self.memory is not None:
            raise ConfigurationError("give either checkpointer or memory: both say where the conversation is kept")


class Settings(TypedDict, total=False):
    """The settings that a factory hands on to `Agent`, by keyword. Those that it names itself are not among them."""

    checkpointer: Store | None
    agent_id: str | None
    checkpoint_every_n_iterations: int
    reflexion: bool
    middleware: Sequence[Middleware]
    max_iterations: int
    max_tokens: int | None
    max_seconds: float | None
    tool_timeout: float | None
    on_conflict: OnConflict
    wait_seconds: float
    unknown_outcome: UnknownOutcome
