"""Where data keys are kept: wrapped, in a key space of their own, one for each subject.

What a thread was copied from is kept beside them: the copy still has the seals of its origins.
"""

from __future__ import annotations

import asyncio
import base64
import re
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from locus.encryption.data_key import DataKey, NotOpenedError, new_secret
from locus.encryption.keyring import Keyring, WrappedKey
from locus.errors import ConflictError, CorruptCheckpointError, EncryptionKeyError
from locus.memory.engine import Engine, NothingThereError
from locus.memory.model.codec import decode, encode_trusted
from locus.memory.model.ids import Pattern, new_id, shown_thread
from locus.memory.model.records import Commit, Verdict

CACHED_SECONDS: Final = 300.0
MOST_CACHED: Final = 10_000
_ATTEMPTS: Final = 4
_ORIGINS: Final = "origins"
_INDEX: Final = "index"
_SCOPE: Final = re.compile("[^/:]*[/:]")


class Origin(NamedTuple):
    """A thread whose seals another thread still has, and the data key that opens them."""

    thread_id: str
    key: DataKey
    secret: bytes


@dataclass(frozen=True, slots=True)
class ThreadKeys:
    """The data key of a thread's subject, and those of the threads that it was copied from, the nearest first."""

    thread_id: str
    key: DataKey
    secret: bytes
    origins: tuple[Origin, ...] = ()

    @property
    def names(self) -> DataKey:
        """The key that seals names: that of the oldest origin, so that a copy goes on with the names it has."""
        return self.origins[-1].key if self.origins else self.key

    def names_of(self, text: str) -> list[str]:
        """Each name that a text may have in the thread: something was there before it became a copy."""
        return [key.name(text) for key in {origin.key.tag: origin.key for origin in self.lineage}.values()]

    def unname(self, name: str) -> str:
        """The text that a name stands for."""
        for origin in reversed(self.lineage):
            with suppress(NotOpenedError):
                return origin.key.unname(name)
        raise NotOpenedError

    @property
    def lineage(self) -> list[Origin]:
        """The thread itself, and its origins."""
        return [Origin(self.thread_id, self.key, self.secret), *self.origins]


