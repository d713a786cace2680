"""What a run carries along: the state, where it is kept, who is told, and what it has cost so far."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from locus.agent import approvals
from locus.agent.config import AgentConfig
from locus.agent.results import AgentMetrics, AgentResult, StopReason
from locus.agent.sessions import Session
from locus.core.events import CheckpointSavedEvent, Event, Interrupt, InterruptEvent, TerminateEvent
from locus.core.messages import Message, Role
from locus.core.state import AgentState

Emit = Callable[[Event], Awaitable[None]]


class Progress:
    """A run under way. Afterwards `result` is there.

    `accepted`: something of this run is kept, so that it cannot simply be begun again.
    """

    def __init__(self, config: AgentConfig, session: Session, state: AgentState, emit: Emit) -> None:
        self._config = config
        self._session = session
        self._emit = emit
        self.state = state
        self.result: AgentResult | None = None
        self.accepted = False
        self._metrics = AgentMetrics()
        self._started = time.perf_counter()

    @property
    def _tag(self) -> tuple[str, str | None]:
        return self.state.run_id, self._session.thread_id

    def _count(self, **more: int) -> None:
        self._metrics = replace(
            self._metrics, **{name: getattr(self._metrics, name) + count for name, count in more.items()}
        )

    async def _save(self, step: str, status: str = "running") -> None:
        facts = {"agent_id": self.state.agent_id, "run_id": self.state.run_id, "step": step, "status": status}
        saved = await self._session.save(self.state, facts)
        if saved is not None:
            self.accepted = True
            self._count(checkpoints=1)
            await self._emit(CheckpointSavedEvent(*self._tag, saved, len(self.state.messages)))

    async def _interrupt(self, interrupt: Interrupt) -> None:
        """Stop for a person's decision; what is asked is kept."""
        self.state = approvals.interrupted(self.state, interrupt)
        await self._save("interrupt", "interrupted")
        await self._wait_for(interrupt)

    async def _wait_for(self, interrupt: Interrupt) -> None:
        await self._close("interrupt", interrupt)
        await self._emit(InterruptEvent(*self._tag, interrupt))

    async def _end(self, reason: StopReason) -> None:
        """The run is over. A complete one was saved with its answer, and all others are now."""
        if reason != "complete":
            await self._save("stopped", "done")
        result = await self._close(reason, None)
        await self._emit(TerminateEvent(*self._tag, reason, result.message))

    async def _close(self, reason: StopReason, interrupt: Interrupt | None) -> AgentResult:
        await self._session.finish(self.state)
        duration = round((time.perf_counter() - self._started) * 1000, 3)
        self.result = AgentResult(
            message=last_words(self.state.messages),
            state=self.state,
            stop_reason=reason,
            metrics=replace(self._metrics, duration_ms=duration),
            thread_id=self._session.thread_id,
            checkpoint_id=self._session.latest,
            interrupt=interrupt,
        )
        return self.result


def last_words(messages: Sequence[Message]) -> str:
    """What the assistant said last in answer to the last user message."""
    for message in reversed(messages):
        if message.role is Role.USER:
            break
        if message.role is Role.ASSISTANT and message.text:
            return message.text
    return ""
