"""How threads of locus-sdk 3 lie in its stores, and how they are read there.

    folder      <thread>/<checkpoint>.json          checkpoint_id, thread_id, created_at, state, metadata
    key-value   <thread>:<checkpoint>               the state, with _checkpoint_id, _checkpoint_timestamp, _metadata
                <thread>:latest, :_checkpoints      a copy of the newest, and a list, which may lack some
    bucket      <thread>/<checkpoint>.json          see `locus_sdk_objects`
    table of    tenant, thread_id, checkpoint_id, seq, data, metadata, created_at
    PgCheckpointer
    tables of   see `locus_sdk_oracle`
    OracleCheckpointSaver

Key-value stores are Redis (a key each), PostgreSQL, MySQL and Oracle Database (a row each), and OpenSearch (a document
each). A key without those fields is what a program gave a bare backend: it becomes a thread with one checkpoint, of
plain data. Buckets are those of S3 and of OCI Object Storage.
"""

from __future__ import annotations

import asyncio
import re
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from locus.errors import ConfigurationError, CorruptCheckpointError
from locus.memory.model.codec import decode
from locus.memory.model.ids import Pattern
from locus.transfer.sources.locus_sdk.source import OldCheckpoint, OldStore

_TEXT = rb'("(?:[^"\\]|\\.)*")'
_HEAD = re.compile(
    rb'\{\s*"checkpoint_id":\s*' + _TEXT + rb',\s*"thread_id":\s*' + _TEXT + rb',\s*"created_at":\s*' + _TEXT
)
_BOOKKEEPING = ("latest", "_checkpoints")
_FIELDS = ("_checkpoint_id", "_checkpoint_timestamp", "_metadata")


class OldFolder(OldStore):
    """What `FileCheckpointer` of locus-sdk 3 has written.

    Threads of different ids may share a folder there (`tenant/a` and `tenant_a`); each file knows whose it is.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path).expanduser().absolute()

    @property
    def name(self) -> str:
        return f"file:{self._path}"

    async def threads(self, pattern: Pattern) -> list[str]:
        if not self._path.is_dir():
            raise ConfigurationError(f"there is no folder {str(self._path)!r} to read from")
        return await asyncio.to_thread(lambda: sorted(filter(pattern.matches, self._ids())))

    def _ids(self) -> set[str]:
        """A file that is damaged belongs to some thread of its folder, and that will have to be told."""
        found: set[str] = set()
        for folder in self._path.iterdir():
            heads = [_head(path) for path in folder.glob("*.json")] if folder.is_dir() else []
            found |= {head[1] for head in heads if head} or ({folder.name} if heads else set())
        return found

    async def checkpoints(self, thread_id: str) -> AsyncGenerator[OldCheckpoint, None]:
        for path in await asyncio.to_thread(self._in_order, thread_id):
            data = await asyncio.to_thread(_read, path)
            yield OldCheckpoint(
                str(data["checkpoint_id"]), moment(data["created_at"]), data.get("metadata") or {}, data["state"]
            )

    def _in_order(self, thread_id: str) -> list[Path]:
        folder = "".join(char if char.isalnum() or char in "-_" else "_" for char in thread_id)
        found = [(_head(path) or _whole_head(path), path) for path in (self._path / folder).glob("*.json")]
        mine = [(moment(head[2]), head[0], path) for head, path in found if head[1] == thread_id]
        return [path for _, _, path in sorted(mine)]


def _head(path: Path) -> tuple[str, str, str] | None:
    """The checkpoint's id, its thread and its time, which stand first, without reading the state behind them."""
    with path.open("rb") as file:
        found = _HEAD.match(file.read(4096))
    if found is not None:
        with suppress(CorruptCheckpointError):
            return str(decode(found[1])), str(decode(found[2])), str(decode(found[3]))
    return None


def _whole_head(path: Path) -> tuple[str, str, str]:
    data = _read(path)
    return str(data["checkpoint_id"]), str(data["thread_id"]), str(data["created_at"])


