"""A part of a long thread is read without the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from locus.memory.backends import SQLiteBackend
from locus.memory.model.parts import Range
from locus.memory.model.records import DEFAULT_NAMESPACE
from locus.testing.data import SOAK

TURNS = 800 if SOAK else 400
"""More than 64 KB, so that a list has more than one run even where all is saved at once."""


@pytest.mark.parametrize("start", [0, TURNS // 2, -10], ids=["front", "middle", "end"])
async def test_as_many_runs_are_read_of_a_long_thread_as_of_a_short_one(tmp_path: Path, start: int) -> None:
    read = []
    async with SQLiteBackend(tmp_path / "locus.db") as backend:
        for turns in (40, TURNS):
            items: list[str] = []
            for turn in range(turns):
                items = [*items, f"{turn} {'and so on ' * 20}"]
                await backend.save(f"{turns}", {"items": items})
            part = Range(("items",), start if abs(start) < turns else turns // 2, 10)
            async with backend.store.using() as engine:
                stored = await engine.read_part(f"{turns}", DEFAULT_NAMESPACE, None, part)
            assert stored is not None
            read.append(sum(len(runs) for runs in stored.runs.values()))
    # The run that the manifest names is always there: without it an older state would pass for this one.
    assert read[0] in (10, 11)
    assert read[1] in (10, 11)
