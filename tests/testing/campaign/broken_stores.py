"""Stores that are broken on purpose, each in one way that a campaign must report."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from locus.memory.engine import CommitsTogether
from locus.memory.model.records import ANY, Base, Commit, Entry, Outcome, Stored, TaskWrites, Verdict, Write
from tests.testing.broken_durable import SQLite
from tests.unsealed import unseal

EVERY = 7
"""Of so many commits, one goes wrong."""


class Alone(SQLite):
    """Sound. Each save has a commit of its own, so that there is one place in which to break it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._commits = 0

    def offers(self, capability: type) -> bool:
        return capability is not CommitsTogether and super().offers(capability)

    def _is_next(self) -> bool:
        """Whether it is time that something goes wrong."""
        self._commits += 1
        return self._commits % EVERY == 0


class AcknowledgesEarly(Alone):
    """The last save of each thread is only in memory. This process does not notice; whoever comes after it does."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._early: dict[str, Commit] = {}

    async def _catch_up(self, thread_id: str) -> None:
        if (late := self._early.pop(thread_id, None)) is not None:
            await super().commit(late)

    async def commit(self, commit: Commit) -> Outcome:
        await self._catch_up(commit.thread_id)
        if not commit.fresh_id or commit.if_latest is not ANY:
            return await super().commit(commit)
        self._early[commit.thread_id] = commit
        return Outcome(Verdict.COMMITTED)

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        await self._catch_up(thread_id)
        return await super().read(thread_id, namespace, checkpoint_id)

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        await self._catch_up(thread_id)
        return await super().read_since(thread_id, namespace, checkpoint_id, held)

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        await self._catch_up(thread_id)
        return await super().history(thread_id, namespace, limit, before_seq)

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        await self._catch_up(thread_id)
        return await super().entry(thread_id, namespace, checkpoint_id)


class DropsSaves(Alone):
    """Now and then a save is acknowledged, and that is all."""

    async def commit(self, commit: Commit) -> Outcome:
        return Outcome(Verdict.COMMITTED) if self._is_next() else await super().commit(commit)


class SwallowsRefusals(Alone):
    """Whoever was too slow is told that it was not."""

    async def commit(self, commit: Commit) -> Outcome:
        outcome = await super().commit(commit)
        return Outcome(Verdict.COMMITTED) if outcome.verdict is Verdict.CONFLICT else outcome


class IgnoresConditions(Alone):
    """Everybody is next."""

    async def commit(self, commit: Commit) -> Outcome:
        return await super().commit(replace(commit, if_latest=ANY))


class RefusesAndWrites(Alone):
    """Now and then a refused save is written all the same."""

    async def commit(self, commit: Commit) -> Outcome:
        if commit.if_latest is ANY or not self._is_next():
            return await super().commit(commit)
        outcome = await super().commit(commit)
        return outcome if outcome.verdict is not Verdict.COMMITTED else Outcome(Verdict.CONFLICT, latest="another")


class SwapsSaves(Alone):
    """Now and then a save is put before the one that came before it."""

    async def commit(self, commit: Commit) -> Outcome:
        outcome = await super().commit(commit)
        if outcome.verdict is Verdict.COMMITTED and self._is_next():
            await self._in_transaction(lambda connection: self._swap(connection, commit.thread_id))
        return outcome

    @staticmethod
    def _swap(connection: sqlite3.Connection, thread_id: str) -> None:
        newest = connection.execute(
            "SELECT c.thread, c.seq FROM locus_checkpoints c JOIN locus_threads t ON t.id = c.thread"
            " WHERE t.thread_id = ? ORDER BY c.seq DESC LIMIT 2",
            (thread_id,),
        ).fetchall()
        if len(newest) == 2:
            (thread, last), (_, before) = newest
            for old, new in ((last, -1), (before, last), (-1, before)):
                connection.execute(
                    "UPDATE locus_checkpoints SET seq = ? WHERE thread = ? AND seq = ?", (new, thread, old)
                )
            unseal(connection)


class KeepsTornSaves(Alone):
    """Now and then what a checkpoint refers to is not written."""

    async def commit(self, commit: Commit) -> Outcome:
        return await super().commit(replace(commit, runs=()) if self._is_next() else commit)


class ChangesValues(Alone):
    """Now and then something else is written than was sent."""

    async def commit(self, commit: Commit) -> Outcome:
        return await super().commit(
            replace(commit, head=commit.head.replace("0", "1", 1)) if self._is_next() else commit
        )


class DeletesNothing(Alone):
    """What was deleted is still there."""

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        return 1


class LosesWrites(Alone):
    """Pending writes are acknowledged, and that is all."""

    async def put_writes(self, task: TaskWrites) -> None:
        pass


class LoadsOldStates(Alone):
    """Now and then a load of the latest gives the one before it, as a replica does that lags behind."""

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        return await super().read(thread_id, namespace, await self._older(thread_id, namespace, checkpoint_id))

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        if (older := await self._older(thread_id, namespace, checkpoint_id)) != checkpoint_id:
            return await super().read(thread_id, namespace, older)
        return await super().read_since(thread_id, namespace, checkpoint_id, held)

    async def _older(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> str | None:
        newest = await super().history(thread_id, namespace, 2, None)
        is_next = checkpoint_id is None and len(newest) == 2 and self._is_next()
        return newest[1].checkpoint_id if is_next else checkpoint_id


class LoadsWhatWasReplaced(Alone):
    """Whoever loads a checkpoint by its id gets what it was before it was replaced."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._replaced: dict[tuple[str, str], Stored] = {}

    async def commit(self, commit: Commit) -> Outcome:
        before = await super().read(commit.thread_id, commit.namespace, commit.checkpoint_id)
        outcome = await super().commit(commit)
        if outcome.verdict is Verdict.COMMITTED and commit.replaces is not None and before is not None:
            self._replaced[commit.thread_id, commit.checkpoint_id] = before
        return outcome

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        found = self._replaced.get((thread_id, checkpoint_id or ""))
        return found or await super().read(thread_id, namespace, checkpoint_id)

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        found = self._replaced.get((thread_id, checkpoint_id or ""))
        return found or await super().read_since(thread_id, namespace, checkpoint_id, held)


