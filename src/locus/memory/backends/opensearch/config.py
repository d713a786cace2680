"""How to reach OpenSearch: the options of the backend and its URLs, checked, in the form that the driver takes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pydantic import SecretStr

from locus.errors import ConfigurationError

DEFAULT_PORT = 9200


@dataclass(frozen=True, slots=True)
class OpenSearchConfig:
    """The servers, the index, and the driver's options. Its `repr` shows no password."""

    hosts: Sequence[Mapping[str, Any]]
    """As `parse_hosts` returns them."""
    index: str
    timeout: float
    """Seconds for each request."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """As `connection_options` returns them."""

    @property
    def shown_hosts(self) -> str:
        return ",".join(f"{host['host']}:{host['port']}" for host in self.hosts)


_INDEX_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")


def checked_index(name: object) -> str:
    if not isinstance(name, str) or not _INDEX_NAME.fullmatch(name):
        raise ConfigurationError(
            f"index_name is made of lower-case letters, digits, dots, hyphens and underscores, got {name!r:.80}"
        )
    return name


def checked_count(value: object, what: str, *, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigurationError(f"{what} must be a number from {least} on, got {value!r:.40}")


def checked_client(client: Any) -> Any:
    """A blocking client of the driver, or None. Requests run on OS threads, whichever event loop they come from."""
    if client is None:
        return None
    request = getattr(getattr(client, "transport", None), "perform_request", None)
    if request is None or type(client).__name__.startswith("Async"):
        raise ConfigurationError(f"client must be an opensearchpy.OpenSearch, got {type(client).__name__}")
    return client


_HOST_SYNTAX = 'a host is "name:port" or a URL that begins with http:// or https://'


def parse_hosts(
    hosts: Sequence[str] | None, use_ssl: bool | None
) -> tuple[list[dict[str, Any]], str | None, str | None]:
    """The hosts in the driver's form, and the user name and the password if one of them is a URL with both."""
    if hosts is None:
        hosts = [f"localhost:{DEFAULT_PORT}"]
    if isinstance(hosts, str) or not hosts or not all(isinstance(host, str) and host for host in hosts):
        raise ConfigurationError('hosts is a list of texts, such as ["localhost:9200"]')
    parsed: list[dict[str, Any]] = []
    user = password = None
    for host in hosts:
        parts = urlsplit(host if "://" in host else f"//{host}")
        name, port = parts.hostname, _port(parts)
        if not name or parts.scheme not in ("", "http", "https"):
            raise ConfigurationError(_HOST_SYNTAX)
        secure = parts.scheme == "https" if use_ssl is None else use_ssl
        default = 443 if parts.scheme == "https" and port is None else DEFAULT_PORT
        driver_host: dict[str, Any] = {"host": name, "port": port or default, "use_ssl": secure}
        if parts.path.strip("/"):
            driver_host["url_prefix"] = parts.path.strip("/")
        parsed.append(driver_host)
        if parts.username is not None:
            user, password = unquote(parts.username), unquote(parts.password or "")
    return parsed, user, password


def _port(parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError as error:
        raise ConfigurationError(_HOST_SYNTAX) from error


def connection_options(
    username: str | None,
    password: str | SecretStr | None,
    *,
    verify_certs: bool,
    ca_certs: str | None,
    client_cert: str | None,
    client_key: str | None,
) -> dict[str, Any]:
    """Credentials and certificates in the driver's form."""
    options: dict[str, Any] = {"verify_certs": verify_certs, "ssl_show_warn": False}
    for name, value in (("ca_certs", ca_certs), ("client_cert", client_cert), ("client_key", client_key)):
        if value is not None:
            options[name] = value
    if (username is None) != (password is None):
        raise ConfigurationError("give both username and password, or neither")
    if username is not None and password is not None:
        secret = password.get_secret_value() if isinstance(password, SecretStr) else password
        options["http_auth"] = (username, secret)
    return options


def url_options(location: str) -> dict[str, Any]:
    """The options in a URL without its scheme: `//user:password@host:9200,other:9200/index?ssl=true`."""
    if not location.strip("/"):
        return {}
    if not location.startswith("//"):
        raise ConfigurationError('write "opensearch://host:9200/index-name"')
    address, _, query = location[2:].partition("?")
    network, _, path = address.partition("/")
    credentials, _, names = network.rpartition("@")
    options: dict[str, Any] = {"hosts": names.split(",")} if names else {}
    if credentials:
        user, _, password = credentials.partition(":")
        options |= {"username": unquote(user), "password": unquote(password)}
    if path.strip("/"):
        options["index_name"] = unquote(path.strip("/"))
    return options | _query_options(query)


_FLAGS = ("use_ssl", "verify_certs")
_NUMBERS = ("timeout", "ttl_seconds")
_COUNTS = ("connections", "shards", "replicas")


def _query_options(query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        name = "use_ssl" if key == "ssl" else key
        if name in _FLAGS:
            if value not in ("true", "false"):
                raise ConfigurationError(f"{key} in the URL is true or false")
            options[name] = value == "true"
        elif name in (*_NUMBERS, *_COUNTS):
            try:
                options[name] = float(value) if name in _NUMBERS else int(value)
            except ValueError as error:
                raise ConfigurationError(f"{key} in the URL is a number") from error
        elif name == "ca_certs":
            options[name] = value
        else:
            raise ConfigurationError(f"the URL has a setting that OpenSearch does not have here: {key!r:.40}")
    return options
