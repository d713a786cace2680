"""The public class of the PostgreSQL backend, and the factory that its URLs call.

psycopg is imported when a backend is made.

Another database that speaks PostgreSQL's language, or another layout of the tables, takes a subclass of
`PostgreSQLFlavour`, whose docstring says what to override, and two more lines. Locus has no flavour for CockroachDB. It
would be added like this:

    class CockroachDBBackend(PostgreSQLBackend):
        flavour = CockroachDBFlavour

    register_checkpointer("cockroachdb", partial(open_location, CockroachDBBackend))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

from pydantic import SecretStr

from locus.errors import ConfigurationError
from locus.extras import require
from locus.memory.backends.postgresql.config import PostgreSQLConfig, PostgreSQLOptions
from locus.memory.backends.postgresql.schema import PostgreSQLFlavour, ddl, move
from locus.memory.backends.sql.backend import ConfiguredBackend
from locus.memory.backends.sql.schema import checked_format
from locus.memory.checkpointer import Checkpointer
from locus.memory.store import CheckpointStore

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool


class PostgreSQLBackend(ConfiguredBackend):
    """Threads in PostgreSQL, as plain dicts; `postgresql_checkpointer(...)` keeps `AgentState` there.

    Every event loop gets a pool of its own. If you give a `pool` of psycopg's, it is used instead and not closed;
    it serves the one event loop that it belongs to. See `PostgreSQLConfig` for the options.
    """

    flavour: ClassVar[type[PostgreSQLFlavour]] = PostgreSQLFlavour
    """The SQL of the server, and the tables in it."""

    if TYPE_CHECKING:
        config: PostgreSQLConfig

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
        **options: Unpack[PostgreSQLOptions],
    ) -> None:
        given: dict[str, Any] = {
            "host": host,
            "port": port,
            "database": database,
            "user": user,
            "password": password,
            "dsn": dsn,
        }
        self._open(PostgreSQLConfig.checked(**given, **options), pool)

    @classmethod
    def from_config(cls, config: PostgreSQLConfig, *, pool: AsyncConnectionPool[Any] | None = None) -> Self:
        """A backend with these options."""
        backend = cls.__new__(cls)
        backend._open(config, pool)
        return backend

    def _open(self, config: PostgreSQLConfig, pool: AsyncConnectionPool[Any] | None) -> None:
        require("psycopg", "postgresql")
        from locus.memory.backends.postgresql.engine import PostgreSQLEngine

        config.check_numbers()
        if pool is not None and not isinstance(pool, require("psycopg_pool", "postgresql").AsyncConnectionPool):
            raise ConfigurationError(f"pool must be a psycopg_pool.AsyncConnectionPool, got {type(pool).__name__}")
        self.config = config
        flavour = self.flavour(config.table_name, config.schema_name, config.partitions)
        engine = PostgreSQLEngine(config, flavour, pool)
        engine.backend_name = type(self).__name__
        super().__init__(CheckpointStore(engine, ttl_seconds=config.ttl_seconds, cache_mb=config.cache_mb))

    @property
    def dsn(self) -> SecretStr | None:
        """The connection string, if one was given. It then overrides `host` and the other parts."""
        return self.config.dsn

    @classmethod
    def ddl(
        cls,
        table_name: str = "locus",
        schema_name: str | None = None,
        from_format: int = 0,
        *,
        partitions: int = 0,
        from_unpartitioned: bool = False,
    ) -> str:
        """The statements that create the tables, for a database administrator; then set `auto_create_table=False`.

        `from_format` is the format of existing tables, to migrate them to the newest one. `partitions` is how many
        partitions each table gets. With `from_unpartitioned`, they move the rows of existing tables into partitions;
        run them with psql.
        """
        sql = cls.flavour(table_name, schema_name, partitions)
        version = checked_format(from_format, sql.newest_format)
        if not from_unpartitioned:
            return ddl(sql, version)
        if not partitions:
            raise ConfigurationError("from_unpartitioned needs to know how many: partitions=16")
        if version not in (0, sql.newest_format):
            raise ConfigurationError(f"first bring the tables to the newest format, with ddl(from_format={version})")
        return move(sql)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.store.engine.identity!r})"


def from_location(location: str = "", **options: Any) -> Checkpointer:
    """`"postgresql://user:password@host:5432/database?sslmode=require&table_name=agents"`.

    Options of `PostgreSQLBackend` in the query are taken as such, and the rest is libpq's.
    """
    return open_location(PostgreSQLBackend, location, **options)


def open_location(backend: type[PostgreSQLBackend], location: str = "", /, **options: Any) -> Checkpointer:
    """Make a checkpointer on a backend of this class. `location` is a URL without its scheme."""
    from locus.memory.backends.adapters import StorageBackendAdapter

    if not location:
        return StorageBackendAdapter(backend(**options))
    pool = options.pop("pool", None)
    config = PostgreSQLConfig.from_url(f"postgresql:{location}", **options)
    return StorageBackendAdapter(backend.from_config(config, pool=pool))
