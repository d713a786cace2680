"""The options of a Redis store, from a URL and keywords, checked. No secret is ever shown."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from itertools import starmap
from typing import Any
from urllib.parse import unquote

from pydantic import SecretStr

from locus.errors import ConfigurationError
from locus.memory.model.arguments import CACHE_MB, checked_seconds
from locus.memory.runtime.url import StoreURL, flag, refuse_address

_PORT = 6379
_TLS_OF_SCHEME = {"redis": False, "valkey": False, "rediss": True, "valkeys": True, "unix": False}
_BY_SENTINELS = "+sentinel"
"""The end of a scheme whose URLs name sentinels: `redis+sentinel`."""
_SENTINEL_PORT = 26_379
_SERVICE = re.compile(r"[A-Za-z0-9._-]{1,200}")

_BUCKETS = 16
_CLUSTER_BUCKETS = 256
"""The number of buckets in a cluster, which moves whole buckets between its nodes, and so needs more of them."""
MAX_BUCKETS = 16_384


@dataclass(frozen=True)
class RedisConfig:
    """The options of a store in Redis. Its `repr` shows no password."""

    host: str
    port: int
    path: str
    """The path of a Unix socket, instead of host and port."""
    tls: bool
    prefix: str
    ttl_seconds: float | None
    db: int
    username: str | None = field(repr=False)
    password: str | None = field(repr=False)
    cluster: bool
    search: bool | None
    timeout: float
    connect_timeout: float
    max_connections: int
    retries: int
    ssl_ca_certs: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_check_hostname: bool
    buckets: int
    cache_mb: float = CACHE_MB
    sentinels: tuple[tuple[str, int], ...] = ()
    """The host and port of each sentinel, in the place of the server's."""
    service: str = ""
    """The name under which the sentinels know the primary and its replicas."""
    sentinel_username: str | None = field(default=None, repr=False)
    sentinel_password: str | None = field(default=None, repr=False)
    wait_replicas: int = 0
    wait_timeout: float | None = None
    wait_aof: bool = False

    client: Any = field(default=None, repr=False)
    """A caller's client of the driver."""

    @classmethod
    def from_url(
        cls,
        url: str = "redis://localhost:6379",
        prefix: str = "locus:state:",
        ttl_seconds: float | None = None,
        *,
        db: int | None = None,
        username: str | None = None,
        password: str | SecretStr | None = None,
        cluster: bool = False,
        search: bool | None = None,
        timeout: float = 10.0,
        connect_timeout: float = 5.0,
        max_connections: int = 32,
        retries: int = 2,
        ssl_ca_certs: str | None = None,
        ssl_certfile: str | None = None,
        ssl_keyfile: str | None = None,
        ssl_check_hostname: bool = True,
        buckets: int | None = None,
        cache_mb: float = CACHE_MB,
        client: Any = None,
        sentinel_username: str | None = None,
        sentinel_password: str | SecretStr | None = None,
        wait_replicas: int = 0,
        wait_timeout: float | None = None,
        wait_aof: bool = False,
    ) -> RedisConfig:
        """Make a config from the options of `RedisBackend`, and check it. An option in the URL takes precedence."""
        given = {name: value for name, value in locals().items() if name not in ("cls", "url", "username", "password")}
        parts = _parts(url)
        given |= parts.options(_URL_OPTIONS, _UNKNOWN)
        sentinels, service, path = _sentinels(parts)
        if given["db"] is None:
            given["db"] = _database(path)
        given["sentinel_password"] = _secret(given["sentinel_password"])
        if given["buckets"] is None:
            given["buckets"] = _CLUSTER_BUCKETS if given["cluster"] else _BUCKETS
        config = cls(
            host="" if sentinels else parts.host or "localhost",
            port=0 if sentinels else parts.port or _PORT,
            path=unquote(parts.path) if parts.scheme == "unix" else "",
            tls=_TLS_OF_SCHEME[parts.scheme.removesuffix(_BY_SENTINELS)],
            username=username or parts.user or None,
            password=_secret(password) or parts.password or None,
            sentinels=sentinels,
            service=service,
            **given,
        )
        return _checked(config)

    @property
    def shown(self) -> str:
        """The URL without user and password."""
        if self.path:
            return f"unix://{self.path}?db={self.db}"
        scheme = "rediss" if self.tls else "redis"
        if self.sentinels:
            return (
                f"{scheme}{_BY_SENTINELS}://{','.join(starmap(_shown_host, self.sentinels))}/{self.service}/{self.db}"
            )
        return f"{scheme}://{_shown_host(self.host, self.port)}/{self.db}"


