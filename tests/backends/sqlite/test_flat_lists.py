"""What lists cost among few threads and among many, in steps of SQLite's machine: no other load changes these."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from locus.memory.backends import sqlite_checkpointer
from locus.memory.backends.sql import read as sql_read
from locus.memory.backends.sql.flavour import Steps, run_steps
from locus.memory.backends.sqlite import read as sqlite_read
from locus.memory.backends.sqlite.schema import SQL
from locus.memory.model.ids import Pattern
from locus.testing.laws.base import dicts
from tests.unsealed import unseal

FEW, MANY = 500, 20_000
MIDDLE, LAST = "t/050/", "t/099/"


async def _filled(path: Path, threads: int) -> sqlite3.Connection:
    """A store with this many threads of 100 tenants, each with a checkpoint. Every seventh has some metadata."""
    async with sqlite_checkpointer(path) as handle:
        await dicts(handle).save("zz", {"n": 1}, metadata={"k": "v"})
    connection = sqlite3.connect(path)
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i <= {threads})"
    connection.execute(
        "INSERT INTO locus_threads (id, thread_id, last_seq)"
        f" {numbers} SELECT i, printf('t/%03d/%06d', i % 100, i), 1 FROM n"
    )
    connection.execute(
        "INSERT INTO locus_checkpoints"
        " (id, thread, namespace, checkpoint_id, seq, rev, created_at, metadata, head, manifest)"
        f' {numbers} SELECT i, i, namespace, checkpoint_id, 1, rev, created_at, \'{{"k":"v"}}\', head, manifest'
        " FROM n, (SELECT * FROM locus_checkpoints LIMIT 1)"
    )
    connection.execute(
        f"INSERT INTO locus_metadata {numbers} SELECT key, value, i FROM n, (SELECT * FROM locus_metadata LIMIT 1)"
        " WHERE i % 7 = 0"
    )
    unseal(connection)
    connection.commit()
    return connection


class Meter:
    """Runs operations, and counts what they cost."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.steps = 0
        self.rows = 0

    def cost(self, operation: Steps[Any]) -> tuple[int, int]:
        """How many steps of the machine an operation takes, and how many rows it gets."""
        self.steps = self.rows = 0
        self._connection.set_progress_handler(self._step, 1)
        run_steps(operation, self._execute)
        self._connection.set_progress_handler(None, 0)
        return self.steps, self.rows

    def _step(self) -> int:
        self.steps += 1
        return 0

    def _execute(self, statement: str, values: Sequence[Any]) -> list[Any]:
        found = self._connection.execute(statement, values).fetchall()
        self.rows += len(found)
        return found


def _value(connection: sqlite3.Connection) -> str:
    ((value,),) = connection.execute("SELECT value FROM locus_metadata LIMIT 1").fetchall()
    return str(value)


def _lists(value: str, threads: int) -> Iterator[tuple[str, Steps[Any]]]:
    yield "first page", sql_read.threads(SQL, Pattern(), 20)
    yield "middle page", sql_read.threads(SQL, Pattern(after=MIDDLE), 20)
    yield "last page", sql_read.threads(SQL, Pattern(after=f"{LAST}{threads:06}"[:-2]), 20)
    yield "prefix", sql_read.threads(SQL, Pattern(within=MIDDLE), 4)
    yield "literal beginning", sql_read.threads(SQL, Pattern(f"{MIDDLE}*"), 4)
    yield "one id", sql_read.threads(SQL, Pattern("t/"), None)
    yield "nothing", sql_read.threads(SQL, Pattern("u*", MIDDLE), None)
    yield "newest checkpoints", sql_read.recent(SQL, 20, "")
    yield "newest threads", sql_read.newest_threads(SQL, 20, None, "")
    yield "next page of them", sql_read.newest_threads(SQL, 20, str(threads - 20), "")
    yield "a page far down", sql_read.newest_threads(SQL, 20, str(threads // 2), "")
    yield "newest threads of few", sql_read.newest_threads(SQL, 3, None, f"{MIDDLE}0000")
    yield "metadata", sqlite_read.find(SQL, "k", value, 20, "")


async def test_a_page_costs_the_same_among_few_threads_and_among_many(tmp_path: Path) -> None:
    costs: dict[str, list[tuple[int, int]]] = {}
    for threads in (FEW, MANY):
        with closing(await _filled(tmp_path / f"{threads}.db", threads)) as connection:
            meter = Meter(connection)
            for name, operation in _lists(_value(connection), threads):
                costs.setdefault(name, []).append(meter.cost(operation))
    for name, ((few, _), (many, rows)) in costs.items():
        assert many <= 2 * few + 100, (name, few, many)
        assert rows <= 23, (name, rows)  # one more says that there are more, and others how far a search went


async def test_a_long_thread_of_a_small_prefix_is_gone_through_once(tmp_path: Path) -> None:
    costs = []
    for length in (100, 1_000):
        with closing(await _filled(tmp_path / f"{length}.db", 2)) as connection:
            numbers = f"WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i <= {length})"
            connection.execute(
                "INSERT INTO locus_checkpoints"
                " (thread, namespace, checkpoint_id, seq, rev, created_at, metadata, head, manifest)"
                f" {numbers} SELECT thread, namespace, 'c' || i, i, rev, created_at, metadata, head, manifest"
                " FROM n, (SELECT * FROM locus_checkpoints WHERE id = 1)"
            )
            costs.append(Meter(connection).cost(sql_read.newest_threads(SQL, 20, None, "zz")))
    (short, _), (long, rows) = costs
    assert long <= 12 * short
    assert rows == 2  # how many threads there are, and this one
