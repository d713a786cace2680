"""The options of everything that keeps threads in Oracle Database, and URLs that name one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError, field_validator

from locus.errors import ConfigurationError
from locus.extras import require
from locus.memory.backends.oracle.schema import OracleFlavour
from locus.memory.backends.sql.config import PoolOptions, check_pool_sizes, check_timeouts
from locus.memory.model.ids import digest
from locus.memory.store import CheckpointStore

if TYPE_CHECKING:
    from locus.memory.backends.oracle.client import Address

_EXAMPLE = "oracle://user:password@host:1521/service_name"
_PLACE = ("dsn", "user", "password", "host", "port", "service_name")
_TLS_PORTS = (1522, 2484)
_CLOUD = ".oraclecloud.com"


class OracleOptions(BaseModel):
    """Where the database is, and how to use it. The text of one hides the secrets."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    dsn: str | None = None
    """A TNS alias, `host:port/service_name`, or a whole connect descriptor."""
    user: str = "admin"
    password: SecretStr = SecretStr("")
    wallet_location: Path | None = None
    """The folder with ewallet.pem, and as a rule tnsnames.ora: an Autonomous Database's wallet, unpacked."""
    wallet_password: SecretStr | None = None
    host: str | None = None
    """Host, port and service_name do instead of a dsn."""
    port: int = 1521
    service_name: str | None = None
    protocol: Literal["tcp", "tcps"] | None = None
    """tcps is TLS. Unless it is said: for a wallet, for ports 1522 and 2484, and in Oracle's cloud."""
    config_dir: Path | None = None
    """The folder with tnsnames.ora, if that is not the wallet's."""
    table_name: str = "locus"
    """What the names of all tables begin with."""
    schema_name: str | None = None
    """The schema that the tables are in; the user's own if none is named."""
    min_pool_size: int = 1
    max_pool_size: int = 5
    connect_timeout: float = 20.0
    """Seconds to wait for a connection."""
    command_timeout: float = 60.0
    """Seconds to wait for the answer to a statement."""
    retry_seconds: float = 10.0
    """How long a connection that was lost is tried to replace, where repeating can do no harm."""
    ttl_seconds: float | None = None
    auto_create_table: bool = True
    statement_cache_size: int = 50
    keepalive_minutes: int = 2
    """How often an idle connection is shown to firewalls; 0: never."""

    @field_validator("wallet_location", "config_dir", "wallet_password", mode="before")
    @classmethod
    def _none_if_empty(cls, value: Any) -> Any:
        """An environment variable that is not set often arrives as an empty text."""
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        return None if text == "" else value

    def __init__(self, **options: Any) -> None:
        """What is wrong is told without the values: some of them are secret."""
        try:
            super().__init__(**options)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            name = ".".join(map(str, first["loc"][:1]))
            known = ", ".join(type(self).model_fields)
            raise ConfigurationError(
                f"option {name!r} of {type(self).__name__}: {first['msg']}; the options are {known}"
            ) from None
        check_pool_sizes(self.min_pool_size, self.max_pool_size)
        check_timeouts(
            connect_timeout=self.connect_timeout,
            command_timeout=self.command_timeout,
            retry_seconds=self.retry_seconds,
        )
        if (self.dsn is None) == (self.host is None):
            raise ConfigurationError("say where the database is: either with a dsn, or with host and service_name")
        if self.host is not None and not self.service_name:
            raise ConfigurationError(f"host {self.host!r:.80} needs a service_name beside it")

    def flavour(self) -> OracleFlavour:
        return OracleFlavour(self.table_name, self.schema_name)

    def address(self) -> Address:
        from locus.memory.backends.oracle.client import Address

        return Address(self._place(), self.driver_parameters(), self.connect_timeout, self.command_timeout)

    def _place(self) -> str:
        """For people, and to tell one database from another. A dsn may begin with a name and a password."""
        if self.dsn is None:
            return f"{self.host}:{self.port}/{self.service_name}"
        place = self.dsn.rpartition("@")[2].partition("?")[0].strip()
        return f"connect descriptor {digest(place)[:8]}" if place.startswith("(") else place

    def driver_parameters(self) -> dict[str, Any]:
        """The arguments of `oracledb.connect_async`."""
        config_dir = self.config_dir or self.wallet_location
        found: dict[str, Any] = {
            "user": self.user,
            "password": self.password.get_secret_value(),
            "dsn": self.dsn,
            "wallet_location": None if self.wallet_location is None else str(self.wallet_location.expanduser()),
            "wallet_password": None if self.wallet_password is None else self.wallet_password.get_secret_value(),
            "config_dir": None if config_dir is None else str(config_dir.expanduser()),
            "tcp_connect_timeout": self.connect_timeout,
            "stmtcachesize": self.statement_cache_size,
            "expire_time": self.keepalive_minutes,
        }
        if self.host is not None:
            found |= {
                "host": self.host,
                "port": self.port,
                "service_name": self.service_name,
                "protocol": self.protocol or ("tcps" if self._needs_tls(self.host) else "tcp"),
            }
        return {name: value for name, value in found.items() if value is not None}

    def _needs_tls(self, host: str) -> bool:
        return self.wallet_location is not None or self.port in _TLS_PORTS or host.lower().endswith(_CLOUD)

    def open_store(self) -> CheckpointStore:
        """Nothing is connected yet; but without the driver there is an error that names it."""
        require("oracledb", "oracle")
        from locus.memory.backends.oracle.engine import OracleEngine

        engine = OracleEngine(
            self.address(),
            self.flavour(),
            PoolOptions(self.min_pool_size, self.max_pool_size, self.connect_timeout),
            auto_create_table=self.auto_create_table,
            retry_seconds=self.retry_seconds,
        )
        return CheckpointStore(engine, ttl_seconds=self.ttl_seconds)


def options_of(url: str) -> dict[str, Any]:
    """The options in `oracle://user:password@host:1521/service?table_name=agents`. An error does not repeat the URL.

    Without a path, what stands for the host is a TNS alias: `oracle://user:password@mydb_high?wallet_location=/wallet`.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigurationError(f"this is no URL of an Oracle Database; one looks like {_EXAMPLE}") from None
    if not url.startswith("oracle://") or parts.fragment or "/" in parts.path[1:]:
        raise ConfigurationError(
            f"an Oracle Database is named by a URL like {_EXAMPLE}, with everything special percent-encoded"
        )
    service = unquote(parts.path[1:])
    found: dict[str, Any] = {
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "dsn": None if service else parts.hostname,
        "host": parts.hostname if service else None,
        "port": port,
        "service_name": service,
    }
    if port is not None and not service:
        raise ConfigurationError(f"this URL names a port, and no service; one looks like {_EXAMPLE}")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in OracleOptions.model_fields or name in _PLACE:
            raise ConfigurationError(
                f"the URL of an Oracle Database has no option {name!r:.40}; there are: "
                f"{', '.join(field for field in OracleOptions.model_fields if field not in _PLACE)}"
            )
    return {name: value for name, value in found.items() if value} | options
