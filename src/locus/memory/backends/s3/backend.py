"""`S3Backend`, and what an `s3://` URL opens.

The objects, their names and how a save becomes one of them are the same for every cloud: see `objects.engine`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import SecretStr

from locus.memory.backends.objects.backend import ObjectCheckpointStore
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.objects.remove import GRACE
from locus.memory.backends.s3.client import S3ObjectStore
from locus.memory.backends.s3.config import PREFIX, AddressingStyle, S3Config, options_from_url
from locus.memory.checkpointer import Checkpointer
from locus.memory.storage import StorageBackend


class S3Backend(StorageBackend):
    """Threads in an S3 bucket, as plain dicts; `s3_checkpointer(bucket)` keeps `AgentState` there.

    Credentials, region and endpoint that you do not give are found where AWS's own tools find them: environment
    variables, the shared files (`profile_name` chooses a part of them), the machine's or the container's role.
    `addressing_style` "path" puts the bucket into the path and "virtual" into the host's name; "auto" is "path"
    wherever an endpoint is given. `timeout` is for one request, in seconds. A request that fails for a passing reason
    is sent again up to `max_retries` times. Threads cannot expire here, so `ttl_seconds` is refused: use `vacuum`.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = PREFIX,
        *,
        endpoint_url: str | None = None,
        region_name: str | None = None,
        aws_access_key_id: str | None = None,
        aws_secret_access_key: str | SecretStr | None = None,
        aws_session_token: str | SecretStr | None = None,
        profile_name: str | None = None,
        addressing_style: AddressingStyle = "auto",
        timeout: float = 30.0,
        max_retries: int = 4,
        max_connections: int = 64,
        ttl_seconds: float | None = None,
    ) -> None:
        config = S3Config.from_options(
            bucket,
            prefix,
            endpoint_url=endpoint_url,
            region_name=region_name,
            aws_access_key_id=aws_access_key_id,
            aws_secret_access_key=aws_secret_access_key,
            aws_session_token=aws_session_token,
            profile_name=profile_name,
            addressing_style=addressing_style,
            timeout=timeout,
            max_retries=max_retries,
            max_connections=max_connections,
        )
        self.bucket, self.prefix = config.bucket, config.prefix
        self._store = ObjectCheckpointStore(ObjectEngine(S3ObjectStore(config)), ttl_seconds=ttl_seconds)
        super().__init__(self._store)

    async def sweep(self, grace: timedelta = GRACE) -> int:
        """Remove what deletions, merges and crashes have left; return how many objects were removed.

        `vacuum` does it, too. Objects younger than `grace` that a running program may rely on stay until a later
        sweep. Interrupting it does no harm, and neither do two of them at once.
        """
        return await self._store.sweep(grace)

    def __repr__(self) -> str:
        return f"S3Backend({self.bucket!r}, {self.prefix!r})"


def from_location(location: str = "", **options: Any) -> Checkpointer:
    """`"s3://bucket/prefix"`, with options by keyword, or `?endpoint_url=…&region_name=…` in the URL."""
    from locus.memory.backends.adapters import s3_checkpointer

    bucket, in_url = options_from_url(location)
    return s3_checkpointer(bucket, **{**in_url, **options})
