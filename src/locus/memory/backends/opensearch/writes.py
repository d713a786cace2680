"""Pending writes, put and read: one document for each task of a checkpoint, and one more if it came with a copy.

A document is changed on the condition that no other writer has changed it since it was read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from locus.memory.backends.opensearch.client import BulkItem, StoredDocument, racing
from locus.memory.backends.opensearch.log import Log, writes_name
from locus.memory.backends.opensearch.remove import finish_removal, remove
from locus.memory.backends.opensearch.schema import WRITE, CheckpointName, now_micros, writes_id
from locus.memory.model.records import TaskWrites, Write, writes_order


def put_writes(log: Log, task: TaskWrites) -> None:
    """Replace the writes of a task that have the index of a new one and, without `keep_numbered`, all from 0 on."""
    for _ in racing(40, f"task {task.task_id!r} writes from several places at once"):
        log.read_state()
        if log.state.expired(now_micros()):
            remove(log, lambda _: True, expired=True)
            continue
        (done,) = log.client.write(log.thread, [writes_item(log, task)])
        if done:
            return


def writes_item(log: Log, task: TaskWrites) -> BulkItem:
    """The item of `put_writes` for a thread whose state was just read."""
    name = (task.namespace, task.checkpoint_id)
    new = {write.idx: write for write in task.writes}
    if log.pending_removal is not None and name in log.pending_removal.names:
        finish_removal(log)
    staying = (write for write in _task_writes(log, name, task.task_id) if task.keep_numbered or write.idx < 0)
    kept = [write for write in staying if write.idx not in new]
    source = {
        "kind": WRITE,
        "thread": log.thread,
        "namespace": task.namespace,
        "checkpoint_id": task.checkpoint_id,
        "task_id": task.task_id,
        "position": log.state.position,
        "epoch": log.state.epoch,
        "body": {"writes": [list(write) for write in (*kept, *new.values())]},
    }
    doc_id = writes_id(log.thread, *name, task.task_id)
    old = log.document(doc_id)
    return BulkItem("create" if old is None else "index", doc_id, source, unchanged=old)


def writes_ids(log: Log, name: CheckpointName, task_id: str) -> list[str]:
    """The documents that may hold the writes of a task."""
    return [writes_id(log.thread, *name, task_id, batch) for batch in {"", log.state.batch}]


def get_writes(log: Log, name: CheckpointName, task_id: str | None) -> list[Write]:
    """Read the writes of a checkpoint, or of one of its tasks, in the order of (task_path, task_id, idx)."""
    log.read_state()
    if task_id is not None:
        return sorted(_task_writes(log, name, task_id), key=writes_order)
    namespace, checkpoint_id = name
    documents = log.pending_writes({"term": {"namespace": namespace}}, {"term": {"checkpoint_id": checkpoint_id}})
    return sorted(_writes_in(documents), key=writes_order)


def all_writes(log: Log) -> dict[CheckpointName, list[Write]]:
    """Read the writes of all checkpoints, each in the order of (task_path, task_id, idx)."""
    found: dict[CheckpointName, list[StoredDocument]] = {}
    for document in log.pending_writes():
        found.setdefault(writes_name(document), []).append(document)
    return {name: sorted(_writes_in(documents), key=writes_order) for name, documents in found.items()}


def count_orphans(log: Log, places: Collection[CheckpointName]) -> dict[CheckpointName, int]:
    """Count the writes of each of these checkpoints, which do not exist."""
    log.read_state()
    found: Counter[CheckpointName] = Counter()
    for document in log.pending_writes():
        if writes_name(document) in places:
            found[writes_name(document)] += len(document.source["body"]["writes"])
    return {name: count for name, count in found.items() if count}


def delete_orphans(log: Log, places: Collection[CheckpointName]) -> int:
    """Remove the writes of these checkpoints, except of those that exist; return how many."""
    removed = 0
    for namespace, checkpoint_id in sorted(places):
        log.read_state(names=[(namespace, checkpoint_id)])
        if log.find(namespace, checkpoint_id) is not None:
            continue
        here = ({"term": {"namespace": namespace}}, {"term": {"checkpoint_id": checkpoint_id}})
        # What came with a copy is only seen when what a task wrote since is gone.
        while documents := log.pending_writes(*here):
            items = [BulkItem("delete", document.id, unchanged=document) for document in documents]
            done = log.client.write(log.thread, items)
            removed += sum(len(one.source["body"]["writes"]) for one, gone in zip(documents, done, strict=True) if gone)
            if not any(done):
                break  # somebody writes them anew just now
    return removed


def _task_writes(log: Log, name: CheckpointName, task_id: str) -> list[Write]:
    found = map(log.document, writes_ids(log, name, task_id))
    return _writes_in(log.visible_writes(document for document in found if document is not None))


def _writes_in(documents: Iterable[StoredDocument]) -> list[Write]:
    return [Write(*write) for document in documents for write in document.source["body"]["writes"]]
