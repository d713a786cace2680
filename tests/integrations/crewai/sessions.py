"""Sessions of CrewAI's flows, for the suite: each state is handed over as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from locus.memory.checkpointer import Checkpointer
from locus.testing.framework_sessions import Appends, FrameworkSessions, Said


class FlowSessions(FrameworkSessions):
    """A method of a flow adds a batch to the messages of its state, and then the state is saved."""

    imports = ("crewai.flow.persistence", "locus.integrations.crewai")
    appends = Appends.SNAPSHOTS
    reads_to_append = True
    reads_newest = False

    def __init__(self, store: Checkpointer) -> None:
        super().__init__(store)
        from locus.integrations.crewai import LocusFlowPersistence  # `.venv` reads the facts above without CrewAI

        self._flows = LocusFlowPersistence(store)

    async def create(self, session_id: str) -> None:
        """A flow begins with its first state."""

    async def revision(self, session_id: str) -> list[dict[str, str]]:
        state = await asyncio.to_thread(self._flows.load_state, session_id)
        return [] if state is None else state["messages"]

    async def append(self, session_id: str, batch: Sequence[Said], revision: Any) -> None:
        state = {"id": session_id, "messages": [*revision, *({"id": said.id, "content": said.text} for said in batch)]}
        await asyncio.to_thread(self._flows.save_state, session_id, "answer", state)

    async def read(self, session_id: str, newest: int | None = None) -> list[str]:
        texts = [message["content"] for message in await self.revision(session_id)]
        return texts if newest is None else texts[-newest:]

    async def reachable(self, session_id: str) -> list[str]:
        versions = await asyncio.to_thread(self._flows.versions, session_id, None)
        return [message["content"] for state in versions.values() for message in state["messages"]]

    async def known(self, session_id: str) -> bool:
        return await asyncio.to_thread(self._flows.load_state, session_id) is not None

    async def delete(self, session_id: str) -> None:
        await asyncio.to_thread(self._flows.delete, session_id)

    async def fork(self, session_id: str, new_session_id: str) -> None:
        """The calls of `kickoff(restore_from_state_id=…)`, with the id that an input pins."""
        state = await asyncio.to_thread(self._flows.load_state, session_id)
        assert state is not None
        await asyncio.to_thread(self._flows.save_state, new_session_id, "begin", {**state, "id": new_session_id})


class PausedFlows(FlowSessions):
    """Each batch ends with a question to a person, in one step with the state. The two never tell different things."""

    forks = False

    async def revision(self, session_id: str) -> list[dict[str, str]]:
        paused = await asyncio.to_thread(self._flows.load_pending_feedback, session_id)
        if paused is None:
            assert await asyncio.to_thread(self._flows.load_state, session_id) is None
            return []
        state, context = paused
        assert context.message == state["messages"][-1]["content"]
        messages: list[dict[str, str]] = state["messages"]
        return messages

    async def append(self, session_id: str, batch: Sequence[Said], revision: Any) -> None:
        from crewai.flow.async_feedback.types import PendingFeedbackContext

        context = PendingFeedbackContext(session_id, "Review", "ask", None, batch[-1].text)
        state = {"id": session_id, "messages": [*revision, *({"id": said.id, "content": said.text} for said in batch)]}
        await asyncio.to_thread(self._flows.save_pending_feedback, session_id, context, state)
