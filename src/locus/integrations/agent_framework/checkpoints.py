"""Checkpoints of workflows: a storage is a thread, and each checkpoint of the framework is one of its checkpoints.

They are in the namespace `agent-framework-workflow`, under the ids that the framework gives them; the parent of each is
the one that the framework names before it. The payload is what the framework's own encoding makes of a checkpoint:
JSON, in which values that JSON does not have are pickled. Locus neither pickles nor unpickles: the framework does, with
its list of allowed types.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agent_framework import WorkflowCheckpoint
from agent_framework._workflows._checkpoint_encoding import decode_checkpoint_value, encode_checkpoint_value
from agent_framework.exceptions import WorkflowCheckpointException

from locus.errors import CheckpointNotFoundError, InvalidIdError
from locus.integrations.agent_framework.owned import OwnedStore
from locus.threads import Document, Entry, Version, metadata_of
from locus.threads.ids import check_ids

NAMESPACE = "agent-framework-workflow"
"""The namespace of checkpoints. For a store without namespaces, pass `namespace="default"`."""

_WORKFLOW = "workflow_name"
_ITERATION = "iteration_count"
_PAGE = 100
"""How many entries are looked through at once for the latest of a workflow."""


@dataclass(frozen=True)
class WorkflowPoint:
    """One checkpoint of a workflow, without its state."""

    checkpoint_id: str
    previous_checkpoint_id: str | None
    created_at: datetime
    workflow_name: str
    iteration_count: int


class LocusCheckpointStorage(OwnedStore):
    """A checkpoint storage of the framework in a Locus store.

    `store` is a checkpointer, a storage backend, or a name or URL with its `options` (`"sqlite:agents.db"`,
    `"https://…", token="…"`). `thread_id` stands in the place of a folder: one for each conversation or job keeps
    them apart. `allowed_checkpoint_types` are the framework's ("my_app.models:MyState"), beside those that are
    registered with `register_checkpoint_type`.

    The latest checkpoint is the one that was saved last, whatever the clocks of the writers say. Saving a checkpoint
    again changes nothing; another one with the same id takes its place, as in the framework's own storages.
    """

    def __init__(
        self,
        store: Any,
        thread_id: str = "workflows",
        *,
        allowed_checkpoint_types: Iterable[str] | None = None,
        namespace: str = NAMESPACE,
        **options: Any,
    ) -> None:
        check_ids(thread_id, None, namespace)
        self.thread_id = thread_id
        self.namespace = namespace
        self._allowed = frozenset(allowed_checkpoint_types or ())
        self._open(store, options, ("thread_id", "allowed_checkpoint_types", "namespace"))

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Save a checkpoint as the newest, and return its id.

        Raises `WorkflowCheckpointException` if it could not be read again, because of a type that is not allowed.
        """
        data, document, previous = self._encoded(checkpoint), self._document, checkpoint.previous_checkpoint_id
        saved = await document.save(
            data,
            # What a run goes on from was most likely loaded last, and is what the new checkpoint resembles.
            after=document.remembered(previous),
            checkpoint_id=checkpoint.checkpoint_id,
            metadata={_WORKFLOW: checkpoint.workflow_name, _ITERATION: checkpoint.iteration_count},
            parent=previous,
            parent_as_named=True,  # it may be in another storage, or deleted
        )
        return saved.checkpoint_id

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """A checkpoint by its id. Raises `WorkflowCheckpointException` if there is none."""
        try:
            version = await self._read(checkpoint_id)
        except InvalidIdError as error:
            raise WorkflowCheckpointException(
                "there is no checkpoint with this id: it is no id that is kept"
            ) from error
        if version is None:
            raise WorkflowCheckpointException("there is no checkpoint with this id in this storage")
        return self._decoded(version)

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """The checkpoints of a workflow, oldest first.

        One that the framework cannot decode raises its error. `list_checkpoint_ids` lists it without decoding.
        """
        versions = await self._document.read_many(await self.list_checkpoint_ids(workflow_name=workflow_name))
        if versions:
            self._document.remember(versions[-1])
        return [self._decoded(version) for version in versions]

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """The ids of the checkpoints of a workflow, oldest first. Nothing of them is decoded."""
        return [entry.checkpoint_id for entry in await self._entries(workflow_name)]

    async def delete(self, checkpoint_id: str) -> bool:
        """Delete a checkpoint; False if there is none with this id."""
        try:
            return await self._store.delete(self.thread_id, self.namespace, checkpoint_id)
        except InvalidIdError:
            return False

    async def clear(self) -> None:
        """Delete all checkpoints of this storage."""
        await self._store.delete(self.thread_id, self.namespace)

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        """The checkpoint of a workflow that was saved last; None if it has none."""
        while True:
            version = await self._read(None)
            if version is not None and version.entry is not None and _workflow(version.entry) != workflow_name:
                entry = await self._latest_entry(workflow_name)
                if entry is None:
                    return None
                version = await self._read(entry.checkpoint_id)
                if version is None:
                    continue  # it was deleted meanwhile, so another one is the latest
            return None if version is None else self._decoded(version)

    async def history(self, limit: int | None = 10, before: str | None = None) -> list[WorkflowPoint]:
        """The checkpoints of all workflows in this storage, newest first, without their states."""
        entries = await self._store.history(self.thread_id, self.namespace, limit, before)
        return [_point(entry) for entry in entries]

    async def fork(self, new_thread_id: str, checkpoint_id: str | None = None) -> LocusCheckpointStorage:
        """A new storage that begins with a checkpoint (or the latest) and those before it, and goes its own way.

        Raises `ConflictError` if the new id is in use, and `CheckpointNotFoundError` if there is no such checkpoint.
        """
        if not await self._store.fork(self.thread_id, new_thread_id, self.namespace, checkpoint_id):
            what = "no checkpoint" if checkpoint_id is None else f"no checkpoint {checkpoint_id!r}"
            raise CheckpointNotFoundError(f"the storage {self.thread_id!r} has {what} to fork from")
        forked = copy(self)
        forked.thread_id, forked._handle = new_thread_id, self._handle.lent()
        return forked

    def _encoded(self, checkpoint: WorkflowCheckpoint) -> dict[str, Any]:
        """A checkpoint in the framework's encoding. A value that the framework could not read again is refused."""
        try:
            data: dict[str, Any] = encode_checkpoint_value(checkpoint.to_dict())
            decode_checkpoint_value(data, allowed_types=self._allowed)
        except WorkflowCheckpointException:
            raise
        except Exception as error:
            raise WorkflowCheckpointException(
                "a checkpoint cannot be encoded, or not be restored with the allowed types; nothing was written"
            ) from error
        return data

    def _decoded(self, version: Version) -> WorkflowCheckpoint:
        data = decode_checkpoint_value(version.fields, allowed_types=self._allowed)
        return WorkflowCheckpoint.from_dict(data)

    @property
    def _document(self) -> Document:
        return self._store.document(self.thread_id, self.namespace)

    async def _read(self, checkpoint_id: str | None) -> Version | None:
        document = self._document
        version = await document.read(checkpoint_id)
        if version is not None:
            document.remember(version)
        return version

    async def _entries(self, workflow_name: str) -> list[Entry]:
        """The entries of a workflow's checkpoints, oldest first."""
        entries = await self._store.history(self.thread_id, self.namespace)
        return [entry for entry in reversed(entries) if _workflow(entry) == workflow_name]

    async def _latest_entry(self, workflow_name: str) -> Entry | None:
        before: Entry | None = None
        while True:
            entries = await self._store.history(self.thread_id, self.namespace, _PAGE, before)
            latest = next((entry for entry in entries if _workflow(entry) == workflow_name), None)
            if latest is not None or len(entries) < _PAGE:
                return latest
            before = entries[-1]


def _workflow(entry: Entry) -> Any:
    return metadata_of(entry).get(_WORKFLOW)


def _point(entry: Entry) -> WorkflowPoint:
    about = metadata_of(entry)
    return WorkflowPoint(
        entry.checkpoint_id,
        entry.parent_id,
        entry.created_at,
        str(about.get(_WORKFLOW, "")),
        int(about.get(_ITERATION) or 0),
    )
