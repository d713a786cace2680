"""A whole thread as JSON Lines: every checkpoint of every namespace, each item once.

`locus.transfer.jsonl` says what the lines are, and reads them back.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from functools import partial
from typing import Final

from locus.looking.pages import exported_pages
from locus.memory.model.codec import decode, encode, encode_trusted
from locus.memory.model.records import Run, Stored, Write
from locus.memory.store import CheckpointStore

FORMAT: Final = 1
_LONG: Final = 250_000


async def exported_lines(store: CheckpointStore, thread_id: str) -> AsyncGenerator[str, None]:
    """The lines of one thread; none, if it is not there.

    The last one tells that it is all: a file that was cut off between two lines would look like an older thread.
    """
    known: dict[str, int] = {}
    begun, count = False, 0
    async with aclosing(exported_pages(store, thread_id, lambda: known)) as pages:
        async for page in pages:
            if not begun:
                begun = True
                yield encode_trusted({"locus": FORMAT, "thread_id": thread_id})
            for run in sorted(page.runs, key=lambda run: run[:2]):
                if run.number > known.get(run.branch, -1):
                    known[run.branch] = run.number
                    yield await _written(len(run.items), partial(_run_line, run))
            for stored in page.checkpoints:
                count += 1
                entry = stored.entry
                writes = page.writes.get((entry.namespace, entry.checkpoint_id), ())
                size = len(stored.head) + len(stored.manifest) + len(entry.metadata)
                size += sum(len(write.value) for write in writes)
                yield await _written(size, partial(_checkpoint_line, stored, writes))
    if begun:
        yield encode_trusted({"end": thread_id, "checkpoints": count})


async def _written(size: int, line: Callable[[], str]) -> str:
    """A line of about so many characters. Others have their turn while a long one is written."""
    return await asyncio.to_thread(line) if size >= _LONG else line()


def _run_line(run: Run) -> str:
    return (
        f'{{"branch":{json.dumps(run.branch)},"run":{run.number},"start":{run.start},'
        f'"items":{encode(decode(run.items))}}}'
    )


def _checkpoint_line(stored: Stored, writes: Iterable[Write]) -> str:
    entry = stored.entry
    return encode(
        {
            "namespace": entry.namespace,
            "checkpoint_id": entry.checkpoint_id,
            "parent_id": entry.parent_id,
            "created_at": entry.created_at.isoformat(),
            "metadata": decode(entry.metadata),
            "state": decode(stored.head),
            "lists": decode(stored.manifest),
            "writes": [{**write._asdict(), "value": decode(write.value)} for write in writes],
        }
    )
