"""Threads in a bucket of OCI Object Storage, through Oracle's own SDK. Needs the extra `oci`.

The objects, their keys and how a save becomes one of them are the same for every cloud: see `object_engine`.
What is OCI's own stands beside this file: `oci_bucket_store` (five requests, on a pool of threads),
`oci_bucket_client` (Oracle's SDK, who signs, what is sent again) and `oci_bucket_errors`.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from locus.errors import ConfigurationError
from locus.memory.backends.objects.backend import ObjectCheckpointStore
from locus.memory.backends.objects.client import checked_prefix
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.objects.remove import GRACE
from locus.memory.backends.oci_bucket.client import Access, OCIObjectStore
from locus.memory.checkpointer import Checkpointer
from locus.oci_auth import check_auth_type

DEFAULT_PREFIX = "locus/checkpoints/"

_IN_URLS = {"profile_name", "auth_type", "region", "config_file", "service_endpoint"}


class OCIBucketBackend(Checkpointer):
    """Keeps `AgentState` in a bucket that is there already; it can be given to an `Agent` as it is.

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
        for name, value in (("bucket_name", bucket_name), ("namespace", namespace), ("profile_name", profile_name)):
            if not isinstance(value, str) or not value:
                raise ConfigurationError(f"{name} is text, and not empty, got {value!r:.80}")
        check_auth_type(auth_type, "auth_type")
        if retry_strategy is not None and not callable(getattr(retry_strategy, "make_retrying_call", None)):
            raise ConfigurationError(f"retry_strategy is one of oci.retry, got {retry_strategy!r:.80}")
        if not isinstance(max_connections, int) or max_connections < 1:
            raise ConfigurationError(f"max_connections is a whole number from 1 on, got {max_connections!r:.80}")
        self.bucket_name, self.namespace, self.prefix = bucket_name, namespace, checked_prefix(prefix, DEFAULT_PREFIX)
        access = Access(
            auth_type, profile_name, config_file, region, checked_endpoint(service_endpoint), checked_timeout(timeout)
        )
        store = OCIObjectStore(
            access,
            namespace,
            bucket_name,
            self.prefix,
            retry_strategy=retry_strategy,
            max_connections=max_connections,
        )
        self._objects = ObjectCheckpointStore(ObjectEngine(store), ttl_seconds=ttl_seconds)
        super().__init__(self._objects)

    async def sweep(self, grace: timedelta = GRACE) -> int:
        """Remove what deletions, merges and crashes have left; return how many objects were removed.

        `vacuum` does it, too. Objects younger than `grace` that a running program may rely on stay until a later
        sweep. Interrupting it does no harm, and neither do two of them at once.
        """
        return await self._objects.sweep(grace)

    def __repr__(self) -> str:
        return f"OCIBucketBackend({self.bucket_name!r}, {self.namespace!r}, {self.prefix!r})"


def from_location(location: str = "", **options: Any) -> OCIBucketBackend:
    """`oci://namespace/bucket/prefix`, with options by keyword, or `?region=…&profile_name=…` in the URL."""
    parts = urlsplit(f"oci:{location}")
    bucket, _, prefix = parts.path.removeprefix("/").partition("/")
    if not parts.netloc or not bucket or parts.fragment:
        raise ConfigurationError("write oci://namespace/bucket, or oci://namespace/bucket/prefix")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted({*given} - _IN_URLS):
        raise ConfigurationError(f"this URL may say {', '.join(sorted(_IN_URLS))}, but not {', '.join(unknown)}")
    where = {"prefix": unquote(prefix)} if prefix else {}
    return OCIBucketBackend(unquote(bucket), unquote(parts.netloc), **{**where, **given, **options})


def checked_endpoint(endpoint: str | None) -> str | None:
    """The SDK adds paths to it, and wants none in it."""
    if endpoint is None:
        return None
    parts = urlsplit(endpoint) if isinstance(endpoint, str) else urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.path.strip("/"):
        raise ConfigurationError("service_endpoint is a URL with a host and no path, such as https://host.example")
    return f"{parts.scheme}://{parts.netloc}"


def checked_timeout(timeout: float | tuple[float, float]) -> tuple[float, float]:
    """Seconds to connect and seconds between two bytes; one number is for both."""
    pair = timeout if isinstance(timeout, tuple) else (timeout, timeout)
    if len(pair) != 2 or not all(isinstance(value, int | float) and 0 < value < 1e6 for value in pair):
        raise ConfigurationError(f"timeout is one number of seconds, or two (to connect, to read), got {timeout!r:.80}")
    return float(pair[0]), float(pair[1])
