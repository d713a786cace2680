"""The checker of campaigns is tested itself: a store that is broken on purpose is reported, and a sound one is not."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from locus.memory.backends import sqlite_checkpointer
from locus.memory.store import CheckpointStore
from locus.testing.campaign.checker import check
from locus.testing.campaign.finding import Finding, Kind
from locus.testing.campaign.found import find_threads
from locus.testing.campaign.history import ClientLog, History
from locus.testing.campaign.recorded import RecordedCheckpointer
from locus.testing.campaign.workload import Worker
from tests.testing.broken_durable import SQLite
from tests.testing.campaign import broken_stores as broken

TIMES = 8
"""How often each of two clients does what shows a flaw."""

COURSES = 5
"""Two clients take turns as the machine lets them, and a course in which a flaw never showed has to be possible."""


class Flaw(NamedTuple):
    """A store, what is to be found, and what clients have to do for that."""

    store: Callable[[str], SQLite]
    kind: Kind
    steps: tuple[str, ...]


FLAWS = (
    Flaw(broken.AcknowledgesEarly, Kind.LOST, ("append", "save_together")),
    Flaw(broken.DropsSaves, Kind.LOST, ("append_some",)),
    Flaw(broken.SwallowsRefusals, Kind.LOST, ("be_next", "be_next")),
    Flaw(broken.LosesWrites, Kind.LOST, ("append", "write")),
    Flaw(broken.KeepsTornSaves, Kind.TORN, ("append_some",)),
    Flaw(broken.ChangesValues, Kind.TORN, ("append_some",)),
    Flaw(broken.IgnoresConditions, Kind.WRONG_LATEST, ("be_next", "be_next")),
    Flaw(broken.RefusesAndWrites, Kind.REFUSED, ("be_next", "be_next")),
    Flaw(broken.SwapsSaves, Kind.ORDER, ("append_some",)),
    Flaw(broken.DeletesNothing, Kind.DELETED, ("append", "delete")),
    Flaw(broken.LoadsOldStates, Kind.WRONG_LATEST, ("append", "append", "append", "delete")),
    Flaw(broken.LoadsWhatWasReplaced, Kind.WRONG_LATEST, ("append", "replace", "look")),
    Flaw(broken.ReplacesInPlace, Kind.ORDER, ("append_some", "replace")),
    Flaw(broken.ListsTooLittle, Kind.WRONG_LATEST, ("append_some", "look", "look", "look")),
    Flaw(broken.DoesNotFind, Kind.WRONG_LATEST, ("append", "look", "look", "look")),
    Flaw(broken.ShowsOldWrites, Kind.ORDER, ("append", "write", "write", "write", "look")),
    Flaw(broken.SavesTwice, Kind.TWICE, ("append_some",)),
)


async def findings_about(
    store: Callable[[str], SQLite], folder: Path, steps: Sequence[str | None] = (None, None), seed: int = 0
) -> list[Finding]:
    """Two clients use the store at the same time, and are gone without a word; then somebody else looks."""
    folder.mkdir(exist_ok=True)
    path = folder / "locus.db"
    handles = []
    for name in "ab":
        checkpointer = RecordedCheckpointer(
            CheckpointStore(store(str(path))), ClientLog(folder / f"client-{name}.jsonl", name)
        )
        handles.append(checkpointer)

    async def use(checkpointer: RecordedCheckpointer) -> None:
        name = checkpointer.log.client
        worker = Worker(checkpointer, random.Random(f"{name}{seed}"), "t/", name, vacuums=False)
        for step in (*steps,) * TIMES:
            await worker.step(None if step is None else getattr(worker, step))

    await asyncio.gather(*map(use, handles))
    history = History.read(folder)
    places: dict[str, set[tuple[str, str]]] = {}
    for one in history.of_kind("writes"):
        places.setdefault(one.thread, set()).add((one.facts["id"], one.facts["task"]))
    async with sqlite_checkpointer(path) as fresh:
        found = await find_threads(fresh, "t/", places)
    for checkpointer in handles:
        await SQLite.close(checkpointer.store.engine)  # type: ignore[arg-type] # without what a broken one would add
    return check(history, found)


@pytest.mark.parametrize("store", [SQLite, broken.Alone])
async def test_a_sound_store_is_not_reported(store: Callable[[str], SQLite], tmp_path: Path) -> None:
    assert await findings_about(store, tmp_path) == []


@pytest.mark.parametrize("flaw", FLAWS, ids=lambda flaw: flaw.store.__name__)
async def test_a_broken_store_is_reported(flaw: Flaw, tmp_path: Path) -> None:
    found: Counter[Kind] = Counter()
    for seed in range(COURSES):
        findings = await findings_about(flaw.store, tmp_path / str(seed), flaw.steps, seed)
        found.update(finding.kind for finding in findings)
        if found[flaw.kind]:
            break
    assert found[flaw.kind] > 0, found
