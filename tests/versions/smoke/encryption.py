"""A thread that is sealed and opened again: `python -m tests.versions.smoke.encryption`."""

from __future__ import annotations

import asyncio

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.encryption import Keyring, new_key
from locus.memory import get_checkpointer


async def check() -> None:
    state = AgentState(metadata={"large": "x" * 5_000}).with_message(Message.user("hello"))
    async with get_checkpointer("memory", keys=Keyring({"a": new_key()})) as handle:
        await handle.save(state, "thread", metadata={"kind": "walrus"})
        await handle.copy_thread("thread", "copy")
        assert await handle.load("copy") == state
        assert len(await handle.query_by_metadata("kind", "walrus")) == 2


if __name__ == "__main__":
    asyncio.run(check())
