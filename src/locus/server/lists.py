"""Lists of checkpoints: as long as the sender asks for, and no larger than the server may build."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from locus.memory.model.codec import encode_trusted
from locus.memory.model.records import Entry, Hit
from locus.server.bodies import text_response
from locus.server.memory_budget import share_of
from locus.wire.format import entry_data, hit_data
from locus.wire.problems import Problem

E = TypeVar("E", Entry, Hit)

MOST_LISTED = 10_000
"""How many ids, or how many checkpoints of one thread, one answer lists."""
FIRST_PORTION = 128
"""How many checkpoints are asked for before their size is known."""
LARGE_LIST = 1_000_000
"""A list of so many characters is written by a worker thread."""
_GROWTH = 4
_ENTRY = 500
"""About what an entry takes besides its metadata."""


async def listed(ask: Callable[[int], Awaitable[list[E]]], limit: int, most: int) -> list[E]:
    """What `ask` finds, which takes how many it may be: first a few, then more, as far as their size allows."""
    asked = FIRST_PORTION
    while True:
        found = await ask(min(asked, limit))
        size = size_of(found)
        if size > most:
            raise too_large(most)
        if asked >= limit or len(found) < asked:
            return found
        asked = min(asked * _GROWTH, max(asked + 1, asked * most // max(size, 1)))


async def list_response(request: Request, name: str, found: Sequence[E], **more: bool) -> Response:
    def text() -> str:
        others = f",{encode_trusted(more)[1:-1]}" if more else ""
        return f'{{"{name}":{encode_trusted([_data(one) for one in found])}{others}}}'

    return await list_text_response(request, size_of(found), text)


async def list_text_response(request: Request, size: int, text: Callable[[], str]) -> Response:
    """The answer with a list that has about this size, as `text` writes it."""
    if size < LARGE_LIST:
        return await text_response(request, text())
    share_of(request).take(2 * size)
    return await text_response(request, await asyncio.to_thread(text))


def size_of(found: Sequence[Entry | Hit]) -> int:
    return sum(
        len(one.entry.metadata) + len(one.snippet) if isinstance(one, Hit) else len(one.metadata) for one in found
    ) + _ENTRY * len(found)


def too_large(most: int) -> Problem:
    return Problem(413, "too_large", f"this list is larger than {most} bytes: ask for fewer with `limit`")


def _data(one: Entry | Hit) -> dict[str, Any]:
    return hit_data(one) if isinstance(one, Hit) else entry_data(one)