class DataKeys:
    """The data keys of one store, or of a key space of it. They are held for some minutes."""

    def __init__(self, engine: Engine, keyring: Keyring, space: str) -> None:
        self.engine = engine
        self.keyring = keyring
        self._space = space
        self._cached: OrderedDict[str, tuple[float, ThreadKeys]] = OrderedDict()
        self._index: dict[str, DataKey] = {}
        self._ready = False

    def subject_of(self, thread_id: str) -> str:
        """The subject of a thread. The items of one namespace of a key space are one subject."""
        if self._space:
            return thread_id.partition("/!")[0] or thread_id
        return self.keyring.subject_of(thread_id)

    def cached(self, thread_id: str) -> ThreadKeys | None:
        """The keys of a thread, if they are at hand."""
        entry = self._cached.get(thread_id)
        return None if entry is None or entry[0] < time.monotonic() else entry[1]

    async def of(self, thread_id: str, *, create: bool = False) -> ThreadKeys | None:
        """The keys of a thread; None if its subject has none, and is not given one now."""
        known = self.cached(thread_id)
        if known is not None:
            return known
        subject, threads = self.subject_of(thread_id), self._namespace("threads")
        if subject == thread_id:
            record = await self._made(thread_id, threads) if create else await self._read(thread_id, threads)
        else:
            record = await self._read(thread_id, threads) or {}
            subjects = self._namespace("subjects")
            shared = await self._made(subject, subjects) if create else await self._read(subject, subjects)
            record = None if shared is None else record | shared
        if record is None:
            return None
        secret = await self._unwrapped(record, subject)
        origins = [await self._origin(one, thread_id) for one in record.get(_ORIGINS, ())]
        keys = ThreadKeys(thread_id, DataKey(secret), secret, tuple(origins))
        self._hold(thread_id, keys)
        return keys

    async def index_key(self, thread_id: str) -> DataKey:
        """The key that marks the metadata of a thread, so that equal values of a tenant are found by one question."""
        scope = scope_of(thread_id)
        key = self._index.get(scope)
        if key is None:
            name = f"{scope}{_INDEX}"
            record = await self._made(name, self._namespace(_INDEX))
            key = self._index[scope] = DataKey(await self._unwrapped(record, name))
            if len(self._index) > MOST_CACHED:
                self._index.clear()
        return key

    async def index_keys(self, prefix: str) -> list[DataKey]:
        """The keys that may have marked the metadata of threads whose ids begin with a prefix."""
        if scope_of(prefix):
            return [await self.index_key(prefix)]
        try:
            engine = await self._engine()
        except NothingThereError:
            return []
        names = await engine.threads(Pattern(f"*{_INDEX}"), None)
        scopes = [name.removesuffix(_INDEX) for name in names if scope_of(name) + _INDEX == name]
        return [await self.index_key(scope) for scope in scopes if not scope or scope.startswith(prefix)]

    def forget_cached(self, thread_id: str) -> None:
        """Read the keys of a thread anew when they are needed next."""
        self._cached.pop(thread_id, None)

    async def note_copy(self, source: ThreadKeys, dest: str) -> None:
        """Note that a thread is about to be made as a copy of another one, whose seals it will have.

        Once noted, this is never replaced: it opens what the first of two copies has written. A copy of another thread
        is refused instead.
        """
        threads = self._namespace("threads")
        wanted = [(origin.thread_id, origin.key.tag) for origin in source.lineage]
        for _ in range(_ATTEMPTS):
            await self.of(dest, create=True)
            noted = await (await self._engine()).entry(dest, threads, None)
            self.forget_cached(dest)
            own = await self.of(dest, create=True)
            assert own is not None
            if own.origins:
                if [(origin.thread_id, origin.key.tag) for origin in own.origins] == wanted:
                    return
                break
            origins: list[dict[str, Any]] = []
            for origin in source.lineage:
                wrapped = _written(await self.keyring.wrap(origin.secret, _context(dest)))
                origins.append({"thread": origin.thread_id, **wrapped})
            record = await self._read(dest, threads) or {}
            after = None if noted is None else noted.checkpoint_id
            if await self._write(dest, threads, {**record, _ORIGINS: origins}, if_latest=after):
                self.forget_cached(dest)
                return
        raise ConflictError(f"{shown_thread(dest)} is, or was, a copy of another thread: copy into an id of its own")

    def _namespace(self, kind: str) -> str:
        """The namespace of records of a kind. Those of a key space stand apart from those of the threads."""
        return f"{self._space}.{kind}" if self._space else kind

    async def _origin(self, kept: Any, dest: str) -> Origin:
        secret = await self._unwrapped(kept, dest)
        return Origin(str(kept["thread"]), DataKey(secret), secret)

    async def _unwrapped(self, record: Any, subject: str) -> bytes:
        try:
            wrapped = WrappedKey(str(record["key"]), base64.b64decode(record["data_key"], validate=True))
        except (KeyError, TypeError, ValueError):
            raise CorruptCheckpointError(f"the wrapped data key of {shown_thread(subject)} cannot be read") from None
        return await self.keyring.unwrap(wrapped, _context(subject))

    async def _made(self, subject: str, namespace: str) -> Any:
        """The record of a subject, made if there is none."""
        for _ in range(_ATTEMPTS):
            record = await self._read(subject, namespace)
            if record is not None:
                return record
            record = _written(await self.keyring.wrap(new_secret(), _context(subject)))
            if await self._write(subject, namespace, record, if_latest=None):
                return record
        raise ConflictError(f"the data key of {shown_thread(subject)} keeps being changed; try again")

    async def _engine(self) -> Engine:
        if not self._ready:
            await self.engine.setup()
            self._ready = True
        return self.engine

    async def _read(self, thread_id: str, namespace: str) -> Any:
        try:
            engine = await self._engine()
        except NothingThereError:
            return None
        stored = await engine.read(thread_id, namespace, None)
        return None if stored is None else decode(stored.head)

    async def _write(self, thread_id: str, namespace: str, record: Any, *, if_latest: str | None) -> bool:
        """Write a record, if the latest one is still this; None if there is none yet."""
        rev = new_id()
        commit = Commit(
            thread_id=thread_id,
            namespace=namespace,
            checkpoint_id=rev,
            rev=rev,
            created_at=datetime.now(UTC),
            metadata="{}",
            head=encode_trusted(record),
            manifest="[]",
            extents=(),
            parent_id=None,
            fresh_id=True,
            if_latest=if_latest,
        )
        try:
            outcome = await (await self._engine()).commit(commit)
        except ConflictError:  # a server's word for it
            return False
        return outcome.verdict is Verdict.COMMITTED

    def _hold(self, thread_id: str, keys: ThreadKeys) -> None:
        self._cached[thread_id] = (time.monotonic() + CACHED_SECONDS, keys)
        self._cached.move_to_end(thread_id)
        while len(self._cached) > MOST_CACHED:
            self._cached.popitem(last=False)


async def keys_of_all(data_keys: DataKeys, thread_ids: Sequence[str]) -> dict[str, ThreadKeys | None]:
    """The keys of several threads."""
    wanted = list(dict.fromkeys(thread_ids))
    found: dict[str, ThreadKeys | None] = {one: data_keys.cached(one) for one in wanted}
    missing = [one for one, keys in found.items() if keys is None]
    if data_keys.engine.works_in_place:
        for one in missing:
            found[one] = await data_keys.of(one)
    elif missing:
        asked = await asyncio.gather(*(data_keys.of(one) for one in missing))
        found |= dict(zip(missing, asked, strict=True))
    return found


def _written(wrapped: WrappedKey) -> dict[str, Any]:
    return {"key": wrapped.key_id, "data_key": base64.b64encode(wrapped.wrapped).decode()}


def scope_of(thread_id: str) -> str:
    """The beginning of a thread's id that names its tenant, if it has one: up to the first slash or colon."""
    found = _SCOPE.match(thread_id)
    return found[0] if found else ""


def _context(subject: str) -> str:
    """The name to which a wrapped data key is bound."""
    return f"locus:{subject}"


def no_key(thread_id: str) -> EncryptionKeyError:
    """The error for a sealed thread whose data key is not in the store."""
    return EncryptionKeyError(
        f"{shown_thread(thread_id)} is sealed, and its data key is not in this store: it was forgotten, or is lost"
    )
