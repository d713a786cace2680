"""`lua/commit.lua` decides as `commit_rules.decide` does, and removes what `plan_removal` says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from locus.memory.backends import redis_checkpointer
from locus.memory.backends.redis.engine import RedisEngine
from locus.memory.model.commit_rules import decide
from locus.memory.model.records import ANY, Base, Commit, Outcome, Run, Verdict
from locus.memory.model.table import ThreadTable
from tests.backends.redis.stores import RedisStore

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
IDS = ("c0", "c1", "c2", "c3")
NAMESPACES = ("", "ns")
numbers = count()


class Course:
    """The same steps on a thread in Redis and on a table in memory."""

    def __init__(self, runner: asyncio.Runner, engine: RedisEngine, seen: set[tuple[Verdict, bool]]) -> None:
        self._runner = runner
        self._seen = seen
        self._engine = engine
        self._thread = f"thread {next(numbers)}"
        self._table = ThreadTable(self._thread)
        self._revs = count()
        self.done: list[Commit] = []

    def commit(self, draw: st.DataObject) -> None:
        commit = self._drawn(draw)
        expected = decide(commit, self._table)
        if expected.is_written:
            self._table.add(commit, expected)
        found = self._runner.run(self._engine.commit(commit))
        assert _said(found) == _said(expected), commit
        self._seen.add((expected.verdict, expected.repeated))
        self.done.append(commit)
        self.compare()

    def delete(self, draw: st.DataObject) -> None:
        known = {seq: row.entry.rev for seq, row in self._table.rows.items()}
        seqs = draw.draw(st.none() | st.dictionaries(st.integers(1, 6), st.just("")))
        chosen = None if seqs is None else {seq: known.get(seq, "other") for seq in seqs}
        namespace = draw.draw(st.sampled_from((None, *NAMESPACES)))
        doomed = self._table.seqs(namespace, chosen)
        if doomed and len(doomed) == len(self._table.rows):
            self._table = ThreadTable(self._thread)
        elif doomed:
            self._table.remove(doomed)
        assert self._runner.run(self._engine.delete(self._thread, namespace, chosen)) == len(doomed)
        self.compare()

    def compare(self) -> None:
        """All entries, every checkpoint as it is read, and nothing stored that the table does not have."""
        entries = self._runner.run(self._engine.history(self._thread, None, None, None))
        assert entries == list(self._table.newest_first(None, None))
        for namespace in NAMESPACES:
            latest = self._runner.run(self._engine.entry(self._thread, namespace, None))
            row = self._table.row(namespace, None)
            assert latest == (row.entry if row else None)
        outline = self._runner.run(self._engine._outline(self._thread))
        kept = {(run.branch, run.number) for runs in self._table.runs.values() for run in runs}
        assert {(run.branch, run.number) for run in outline.runs} == kept

    def _drawn(self, draw: st.DataObject) -> Commit:
        rev = f"rev{next(self._revs)}"
        if self.done and draw.draw(st.integers(0, 9)) == 9:
            return draw.draw(st.sampled_from(self.done[-3:]))
        namespace, checkpoint_id = draw.draw(st.sampled_from(NAMESPACES)), draw.draw(st.sampled_from(IDS))
        known = [row.entry for row in self._table.rows.values() if row.entry.namespace == namespace]
        revs = [entry.rev for entry in known if entry.checkpoint_id == checkpoint_id] or ["none"]
        bases = [Base(entry.checkpoint_id, entry.rev) for entry in known]
        names = [entry.checkpoint_id for entry in known]
        run, manifest = self._run(draw, rev)
        return Commit(
            thread_id=self._thread,
            namespace=namespace,
            checkpoint_id=checkpoint_id,
            rev=rev,
            created_at=NOW,
            metadata=draw.draw(st.sampled_from(('{"k":1}', "{}", '{"k":[2],"é":null}'))),
            head=json.dumps({"rev": rev}),
            manifest=manifest,
            runs=(run,),
            base=draw.draw(st.sampled_from((None, None, None, None, Base("c0", "none"), *bases))),
            parent_id=draw.draw(st.sampled_from((ANY, ANY, ANY, None, checkpoint_id, "not there", *names))),
            parent_required=draw.draw(st.booleans()),
            parent_as_named=draw.draw(st.booleans()),
            if_latest=draw.draw(st.sampled_from((*[ANY] * 12, None, *names[-2:]))),
            replaces=draw.draw(st.sampled_from((*revs * 4, None, "none"))),
        )

    def _run(self, draw: st.DataObject, rev: str) -> tuple[Run, str]:
        """On a branch of its own, or on one that is there, where the number may be free or not."""
        branch, number, start = rev, 0, 0
        continues: bool = draw.draw(st.sampled_from((True, True, False)))
        if self._table.runs and continues:
            longest = sorted(self._table.runs, key=lambda name: -self._table.runs[name][-1].number)
            branch = draw.draw(st.sampled_from(longest[:2]))
            tip = self._table.runs[branch][-1]
            number = max(1, tip.number + draw.draw(st.integers(0, 1)))
            start = draw.draw(st.integers(0, tip.start + tip.length))
        run = Run(branch, number, start, 1, json.dumps([rev]))
        return run, json.dumps([[["m"], [[branch, number, 0, start + 1]]]])


def _said(outcome: Outcome) -> tuple[object, ...]:
    seq = outcome.seq if outcome.verdict is Verdict.COMMITTED else 0
    return outcome.verdict, seq, outcome.parent_id, outcome.latest, outcome.repeated


@pytest.fixture
def engine(store: RedisStore) -> Iterator[tuple[asyncio.Runner, RedisEngine]]:
    with asyncio.Runner() as runner:
        handle = redis_checkpointer(store.url)
        runner.run(handle.exists("nothing"))
        found = handle.store.engine
        assert isinstance(found, RedisEngine)
        yield runner, found
        runner.run(handle.close())


def test_any_course_of_commits_and_removals(engine: tuple[asyncio.Runner, RedisEngine]) -> None:
    seen: set[tuple[Verdict, bool]] = set()

    @settings(max_examples=60, deadline=None, suppress_health_check=[*HealthCheck])
    @given(draw=st.data())
    def follow(draw: st.DataObject) -> None:
        course = Course(*engine, seen)
        for _ in range(draw.draw(st.integers(6, 16))):
            if draw.draw(st.integers(0, 4)):
                course.commit(draw)
            else:
                course.delete(draw)

    follow()
    assert seen == {(verdict, False) for verdict in Verdict} | {(Verdict.COMMITTED, True)}, "something was never tried"
