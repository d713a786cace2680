"""locus.memory.backends.postgresql.config"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

if TYPE_CHECKING:
    from locus.memory.backends.postgresql.client import Address


class PostgreSQLConfig(BaseModel):
    """Where the server is, and how to use it: the options of `PostgreSQLBackend`. Its text hides the secrets."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    host: str = "localhost"
    port: int = 5432
    database: str = "locus"
    user: str = "postgres"
    password: SecretStr = SecretStr("")
    dsn: SecretStr | None = None
    """A connection string as libpq takes it; host, port, database, user and password are then not looked at."""
    table_name: str = "locus"
    """What the names of all tables begin with."""
    schema_name: str | None = None
    """The schema that the tables are in; the first of the user's search path if none is named."""
    min_pool_size: int = 1
    max_pool_size: int = 10
    connect_timeout: float = 10.0
    """Seconds to wait for a connection."""
    command_timeout: float = 60.0
    """Seconds to wait for the answer to one statement."""
    retry_seconds: float = 10.0
    """How long a connection that was lost is tried to replace, where repeating can do no harm."""
    ttl_seconds: float | None = None
    auto_create_table: bool = True
    prepared_statements: bool = True
    """Off, for a PgBouncer in transaction mode that does not know them (before 1.21)."""

    def address(self) -> Address:
        from locus.memory.backends.postgresql.client import Address, parsed

        if self.dsn is not None:
            parameters = parsed(self.dsn.get_secret_value())
        else:
            parameters = {"host": self.host, "port": self.port, "dbname": self.database, "user": self.user}
            if self.password.get_secret_value():
                parameters["password"] = self.password.get_secret_value()
        parameters.setdefault("application_name", "locus")
        seconds = float(parameters.pop("connect_timeout", self.connect_timeout))
        return Address(parameters, seconds, self.command_timeout, self.prepared_statements)


def _explained(error: ValidationError) -> str:
    """What is wrong with the options, without their values: one of them is a password."""
    first = error.errors(include_url=False, include_input=False)[0]
    name = ".".join(map(str, first["loc"]))
    known = ", ".join(PostgreSQLConfig.model_fields)
    return f"option {name!r} of PostgreSQLBackend: {first['msg']}; the options are {known}"
