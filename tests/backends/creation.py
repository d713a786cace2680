"""Laws of stores that are made by their first use, in a folder."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import ClassVar

import pytest

from locus.testing.data import SOAK
from locus.testing.laws.base import WorkerLaws
from locus.testing.processes.crash import KillTally, followed, lines_to_kill_at, started
from locus.testing.processes.ledger import Ledger
from locus.testing.processes.lines import Choice
from locus.testing.processes.workers import Crew
from locus.testing.stores import DurableTestStore


class CreationLaws(WorkerLaws):
    """Whoever is killed while it makes the store leaves one that works, or none."""

    creation_step: ClassVar[int] = 6
    """Of the lines of the engine, every how many-th is meant; `LOCUS_SOAK=1` kills at each."""

    @abstractmethod
    def store_in(self, folder: Path) -> DurableTestStore:
        """A store that is not there yet."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> DurableTestStore:
        return self.store_in(tmp_path)

    @pytest.mark.crash
    async def test_a_process_killed_while_it_makes_the_store_leaves_one_that_works(
        self, crew: Crew, tmp_path: Path
    ) -> None:
        numbers = count()

        def new_store() -> DurableTestStore:
            folder = tmp_path / str(next(numbers))
            folder.mkdir()
            return self.store_in(folder)

        tally = await _kill_while_creating(crew, new_store, Choice(None if SOAK else 10, self.creation_step))
        assert tally.inside > 50 // self.creation_step, tally
        assert tally.completed < tally.inside, tally


async def _kill_while_creating(crew: Crew, new_store: Callable[[], DurableTestStore], choice: Choice) -> KillTally:
    """Kill a process at lines of the first save, which creates the store, each time in a new store."""
    tally = KillTally()
    for target in lines_to_kill_at(crew, new_store().url, Ledger("made"), "first", choice):
        store, ledger = new_store(), Ledger("made")
        worker = started(crew, store.url, ledger, "first", target)
        followed(worker, ledger)
        if worker.killed:
            await tally.settle(ledger, store.open_after_kill, search=False)
            tally.ledgers.append(ledger)
    return tally
