"""S3 on this machine: SeaweedFS, over loopback. Requests are counted by `object_requests`, for they are the bill."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from benchmarks.subjects.base import Occupied, Subject
from benchmarks.subjects.floors import Floor
from locus.memory.backends.adapters import StorageBackendAdapter
from locus.memory.backends.objects.client import ObjectStore
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.s3.backend import S3Backend
from locus.memory.checkpointer import Checkpointer
from tests.servers.seaweedfs import SeaweedServer

T = TypeVar("T")


@cache
def shared_server() -> SeaweedServer:
    """One for all; it ends with this process."""
    server = SeaweedServer(Path(tempfile.mkdtemp(prefix="locus-bench-s3-")) / "server", durable=True)
    server.start()
    return server


def backend(server: SeaweedServer, prefix: str) -> S3Backend:
    return S3Backend(
        server.bucket,
        prefix,
        endpoint_url=server.url,
        region_name=server.region,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
    )


def objects_of(opened: S3Backend) -> ObjectStore:
    engine = opened.store.engine
    assert isinstance(engine, ObjectEngine)
    return engine.store


class S3Floor(Floor):
    """One conditional PUT for each text, with the same client."""

    def __init__(self, server: SeaweedServer, prefix: str) -> None:
        self._server = server
        self._prefix = prefix
        self._objects = objects_of(backend(server, prefix))
        self._numbers: dict[str, int] = {}

    async def append(self, thread_id: str, body: str) -> None:
        number = self._numbers[thread_id] = self._numbers.get(thread_id, 0) + 1
        await self._objects.put(f"{thread_id}/{number:06}", body.encode(), if_absent=True)

    def stored_bytes(self) -> int:
        return elsewhere(stored_bytes(self._server, self._prefix))

    async def close(self) -> None:
        await self._objects.close()


class S3Subject(Subject):
    """Occupied: the sizes of all objects under the prefix."""

    name = "s3"
    cold_load_limit = 3.0
    longest_thread = 1_000
    save_limit = 2.0
    stored_limit = 2.5

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server = shared_server()
        self._prefix = uuid4().hex

    def open(self) -> Checkpointer:
        return StorageBackendAdapter(backend(self._server, f"{self._prefix}/ours"))

    def floor(self) -> Floor:
        return S3Floor(self._server, f"{self._prefix}/floor")

    def occupied(self) -> Occupied:
        return Occupied(elsewhere(stored_bytes(self._server, f"{self._prefix}/ours")))

    async def remove(self) -> None:
        async with backend(self._server, self._prefix) as opened:
            objects = objects_of(opened)
            await objects.delete([listed.key for listed in await objects.list("")])


async def stored_bytes(server: SeaweedServer, prefix: str) -> int:
    async with backend(server, prefix) as opened:
        return sum(listed.size for listed in await objects_of(opened).list(""))


def elsewhere(work: Coroutine[Any, Any, T]) -> T:
    """Do async work for a caller that is not async, but may be called by a running loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
