"""OpenSearch on this machine, over loopback, with its own default durability: an fsync for every request."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks.subjects.base import Occupied, Subject
from benchmarks.subjects.floors import Floor
from locus.extras import require
from locus.memory.backends import opensearch_checkpointer
from locus.memory.checkpointer import Checkpointer
from tests.servers.opensearch import OpenSearchServer

opensearchpy = require("opensearchpy", "opensearch")

_NOT_INDEXED = {"type": "keyword", "index": False, "doc_values": False}


@cache
def shared_server() -> OpenSearchServer:
    """One for all; it ends with this process."""
    server = OpenSearchServer(Path(tempfile.mkdtemp(prefix="locus-bench-opensearch-")) / "server", durable=True)
    server.start()
    return server


def ask(server: OpenSearchServer, method: str, path: str, body: Any = None) -> Any:
    client = opensearchpy.OpenSearch([server.url], timeout=60)
    try:
        return client.transport.perform_request(method, f"/{path}", body=body)
    finally:
        client.close()


class OpenSearchFloor(Floor):
    """One bulk request with one document that nothing is indexed of, without a refresh, with the async client."""

    def __init__(self, server: OpenSearchServer, index: str) -> None:
        self._server = server
        self._index = index
        self._numbers: dict[str, int] = {}
        self._client: Any = None
        body = {
            "settings": {"number_of_shards": 1, "number_of_replicas": 0},
            "mappings": {"dynamic": "strict", "properties": {"body": _NOT_INDEXED}},
        }
        ask(server, "PUT", index, body)

    async def append(self, thread_id: str, body: str) -> None:
        if self._client is None:
            self._client = opensearchpy.AsyncOpenSearch([self._server.url], timeout=60, maxsize=32)
        number = self._numbers[thread_id] = self._numbers.get(thread_id, 0) + 1
        about = {"create": {"_id": f"{thread_id}.{number}"}}
        lines = f"{json.dumps(about)}\n{json.dumps({'body': body})}\n"
        answer = await self._client.bulk(body=lines, index=self._index)
        assert not answer["errors"]

    def stored_bytes(self) -> int:
        return stored_bytes(self._server, self._index)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


class OpenSearchSubject(Subject):
    """Occupied: the segments after they were merged into one, and without its full-text index."""

    name = "opensearch"
    cold_load_limit = 3.0
    longest_thread = 1_000
    save_limit = 2.0
    many_limit = 0.5

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server = shared_server()
        self._index = f"b{uuid4().hex[:12]}"

    def open(self) -> Checkpointer:
        return opensearch_checkpointer([f"127.0.0.1:{self._server.port}"], self._index, replicas=0)

    def floor(self) -> Floor:
        return OpenSearchFloor(self._server, f"{self._index}-floor")

    def occupied(self) -> Occupied:
        whole = stored_bytes(self._server, f"{self._index}-v1")
        copy = f"{self._index}-copy"
        mapping = ask(self._server, "GET", f"{self._index}-v1/_mapping")[f"{self._index}-v1"]["mappings"]
        del mapping["_source"]
        settings = {"number_of_shards": 1, "number_of_replicas": 0}
        ask(self._server, "PUT", copy, {"settings": settings, "mappings": mapping})
        # Words are not in the source, so a copy has everything but them.
        ask(
            self._server,
            "POST",
            "_reindex?refresh=true&timeout=50s",
            {"source": {"index": f"{self._index}-v1"}, "dest": {"index": copy}},
        )
        content = stored_bytes(self._server, copy)
        ask(self._server, "DELETE", copy)
        return Occupied(content, max(0, whole - content))

    async def remove(self) -> None:
        ask(self._server, "DELETE", f"{self._index}*")


def stored_bytes(server: OpenSearchServer, index: str) -> int:
    """The size of the one segment that everything is merged into."""
    # What a server keeps of each document to bring a replica up to date goes with a merge after a flush.
    ask(server, "POST", f"{index}/_flush?force=true&wait_if_ongoing=true")
    ask(server, "POST", f"{index}/_forcemerge?max_num_segments=1&flush=true")
    ask(server, "POST", f"{index}/_refresh")
    found = ask(server, "GET", f"{index}/_segments")["indices"][index]["shards"]["0"][0]["segments"].values()
    return sum(int(segment["size_in_bytes"]) for segment in found if segment["search"])
