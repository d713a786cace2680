"""An append that is decided by the newest items, in the same step as it is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from locus.memory import item_log
from locus.memory.backends import sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.item_log import ItemLog


def log_on(handle: Checkpointer) -> ItemLog:
    return ItemLog(handle.store, "t", "log")


def unless_there(item: Any, asked: list[list[Any]] | None = None) -> Callable[[list[Any]], list[Any]]:
    def choose(newest: list[Any]) -> list[Any]:
        if asked is not None:
            asked.append(newest)
        return [] if item in newest else [item]

    return choose


async def test_it_sees_as_many_as_it_asks_for(handle: Checkpointer) -> None:
    asked: list[list[Any]] = []
    log = log_on(handle)
    for number in range(5):
        await log.append_new(2, unless_there(number, asked))
    await log_on(handle).append_new(3, unless_there(3, asked))
    await log_on(handle).append_new(0, unless_there(5, asked))
    await log_on(handle).append_new(100, unless_there(0, asked))
    assert asked == [[], [0], [0, 1], [1, 2], [2, 3], [2, 3, 4], [], [0, 1, 2, 3, 4, 5]]
    assert await log.read() == [0, 1, 2, 3, 4, 5]


async def test_it_decides_anew_if_another_writer_was_faster(handle: Checkpointer) -> None:
    asked: list[list[Any]] = []
    log, other = log_on(handle), log_on(handle)
    await log.append(["a"])
    await other.append(["b"])
    await log.append_new(1, unless_there("b", asked))
    assert asked == [["a"], ["b"]], "what it remembered was old"
    assert await log.read() == ["a", "b"]
    writers = [log_on(handle) for _ in range(6)]
    await asyncio.gather(*(writer.append_new(9, unless_there("only once")) for writer in writers))
    assert await log.read() == ["a", "b", "only once"]


async def test_nothing_is_believed_that_was_taken_back(handle: Checkpointer) -> None:
    asked: list[list[Any]] = []
    log = log_on(handle)
    await log.append(["a"])
    first = await log.latest()
    assert first is not None
    await log.append(["b", "c"])
    assert await log.pop() == "c"
    assert await log.pop() == "b"
    await log.append_new(9, unless_there("b", asked))
    await log.rewind(first)
    await log.append_new(9, unless_there("d", asked))
    assert asked == [["a"], ["a"]]
    assert await log.read(hold=4) == ["a", "d"]
    await log.delete()
    await log.append_new(9, unless_there("d", asked))
    assert asked[-1] == []
    assert await log.read() == ["d"]


@pytest.mark.parametrize("hold", [1, 3, 500])
async def test_what_is_held_is_what_was_read(handle: Checkpointer, hold: int) -> None:
    await log_on(handle).append([{"n": number} for number in range(50)])
    log = log_on(handle)
    for item in await log.read(40, hold=hold):
        item["n"] = "changed by the reader"
    asked: list[list[Any]] = []
    await log.append_new(2, unless_there({"n": 49}, asked))
    assert asked[-1] == [{"n": 48}, {"n": 49}]


async def test_little_is_held(tmp_path: Any) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db") as handle:
        log = log_on(handle)
        await log.append(["x"] * 1_000)
        assert log._latest is not None
        assert len(log._latest.tail) == item_log._HELD
        for large in ("y" * 40_000, "z" * 40_000, "last" * 40_000):
            await log.append([large])
            assert log._latest is not None
            assert sum(map(len, log._latest.tail)) <= item_log._HELD_TEXT
        await log.read(hold=10)
        assert log._latest is not None
        assert log._latest.tail == ()
        assert await log.pop() == "last" * 40_000
        assert await log.pop() == "z" * 40_000
