"""The public class for MySQL, and the factory behind `mysql://` URLs.

`schema` describes the tables, and `commit` a save. aiomysql is needed only once a backend is created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, Unpack

from pydantic import SecretStr

from locus.errors import ConfigurationError
from locus.extras import require
from locus.memory.backends.mysql import schema as mysql_schema
from locus.memory.backends.mysql.config import MySQLConfig, MySQLOptions
from locus.memory.backends.mysql.schema import MySQLFlavour
from locus.memory.backends.sql.backend import ConfiguredBackend
from locus.memory.backends.sql.schema import checked_format
from locus.memory.checkpointer import Checkpointer
from locus.memory.store import CheckpointStore

__all__ = ["MySQLBackend", "MySQLConfig", "from_location"]


class MySQLBackend(ConfiguredBackend):
    """Keeps plain dicts in MySQL. `mysql_checkpointer(...)` keeps `AgentState` there.

    See `MySQLConfig` for the options. A `dsn` is a URL with the same options; it takes precedence over host, port,
    database, user and password. Each event loop gets its own pool of connections. If you pass a `pool`, an
    `aiomysql.Pool`, the backend uses that one, only in its event loop, and does not close it.
    """

    if TYPE_CHECKING:
        config: MySQLConfig

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
        **options: Unpack[MySQLOptions],
    ) -> None:
        given: dict[str, Any] = {"host": host, "port": port, "database": database, "user": user, "password": password}
        if dsn is not None:
            given |= MySQLConfig.options_in(dsn.get_secret_value() if isinstance(dsn, SecretStr) else dsn)
        self._open(MySQLConfig.checked(**(given | options)), pool)

    @classmethod
    def from_config(cls, config: MySQLConfig, *, pool: Any = None) -> Self:
        """A backend with these options."""
        backend = cls.__new__(cls)
        backend._open(config, pool)
        return backend

    def _open(self, config: MySQLConfig, pool: Any) -> None:
        driver = require("aiomysql", "mysql")
        from locus.memory.backends.mysql.engine import GivenPoolEngine, MySQLEngine

        if pool is not None and not isinstance(pool, driver.Pool):
            raise ConfigurationError(f"pool must be an aiomysql.Pool, got {type(pool).__name__}")
        config.check_numbers()
        self.config = config
        engine = MySQLEngine(config) if pool is None else GivenPoolEngine(config, pool)
        engine.backend_name = type(self).__name__
        super().__init__(CheckpointStore(engine, ttl_seconds=config.ttl_seconds, cache_mb=config.cache_mb))

    @staticmethod
    def ddl(table_name: str = "locus", from_format: int = 0) -> str:
        """A script that creates the tables, for a user who may. Then use `auto_create_table=False`.

        `from_format` is the format of existing tables that the script should bring to the newest format.
        """
        return mysql_schema.ddl(MySQLFlavour(table_name), checked_format(from_format, mysql_schema.FORMAT))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.store.engine.identity!r})"


def from_location(location: str = "", **options: Any) -> Checkpointer:
    """`"mysql://user:password@host:3306/database?ssl=true&table_name=agents"`."""
    from locus.memory.backends.adapters import StorageBackendAdapter, mysql_checkpointer

    if not location:
        return mysql_checkpointer(**options)
    pool = options.pop("pool", None)
    config = MySQLConfig.from_url(f"mysql:{location}", **options)
    return StorageBackendAdapter(MySQLBackend.from_config(config, pool=pool))
