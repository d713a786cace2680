"""Engines for locations: the only place that makes clients of the driver."""

from __future__ import annotations

from typing import Any

from redis.asyncio import ConnectionPool, Redis, RedisCluster
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff, NoBackoff

from locus.errors import ConfigurationError
from locus.memory.backends.redis.client import RedisClients
from locus.memory.backends.redis.config import RedisLocation
from locus.memory.backends.redis.engine import RedisEngine


def opened(location: RedisLocation, client: Any = None) -> RedisEngine:
    """The engine for a location, or for the database that a client is connected to."""
    if client is not None:
        _check_client(client)
    search = location.search
    if isinstance(client, RedisCluster):
        search = False
    return RedisEngine(
        RedisClients(
            lambda: _client(location),
            shared=client,
            retries=location.retries,
            timeout=location.timeout,
            at_once=location.max_connections,
        ),
        identity=_identity(location, client),
        prefix=location.prefix,
        buckets=location.buckets,
        ttl_seconds=location.ttl_seconds,
        search=search,
    )


def _check_client(client: Any) -> None:
    if not isinstance(client, Redis | RedisCluster):
        raise ConfigurationError(
            f"client must be a redis.asyncio.Redis or redis.asyncio.RedisCluster, got {type(client).__name__}"
        )
    if client.get_encoder().decode_responses:
        raise ConfigurationError("the client decodes answers, and ours are bytes: give it decode_responses=False")


def _identity(location: RedisLocation, client: Any) -> str:
    if client is None:
        where = location.shown.partition("://")[2]
    else:
        settings = client.get_connection_kwargs()
        where = f"{settings.get('host') or settings.get('path') or id(client)}:{settings.get('port', '')}"
        where += f"/{settings.get('db', 0)}"
    return f"redis:{where}:{location.prefix}"


def _client(location: RedisLocation) -> Redis | RedisCluster:
    settings: dict[str, Any] = {
        "username": location.username,
        "password": location.password,
        # There is one clock for each request, in `RedisClients`.
        "socket_timeout": None,
        "socket_connect_timeout": location.connect_timeout,
        # The answers of scripts are the same in both protocols, and those of the Search module are not.
        "protocol": 2,
    }
    if location.tls:
        names = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname")
        settings |= {name: getattr(location, name) for name in names}
    if location.cluster:
        return _cluster(location, settings)
    kind: type[Any] = SSLConnection if location.tls else Connection
    settings |= {"host": location.host, "port": location.port, "socket_keepalive": True} if not location.path else {}
    if location.path:
        kind, settings["path"] = UnixDomainSocketConnection, location.path
    pool = ConnectionPool(
        connection_class=kind,
        db=location.db,
        # A command is sent again by us, who know whether that is safe.
        retry=Retry(NoBackoff(), 0),
        **settings,
    )
    return Redis.from_pool(pool)


def _cluster(location: RedisLocation, settings: dict[str, Any]) -> RedisCluster:
    return RedisCluster(
        host=location.host,
        port=location.port,
        ssl=location.tls,
        max_connections=location.max_connections + 1,
        # The client looks for the node that has a slot now, and for that it has to try again.
        retry=Retry(ExponentialBackoff(base=0.02, cap=0.5), 3),
        **settings,
    )
