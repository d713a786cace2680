"""Kills: a process that is killed while it saves, at a random moment or at any line, leaves whole checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest

from locus.testing.data import SOAK
from locus.testing.laws.base import WorkerLaws
from locus.testing.processes.crash import kill_at_lines, kill_at_random, kill_while_many_save
from locus.testing.processes.workers import Crew
from locus.testing.stores import DurableTestStore

RecordProperty = Callable[[str, object], None]


class CrashLaws(WorkerLaws):
    """A kill tears nothing, and loses nothing that was acknowledged. `LOCUS_SOAK=1` kills at every single line."""

    random_kills: ClassVar[int] = 40
    """The number of processes that are killed at random moments."""

    line_samples: ClassVar[int] = 20
    """The number of kills that are spread over all lines of a save, besides those at each line of the engine."""

    line_step: ClassVar[int] = 1
    """Kill at every nth line of the engine: more than 1 where the same engine is tried elsewhere, too."""

    line_last: ClassVar[int] = 10
    """The number of last lines, when all is done but the answer, at which a process is killed."""

    @pytest.mark.crash
    async def test_a_process_killed_at_any_moment_tears_nothing(
        self, store: DurableTestStore, crew: Crew, record_property: RecordProperty
    ) -> None:
        kills = 1_000 if SOAK else self.random_kills
        tally = await kill_at_random(crew, store.open_after_kill, seed=20_240_517, kills=kills)
        record_property("crash", str(tally))
        assert tally.inside >= kills // 4, f"too few kills fell inside a save: {tally}"
        assert tally.both_sides, f"kills fell on one side of the commit only: {tally}"

    @pytest.mark.crash
    async def test_a_process_killed_while_many_save_at_once_tears_nothing(
        self, store: DurableTestStore, crew: Crew, record_property: RecordProperty
    ) -> None:
        """Saves of many threads may share a commit, and so its fate."""
        kills = 200 if SOAK else max(4, self.random_kills // 4)
        tally = await kill_while_many_save(crew, store.open_after_kill, seed=7, kills=kills, threads=8)
        record_property("crash", str(tally))
        assert tally.inside >= 2 * kills, f"too few kills fell inside a save: {tally}"

    @pytest.mark.crash
    @pytest.mark.parametrize("step", ["first", "append", "replace", "delete", "write"])
    async def test_a_process_killed_at_any_line_of_a_save_tears_nothing(
        self, store: DurableTestStore, crew: Crew, step: str, record_property: RecordProperty
    ) -> None:
        tally = await kill_at_lines(
            crew,
            store.open_after_kill,
            step=step,
            evenly=None if SOAK else self.line_samples,
            every=self.line_step,
            last=self.line_last,
        )
        record_property("crash", str(tally))
        record_property("killed at", tally.positions)
        assert tally.inside >= len(tally.ledgers) * 3 // 4, f"too few kills fell inside the {step}: {tally}"
        assert tally.completed < tally.inside, f"every kill came after the commit: {tally}"
        async with store.open() as checkpointer:
            threads = await checkpointer.list_threads(limit=None)
        assert {ledger.thread_id for ledger in tally.ledgers if ledger.content.checkpoints} <= set(threads)
