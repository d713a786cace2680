"""Stores for tests: a fresh prefix of a bucket of a real S3 server."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import pytest

from locus.memory.backends import s3_checkpointer
from locus.memory.backends.objects.client import ObjectStore
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.objects.schema import thread_folder, thread_name
from locus.memory.backends.s3.backend import S3Backend
from locus.memory.checkpointer import Checkpointer
from locus.testing.stores import DurableTestStore, Stall, StallTestStore
from tests.backends.stalls import stalling_on_the_way
from tests.servers.proxy import Proxy
from tests.servers.seaweedfs import SeaweedServer


def set_credentials(server: SeaweedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where other processes find them, too."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_key)
    monkeypatch.setenv("AWS_REGION", server.region)
    # Without certificates, which every handle would read anew for a server that has none.
    for name in ("AWS_PROFILE", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


def objects_of(handle: Checkpointer | S3Backend) -> ObjectStore:
    engine = handle.store.engine
    assert isinstance(engine, ObjectEngine)
    return engine.store


class S3Store(DurableTestStore, StallTestStore):
    """A prefix that no other test uses; the server is reached through a proxy, which can fail."""

    def __init__(self, server: SeaweedServer, proxy: Proxy) -> None:
        self.bucket = server.bucket
        self.prefix = f"test-{secrets.token_hex(8)}"
        self.endpoint = f"http://127.0.0.1:{proxy.port}"
        self._proxy = proxy

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}?{urlencode({'endpoint_url': self.endpoint})}"

    def open(self, *, ttl_seconds: float | None = None, **options: Any) -> Checkpointer:
        # An outage would be waited for as long as it takes a server to come back.
        given = {
            "max_retries": 1,
            "timeout": 20.0,
            "ttl_seconds": ttl_seconds,
            "endpoint_url": self.endpoint,
            **options,
        }
        return s3_checkpointer(self.bucket, self.prefix, **given)

    def open_after_kill(self) -> Checkpointer:
        self._proxy.wait_for_the_dead()
        return self.open()

    async def corrupt(self, thread_id: str) -> None:
        """Cut off the end of every text."""
        async with self.open() as handle:
            objects = objects_of(handle)
            found = await objects.list(thread_folder(thread_name(thread_id)))
            assert found
            for listed in found:
                body = await objects.get(listed.key)
                assert body is not None
                record, *texts = body.split(b"\n")
                spoilt = b"\n".join([record, *(text[:-2] for text in texts)])
                await objects.put(listed.key, spoilt, if_absent=False)

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        self._proxy.refuse()
        self._proxy.cut()
        try:
            yield
        finally:
            self._proxy.accept()

    @asynccontextmanager
    async def stalling(self, seconds: float) -> AsyncIterator[Stall]:
        def open_through(port: int) -> Checkpointer:
            return self.open(endpoint_url=f"http://127.0.0.1:{port}", timeout=seconds, max_retries=0)

        host, port = self._proxy.target
        async with stalling_on_the_way(port, open_through, host) as stall:
            yield stall

    def remove(self) -> None:
        asyncio.run(self._remove())

    async def _remove(self) -> None:
        async with self.open() as handle:
            objects = objects_of(handle)
            await objects.delete([listed.key for listed in await objects.list("")])
