"""The connections of one event loop: lanes of one connection each, for one request at a time.

A client with many connections looks at all of them for each request, which takes longer than the request. So a
lane is one connection of httpcore, which is what httpx is made of; where the environment names a proxy, it is a
whole client of httpx, which knows how to use that.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import ssl
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from importlib import import_module
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

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
