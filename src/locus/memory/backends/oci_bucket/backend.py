"""`OCIBucketBackend`, and what an `oci://` URL opens.

The objects, their names and how a save becomes one of them are the same for every cloud: see `objects.engine`.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from locus.memory.backends.objects.backend import ObjectCheckpointStore
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.objects.remove import GRACE
from locus.memory.backends.oci_bucket.client import OCIObjectStore
from locus.memory.backends.oci_bucket.config import DEFAULT_PREFIX, OCIConfig, options_from_url
from locus.memory.checkpointer import Checkpointer


class OCIBucketBackend(Checkpointer):
    """Keeps `AgentState` in an existing bucket. You can give it to an `Agent` as it is.

    Requests are signed with a profile of the configuration file (`auth_type` "api_key" or "security_token"), or
    as what the program runs on: "instance_principal", "resource_principal". `retry_strategy` is one of the
    SDK's (`oci.retry`); without it, throttling and failures are tried again for some seconds. Threads cannot
    expire here, so `ttl_seconds` is refused: use `vacuum`.
    """

    def __init__(
        self,
        bucket_name: str,
        namespace: str,
        prefix: str = DEFAULT_PREFIX,
        profile_name: str = "DEFAULT",
        auth_type: str = "api_key",
        region: str | None = None,
        retry_strategy: Any = None,
        *,
        config_file: str | Path | None = None,
        service_endpoint: str | None = None,
        timeout: float | tuple[float, float] = (10.0, 60.0),
        max_connections: int = 16,
        ttl_seconds: float | None = None,
    ) -> None:
        config = OCIConfig.from_options(
            bucket_name,
            namespace,
            prefix,
            profile_name=profile_name,
            auth_type=auth_type,
            region=region,
            retry_strategy=retry_strategy,
            config_file=config_file,
            service_endpoint=service_endpoint,
            timeout=timeout,
            max_connections=max_connections,
        )
        self.bucket_name, self.namespace, self.prefix = config.bucket_name, config.namespace, config.prefix
        self._store = ObjectCheckpointStore(ObjectEngine(OCIObjectStore(config)), ttl_seconds=ttl_seconds)
        super().__init__(self._store)

    async def sweep(self, grace: timedelta = GRACE) -> int:
        """Remove what deletions, merges and crashes have left; return how many objects were removed.

        `vacuum` does it, too. Objects younger than `grace` that a running program may rely on stay until a later
        sweep. Interrupting it does no harm, and neither do two of them at once.
        """
        return await self._store.sweep(grace)

    def __repr__(self) -> str:
        return f"OCIBucketBackend({self.bucket_name!r}, {self.namespace!r}, {self.prefix!r})"


def from_location(location: str = "", **options: Any) -> OCIBucketBackend:
    """`oci://namespace/bucket/prefix`, with options by keyword, or `?region=…&profile_name=…` in the URL."""
    bucket, namespace, in_url = options_from_url(location)
    return OCIBucketBackend(bucket, namespace, **{**in_url, **options})
