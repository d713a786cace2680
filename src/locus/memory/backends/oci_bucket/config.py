"""The options of a bucket in OCI Object Storage, and its URLs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from locus.errors import ConfigurationError
from locus.hints import check_options
from locus.memory.backends.objects.client import checked_prefix
from locus.memory.model.arguments import CACHE_MB
from locus.memory.runtime.url import StoreURL, refuse_address
from locus.oci_auth import check_auth_type

DEFAULT_PREFIX = "locus/checkpoints/"

_URL_OPTIONS: dict[str, Callable[[str], Any]] = {
    "auth_type": str,
    "config_file": str,
    "profile_name": str,
    "region": str,
    "service_endpoint": str,
    "cache_mb": float,
}
_UNKNOWN = "this URL may say {known}, but not {name}"
_SYNTAX = "write oci://namespace/bucket, or oci://namespace/bucket/prefix"


@dataclass(frozen=True)
class OCIConfig:
    """The bucket, and who signs the requests for it."""

    bucket_name: str
    namespace: str
    prefix: str = DEFAULT_PREFIX
    profile_name: str = "DEFAULT"
    auth_type: str = "api_key"
    region: str | None = None
    retry_strategy: Any = None
    _: KW_ONLY
    config_file: str | Path | None = None
    service_endpoint: str | None = None
    timeout: float | tuple[float, float] = (10.0, 60.0)
    """The seconds to connect, and the seconds between two bytes; one number is for both."""
    max_connections: int = 16
    ttl_seconds: float | None = None
    cache_mb: float = CACHE_MB

    def __post_init__(self) -> None:
        for name in ("bucket_name", "namespace", "profile_name"):
            value = getattr(self, name)
            refuse_address(value, name)
            if not isinstance(value, str) or not value:
                raise ConfigurationError(f"{name} is text, and not empty, got {value!r:.80}")
        check_auth_type(self.auth_type, "auth_type")
        retries, most = self.retry_strategy, self.max_connections
        if retries is not None and not callable(getattr(retries, "make_retrying_call", None)):
            raise ConfigurationError(f"retry_strategy is one of oci.retry, got {retries!r:.80}")
        if not isinstance(most, int) or most < 1:
            raise ConfigurationError(f"max_connections is a whole number from 1 on, got {most!r:.80}")
        # The form in which the rest of the backend uses them.
        object.__setattr__(self, "prefix", checked_prefix(self.prefix, DEFAULT_PREFIX))
        object.__setattr__(self, "service_endpoint", checked_endpoint(self.service_endpoint))
        object.__setattr__(self, "timeout", checked_timeout(self.timeout))

    @classmethod
    def from_url(cls, url: str, **options: Any) -> OCIConfig:
        """Make a config from a URL and options, which override those in the URL."""
        return cls(**cls.options_in(url, **options))

    @classmethod
    def options_in(cls, url: str, **options: Any) -> dict[str, Any]:
        """Read the options in `oci://namespace/bucket/prefix?region=…`, and add others, which override them."""
        check_options(options, cls, "OCIBucketBackend", but=("bucket_name", "namespace"))
        parts = StoreURL(url, _SYNTAX, has_user=False)
        bucket, _, prefix = parts.path.removeprefix("/").partition("/")
        if not parts.hosts or parts.user is not None or not bucket or parts.fragment:
            raise ConfigurationError(_SYNTAX)
        in_url = parts.options(_URL_OPTIONS, _UNKNOWN)
        if prefix:
            in_url["prefix"] = unquote(prefix)
        return {"bucket_name": unquote(bucket), "namespace": unquote(parts.hosts)} | in_url | options


def checked_endpoint(endpoint: str | None) -> str | None:
    """Check the endpoint. It has no path, because the SDK adds its own."""
    if endpoint is None:
        return None
    refusal = "service_endpoint is a URL with a host and no path, such as https://host.example"
    parts = StoreURL(endpoint, refusal)
    if parts.scheme not in ("http", "https") or not parts.host or parts.user is not None or parts.path.strip("/"):
        raise ConfigurationError(refusal)
    return f"{parts.scheme}://{parts.hosts}"


def checked_timeout(timeout: float | tuple[float, float]) -> tuple[float, float]:
    """Read the seconds to connect and those between two bytes; one number is for both."""
    pair = timeout if isinstance(timeout, tuple) else (timeout, timeout)
    if len(pair) != 2 or not all(isinstance(value, int | float) and 0 < value < 1e6 for value in pair):
        raise ConfigurationError(f"timeout is one number of seconds, or two (to connect, to read), got {timeout!r:.80}")
    return float(pair[0]), float(pair[1])
