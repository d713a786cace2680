"""Stores in Redis for the contract suite: one prefix of a server for each test, behind a proxy that can be shut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from uuid import uuid4

from redis import Redis
from redis.cluster import RedisCluster as ClusterClient

from locus.memory.backends import redis_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.testing.stores import DurableTestStore, Stall, StallTestStore
from tests.backends.stalls import stalling_on_the_way
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisCluster, RedisServer

PATIENCE = 5.0
"""Seconds that the tests wait for an answer."""


class RedisStore(DurableTestStore, StallTestStore):
    """A prefix of its own on a server, reached through a proxy."""

    def __init__(self, server: RedisServer, proxy: Proxy, search: bool = False) -> None:
        self.server = server
        self._proxy = proxy
        self._search = search
        self.prefix = f"test:{uuid4().hex[:12]}:"

    @property
    def url(self) -> str:
        return f"{self._through(self._proxy.port)}&timeout={PATIENCE}"

    def _through(self, port: int) -> str:
        return f"redis://127.0.0.1:{port}/0?prefix={self.prefix}&search={self._search}"

    def open(self, *, ttl_seconds: float | None = None) -> Checkpointer:
        return redis_checkpointer(self.url, ttl_seconds=ttl_seconds)

    def open_after_kill(self) -> Checkpointer:
        self._proxy.wait_for_the_dead()
        return self.open()

    @contextmanager
    def client(self) -> Iterator[Redis]:
        """Past the backend and past the proxy."""
        with Redis(port=self.server.port, socket_timeout=PATIENCE) as client:
            yield client

    def stored_keys(self) -> set[str]:
        """What is there under the prefix, except for the note of the format."""
        with self.client() as client:
            found = {key.decode() for key in client.scan_iter(f"{self.prefix}*", count=1_000)}
        return found - {f"{self.prefix}format"}

    async def corrupt(self, thread_id: str) -> None:
        with self.client() as client:
            (name,) = [key for key in map(str, self.stored_keys()) if key.endswith(f":r:{thread_id}")]
            runs = {field: text for field, text in client.hgetall(name).items() if b" " in field}
            assert runs
            client.hset(name, mapping={field: text[:-2] for field, text in runs.items()})

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        self._proxy.refuse()
        self._proxy.cut()
        yield
        self._proxy.accept()

    @asynccontextmanager
    async def stalling(self, seconds: float) -> AsyncIterator[Stall]:
        def open_through(port: int) -> Checkpointer:
            return redis_checkpointer(f"{self._through(port)}&timeout={seconds}", retries=0)

        async with stalling_on_the_way(self.server.port, open_through) as stall:
            yield stall

    def remove(self) -> None:
        with self.client() as client:
            for index in client.execute_command("FT._LIST") if self._search else ():  # type: ignore[no-untyped-call]
                if index.decode().startswith(self.prefix):
                    client.execute_command("FT.DROPINDEX", index)  # type: ignore[no-untyped-call]
            for key in client.scan_iter(f"{self.prefix}*", count=1_000):
                client.unlink(key)


class ClusterStore(DurableTestStore):
    """A prefix of its own on a cluster. Its nodes name each other, so no proxy can stand between."""

    def __init__(self, cluster: RedisCluster) -> None:
        self._cluster = cluster
        self.prefix = f"test:{uuid4().hex[:12]}:"

    @property
    def url(self) -> str:
        return f"{self._cluster.url}?cluster=true&prefix={self.prefix}&timeout={PATIENCE}&buckets=32"

    def open(self, *, ttl_seconds: float | None = None) -> Checkpointer:
        return redis_checkpointer(self.url, ttl_seconds=ttl_seconds)

    @contextmanager
    def client(self) -> Iterator[ClusterClient]:
        client = ClusterClient(host="127.0.0.1", port=self._cluster.port, socket_timeout=PATIENCE)
        yield client
        client.close()

    def stored_keys(self) -> set[str]:
        with self.client() as client:
            found = {key.decode() for key in client.scan_iter(f"{self.prefix}*", count=1_000)}
        return found - {f"{self.prefix}format"}

    async def corrupt(self, thread_id: str) -> None:
        with self.client() as client:
            (name,) = [key for key in self.stored_keys() if key.endswith(f":r:{thread_id}")]
            runs = {field: text for field, text in client.hgetall(name).items() if b" " in field}
            assert runs
            client.hset(name, mapping={field: text[:-2] for field, text in runs.items()})

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        self._cluster.kill()
        yield
        await asyncio.to_thread(self._cluster.start)

    def remove(self) -> None:
        with self.client() as client:
            for key in list(client.scan_iter(f"{self.prefix}*", count=1_000)):
                client.unlink(key)
