"""MySQL: threads in the tables of a server that many processes share. 8.0.17 and later; MariaDB is not MySQL.

The tables are shown in `mysql_schema`, a save in `mysql_save`. aiomysql is needed when a backend is made.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Self

from pydantic import SecretStr

from locus.errors import ConfigurationError
from locus.extras import require
from locus.memory.backends.mysql import schema as mysql_schema
from locus.memory.backends.mysql.config import MySQLConfig, options_of
from locus.memory.backends.mysql.schema import MySQLFlavour
from locus.memory.backends.sql.backend import SQLBackend
from locus.memory.backends.sql.config import PoolOptions
from locus.memory.backends.sql.schema import checked_format
from locus.memory.checkpointer import Checkpointer
from locus.memory.store import CheckpointStore

__all__ = ["MySQLBackend", "MySQLConfig", "from_location"]


class MySQLBackend(SQLBackend):
    """Threads in MySQL, as plain dicts; `mysql_checkpointer(...)` keeps `AgentState` there.

    Every event loop gets a pool of its own. A `pool` of aiomysql's that is given is used instead, and not closed;
    it serves the one event loop that it belongs to. See `MySQLConfig` for the options. A `dsn` is a URL with the
    same options: what it says goes before host, port, database, user and password.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int = 3306,
        database: str = "locus",
        user: str = "root",
        password: str | SecretStr = "",
        dsn: str | SecretStr | None = None,
        *,
        pool: Any = None,
        **options: Any,
    ) -> None:
        given: dict[str, Any] = {"host": host, "port": port, "database": database, "user": user, "password": password}
        if dsn is not None:
            given |= options_of(dsn.get_secret_value() if isinstance(dsn, SecretStr) else dsn)
        self._begin(MySQLConfig.checked(**(given | options)), pool)

    @classmethod
    def from_config(cls, config: MySQLConfig, *, pool: Any = None) -> Self:
        """A backend with these options."""
        backend = cls.__new__(cls)
        backend._begin(MySQLConfig.checked(**dict(config)), pool)
        return backend

    def _begin(self, config: MySQLConfig, pool: Any) -> None:
        driver = require("aiomysql", "mysql")
        from locus.memory.backends.mysql.client import Address
        from locus.memory.backends.mysql.engine import GivenPoolEngine, MySQLEngine

        if pool is not None and not isinstance(pool, driver.Pool):
            raise ConfigurationError(f"pool must be an aiomysql.Pool, got {type(pool).__name__}")
        self.config = config
        address = Address(
            config.host,
            config.port,
            config.unix_socket,
            config.database,
            config.user,
            config.password.get_secret_value(),
            config.tls(),
            config.connect_timeout,
            config.command_timeout,
        )
        make = MySQLEngine if pool is None else partial(GivenPoolEngine, pool)
        engine = make(
            address,
            MySQLFlavour(config.table_name),
            PoolOptions(config.min_pool_size, config.max_pool_size, config.connect_timeout),
            auto_create_table=config.auto_create_table,
            retry_seconds=config.retry_seconds,
        )
        super().__init__(CheckpointStore(engine, ttl_seconds=config.ttl_seconds))

    @staticmethod
    def ddl(table_name: str = "locus", from_format: int = 0) -> str:
        """The statements that create the tables, for whoever may: then `auto_create_table=False` will do.

        `from_format` is the format of tables that are there, and have to be brought to the newest one.
        """
        return mysql_schema.ddl(MySQLFlavour(table_name), checked_format(from_format, mysql_schema.FORMAT))

    def __repr__(self) -> str:
        return f"MySQLBackend({self.store.engine.identity!r})"


def from_location(location: str = "", **options: Any) -> Checkpointer:
    """`"mysql://user:password@host:3306/database?ssl=true&table_name=agents"`."""
    from locus.memory.backends.adapters import mysql_checkpointer

    return mysql_checkpointer(**(options_of(f"mysql:{location}") | options if location else options))
