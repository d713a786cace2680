"""The layout that the key-value stores of locus-sdk 3 share.

    <thread>:<checkpoint>    the state, with _checkpoint_id, _checkpoint_timestamp and _metadata
    <thread>:latest          a copy of the newest checkpoint
    <thread>:_checkpoints    a list of checkpoints, which may be incomplete

A key is one key in Redis, one row in PostgreSQL, MySQL and Oracle Database, and one document in OpenSearch. A key
without the three fields is what a program has given to a bare backend. It becomes a thread with one checkpoint of plain
data.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from locus.memory.model.ids import Pattern
from locus.transfer.sources.locus_sdk.source import OldCheckpoint, OldStore, moment

_BOOKKEEPING = ("latest", "_checkpoints")
_FIELDS = ("_checkpoint_id", "_checkpoint_timestamp", "_metadata")


class OldKeyValueStore(OldStore):
    """Keys and values as `StorageBackendAdapter` of locus-sdk 3 uses them."""

    _keys: list[str] | None = None

    @abstractmethod
    async def all_keys(self) -> Iterable[str]:
        """All keys of the store."""

    async def keys(self, prefix: str) -> list[str]:
        """All keys with a prefix. They are listed once, because none of the stores can list them by code point."""
        if self._keys is None:
            self._keys = sorted(await self.all_keys())
        at = bisect_left(self._keys, prefix)
        end = next((index for index in range(at, len(self._keys)) if not self._keys[index].startswith(prefix)), None)
        return self._keys[at:end]

    @abstractmethod
    async def value(self, key: str) -> tuple[dict[str, Any], datetime | None] | None:
        """The value of a key, and when it was written, if that is known."""

    async def threads(self, pattern: Pattern) -> list[str]:
        """A thread has a key `:latest`. Any other key is a thread of its own, unless it belongs to such a thread."""
        keys = await self.keys("")
        found = {key.removesuffix(":latest") for key in keys if key.endswith(":latest")}
        found |= {key.removesuffix(":_checkpoints") for key in keys if key.endswith(":_checkpoints")}
        alone = [key for key in keys if not any(thread in found for thread in _possible_threads(key))]
        return sorted(filter(pattern.matches, {*found, *alone}))

    async def checkpoints(self, thread_id: str) -> AsyncGenerator[OldCheckpoint, None]:
        found = await self._times(thread_id)
        for _, key in sorted(found.values()):
            old = await self._checkpoint(thread_id, key)
            if old is not None:
                yield old
        plain = None if found else await self.plain(thread_id)
        if plain is not None:
            yield plain

    async def plain(self, key: str) -> OldCheckpoint | None:
        """What a program has saved under this key with a bare backend."""
        found = await self.value(key)
        return None if found is None else plain_checkpoint(*found)

    async def _times(self, thread_id: str) -> dict[str, tuple[datetime, str]]:
        """The time and key of every checkpoint. Those that the stored list lacks are read to find their time."""
        listed = await self._listed(thread_id)
        times: dict[str, tuple[datetime, str]] = {}
        for key in await self.keys(f"{thread_id}:"):
            name = key.removeprefix(f"{thread_id}:")
            if name in listed:
                times[name] = (listed[name], key)
            elif name not in _BOOKKEEPING and (old := await self._checkpoint(thread_id, key)) is not None:
                times[name] = (old.created_at, key)
        latest = await self._checkpoint(thread_id, f"{thread_id}:latest")
        if latest is not None and latest.checkpoint_id not in times:
            times[latest.checkpoint_id] = (latest.created_at, f"{thread_id}:latest")
        return times

    async def _listed(self, thread_id: str) -> dict[str, datetime]:
        found = await self.value(f"{thread_id}:_checkpoints")
        entries = found[0].get("checkpoints", []) if found else []
        try:
            return {str(entry["checkpoint_id"]): moment(entry["timestamp"]) for entry in entries}
        except (KeyError, TypeError):
            return {}  # the list only saves reads: what is not in it is found by its key

    async def _checkpoint(self, thread_id: str, key: str) -> OldCheckpoint | None:
        """The checkpoint with a key, if it belongs to this thread: `a:b` may also be the id of another thread."""
        found = await self.value(key)
        if found is None or not isinstance(found[0].get("_checkpoint_id"), str):
            return None
        data = found[0]
        name = data["_checkpoint_id"]
        if key not in (f"{thread_id}:{name}", f"{thread_id}:latest"):
            return None
        state = {field: value for field, value in data.items() if field not in _FIELDS}
        return OldCheckpoint(name, moment(data.get("_checkpoint_timestamp")), data.get("_metadata") or {}, state)


def _possible_threads(key: str) -> Iterator[str]:
    """The thread ids that a key may belong to: `a` and `a:b` for `a:b:c`."""
    at = key.find(":")
    while at >= 0:
        yield key[:at]
        at = key.find(":", at + 1)


def plain_checkpoint(
    data: dict[str, Any], at: datetime | None, metadata: Mapping[str, Any] | None = None, checkpoint_id: str = "import"
) -> OldCheckpoint:
    """The one checkpoint of a thread of plain data."""
    return OldCheckpoint(checkpoint_id, at or datetime.fromtimestamp(0, UTC), metadata or {}, data, is_state=False)
