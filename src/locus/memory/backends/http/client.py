"""Requests to one server: from any event loop, and again where that is safe.

Each event loop has a pool of connections, for one request at a time each. A client of httpx with many connections
looks at all of them for each request, which takes longer than the request. So a connection here is one of httpcore,
which httpx is built on. Where the environment names a proxy, it is a whole client of httpx, which knows how to use one.

Failed requests raise errors of `locus.errors` that `except httpx.HTTPError` catches, too. Each error that a server
reports has a twin here: `HTTPConflictError` is a `ConflictError`, and so on.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import re
import ssl
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from http import HTTPStatus
from importlib import import_module
from typing import Any, NoReturn
from urllib.parse import urlencode
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from locus.errors import BackendUnavailableError, CheckpointError, ConflictError, SerializationError
from locus.memory.backends.http.config import HTTPConfig
from locus.memory.runtime.per_loop import PerLoop
from locus.memory.runtime.retry import Backoff
from locus.wire.format import PROTOCOL_HEADER
from locus.wire.problems import ERRORS, FORBIDDEN, NOT_FOUND, UNAUTHENTICATED

# These would be imported with the first request; a fork in another thread at that moment would leave half a module.
for _module in ("anyio._backends._asyncio", "encodings.idna"):
    import_module(_module)

_TRIES = 3
_BETWEEN_TRIES = Backoff(0.05, 0.3, factor=6.0, random_part=0.0)

COMPRESS_FROM = 8_192
"""The size of a body, in bytes, from which on it is compressed."""

_RETRY_STATUSES = frozenset({502, 503, 504})
_JSON = (b"Content-Type", b"application/json")
_NOT_SENT = (httpx.ConnectError,)
_LOST = (httpx.NetworkError, httpx.RemoteProtocolError)


class HTTPClient:
    """Requests to one server, from any event loop and from forked processes."""

    def __init__(self, config: HTTPConfig) -> None:
        self.config = config
        self._pools = PerLoop(
            lambda: ConnectionPool(config.address, config.timeout), ConnectionPool.close, until_loop_ends=True
        )

    def below(self, path: str) -> HTTPClient:
        """Requests to paths below one of this server, on the same connections."""
        client = copy(self)
        client.config = replace(self.config, address=f"{self.config.address}{path}", path=f"{self.config.path}{path}")
        return client

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        retry: bool,
        compress: bool = False,
    ) -> Response:
        """Send a request and return the response, whatever its status. With `retry`, it may be sent twice."""
        config = self.config
        sent = list(config.headers) if body is None else [*config.headers, _JSON]
        if headers:
            sent = [*sent, *((name.encode(), value.encode()) for name, value in headers.items())]
        if body is not None:
            if compress and len(body) >= COMPRESS_FROM:
                body, sent = gzip.compress(body, 5), [*sent, (b"Content-Encoding", b"gzip")]
            sent = [*sent, (b"Content-Length", str(len(body)).encode())]
        target = f"{path}?{urlencode(query)}" if query else path
        request = Request(method, f"{config.address}{target}", f"{config.path}{target}".encode(), sent, body)
        for tried in range(_TRIES):
            is_last = tried == _TRIES - 1
            try:
                response = await self._pools.current().send(request)
            except (httpx.TransportError, OSError) as error:
                if is_last or not (isinstance(error, _NOT_SENT) or (retry and isinstance(error, _LOST))):
                    raise self._lost(error, request) from error
            else:
                if is_last or not retry or response.status_code not in _RETRY_STATUSES:
                    return response
            await _BETWEEN_TRIES.pause(tried)
        raise AssertionError("the last try returns or raises")

    def _lost(self, error: Exception, request: Request) -> HTTPUnavailableError:
        problem = type(error).__name__
        if isinstance(error, httpx.TimeoutException):
            problem = "it did not answer in time"
        elif "CERTIFICATE_VERIFY_FAILED" in str(error):
            problem = "its certificate was not accepted; SSL_CERT_FILE names the file of its authority"
        lost = HTTPUnavailableError(
            f"{self.config.address} could not be reached, or the connection was lost: {problem}"
        )
        lost.request = request.for_error()
        return lost

    async def close(self) -> None:
        """Close what is open in every loop of this process."""
        await self._pools.close()


MAX_CONNECTIONS = 100
"""The number of requests that an event loop sends at once; the others wait."""

MAX_ANSWER = 1024 * 1024 * 1024
"""The largest answer in bytes, before and after it is unpacked."""

_GZIP = 31
"""The `wbits` of zlib for a gzip header and the largest window."""
_MOST_MEMBERS = 16
"""The number of gzip members that an answer may consist of. Unpacking one copies those behind it."""

IDLE_SECONDS = 20.0
"""The seconds that an unused connection is kept. `locus serve` keeps it longer, so it never closes one in use."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request, as it is sent."""

    method: str
    url: str
    target: bytes
    """The path and the query of the URL."""
    headers: list[tuple[bytes, bytes]]
    body: bytes | None

    def for_error(self) -> httpx.Request:
        """The request as errors carry it: without its headers, which may hold a secret."""
        return httpx.Request(self.method, self.url)


