"""Another layout of the tables, or another server that speaks PostgreSQL's language, is a subclass of the flavour.

One subclass of the backend names it.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from locus.core.state import AgentState
from locus.errors import ConfigurationError
from locus.memory.backends import PostgreSQLBackend, PostgreSQLConfig, StorageBackendAdapter
from locus.memory.backends.postgresql import commit as postgresql_commit
from locus.memory.backends.postgresql import schema, together
from locus.memory.backends.postgresql.backend import open_location
from locus.memory.backends.postgresql.engine import PostgreSQLEngine
from locus.memory.backends.postgresql.schema import MIGRATIONS, PostgreSQLFlavour
from locus.memory.backends.sql.flavour import Steps
from locus.memory.model.records import TaskWrites, Write
from tests.backends.postgresql.store import PostgreSQLStore
from tests.backends.sql.grouped import first

PARTITIONED = MIGRATIONS[0].replace(
    "INCLUDE (start, count, seq)\n);",
    """INCLUDE (start, count, seq)
) PARTITION BY HASH (thread);
CREATE TABLE ${schema}"${prefix}runs_0" PARTITION OF ${schema}"${prefix}runs"
    FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE ${schema}"${prefix}runs_1" PARTITION OF ${schema}"${prefix}runs"
    FOR VALUES WITH (MODULUS 2, REMAINDER 1);""",
)


class PartitionedFlavour(PostgreSQLFlavour):
    migrations = (PARTITIONED, *MIGRATIONS[1:])


class PartitionedBackend(PostgreSQLBackend):
    flavour = PartitionedFlavour


from_partitioned = partial(open_location, PartitionedBackend)


def test_the_script_has_the_layout_of_the_flavour() -> None:
    assert "PARTITION BY HASH" in PartitionedBackend.ddl()
    assert 'CREATE TABLE "app"."agents_runs_0"' in PartitionedBackend.ddl("agents", "app")
    assert "PARTITION" not in PostgreSQLBackend.ddl()


@pytest.mark.postgresql
async def test_a_flavour_keeps_its_threads_in_tables_of_its_own_layout(store: PostgreSQLStore) -> None:
    async with from_partitioned(store.url.removeprefix("postgresql:")) as checkpointer:
        assert isinstance(checkpointer, StorageBackendAdapter)
        backend = checkpointer.backend
        assert isinstance(backend, PartitionedBackend)
        for number in range(4):
            for length in (1, 2, 3):
                await backend.save(f"t{number}", {"messages": [{"n": n, "text": "x" * 50} for n in range(length)]})
        for number in range(4):
            found = await backend.load(f"t{number}")
            assert found == {"messages": [{"n": n, "text": "x" * 50} for n in range(3)]}
        assert await backend.delete("t0")
    with store.connection() as connection:
        parts = [connection.execute(f"SELECT count(*) FROM locus_runs_{part}").fetchone() for part in (0, 1)]
        whole = connection.execute("SELECT count(*) FROM locus_runs").fetchone()
    counts = [int(str(row[0])) for row in parts if row]
    assert whole is not None
    assert sum(counts) == whole[0]
    assert all(counts)


@pytest.mark.postgresql
async def test_errors_name_the_class_whose_script_makes_its_tables(store: PostgreSQLStore) -> None:
    async with from_partitioned(store.url.removeprefix("postgresql:"), auto_create_table=False) as checkpointer:
        with pytest.raises(ConfigurationError, match=r"PartitionedBackend\.ddl\("):
            await checkpointer.load("t")
    with pytest.raises(ConfigurationError, match="has no option 'colour'"):
        PartitionedBackend(colour="blue")  # type: ignore[call-arg]


ONLY_POSTGRESQL = re.compile(r"\bpg_(?!hba)|\bctid\b|to_regclass|current_setting|set_config|SKIP LOCKED|NO KEY")
"""What other servers that speak PostgreSQL's language may lack."""
OWN = {"schema.py", "examine.py"}
"""The modules that may name it: the flavour, and the findings about a PostgreSQL server."""


