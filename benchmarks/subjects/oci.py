"""OCI Object Storage: the stand-in of the tests, on this machine, as there is no server of Oracle's to be had.

So the times are those of Oracle's SDK, of Python and of a small server; the network and the service, which are
most of a request to the cloud, are missing on both sides. The ratios and the numbers of requests hold.
"""

from __future__ import annotations

import asyncio
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks.subjects.base import Occupied, Subject
from benchmarks.subjects.floors import Floor
from locus.extras import require
from locus.memory.backends.oci_bucket.backend import OCIBucketBackend
from locus.memory.checkpointer import Checkpointer
from tests.servers.oci.server import OCIServer


@cache
def shared_server() -> OCIServer:
    """One for all; it ends with this process."""
    server = OCIServer(Path(tempfile.mkdtemp(prefix="locus-bench-oci-")) / "server", durable=True, key_bits=2048)
    server.start()
    return server


class OCIFloor(Floor):
    """One `put_object` of the SDK for each text, on a worker thread."""

    def __init__(self, server: OCIServer, prefix: str) -> None:
        self._server = server
        self._prefix = prefix
        self._numbers: dict[str, int] = {}
        self._worker = ThreadPoolExecutor(max_workers=1)
        self._client = sdk_client(server)

    async def append(self, thread_id: str, body: str) -> None:
        await asyncio.get_running_loop().run_in_executor(self._worker, self._append, thread_id, body)

    def _append(self, thread_id: str, body: str) -> None:
        number = self._numbers[thread_id] = self._numbers.get(thread_id, 0) + 1
        place = (self._server.namespace, self._server.bucket, f"{self._prefix}{thread_id}/{number:06}")
        self._client.put_object(*place, body.encode())

    def stored_bytes(self) -> int:
        return stored_bytes(self._client, self._server, self._prefix)

    async def close(self) -> None:
        self._worker.shutdown()
        self._client.base_client.session.close()


class OCISubject(Subject):
    """Occupied: the sizes of all objects under the prefix."""

    name = "oci"
    cold_load_limit = 3.0
    longest_thread = 1_000
    save_limit = 2.0
    stored_limit = 2.5

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server = shared_server()
        self._prefix = f"{uuid4().hex}/"
        self._client = sdk_client(self._server)

    def open(self) -> Checkpointer:
        return OCIBucketBackend(
            self._server.bucket,
            self._server.namespace,
            f"{self._prefix}ours/",
            config_file=self._server.config_file,
            service_endpoint=self._server.endpoint,
        )

    def floor(self) -> Floor:
        return OCIFloor(self._server, f"{self._prefix}floor/")

    def occupied(self) -> Occupied:
        return Occupied(stored_bytes(self._client, self._server, f"{self._prefix}ours/"))

    async def remove(self) -> None:
        self._client.base_client.session.close()


def sdk_client(server: OCIServer) -> Any:
    oci = require("oci", "oci")
    return oci.object_storage.ObjectStorageClient(
        oci.config.from_file(str(server.config_file)), service_endpoint=server.endpoint
    )


def stored_bytes(client: Any, server: OCIServer, prefix: str) -> int:
    size, start = 0, None
    while True:
        page = client.list_objects(server.namespace, server.bucket, prefix=prefix, start=start, fields="name,size").data
        size += sum(int(item.size) for item in page.objects)
        start = page.next_start_with
        if start is None:
            return size
