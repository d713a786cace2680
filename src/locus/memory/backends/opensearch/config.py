"""The options of `OpenSearchBackend` and its URLs, checked, in the form that the driver takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from pydantic import SecretStr

from locus.errors import ConfigurationError
from locus.hints import check_options
from locus.memory.model.arguments import CACHE_MB, checked_seconds
from locus.memory.runtime.url import StoreURL, flag, refuse_address

DEFAULT_PORT = 9200


@dataclass(frozen=True, slots=True)
class OpenSearchConfig:
    """The servers, the index, and the driver's options. Its `repr` shows no password."""

    hosts: Sequence[Mapping[str, Any]]
    """The hosts in the driver's form, from `parse_hosts`."""
    index: str
    timeout: float
    """Seconds for each request."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Credentials and certificates in the driver's form, from `connection_options`."""
    ttl_seconds: float | None = None
    connections: int = 8
    """The number of requests that run at once."""
    shards: int = 1
    replicas: int | None = None
    client: Any = field(default=None, repr=False)
    """A caller's client of the driver."""
    cache_mb: float = CACHE_MB
    wait_for_active_shards: int | None = None
    """The copies of a shard, the primary among them, that must be available for a write; None: as the index says."""

    @classmethod
    def from_options(
        cls,
        hosts: Sequence[str] | None = None,
        index_name: str = "locus-checkpoints",
        username: str | None = None,
        password: str | SecretStr | None = None,
        *,
        use_ssl: bool | None = None,
        verify_certs: bool = True,
        ca_certs: str | None = None,
        client_cert: str | None = None,
        client_key: str | None = None,
        ttl_seconds: float | None = None,
        timeout: float = 30.0,
        connections: int = 8,
        shards: int = 1,
        replicas: int | None = None,
        client: Any = None,
        cache_mb: float = CACHE_MB,
        wait_for_active_shards: int | None = None,
    ) -> OpenSearchConfig:
        """Make a config from the options of `OpenSearchBackend`, and check it."""
        checked_seconds(timeout, "timeout")
        checked_count(connections, "connections", least=1)
        checked_count(shards, "shards", least=1)
        if replicas is not None:
            checked_count(replicas, "replicas", least=0)
        if wait_for_active_shards is not None:
            checked_count(wait_for_active_shards, "wait_for_active_shards", least=1)
        index = checked_index(index_name)
        driver_hosts, user, secret = parse_hosts(hosts, use_ssl)
        options = connection_options(
            username if username is not None else user,
            password if password is not None else secret,
            verify_certs=verify_certs,
            ca_certs=ca_certs,
            client_cert=client_cert,
            client_key=client_key,
        )
        given = checked_client(client)
        return cls(
            driver_hosts,
            index,
            timeout,
            options,
            ttl_seconds,
            connections,
            shards,
            replicas,
            given,
            cache_mb,
            wait_for_active_shards,
        )

    @classmethod
    def from_url(cls, url: str, **options: Any) -> OpenSearchConfig:
        """Make a config from a URL and options, which override those in the URL."""
        return cls.from_options(**cls.options_in(url, **options))

    @classmethod
    def options_in(cls, url: str, **options: Any) -> dict[str, Any]:
        """Read the options in `opensearch://host:9200/index?ssl=true`, and add others, which override them."""
        check_options(options, cls.from_options, "OpenSearchBackend")
        scheme, _, location = url.partition(":")
        secure = {"use_ssl": True} if scheme == "opensearchs" else {}
        return url_options(location) | secure | options

    @property
    def shown_hosts(self) -> str:
        return ",".join(f"{host['host']}:{host['port']}" for host in self.hosts)


_INDEX_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")


def checked_index(name: object) -> str:
    refuse_address(name, "index_name")
    if not isinstance(name, str) or not _INDEX_NAME.fullmatch(name):
        raise ConfigurationError(
            f"index_name is made of lower-case letters, digits, dots, hyphens and underscores, got {name!r:.80}"
        )
    return name


def checked_count(value: object, what: str, *, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigurationError(f"{what} must be a number from {least} on, got {value!r:.40}")


def checked_client(client: Any) -> Any:
    """Check a client of the driver, which must be blocking: requests run on OS threads, whatever the event loop."""
    if client is None:
        return None
    request = getattr(getattr(client, "transport", None), "perform_request", None)
    if request is None or type(client).__name__.startswith("Async"):
        raise ConfigurationError(f"client must be an opensearchpy.OpenSearch, got {type(client).__name__}")
    return client


_URL_SYNTAX = 'write "opensearch://host:9200/index-name"'
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
        parts = StoreURL(host if "://" in host else f"//{host}", _HOST_SYNTAX)
        name, port = parts.host, parts.port
        if not name or parts.scheme not in ("", "http", "https"):
            raise ConfigurationError(_HOST_SYNTAX)
        secure = parts.scheme == "https" if use_ssl is None else use_ssl
        default = 443 if parts.scheme == "https" and port is None else DEFAULT_PORT
        driver_host: dict[str, Any] = {"host": name, "port": port or default, "use_ssl": secure}
        if parts.path.strip("/"):
            driver_host["url_prefix"] = parts.path.strip("/")
        parsed.append(driver_host)
        if parts.user is not None:
            user, password = parts.user, parts.password or ""
    return parsed, user, password


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


_URL_OPTIONS: dict[str, Callable[[str], Any]] = {
    "ssl": flag,
    "use_ssl": flag,
    "verify_certs": flag,
    "timeout": float,
    "ttl_seconds": float,
    "connections": int,
    "shards": int,
    "replicas": int,
    "ca_certs": str,
    "cache_mb": float,
    "wait_for_active_shards": int,
}
_UNKNOWN = "the URL has a setting that OpenSearch does not have here: '{name}'; there are: {known}"


def url_options(location: str) -> dict[str, Any]:
    """Read the options in a URL without its scheme: `//user:password@host:9200,other:9200/index?ssl=true`."""
    if not location.strip("/"):
        return {}
    parts = StoreURL(f"opensearch:{location}", _URL_SYNTAX)
    if not location.startswith("//") or parts.fragment:
        raise ConfigurationError(_URL_SYNTAX)
    options: dict[str, Any] = {"hosts": parts.hosts.split(",")} if parts.hosts else {}
    if parts.user is not None:
        options |= {"username": parts.user, "password": parts.password or ""}
    if index := parts.path.strip("/"):
        options["index_name"] = unquote(index)
    named = parts.options(_URL_OPTIONS, _UNKNOWN)
    return options | {"use_ssl" if name == "ssl" else name: value for name, value in named.items()}
