"""Objects under a prefix of an OCI bucket, for the object engine.

Oracle's SDK blocks, so requests are made on a bounded pool of threads, and no event loop ever waits for one.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from operator import methodcaller
from typing import Any

from locus.errors import CheckpointError
from locus.extras import require
from locus.memory.backends.objects.client import PAGE, Listed, ObjectStore, together
from locus.memory.backends.oci_bucket.client import EXTRA, Access, Connection, Connector
from locus.memory.backends.oci_bucket.oci_bucket_errors import refused, unreached
from locus.memory.runtime.worker_pool import WorkerPool


class OCIObjectStore(ObjectStore):
    """The five requests, from any event loop."""

    def __init__(
        self,
        access: Access,
        namespace: str,
        bucket: str,
        prefix: str,
        *,
        retry_strategy: Any = None,
        max_connections: int = 16,
    ) -> None:
        super().__init__()
        self._prefix = prefix
        self._namespace, self._bucket = namespace, bucket
        connector = Connector(access, namespace, bucket, retry_strategy)
        self._place = access.service_endpoint or connector.region or "the region of this machine"
        self._pool: WorkerPool[Connection] = WorkerPool("locus-oci", connector, max_connections)
        self._service_error: type[Exception] = require("oci.exceptions", EXTRA).ServiceError
        # What `requests` raises, which the SDK is built on, is an OSError.
        self.driver_errors = (self._service_error, OSError)  # type: ignore[misc]  # known when the SDK is
        self.at_once = max_connections

    @property
    def identity(self) -> str:
        # A bucket's name is unique within a namespace and a region.
        return f"oci:{self._place}/{self._namespace}/{self._bucket}/{self._prefix}"

    def translate(self, error: BaseException) -> CheckpointError:
        if isinstance(error, self._service_error):
            return refused(error, self._namespace, self._bucket)
        return unreached(error, self._place)

    async def put(self, key: str, body: bytes, *, if_absent: bool) -> bool:
        self.requests["put"] += 1
        return await self._pool.run(lambda connection: connection.put(self._prefix + key, body, if_absent=if_absent))

    async def get(self, key: str) -> bytes | None:
        self.requests["get"] += 1
        return await self._pool.run(lambda connection: connection.get(self._prefix + key))

    async def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> builtins.list[Listed]:
        found: builtins.list[Listed] = []
        query: dict[str, Any] = {"prefix": self._prefix + prefix}
        if start_after is not None:
            query["start_after"] = self._prefix + start_after
        while limit is None or len(found) < limit:
            query["limit"] = PAGE if limit is None else min(PAGE, limit - len(found))
            self.requests["list"] += 1
            page, next_start = await self._pool.run(lambda connection: connection.list(**query))
            found += map(self._listed, page)
            if next_start is None:
                break
            query.pop("start_after", None)
            query["start"] = next_start
        return found

    def _listed(self, item: dict[str, Any]) -> Listed:
        name: str = item["name"]
        return Listed(name.removeprefix(self._prefix), item["size"], datetime.fromisoformat(item["timeModified"]))

    async def delete(self, keys: Iterable[str]) -> None:
        names = [self._prefix + key for key in keys]
        batches = [names[start : start + PAGE] for start in range(0, len(names), PAGE)]
        self.requests["delete"] += len(batches)
        await together([partial(self._pool.run, methodcaller("delete_many", batch)) for batch in batches])

    async def close(self) -> None:
        await self._pool.close()
