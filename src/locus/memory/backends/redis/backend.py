"""Redis and Valkey: threads in a server that many processes share, with a time to live if wanted.

The keys are shown in `redis_records`, and what a save is in `redis_engine`.
"""

from __future__ import annotations

import email.parser  # noqa: F401 - the driver needs it for its first connection, when the process may be forking
from typing import Any

from pydantic import SecretStr

from locus.errors import ConfigurationError
from locus.extras import require
from locus.memory.backends.redis.config import located
from locus.memory.checkpointer import Checkpointer
from locus.memory.storage import StorageBackend
from locus.memory.store import CheckpointStore


class RedisBackend(StorageBackend):
    """Threads in Redis or Valkey, as plain dicts; `redis_checkpointer(url)` keeps `AgentState` there.

    `url` is `redis://`, `rediss://` (TLS), `valkey://`, `valkeys://` or `unix://`, and may carry the options below as
    `?name=value`, which then count. All keys start with `prefix`. With `ttl_seconds` a thread ends that long after its
    last save. `cluster=True` is for a Redis Cluster. `search` is full-text search: True, False, or None to see whether
    the server has the module. `timeout` is how long to wait for an answer, `retries` how often to ask again after a
    connection was lost. A `client` that is given (`redis.asyncio.Redis` or `RedisCluster`) is used, and not closed.
    """

    def __init__(
        self,
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
        client: Any = None,
    ) -> None:
        options = {name: value for name, value in locals().items() if name not in ("self", "client", "__class__")}
        require("redis.asyncio", "redis")
        from locus.memory.backends.redis.engine import opened

        location = located(**options)
        self.location = location
        engine = opened(location, client)
        super().__init__(CheckpointStore(engine, ttl_seconds=location.ttl_seconds))

    def __repr__(self) -> str:
        return f"RedisBackend({self.location.shown!r}, prefix={self.location.prefix!r})"


def _from(scheme: str) -> Any:
    def from_location(location: str = "", **options: Any) -> Checkpointer:
        """`"redis"`, `"redis://host:6379/0?ttl_seconds=3600"`."""
        from locus.memory.backends.adapters import redis_checkpointer

        if location and not location.startswith("//"):
            raise ConfigurationError(f'write the address of the server as a URL: "{scheme}://localhost:6379"')
        return redis_checkpointer(f"{scheme}:{location or '//localhost:6379'}", **options)

    return from_location


from_redis = _from("redis")
from_rediss = _from("rediss")
from_valkey = _from("valkey")
from_valkeys = _from("valkeys")
