"""Lists of checkpoints in answers, with limits on their length and on their size."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from locus.memory.model.codec import encode_trusted
from locus.memory.model.records import Entry, Hit
from locus.server.bodies import made, text_response
from locus.wire.format import entry_data, hit_data
from locus.wire.problems import Problem

E = TypeVar("E", Entry, Hit)

MOST_LISTED = 10_000
"""The most ids, or checkpoints of one thread, in one answer."""
FIRST_PORTION = 128
"""How many checkpoints to read first, before their size is known."""
_GROWTH = 4
_ENTRY = 500
"""About how many characters an entry has besides its metadata."""


async def listed(ask: Callable[[int], Awaitable[list[E]]], limit: int, most: int) -> list[E]:
    """Run a query with a small limit first, then with larger ones, as far as the size of the result allows.

    Raises a problem if the result is larger than `most` characters.
    """
    portion = FIRST_PORTION
    while True:
        entries = await ask(min(portion, limit))
        size = size_of(entries)
        if size > most:
            raise too_large(most)
        if portion >= limit or len(entries) < portion:
            return entries
        portion = min(portion * _GROWTH, max(portion + 1, portion * most // max(size, 1)))


async def list_response(request: Request, name: str, entries: Sequence[E], **more: bool) -> Response:
    def text() -> str:
        others = f",{encode_trusted(more)[1:-1]}" if more else ""
        return f'{{"{name}":{encode_trusted([_data(entry) for entry in entries])}{others}}}'

    return await text_response(request, await made(request, size_of(entries), text, times=2))


def size_of(entries: Sequence[Entry | Hit]) -> int:
    sizes = (len(e.entry.metadata) + len(e.snippet) if isinstance(e, Hit) else len(e.metadata) for e in entries)
    return sum(sizes) + _ENTRY * len(entries)


def too_large(most: int) -> Problem:
    return Problem(413, "too_large", f"this list is larger than {most} bytes: ask for fewer with `limit`")


def _data(entry: Entry | Hit) -> dict[str, Any]:
    return hit_data(entry) if isinstance(entry, Hit) else entry_data(entry)
