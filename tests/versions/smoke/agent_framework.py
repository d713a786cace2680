"""A run of the Agent Framework with our three stores: `python -m tests.versions.smoke.agent_framework FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_framework import Agent, BaseChatClient, ChatResponse, Message, WorkflowCheckpoint

from locus.errors import ConflictError
from locus.integrations.agent_framework import LocusAgentSessionStore, LocusCheckpointStorage, LocusHistoryProvider
from locus.memory.backends import sqlite_checkpointer


class Echo(BaseChatClient[Any]):
    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **_asked: Any
    ) -> Awaitable[ChatResponse]:
        async def respond() -> ChatResponse:
            return ChatResponse(messages=[Message("assistant", [f"{len(messages)} messages"])])

        return respond()


async def check(folder: Path) -> None:
    async with sqlite_checkpointer(folder / "agents.db") as store:
        history, sessions = LocusHistoryProvider(store), LocusAgentSessionStore(store)
        agent = Agent(client=Echo(), context_providers=[history])
        session = agent.create_session(session_id="alice")
        await agent.run("Hello", session=session)
        assert (await agent.run("Again", session=session)).text == "3 messages"
        assert len(await history.get_messages("alice")) == 4
        await history.fork("alice", "bob", (await history.history("alice"))[-1].checkpoint_id)
        assert len(await history.get_messages("bob")) == 2
        await sessions.set("alice", session)
        stale = await sessions.get("alice")
        assert stale is not None
        await sessions.set("alice", session)
        try:
            await sessions.set("alice", stale)
        except ConflictError:
            stale = None
        assert stale is None
        storage = LocusCheckpointStorage(store)
        await storage.save(WorkflowCheckpoint("flow", "hash", state={"n": {1, 2}}))
        latest = await storage.get_latest(workflow_name="flow")
        assert latest is not None
        assert latest.state == {"n": {1, 2}}


if __name__ == "__main__":
    asyncio.run(check(Path(sys.argv[1])))
