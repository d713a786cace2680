"""`LocusTaskStore`: the tasks of A2A agents in a Locus store, with their whole history.

A task is the namespace `a2a` of a thread that is named by the owner and the task: `alice/7f3a…`. Its payload is the
task in the JSON of the protocol. Every save is a checkpoint, and of messages and artifacts only new ones are stored.
"""

from __future__ import annotations

import builtins
from typing import Any, Final

from a2a.server.context import ServerCallContext
from a2a.server.owner_resolver import OwnerResolver, resolve_user_scope
from a2a.server.tasks import InMemoryTaskStore, TaskStore
from a2a.types.a2a_pb2 import ListTasksRequest, ListTasksResponse, Task
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError, SerializeToJsonError

from locus.errors import CorruptCheckpointError, SerializationError
from locus.threads import AsyncStoreUser, Document, Entry, metadata_of, readable, warn_of_damage
from locus.threads.ids import check_id, joined, parted, shown_thread

__all__ = ["NAMESPACE", "LocusTaskStore"]

NAMESPACE: Final = "a2a"
"""The namespace of tasks. For a store without namespaces, pass `namespace="default"`."""

_OWN_OPTIONS = ("owner_resolver", "namespace")
_DEEPEST: Final = 1_000
"""Deeper than any JSON that a store keeps, so that each task that is stored can be read."""


class LocusTaskStore(AsyncStoreUser, TaskStore):
    """A `TaskStore` of the A2A SDK on any Locus store.

    `store` is a checkpointer, a storage backend, or a name or URL with its `options` (`"sqlite:agents.db"`,
    `"https://…", token="…"`). `close` closes a store that was opened here by name, and leaves others open. A later call
    opens it again.

    As in the SDK's own stores, `owner_resolver` names the owner of a task, by default the user of the call. A task is
    not there for any other owner, and two owners may have tasks with the same id. Of two saves, the later one counts.
    """

    def __init__(
        self,
        store: Any,
        *,
        owner_resolver: OwnerResolver = resolve_user_scope,
        namespace: str = NAMESPACE,
        **options: Any,
    ) -> None:
        self._open(store, options, _OWN_OPTIONS)
        self._owner_of = owner_resolver
        self._namespace = namespace

    async def save(self, task: Task, context: ServerCallContext) -> None:
        """Save a task as its newest version."""
        try:
            fields = MessageToDict(task)
        except (SerializeToJsonError, RecursionError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
            raise SerializationError(f"the task cannot be written as JSON: {reason}", "task") from error
        status = fields.get("status", {})
        facts = {"context": task.context_id, "state": status.get("state"), "updated": status.get("timestamp")}
        await self._document(task.id, context).save(fields, metadata=facts)

    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        """The newest version of a task; None if this owner has none with this id."""
        version = await self._document(task_id, context).read()
        return None if version is None else _task(version.fields, version.entry)

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """A page of the owner's tasks, filtered and sorted as the SDK's own stores do.

        It looks at the metadata of all tasks of the owner, and reads those on the page.
        """
        outlines = InMemoryTaskStore(self._owner_of, use_copying=False)
        entries: dict[str, Entry] = {}
        damaged: builtins.list[CorruptCheckpointError] = []

        async def add_outline(entry: Entry) -> None:
            outline = _outline(entry)
            entries[outline.id] = entry
            await outlines.save(outline, context)

        async def read(entry: Entry) -> Task | None:
            version = await self._store.document(entry.thread_id, entry.namespace).read(entry.checkpoint_id)
            return None if version is None else _task(version.fields, entry)

        await readable(add_outline, await self._newest_of(self._owner_of(context)), damaged)
        page = await outlines.list(params, context)
        some = await readable(read, [entries[task.id] for task in page.tasks], damaged)
        warn_of_damage(damaged)
        page.ClearField("tasks")
        page.tasks.extend(task for _, task in some if task is not None)
        return page

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Delete a task with its history. A task that is not there is no error."""
        await self._document(task_id, context).delete()

    async def versions(
        self, task_id: str, context: ServerCallContext, limit: int | None = 10, before: str | None = None
    ) -> dict[str, Task]:
        """A task as it was saved at different times, by the ids of the checkpoints, the newest first."""
        document = self._document(task_id, context)
        entries = await self._store.history(document.thread_id, document.namespace, limit, before)
        versions = await document.read_many([entry.checkpoint_id for entry in entries])
        return {version.checkpoint_id: _task(version.fields, version.entry) for version in versions}

    def _document(self, task_id: str, context: ServerCallContext) -> Document:
        owner = check_id(self._owner_of(context), "owner", empty=True)
        return self._store.document(joined(owner, check_id(task_id, "task_id")), self._namespace)

    async def _newest_of(self, owner: str) -> builtins.list[Entry]:
        """The newest checkpoint of each task of an owner."""
        entries: builtins.list[Entry | None] = []
        before: str | None = None
        while True:
            page = await self._store.newest_threads(None, before, joined(owner, ""))
            for one in page.entries:
                is_task = one.namespace == self._namespace
                entries.append(one if is_task else await self._store.entry(one.thread_id, self._namespace))
            before = page.next
            if before is None:
                return [entry for entry in entries if entry is not None]


def _outline(entry: Entry) -> Task:
    """A task as far as the metadata of its checkpoint tells: its id, its context, its state, and the time of that."""
    facts = metadata_of(entry)
    status = {"state": facts.get("state"), "timestamp": facts.get("updated")}
    return _task({"id": parted(entry.thread_id)[-1], "contextId": facts.get("context"), "status": status}, entry)


def _task(fields: Any, entry: Entry | None) -> Task:
    try:
        return ParseDict(fields, Task(), max_recursion_depth=_DEEPEST)
    except ParseError as error:
        assert entry is not None
        where = f"checkpoint {entry.checkpoint_id!r} of {shown_thread(entry.thread_id)}"
        raise CorruptCheckpointError(f"{where} is no task of A2A") from error