def _shown_host(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _secret(given: str | SecretStr | None) -> str | None:
    return given.get_secret_value() if isinstance(given, SecretStr) else given


def _parts(url: object) -> StoreURL:
    known = ", ".join(f"{scheme}://" for scheme in (*_TLS_OF_SCHEME, f"redis{_BY_SENTINELS}"))
    if not isinstance(url, str):
        raise ConfigurationError(f"url must be text that starts with one of {known}, got {type(url).__name__}")
    parts = StoreURL(url, "the URL of Redis cannot be read: is its host or port misspelt?")
    if parts.scheme.removesuffix(_BY_SENTINELS) not in _TLS_OF_SCHEME or parts.scheme == f"unix{_BY_SENTINELS}":
        raise ConfigurationError(f"a URL of Redis starts with one of {known}, got {parts.scheme!r:.20}")
    return parts


_SENTINEL_URL = 'the URL of sentinels is "redis+sentinel://one:26379,two:26379,three:26379/name-of-the-primary"'


def _sentinels(parts: StoreURL) -> tuple[tuple[tuple[str, int], ...], str, str]:
    """Read the sentinels in a URL, the name of their service, and the rest of the path."""
    if not parts.scheme.endswith(_BY_SENTINELS):
        return (), "", "" if parts.scheme == "unix" else parts.path
    service, _, rest = parts.path.removeprefix("/").partition("/")
    # Not shown: after a slash in a password, the path begins with the rest of the password.
    if not _SERVICE.fullmatch(service):
        raise ConfigurationError(f"{_SENTINEL_URL}; the name has letters, digits, dots, hyphens and underscores")
    addresses: list[tuple[str, int]] = []
    for address in parts.hosts.split(","):
        sentinel = StoreURL(f"redis://{address}", _SENTINEL_URL)
        if not sentinel.host:
            raise ConfigurationError(_SENTINEL_URL)
        addresses.append((sentinel.host, sentinel.port or _SENTINEL_PORT))
    return tuple(addresses), service, rest


def _database(path: str) -> int:
    text = path.strip("/")
    if text and not text.isdecimal():
        # Not shown: after a slash in a password, the path begins with the rest of the password.
        raise ConfigurationError("after the port, the URL of Redis has the number of a database, and no other path")
    return int(text or 0)


_READERS: dict[str, Callable[[str], Any]] = {"str": str, "int": int, "float": float, "bool": flag}
_NOT_IN_URL = ("host", "port", "path", "tls", "username", "password", "sentinels", "service", "client")
"""Fields that are other parts of a URL, or that cannot be written in one."""
_URL_OPTIONS = {
    option.name: _READERS[str(option.type).partition(" ")[0]]
    for option in fields(RedisConfig)
    if option.name not in _NOT_IN_URL
}
_UNKNOWN = "unknown option '{name}' in the URL of Redis; known: {known}"


def _checked(config: RedisConfig) -> RedisConfig:
    for name in ("timeout", "connect_timeout"):
        checked_seconds(getattr(config, name), name)
    if config.ttl_seconds is not None:
        checked_seconds(config.ttl_seconds, "ttl_seconds")
    for name, least, most in (("db", 0, 1 << 20), ("max_connections", 1, 1 << 20), ("retries", 0, 100)):
        _check_number(getattr(config, name), name, least, most)
    _check_number(config.buckets, "buckets", 1, MAX_BUCKETS)
    _check_prefix(config.prefix)
    if config.cluster and config.db:
        raise ConfigurationError(f"a Redis Cluster has only database 0, got db={config.db}")
    if config.cluster and config.sentinels:
        raise ConfigurationError("a Redis Cluster has no sentinels: leave out cluster=True, or name one of its nodes")
    if not config.sentinels and (config.sentinel_username or config.sentinel_password):
        raise ConfigurationError(f"sentinel_username and sentinel_password are for sentinels: {_SENTINEL_URL}")
    config = _with_wait_checked(config)
    if config.search and (config.cluster or config.db):
        raise ConfigurationError("the Search module works in database 0 of a single server: leave out search=True")
    if config.search is None and (config.cluster or config.db):
        return replace(config, search=False)
    return config


def _with_wait_checked(config: RedisConfig) -> RedisConfig:
    """Set the time that replicas have to half of a request's, unless it was given."""
    _check_number(config.wait_replicas, "wait_replicas", 0, 1_000)
    if not isinstance(config.wait_aof, bool):
        raise ConfigurationError(f"wait_aof is true or false, got {config.wait_aof!r:.40}")
    if config.wait_timeout is None:
        return replace(config, wait_timeout=config.timeout / 2)
    checked_seconds(config.wait_timeout, "wait_timeout")
    if config.wait_timeout >= config.timeout:
        raise ConfigurationError(
            f"wait_timeout is a part of timeout: {config.wait_timeout:g} s are not less than {config.timeout:g} s"
        )
    return config


def _check_number(value: object, name: str, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigurationError(f"{name} must be a whole number from {least} to {most}, got {value!r:.40}")


def _check_prefix(prefix: object) -> None:
    refuse_address(prefix, "prefix")
    if not isinstance(prefix, str) or not prefix:
        raise ConfigurationError(f"prefix must be some text that all keys start with, got {prefix!r:.40}")
    if "{" in prefix or "}" in prefix:
        raise ConfigurationError(f"prefix may hold no braces, which mean something to a cluster: {prefix!r:.80}")
