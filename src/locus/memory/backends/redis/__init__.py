"""Redis and Valkey: threads in a server that many processes share, with an optional time to live."""

from locus.memory.backends.redis.backend import RedisBackend, from_redis, from_rediss, from_valkey, from_valkeys

__all__ = ["RedisBackend", "from_redis", "from_rediss", "from_valkey", "from_valkeys"]
