"""The settings of an agent, and the checks that they pass."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict, cast, get_args

from locus.agent.middleware import Middleware
from locus.agent.sessions import OnConflict
from locus.core.protocols import PlainStore
from locus.errors import ConfigurationError
from locus.memory.conversation import AgentCheckpointer
from locus.memory.long_term.memory import LongTermMemory
from locus.memory.runtime.leases import LONGEST
from locus.models.base import Model
from locus.tools import Tool

UnknownOutcome = Literal["ask", "retry", "skip"]
Tools = Sequence[Tool[..., Any] | Callable[..., Any]]
Store = PlainStore | str
"""A checkpointer, a storage backend, any object with their methods, or a URL."""


class _DefaultText(str):
    """A text that can be told from an equal one: it shows that a setting is the default, and not a caller's."""


REJECT_BY_DEFAULT: Final = cast(OnConflict, _DefaultText("reject"))
"""The default of `on_conflict`. If a store keeps no leases, only a caller who asked for "reject" gets an error."""

LARGEST_WINDOW = 10**9
"""The largest `window`: more messages than any thread has, and few enough for the integers of every store."""


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """The settings of an agent. The docstring of `Agent` lists all of them.

    - `unknown_outcome`: the fate of a call that is not idempotent, and was under way when a process was killed. "skip"
      tells the model that its outcome is unknown, "ask" stops the run for a decision, and "retry" repeats the call.
    - `on_conflict`: the fate of a run that finds another one under way in its thread. "reject" raises
      `ThreadBusyError`, "wait" (or "queue") waits for at most `wait_seconds`, "take_over" takes the thread from the
      other run, and "fork" goes on in a copy of the thread.
    - `lease_seconds`: a worker that is silent for this long is taken for dead. A resume waits that long for it.
    - `window`: how many of the last messages are loaded and shown to the model, or a few more, so that the first is a
      user's.
    - `long_term`, `user_id`: what is known about this user is recalled for each message, and learnt and forgotten by
      tools.
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
    on_conflict: OnConflict = REJECT_BY_DEFAULT
    wait_seconds: float = 60.0
    lease_seconds: float = 30.0
    unknown_outcome: UnknownOutcome = "skip"
    window: int | None = None
    long_term: LongTermMemory | Store | None = None
    user_id: str | None = None

    def __post_init__(self) -> None:
        for name in ("checkpoint_every_n_iterations", "max_iterations"):
            count = _number(name, getattr(self, name))
            if not count >= 1:
                raise ConfigurationError(f"{name} must be at least 1, got {count!r}")
        for name in ("max_tokens", "max_seconds", "tool_timeout", "wait_seconds", "lease_seconds"):
            limit = getattr(self, name)
            if limit is None and name in ("max_tokens", "max_seconds", "tool_timeout"):
                continue
            if not _number(name, limit) > 0:
                raise ConfigurationError(f"{name} must be above 0, got {limit!r}")
        if self.window is not None and (type(self.window) is not int or not 1 <= self.window <= LARGEST_WINDOW):
            raise ConfigurationError(
                f"window is a number of messages, from 1 to {LARGEST_WINDOW:,}, got {self.window!r:.80}"
            )
        for name, allowed in (
            ("on_conflict", get_args(OnConflict)),
            ("unknown_outcome", get_args(UnknownOutcome)),
        ):
            if getattr(self, name) not in allowed:
                raise ConfigurationError(f"{name} is one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if self.lease_seconds > LONGEST:
            raise ConfigurationError(f"lease_seconds is at most {LONGEST:g}, got {self.lease_seconds!r}")
        if self.on_conflict == "queue":
            object.__setattr__(self, "on_conflict", "wait")
        if self.on_conflict == "raise":
            warnings.warn(
                'on_conflict="raise" lets a new run push aside one that is under way, and is deprecated: use "reject" '
                'to refuse the new one, or "take_over" to push the other aside on purpose',
                DeprecationWarning,
                stacklevel=callers_level(),
            )
        if self.checkpointer is not None and self.memory is not None:
            raise ConfigurationError("give either checkpointer or memory: both say where the conversation is kept")
        if (self.long_term is None) != (self.user_id is None):
            raise ConfigurationError(
                "long_term and user_id belong together: where facts about users are kept, and which user this agent has"
            )


class Settings(TypedDict, total=False):
    """The keywords that a factory passes on to `Agent`. Its own parameters are not among them."""

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
    lease_seconds: float
    unknown_outcome: UnknownOutcome
    window: int | None
    long_term: LongTermMemory | Store | None
    user_id: str | None


class AllSettings(Settings, total=False):
    """The keywords of `Agent`: every setting, for type checkers."""

    model: Model | str | None
    tools: Tools
    system_prompt: str | None
    memory: Store | AgentCheckpointer | None


def _number(name: str, given: Any) -> int | float:
    if not isinstance(given, int | float):
        raise ConfigurationError(f"{name} is a number, got {given!r:.80}")
    return given


def callers_level() -> int:
    """The `stacklevel` with which a warning points at the caller's code, rather than into Locus."""
    level, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] in ("locus", "dataclasses"):
        level, frame = level + 1, frame.f_back
    return level + 1
