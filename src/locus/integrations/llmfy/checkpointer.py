"""llmfy's checkpointer contract on every backend.

A session is the namespace `llmfy` of the thread with its id. The state of a checkpoint is the payload, so items of its
lists are stored once. The other facts (run, node, step, …) are metadata, so checkpoints can be found by them.
"""

from __future__ import annotations

import asyncio
import builtins
from dataclasses import fields
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from locus.errors import CorruptCheckpointError, SerializationError
from locus.integrations.llmfy.in_memory import AnyCheckpoint
from locus.integrations.stores import AsyncStoreUser
from locus.memory.checkpointer import metadata_of
from locus.memory.model.arguments import checked_limit
from locus.memory.model.payloads import dict_from, dict_payload
from locus.memory.model.records import Entry, Stored
from locus.memory.model.warm import TEXTS

if TYPE_CHECKING:
    from llmfy.flow_engine.checkpointer.base_checkpointer import BaseCheckpointer, Checkpoint, CheckpointMetadata
elif find_spec("llmfy") is None:
    from locus.integrations.llmfy.in_memory import Checkpoint, CheckpointMetadata

    BaseCheckpointer = object
else:
    from llmfy.flow_engine.checkpointer.base_checkpointer import BaseCheckpointer, Checkpoint, CheckpointMetadata

NAMESPACE = "llmfy"
"""The namespace of sessions. For a store without namespaces, pass `namespace="default"`."""

_AT_ONCE = 4
"""How many states `list` reads at the same time."""


class LlmfyCheckpointer(AsyncStoreUser, BaseCheckpointer):
    """Checkpoints of `FlowEngine` in a store: a checkpointer, a storage backend, or a name or URL.

    `close` closes a store that was opened here by name, and leaves others open. If llmfy is installed, this is one of
    its checkpointers and returns its `Checkpoint`; otherwise it returns the one of `in_memory`.

    Checkpoints are ordered by save, whatever their times. Ids are unique within a session. Saving the same checkpoint
    again changes nothing. A different one with an existing id replaces the old one and becomes the newest.
    """

    requires_serialization = True
    """Tells llmfy to convert its own objects, and those of registered types, to JSON before it saves."""

    def __init__(self, store: Any, *, namespace: str = NAMESPACE) -> None:
        self._open(store, {}, ("namespace",))
        self._namespace = namespace

    async def save(self, checkpoint: AnyCheckpoint) -> None:
        """Save a checkpoint as the newest of its session."""
        state, about = checkpoint.state, checkpoint.metadata
        if not isinstance(about.created_at, datetime):
            raise SerializationError(f"metadata.created_at is no datetime: {about.created_at!r:.80}", "created_at")
        facts = {name: getattr(about, name) for name in _FACTS}
        await self._store.save(
            about.session_id,
            dict_payload(state),
            namespace=self._namespace,
            checkpoint_id=about.checkpoint_id,
            metadata={**facts, "created_at": about.created_at.isoformat()},
        )

    async def load(self, session_id: str, checkpoint_id: str | None = None) -> Checkpoint | None:
        """That checkpoint, or the newest; `None` if there is none."""
        loaded = await self._store.load(session_id, checkpoint_id, self._namespace, TEXTS)
        return None if loaded is None else _checkpoint(loaded.value)

    async def list(self, session_id: str, limit: int = 10) -> builtins.list[Checkpoint]:
        """A session's checkpoints with their states, newest first. `history` lists without states."""
        entries = await self._store.history(session_id, limit, None, self._namespace)
        return await self._loaded(entries)

    async def list_by_run(self, session_id: str, run_id: str, limit: int = 100) -> builtins.list[Checkpoint]:
        """The checkpoints of one `invoke` or `stream`, newest first."""
        entries = await self._store.history(session_id, None, None, self._namespace)
        found = [entry for entry in entries if metadata_of(entry).get("run_id") == run_id]
        return await self._loaded(found[: checked_limit(limit, None)])

    async def history(self, session_id: str, limit: int | None = 10) -> builtins.list[CheckpointMetadata]:
        """The metadata of a session's checkpoints, without their states, newest first."""
        return [_metadata(entry) for entry in await self._store.history(session_id, limit, None, self._namespace)]

    async def delete(self, session_id: str, checkpoint_id: str | None = None) -> None:
        """Delete one checkpoint, or all of the session."""
        await self._store.delete(session_id, checkpoint_id, self._namespace)

    async def clear_all(self) -> None:
        """Delete the checkpoints of all flows. Everything else in the store stays."""
        for session_id in await self._store.list_threads(None, "*"):
            await self._store.delete(session_id, None, self._namespace)

    async def _loaded(self, entries: builtins.list[Entry]) -> builtins.list[Checkpoint]:
        """The checkpoints of entries, without those that were deleted in the meantime."""
        turn = asyncio.Semaphore(_AT_ONCE)

        async def read(entry: Entry) -> Stored | None:
            async with turn:
                return await self._store.read(entry.thread_id, entry.checkpoint_id, self._namespace)

        found = await asyncio.gather(*map(read, entries))
        return [_checkpoint(stored) for stored in found if stored is not None]


_FACTS = tuple(
    field.name
    for field in fields(CheckpointMetadata)
    if field.name not in ("checkpoint_id", "session_id", "created_at")
)


def _checkpoint(stored: Stored) -> Checkpoint:
    return Checkpoint(metadata=_metadata(stored.entry), state=dict_from(stored))


def _metadata(entry: Entry) -> CheckpointMetadata:
    metadata = metadata_of(entry)
    try:
        facts = {name: metadata[name] for name in _FACTS}
        created_at = datetime.fromisoformat(metadata["created_at"])
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptCheckpointError(
            f"checkpoint {entry.checkpoint_id!r} of thread {entry.thread_id!r}, namespace {entry.namespace!r}, was not "
            f"saved by a flow: its metadata lacks {error}"
        ) from error
    return CheckpointMetadata(entry.checkpoint_id, entry.thread_id, created_at=created_at, **facts)
