"""Requests to one server: from any event loop, and again where that is safe."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
from base64 import b64encode
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlencode

import httpx

from locus.errors import ConfigurationError
from locus.memory.backends.http.http_errors import HTTPUnavailableError
from locus.memory.backends.http.http_lanes import Answer, Lanes, Question

PAUSES = (0.05, 0.3)
"""Seconds before the second and the third try."""

COMPRESS_FROM = 8_192
"""Bytes from which on a body is worth compressing."""

CLOSING_SECONDS = 5.0
_TRY_AGAIN = frozenset({502, 503, 504})
_JSON = (b"Content-Type", b"application/json")
_NOT_SENT = (httpx.ConnectError,)
_LOST = (httpx.NetworkError, httpx.RemoteProtocolError)


_inherited: list[dict[asyncio.AbstractEventLoop, Lanes]] = []
"""What a forked child has of its parent's: to close that, or to drop it, would disturb the parent."""


class Link:
    """One server, as it can be reached from any event loop, and from forked processes."""

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str] | None,
        auth: tuple[str, str] | None,
        token: str | None,
        timeout: float,
    ) -> None:
        url = _checked_url(base_url)
        if auth is None and url.username:
            auth = (url.username, url.password)
        url = url.copy_with(userinfo=b"")
        self.address = str(url).rstrip("/")
        self.local = _is_local(url.host)
        self._timeout = timeout
        self._path = url.raw_path.decode("ascii").rstrip("/")
        own = {"Host": url.netloc.decode("ascii"), "User-Agent": "locus"}
        self._sent = _encoded(own | _headers(headers or {}, auth, token, compressed=not self.local))
        self._loops: dict[asyncio.AbstractEventLoop, Lanes] = {}
        self._pid = os.getpid()

    async def _lanes(self) -> Lanes:
        loop = asyncio.get_running_loop()
        if self._pid != os.getpid():
            _inherited.append(self._loops)
            self._loops, self._pid = {}, os.getpid()
        found = self._loops.get(loop)
        if found is None:
            for other in [other for other in self._loops if other.is_closed()]:
                self._loops.pop(other, None)
            found = self._loops[loop] = Lanes(self.address, self._timeout)
            await found.open()
        return found

    async def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        again: bool,
        compress: bool = False,
    ) -> Answer:
        """Send a request, and return the answer, whatever it is; `again`: it may be sent twice."""
        sent = self._sent if body is None else [*self._sent, _JSON]
        if headers:
            sent = [*sent, *((name.encode(), value.encode()) for name, value in headers.items())]
        if body is not None:
            if compress and len(body) >= COMPRESS_FROM:
                body, sent = gzip.compress(body, 5), [*sent, (b"Content-Encoding", b"gzip")]
            sent = [*sent, (b"Content-Length", str(len(body)).encode())]
        target = f"{path}?{urlencode(query)}" if query else path
        question = Question(method, f"{self.address}{target}", f"{self._path}{target}".encode(), sent, body)
        for pause in (*PAUSES, None):
            try:
                answer = await (await self._lanes()).send(question)
            except (httpx.TransportError, OSError) as error:
                if pause is None or not (isinstance(error, _NOT_SENT) or (again and isinstance(error, _LOST))):
                    raise self._lost(error, question) from error
            else:
                if pause is None or not again or answer.status_code not in _TRY_AGAIN:
                    return answer
            await asyncio.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _lost(self, error: Exception, question: Question) -> HTTPUnavailableError:
        said = type(error).__name__
        if isinstance(error, httpx.TimeoutException):
            said = "it did not answer in time"
        elif "CERTIFICATE_VERIFY_FAILED" in str(error):
            said = "its certificate was not accepted; SSL_CERT_FILE names the file of its authority"
        lost = HTTPUnavailableError(f"{self.address} could not be reached, or the connection was lost: {said}")
        lost.request = question.shown()
        return lost

    async def close(self) -> None:
        """Close what is open in every loop of this process."""
        if self._pid != os.getpid():
            return
        here = asyncio.get_running_loop()
        loops, self._loops = self._loops, {}
        for loop, lanes in loops.items():
            if loop is here:
                await lanes.close()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(lanes.close(), loop)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.wrap_future(closing), CLOSING_SECONDS)


def _checked_url(base_url: str) -> httpx.URL:
    if not isinstance(base_url, str):
        raise ConfigurationError(f"base_url is text, got {type(base_url).__name__}")
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL as error:
        raise ConfigurationError("base_url is no URL: write http://host:port or https://host") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigurationError("base_url must begin with http:// or https://, and name a host")
    if url.query or url.fragment:
        raise ConfigurationError("base_url ends with a path: leave out what follows `?` or `#`")
    return url


def _is_local(host: str) -> bool:
    """Whether a host is this machine, where compressing would only cost time."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


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
    # A name that was given replaces ours, however it is spelt.
    names = {name.lower() for name in given}
    return {name: value for name, value in headers.items() if name.lower() not in names} | {**given}


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    try:
        encoded = httpx.Headers(headers).raw
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError("headers are texts by name") from error
    if any(character in text for pair in encoded for text in pair for character in b"\r\n\0"):
        raise ConfigurationError("headers hold no line breaks")
    return encoded
