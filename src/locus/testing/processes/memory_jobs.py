"""Jobs on long-term memory for worker processes (see `jobs`)."""

from __future__ import annotations

from collections.abc import Sequence

from locus.errors import ConflictError
from locus.memory.long_term import LongTermMemory, get_long_term_memory
from locus.testing.processes.jobs import wait_for_the_others
from locus.testing.processes.workers import Channel


async def count_up(talk: Channel, url: str, namespace: Sequence[str], key: str, count: int) -> int:
    """Raise a number that others raise at the same time, so many times. Returns how often another one was faster."""
    refused = 0
    async with get_long_term_memory(url) as memory:
        await wait_for_the_others(talk)
        while count:
            item = await memory.get_item(namespace, key)
            try:
                await memory.put(namespace, key, item.value + 1 if item else 1, if_version=item)
            except ConflictError:
                refused += 1
            else:
                count -= 1
    return refused


async def put_until_killed(talk: Channel, url: str, namespace: Sequence[str], key: str) -> None:
    """Put the numbers from 1 on as versions of an item, and report each that was acknowledged."""
    async with get_long_term_memory(url) as memory:
        await _put_on(talk, memory, namespace, key)


async def _put_on(talk: Channel, memory: LongTermMemory, namespace: Sequence[str], key: str) -> None:
    number = 0
    while True:
        number += 1
        item = await memory.put(namespace, key, {"number": number, "text": "x" * 500})
        talk.send(acknowledged=number, version=item.version)
        if number % 3 == 0:
            await memory.put(namespace, f"{key} gone", number)
            await memory.delete(namespace, f"{key} gone", if_version=await memory.get_item(namespace, f"{key} gone"))
            talk.send(deleted=number)
