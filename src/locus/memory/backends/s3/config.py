"""The options of an S3 bucket: keywords, URLs, the environment and AWS's shared files."""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from locus.errors import ConfigurationError
from locus.extras import require
from locus.hints import check_options
from locus.memory.backends.objects.client import checked_prefix
from locus.memory.model.arguments import CACHE_MB, checked_seconds
from locus.memory.runtime.url import StoreURL, refuse_address

PREFIX = "locus/checkpoints/"
AddressingStyle = Literal["auto", "path", "virtual"]

_DEFAULT_REGION = "us-east-1"
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_URL_OPTIONS: dict[str, Callable[[str], Any]] = {
    "addressing_style": str,
    "endpoint_url": str,
    "profile_name": str,
    "region_name": str,
    "cache_mb": float,
}
_UNKNOWN = "an s3:// URL knows {known}, not {name}"


@dataclass(frozen=True)
class S3Config:
    """The bucket, and how to reach it."""

    bucket: str
    prefix: str
    endpoint_url: str
    region_name: str
    path_style: bool
    credentials: Callable[[], Any]
    """Finds the credentials. May block."""
    timeout: float
    max_retries: int
    max_connections: int
    ca_bundle: str | None = None
    """The file of the authorities to trust; without it, the system's."""
    ttl_seconds: float | None = None
    cache_mb: float = CACHE_MB

    @property
    def bucket_url(self) -> str:
        if self.path_style:
            return f"{self.endpoint_url}/{self.bucket}"
        parts = urlsplit(self.endpoint_url)
        return f"{parts.scheme}://{self.bucket}.{parts.netloc}{parts.path}"

    @classmethod
    def from_options(
        cls,
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
        cache_mb: float = CACHE_MB,
    ) -> S3Config:
        """Check the options of `S3Backend`, and find missing ones in the same places as AWS's own tools."""
        refuse_address(bucket, "bucket")
        if not isinstance(bucket, str) or not bucket or "/" in bucket:
            raise ConfigurationError(f"bucket is the name of an S3 bucket, got {bucket!r:.80}")
        if addressing_style not in ("auto", "path", "virtual"):
            raise ConfigurationError(f'addressing_style is "auto", "path" or "virtual", got {addressing_style!r:.40}')
        checked_seconds(timeout, "timeout")
        if (
            not isinstance(max_retries, int)
            or max_retries < 0
            or not isinstance(max_connections, int)
            or max_connections < 1
        ):
            raise ConfigurationError("max_retries is a number from 0 on, and max_connections one from 1 on")
        session = _botocore_session(profile_name)
        endpoint = _checked_endpoint(endpoint_url or next(filter(None, map(os.environ.get, _ENDPOINT_VARIABLES)), None))
        region = region_name or session.get_config_variable("region") or _DEFAULT_REGION
        return cls(
            bucket=bucket,
            prefix=checked_prefix(prefix, PREFIX),
            endpoint_url=endpoint or f"https://s3.{region}.amazonaws.com",
            region_name=region,
            path_style=addressing_style == "path" or (addressing_style == "auto" and (bool(endpoint) or "." in bucket)),
            credentials=_credentials(session, aws_access_key_id, aws_secret_access_key, aws_session_token),
            timeout=timeout,
            max_retries=max_retries,
            max_connections=max_connections,
            ca_bundle=_ca_bundle(session),
            ttl_seconds=ttl_seconds,
            cache_mb=cache_mb,
        )

    @classmethod
    def from_url(cls, url: str, **options: Any) -> S3Config:
        """Make a config from a URL and options, which override those in the URL."""
        return cls.from_options(**cls.options_in(url, **options))

    @classmethod
    def options_in(cls, url: str, **options: Any) -> dict[str, Any]:
        """Read the options in `s3://bucket/prefix?endpoint_url=…&region_name=…`, and add others, which win."""
        check_options(options, cls.from_options, "S3Backend", but=("bucket",))
        parts = StoreURL(url, "write s3://bucket/prefix", has_user=False)
        if parts.user is not None:
            raise ConfigurationError(
                "credentials do not belong into a URL: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give options"
            )
        if not parts.hosts:
            raise ConfigurationError("write s3://bucket/prefix")
        in_url = parts.options(_URL_OPTIONS, _UNKNOWN)
        if prefix := unquote(parts.path).strip("/"):
            in_url["prefix"] = prefix
        return {"bucket": unquote(parts.hosts)} | in_url | options


def _botocore_session(profile_name: str | None) -> Any:
    hooks = copy(_botocore_hooks())
    session = require("botocore.session", "s3").Session(
        profile=profile_name, event_hooks=hooks, include_builtin_handlers=False
    )
    if profile_name is not None and profile_name not in session.available_profiles:
        raise ConfigurationError(f"there is no profile {profile_name!r:.80} in the shared AWS files")
    return session


@cache
def _botocore_hooks() -> Any:
    """The hooks that botocore gives every session of its own: registering them takes most of a handle's opening."""
    hooks = require("botocore.hooks", "s3").HierarchicalEmitter()
    require("botocore.session", "s3").Session(event_hooks=hooks)
    return hooks


def _ca_bundle(session: Any) -> str | None:
    """The file of `AWS_CA_BUNDLE`, or of the profile's `ca_bundle`, which a private server may need."""
    path = session.get_config_variable("ca_bundle")
    if path and not Path(path).is_file():
        raise ConfigurationError(f"AWS_CA_BUNDLE, or ca_bundle of the profile, names {path!r:.80}, which is no file")
    return path or None


def _checked_endpoint(url: str | None) -> str | None:
    if url is None:
        return None
    refusal = "endpoint_url must begin with http:// or https://, and name a host"
    parts = StoreURL(url, refusal)
    if parts.scheme not in ("http", "https") or not parts.host or parts.query or parts.fragment:
        raise ConfigurationError(refusal)
    if parts.user is not None:
        raise ConfigurationError("endpoint_url holds credentials: give aws_access_key_id and aws_secret_access_key")
    return url.rstrip("/")


def _credentials(
    session: Any, key: str | None, secret: str | SecretStr | None, token: str | SecretStr | None
) -> Callable[[], Any]:
    plain_secret, plain_token = _revealed(secret), _revealed(token)
    if (key is None) != (plain_secret is None):
        raise ConfigurationError("give aws_access_key_id and aws_secret_access_key together, or neither")
    errors = require("botocore.exceptions", "s3")

    def find() -> Any:
        if key is not None:
            return require("botocore.credentials", "s3").Credentials(key, plain_secret, plain_token)
        credentials = session.get_credentials()
        if credentials is None:
            raise errors.NoCredentialsError()
        return credentials

    return find


def _revealed(secret: str | SecretStr | None) -> str | None:
    return secret.get_secret_value() if isinstance(secret, SecretStr) else secret
