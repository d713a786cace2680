"""The address of a server, the headers of every request, and the timeout."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import httpx

from locus.errors import ConfigurationError
from locus.memory.model.arguments import checked_seconds
from locus.memory.runtime.url import check_user, is_loopback


@dataclass(frozen=True)
class HTTPConfig:
    """A server, and the headers that every request carries."""

    address: str
    """The URL, without credentials and without a slash at the end."""
    path: str
    """The path in it, without a slash at the end."""
    local: bool
    """True if the server is on this machine, where compressing would only cost time."""
    headers: tuple[tuple[bytes, bytes], ...] = field(repr=False)
    timeout: float

    @classmethod
    def from_url(
        cls,
        base_url: str,
        headers: Mapping[str, str] | None,
        auth: tuple[str, str] | None,
        token: str | None,
        timeout: float,
    ) -> HTTPConfig:
        """Make a config from the URL and the options of `HTTPCheckpointer`."""
        checked_seconds(timeout, "timeout")
        url = _checked_url(base_url)
        if auth is None and url.username:
            auth = (url.username, url.password)
        url = url.copy_with(userinfo=b"")
        local = is_loopback(url.host)
        own = {"Host": url.netloc.decode("ascii"), "User-Agent": "locus"}
        return cls(
            address=str(url).rstrip("/"),
            path=url.raw_path.decode("ascii").rstrip("/"),
            local=local,
            headers=_encoded(own | _headers(headers or {}, auth, token, compressed=not local)),
            timeout=timeout,
        )


def _checked_url(base_url: str) -> httpx.URL:
    if not isinstance(base_url, str):
        raise ConfigurationError(f"base_url is text, got {type(base_url).__name__}")
    refusal = "base_url is no URL: write http://host:port or https://host"
    check_user(base_url, refusal)
    url = host = None
    # Read by the library that will call it. Its error may quote a part of the password, and is gone before ours.
    with suppress(httpx.InvalidURL, UnicodeError):
        url = httpx.URL(base_url)
        host = url.host  # decoded only now
    if url is None or host is None or (url.port is not None and not 0 < url.port < 1 << 16):
        raise ConfigurationError(refusal)
    if url.scheme not in ("http", "https") or not host:
        raise ConfigurationError("base_url must begin with http:// or https://, and name a host")
    if "token" in url.params:
        raise ConfigurationError("a token does not belong into a URL, which logs may show: give it as token=…")
    if url.query or url.fragment:
        raise ConfigurationError("base_url ends with a path: leave out what follows `?` or `#`")
    return url


def _headers(
    given: Mapping[str, str], auth: tuple[str, str] | None, token: str | None, *, compressed: bool
) -> dict[str, str]:
    headers = {"Accept": "application/json", "Accept-Encoding": "gzip" if compressed else "identity"}
    if auth is not None and token is not None:
        raise ConfigurationError("give `auth` or `token`, not both")
    if auth is not None:
        user, password = auth
        headers["Authorization"] = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    # A header that the caller gives replaces the default, whatever its case.
    names = {name.lower() for name in given}
    return {name: value for name, value in headers.items() if name.lower() not in names} | {**given}


def _encoded(headers: Mapping[str, str]) -> tuple[tuple[bytes, bytes], ...]:
    try:
        encoded = httpx.Headers(headers).raw
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError("headers are texts by name") from error
    if any(character in text for pair in encoded for text in pair for character in b"\r\n\0"):
        raise ConfigurationError("headers hold no line breaks")
    return tuple(encoded)
