"""PostgreSQL: threads in the tables of a server that many processes share.

The tables are shown in `postgresql_schema`, a save in `postgresql_save`. psycopg is needed when a backend is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import SecretStr, ValidationError

from locus.errors import ConfigurationError
from locus.extras import require
from locus.memory.backends.postgresql import schema as postgresql_schema
from locus.memory.backends.postgresql.config import PostgreSQLConfig, _explained
from locus.memory.backends.postgresql.schema import PostgreSQLFlavour
from locus.memory.backends.sql.backend import SQLBackend
from locus.memory.backends.sql.config import PoolOptions, check_pool_sizes, check_timeouts
from locus.memory.backends.sql.engine import checked_format
from locus.memory.checkpointer import Checkpointer
from locus.memory.store import CheckpointStore

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool


class PostgreSQLBackend(SQLBackend):
    """Threads in PostgreSQL, as plain dicts; `postgresql_checkpointer(...)` keeps `AgentState` there.

    Every event loop gets a pool of its own. A `pool` of psycopg's that is given is used instead, and not closed;
    it serves the one event loop that it belongs to. See `PostgreSQLConfig` for the options.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int = 5432,
        database: str = "locus",
        user: str = "postgres",
        password: str | SecretStr = "",
        dsn: str | SecretStr | None = None,
        *,
        pool: AsyncConnectionPool[Any] | None = None,
        **options: Any,
    ) -> None:
        given: dict[str, Any] = {
            "host": host,
            "port": port,
            "database": database,
            "user": user,
            "password": password,
            "dsn": dsn,
        }
        try:
            config = PostgreSQLConfig(**given, **options)
        except ValidationError as error:
            raise ConfigurationError(_explained(error)) from None
        self._begin(config, pool)

    @classmethod
    def from_config(cls, config: PostgreSQLConfig, *, pool: AsyncConnectionPool[Any] | None = None) -> Self:
        """A backend with these options."""
        backend = cls.__new__(cls)
        backend._begin(config, pool)
        return backend

    def _begin(self, config: PostgreSQLConfig, pool: AsyncConnectionPool[Any] | None) -> None:
        require("psycopg", "postgresql")
        from locus.memory.backends.postgresql.engine import PostgreSQLEngine

        check_pool_sizes(config.min_pool_size, config.max_pool_size)
        check_timeouts(
            connect_timeout=config.connect_timeout,
            command_timeout=config.command_timeout,
            retry_seconds=config.retry_seconds,
        )
        if pool is not None and not isinstance(pool, require("psycopg_pool", "postgresql").AsyncConnectionPool):
            raise ConfigurationError(f"pool must be a psycopg_pool.AsyncConnectionPool, got {type(pool).__name__}")
        self.config = config
        engine = PostgreSQLEngine(
            config.address(),
            PostgreSQLFlavour(config.table_name, config.schema_name),
            PoolOptions(config.min_pool_size, config.max_pool_size, config.connect_timeout),
            auto_create_table=config.auto_create_table,
            retry_seconds=config.retry_seconds,
            given=pool,
        )
        super().__init__(CheckpointStore(engine, ttl_seconds=config.ttl_seconds))

    @staticmethod
    def ddl(table_name: str = "locus", schema_name: str | None = None, from_format: int = 0) -> str:
        """The statements that create the tables, for whoever may: then `auto_create_table=False` will do.

        `from_format` is the format of tables that are there, and have to be brought to the newest one.
        """
        found = checked_format(from_format, postgresql_schema.FORMAT)
        return postgresql_schema.ddl(PostgreSQLFlavour(table_name, schema_name), found)

    def __repr__(self) -> str:
        return f"PostgreSQLBackend({self.store.engine.identity!r})"


def from_location(location: str = "", **options: Any) -> Checkpointer:
    """`"postgresql://user:password@host:5432/database?sslmode=require&table_name=agents"`.

    What is an option of ours in the query is taken as one, and the rest is libpq's.
    """
    from locus.memory.backends.adapters import postgresql_checkpointer

    if not location:
        return postgresql_checkpointer(**options)
    if not location.startswith("//"):
        raise ConfigurationError("a PostgreSQL server is named by a URL: postgresql://user:password@host:5432/database")
    parts = urlsplit(f"postgresql:{location}")
    # Not decoded and encoded again: a plus sign is no space to libpq.
    pieces = [piece.partition("=") for piece in parts.query.split("&") if piece]
    ours = PostgreSQLConfig.model_fields.keys() - {"host", "port", "user", "password", "dsn", "connect_timeout"}
    theirs = "&".join("".join(piece) for piece in pieces if piece[0] not in ours)
    mine = {name: unquote(value) for name, _, value in pieces if name in ours}
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, theirs, parts.fragment))
    return postgresql_checkpointer(dsn=dsn, **(mine | options))
