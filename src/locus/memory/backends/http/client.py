"""Requests to one server: from any event loop, and again where that is safe.

The connections of one event loop: lanes of one connection each, for one request at a time.

A client with many connections looks at all of them for each request, which takes longer than the request. So a
lane is one connection of httpcore, which is what httpx is made of; where the environment names a proxy, it is a
whole client of httpx, which knows how to use that.

What a request may come to, as errors of our tree that `except httpx.HTTPError` catches, too.

Each error of ours that a server reports has a twin here: `HTTPConflictError` is a `ConflictError`, and so on.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import ssl
import time
import zlib
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from importlib import import_module
from ipaddress import ip_address
from typing import Any, NoReturn
from urllib.parse import urlencode
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from locus.errors import BackendUnavailableError, CheckpointError, ConfigurationError, ConflictError, SerializationError
from locus.wire.format import PROTOCOL_HEADER
from locus.wire.problems import ERRORS, FORBIDDEN, NOT_FOUND, UNAUTHENTICATED

# These would be imported with the first request; a fork in another thread at that moment would leave half a module.
for _module in ("anyio._backends._asyncio", "encodings.idna"):
    import_module(_module)

CONNECTIONS = 100
"""How many requests a loop sends at once; the others wait."""

IDLE_SECONDS = 20.0
"""How long a connection is kept that nobody uses. Our server keeps it longer, so that it never ends one in use."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request, as it is sent."""

    method: str
    url: str
    target: bytes
    """The path and the query in it."""
    headers: list[tuple[bytes, bytes]]
    body: bytes | None

    def shown(self) -> httpx.Request:
        """The request for an error to carry: without its headers, which may hold a secret."""
        return httpx.Request(self.method, self.url)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    question: Question
    status_code: int
    headers: dict[str, str]
    content: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status_code < 300

    @property
    def reason(self) -> str:
        try:
            return HTTPStatus(self.status_code).phrase
        except ValueError:
            return ""

    def json(self) -> Any:
        return json.loads(self.content)


class _Lane(ABC):
    """One connection."""

    @abstractmethod
    async def send(self, question: Question) -> Answer: ...

    @abstractmethod
    async def close(self) -> None: ...

    def is_usable(self) -> bool:
        return True


class _Direct(_Lane):
    def __init__(self, origin: httpcore.Origin, timeout: float) -> None:
        secure = origin.scheme == b"https"
        self._origin = origin
        self._limits = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), timeout)}
        self._connection = httpcore.AsyncHTTPConnection(
            origin,
            ssl_context=tls() if secure else None,
            keepalive_expiry=IDLE_SECONDS,
            network_backend=httpcore.AnyIOBackend(),
        )

    def is_usable(self) -> bool:
        return self._connection.is_available() and not self._connection.has_expired()

    async def send(self, question: Question) -> Answer:
        origin = self._origin
        url = httpcore.URL(scheme=origin.scheme, host=origin.host, port=origin.port, target=question.target)
        try:
            response = await self._connection.request(
                question.method, url, headers=question.headers, content=question.body, extensions=self._limits
            )
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
            raise _same(error) from error
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
        return Answer(question, response.status, headers, _unpacked(headers, response.content))

    async def close(self) -> None:
        await self._connection.aclose()


class _Proxied(_Lane):
    def __init__(self, timeout: float) -> None:
        self._client = httpx.AsyncClient(timeout=timeout, limits=httpx.Limits(max_connections=1), verify=tls())

    async def send(self, question: Question) -> Answer:
        response = await self._client.request(
            question.method, question.url, headers=question.headers, content=question.body, follow_redirects=False
        )
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Answer(question, response.status_code, headers, response.content)

    async def close(self) -> None:
        await self._client.aclose()


