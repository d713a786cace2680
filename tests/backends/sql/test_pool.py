"""Pools of connections, with connections that lead nowhere."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from typing import Any

import pytest

from locus.memory.backends.sql.config import PoolOptions
from locus.memory.backends.sql.engine import Connection, LoopPools, Pool


class Line(Connection):
    """Remembers what became of it."""

    def __init__(self) -> None:
        self.open = True

    async def execute(self, statement: str, values: Sequence[Any]) -> list[Any]:
        return []

    async def begin(self, writing: bool) -> None: ...

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...

    def in_transaction(self) -> bool:
        return False

    def is_usable(self) -> bool:
        return self.open

    def close(self) -> None:
        self.open = False


class Exchange:
    def __init__(self) -> None:
        self.lines: list[Line] = []

    async def connect(self) -> Line:
        self.lines.append(Line())
        return self.lines[-1]

    @property
    def open(self) -> int:
        return sum(line.open for line in self.lines)


async def test_a_connection_is_used_again_unless_it_is_gone_or_unsound() -> None:
    exchange = Exchange()
    pool = Pool(exchange.connect, PoolOptions())
    first = await pool.take()
    pool.give_back(first, sound=True)
    assert await pool.take() is first
    pool.give_back(first, sound=True)
    first.open = False
    second = await pool.take()
    assert second is not first
    pool.give_back(second, sound=False)
    assert not second.open
    await pool.close()


async def test_who_finds_all_in_use_waits_and_not_for_ever() -> None:
    exchange = Exchange()
    pool = Pool(exchange.connect, PoolOptions(most=1, wait_seconds=0.05))
    line = await pool.take()
    with pytest.raises(TimeoutError, match="all 1 connections were in use"):
        await pool.take()
    waiting = asyncio.ensure_future(pool.take())
    await asyncio.sleep(0)
    pool.give_back(line, sound=True)
    assert await waiting is line


async def test_a_connection_that_cannot_be_opened_takes_no_place() -> None:
    async def refuse() -> Line:
        raise OSError("nobody there")

    pool = Pool(refuse, PoolOptions(most=1, wait_seconds=0.05))
    for _ in range(3):
        with pytest.raises(OSError, match="nobody there"):
            await pool.take()


async def test_what_nobody_needs_for_long_is_closed_down_to_the_least() -> None:
    exchange = Exchange()
    pool = Pool(exchange.connect, PoolOptions(least=1, most=5, idle_seconds=-1))
    lines = [await pool.take() for _ in range(4)]
    for line in lines:
        pool.give_back(line, sound=True)
    assert exchange.open == 1


async def test_what_is_in_use_while_the_pool_is_closed_is_closed_when_it_comes_back() -> None:
    exchange = Exchange()
    pool = Pool(exchange.connect, PoolOptions())
    line = await pool.take()
    await pool.close()
    assert line.open
    pool.give_back(line, sound=True)
    assert not line.open


async def test_each_loop_has_a_pool_and_those_of_closed_loops_are_released() -> None:
    exchange = Exchange()
    pools = LoopPools(exchange.connect, PoolOptions())

    async def use() -> None:
        pool = pools.current()
        assert pools.current() is pool
        pool.give_back(await pool.take(), sound=True)

    await use()
    for _ in range(3):
        await asyncio.to_thread(lambda: asyncio.run(use()))
    assert exchange.open == 2, "one of this loop, and one of the last that was closed"
    await pools.close()
    assert exchange.open == 0


async def test_pools_that_are_dropped_close_their_connections() -> None:
    exchange = Exchange()
    pools = LoopPools(exchange.connect, PoolOptions())
    pool = pools.current()
    pool.give_back(await pool.take(), sound=True)
    assert exchange.open == 1
    del pools, pool
    gc.collect()
    assert exchange.open == 0
