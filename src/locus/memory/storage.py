"""Storage backends: plain dicts by thread, over any engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from locus.memory.checkpointer import StoreVerbs
from locus.memory.model.payloads import dict_from, dict_payload
from locus.memory.model.records import ANY, DEFAULT_NAMESPACE, Unset
from locus.memory.model.warm import TEXTS
from locus.memory.runtime.once import made_once
from locus.memory.store import CheckpointStore

if TYPE_CHECKING:
    from locus.memory.sync import SyncBackend


class StorageBackend(StoreVerbs):
    """Keeps plain dicts by thread. `StorageBackendAdapter(backend)` makes a checkpointer of it."""

    def __init__(self, store: CheckpointStore) -> None:
        self.store = store

    async def save(
        self,
        thread_id: str,
        data: dict[str, Any],
        checkpoint_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        parent: str | None | Unset = ANY,
        if_latest: str | None | Unset = ANY,
    ) -> str:
        """Keep a dict as the newest checkpoint of a thread, and return its id.

        See `BaseCheckpointer.save` for the laws. A dict, unlike a state, does not remember where it comes from, so its
        parent is the latest checkpoint unless `parent` names another.
        """
        saved = await self.store.save(
            thread_id,
            dict_payload(data),
            namespace=namespace,
            checkpoint_id=checkpoint_id,
            metadata=metadata,
            parent=parent,
            if_latest=if_latest,
        )
        return saved.checkpoint_id

    async def load(
        self, thread_id: str, checkpoint_id: str | None = None, *, namespace: str = DEFAULT_NAMESPACE
    ) -> dict[str, Any] | None:
        """Load the dict of a checkpoint, by default the latest; `None` if there is none."""
        loaded = await self.store.load(thread_id, checkpoint_id, namespace, TEXTS)
        return None if loaded is None else dict_from(loaded.value)

    diff = StoreVerbs.payload_diff
    """The changes from checkpoint `a` to checkpoint `b`. (The `diff` of a checkpointer compares states.)"""

    @made_once
    def sync(self) -> SyncBackend:
        """This backend with blocking methods, which any thread may call."""
        from locus.memory.sync import SyncBackend

        return SyncBackend(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()
