"""Sessions of the Claude Agent SDK in our store: `python -m tests.versions.smoke.claude_agent_sdk FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

from claude_agent_sdk import get_session_messages_from_store, list_sessions_from_store, project_key_for_directory
from claude_agent_sdk.testing import run_session_store_conformance
from claude_agent_sdk.types import SessionKey

from locus.integrations.claude_agent_sdk import LocusSessionStore


def entry(role: str, text: str) -> Any:
    return {"type": role, "uuid": str(uuid4()), "message": {"role": role, "content": text}}


async def check(folder: Path) -> None:
    key: SessionKey = {"project_key": project_key_for_directory(str(folder)), "session_id": str(uuid4())}
    async with LocusSessionStore(f"sqlite:{folder / 'sessions.db'}") as store:
        tenants = iter(range(100))
        await run_session_store_conformance(lambda: LocusSessionStore(f"sqlite:{folder / f'{next(tenants)}.db'}"))
        batch = [entry("user", "Hello"), entry("assistant", "Hi")]
        for _ in range(2):
            await store.append(key, batch)
        assert await store.load(key) == batch
        assert len(await get_session_messages_from_store(store, key["session_id"], str(folder))) > 0
        (listed,) = await list_sessions_from_store(store, str(folder))
        assert listed.first_prompt == "Hello"
        forked = await store.fork(key)
        await store.delete(key)
        assert await store.load(key) is None
        assert await store.load(forked) is not None


if __name__ == "__main__":
    asyncio.run(check(Path(sys.argv[1])))
