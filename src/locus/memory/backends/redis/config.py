"""How to reach a Redis store: a URL and options, checked. No secret is ever shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from pydantic import SecretStr

from locus.errors import ConfigurationError
from locus.memory.model.arguments import CACHE_MB, checked_seconds
from locus.memory.runtime.url import StoreURL, flag

_PORT = 6379
_TLS_OF_SCHEME = {"redis": False, "valkey": False, "rediss": True, "valkeys": True, "unix": False}

_BUCKETS = 16
_CLUSTER_BUCKETS = 256
"""A cluster moves whole buckets between its nodes, so it needs more of them."""
MAX_BUCKETS = 16_384


@dataclass(frozen=True)
class RedisConfig:
    """How to reach a store in Redis. Its `repr` shows no password."""

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

    @classmethod
    def from_url(
        cls,
        url: str,
        prefix: str,
        ttl_seconds: float | None,
        db: int | None,
        username: str | None,
        password: str | SecretStr | None,
        buckets: int | None,
        **options: Any,
    ) -> RedisConfig:
        """The config for a URL and options. An option in the URL takes precedence."""
        parts = _parts(url)
        given = {"prefix": prefix, "ttl_seconds": ttl_seconds, "buckets": buckets, **options}
        given |= parts.options(_URL_OPTIONS, _UNKNOWN)
        number = given.pop("db", None)
        if number is None:
            number = _database(parts) if db is None else db
        secret = password.get_secret_value() if isinstance(password, SecretStr) else password
        if given["buckets"] is None:
            given["buckets"] = _CLUSTER_BUCKETS if given["cluster"] else _BUCKETS
        config = cls(
            host=parts.host or "localhost",
            port=parts.port or _PORT,
            path=unquote(parts.path) if parts.scheme == "unix" else "",
            tls=_TLS_OF_SCHEME[parts.scheme],
            db=number,
            username=username or parts.user or None,
            password=secret or parts.password or None,
            **given,
        )
        return _checked(config)

    @property
    def shown(self) -> str:
        """The URL without user and password."""
        if self.path:
            return f"unix://{self.path}?db={self.db}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'rediss' if self.tls else 'redis'}://{host}:{self.port}/{self.db}"


def _parts(url: object) -> StoreURL:
    known = ", ".join(f"{scheme}://" for scheme in _TLS_OF_SCHEME)
    if not isinstance(url, str):
        raise ConfigurationError(f"url must be text that starts with one of {known}, got {type(url).__name__}")
    parts = StoreURL(url, "the URL of Redis cannot be read: is its host or port misspelt?")
    if parts.scheme not in _TLS_OF_SCHEME:
        raise ConfigurationError(f"a URL of Redis starts with one of {known}, got {parts.scheme!r:.20}")
    return parts


def _database(parts: StoreURL) -> int:
    text = "" if parts.scheme == "unix" else parts.path.strip("/")
    if text and not text.isdecimal():
        # Not shown: after a slash in a password, the path begins with the rest of the password.
        raise ConfigurationError("after the port, the URL of Redis has the number of a database, and no other path")
    return int(text or 0)


_URL_OPTIONS: dict[str, Callable[[str], Any]] = {
    "prefix": str,
    "ttl_seconds": float,
    "db": int,
    "cluster": flag,
    "search": flag,
    "timeout": float,
    "connect_timeout": float,
    "max_connections": int,
    "retries": int,
    "ssl_ca_certs": str,
    "ssl_certfile": str,
    "ssl_keyfile": str,
    "ssl_check_hostname": flag,
    "buckets": int,
    "cache_mb": float,
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
    if config.search and (config.cluster or config.db):
        raise ConfigurationError("the Search module works in database 0 of a single server: leave out search=True")
    if config.search is None and (config.cluster or config.db):
        return replace(config, search=False)
    return config


def _check_number(value: object, name: str, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigurationError(f"{name} must be a whole number from {least} to {most}, got {value!r:.40}")


def _check_prefix(prefix: object) -> None:
    if not isinstance(prefix, str) or not prefix:
        raise ConfigurationError(f"prefix must be some text that all keys start with, got {prefix!r:.40}")
    if "{" in prefix or "}" in prefix:
        raise ConfigurationError(f"prefix may hold no braces, which mean something to a cluster: {prefix!r:.80}")
