"""The public class for Redis and Valkey, and the factories of its URL schemes.

`schema` shows the keys, and `commit` describes a save.
"""

from __future__ import annotations

import email.parser  # noqa: F401 - the driver needs it for its first connection, when the process may be forking
from functools import partial
from typing import Any

from locus.errors import ConfigurationError
from locus.extras import require
from locus.hints import check_options
from locus.memory.backends.redis.config import RedisConfig
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.arguments import taking
from locus.memory.storage import StorageBackend
from locus.memory.store import CheckpointStore


class RedisBackend(StorageBackend):
    """Threads in Redis or Valkey, as plain dicts; `redis_checkpointer(url)` keeps `AgentState` there.

    `url` is `redis://`, `rediss://` (TLS), `valkey://`, `valkeys://` or `unix://`; or it names sentinels:
    `redis+sentinel://one:26379,two:26379,three:26379/mymaster`. It may carry the options below as `?name=value`, which
    then take precedence.

    All keys start with `prefix`. With `ttl_seconds` a thread expires that long after its last save. `cluster=True` is
    for a Redis Cluster. `search` is full-text search: True, False, or None to ask the server whether it has the module.
    `timeout` is how long to wait for an answer, `retries` how often to ask again after a connection was lost.

    With `wait_replicas`, a save is acknowledged when so many replicas have it, and is an error if they do not within
    `wait_timeout` seconds (half of `timeout`); with `wait_aof`, when they and the primary have it on their disks.
    `sentinel_username` and `sentinel_password` are for the sentinels.

    If you pass a `client` (`redis.asyncio.Redis` or `RedisCluster`), the backend uses it and leaves it open.
    """

    @taking(RedisConfig.from_url)
    def __init__(self, config: RedisConfig) -> None:
        require("redis.asyncio", "redis")
        from locus.memory.backends.redis.engine import open_engine

        self.config = config
        engine = open_engine(config)
        super().__init__(CheckpointStore(engine, ttl_seconds=config.ttl_seconds, cache_mb=config.cache_mb))

    @property
    def url(self) -> str:
        """The URL of the server, without credentials."""
        return self.config.shown

    @property
    def prefix(self) -> str:
        return self.config.prefix

    @property
    def ttl_seconds(self) -> float | None:
        return self.config.ttl_seconds

    @property
    def db(self) -> int:
        return self.config.db

    @property
    def location(self) -> RedisConfig:
        """An alias of `config`."""
        return self.config

    def __repr__(self) -> str:
        return f"RedisBackend({self.config.shown!r}, prefix={self.config.prefix!r})"


def _from_url(scheme: str, location: str = "", **options: Any) -> Checkpointer:
    from locus.memory.backends.adapters import redis_checkpointer

    if location and not location.startswith("//"):
        raise ConfigurationError(f'write the address of the server as a URL: "{scheme}://localhost:6379"')
    check_options(options, RedisBackend, "RedisBackend", but=("url",))
    return redis_checkpointer(f"{scheme}:{location or '//localhost:6379'}", **options)


from_redis = partial(_from_url, "redis")
"""`"redis"`, `"redis://host:6379/0?ttl_seconds=3600"`."""
from_rediss = partial(_from_url, "rediss")
"""`"rediss://host:6379/0"`: Redis over TLS."""
from_valkey = partial(_from_url, "valkey")
"""`"valkey"`, `"valkey://host:6379/0?ttl_seconds=3600"`."""
from_valkeys = partial(_from_url, "valkeys")
"""`"valkeys://host:6379/0"`: Valkey over TLS."""
from_redis_sentinel = partial(_from_url, "redis+sentinel")
"""`"redis+sentinel://one:26379,two:26379,three:26379/mymaster/0"`: the primary that sentinels name."""
from_rediss_sentinel = partial(_from_url, "rediss+sentinel")
"""`"rediss+sentinel://…"`: the primary that sentinels name, over TLS to the sentinels and to the servers."""
from_valkey_sentinel = partial(_from_url, "valkey+sentinel")
"""`"valkey+sentinel://…"`: the Valkey primary that sentinels name."""
from_valkeys_sentinel = partial(_from_url, "valkeys+sentinel")
"""`"valkeys+sentinel://…"`: the Valkey primary that sentinels name, over TLS to sentinels and servers."""
