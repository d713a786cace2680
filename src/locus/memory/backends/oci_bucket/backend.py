"""`OCIBucketBackend`, and what an `oci://` URL opens.

The objects, their names and how a save becomes one of them are the same for every cloud: see `objects.engine`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from locus.memory.backends.objects.backend import ObjectCheckpointStore, ObjectVerbs
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.oci_bucket.client import OCIObjectStore
from locus.memory.backends.oci_bucket.config import DEFAULT_PREFIX, OCIConfig
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.arguments import constructor_options


class OCIBucketBackend(ObjectVerbs, Checkpointer):
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
        options = constructor_options(locals(), "ttl_seconds")
        self._open(OCIConfig.from_options(**options), ttl_seconds)

    @classmethod
    def from_config(cls, config: OCIConfig, *, ttl_seconds: float | None = None) -> Self:
        """A backend with these options."""
        backend = cls.__new__(cls)
        backend._open(config, ttl_seconds)
        return backend

    def _open(self, config: OCIConfig, ttl_seconds: float | None) -> None:
        self.bucket_name, self.namespace, self.prefix = config.bucket_name, config.namespace, config.prefix
        super().__init__(ObjectCheckpointStore(ObjectEngine(OCIObjectStore(config)), ttl_seconds=ttl_seconds))

    def __repr__(self) -> str:
        return f"OCIBucketBackend({self.bucket_name!r}, {self.namespace!r}, {self.prefix!r})"


def from_location(location: str = "", *, ttl_seconds: float | None = None, **options: Any) -> OCIBucketBackend:
    """`oci://namespace/bucket/prefix`, with options by keyword, or `?region=…&profile_name=…` in the URL."""
    return OCIBucketBackend.from_config(OCIConfig.from_url(f"oci:{location}", **options), ttl_seconds=ttl_seconds)
