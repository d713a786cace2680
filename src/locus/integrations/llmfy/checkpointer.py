"""llmfy's checkpointer contract on every backend.

A session is the namespace `llmfy` of the thread with its id. The state of a checkpoint is the payload, so items of its
lists are stored once. The other facts (run, node, step, …) are metadata, so checkpoints can be found by them.
"""

from __future__ import annotations

import builtins
from dataclasses import fields
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from locus.errors import ConfigurationError, CorruptCheckpointError, SerializationError
from locus.integrations.llmfy.in_memory import AnyCheckpoint, check_most
from locus.threads import AsyncStoreUser, Entry, Version, metadata_of
from locus.threads.limits import checked_limit

if TYPE_CHECKING:
    from llmfy.flow_engine.checkpointer.base_checkpointer import BaseCheckpointer, Checkpoint, CheckpointMetadata
elif find_spec("llmfy") is None:
    from locus.integrations.llmfy.in_memory import Checkpoint, CheckpointMetadata

    BaseCheckpointer = object
else:
    from llmfy.flow_engine.checkpointer.base_checkpointer import BaseCheckpointer, Checkpoint, CheckpointMetadata

NAMESPACE = "llmfy"
"""The namespace of sessions. For a store without namespaces, pass `namespace="default"`."""


class LlmfyCheckpointer(AsyncStoreUser, BaseCheckpointer):
    """Checkpoints of `FlowEngine` in a store: a checkpointer, a storage backend, or a name or URL with its `options`.

    `max_checkpoints_per_session` keeps only that many of the newest; each save deletes the others. With the option
    `ttl_seconds=…` of the store, a session ends that long after its last save.

    `close` closes a store that was opened here by name, and leaves others open. If llmfy is installed, this is one of
    its checkpointers and returns its `Checkpoint`; otherwise it returns the one of `in_memory`.

    Checkpoints are ordered by save, whatever their times. Ids are unique within a session. Saving the same checkpoint
    again changes nothing. A different one with an existing id replaces the old one and becomes the newest.
    """

    requires_serialization = True
    """Tells llmfy to convert its own objects, and those of registered types, to JSON before it saves."""

    def __init__(
        self,
        store: Any,
        *,
        max_checkpoints_per_session: int | None = None,
        namespace: str = NAMESPACE,
        **options: Any,
    ) -> None:
        check_most(max_checkpoints_per_session)
        if options.get("encryption_key") is not None:
            raise ConfigurationError(
                "LlmfyCheckpointer has no encryption_key: checkpoints are stored as they are, so that they can be "
                "searched. Encrypt the disk or the database, and leave the key out"
            )
        self._open(store, options, ("max_checkpoints_per_session", "namespace"))
        self._max_checkpoints = max_checkpoints_per_session
        self._namespace = namespace

    async def save(self, checkpoint: AnyCheckpoint) -> None:
        """Save a checkpoint as the newest of its session."""
        state, about = checkpoint.state, checkpoint.metadata
        if not isinstance(about.created_at, datetime):
            raise SerializationError(f"metadata.created_at is no datetime: {about.created_at!r:.80}", "created_at")
        facts = {name: getattr(about, name) for name in _FACTS}
        await self._store.document(about.session_id, self._namespace).save(
            state,
            checkpoint_id=about.checkpoint_id,
            metadata={**facts, "created_at": about.created_at.isoformat()},
        )
        if self._max_checkpoints is not None:
            entries = await self._store.history(about.session_id, self._namespace)
            if len(entries) > self._max_checkpoints:
                await self._store.delete_entries(about.session_id, self._namespace, entries[self._max_checkpoints :])

    async def load(self, session_id: str, checkpoint_id: str | None = None) -> Checkpoint | None:
        """That checkpoint, or the newest; `None` if there is none."""
        version = await self._store.document(session_id, self._namespace).read(checkpoint_id)
        return None if version is None else _checkpoint(version)

    async def list(self, session_id: str, limit: int = 10) -> builtins.list[Checkpoint]:
        """A session's checkpoints with their states, newest first. `history` lists without states."""
        return await self._loaded(session_id, await self._store.history(session_id, self._namespace, limit))

    async def list_by_run(self, session_id: str, run_id: str, limit: int = 100) -> builtins.list[Checkpoint]:
        """The checkpoints of one `invoke` or `stream`, newest first."""
        entries = await self._store.history(session_id, self._namespace)
        of_run = [entry for entry in entries if metadata_of(entry).get("run_id") == run_id]
        return await self._loaded(session_id, of_run[: checked_limit(limit, None)])

    async def history(self, session_id: str, limit: int | None = 10) -> builtins.list[CheckpointMetadata]:
        """The metadata of a session's checkpoints, without their states, newest first."""
        return [_metadata(entry) for entry in await self._store.history(session_id, self._namespace, limit)]

    async def delete(self, session_id: str, checkpoint_id: str | None = None) -> None:
        """Delete one checkpoint, or all of the session."""
        await self._store.delete(session_id, self._namespace, checkpoint_id)

    async def clear_all(self) -> None:
        """Delete the checkpoints of all flows. Everything else in the store stays."""
        for session_id in await self._store.list_threads():
            await self._store.delete(session_id, self._namespace)

    async def _loaded(self, session_id: str, entries: builtins.list[Entry]) -> builtins.list[Checkpoint]:
        """The checkpoints of entries, without those that were deleted in the meantime."""
        document = self._store.document(session_id, self._namespace)
        return builtins.list(map(_checkpoint, await document.read_many([entry.checkpoint_id for entry in entries])))


_FACTS = tuple(
    field.name
    for field in fields(CheckpointMetadata)
    if field.name not in ("checkpoint_id", "session_id", "created_at")
)


def _checkpoint(version: Version) -> Checkpoint:
    assert version.entry is not None
    return Checkpoint(metadata=_metadata(version.entry), state=dict(version.fields))


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
