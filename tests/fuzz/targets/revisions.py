"""What a person types for a checkpoint (`THREAD@#42`), cursors, and the paths and ages of commands."""

from __future__ import annotations

import asyncio
from argparse import ArgumentTypeError
from contextlib import suppress
from functools import cache
from typing import Final

from locus.cli.log import moment
from locus.core.state import AgentState
from locus.looking.formatting import days
from locus.looking.reading import key_of, position_of
from locus.looking.revisions import is_thread, parse, resolve
from locus.memory.backends import MemoryCheckpointer
from locus.memory.model.cursors import check_cursor, numbers_in, parts_of
from locus.memory.store import CheckpointStore
from tests.fuzz.judge import expects


@cache
def _store() -> tuple[asyncio.AbstractEventLoop, CheckpointStore]:
    """Some threads, with ids that look like revisions of each other."""
    loop, handle = asyncio.new_event_loop(), MemoryCheckpointer()

    async def fill() -> None:
        for thread_id in ("t", "t@c1", "a@b@c", "@", "x@#1"):
            for number in range(3):
                await handle.save(AgentState(iteration=number), thread_id, f"c{number}")
        await handle.save(AgentState(), "t", "deep", namespace="other")

    loop.run_until_complete(fill())
    return loop, handle.store


def _moment(text: str) -> None:
    with suppress(ArgumentTypeError):  # argparse shows it, and says how to do it right
        moment(text)


def run(data: bytes) -> int:
    text = data.decode(errors="surrogateescape")
    loop, store = _store()
    meant = parse(text)
    expects(1 <= len(meant) <= 2, "a text means neither one thing nor two")
    failed: Exception | None = None
    for work in (
        lambda: loop.run_until_complete(resolve(store, text)),
        lambda: loop.run_until_complete(resolve(store, "t", checkpoint=text)),
        lambda: loop.run_until_complete(is_thread(store, text)),
        lambda: check_cursor(text),
        lambda: numbers_in(text, 2),
        lambda: parts_of(text, 1),
        lambda: key_of({"a": 1, "a.b": 2}, text.split(".")),
        lambda: position_of(text, 7),
        lambda: days(text),
        lambda: _moment(text),
    ):
        try:
            work()
        except Exception as error:  # noqa: BLE001 - each of them is to have its turn
            failed = failed or error
    if failed is not None:
        raise failed
    return len(text)


SEEDS: Final = [
    text.encode()
    for text in (
        "t",
        "t@c1",
        "t@#2",
        "t@~1",
        "t@~",
        "a@b@c",
        "x@#1",
        "messages[3].content",
        "30d",
        "12 1 2",
        "2026-01-01",
    )
]
