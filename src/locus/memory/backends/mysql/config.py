"""The options of `MySQLBackend`, and the URLs that stand for them."""

from __future__ import annotations

from pathlib import Path
from ssl import SSLContext, create_default_context
from typing import Any, ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import ConfigDict, SecretStr

from locus.errors import ConfigurationError
from locus.memory.backends.sql.config import SQLServerConfig


class MySQLConfig(SQLServerConfig):
    """The options of `MySQLBackend`: where the server is, and how to use it. `repr` hides the password."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    used_by: ClassVar[str] = "MySQLBackend"

    host: str = "localhost"
    port: int = 3306
    database: str = "locus"
    user: str = "root"
    password: SecretStr = SecretStr("")
    unix_socket: str | None = None
    """The path of the server's socket, instead of host and port."""
    ssl: bool | SSLContext = False
    """True: encrypt, and verify the server's certificate. Pass an `SSLContext` to control more."""
    ssl_ca: Path | None = None
    """The certificate authority to trust instead of the system's."""
    ssl_check_hostname: bool = True

    @property
    def address(self) -> str:
        """Where the database is, for messages: without secrets."""
        return f"{self.unix_socket or f'{self.host}:{self.port}'}/{self.database}"

    def tls(self) -> SSLContext | None:
        """How to encrypt connections; None if they are not encrypted."""
        if isinstance(self.ssl, SSLContext):
            return self.ssl
        if not self.ssl and self.ssl_ca is None:
            return None
        try:
            context = create_default_context(cafile=None if self.ssl_ca is None else str(self.ssl_ca))
        except OSError as error:
            raise ConfigurationError(f"ssl_ca, {str(self.ssl_ca)!r:.80}, cannot be read: {error}") from error
        context.check_hostname = self.ssl_check_hostname
        return context


_EXAMPLE = "mysql://user:password@host:3306/database"
_URL_PARTS = ("host", "port", "database", "user", "password")
"""Options that are parts of the URL itself, and cannot follow its question mark."""


def options_of(url: str) -> dict[str, Any]:
    """The options in `mysql://user:password@host:3306/database?ssl=true`. An error does not show the URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigurationError(f"this is no URL of a MySQL server; one looks like {_EXAMPLE}") from None
    if parts.scheme != "mysql" or not url.startswith("mysql://") or parts.fragment or "/" in parts.path[1:]:
        raise ConfigurationError(
            f"a MySQL server is named by a URL like {_EXAMPLE}, with everything special percent-encoded"
        )
    found: dict[str, Any] = {
        "host": parts.hostname,
        "port": port,
        "database": unquote(parts.path[1:]),
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
    }
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in MySQLConfig.model_fields or name in _URL_PARTS:
            raise ConfigurationError(
                f"the URL of a MySQL server has no option {name!r:.40}; there are: "
                f"{', '.join(field for field in MySQLConfig.model_fields if field not in _URL_PARTS)}"
            )
    return {name: value for name, value in found.items() if value} | options
