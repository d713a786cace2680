"""Redis on this machine, over loopback: with an fsync for every write, and with none."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import redis
from redis.asyncio import Redis

from benchmarks.subjects.base import Occupied, Subject
from benchmarks.subjects.floors import Floor
from locus.memory.backends import redis_checkpointer
from locus.memory.checkpointer import Checkpointer
from tests.servers.redis import RedisServer


@cache
def shared_server(durable: bool) -> RedisServer:
    """One for all; it ends with this process."""
    server = RedisServer(Path(tempfile.mkdtemp(prefix="locus-bench-redis-")) / "server", durable=durable)
    server.start()
    return server


class RedisFloor(Floor):
    """RPUSH of the text and HSET of a number, in one pipeline, with the same driver."""

    def __init__(self, server: RedisServer, prefix: str) -> None:
        self._server = server
        self._prefix = prefix
        self._numbers: dict[str, int] = {}
        self._client = Redis(port=server.port, protocol=2)

    async def append(self, thread_id: str, body: str) -> None:
        number = self._numbers[thread_id] = self._numbers.get(thread_id, 0) + 1
        async with self._client.pipeline(transaction=False) as pipe:
            pipe.rpush(f"{self._prefix}{thread_id}", body)
            pipe.hset(f"{self._prefix}{thread_id}:latest", "number", str(number))
            await pipe.execute()

    async def read(self, thread_id: str) -> Sequence[Any]:
        return await self._client.lrange(f"{self._prefix}{thread_id}", 0, -1)

    def stored_bytes(self) -> int:
        return memory_of(self._server, self._prefix)

    async def close(self) -> None:
        await self._client.aclose()


class RedisSubject(Subject):
    """Occupied: what the server says of the memory of each key; its log on disk is not meant."""

    name = "redis always"
    save_limit = 1.6
    many_limit = 0.6
    load_limit = 1.5
    durable: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server = shared_server(self.durable)
        self._prefix = f"{uuid4().hex}:"

    def open(self) -> Checkpointer:
        return redis_checkpointer(self._server.url, f"{self._prefix}ours:")

    def floor(self) -> Floor:
        return RedisFloor(self._server, f"{self._prefix}floor:")

    def occupied(self) -> Occupied:
        return Occupied(memory_of(self._server, f"{self._prefix}ours:"))

    async def remove(self) -> None:
        with redis.Redis(port=self._server.port) as client:
            for key in keys_of(client, self._prefix):
                client.unlink(key)


class RedisUnsyncedSubject(RedisSubject):
    name = "redis unsynced"
    longest_thread = 1_000
    durable: ClassVar[bool] = False


def keys_of(client: Any, prefix: str) -> Iterable[bytes]:
    return list(client.scan_iter(f"{prefix}*", count=1_000))


def memory_of(server: RedisServer, prefix: str) -> int:
    with redis.Redis(port=server.port) as client:
        return sum(int(client.memory_usage(key, samples=0) or 0) for key in keys_of(client, prefix))


def server_version(server: RedisServer) -> str:
    with redis.Redis(port=server.port) as client:
        found: Any = client.info("server")
        return str(found["redis_version"])
