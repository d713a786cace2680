"""The port to object stores: five requests, the same for S3, OCI and a dict.

Keys are relative to the store's prefix, which the store adds and takes away. They are made of `[0-9A-Za-z._/-]` only
and have at most `MAX_KEY` characters. A prefix may have the rest of the 1,024 bytes that both clouds allow.

The store may send any request again when an answer was lost. So `put` may say "exists already" of an object that this
very call has written: the engine compares the existing object with the one it sent.
"""

from __future__ import annotations

import asyncio
import builtins
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from copy import copy
from datetime import datetime
from functools import partial
from typing import ClassVar, NamedTuple, Self, TypeVar

from locus.errors import CheckpointError, ConfigurationError
from locus.memory.runtime.url import refuse_address

T = TypeVar("T")

MAX_KEY = 512
"""The largest number of characters in a key, without the store's prefix."""

MAX_OBJECT_NAME = 1_024
"""The largest number of bytes in the name of an object, on either cloud."""

PAGE = 1_000
"""The largest number of keys that one request lists or deletes, on either cloud."""


def checked_prefix(prefix: str, example: str) -> str:
    """Check a prefix, and end it with a slash so that `a` is not the beginning of `ab`; it may be empty."""
    if not isinstance(prefix, str):
        raise ConfigurationError(f"prefix is text, got {type(prefix).__name__}")
    refuse_address(prefix, "prefix")
    prefix = prefix.strip("/")
    if not prefix:
        return ""
    # HTTP clients resolve dots in a path, and would write elsewhere.
    if any(part in ("", ".", "..") for part in prefix.split("/")) or not prefix.isprintable():
        raise ConfigurationError(f"prefix is a path like {example!r}, got {prefix!r:.80}")
    most = MAX_OBJECT_NAME - MAX_KEY
    if len(prefix.encode()) >= most:
        raise ConfigurationError(f"prefix may have {most - 1} bytes, got {len(prefix.encode())}")
    return f"{prefix}/"


async def together(works: Iterable[Callable[[], Awaitable[T]]], limit: int = 64) -> builtins.list[T]:
    """Do several things at once; if one fails, end the others and raise its own error, not a group of them."""
    free = asyncio.Semaphore(limit)

    async def one(work: Callable[[], Awaitable[T]]) -> T:
        async with free:
            return await work()

    tasks = [asyncio.ensure_future(one(work)) for work in works]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


class ByteSpan(NamedTuple):
    """Bytes of an object: from `start` on, up to but without `end`."""

    start: int
    end: int

    @property
    def header(self) -> str:
        """The value of the header `Range` for these bytes."""
        return f"bytes={self.start}-{self.end - 1}"

    def of(self, body: bytes) -> bytes:
        return body[self.start : self.end]


class ListedObject(NamedTuple):
    """An object in a listing."""

    key: str
    size: int
    modified: datetime
    """The time of its last change, by the clock of the store, with a time zone."""


class ObjectStore(ABC):
    """Objects under a prefix of a bucket. Used from several event loops at once, and after `os.fork`.

    A read or a list sees everything that was put or deleted before it began: all of S3, OCI, GCS and Azure
    promise that.
    """

    driver_errors: ClassVar[tuple[type[BaseException], ...]] = ()
    """The exceptions that `translate` understands."""

    at_once: int = 64
    """The number of requests of one operation that are under way at the same time."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        """What the name of every object begins with."""
        self.requests: Counter[str] = Counter()
        """The number of requests by kind: "put", "get", "list", "delete". They are the bill."""

    def below(self, folder: str) -> Self:
        """The objects below a folder of this store: the same bucket and the same connections."""
        store = copy(self)
        store._prefix = f"{self._prefix}{folder}/"
        return store

    @property
    @abstractmethod
    def identity(self) -> str:
        """A name of the bucket and the prefix, without secrets. Two handles on the same objects have the same one."""

    @abstractmethod
    def translate(self, error: BaseException) -> CheckpointError:
        """Make a `CheckpointError` of one of `driver_errors`; its text holds no secret."""

    @abstractmethod
    async def put(self, key: str, body: bytes, *, if_absent: bool) -> bool:
        """Write an object. With `if_absent`, return False instead if it exists.

        An error leaves open whether the object was written. A bucket that does not exist is an error.
        """

    @abstractmethod
    async def get(self, key: str, span: ByteSpan | None = None) -> bytes | None:
        """Read an object's body, or a part of it; None only if the store says that the object does not exist.

        A part behind the end is empty, and one that reaches over the end is shorter.
        """

    async def get_many(self, keys: Collection[str]) -> dict[str, bytes | None]:
        """Read several objects at once."""
        found = await self.get_parts([(key, None) for key in keys])
        return {key: body for (key, _), body in found.items()}

    async def get_parts(
        self, parts: Collection[tuple[str, ByteSpan | None]]
    ) -> dict[tuple[str, ByteSpan | None], bytes | None]:
        """Read several objects, or parts of some, at once."""
        bodies = await together([partial(self.get, key, span) for key, span in parts], self.at_once)
        return dict(zip(parts, bodies, strict=True))

    @abstractmethod
    async def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> builtins.list[ListedObject]:
        """List objects whose keys begin with `prefix` and sort after `start_after`, in the order of their keys' bytes.

        Pages are fetched until there are no more, or until `limit` objects are listed.
        """

    @abstractmethod
    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects. Those that do not exist are no error."""

    async def server_time(self) -> datetime | None:
        """The time by the clock of the store, to the second; None if it cannot be asked."""
        return None

    async def close(self) -> None:
        """Release what this store opened itself; never raises. Later use opens it anew."""
