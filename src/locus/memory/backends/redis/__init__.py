"""Redis and Valkey: threads in a server that many processes share, with an optional time to live."""

from locus.memory.backends.redis.backend import (
    RedisBackend,
    from_redis,
    from_redis_sentinel,
    from_rediss,
    from_rediss_sentinel,
    from_valkey,
    from_valkey_sentinel,
    from_valkeys,
    from_valkeys_sentinel,
)

__all__ = [
    "RedisBackend",
    "from_redis",
    "from_redis_sentinel",
    "from_rediss",
    "from_rediss_sentinel",
    "from_valkey",
    "from_valkey_sentinel",
    "from_valkeys",
    "from_valkeys_sentinel",
]
