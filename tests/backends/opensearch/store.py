"""A store in OpenSearch for one test: an index of its own, behind a proxy that can be cut."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from locus.memory.backends import opensearch_checkpointer
from locus.memory.backends.opensearch.schema import MAPPING, index_settings
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.ids import digest
from locus.testing.stores import DurableTestStore, Stall, StallTestStore
from tests.backends.stalls import stalling_on_the_way
from tests.servers.proxy import Proxy


def ask(url: str, method: str, path: str, body: Any = None) -> Any:
    """A request to a server, past the backend."""
    lines = isinstance(body, str)
    data = body.encode() if lines else None if body is None else json.dumps(body).encode()
    kind = "application/x-ndjson" if lines else "application/json"
    request = urllib.request.Request(f"{url}/{path}", data, {"content-type": kind}, method=method)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


class OpenSearchStore(DurableTestStore, StallTestStore):
    """An index of its own. With a proxy, handles reach the server through that, and it can be out of reach."""

    def __init__(self, server_url: str, index: str | None = None, proxy: Proxy | None = None) -> None:
        self.server_url = server_url
        self.index = index or f"test-{uuid4().hex[:12]}"
        self._proxy = proxy

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._proxy.port}" if self._proxy else urlsplit(self.server_url).netloc

    @property
    def url(self) -> str:
        return f"opensearch://{self.host}/{self.index}?timeout=20&replicas=0"

    def open(self, *, ttl_seconds: float | None = None, **options: Any) -> Checkpointer:
        return opensearch_checkpointer([self.host], self.index, ttl_seconds=ttl_seconds, replicas=0, **options)

    def open_after_kill(self) -> Checkpointer:
        if self._proxy is not None:
            self._proxy.wait_for_the_dead()
        return self.open()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        return ask(self.server_url, method, path, body)

    def documents(self, thread_id: str | None = None, kind: str | None = None) -> list[dict[str, Any]]:
        """What is stored, as it is stored."""
        self.ask("POST", f"{self.index}/_refresh")
        clauses: list[Any] = [] if thread_id is None else [{"term": {"thread": digest(thread_id)}}]
        if kind is not None:
            clauses.append({"term": {"kind": kind}})
        found = self.ask("POST", f"{self.index}/_search", {"query": {"bool": {"filter": clauses}}, "size": 10_000})
        hits: list[dict[str, Any]] = found["hits"]["hits"]
        return hits

    async def corrupt(self, thread_id: str) -> None:
        """Cut the end off the items of all runs."""
        lines = ""
        for hit in self.documents(thread_id):
            source = hit["_source"]
            runs = source.get("body", {}).get("runs", [])
            for run in runs:
                run["items"] = run["items"][:-2]
            if runs:
                about = {"_index": hit["_index"], "_id": hit["_id"], "routing": hit["_routing"]}
                lines += f"{json.dumps({'index': about})}\n{json.dumps(source)}\n"
        assert lines
        assert not self.ask("POST", "_bulk", lines)["errors"]

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        assert self._proxy is not None, "this store is reached directly"
        self._proxy.refuse()
        self._proxy.cut()
        yield
        self._proxy.accept()

    @asynccontextmanager
    async def stalling(self, seconds: float) -> AsyncIterator[Stall]:
        def open_through(port: int) -> Checkpointer:
            return opensearch_checkpointer([f"127.0.0.1:{port}"], self.index, timeout=seconds, replicas=0)

        server = urlsplit(self.server_url)
        assert server.hostname is not None
        assert server.port is not None
        async with stalling_on_the_way(server.port, open_through, server.hostname) as stall:
            yield stall

    def make(self) -> None:
        """Make the index beforehand. Versions of deleted documents are forgotten at once, so it can be emptied.

        Nobody kills the server meanwhile, so its log need not be on the disk before each answer.
        """
        own = {"gc_deletes": "0ms", "refresh_interval": "-1", "translog.durability": "async"}
        body = {
            "settings": {**index_settings(1, 0), **own},
            "mappings": MAPPING,
            "aliases": {self.index: {}},
        }
        self.ask("PUT", f"{self.index}-v1", body)

    def empty(self) -> None:
        self.ask("POST", f"{self.index}/_refresh")
        everything: Any = {"query": {"match_all": {}}}
        deleted = self.ask("POST", f"{self.index}/_delete_by_query?refresh=true&conflicts=proceed", everything)
        assert not deleted["version_conflicts"]

    def remove(self) -> None:
        self.ask("DELETE", f"{self.index}*")
