"""Removing in portions comes to the same as removing at once, whatever is saved in between."""

from __future__ import annotations

import random
from copy import deepcopy

import pytest

from locus.memory.backends import MemoryCheckpointer
from locus.memory.backends.memory import MemoryEngine
from locus.memory.model.manifest import wanted
from locus.memory.model.records import ANY, RunInfo
from locus.memory.model.retention import unneeded_runs
from locus.memory.model.table import ThreadTable
from locus.memory.model.trimming import Trimming
from locus.testing.laws.base import dicts


async def _grow(handle: MemoryCheckpointer, chance: random.Random, count: int) -> None:
    """Saves of any kind: appended, edited, cut short, forked, in two namespaces, with a large value now and then."""
    for turn in range(count):
        namespace = chance.choice(("default", "default", "", "other"))
        history = await handle.store.history("t", 50, None, namespace)
        start = chance.choice(history) if history and chance.random() < 0.3 else None
        old = await dicts(handle).load("t", start.checkpoint_id if start else None, namespace=namespace) or {
            "items": []
        }
        items = list(old["items"])
        match chance.randrange(4):
            case 0 if items:
                items[-1] = {"edited": turn}
            case 1:
                items = items[chance.randrange(len(items) + 1) :]
            case _:
                items += [{"turn": turn, "n": n} for n in range(chance.randrange(1, 4))]
        state = {"items": items, "large": f"{turn // 7} " * 700, "turn": turn}
        parent = start.checkpoint_id if start else ANY
        await dicts(handle).save("t", state, namespace=namespace, parent=parent)


def _table(handle: MemoryCheckpointer) -> ThreadTable:
    engine = handle.store.engine
    assert isinstance(engine, MemoryEngine)
    return engine._tables["t"]


def _infos(table: ThreadTable) -> list[RunInfo]:
    return [RunInfo(*run[:4]) for runs in table.runs.values() for run in runs]


def _is_whole(table: ThreadTable) -> bool:
    extents = [extent for row in table.rows.values() for extent in wanted(row.manifest)]
    parents = {(row.entry.namespace, row.entry.parent_id) for row in table.rows.values() if row.entry.parent_id}
    return not unneeded_runs(extents, _infos(table)) and parents <= table.ids.keys()


def _shape(table: ThreadTable) -> tuple[object, object]:
    runs = {(run.branch, run.number): run for runs in table.runs.values() for run in runs}
    return table.rows, runs


@pytest.mark.parametrize("seed", range(12))
async def test_portions_come_to_the_same_as_one_removal(seed: int) -> None:
    chance = random.Random(seed)
    handle = MemoryCheckpointer()
    await _grow(handle, chance, 60)
    table = _table(handle)
    doomed = {seq for seq in table.rows if chance.random() < 0.7} - {max(table.rows)}
    extents = {seq: wanted(row.manifest) for seq, row in table.rows.items()}
    plan = Trimming((row.entry for row in table.rows.values()), extents, _infos(table), doomed, most=6)
    portions = 0
    while portion := plan.next():
        assert plan.left == sum(seq <= plan.last_seq for seq in table.rows)
        newer = [(row.entry, wanted(row.manifest)) for seq, row in table.rows.items() if seq > plan.last_seq]
        contested = plan.contested(portion, [found for _, found in newer])
        runs = [run for run in _infos(table) if run.number > contested.get(run.branch, run.number)]
        removal = plan.removal(portion, newer, sorted(runs))
        at_once = deepcopy(table)
        at_once.remove(portion.seqs)
        table._drop(portion.seqs, removal, keep_writes=False)
        plan.done(portion)
        assert _shape(table) == _shape(at_once)
        assert _is_whole(table)
        portions += 1
        if chance.random() < 0.5:
            await _grow(handle, chance, 2)
    assert portions > 5
    assert not doomed & table.rows.keys()
    for row in list(table.rows.values()):
        assert await handle.store.read("t", row.entry.checkpoint_id, row.entry.namespace) is not None