def _read(path: Path) -> dict[str, Any]:
    try:
        data = decode(path.read_bytes())
    except (CorruptCheckpointError, OSError) as error:
        raise CorruptCheckpointError(f"{str(path)!r} cannot be read: {error}") from error
    if not isinstance(data, dict) or not {"checkpoint_id", "thread_id", "created_at", "state"} <= data.keys():
        raise CorruptCheckpointError(f"{str(path)!r} is no checkpoint of locus-sdk 3")
    return data


class OldKeys(OldStore):
    """Keys and values, as `StorageBackendAdapter` of locus-sdk 3 uses them."""

    _keys: list[str] | None = None

    @abstractmethod
    async def all_keys(self) -> Iterable[str]:
        """All keys that there are."""

    async def keys(self, prefix: str) -> list[str]:
        """All keys that begin so. They are listed once: none of these stores has them in an order of code points."""
        if self._keys is None:
            self._keys = sorted(await self.all_keys())
        at = bisect_left(self._keys, prefix)
        end = next((index for index in range(at, len(self._keys)) if not self._keys[index].startswith(prefix)), None)
        return self._keys[at:end]

    @abstractmethod
    async def value(self, key: str) -> tuple[dict[str, Any], datetime | None] | None:
        """What stands under a key, and when it was written, if that is known."""

    async def threads(self, pattern: Pattern) -> list[str]:
        """A thread has a key `:latest`; any other key is a thread of its own, unless it belongs to one of those."""
        keys = await self.keys("")
        found = {key.removesuffix(":latest") for key in keys if key.endswith(":latest")}
        found |= {key.removesuffix(":_checkpoints") for key in keys if key.endswith(":_checkpoints")}
        alone = [key for key in keys if not any(head in found for head in _heads(key))]
        return sorted(filter(pattern.matches, {*found, *alone}))

    async def checkpoints(self, thread_id: str) -> AsyncGenerator[OldCheckpoint, None]:
        found = await self._times(thread_id)
        for _, key in sorted(found.values()):
            old = await self._checkpoint(thread_id, key)
            if old is not None:
                yield old
        bare = None if found else await self.bare(thread_id)
        if bare is not None:
            yield bare

    async def bare(self, key: str) -> OldCheckpoint | None:
        """What a program gave a bare backend under this key."""
        found = await self.value(key)
        return None if found is None else plain(*found)

    async def _times(self, thread_id: str) -> dict[str, tuple[datetime, str]]:
        """Every checkpoint with its time and key. The list there may lack some, and then they tell it themselves."""
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
            return {}  # the list only spares reading: what it does not name is found by its key

    async def _checkpoint(self, thread_id: str, key: str) -> OldCheckpoint | None:
        """The checkpoint under a key, if it is one of this thread: `a:b` may also be the thread of another key."""
        found = await self.value(key)
        if found is None or not isinstance(found[0].get("_checkpoint_id"), str):
            return None
        data = found[0]
        name = data["_checkpoint_id"]
        if key not in (f"{thread_id}:{name}", f"{thread_id}:latest"):
            return None
        state = {field: value for field, value in data.items() if field not in _FIELDS}
        return OldCheckpoint(name, moment(data.get("_checkpoint_timestamp")), data.get("_metadata") or {}, state)


def _heads(key: str) -> Iterator[str]:
    """What a key may be a part of: `a` and `a:b`, for `a:b:c`."""
    at = key.find(":")
    while at >= 0:
        yield key[:at]
        at = key.find(":", at + 1)


def plain(
    data: dict[str, Any], at: datetime | None, metadata: Mapping[str, Any] | None = None, checkpoint_id: str = "import"
) -> OldCheckpoint:
    """The only checkpoint of plain data."""
    return OldCheckpoint(checkpoint_id, at or datetime.fromtimestamp(0, UTC), metadata or {}, data, is_state=False)


def as_dict(value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CorruptCheckpointError(f"what stands under {key!r:.80} is no checkpoint of locus-sdk 3")
    return value


def moment(value: Any) -> datetime:
    if isinstance(value, datetime):
        found = value
    else:
        try:
            found = datetime.fromisoformat(value)
        except (TypeError, ValueError) as error:
            raise CorruptCheckpointError(f"{value!r:.40} is no time") from error
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
