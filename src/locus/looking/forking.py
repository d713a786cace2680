"""Continues a checkpoint as a new thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from locus.memory.model.records import Entry
from locus.memory.origins import Origin, note_origin
from locus.memory.storage import StorageBackend
from locus.memory.store import CheckpointStore

WORKSPACE: Final = "workspace"
"""The namespace in which an agent keeps its plan and files (see `locus.agent.workspace`)."""


@dataclass(frozen=True, slots=True)
class Forked:
    """The namespaces that a fork took along."""

    whole: bool = False
    """True if all namespaces of the thread came along."""
    workspace: bool = False
    left: tuple[str, ...] = ()
    """Namespaces that stayed behind."""


async def fork(
    store: CheckpointStore,
    entry: Entry,
    new_thread: str,
    ancestors: int | Literal["all"] = "all",
    *,
    latest: bool = False,
) -> Forked:
    """Copy a checkpoint and its ancestors to a new thread, with the workspace as it was then.

    With `latest`, the whole thread is meant, and not just this checkpoint: then all of its namespaces are copied. The
    latest checkpoint of a graph with subgraphs needs them.
    """
    origin = Origin(entry.thread_id, entry.namespace, entry.checkpoint_id)
    left = [name for name in await store.namespaces(entry.thread_id) if name not in (entry.namespace, WORKSPACE)]
    if left and latest and ancestors == "all":
        if not await store.copy(entry.thread_id, new_thread, None, entry.namespace):
            raise await store.not_found(entry.thread_id, entry.checkpoint_id, entry.namespace)
        await note_origin(store, new_thread, origin)
        return Forked(whole=True, workspace=True)
    copied = await store.copy(entry.thread_id, new_thread, entry.checkpoint_id, entry.namespace, ancestors=ancestors)
    if not copied:
        raise await store.not_found(entry.thread_id, entry.checkpoint_id, entry.namespace)
    await note_origin(store, new_thread, origin)
    workspace = entry.namespace != WORKSPACE and await _copy_workspace(store, entry, new_thread)
    return Forked(workspace=workspace, left=tuple(left))


async def _copy_workspace(store: CheckpointStore, entry: Entry, new_thread: str) -> bool:
    """Save the workspace in the new thread as it was when the checkpoint was saved. False if there was none."""
    async with store.using() as engine:
        as_of = await engine.history(entry.thread_id, WORKSPACE, 1, entry.seq + 1)
    if not as_of:
        return False
    backend = StorageBackend(store)
    workspace = await backend.load(entry.thread_id, as_of[0].checkpoint_id, namespace=WORKSPACE)
    if workspace is None:
        return False
    await backend.save(new_thread, workspace, namespace=WORKSPACE)
    return True
