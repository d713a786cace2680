"""`S3Backend`, and the factory that `s3://` URLs call.

The objects, their names and how a save becomes one of them are the same for every cloud: see `objects.engine`.
"""

from __future__ import annotations

from typing import Any

from locus.memory.backends.objects.backend import ObjectCheckpointStore, ObjectVerbs
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.s3.client import S3ObjectStore
from locus.memory.backends.s3.config import S3Config
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.arguments import taking
from locus.memory.storage import StorageBackend


class S3Backend(ObjectVerbs, StorageBackend):
    """Threads in an S3 bucket, as plain dicts; `s3_checkpointer(bucket)` keeps `AgentState` there.

    Credentials, region and endpoint that you do not give are found where AWS's own tools find them: environment
    variables, the shared files (`profile_name` chooses a part of them), the machine's or the container's role.
    `addressing_style` "path" puts the bucket into the path and "virtual" into the host's name; "auto" is "path"
    wherever an endpoint is given. `timeout` is for one request, in seconds. A request that fails for a passing reason
    is sent again up to `max_retries` times. Threads cannot expire here, so `ttl_seconds` is refused: use `vacuum`.
    """

    @taking(S3Config.from_options)
    def __init__(self, config: S3Config) -> None:
        self.bucket, self.prefix = config.bucket, config.prefix
        self.endpoint_url, self.region_name = config.endpoint_url, config.region_name
        self.timeout, self.ttl_seconds = config.timeout, config.ttl_seconds
        engine = ObjectEngine(S3ObjectStore(config))
        super().__init__(ObjectCheckpointStore(engine, ttl_seconds=config.ttl_seconds, cache_mb=config.cache_mb))

    def __repr__(self) -> str:
        return f"S3Backend({self.bucket!r}, {self.prefix!r})"


def from_location(location: str = "", **options: Any) -> Checkpointer:
    """`"s3://bucket/prefix"`, with options by keyword, or `?endpoint_url=…&region_name=…` in the URL."""
    from locus.memory.backends.adapters import StorageBackendAdapter

    return StorageBackendAdapter(S3Backend(**S3Config.options_in(f"s3:{location}", **options)))
