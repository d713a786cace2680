"""The options of `PostgreSQLBackend`, and URLs that name a server."""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import SecretStr

from locus.errors import ConfigurationError
from locus.memory.backends.sql.config import SQLServerConfig

_LIBPQ = {"host", "port", "user", "password", "dsn", "connect_timeout"}
"""Options that libpq reads from a URL by itself."""


class PostgreSQLConfig(SQLServerConfig):
    """Where the server is, and how to use it: the options of `PostgreSQLBackend`. Its text hides the secrets."""

    used_by: ClassVar[str] = "PostgreSQLBackend"

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


def dsn_and_options(url: str) -> tuple[str, dict[str, Any]]:
    """The parts of `postgresql://user:password@host:5432/database?sslmode=require&table_name=agents`.

    Names of `PostgreSQLConfig` in the query are options; everything else in the URL is the `dsn`.
    """
    if not url.startswith("postgresql://"):
        raise ConfigurationError("a PostgreSQL server is named by a URL: postgresql://user:password@host:5432/database")
    parts = urlsplit(url)
    # Not decoded and encoded again: a plus sign is no space to libpq.
    pairs = [pair.partition("=") for pair in parts.query.split("&") if pair]
    names = PostgreSQLConfig.model_fields.keys() - _LIBPQ
    options = {name: unquote(value) for name, _, value in pairs if name in names}
    query = "&".join("".join(pair) for pair in pairs if pair[0] not in names)
    return urlunsplit(("postgresql", parts.netloc, parts.path, query, parts.fragment)), options
