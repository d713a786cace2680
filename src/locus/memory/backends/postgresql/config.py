"""The options of `PostgreSQLBackend`, and URLs that name a server."""

from __future__ import annotations

from typing import Any, Self
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from locus.errors import ConfigurationError
from locus.memory.backends.sql.config import check_pool_sizes, check_timeouts

_LIBPQ = {"host", "port", "user", "password", "dsn", "connect_timeout"}
"""Options that libpq reads from a URL by itself."""


class PostgreSQLConfig(BaseModel):
    """Where the server is, and how to use it: the options of `PostgreSQLBackend`. Its text hides the secrets."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    host: str = "localhost"
    port: int = 5432
    database: str = "locus"
    user: str = "postgres"
    password: SecretStr = SecretStr("")
    dsn: SecretStr | None = None
    """A connection string as libpq takes it. It replaces host, port, database, user and password."""
    table_name: str = "locus"
    """What the names of all tables begin with."""
    schema_name: str | None = None
    """The schema that the tables are in. The default is the first one in the user's search path."""
    min_pool_size: int = 1
    max_pool_size: int = 10
    connect_timeout: float = 10.0
    """Seconds to wait for a connection."""
    command_timeout: float = 60.0
    """Seconds to wait for the answer to one statement."""
    retry_seconds: float = 10.0
    """How long to try to replace a lost connection, where repeating can do no harm."""
    ttl_seconds: float | None = None
    auto_create_table: bool = True
    prepared_statements: bool = True
    """Turn this off for a PgBouncer in transaction mode that does not support them (before 1.21)."""

    @classmethod
    def checked(cls, **options: Any) -> Self:
        """From options that a user gave. An error does not show their values: one of them is a password."""
        try:
            return cls(**options)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            name = ".".join(map(str, first["loc"]))
            known = ", ".join(cls.model_fields)
            raise ConfigurationError(
                f"option {name!r} of PostgreSQLBackend: {first['msg']}; the options are {known}"
            ) from None

    def check_numbers(self) -> None:
        """Refuse pool sizes and times that cannot work."""
        check_pool_sizes(self.min_pool_size, self.max_pool_size)
        check_timeouts(
            connect_timeout=self.connect_timeout,
            command_timeout=self.command_timeout,
            retry_seconds=self.retry_seconds,
        )


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
