"""What the server refuses: an error that says what to do, and never the password."""

from __future__ import annotations

import traceback
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from psycopg.conninfo import make_conninfo

from locus.errors import BackendUnavailableError, CheckpointError, CorruptCheckpointError
from locus.memory import get_checkpointer
from locus.memory.backends import PostgreSQLBackend
from tests.backends.postgresql.roles import role
from tests.backends.postgresql.store import PostgreSQLStore
from tests.servers.ports import free_port

pytestmark = pytest.mark.postgresql

PASSWORD = "s3cret p@ss/word%"


async def failure_of(backend: PostgreSQLBackend, kind: type[CheckpointError] = BackendUnavailableError) -> str:
    """The text of the error that a save raises; nothing of it may show the password."""
    async with backend:
        with pytest.raises(kind) as failure:
            await backend.save("t", {"n": 1})
    assert failure.value.__cause__ is not None
    told = "".join(traceback.format_exception(failure.value)) + repr(backend) + repr(backend.config)
    for secret in (PASSWORD, quote(PASSWORD, safe="")):
        assert secret not in told
    return str(failure.value)


def options(**changes: Any) -> dict[str, Any]:
    return {"password": PASSWORD, "retry_seconds": 0.1, "connect_timeout": 5.0, **changes}


async def test_a_wrong_password(store: PostgreSQLStore) -> None:
    parts = urlsplit(store.server_url)
    assert parts.username
    place: dict[str, Any] = {"host": "127.0.0.1", "port": parts.port, "user": parts.username}
    assert "check user, password" in await failure_of(PostgreSQLBackend(**options(**place)))
    dsn = f"postgresql://{parts.username}:{quote(PASSWORD, safe='')}@127.0.0.1:{parts.port}/locus"
    assert "check user, password" in await failure_of(PostgreSQLBackend(dsn=dsn, retry_seconds=30))


async def test_a_database_that_is_not_there(store: PostgreSQLStore) -> None:
    dsn = make_conninfo(store.server_url, dbname="nowhere")
    assert "create it" in await failure_of(PostgreSQLBackend(dsn=dsn, retry_seconds=30))


async def test_nobody_is_listening() -> None:
    text = await failure_of(PostgreSQLBackend(**options(host="127.0.0.1", port=free_port())))
    assert "cannot be reached" in text


async def test_a_read_only_server(store: PostgreSQLStore) -> None:
    async with store.open() as handle:
        await handle.list_threads()
    dsn = make_conninfo(store.server_url, options="-c default_transaction_read_only=on")
    text = await failure_of(PostgreSQLBackend(dsn=dsn, schema_name=store.schema))
    assert "read-only: connect to the primary" in text
    async with PostgreSQLBackend(dsn=dsn, schema_name=store.schema) as reader:
        assert await reader.load("t") is None


async def test_no_connection_left(store: PostgreSQLStore) -> None:
    with role(store, options="LOGIN CONNECTION LIMIT 0") as dsn:
        text = await failure_of(PostgreSQLBackend(dsn=dsn, retry_seconds=0.1))
    assert "max_pool_size" in text
    assert "a secret" not in text


async def test_the_timeout_of_the_server(store: PostgreSQLStore) -> None:
    async with store.open() as handle:
        await handle.list_threads()
    dsn = make_conninfo(store.server_url, options="-c lock_timeout=50")
    with store.connection() as connection, connection.transaction():
        connection.execute("LOCK TABLE locus_threads")
        text = await failure_of(PostgreSQLBackend(dsn=dsn, schema_name=store.schema))
    assert "holds a lock" in text


async def test_tables_that_vanish_are_damage(store: PostgreSQLStore) -> None:
    async with PostgreSQLBackend(dsn=store.server_url, schema_name=store.schema) as backend:
        await backend.save("t", {"n": 1})
        with store.connection() as connection:
            connection.execute("DROP TABLE locus_runs")
        with pytest.raises(CorruptCheckpointError, match="locus_runs"):
            await backend.load("t")


async def test_a_manifest_that_is_no_list_is_damage(store: PostgreSQLStore) -> None:
    async with PostgreSQLBackend(dsn=store.server_url, schema_name=store.schema) as backend:
        await backend.save("t", {"list": ["something long enough to be cut out of the head, and kept apart" * 2]})
        with store.connection() as connection:
            for damage in ('{"a": 1}', '[[["list"], [["x", "y", 0, 1]]]]', '[[["list"], [["gone", 0, 0, 1]]]]', "[1]"):
                connection.execute("UPDATE locus_checkpoints SET manifest = %s::jsonb", (damage,))
                with pytest.raises(CorruptCheckpointError):
                    await backend.load("t")


async def test_urls_of_the_registry(store: PostgreSQLStore) -> None:
    """Both names, a password that has to be encoded, options of ours and of libpq's side by side."""
    with store.connection() as connection:
        connection.execute(f'CREATE SCHEMA "{store.schema}"')
    with role(store, f'ALL ON SCHEMA "{store.schema}"') as dsn:
        assert "a secret" in dsn.replace("\\", "").replace("'", "")
        place = f"user_{store.schema}:a%20secret@127.0.0.1:{urlsplit(store.server_url).port}/locus"
        query = f"application_name=my%20app&schema_name={store.schema}&table_name=agents&max_pool_size=2"
        for name in ("postgresql", "postgres"):
            async with get_checkpointer(f"{name}://{place}?{query}", retry_seconds=0.1) as handle:
                assert await handle.list_threads() == []
        with store.connection() as connection:
            found = connection.execute("SELECT to_regclass('agents_threads') IS NOT NULL").fetchall()
        assert found == [(True,)]
