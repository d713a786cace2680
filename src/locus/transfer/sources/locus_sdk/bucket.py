"""Reads the buckets of locus-sdk 3 in S3 and OCI Object Storage.

    <prefix><thread>/<checkpoint>.json         checkpoint_id, thread_id, created_at, state
    <prefix><thread>/<checkpoint>.meta.json    checkpoint_id, thread_id, created_at (OCI: updated_at), metadata
    <prefix><thread>/_latest                   the id of the newest checkpoint

Both ids may contain slashes, so a key alone does not always show where the thread id ends. The checkpoint id in the
object shows it. The thread id in the object may be wrong: a copy that version 3 has made in S3 still names the
original thread. Objects of Locus may have the same prefix, but their names differ from these.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, unquote, urlencode

from locus.errors import ConflictError, CorruptCheckpointError
from locus.memory.backends.objects.client import PAGE, ObjectStore
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.model.codec import decode
from locus.memory.registry import get_checkpointer
from locus.memory.runtime.url import StoreURL
from locus.transfer.sources.locus_sdk.source import OldCheckpoint, OldStore, moment

T = TypeVar("T")

PREFIX = "locus/checkpoints/"
_BODY, _META = ".json", ".meta.json"


class OldBucket(OldStore):
    """A bucket with two objects per checkpoint.

    `store` is the whole bucket, because version 3 uses the prefix exactly as given.
    """

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._bodies: dict[str, list[str]] = {}
        """The names of the objects with checkpoints, by thread."""
        self._metas: set[str] = set()

    @property
    def name(self) -> str:
        return f"{self._store.identity}{self._prefix}"

    async def _ask(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except self._store.driver_errors as error:
            raise self._store.translate(error) from error

    async def ids(self) -> Iterable[str]:
        listed = await self._ask(self._store.list(self._prefix))
        names = {listing.key.removeprefix(self._prefix) for listing in listed}
        # The object of the checkpoint "a.meta" has the same name as the metadata of "a".
        self._metas = {name for name in names if name.endswith(_META) and _meta_of(name) not in names}
        bodies = sorted(name for name in names - self._metas if name.endswith(_BODY) and "/" in name)
        self._bodies = {}
        for name, thread_id in zip(bodies, await self._owners(bodies), strict=True):
            self._bodies.setdefault(thread_id, []).append(name)
        return self._bodies

    async def _owners(self, bodies: Sequence[str]) -> list[str]:
        """The thread of each checkpoint. Unreadable objects count as well: the move of their thread reports them."""
        unclear = [name for name in bodies if name.count("/") > 1]
        about = await self._read_about(unclear, strict=False)
        return [_thread_of(name, str(about[name]["checkpoint_id"]) if name in about else "") for name in bodies]

    async def _read_about(self, bodies: Sequence[str], *, strict: bool) -> dict[str, dict[str, Any]]:
        """Read ids, times and metadata of checkpoints, from the small objects beside them where those exist."""
        facts: dict[str, dict[str, Any]] = {}
        for start in range(0, len(bodies), PAGE):
            part = bodies[start : start + PAGE]
            small = [name for name in part if _meta_of(name) in self._metas]
            texts = await self._texts([_meta_of(name) for name in small])
            for name in part:
                text = texts.get(_meta_of(name))
                with suppress(*() if strict else (CorruptCheckpointError,)):
                    if text is not None:
                        facts[name] = _parsed(_meta_of(name), text, "metadata")
                    elif (text := await self._text(name)) is not None:
                        facts[name] = {**_parsed(name, text, "state"), "state": None}
        return facts

    async def _texts(self, names: Collection[str]) -> dict[str, bytes | None]:
        texts = await self._ask(self._store.get_many([self._prefix + name for name in names]))
        return {key.removeprefix(self._prefix): text for key, text in texts.items()}

    async def _text(self, name: str) -> bytes | None:
        return await self._ask(self._store.get(self._prefix + name))

    async def old_checkpoints(self, thread_id: str) -> AsyncGenerator[OldCheckpoint, None]:
        about = await self._read_about(self._bodies.get(thread_id, []), strict=True)
        for _, _, name in sorted((_time_of(facts), str(facts["checkpoint_id"]), name) for name, facts in about.items()):
            text = await self._text(name)
            if text is None:
                raise ConflictError(f"thread {thread_id!r} was changed while it was read; try again")
            data = _parsed(name, text, "state")
            checkpoint_id = str(data["checkpoint_id"])
            if name != f"{thread_id}/{checkpoint_id}{_BODY}":
                raise CorruptCheckpointError(f"{name!r:.200} holds the checkpoint {checkpoint_id!r:.80} instead")
            metadata = about[name].get("metadata") or {}
            yield OldCheckpoint(checkpoint_id, moment(data.get("created_at")), metadata, data["state"])

    async def close(self) -> None:
        await self._store.close()


def _meta_of(name: str) -> str:
    """The name of the object with a checkpoint's metadata, from that of the object with the checkpoint."""
    return name.removesuffix(_BODY) + _META


def _thread_of(name: str, checkpoint_id: str) -> str:
    ending = f"/{checkpoint_id}{_BODY}"
    return name.removesuffix(ending) if checkpoint_id and name.endswith(ending) else name.rpartition("/")[0]


def _time_of(about: dict[str, Any]) -> datetime:
    return moment(about.get("created_at") or about.get("updated_at"))


def _parsed(name: str, text: bytes, field: str) -> dict[str, Any]:
    try:
        data = decode(text)
    except CorruptCheckpointError as error:
        raise CorruptCheckpointError(f"the object {name!r:.200} cannot be read: {error}") from error
    if not isinstance(data, dict) or "checkpoint_id" not in data or not isinstance(data.get(field), dict):
        raise CorruptCheckpointError(f"the object {name!r:.200} is no checkpoint of locus-sdk 3")
    return data


def open_bucket(url: str) -> OldBucket:
    """Open `s3://bucket/prefix` or `oci://namespace/bucket/prefix`. `?prefix=…` gives a prefix without a last slash."""
    parts = StoreURL(url, "write s3://bucket/prefix, or oci://namespace/bucket/prefix", has_user=False)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    bucket, _, path = ("", "", parts.path) if parts.scheme == "s3" else parts.path.removeprefix("/").partition("/")
    folder = unquote(path).strip("/")
    prefix = options.pop("prefix", f"{folder}/" if folder else PREFIX)
    whole = parts.changed(path=f"/{bucket}" if bucket else "", query=urlencode(options))
    opened = get_checkpointer(whole, prefix="")
    return OldBucket(cast(ObjectEngine, opened.store.engine).store, prefix)
