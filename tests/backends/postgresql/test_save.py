"""The save in one statement, while other transactions change the thread that it waits for."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConflictError
from locus.memory.backends.postgresql.backend import PostgreSQLBackend
from locus.memory.backends.postgresql.client import PostgreSQLConnection
from locus.memory.backends.postgresql.commit import PostgreSQLThreads
from locus.memory.backends.postgresql.engine import PostgreSQLEngine
from locus.memory.backends.sql.flavour import Steps, run_steps_async
from locus.memory.model.manifest import wanted
from locus.memory.model.records import ANY, Base, Commit, Outcome, Run, RunInfo, Verdict
from locus.memory.model.retention import unneeded_runs
from tests.backends.postgresql.store import PostgreSQLStore

pytestmark = pytest.mark.postgresql


def commit_of(name: str, **changes: Any) -> Commit:
    """A first checkpoint with one branch of one run."""
    made = Commit(
        thread_id="t",
        namespace="default",
        checkpoint_id=name,
        rev=f"rev {name}",
        created_at=datetime.now(UTC),
        metadata="{}",
        head='{"messages":[]}',
        manifest=f'[[["messages"],[["branch of {name}",0,0,1]]]]',
        runs=(Run(f"branch of {name}", 0, 0, 1, f'["{name}"]'),),
        fresh_id=True,
    )
    return replace(made, **changes)


def after(base: str, name: str, **changes: Any) -> Commit:
    """A checkpoint that goes on with the branch of another."""
    made = commit_of(
        name,
        base=Base(base, f"rev {base}"),
        parent_id=base,
        runs=(Run(f"branch of {base}", 1, 1, 1, f'["{name}"]'),),
        manifest=f'[[["messages"],[["branch of {base}",1,0,2]]]]',
    )
    return replace(made, **changes)


class Bench:
    """An engine, and a transaction beside it that holds the lock of the thread."""

    def __init__(self, store: PostgreSQLStore) -> None:
        self.backend = PostgreSQLBackend(dsn=store.server_url, schema_name=store.schema)
        engine = self.backend.store.engine
        assert isinstance(engine, PostgreSQLEngine)
        self.engine = engine
        self.changes = PostgreSQLThreads(engine.sql)

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[PostgreSQLConnection]:
        async with self.engine._borrowed() as connection:
            yield connection

    async def answer(self, commit: Commit, *meanwhile: Callable[[], Steps[Any]]) -> Outcome:
        """What the commit comes to if these changes are made while it waits for the thread."""
        async with self.beside() as other:
            await other.begin(writing=True)
            await run_steps_async(self.changes.open(commit.thread_id), other.execute)
            task = asyncio.create_task(self.engine.commit(commit))
            await self._waits(other)
            for change in meanwhile:
                await run_steps_async(change(), other.execute)
            assert not task.done()
            await other.commit()
            return await task

    async def _waits(self, other: PostgreSQLConnection) -> None:
        async with asyncio.timeout(20):
            # Asked here and not of pg_stat_activity, which a transaction sees only once.
            blocked = "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
            while not await other.execute(blocked):  # noqa: ASYNC110 - only the server knows
                await asyncio.sleep(0.005)

    async def latest(self) -> str | None:
        entry = await self.engine.entry("t", "default", None)
        return entry.checkpoint_id if entry else None


@pytest_asyncio.fixture
async def bench(store: PostgreSQLStore) -> AsyncIterator[Bench]:
    bench = Bench(store)
    await bench.engine.setup()
    assert (await bench.engine.commit(commit_of("a"))).seq == 1
    assert (await bench.engine.commit(commit_of("b"))).seq == 2
    yield bench
    await bench.backend.close()


def delete(bench: Bench, seq: int, name: str) -> Callable[[], Steps[int]]:
    return lambda: bench.changes.delete("t", None, {seq: f"rev {name}"})


async def test_a_save_that_waited_in_vain_is_written_after_all(bench: Bench) -> None:
    outcome = await bench.answer(after("b", "c"))
    assert outcome == Outcome(Verdict.COMMITTED, 3, "b")


async def test_a_base_that_is_deleted_meanwhile_is_noticed(bench: Bench) -> None:
    outcome = await bench.answer(after("b", "c"), delete(bench, 2, "b"))
    assert outcome.verdict is Verdict.STALE_BASE
    assert await bench.latest() == "a"


async def test_a_parent_that_is_deleted_meanwhile_is_noticed(bench: Bench) -> None:
    wish = commit_of("c", parent_id="a", parent_required=True)
    assert (await bench.answer(wish, delete(bench, 1, "a"))).verdict is Verdict.NO_PARENT
    outcome = await bench.answer(commit_of("d", parent_id="b"), delete(bench, 2, "b"))
    assert outcome.verdict is Verdict.COMMITTED
    assert outcome.parent_id is None


async def test_the_deletion_of_another_checkpoint_is_no_obstacle(bench: Bench) -> None:
    outcome = await bench.answer(after("b", "c"), delete(bench, 1, "a"))
    assert outcome == Outcome(Verdict.COMMITTED, 3, "b")
    stored = await bench.engine.read("t", "default", "c")
    assert stored is not None
    assert [run.items for run in stored.runs["branch of b"]] == ['["b"]', '["c"]']


async def test_a_commit_meanwhile_takes_the_number_and_the_branch(bench: Bench) -> None:
    outcome = await bench.answer(after("b", "c"), lambda: bench.changes.commit(after("b", "first")))
    assert outcome.verdict is Verdict.BRANCH_TAKEN
    outcome = await bench.answer(commit_of("d"), lambda: bench.changes.commit(commit_of("before d")))
    assert outcome == Outcome(Verdict.COMMITTED, 5, "before d")


@pytest.mark.parametrize("expected", ["b", None])
async def test_an_expectation_is_judged_by_what_is_there_in_the_end(bench: Bench, expected: str | None) -> None:
    wish = commit_of("c", if_latest=expected)
    outcome = await bench.answer(wish, lambda: bench.changes.commit(commit_of("faster")))
    assert (outcome.verdict, outcome.latest) == (Verdict.CONFLICT, "faster")
    wish = commit_of("d", if_latest="b")
    outcome = await bench.answer(wish, delete(bench, 3, "faster"))
    assert outcome == Outcome(Verdict.COMMITTED, 4, "b")


async def test_a_thread_that_is_deleted_meanwhile_begins_anew(bench: Bench) -> None:
    outcome = await bench.answer(after("b", "c"), lambda: bench.changes.delete("t", None, None))
    assert outcome.verdict is Verdict.STALE_BASE
    assert await bench.engine.commit(commit_of("c")) == Outcome(Verdict.COMMITTED, 1, None)


async def test_a_thread_that_is_deleted_and_made_anew_meanwhile_is_another_one(bench: Bench) -> None:
    outcome = await bench.answer(
        commit_of("c"),
        lambda: bench.changes.delete("t", None, None),
        lambda: bench.changes.commit(commit_of("new")),
    )
    assert outcome == Outcome(Verdict.COMMITTED, 2, "new")
    outcome = await bench.answer(
        commit_of("d", if_latest="c"),
        lambda: bench.changes.delete("t", None, None),
        lambda: bench.changes.commit(commit_of("newer")),
    )
    assert (outcome.verdict, outcome.latest) == (Verdict.CONFLICT, "newer")


async def test_an_id_that_is_taken_meanwhile_is_noticed(bench: Bench) -> None:
    wish = commit_of("c", fresh_id=False)
    taken = replace(commit_of("c", fresh_id=False), rev="another", runs=(), manifest="[]")
    assert (await bench.answer(wish, lambda: bench.changes.commit(taken))).verdict is Verdict.EXISTS


async def test_the_same_commit_sent_twice_is_written_once(bench: Bench) -> None:
    """As after a connection that broke before the answer came."""
    wish = after("b", "c")
    first = await bench.engine.commit(wish)
    again = await bench.engine.commit(replace(wish, fresh_id=False))
    assert (again.verdict, again.seq, again.repeated) == (Verdict.COMMITTED, first.seq, True)
    assert len(await bench.engine.history("t", None, None, None)) == 3


async def test_a_thread_that_has_ended_begins_anew(bench: Bench) -> None:
    past = datetime.now(UTC) - timedelta(seconds=1)
    await bench.engine.commit(commit_of("c", expires_at=past))
    assert await bench.latest() is None
    assert (await bench.engine.commit(after("c", "d"))).verdict is Verdict.STALE_BASE
    assert await bench.engine.commit(commit_of("d")) == Outcome(Verdict.COMMITTED, 1, None)


async def test_an_ordinary_save_is_one_statement(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    execute = PostgreSQLConnection.execute

    async def counted(self: PostgreSQLConnection, statement: str, values: Any = ()) -> list[Any]:
        sent.append(statement)
        return await execute(self, statement, values)

    monkeypatch.setattr(PostgreSQLConnection, "execute", counted)
    ordinary: list[Awaitable[Outcome]] = [
        bench.engine.commit(commit_of("new", thread_id="new", if_latest=None)),
        bench.engine.commit(after("b", "c", if_latest="b")),
        bench.engine.commit(commit_of("d", base=Base("c", "rev c"), parent_id=ANY)),
        bench.engine.commit(commit_of("e", base=Base("b", "rev b"), parent_id="a", fresh_id=False)),
        bench.engine.commit(commit_of("f", base=Base("e", "rev e"), values=(Run("#x", 0, 0, 1, '["large"]'),))),
    ]
    for number, save in enumerate(ordinary, 1):
        assert (await save).verdict is Verdict.COMMITTED
        assert len(sent) == number
    stored = await bench.engine.read("t", "default", "c")
    assert stored is not None
    assert len(sent) == len(ordinary) + 1


async def test_writers_and_deleters_at_once_leave_a_whole_thread(store: PostgreSQLStore) -> None:
    """Everything that was acknowledged and not deleted is there, loads, and nothing else is kept."""
    saved: dict[str, AgentState] = {}
    deleted: set[str] = set()

    async def work(seed: int) -> None:
        rng, state = random.Random(seed), AgentState()
        async with store.open() as handle:
            for number in range(25):
                if rng.random() < 0.3 and saved:
                    victim = rng.choice(sorted(saved))
                    if await handle.delete("t", victim):
                        deleted.add(victim)
                    continue
                if rng.random() < 0.3:
                    state = await handle.load("t") or AgentState()
                state = state.with_message(Message.user(f"{seed} {number}"))
                latest = next(iter(await handle.list_checkpoints("t", 1)), None)
                try:
                    saved[await handle.save(state, "t", if_latest=latest if rng.random() < 0.3 else ANY)] = state
                except ConflictError:
                    continue

    await asyncio.gather(*(work(seed) for seed in range(8)))
    async with store.open() as handle:
        left = {entry.checkpoint_id: entry.seq for entry in await handle.history("t", None)}
        assert set(left) == set(saved) - deleted
        assert len(set(left.values())) == len(left)
        for name in left:
            assert await handle.load("t", name) == saved[name]
    with store.connection() as connection:
        manifests = connection.execute("SELECT manifest::text FROM locus_checkpoints").fetchall()
        extents = [extent for (manifest,) in manifests for extent in wanted(str(manifest))]
        rows: Any = connection.execute("SELECT branch, number, start, count FROM locus_runs").fetchall()
    assert unneeded_runs(extents, [RunInfo(*row) for row in rows]) == []
    assert deleted