@dataclass(frozen=True, slots=True)
class Response:
    """A response, read to its end."""

    request: Request
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
        try:
            return json.loads(self.content)
        except ValueError as error:
            raise HTTPUnavailableError("the server's answer is no JSON: it was cut off, or somebody else's") from error


class _Connection(ABC):
    """A connection, for one request at a time."""

    @abstractmethod
    async def send(self, request: Request) -> Response: ...

    @abstractmethod
    async def close(self) -> None: ...

    def is_usable(self) -> bool:
        return True


class _DirectConnection(_Connection):
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

    async def send(self, request: Request) -> Response:
        origin = self._origin
        url = httpcore.URL(scheme=origin.scheme, host=origin.host, port=origin.port, target=request.target)
        try:
            async with self._connection.stream(
                request.method, url, headers=request.headers, content=request.body, extensions=self._limits
            ) as response:
                content = await _bounded(response.aiter_stream(), request)
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
            raise _as_httpx(error) from error
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
        return Response(request, response.status, headers, _unpacked(headers, content, request))

    async def close(self) -> None:
        await self._connection.aclose()


class _ProxiedConnection(_Connection):
    def __init__(self, timeout: float) -> None:
        self._client = httpx.AsyncClient(timeout=timeout, limits=httpx.Limits(max_connections=1), verify=tls())

    async def send(self, request: Request) -> Response:
        async with self._client.stream(
            request.method, request.url, headers=request.headers, content=request.body, follow_redirects=False
        ) as response:
            content = await _bounded(response.aiter_raw(), request)
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Response(request, response.status_code, headers, _unpacked(headers, content, request))

    async def close(self) -> None:
        await self._client.aclose()


class ConnectionPool:
    """The connections of one event loop."""

    def __init__(self, address: str, timeout: float) -> None:
        url = httpx.URL(address)
        self._timeout = timeout
        self._new_connection: Callable[[], _Connection] = lambda: _ProxiedConnection(timeout)
        if not _proxy_for(url):
            port = url.port or (443 if url.scheme == "https" else 80)
            origin = httpcore.Origin(url.raw_scheme, url.raw_host, port)
            self._new_connection = lambda: _DirectConnection(origin, timeout)
        self._free = asyncio.Semaphore(MAX_CONNECTIONS)
        self._idle: list[tuple[float, _Connection]] = []
        self._closed = False

    async def close(self) -> None:
        """Close idle connections now, and the others when they are returned."""
        self._closed = True
        with contextlib.suppress(httpcore.NetworkError, httpx.HTTPError, OSError, RuntimeError):
            while self._idle:
                await self._idle.pop()[1].close()

    async def send(self, request: Request) -> Response:
        await self._wait_for_turn()
        try:
            connection = await self._idle_or_new()
            try:
                response = await connection.send(request)
            except BaseException:
                await connection.close()
                raise
            await self._give_back(connection)
            return response
        finally:
            self._free.release()

    async def _wait_for_turn(self) -> None:
        if not self._free.locked():
            await self._free.acquire()
            return
        try:
            async with asyncio.timeout(self._timeout):
                await self._free.acquire()
        except TimeoutError as error:
            raise httpx.PoolTimeout(f"all {MAX_CONNECTIONS} connections were in use for {self._timeout:g} s") from error

    async def _idle_or_new(self) -> _Connection:
        while self._idle:
            _, connection = self._idle.pop()
            if connection.is_usable():
                return connection
            await connection.close()
        return self._new_connection()

    async def _give_back(self, connection: _Connection) -> None:
        now = time.monotonic()
        if self._closed:
            await connection.close()
        else:
            self._idle.append((now, connection))
        while self._idle and now - self._idle[0][0] > IDLE_SECONDS:
            await self._idle.pop(0)[1].close()


@cache
def tls() -> ssl.SSLContext:
    """The TLS context, made once: reading the certificates takes longer than many requests."""
    return httpx.create_ssl_context()


def _proxy_for(url: httpx.URL) -> bool:
    """Tell whether the environment names a proxy for this server."""
    proxies = getproxies()
    return bool(proxies.get(url.scheme) or proxies.get("all")) and not proxy_bypass(url.host)


def _as_httpx(error: Exception) -> httpx.HTTPError:
    """Make an error of httpx from one of httpcore: they have the same names."""
    kind: type[httpx.HTTPError] = getattr(httpx, type(error).__name__, httpx.NetworkError)
    return kind(str(error))


async def _bounded(pieces: AsyncIterable[bytes], request: Request) -> bytes:
    """Join pieces, and refuse more than `MAX_ANSWER` bytes."""
    content: list[bytes] = []
    left = MAX_ANSWER
    async for piece in pieces:
        content.append(piece)
        left -= len(piece)
        if left < 0:
            raise _too_much(request)
    return b"".join(content)


