"""Agents of Strands on our sessions and snapshots: `python -m tests.versions.smoke.strands FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterable
from pathlib import Path
from typing import Any

from strands import Agent
from strands.models import Model
from strands.session import RepositorySessionManager, SnapshotSessionManager
from strands.types.streaming import StreamEvent

from locus.integrations.strands import LocusSessionRepository, LocusStorage, snapshot_key


class Echo(Model):
    def update_config(self, **model_config: Any) -> None:
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *asked: Any, **more: Any) -> AsyncGenerator[dict[str, Any], None]:
        raise NotImplementedError

    async def stream(self, messages: Any, *asked: Any, **more: Any) -> AsyncIterable[StreamEvent]:
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockDelta": {"delta": {"text": f"{len(messages)} messages"}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def agent(manager: Any) -> Agent:
    return Agent(model=Echo(), session_manager=manager, callback_handler=None)


def check_sessions(folder: Path) -> None:
    with LocusSessionRepository(f"sqlite:{folder / 'sessions.db'}") as sessions:
        agent(RepositorySessionManager("alice", sessions))("Hello")
        result = agent(RepositorySessionManager("alice", sessions))("Again")
        assert str(result).strip() == "3 messages"
        first = next(point for point in sessions.history("alice", None) if point.items == 2)
        sessions.fork("alice", "bob", first.checkpoint_id)
        assert len(sessions.list_messages("bob", "default")) == 2
        sessions.delete_session("alice")
        assert sessions.list_sessions() == ["bob"]


async def check_snapshots(folder: Path) -> None:
    async with LocusStorage(f"sqlite:{folder / 'snapshots.db'}") as storage:
        first = agent(SnapshotSessionManager("alice", storage=storage))
        await first.invoke_async("Hello")
        second = agent(SnapshotSessionManager("alice", storage=storage))
        assert second.messages == first.messages
        assert [point.items for point in await storage.history(snapshot_key("alice"))] == [2]


if __name__ == "__main__":
    check_sessions(Path(sys.argv[1]))
    asyncio.run(check_snapshots(Path(sys.argv[1])))
