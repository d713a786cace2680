"""The options of `PostgreSQLBackend`, and its URLs."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from pydantic import SecretStr

from locus.errors import ConfigurationError
from locus.memory.backends.postgresql.schema import checked_partitions
from locus.memory.backends.sql.config import SQLServerConfig, SQLServerOptions
from locus.memory.runtime.url import StoreURL

_LIBPQ = {"host", "port", "user", "password", "dsn", "connect_timeout"}
"""Options that libpq reads from a URL by itself."""


class PostgreSQLOptions(SQLServerOptions, total=False):
    """The options of `PostgreSQLConfig` that do not name the server."""

    schema_name: str | None
    prepared_statements: bool
    partitions: int


class PostgreSQLConfig(SQLServerConfig):
    """The options of `PostgreSQLBackend`: the server and how to use it. Its text hides the secrets."""

    host: str = "localhost"
    port: int = 5432
    database: str = "locus"
    user: str = "postgres"
    password: SecretStr = SecretStr("")
    dsn: SecretStr | None = None
    """A connection string as libpq takes it. It replaces host, port, database, user and password."""
    schema_name: str | None = None
    """The schema that the tables are in. The default is the first one in the user's search path."""
    prepared_statements: bool = True
    """Turn this off for a PgBouncer in transaction mode that does not support them (before 1.21)."""
    partitions: int = 0
    """The number of partitions of each table that is created; 0: none. Existing tables stay as they are."""

    @classmethod
    def options_in(cls, url: str) -> dict[str, Any]:
        """Read the options in `postgresql://user:password@host:5432/database?sslmode=require&table_name=agents`.

        Names of this class in the query are options; everything else in the URL is the `dsn`.
        """
        refusal = "a PostgreSQL server is named by a URL: postgresql://user:password@host:5432/database"
        if not url.startswith("postgresql://"):
            raise ConfigurationError(refusal)
        parts = StoreURL(url, refusal)
        # Not decoded and encoded again: a plus sign is no space to libpq.
        pairs = [pair.partition("=") for pair in parts.query.split("&") if pair]
        names = cls.model_fields.keys() - _LIBPQ
        options = {name: unquote(value) for name, _, value in pairs if name in names}
        query = "&".join("".join(pair) for pair in pairs if pair[0] not in names)
        return {"dsn": parts.changed(query=query), **options}

    def check_numbers(self) -> None:
        super().check_numbers()
        checked_partitions(self.partitions)
