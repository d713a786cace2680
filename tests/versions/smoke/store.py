"""Most of what a store can do, once, by its URL: `python -m tests.versions.smoke.store URL`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConflictError
from locus.memory import get_checkpointer
from locus.memory.checkpointer import Checkpointer


def opened(url: str) -> Checkpointer:
    checkpointer = get_checkpointer(url)
    assert isinstance(checkpointer, Checkpointer)
    return checkpointer


async def check_checkpoints(checkpointer: Checkpointer) -> None:
    state = AgentState().with_message(Message.user("an unusual word: zebra 🦓"))
    first = await checkpointer.save(state, "a/thread", metadata={"topic": "animals"})
    second = await checkpointer.save(state.with_message(Message.assistant("yes")), "a/thread", if_latest=first)
    conflict = await refused(checkpointer.save(state, "a/thread", if_latest=first))
    assert conflict.latest == second
    loaded = await checkpointer.load("a/thread")
    assert loaded is not None
    assert [message.content for message in loaded.messages] == ["an unusual word: zebra 🦓", "yes"]
    assert await checkpointer.load("a/thread", first) == state
    assert await checkpointer.load("another thread") is None
    assert [entry.checkpoint_id for entry in await checkpointer.history("a/thread")] == [second, first]
    assert await checkpointer.list_threads() == ["a/thread"]
    assert (await checkpointer.diff("a/thread", first, second)).added
    await checkpointer.put_writes("a/thread", second, "task", [("channel", {"n": 1})])
    (write,) = await checkpointer.get_writes("a/thread", second)
    assert (write.channel, write.value) == ("channel", {"n": 1})


async def refused(save: Awaitable[object]) -> ConflictError:
    try:
        await save
    except ConflictError as conflict:
        return conflict
    raise AssertionError("a save was made on the condition that an older checkpoint is the latest")


async def check_capabilities(checkpointer: Checkpointer) -> None:
    can = checkpointer.capabilities
    if can.search:
        assert [hit["thread_id"] for hit in await checkpointer.search("zebra")][:1] == ["a/thread"]
    if can.metadata_query:
        (found,) = await checkpointer.query_by_metadata("topic", "animals")
        assert found["thread_id"] == "a/thread"
    assert len(await checkpointer.list_with_metadata()) == 2
    assert await checkpointer.copy_thread("a/thread", "a copy")
    assert await checkpointer.vacuum(keep_last=1) == 2


async def check_removal(checkpointer: Checkpointer) -> None:
    for thread_id in ("a/thread", "a copy"):
        assert await checkpointer.delete(thread_id)
        assert not await checkpointer.exists(thread_id)
    assert await checkpointer.list_threads() == []


async def check_all(url: str) -> None:
    async with opened(url) as checkpointer:
        await check_checkpoints(checkpointer)
        await check_capabilities(checkpointer)
        await check_removal(checkpointer)


def check(url: str) -> None:
    asyncio.run(check_all(url))
    if url == "memory":
        return
    with opened(url).sync as blocking:
        state = AgentState().with_message(Message.user("hi"))
        blocking.save(state, "from a thread")
        assert blocking.load("from a thread") == state
        assert blocking.delete("from a thread")


if __name__ == "__main__":
    check(sys.argv[1])
