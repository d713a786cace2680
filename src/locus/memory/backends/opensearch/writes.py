"""Pending writes, put and got. A document is changed on condition that nobody else has changed it."""

from __future__ import annotations

from collections.abc import Sequence

from locus.memory.backends.opensearch.client import Doc, Failure, give_way
from locus.memory.backends.opensearch.client import Write as BulkWrite
from locus.memory.backends.opensearch.log import Log
from locus.memory.backends.opensearch.opensearch_layout import WRITE, writes_id
from locus.memory.backends.opensearch.opensearch_pending import chosen_writes, writes_of
from locus.memory.backends.opensearch.remove import finish, remove
from locus.memory.backends.opensearch.schema import now
from locus.memory.model.records import Write, writes_order


def put_writes(log: Log, place: tuple[str, str, str], writes: Sequence[Write], keep_numbered: bool) -> None:
    """Replace the task's writes with index ≥ 0, unless they are to be kept, and those that are named again."""
    namespace, checkpoint_id, task_id = place
    fresh = {write.idx: write for write in writes}
    for attempt in range(40):
        log.look()
        if log.state.expired(now()):
            remove(log, lambda _: True, expired=True)
            continue
        if log.removed is not None and (namespace, checkpoint_id) in log.removed.names:
            finish(log)
        before = chosen_writes(log, _docs(log, namespace, checkpoint_id, task_id))
        stay = (write for doc in before for write in _writes(doc) if keep_numbered or write.idx < 0)
        kept = [write for write in stay if write.idx not in fresh]
        source = {
            "kind": WRITE,
            "thread": log.thread,
            "namespace": namespace,
            "checkpoint_id": checkpoint_id,
            "task_id": task_id,
            "position": log.state.position,
            "epoch": log.state.epoch,
            "body": {"writes": [list(write) for write in (*kept, *fresh.values())]},
        }
        name = writes_id(log.thread, namespace, checkpoint_id, task_id)
        old = log.doc(name)
        action = "create" if old is None else "index"
        (done,) = log.client.write(log.thread, [BulkWrite(action, name, source, only=old)])
        if done:
            return
        give_way(attempt)
    raise Failure(409, "too many writers", f"task {task_id!r} writes from several places at once")


def get_writes(log: Log, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
    """In the order of (task_path, task_id, idx)."""
    log.look()
    if task_id is not None:
        docs = chosen_writes(log, _docs(log, namespace, checkpoint_id, task_id))
    else:
        docs = writes_of(log, {"term": {"namespace": namespace}}, {"term": {"checkpoint_id": checkpoint_id}})
    return sorted((write for doc in docs for write in _writes(doc)), key=writes_order)


def all_writes(log: Log) -> dict[tuple[str, str], list[Write]]:
    """Those of all checkpoints, by namespace and checkpoint id."""
    found: dict[tuple[str, str], list[Write]] = {}
    for doc in writes_of(log):
        found.setdefault((doc.source["namespace"], doc.source["checkpoint_id"]), []).extend(_writes(doc))
    return {place: sorted(writes, key=writes_order) for place, writes in found.items()}


def _docs(log: Log, namespace: str, checkpoint_id: str, task_id: str) -> list[Doc]:
    batches = {"", log.state.batch}
    found = (log.doc(writes_id(log.thread, namespace, checkpoint_id, task_id, batch)) for batch in batches)
    return [doc for doc in found if doc is not None]


def _writes(doc: Doc) -> list[Write]:
    return [Write(*write) for write in doc.source["body"]["writes"]]
