"""An agent that saves again and again; in a process of its own: `python -m … STORE THREAD COUNT`.

It takes the thread up wherever it is. The process writes the number of each checkpoint on a line when it is saved.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends import sqlite_checkpointer

PAUSE = 0.05


async def saves(path: str, thread_id: str, count: int, pause: float = 0.0) -> AsyncIterator[int]:
    """Save so often; the numbers of the checkpoints."""
    async with sqlite_checkpointer(path, durability="normal") as handle:
        state = await handle.load(thread_id) or AgentState(agent_id="writer")
        for _ in range(count):
            state = state.with_message(Message.assistant(f"Message {len(state.messages)}"))
            await handle.save(state, thread_id, metadata={"messages": len(state.messages)})
            (newest,) = await handle.history(thread_id, limit=1)
            yield newest.seq
            await asyncio.sleep(pause)


async def main(path: str, thread_id: str, count: int) -> None:
    async for number in saves(path, thread_id, count, PAUSE):
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