def _unpacked(headers: dict[str, str], content: bytes, request: Request) -> bytes:
    """Unpack gzip, and refuse more than `MAX_ANSWER` bytes: a few bytes can stand for very many."""
    if not content or headers.get("content-encoding", "identity").lower() != "gzip":
        return content
    unpacked, rest = bytearray(), content
    for _ in range(_MOST_MEMBERS):
        member = zlib.decompressobj(_GZIP)
        try:
            unpacked += member.decompress(rest, MAX_ANSWER + 1 - len(unpacked))
        except zlib.error as error:
            raise httpx.RemoteProtocolError("the answer is no whole gzip") from error
        if len(unpacked) > MAX_ANSWER:
            raise _too_much(request)
        rest = member.unused_data.lstrip(b"\0")
        if member.eof and not rest:
            return bytes(unpacked)
    raise httpx.RemoteProtocolError("the answer is no whole gzip")


def _too_much(request: Request) -> HTTPUnavailableError:
    error = HTTPUnavailableError(
        f"the server's answer is larger than {MAX_ANSWER} bytes: it is no state, or one that is too large to be loaded"
    )
    error.request = request.for_error()
    return error


_MAX_DETAIL = 300
_MAX_CODE = 80
_BUSY = frozenset({408, 425, 429})


class HTTPUnavailableError(BackendUnavailableError, httpx.HTTPError):
    """The server could not be reached, did not respond, or could not do its work."""


class HTTPAuthenticationError(CheckpointError, httpx.HTTPError):
    """The server refused the credentials, or they do not allow this."""


class HTTPRefusedError(CheckpointError, httpx.HTTPError):
    """The server refused the request: sending it again will not help."""


_TWINS: dict[str, Any] = {
    code: type(f"HTTP{kind.__name__}", (kind, httpx.HTTPError), {"__doc__": kind.__doc__, "__module__": __name__})
    for code, kind in ERRORS.items()
}


def is_from_locus_server(response: Response) -> bool:
    """Tell whether a Locus server sent the response, and not something on the way to it."""
    return PROTOCOL_HEADER.lower() in response.headers


def says_not_found(response: Response) -> bool:
    """Tell whether a Locus server says that something does not exist. A 404 of anything else does not mean that."""
    return (
        response.status_code == 404
        and is_from_locus_server(response)
        and problem_details(response).get("code") == NOT_FOUND
    )


def problem_details(response: Response) -> dict[str, Any]:
    """Read the problem details in a response, if it has any."""
    try:
        found = json.loads(response.content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def is_too_large(error: HTTPRefusedError) -> bool:
    """Tell whether the server refused because of a size: of the request, or of the answer."""
    return isinstance(error.__cause__, httpx.HTTPStatusError) and error.__cause__.response.status_code == 413


def raise_error(response: Response) -> NoReturn:
    """Raise the error for a response that is no success."""
    details = problem_details(response)
    code = details.get("code") if is_from_locus_server(response) else None
    detail = str(details.get("detail") or response.reason or "no reason was given")[:_MAX_DETAIL]
    text = f"the server answered {response.status_code}: {detail}"
    request = response.request.for_error()
    cause = httpx.HTTPStatusError(text, request=request, response=httpx.Response(response.status_code, request=request))
    error = _error(response, code, detail, text, details)
    error.request = request
    if isinstance(error, BackendUnavailableError):
        error.code = code[:_MAX_CODE] if isinstance(code, str) else None
        error.retry_after = _seconds(response.headers.get("retry-after", ""))
    raise error from cause


def _seconds(retry_after: str) -> float | None:
    """Read the time that a server asks a client to wait. A date, which Locus does not send, is ignored."""
    return float(retry_after) if re.fullmatch(r"\d{1,9}", retry_after, re.ASCII) else None


def _error(response: Response, code: Any, detail: str, text: str, details: dict[str, Any]) -> Any:
    status = response.status_code
    if code in (UNAUTHENTICATED, FORBIDDEN) or (code is None and status in (401, 403, 407)):
        return HTTPAuthenticationError(f"{text}; check `auth`, `token` or `headers`")
    if isinstance(code, str) and code in _TWINS:
        if issubclass(ERRORS[code], ConflictError):
            return _TWINS[code](detail, expected=details.get("expected"), latest=details.get("latest"))
        if issubclass(ERRORS[code], SerializationError):
            return _TWINS[code](detail, str(details.get("path", "")))
        return _TWINS[code](detail)
    if status >= 500 or status in _BUSY or (code is None and status == 404):
        return HTTPUnavailableError(text)
    if 300 <= status < 400:
        return HTTPRefusedError(f"{text}: it sends us elsewhere; give that address as base_url")
    return HTTPRefusedError(text)