class Lanes:
    """All of one loop. They are closed when their loop ends, whoever forgot to do so."""

    def __init__(self, address: str, timeout: float) -> None:
        url = httpx.URL(address)
        self._timeout = timeout
        self._open_one: Callable[[], _Lane] = lambda: _Proxied(timeout)
        if not _proxy_for(url):
            port = url.port or (443 if url.scheme == "https" else 80)
            origin = httpcore.Origin(url.raw_scheme, url.raw_host, port)
            self._open_one = lambda: _Direct(origin, timeout)
        self._places = asyncio.Semaphore(CONNECTIONS)
        self._idle: list[tuple[float, _Lane]] = []
        self._closed = False
        self._guard = self._until_the_end()

    async def _until_the_end(self) -> AsyncGenerator[None, None]:
        # A loop that ends closes the asynchronous generators that are still waiting in it.
        try:
            yield
        finally:
            self._closed = True
            while self._idle:
                await self._idle.pop()[1].close()

    async def open(self) -> None:
        await anext(self._guard)

    async def close(self) -> None:
        """Close what is idle now, and what is in use when it is given back."""
        with contextlib.suppress(httpcore.NetworkError, httpx.HTTPError, OSError, RuntimeError):
            await self._guard.aclose()

    async def send(self, question: Question) -> Answer:
        await self._place()
        try:
            lane = await self._lane()
            try:
                answer = await lane.send(question)
            except BaseException:
                await lane.close()
                raise
            await self._give_back(lane)
            return answer
        finally:
            self._places.release()

    async def _place(self) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        try:
            async with asyncio.timeout(self._timeout):
                await self._places.acquire()
        except TimeoutError as error:
            raise httpx.PoolTimeout(f"all {CONNECTIONS} connections were in use for {self._timeout:g} s") from error

    async def _lane(self) -> _Lane:
        while self._idle:
            _, lane = self._idle.pop()
            if lane.is_usable():
                return lane
            await lane.close()
        return self._open_one()

    async def _give_back(self, lane: _Lane) -> None:
        now = time.monotonic()
        if self._closed:
            await lane.close()
        else:
            self._idle.append((now, lane))
        while self._idle and now - self._idle[0][0] > IDLE_SECONDS:
            await self._idle.pop(0)[1].close()


@cache
def tls() -> ssl.SSLContext:
    """Read the certificates once: that takes longer than many requests."""
    return httpx.create_ssl_context()


def _proxy_for(url: httpx.URL) -> bool:
    """Whether the environment names a proxy for this server."""
    proxies = getproxies()
    return bool(proxies.get(url.scheme) or proxies.get("all")) and not proxy_bypass(url.host)


def _same(error: Exception) -> httpx.HTTPError:
    """The error of httpx that one of httpcore stands for: they have the same names."""
    kind: type[httpx.HTTPError] = getattr(httpx, type(error).__name__, httpx.NetworkError)
    return kind(str(error))


def _unpacked(headers: dict[str, str], content: bytes) -> bytes:
    if headers.get("content-encoding", "identity").lower() != "gzip":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise httpx.RemoteProtocolError("the answer is no whole gzip") from error


_SHOWN = 300
_BUSY = frozenset({408, 425, 429})


class HTTPUnavailableError(BackendUnavailableError, httpx.HTTPError):
    """The server could not be reached, did not answer, or could not do its work."""


class HTTPAuthenticationError(CheckpointError, httpx.HTTPError):
    """The server refused the credentials, or they do not allow this."""


class HTTPRefusedError(CheckpointError, httpx.HTTPError):
    """The server refused the request: sending it again will not help."""


_TWINS: dict[str, Any] = {
    code: type(f"HTTP{kind.__name__}", (kind, httpx.HTTPError), {"__doc__": kind.__doc__, "__module__": __name__})
    for code, kind in ERRORS.items()
}


def is_ours(answer: Answer) -> bool:
    """Whether `locus.server` itself answered, and not something on the way to it."""
    return PROTOCOL_HEADER.lower() in answer.headers


def not_there(answer: Answer) -> bool:
    """Whether our server says that something is not there. Anybody else's 404 says nothing about that."""
    return answer.status_code == 404 and is_ours(answer) and problem(answer).get("code") == NOT_FOUND


def problem(answer: Answer) -> dict[str, Any]:
    """The problem details in an answer, if it has any."""
    try:
        found = json.loads(answer.content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def refuse(answer: Answer) -> NoReturn:
    """Raise the error that an answer which is no success stands for."""
    found = problem(answer)
    code = found.get("code") if is_ours(answer) else None
    detail = str(found.get("detail") or answer.reason or "no reason was given")[:_SHOWN]
    text = f"the server answered {answer.status_code}: {detail}"
    request = answer.question.shown()
    cause = httpx.HTTPStatusError(text, request=request, response=httpx.Response(answer.status_code, request=request))
    error = _error(answer, code, detail, text, found)
    error.request = request
    raise error from cause


def _error(answer: Answer, code: Any, detail: str, text: str, found: dict[str, Any]) -> Any:
    status = answer.status_code
    if code in (UNAUTHENTICATED, FORBIDDEN) or (code is None and status in (401, 403, 407)):
        return HTTPAuthenticationError(f"{text}; check `auth`, `token` or `headers`")
    if isinstance(code, str) and code in _TWINS:
        if issubclass(ERRORS[code], ConflictError):
            return _TWINS[code](detail, expected=found.get("expected"), latest=found.get("latest"))
        if issubclass(ERRORS[code], SerializationError):
            return _TWINS[code](detail, str(found.get("path", "")))
        return _TWINS[code](detail)
    if status >= 500 or status in _BUSY or (code is None and status == 404):
        return HTTPUnavailableError(text)
    if 300 <= status < 400:
        return HTTPRefusedError(f"{text}: it sends us elsewhere; give that address as base_url")
    return HTTPRefusedError(text)


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
