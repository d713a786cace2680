"""Saves that add to lists which nobody has read, with a dict beside them in the same step."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from locus.errors import ConflictError
from locus.memory.backends import SQLiteBackend
from locus.memory.model.parts import Window
from locus.memory.model.payloads import dict_from, dict_payload, kept_trace
from locus.memory.model.records import Stored

NEWEST = Window(1, frozenset({("items",), ("left",)}))


@pytest_asyncio.fixture
async def backend(tmp_path: Path) -> AsyncIterator[SQLiteBackend]:
    async with SQLiteBackend(tmp_path / "locus.db") as backend:
        yield backend


def _items(*numbers: int) -> list[Any]:
    return [{"number": number} for number in numbers]


async def _newest(backend: SQLiteBackend) -> Stored:
    stored = await backend.store.read_part("t", None, "default", NEWEST)
    assert stored is not None
    return stored


async def _save(backend: SQLiteBackend, stored: Stored, kept: dict[str, int], **fields: Any) -> None:
    omitted = {name: count for name, count in kept.items() if count}
    await backend.store.save(
        "t",
        dict_payload(fields)._replace(omitted=omitted),
        namespace="default",
        if_latest=stored.entry.checkpoint_id,
        known=kept_trace(stored, kept, sort_keys=False),
    )


async def test_items_are_added_behind_those_that_were_not_read(backend: SQLiteBackend) -> None:
    tips = [f"tip {number:040}" for number in range(5)]
    await backend.save("t", {"items": _items(*range(50)), "left": [], "record": {"n": 1, "tips": tips}})
    for number in range(50, 60):
        stored = await _newest(backend)
        record = {"n": number, "tips": [*tips[1:], f"{number}"]}
        kept = {"items": number, "left": max(0, number - 50)}
        await _save(backend, stored, kept, items=_items(number), left=_items(-number), record=record)
    assert await backend.load("t") == {
        "items": _items(*range(60)),
        "left": _items(*range(-50, -60, -1)),
        "record": {"n": 59, "tips": [*tips[1:], "59"]},
    }
    found = await _newest(backend)
    assert dict_from(found, [("items",), ("left",)])["record"] == {"n": 59, "tips": [*tips[1:], "59"]}


@pytest.mark.parametrize("kept", [0, 1, 20, 49])
async def test_fewer_items_are_kept(backend: SQLiteBackend, kept: int) -> None:
    for number in range(50):
        await backend.save("t", {"items": _items(*range(number + 1)), "left": []})
    await _save(backend, await _newest(backend), {"items": kept, "left": 0}, items=_items(7, 8), left=[])
    assert await backend.load("t") == {"items": _items(*range(kept), 7, 8), "left": []}
    await _save(backend, await _newest(backend), {"items": kept + 1, "left": 0}, items=[], left=_items(1))
    assert await backend.load("t") == {"items": _items(*range(kept), 7), "left": _items(1)}


async def test_another_writer_who_was_faster_is_noticed(backend: SQLiteBackend) -> None:
    await backend.save("t", {"items": _items(1), "left": []})
    stored = await _newest(backend)
    await _save(backend, stored, {"items": 1, "left": 0}, items=_items(2), left=[])
    with pytest.raises(ConflictError):
        await _save(backend, stored, {"items": 1, "left": 0}, items=_items(3), left=[])
    assert await backend.load("t") == {"items": _items(1, 2), "left": []}
