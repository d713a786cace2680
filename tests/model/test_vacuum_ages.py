"""How old pending writes are whose checkpoint never came, and what removals free."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid1

import pytest

from locus.memory.model.records import Entry, RunInfo
from locus.memory.model.retention import ORPHANS_STAY, Outlived, id_time, orphaned, retention
from locus.memory.model.sizes import Freed, Measured, MeasuredCheckpoint, MeasuredWrites, freed_by, thread_sizes

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
MADE = datetime(2022, 2, 22, 19, 22, 22, tzinfo=UTC)
ONE, SIX, SEVEN = (  # the examples of RFC 9562
    "c232ab00-9414-11ec-b3c8-9f6bdeced846",
    "1ec9414c-232a-6b00-b3c8-9f6bdeced846",
    "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
)


def test_the_time_of_an_id() -> None:
    for name in (ONE, SIX, SEVEN):
        assert id_time(name) == id_time(name.replace("-", "").upper()) == MADE
    made = id_time(str(uuid1()))
    assert made is not None
    assert abs(made - datetime.now(UTC)) < timedelta(hours=1)


@pytest.mark.parametrize(
    "name",
    [
        *("", "c1", "0a5b9c1e-7d52-4c6e-9f5e-3b1d2c4a6e8f", "x" * 36, "é" * 32, "locus:lease"),
        *(str(UUID(int=0)), str(UUID(int=2**128 - 1))),
    ],
)
def test_an_id_without_a_time(name: str) -> None:
    assert id_time(name) is None


def test_a_time_beyond_the_calendar_is_none() -> None:
    assert id_time("ffffffff-ffff-7fff-bfff-ffffffffffff") is None


@pytest.mark.parametrize(("days", "keep_last"), [(None, 1), (0, None), (0.5, 3)])
def test_writes_wait_a_day_at_least(days: float | None, keep_last: int | None) -> None:
    assert retention(NOW, days, keep_last).orphans_before == NOW - ORPHANS_STAY


def test_writes_are_as_old_as_the_vacuum_says() -> None:
    assert retention(NOW, 30, None).orphans_before == NOW - timedelta(days=30)
    assert retention(NOW, float("inf"), None).orphans_before.year == 1


def test_which_writes_go() -> None:
    waiting = {("n", SIX): 2, ("n", "no time"): 3, ("locus:lease", SIX): 1, ("locus:other", "no time"): 1}
    assert orphaned(waiting, NOW) == {("n", SIX): 2}
    assert orphaned(waiting, MADE) == {}
    assert orphaned(waiting, NOW, changed=NOW - timedelta(days=2)) == {("n", SIX): 2, ("n", "no time"): 3}
    assert orphaned(waiting, NOW, changed=NOW) == {("n", SIX): 2}


def _thread() -> Measured:
    """Two lines: 1 and 2, and 3 that is a fork of 1."""
    manifests = [
        '[[["messages"],[["b",0,0,2]]]]',
        '[[["messages"],[["b",1,0,4]]]]',
        '[[["messages"],[["b",0,0,2],["f",0,0,1]]],[["note"],"#v"]]',
    ]
    checkpoints = [
        MeasuredCheckpoint(Entry("t", "default", f"c{seq}", parent, seq, f"r{seq}", NOW, "{}"), manifest, 10 * seq)
        for seq, parent, manifest in zip((1, 2, 3), (None, "c1", "c1"), manifests, strict=True)
    ]
    runs = {
        RunInfo("b", 0, 0, 2): 100,
        RunInfo("b", 1, 2, 2): 200,
        RunInfo("f", 0, 0, 1): 400,
        RunInfo("#v", 0, 0, 1): 7,
    }
    return Measured(checkpoints, runs, {("default", "c2"): MeasuredWrites(2, 5), ("n", SIX): MeasuredWrites(1, 3)})


def test_sizes_by_list_and_what_forks_share() -> None:
    found = thread_sizes("t", _thread())
    assert (found.checkpoints, found.runs, found.writes) == (3, 4, 3)
    assert (found.head_bytes, found.run_bytes, found.write_bytes, found.bytes) == (60, 707, 8, 775)
    assert found.shared_bytes == 100
    assert [(one.path, one.runs, one.bytes, one.shared_bytes) for one in found.lists] == [
        (("messages",), 3, 700, 100),
        (("note",), 1, 7, 0),
    ]


@pytest.mark.parametrize(
    ("removed", "freed"),
    [
        (Outlived("t"), Freed(0, 0, 0, 0)),
        (Outlived("t", {1: "r1"}), Freed(1, 0, 0, 10)),
        (Outlived("t", {2: "r2"}), Freed(1, 1, 2, 20 + 200 + 5)),
        (Outlived("t", {3: "r3"}), Freed(1, 2, 0, 30 + 407)),
        (Outlived("t", {3: "another"}), Freed(0, 0, 0, 0)),
        (Outlived("t", {}, {("n", SIX): 1}), Freed(0, 0, 1, 3)),
        (Outlived("t", {1: "r1", 2: "r2", 3: "r3"}), Freed(3, 4, 3, 775)),
    ],
)
def test_what_a_removal_frees(removed: Outlived, freed: Freed) -> None:
    assert freed_by(_thread(), removed) == freed
