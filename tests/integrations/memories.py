"""`python -m tests.integrations.memories URL`: an agent of Strands, in its own process, says what it knows."""

from __future__ import annotations

import asyncio
import sys

from strands import Agent
from strands.memory import MemoryManager
from strands.types.content import Messages

from locus.integrations.strands import LocusMemoryStore
from locus.memory import LongTermMemory
from tests.integrations.strands.models import FakeModel


def telling(messages: Messages) -> str:
    """Says everything that it was shown."""
    return " | ".join(block["text"] for message in messages for block in message["content"] if "text" in block)


async def main(url: str) -> None:
    async with LongTermMemory(url) as memory:
        manager = MemoryManager(stores=[LocusMemoryStore(memory, "ada")])
        agent = Agent(model=FakeModel(telling), plugins=[manager], callback_handler=None)
        sys.stdout.write(str(await agent.invoke_async("Which tea shall I bring?")))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
