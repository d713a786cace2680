"""Another layout of the tables is a subclass of the flavour, and one of the backend that names it."""

from __future__ import annotations

from functools import partial

import pytest

from locus.errors import ConfigurationError
from locus.memory.backends import PostgreSQLBackend, StorageBackendAdapter
from locus.memory.backends.postgresql.backend import open_location
from locus.memory.backends.postgresql.schema import MIGRATIONS, PostgreSQLFlavour
from tests.backends.postgresql.store import PostgreSQLStore

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
