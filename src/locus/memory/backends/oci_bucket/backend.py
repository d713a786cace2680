"""`OCIBucketBackend`, and the factory that `oci://` URLs call.

The objects, their names and how a save becomes one of them are the same for every cloud: see `objects.engine`.
"""

from __future__ import annotations

from typing import Any

from locus.memory.backends.objects.backend import ObjectCheckpointStore, ObjectVerbs
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.oci_bucket.client import OCIObjectStore
from locus.memory.backends.oci_bucket.config import OCIConfig
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.arguments import taking


class OCIBucketBackend(ObjectVerbs, Checkpointer):
    """Keeps `AgentState` in an existing bucket. You can give it to an `Agent` as it is.

    Requests are signed with a profile of the configuration file (`auth_type` "api_key" or "security_token"), or
    as what the program runs on: "instance_principal", "resource_principal". `retry_strategy` is one of the
    SDK's (`oci.retry`); without it, throttling and failures are tried again for some seconds. Threads cannot
    expire here, so `ttl_seconds` is refused: use `vacuum`.
    """

    @taking(OCIConfig)
    def __init__(self, config: OCIConfig) -> None:
        self.bucket_name, self.namespace, self.prefix = config.bucket_name, config.namespace, config.prefix
        self.profile_name, self.auth_type, self.region = config.profile_name, config.auth_type, config.region
        self.retry_strategy, self.ttl_seconds = config.retry_strategy, config.ttl_seconds
        engine = ObjectEngine(OCIObjectStore(config))
        super().__init__(ObjectCheckpointStore(engine, ttl_seconds=config.ttl_seconds, cache_mb=config.cache_mb))

    def __repr__(self) -> str:
        return f"OCIBucketBackend({self.bucket_name!r}, {self.namespace!r}, {self.prefix!r})"


def from_location(location: str = "", **options: Any) -> OCIBucketBackend:
    """`oci://namespace/bucket/prefix`, with options by keyword, or `?region=…&profile_name=…` in the URL."""
    return OCIBucketBackend(**OCIConfig.options_in(f"oci:{location}", **options))
