"""The options of `MySQLBackend`, and its URLs."""

from __future__ import annotations

from pathlib import Path
from ssl import SSLContext, create_default_context
from typing import Any, ClassVar
from urllib.parse import unquote

from pydantic import ConfigDict, SecretStr

from locus.errors import ConfigurationError
from locus.memory.backends.sql.config import SQLServerConfig, SQLServerOptions
from locus.memory.runtime.url import StoreURL


class MySQLOptions(SQLServerOptions, total=False):
    """The options of `MySQLConfig` that do not name the server."""

    unix_socket: str | None
    ssl: bool | SSLContext
    ssl_ca: str | Path | None
    ssl_check_hostname: bool


class MySQLConfig(SQLServerConfig):
    """The options of `MySQLBackend`: the server and how to use it. `repr` hides the password."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    server: ClassVar[str] = "a MySQL server"
    example: ClassVar[str] = "mysql://user:password@host:3306/database"
    url_parts: ClassVar[frozenset[str]] = frozenset({"host", "port", "database", "user", "password"})

    host: str = "localhost"
    """One host, or several with commas between them, each with a port if it has its own: `one:3306,two:3307`.

    Of several, the one that takes writes is used.
    """
    port: int = 3306
    database: str = "locus"
    user: str = "root"
    password: SecretStr = SecretStr("")
    unix_socket: str | None = None
    """The path of the server's socket, instead of host and port."""
    ssl: bool | SSLContext = False
    """True: encrypt, and verify the server's certificate. Pass an `SSLContext` to control more."""
    ssl_ca: Path | None = None
    """The file of the certificate authority to trust instead of the system's."""
    ssl_check_hostname: bool = True

    @property
    def places(self) -> list[tuple[str, int]]:
        """The host and the port of each server."""
        if "," not in self.host:
            return [(self.host, self.port)]
        refusal = "several hosts of MySQL are written as one:3306,two:3306"
        named = [StoreURL(f"mysql://{place.strip()}", refusal) for place in self.host.split(",")]
        if not all(place.host and place.user is None and not place.path for place in named):
            raise ConfigurationError(refusal)
        return [(place.host or "", place.port or self.port) for place in named]

    @property
    def address(self) -> str:
        """The address of the server for messages, without secrets."""
        places = ",".join(f"{host}:{port}" for host, port in self.places)
        return f"{self.unix_socket or places}/{self.database}"

    def tls(self) -> SSLContext | None:
        """The TLS settings of connections; None if they are not encrypted."""
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

    @classmethod
    def options_in(cls, url: str) -> dict[str, Any]:
        """Read the options in `mysql://user:password@host:3306/database?ssl=true`."""
        parts, options = cls._read_url(url)
        several = "," in parts.hosts
        in_url: dict[str, Any] = {
            "host": parts.hosts if several else parts.host,
            "port": None if several else parts.port,
            "database": unquote(parts.path[1:]),
            "user": parts.user,
            "password": parts.password,
        }
        return {name: value for name, value in in_url.items() if value} | options
