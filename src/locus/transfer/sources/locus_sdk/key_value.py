"""Reads the layout that the key-value stores of locus-sdk 3 share.

    <thread>:<checkpoint>    the state, with _checkpoint_id, _checkpoint_timestamp and _metadata
    <thread>:latest          a copy of the newest checkpoint
    <thread>:_checkpoints    a list of checkpoints, which may be incomplete

A key is one key in Redis, one row in PostgreSQL, MySQL and Oracle Database, and one document in OpenSearch. If its
value lacks the three fields, a program has saved it with a bare backend. It becomes a thread with one checkpoint of
plain data.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from locus.transfer.sources.locus_sdk.source import OldCheckpoint, OldStore, moment

_BOOKKEEPING = ("latest", "_checkpoints")
_FIELDS = ("_checkpoint_id", "_checkpoint_timestamp", "_metadata")


class OldKeyValueStore(OldStore):
    """A store with the keys and values of `StorageBackendAdapter` of locus-sdk 3."""

    _keys: list[str] | None = None

    @abstractmethod
    async def all_keys(self) -> Iterable[str]:
        """All keys of the store."""

    async def keys(self, prefix: str) -> list[str]:
        """The keys with a prefix. All keys are listed once, and sorted here: no store can list them by code point."""
        if self._keys is None:
            self._keys = sorted(await self.all_keys())
        at = bisect_left(self._keys, prefix)
        end = next((index for index in range(at, len(self._keys)) if not self._keys[index].startswith(prefix)), None)
        return self._keys[at:end]

    @abstractmethod
    async def value(self, key: str) -> tuple[dict[str, Any], datetime | None] | None:
        """The value of a key, and the time of its last write, if that is known."""

    async def ids(self) -> Iterable[str]:
        """The threads: those with a key `:latest` or `:_checkpoints`, and each key that belongs to none of them."""
        keys = await self.keys("")
        listed = {key.removesuffix(":latest") for key in keys if key.endswith(":latest")}
        listed |= {key.removesuffix(":_checkpoints") for key in keys if key.endswith(":_checkpoints")}
        alone = [key for key in keys if not any(thread in listed for thread in _possible_threads(key))]
        return {*listed, *alone}

    async def old_checkpoints(self, thread_id: str) -> AsyncGenerator[OldCheckpoint, None]:
        times = await self._times(thread_id)
        for _, key in sorted(times.values()):
            old = await self._checkpoint(thread_id, key)
            if old is not None:
                yield old
        plain = None if times else await self.plain(thread_id)
        if plain is not None:
            yield plain

    async def plain(self, key: str) -> OldCheckpoint | None:
        """The value that a program has saved under a key with a bare backend, as a checkpoint."""
        value = await self.value(key)
        return None if value is None else plain_checkpoint(*value)

    async def _times(self, thread_id: str) -> dict[str, tuple[datetime, str]]:
        """The time and key of each checkpoint of a thread. Those that the stored list lacks are read for their time."""
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
        stored = await self.value(f"{thread_id}:_checkpoints")
        entries = stored[0].get("checkpoints", []) if stored else []
        try:
            return {str(entry["checkpoint_id"]): moment(entry["timestamp"]) for entry in entries}
        except (KeyError, TypeError):
            return {}  # the list only saves reads: checkpoints are found by their keys, too

    async def _checkpoint(self, thread_id: str, key: str) -> OldCheckpoint | None:
        """The checkpoint under a key; None if it belongs to another thread, since `a:b` may be a thread id, too."""
        stored = await self.value(key)
        if stored is None or not isinstance(stored[0].get("_checkpoint_id"), str):
            return None
        data = stored[0]
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
    """The only checkpoint of a thread of plain data."""
    return OldCheckpoint(checkpoint_id, at or datetime.fromtimestamp(0, UTC), metadata or {}, data, is_state=False)
