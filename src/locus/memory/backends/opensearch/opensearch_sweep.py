"""Cleaning up: threads whose time has come, and what was kept only to keep its place."""

from __future__ import annotations

from locus.memory.backends.opensearch.client import Client, Json, Write
from locus.memory.backends.opensearch.log import Log
from locus.memory.backends.opensearch.opensearch_layout import END, GONE, INTENT, KEPT, THREAD
from locus.memory.backends.opensearch.opensearch_memory import Memories
from locus.memory.backends.opensearch.opensearch_state import thread_state
from locus.memory.backends.opensearch.remove import drop_batch, remove
from locus.memory.backends.opensearch.schema import now


def expire(client: Client, memories: Memories, moment: int) -> int:
    """Remove the threads whose time has come, and return the number of their checkpoints; sweep what is old."""
    client.refresh()
    query: Json = {"bool": {"filter": [
        {"term": {"kind": THREAD}},
        {"range": {"live": {"gt": 0}}},
        {"range": {"expires": {"lte": min(moment, now())}}},
    ]}}  # fmt: skip
    body = {"query": query, "sort": [{"thread_id": "asc"}], "_source": ["thread_id"]}
    ended = [hit.source["thread_id"] for hits in client.pages(body) for hit in hits]
    removed = 0
    for thread_id in ended:
        log = Log(client, memories, thread_id)
        removed += remove(log, lambda _: True, expired=True)
    _sweep(client)
    return removed


def _sweep(client: Client) -> None:
    old: Json = {"range": {"at": {"lt": now() - KEPT}}}
    empty = {"bool": {"filter": [{"term": {"kind": THREAD}}, {"term": {"live": 0}}]}}
    kept = {"bool": {"should": [{"terms": {"kind": [GONE, END, INTENT]}}, empty]}}
    if not client.search({"query": {"bool": {"filter": [old, kept]}}, "size": 1, "_source": False}):
        return
    _sweep_intents(client, old)
    query = {"bool": {"filter": [{"terms": {"kind": [GONE, END]}}, old]}}
    client.send("POST", f"{client.index}/_delete_by_query", {"query": query}, conflicts="proceed", refresh="true")
    _sweep_threads(client, old)


def _sweep_intents(client: Client, old: Json) -> None:
    """Copies that were begun, and never became visible."""
    body = {"query": {"bool": {"filter": [{"term": {"kind": INTENT}}, old]}}, "sort": [{"batch": "asc"}]}
    for hits in client.pages(body):
        found = client.get_threads(hit.source["thread"] for hit in hits)
        for hit in hits:
            thread, batch = hit.source["thread"], hit.source["batch"]
            doc = found.get(thread)
            if doc is not None and thread_state("", doc.source).batch == batch:
                client.write(thread, [Write("delete", hit.id, only=hit)])
            else:
                drop_batch(client, thread, batch)


def _sweep_threads(client: Client, old: Json) -> None:
    """Documents of threads that have nothing left. No handle remembers them any more."""
    body = {"query": {"bool": {"filter": [{"term": {"kind": THREAD}}, {"term": {"live": 0}}, old]}},
            "sort": [{"thread": "asc"}]}  # fmt: skip
    for hits in client.pages(body):
        for hit in hits:
            thread = hit.source["thread"]
            rest = {"bool": {"filter": [{"term": {"thread": thread}}], "must_not": [{"term": {"kind": THREAD}}]}}
            if not client.search({"query": rest, "size": 1, "_source": False}, thread):
                client.write(thread, [Write("delete", hit.id, only=hit)])
