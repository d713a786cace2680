"""`LocusCache`: LangGraph's cache of what its nodes have returned, on every store.

    graph.compile(cache=LocusCache("sqlite:///agents.db"), checkpointer=…)

Each value is a thread with one checkpoint, in a key space that no list of threads shows. Its id is a digest
of LangGraph's namespace and one of the key, so a namespace is cleared by its prefix.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any

from langgraph.cache.base import BaseCache, FullKey, Namespace, ValueT
from langgraph.checkpoint.serde.base import SerializerProtocol

from locus.errors import ConflictError, CorruptCheckpointError
from locus.integrations.langgraph.classes import typed_codec
from locus.integrations.langgraph.saver import JSONSerializer
from locus.integrations.langgraph.schemas import listed_classes, stored_names
from locus.threads import BothWaysStoreUser, ThreadStore

_SPACE = "cache"
_NAMESPACE = "langgraph"
_ONLY = "value"
"""The id of the only checkpoint of a thread: a save under it replaces the one before."""
_PAGE = 500
_AT_ONCE = 16


class LocusCache(BothWaysStoreUser, BaseCache[ValueT]):
    """A cache for `compile(cache=…)`, shared by all processes that open the same store.

    `store` is a checkpointer or storage backend, or a name or URL with its `options`; `close` closes a store that was
    opened here by name, and leaves others open. `allowed_types` are classes of yours that nodes return, as for
    `LocusSaver`. A `serde` of your own is used instead.

    A value that has expired is not returned, and is deleted when it is asked for.
    """

    def __init__(
        self,
        store: Any,
        *,
        allowed_types: Iterable[Any] = (),
        serde: SerializerProtocol | None = None,
        **options: Any,
    ) -> None:
        self._open(store, options, ("allowed_types", "serde"))
        if serde is None:
            allowed = allowed_types if isinstance(allowed_types, Mapping) else list(allowed_types)
            serde = JSONSerializer(typed_codec(listed_classes(allowed), stored_names(allowed)))
        super().__init__(serde=serde)

    @property
    def _space(self) -> ThreadStore:
        return self._store.key_space(_SPACE)

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        """The values of the keys that are there and have not expired."""
        found = await _each([self._read(key) for key in dict.fromkeys(keys)])
        return {key: value for pairs in found for key, value in pairs}

    async def _read(self, key: FullKey) -> list[tuple[FullKey, ValueT]]:
        thread_id = _thread_of(key)
        version = await self._space.document(thread_id, _NAMESPACE).read()
        if version is None:
            return []
        until = version.fields.get("until")
        if until is not None and time.time() >= until:
            with suppress(ConflictError):  # it was set anew just now
                await self._space.delete(thread_id)
            return []
        try:
            stored = (str(version.fields["kind"]), b64decode(version.fields["value"], validate=True))
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptCheckpointError("a value in the cache cannot be read: clear its namespace") from error
        return [(key, self.serde.loads_typed(stored))]

    async def aset(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> None:
        """Keep values, each for so many seconds, or for ever."""
        now = time.time()
        writes = []
        for key, (value, seconds) in pairs.items():
            kind, data = self.serde.dumps_typed(value)
            fields: dict[str, Any] = {"kind": kind, "value": b64encode(data).decode()}
            if seconds is not None:
                fields |= {"until": now + seconds}
            document = self._space.document(_thread_of(key), _NAMESPACE)
            writes.append(document.save(fields, checkpoint_id=_ONLY))
        await _each(writes)

    async def aclear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Delete the values of these namespaces, or all."""
        for prefix in [""] if namespaces is None else [f"{_digest(namespace)}/" for namespace in namespaces]:
            while page := await self._space.list_threads(_PAGE, prefix=prefix):
                await _each([self._space.delete(thread_id) for thread_id in page])

    def get(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        return self._run(self.aget(keys))

    def set(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> None:
        self._run(self.aset(pairs))

    def clear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        self._run(self.aclear(namespaces))


def _thread_of(key: FullKey) -> str:
    namespace, name = key
    return f"{_digest(namespace)}/{_digest((name,))}"


def _digest(labels: Iterable[str]) -> str:
    """A short name for labels. Their lengths are part of it, so that no two rows of labels have the same."""
    text = "".join(f"{len(label)}:{label}" for label in labels)
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]


async def _each(works: Sequence[Any]) -> list[Any]:
    """The results of some work that waits for the store, a few at once."""
    free = asyncio.Semaphore(_AT_ONCE)

    async def one(work: Any) -> Any:
        async with free:
            return await work

    return await asyncio.gather(*map(one, works))
