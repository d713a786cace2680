"""Pending writes, put and got. A document is changed on condition that nobody else has changed it.

Pending writes, found: one document for each task of a checkpoint, and one more if it came with a copy.
"""

from __future__ import annotations

from collections.abc import Mapping

from locus.memory.backends.opensearch.client import Document, Json
from locus.memory.backends.opensearch.log import Log
from locus.memory.backends.opensearch.schema import WRITE, Removed, now, writes_id
from locus.memory.model.records import Write, writes_order

_IN_ORDER = [{"checkpoint_id": "asc"}, {"namespace": "asc"}, {"task_id": "asc"}, {"position": "asc"}]


def place_of(doc: Document) -> tuple[str, str]:
    """The namespace and id of the checkpoint that pending writes belong to."""
    return doc.source["namespace"], doc.source["checkpoint_id"]


def writes_of(log: Log, *clauses: Mapping[str, object]) -> list[Document]:
    """The pending writes of a thread that anybody may see."""
    log.client.refresh()
    body: Json = {
        "query": {"bool": {"filter": [{"term": {"thread": log.thread}}, {"term": {"kind": WRITE}}, *clauses]}},
        "sort": _IN_ORDER,
    }
    hits = [hit for page in log.client.pages(body, log.thread) for hit in page]
    return chosen_writes(log, hits)


def chosen_writes(log: Log, docs: list[Document]) -> list[Document]:
    """Those that may be seen. What a task wrote since a copy takes the place of what came with it."""
    found: dict[tuple[str, str, str], Document] = {}
    for doc in docs:
        key = (*place_of(doc), doc.source["task_id"])
        if writes_visible(log, doc) and (key not in found or "batch" not in doc.source):
            found[key] = doc
    return list(found.values())


def writes_visible(log: Log, doc: Document) -> bool:
    """Whether pending writes belong to the epoch, and not to a checkpoint that is being removed."""
    if doc.source["epoch"] != log.state.epoch or doc.source.get("batch", "") not in ("", log.state.batch):
        return False
    if log.state.expired(now()):
        return False
    return log.removed is None or place_of(doc) not in log.removed.names or doc.source["position"] >= log.state.removing


def dead_writes(log: Log, removed: Removed, position: int) -> list[Document]:
    """Pending writes of the removed checkpoints; what was put after the removal is for others of these names."""
    names = set(removed.names)
    if not names:
        return []
    earlier = {"range": {"position": {"lt": position}}}
    body: Json = {
        "query": {"bool": {"filter": [{"term": {"thread": log.thread}}, {"term": {"kind": WRITE}}, earlier]}},
        "sort": _IN_ORDER,
        "_source": ["namespace", "checkpoint_id"],
    }
    hits = [hit for page in log.client.pages(body, log.thread) for hit in page]
    return [hit for hit in hits if place_of(hit) in names]


def get_writes(log: Log, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
    """In the order of (task_path, task_id, idx)."""
    log.look()
    if task_id is not None:
        docs = chosen_writes(log, task_docs(log, namespace, checkpoint_id, task_id))
    else:
        docs = writes_of(log, {"term": {"namespace": namespace}}, {"term": {"checkpoint_id": checkpoint_id}})
    return sorted((write for doc in docs for write in writes_in(doc)), key=writes_order)


def all_writes(log: Log) -> dict[tuple[str, str], list[Write]]:
    """Those of all checkpoints, by namespace and checkpoint id."""
    found: dict[tuple[str, str], list[Write]] = {}
    for doc in writes_of(log):
        found.setdefault((doc.source["namespace"], doc.source["checkpoint_id"]), []).extend(writes_in(doc))
    return {place: sorted(writes, key=writes_order) for place, writes in found.items()}


def task_docs(log: Log, namespace: str, checkpoint_id: str, task_id: str) -> list[Document]:
    batches = {"", log.state.batch}
    found = (log.doc(writes_id(log.thread, namespace, checkpoint_id, task_id, batch)) for batch in batches)
    return [doc for doc in found if doc is not None]


def writes_in(doc: Document) -> list[Write]:
    return [Write(*write) for write in doc.source["body"]["writes"]]
