"""Jobs for worker processes on a framework's sessions. Messages are JSON lists of id and text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from locus.testing.framework_sessions.adapter import FrameworkSessions, Said, adapter_class
from locus.testing.processes.jobs import opened, wait_for_the_others
from locus.testing.processes.lines import LineTrace, Position
from locus.testing.processes.workers import Channel


@asynccontextmanager
async def opened_sessions(adapter: str, url: str) -> AsyncIterator[FrameworkSessions]:
    async with opened(url) as checkpointer:
        sessions = adapter_class(adapter)(checkpointer)
        try:
            yield sessions
        finally:
            await sessions.close()


async def append_if_allowed(sessions: FrameworkSessions, session_id: str, batch: Sequence[Said], begun: Any) -> bool:
    """Append a batch. False if the framework refuses it."""
    try:
        await sessions.append(session_id, batch, begun)
    except sessions.refused:
        return False
    return True


async def append_in_rounds(talk: Channel, adapter: str, url: str, session_id: str) -> None:
    """For each batch that is received, read the revision, wait for the other workers, and append when they do."""
    async with opened_sessions(adapter, url) as sessions:
        while (turn := talk.receive()) is not None:
            begun = await sessions.revision(session_id)
            await wait_for_the_others(talk)
            batch = [Said(*said) for said in turn["batch"]]
            talk.send(accepted=await append_if_allowed(sessions, session_id, batch, begun))


async def append_under_trace(
    talk: Channel, adapter: str, url: str, session_id: str, batch: Sequence[Sequence[str]], target: Position | None
) -> dict[str, Any]:
    """Append under a trace. At the target, if there is one, the process kills itself. Returns the lines passed."""
    async with opened_sessions(adapter, url) as sessions:
        trace = LineTrace(type(sessions.store.store.engine), target)
        trace.install()
        begun = await sessions.revision(session_id)
        trace.active = True
        await sessions.append(session_id, [Said(*said) for said in batch], begun)
        trace.active = False
    return {"positions": trace.positions, "engine": trace.engine_folders}