class AnotherServer(PostgreSQLFlavour):
    """Overrides everything that only PostgreSQL has."""

    lock_if_free = " FOR UPDATE"
    row_address = "rowid"
    waits_for_standby = "1 = 0"

    def patience(self, time: str) -> str:
        return f"{time} <> ''"

    def migration_lock(self) -> tuple[str, Sequence[Any]]:
        return "SELECT 1", ()

    def tables_exist(self) -> tuple[str, Sequence[Any]]:
        condition = "table_schema = current_schema() AND table_name = ?"
        name = self.format.strip('"')
        return f"SELECT 'UTF8', EXISTS (SELECT 1 FROM information_schema.tables WHERE {condition})", (name,)

    def has_table(self, table: str) -> tuple[str, Sequence[Any]]:
        return "SELECT 1 FROM information_schema.tables WHERE table_name = ?", (table.strip('"'),)

    def schema_exists(self) -> tuple[str, Sequence[Any]]:
        return "SELECT 1 FROM information_schema.schemata WHERE schema_name = ?", (self.schema_name,)


class OnPostgreSQL(AnotherServer):
    """Runs where a row has no other address."""

    row_address = "ctid"


class AnotherBackend(PostgreSQLBackend):
    flavour = OnPostgreSQL


def statements_of(steps: Steps[Any], answer: Callable[[str], list[Any]]) -> Iterator[str]:
    try:
        text, _ = next(steps)
        while True:
            yield text
            text, _ = steps.send(answer(text))
    except StopIteration:
        return


def test_only_the_flavour_says_what_only_postgresql_has() -> None:
    for path in Path(inspect.getfile(schema)).parent.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docstrings]
        found = [node.value for node in texts if ONLY_POSTGRESQL.search(str(node.value))]
        assert bool(found) == (path.name in OWN), (path.name, found)


def test_a_flavour_that_overrides_it_yields_statements_without_it() -> None:
    sql = AnotherServer("locus", "app")
    engine = PostgreSQLEngine(PostgreSQLConfig(), sql)
    commits = [first("new", "a"), first("other", "b")]
    tasks = [
        TaskWrites(thread_id, "default", "c", "task", (Write("task", "", 0, "channel", "1"),), False)
        for thread_id in ("t1", "t2")
    ]

    def answer(text: str) -> list[Any]:
        if "information_schema.tables" in text:
            return [("UTF8", False)]
        return [(1, 11), (2, 12)] if "unnest($1::text[])" in text else []

    made = [
        *statements_of(engine._migration(), answer),
        *statements_of(together.steps(sql, [*commits, *tasks], creating=True), answer),
        *statements_of(postgresql_commit.confirm(sql, "t"), answer),
    ]
    made = [text for text in made if not text.startswith("CREATE")]
    for wanted in (sql.lock_if_free, sql.row_address, sql.waits_for_standby, "::text <> ''", "schemata"):
        assert [text for text in made if wanted in text], wanted
    assert not [text for text in made if ONLY_POSTGRESQL.search(text)]


@pytest.mark.postgresql
async def test_another_way_to_lock_keeps_threads_and_pending_writes(store: PostgreSQLStore) -> None:
    opened = partial(open_location, AnotherBackend)
    async with opened(store.url.removeprefix("postgresql:")) as checkpointer:
        assert await checkpointer.list_threads() == []  # makes the tables: this flavour does not lock them for it
        states = [AgentState(agent_id=f"a{number}") for number in range(20)]
        saved = await asyncio.gather(*(checkpointer.save(state, f"t{number}") for number, state in enumerate(states)))
        for values in (["one", "two"], ["three"]):
            await asyncio.gather(
                *(
                    checkpointer.put_writes(
                        f"t{number}", checkpoint_id, "task", [("channel", value) for value in values]
                    )
                    for number, checkpoint_id in enumerate(saved)
                )
            )
        for number, checkpoint_id in enumerate(saved):
            assert await checkpointer.load(f"t{number}") == states[number]
            writes = await checkpointer.get_writes(f"t{number}", checkpoint_id)
            assert [write.value for write in writes] == ["three"]
