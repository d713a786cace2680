"""An object store in the memory of this process: for tests of what is built on object stores."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import ClassVar
from uuid import uuid4

from locus.errors import BackendUnavailableError, CheckpointError
from locus.memory.backends.objects.client import PAGE, ByteSpan, ListedObject, ObjectStore


class StoreFault(Exception):
    """What a test lets a request fail with."""


class MemoryObjectStore(ObjectStore):
    """Objects in a dict.

    `before` and `after` are awaited around every request with its kind and key: they may wait, so that
    requests interleave, and they may raise. After a `put` that is: the object is there, and the answer is lost.
    """

    driver_errors: ClassVar[tuple[type[BaseException], ...]] = (StoreFault,)

    def __init__(
        self,
        *,
        before: Callable[[str, str], Awaitable[None]] | None = None,
        after: Callable[[str, str], Awaitable[None]] | None = None,
        shared: MemoryObjectStore | None = None,
    ) -> None:
        super().__init__()
        self.objects: dict[str, tuple[bytes, datetime]] = {} if shared is None else shared.objects
        self.now: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._identity = f"object-memory:{uuid4().hex}" if shared is None else shared.identity
        self._lock: threading.Lock = threading.Lock() if shared is None else shared._lock
        self.received = 0
        """How many bytes of objects this handle was sent."""
        self._folders: dict[str, MemoryObjectStore] = {} if shared is None else shared._folders
        self._before = before or _nothing
        self._after = after or _nothing

    @property
    def identity(self) -> str:
        return self._identity

    def below(self, folder: str) -> MemoryObjectStore:
        return MemoryObjectStore(
            before=self._before, after=self._after, shared=self._folders.setdefault(folder, MemoryObjectStore())
        )

    def translate(self, error: BaseException) -> CheckpointError:
        return BackendUnavailableError(str(error))

    async def put(self, key: str, body: bytes, *, if_absent: bool) -> bool:
        await self._begin("put", key)
        with self._lock:
            absent = key not in self.objects
            if absent or not if_absent:
                self.objects[key] = (body, self.now())
                self.taken(key, body)
        await self._after("put", key)
        return absent or not if_absent

    def taken(self, key: str, body: bytes) -> None:
        """An object was put: for tests that watch."""

    async def get(self, key: str, span: ByteSpan | None = None) -> bytes | None:
        await self._begin("get", key)
        with self._lock:
            found = self.objects.get(key)
        await self._after("get", key)
        body = None if found is None else found[0] if span is None else span.of(found[0])
        self.received += len(body or b"")
        return body

    async def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> builtins.list[ListedObject]:
        found: list[ListedObject] = []
        while True:
            await self._begin("list", prefix)
            wanted = PAGE if limit is None else min(PAGE, limit - len(found))
            with self._lock:
                names = sorted(key for key in self.objects if key.startswith(prefix) and key > (start_after or ""))
                page = [ListedObject(key, len(self.objects[key][0]), self.objects[key][1]) for key in names[:wanted]]
            await self._after("list", prefix)
            found += page
            if len(names) <= wanted or len(found) == limit:
                return found
            start_after = page[-1].key

    async def delete(self, keys: Iterable[str]) -> None:
        left = list(keys)
        self.requests["delete"] += -(-len(left) // PAGE)
        for key in left:
            await self._before("delete", key)
            with self._lock:
                self.objects.pop(key, None)
            await self._after("delete", key)

    async def _begin(self, kind: str, key: str) -> None:
        self.requests[kind] += 1
        await self._before(kind, key)


async def _nothing(_kind: str, _key: str) -> None:
    """No fault."""
