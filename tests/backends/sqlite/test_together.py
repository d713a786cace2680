"""Saves that share a transaction in SQLite: one that is refused, or fails, leaves no trace and the others alone."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError, CheckpointError
from locus.memory.backends.sqlite.engine import SQLiteEngine
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.records import Commit, Run, TaskWrites, Verdict, Write
from locus.memory.registry import get_checkpointer

TABLES = ("locus_threads", "locus_checkpoints", "locus_runs", "locus_writes", "locus_metadata")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locus.db"


@pytest_asyncio.fixture
async def checkpointer(path: Path) -> AsyncIterator[Checkpointer]:
    async with get_checkpointer(f"sqlite:{path}") as handle:
        await handle.save(AgentState(), "warm")
        await handle.delete("warm")
        yield handle


def engine_of(checkpointer: Checkpointer) -> SQLiteEngine:
    engine = checkpointer.store.engine
    assert isinstance(engine, SQLiteEngine)
    return engine


def commit_of(thread_id: str, head: str = "{}", **terms: object) -> Commit:
    run = Run(f"{thread_id} branch", 0, 0, 1, "[1]")
    facts = (thread_id, "default", "c", f"rev of {thread_id}", datetime.now(UTC), '{"k":1}', head)
    return Commit(*facts, f'[[["items"],[["{run.branch}",0,0,1]]]]', (run,), **terms)  # type: ignore[arg-type]


def counts(path: Path) -> dict[str, int]:
    with sqlite3.connect(path) as connection:
        return {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in TABLES}


async def test_what_fails_in_the_midst_leaves_nothing(checkpointer: Checkpointer, path: Path) -> None:
    engine = engine_of(checkpointer)
    # Its runs can be written; then comes a text that has no UTF-8.
    wrong = commit_of("wrong", head='{"x":"\ud800"}')
    half = TaskWrites("half", "", "c", "t", (Write("t", "", 0, "x", "1"), Write("t", "", 1, "y", '"\ud800"')))
    found = await engine.commit_together([commit_of("a"), wrong, half, commit_of("b")])
    assert [outcome and outcome.verdict for outcome in found] == [Verdict.COMMITTED, None, None, Verdict.COMMITTED]
    assert counts(path) == dict(zip(TABLES, (2, 2, 2, 0, 2), strict=True))
    with pytest.raises(UnicodeEncodeError):
        await engine.commit(wrong)


async def test_what_is_refused_leaves_nothing(checkpointer: Checkpointer, path: Path) -> None:
    """Not even the row of a thread that was opened for it."""
    group = [commit_of("a", parent_id="gone", parent_required=True), commit_of("b"), commit_of("c", if_latest="x")]
    verdicts = [outcome and outcome.verdict for outcome in await engine_of(checkpointer).commit_together(group)]
    assert verdicts == [Verdict.NO_PARENT, Verdict.COMMITTED, Verdict.CONFLICT]
    assert counts(path) == dict(zip(TABLES, (1, 1, 1, 0, 1), strict=True))


async def test_if_the_transaction_is_gone_each_is_tried_alone(checkpointer: Checkpointer, path: Path) -> None:
    """SQLite gives up a whole transaction when the disk is full, for instance."""
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TRIGGER gives_up BEFORE INSERT ON locus_checkpoints WHEN NEW.checkpoint_id = 'wrong'"
            " BEGIN SELECT RAISE(ROLLBACK, 'all of it'); END"
        )
    engine = engine_of(checkpointer)
    with pytest.raises(sqlite3.IntegrityError, match="all of it"):
        await engine.commit_together([commit_of("a"), replace(commit_of("b"), checkpoint_id="wrong")])
    assert counts(path) == dict.fromkeys(TABLES, 0)
    names = [f"t{number}" for number in range(12)]
    states = {name: AgentState(agent_id="a").with_message(Message.user(name)) for name in names}
    answers = await asyncio.gather(
        *(checkpointer.save(state, name, "wrong" if name == "t7" else "c") for name, state in states.items()),
        return_exceptions=True,
    )
    assert isinstance(answers.pop(7), CheckpointError)
    assert answers == ["c"] * 11
    for name, state in states.items():
        assert await checkpointer.load(name) == (None if name == "t7" else state)


async def test_while_the_file_is_locked_a_group_waits_once(path: Path) -> None:
    """And not each of its saves, one after the other."""
    async with get_checkpointer(f"sqlite:{path}?timeout=0.2") as checkpointer:
        await checkpointer.save(AgentState(), "warm")
        waits = 0
        run = SQLiteEngine._run

        async def counted(self: SQLiteEngine, worker: Any, job: Any) -> Any:
            nonlocal waits
            waits += worker is self._writer
            return await run(self, worker, job)

        with closing(sqlite3.connect(path, isolation_level=None)) as other, pytest.MonkeyPatch.context() as patch:
            other.execute("BEGIN IMMEDIATE")
            patch.setattr(SQLiteEngine, "_run", counted)
            saving = (checkpointer.save(AgentState(), f"t{number}") for number in range(40))
            answers = await asyncio.gather(*saving, return_exceptions=True)
            other.execute("ROLLBACK")
        assert all(isinstance(answer, BackendUnavailableError) for answer in answers)
        assert len({id(answer) for answer in answers}) == 40
        assert waits <= 8
        assert await checkpointer.list_threads() == ["warm"]
        await asyncio.gather(*(checkpointer.save(AgentState(), f"t{number}") for number in range(40)))
