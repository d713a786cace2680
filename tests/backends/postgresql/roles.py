"""Users of the server who may do little."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg.conninfo import make_conninfo

from tests.backends.postgresql.store import PostgreSQLStore


@contextmanager
def role(store: PostgreSQLStore, *rights: str, options: str = "LOGIN") -> Iterator[str]:
    """The connection string of a user who may do only this."""
    name = f"user_{store.schema}"
    with store.connection() as connection:
        connection.execute(f"CREATE ROLE {name} {options} PASSWORD 'a secret'".encode())
        for right in rights:
            connection.execute(f"GRANT {right} TO {name}".encode())
        try:
            yield make_conninfo(store.server_url, user=name, password="a secret")
        finally:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE usename = %s", (name,)
            )
            connection.execute(f"DROP OWNED BY {name}".encode())
            connection.execute(f"DROP ROLE {name}".encode())
