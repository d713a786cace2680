"""The options that all classes for Oracle Database share, and their URLs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import unquote

from pydantic import SecretStr, ValidationError, field_validator

from locus.errors import ConfigurationError
from locus.memory.backends.sql.config import SQLServerConfig
from locus.memory.model.ids import digest

_TLS_PORTS = (1522, 2484)
_CLOUD = ".oraclecloud.com"
_DEFAULT_USER = "admin"
_URL = re.compile(r"oracle[\w+]*://|(?!tcps?:|ldaps?:|config-)[\w+-]+://.*@", re.IGNORECASE)
"""A URL that python-oracledb doesn't take as a connect string, and that may hold a password."""


class OracleConfig(SQLServerConfig):
    """The database and how to use it. `repr` hides all passwords."""

    server: ClassVar[str] = "an Oracle Database"
    example: ClassVar[str] = "oracle://user:password@host:1521/service_name"
    url_parts: ClassVar[frozenset[str]] = frozenset({"dsn", "user", "password", "host", "port", "service_name"})

    dsn: str | None = None
    """A TNS alias, `host:port/service_name`, or a whole connect descriptor; `user/password@` may precede it."""
    user: str = _DEFAULT_USER
    password: SecretStr = SecretStr("")
    wallet_location: Path | None = None
    """The folder of an Autonomous Database's unpacked wallet: with ewallet.pem, and usually tnsnames.ora."""
    wallet_password: SecretStr | None = None
    host: str | None = None
    """Use host, port and service_name instead of a dsn."""
    port: int = 1521
    service_name: str | None = None
    protocol: Literal["tcp", "tcps"] | None = None
    """tcps is TLS. It is the default with a wallet, for ports 1522 and 2484, and in Oracle's cloud."""
    config_dir: Path | None = None
    """The folder with tnsnames.ora, if it is not the wallet's."""
    schema_name: str | None = None
    """The schema of the tables; the default is the user's own."""
    max_pool_size: int = 5
    connect_timeout: float = 20.0
    statement_cache_size: int = 50
    keepalive_minutes: int = 2
    """The minutes between two signs of life on an idle connection, so that firewalls keep it open; 0: none."""

    @field_validator("wallet_location", "config_dir", "wallet_password", mode="before")
    @classmethod
    def _none_if_empty(cls, value: Any) -> Any:
        """Treat an empty text as not given: an environment variable that is not set often arrives as one."""
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        return None if text == "" else value

    def __init__(self, **options: Any) -> None:
        """Make a config. An error does not show the values, since some of them are secret."""
        try:
            super().__init__(**options)
        except ValidationError as error:
            raise self._refusal(error) from None
        self.check_numbers()
        if (self.dsn is None) == (self.host is None):
            raise ConfigurationError("say where the database is: either with a dsn, or with host and service_name")
        if self.dsn is not None and _URL.match(self.dsn):
            raise ConfigurationError("dsn is a connect string, and this is a URL: get_checkpointer(…) takes URLs")
        if self.host is not None and not self.service_name:
            raise ConfigurationError(f"host {self.host!r:.80} needs a service_name beside it")
        self._account()

    @property
    def address(self) -> str:
        """The address of the database, for messages and to tell one database from another. It contains no secrets."""
        if self.dsn is None:
            return f"{self.host}:{self.port}/{self.service_name}"
        # A dsn may begin with a user name and a password.
        address = self.dsn.rpartition("@")[2].partition("?")[0].strip()
        return f"connect descriptor {digest(address)[:8]}" if address.startswith("(") else address

    @property
    def secrets(self) -> list[str]:
        """The texts that must not be shown, the longest first. A dsn counts if it says more than the address."""
        dsn = self.dsn or ""
        in_dsn = dsn.rpartition("@")[0].partition("/")[2]
        given = (self.password, self.wallet_password)
        secrets = [secret.get_secret_value() for secret in given if secret is not None]
        hidden = [dsn, in_dsn] if dsn.strip() != self.address else []
        return sorted(filter(None, [*secrets, *hidden]), key=len, reverse=True)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, self.address if name == "dsn" and value is not None else value

    def _account(self) -> tuple[str, str, str | None]:
        """The user, the password, and the dsn without them. What the dsn says is not said twice."""
        user, password = self.user, self.password.get_secret_value()
        if self.dsn is None or self.dsn.lstrip().startswith("("):
            return user, password, self.dsn
        # A password may contain an @, and so may a descriptor.
        account, at, rest = self.dsn.partition("@(")
        place = f"({rest}"
        if not at:
            account, at, place = self.dsn.rpartition("@")
        own_user, _, own_password = account.partition("/")
        if not at or not own_user:
            return user, password, self.dsn
        if user not in (_DEFAULT_USER, own_user) or (password and own_password not in ("", password)):
            raise ConfigurationError("the dsn names a user or a password, and another is given beside it: give one")
        return own_user, own_password or password, place

    def driver_parameters(self) -> dict[str, Any]:
        """The arguments of `oracledb.connect_async`."""
        config_dir = self.config_dir or self.wallet_location
        user, password, dsn = self._account()
        parameters: dict[str, Any] = {
            "user": user,
            "password": password,
            "dsn": dsn,
            "wallet_location": None if self.wallet_location is None else str(self.wallet_location.expanduser()),
            "wallet_password": None if self.wallet_password is None else self.wallet_password.get_secret_value(),
            "config_dir": None if config_dir is None else str(config_dir.expanduser()),
            "tcp_connect_timeout": self.connect_timeout,
            "stmtcachesize": self.statement_cache_size,
            "expire_time": self.keepalive_minutes,
        }
        if self.host is not None:
            secure = self.wallet_location is not None or self.port in _TLS_PORTS or self.host.lower().endswith(_CLOUD)
            parameters |= {
                "host": self.host,
                "port": self.port,
                "service_name": self.service_name,
                "protocol": self.protocol or ("tcps" if secure else "tcp"),
            }
        return {name: value for name, value in parameters.items() if value is not None}

    @classmethod
    def options_in(cls, url: str) -> dict[str, Any]:
        """Read the options in `oracle://user:password@host:1521/service?table_name=agents`.

        In a URL without a path the host is a TNS alias: `oracle://user:password@mydb_high?wallet_location=/wallet`.
        """
        parts, options = cls._read_url(url)
        service = unquote(parts.path[1:])
        if parts.port is not None and not service:
            raise ConfigurationError(f"this URL names a port, and no service; one looks like {cls.example}")
        in_url: dict[str, Any] = {
            "user": parts.user,
            "password": parts.password,
            "dsn": None if service else parts.host,
            "host": parts.host if service else None,
            "port": parts.port,
            "service_name": service,
        }
        return {name: value for name, value in in_url.items() if value} | options
