"""S3, and whatever speaks it with conditional writes: MinIO, Cloudflare R2, Ceph, SeaweedFS.

The objects, their keys and how a save becomes one of them are the same for every cloud: see `object_engine`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import SecretStr

from locus.errors import ConfigurationError
from locus.extras import require
from locus.memory.backends.objects.backend import ObjectCheckpointStore
from locus.memory.backends.objects.client import checked_prefix
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.objects.remove import GRACE
from locus.memory.backends.s3.client import Access, S3ObjectStore
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.arguments import checked_seconds
from locus.memory.storage import StorageBackend

PREFIX = "locus/checkpoints/"
_DEFAULT_REGION = "us-east-1"
_IN_URLS = frozenset({"endpoint_url", "region_name", "profile_name", "addressing_style"})


class S3Backend(StorageBackend):
    """Threads in an S3 bucket, as plain dicts; `s3_checkpointer(bucket)` keeps `AgentState` there.

    Credentials, region and endpoint that are not given are found where AWS's own tools find them: environment
    variables, the shared files (`profile_name` chooses a part of them), the machine's or the container's role.
    `addressing_style` "path" puts the bucket into the path and "virtual" into the host's name; "auto" is "path"
    wherever an endpoint is given. `timeout` is for one request, in seconds; what may pass is tried again
    `max_retries` times. Threads cannot expire here, so `ttl_seconds` is refused: use `vacuum`.
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
        addressing_style: Literal["auto", "path", "virtual"] = "auto",
        timeout: float = 30.0,
        max_retries: int = 4,
        max_connections: int = 64,
        ttl_seconds: float | None = None,
    ) -> None:
        if not isinstance(bucket, str) or not bucket or "/" in bucket:
            raise ConfigurationError(f"bucket is the name of an S3 bucket, got {bucket!r:.80}")
        if addressing_style not in ("auto", "path", "virtual"):
            raise ConfigurationError(f'addressing_style is "auto", "path" or "virtual", got {addressing_style!r:.40}')
        checked_seconds(timeout, "timeout")
        if (
            not isinstance(max_retries, int)
            or max_retries < 0
            or not isinstance(max_connections, int)
            or (max_connections < 1)
        ):
            raise ConfigurationError("max_retries is a number from 0 on, and max_connections one from 1 on")
        session = _session(profile_name)
        endpoint = _endpoint(endpoint_url or _from_environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))
        region = region_name or session.get_config_variable("region") or _DEFAULT_REGION
        self.bucket = bucket
        self.prefix = checked_prefix(prefix, PREFIX)
        access = Access(
            bucket=bucket,
            endpoint_url=endpoint or f"https://s3.{region}.amazonaws.com",
            region_name=region,
            path_style=addressing_style == "path" or (addressing_style == "auto" and (bool(endpoint) or "." in bucket)),
            credentials=_credentials(session, aws_access_key_id, aws_secret_access_key, aws_session_token),
            timeout=timeout,
            max_retries=max_retries,
            max_connections=max_connections,
            ca_bundle=_ca_bundle(session),
        )
        self._store = ObjectCheckpointStore(ObjectEngine(S3ObjectStore(access, self.prefix)), ttl_seconds=ttl_seconds)
        super().__init__(self._store)

    async def sweep(self, grace: timedelta = GRACE) -> int:
        """Remove what deletions, merges and crashes have left; return how many objects were removed.

        `vacuum` does it, too. Objects younger than `grace` that a running program may rely on stay until a later
        sweep. Interrupting it does no harm, and neither do two of them at once.
        """
        return await self._store.sweep(grace)

    def __repr__(self) -> str:
        return f"S3Backend({self.bucket!r}, {self.prefix!r})"


def _session(profile_name: str | None) -> Any:
    found = require("botocore.session", "s3").Session(profile=profile_name)
    if profile_name is not None and profile_name not in found.available_profiles:
        raise ConfigurationError(f"there is no profile {profile_name!r:.80} in the shared AWS files")
    return found


def _ca_bundle(session: Any) -> str | None:
    """The file of `AWS_CA_BUNDLE`, or of the profile's `ca_bundle`, which a server of one's own may need."""
    found = session.get_config_variable("ca_bundle")
    if found and not Path(found).is_file():
        raise ConfigurationError(f"AWS_CA_BUNDLE, or ca_bundle of the profile, names {found!r:.80}, which is no file")
    return found or None


def _from_environment(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _endpoint(url: str | None) -> str | None:
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigurationError("endpoint_url must begin with http:// or https://, and name a host")
    if parts.username or parts.password:
        raise ConfigurationError("endpoint_url holds credentials: give aws_access_key_id and aws_secret_access_key")
    return url.rstrip("/")


def _credentials(
    session: Any, key: str | None, secret: str | SecretStr | None, token: str | SecretStr | None
) -> Callable[[], Any]:
    plain, session_token = _revealed(secret), _revealed(token)
    if (key is None) != (plain is None):
        raise ConfigurationError("give aws_access_key_id and aws_secret_access_key together, or neither")
    errors = require("botocore.exceptions", "s3")

    def find() -> Any:
        if key is not None:
            return require("botocore.credentials", "s3").Credentials(key, plain, session_token)
        found = session.get_credentials()
        if found is None:
            raise errors.NoCredentialsError()
        return found

    return find


def _revealed(secret: str | SecretStr | None) -> str | None:
    return secret.get_secret_value() if isinstance(secret, SecretStr) else secret


def from_location(location: str = "", **options: Any) -> Checkpointer:
    """`"s3://bucket/prefix"`, and with `?endpoint_url=…&region_name=…` behind it."""
    from locus.memory.backends.adapters import s3_checkpointer

    parts = urlsplit(location)
    if parts.username or parts.password or "@" in parts.netloc:
        raise ConfigurationError(
            "credentials do not belong into a URL: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give options"
        )
    if parts.scheme or not parts.netloc:
        raise ConfigurationError("write s3://bucket/prefix")
    found = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(found.keys() - _IN_URLS)
    if unknown:
        raise ConfigurationError(f"an s3:// URL knows {', '.join(sorted(_IN_URLS))}, not {', '.join(unknown)}")
    prefix = unquote(parts.path).strip("/")
    if prefix:
        options.setdefault("prefix", prefix)
    return s3_checkpointer(unquote(parts.netloc), **{**found, **options})