class ReplacesInPlace(Alone):
    """What replaces a checkpoint gets its number, and not the newest."""

    async def commit(self, commit: Commit) -> Outcome:
        before = await super().entry(commit.thread_id, commit.namespace, commit.checkpoint_id)
        outcome = await super().commit(commit)
        if outcome.verdict is Verdict.COMMITTED and outcome.replaced is not None and before is not None:
            await self._in_transaction(
                lambda connection: self._move(connection, commit.thread_id, outcome.seq, before.seq)
            )
        return outcome

    @staticmethod
    def _move(connection: sqlite3.Connection, thread_id: str, seq: int, to: int) -> None:
        connection.execute(
            "UPDATE locus_checkpoints SET seq = ? WHERE seq = ?"
            " AND thread = (SELECT id FROM locus_threads WHERE thread_id = ?)",
            (to, seq, thread_id),
        )
        unseal(connection)


class ListsTooLittle(Alone):
    """A list lacks the one after the newest."""

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        entries = await super().history(thread_id, namespace, limit, before_seq)
        return entries[:1] + entries[2:] if len(entries) > 2 else entries


class DoesNotFind(Alone):
    """Now and then somebody is told that a checkpoint is not there."""

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        return None if self._is_next() else await super().entry(thread_id, namespace, checkpoint_id)


class ShowsOldWrites(Alone):
    """Pending writes are those that a task had written first."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._first: dict[tuple[str, str, str], Sequence[Write]] = {}

    async def put_writes(self, task: TaskWrites) -> None:
        self._first.setdefault((task.thread_id, task.checkpoint_id, task.task_id), task.writes)
        await super().put_writes(task)

    async def get_writes(self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
        there = await super().get_writes(thread_id, namespace, checkpoint_id, task_id)
        tasks = {write.task_id: [one for one in there if one.task_id == write.task_id] for write in there}
        return [
            write for task, last in tasks.items() for write in self._first.get((thread_id, checkpoint_id, task), last)
        ]


class SavesTwice(Alone):
    """Now and then a save is carried out again under another id, as after an answer that was lost."""

    async def commit(self, commit: Commit) -> Outcome:
        outcome = await super().commit(commit)
        if outcome.verdict is Verdict.COMMITTED and self._is_next():
            again = replace(commit, checkpoint_id=f"again {commit.rev}", rev=f"again {commit.rev}"[:32], base=None)
            await super().commit(replace(again, runs=_elsewhere(again), if_latest=ANY))
        return outcome


def _elsewhere(commit: Commit) -> tuple[Any, ...]:
    return tuple(run._replace(branch=f"again {run.branch}"[:32]) for run in commit.runs)
