"""What a call is timed for, and what it does not pay for."""

from __future__ import annotations

import asyncio
import weakref

from benchmarks.clock import timed


class Large:
    """Stands for what takes long to let go of."""


async def test_a_call_does_not_pay_for_the_end_of_what_the_one_before_has_read() -> None:
    left: list[weakref.ref[Large]] = []

    def read() -> Large:
        found = Large()
        left.append(weakref.ref(found))
        return found

    async def first() -> str:
        return type(await asyncio.to_thread(read)).__name__

    async def second() -> None:
        assert left[0]() is None

    assert await timed(first) > 0
    await timed(second)
