"""Signed requests to S3: one pool of connections for each event loop, and retries.

Every request of ours may be sent twice: reads and deletions by nature, and a conditional put because the engine
compares what is there with what it sent. So whatever may pass is tried again.

What S3 answers instead of what was asked for, and what that means to us.

Objects under a prefix of an S3 bucket, for the object engine.
"""

from __future__ import annotations

import asyncio
import builtins
import concurrent.futures.thread  # noqa: F401 - asyncio needs it for the first request, when the process may be forking
import hashlib
import os
import random
import ssl
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from locus.errors import BackendUnavailableError, CheckpointError, SerializationError
from locus.extras import require
from locus.memory.backends.objects.client import PAGE, Listed, ObjectStore

_ADVICE = {
    "NoSuchBucket": "the bucket does not exist: create it, or correct its name, region or endpoint",
    "AccessDenied": "these credentials may not do that: see the policy in the documentation",
    "SignatureDoesNotMatch": "the secret key does not fit the access key",
    "InvalidAccessKeyId": "the access key is unknown there",
    "ExpiredToken": "the session token has expired: get new credentials",
    "InvalidToken": "the session token is not valid there",
    "RequestTimeTooSkewed": "this machine's clock is wrong by more than a quarter of an hour",
    "AuthorizationHeaderMalformed": "the region is wrong: give `region_name`",
    "PermanentRedirect": "the bucket is in another region: give `region_name`",
    "NotImplemented": "this server has no conditional writes, without which nothing can be saved safely",
}


class S3Error(Exception):
    """An answer of the server that is no success. Only its code and message are kept, which hold no secret."""

    def __init__(self, status: int, code: str, message: str, action: str) -> None:
        super().__init__(f"{action}: {status} {code}: {message}".rstrip(": "))
        self.status = status
        self.code = code

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed a little later."""
        busy = self.status in (429, 500, 502, 503, 504)
        return busy or self.code in ("ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "SlowDown")


def error_of(status: int, body: bytes, action: str) -> S3Error:
    code = message = ""
    try:
        root = ElementTree.fromstring(body) if body.strip() else None
    except ElementTree.ParseError:
        root = None
    if root is not None:
        code, message = field(root, "Code"), field(root, "Message")
    return S3Error(status, code, message[:300], action)


def local(tag: str) -> str:
    """A tag without its name space: not every server gives one."""
    return tag.rpartition("}")[2]


def field(node: ElementTree.Element, name: str) -> str:
    """The text of a child, "" if there is none."""
    return next((child.text or "" for child in node if local(child.tag) == name), "")


def translated(error: BaseException, bucket: str, place: str) -> CheckpointError:
    """Our error for one of the driver's."""
    where = f"the S3 bucket {bucket!r} at {place}"
    if isinstance(error, S3Error):
        if error.code == "EntityTooLarge":
            return SerializationError(f"a checkpoint is larger than {where} takes in one object: {error}")
        advice = _ADVICE.get(error.code)
        return BackendUnavailableError(f"{where} refused a request ({error})" + (f"; {advice}" if advice else ""))
    if isinstance(error, TimeoutError):
        return BackendUnavailableError(f"{where} did not answer in time")
    return BackendUnavailableError(f"{where} cannot be reached: {type(error).__name__}: {error}")


_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_LARGE = 2**20
"""Bodies from this size on are sent in pieces, between which the event loop has its turn."""


@dataclass(frozen=True)
class Access:
    """Where a bucket is, and how it is reached. `credentials` finds them anew when they have expired."""

    bucket: str
    endpoint_url: str
    region_name: str
    path_style: bool
    credentials: Callable[[], Any]
    timeout: float
    max_retries: int
    max_connections: int
    ca_bundle: str | None = None
    """Whom to trust, as a file; else those that the system trusts."""

    @property
    def address(self) -> str:
        if self.path_style:
            return f"{self.endpoint_url}/{self.bucket}"
        parts = urlsplit(self.endpoint_url)
        return f"{parts.scheme}://{self.bucket}.{parts.netloc}{parts.path}"


class _Opened(NamedTuple):
    session: Any
    keeper: AsyncGenerator[None, None]
    pid: int


_inherited: list[_Opened] = []
"""Sessions of a parent process. Their sockets are its business, so they are neither used nor closed here."""


class Sessions:
    """One HTTP session for each event loop; it is closed with the handle, or with its loop."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._opened: dict[asyncio.AbstractEventLoop, _Opened] = {}

    async def here(self) -> Any:
        loop = asyncio.get_running_loop()
        opened = self._opened.get(loop)
        if opened is not None and opened.pid == os.getpid():
            return opened.session
        if opened is not None:
            _inherited.append(opened)
        for ended in [other for other in list(self._opened) if other.is_closed()]:
            self._opened.pop(ended, None)
        session = self._make()
        keeper = self._kept(loop, session)
        self._opened[loop] = _Opened(session, keeper, os.getpid())
        await anext(keeper)
        return session

    async def _kept(self, loop: asyncio.AbstractEventLoop, session: Any) -> AsyncGenerator[None, None]:
        """Waits for its end, which a loop brings about before it is closed."""
        try:
            yield
        finally:
            if self._opened.get(loop, (None,))[0] is session:
                self._opened.pop(loop)
            await session.close()

    async def close(self) -> None:
        here = asyncio.get_running_loop()
        for loop, opened in list(self._opened.items()):
            self._opened.pop(loop, None)
            if opened.pid != os.getpid():
                _inherited.append(opened)
            elif loop is here:
                await _end(opened.keeper)
            elif loop.is_running():
                ended = asyncio.run_coroutine_threadsafe(_end(opened.keeper), loop)
                await asyncio.wait([asyncio.wrap_future(ended)], timeout=5)


async def _end(keeper: AsyncGenerator[None, None]) -> None:
    with suppress(OSError, RuntimeError):
        await keeper.aclose()


class Answer(NamedTuple):
    status: int
    body: bytes


class S3Client:
    """Requests to one bucket."""

    def __init__(self, access: Access, counts: Counter[str]) -> None:
        aiohttp = self._aiohttp = require("aiohttp", "s3")
        self._url: Callable[..., Any] = require("yarl", "s3").URL
        self._sign: Callable[..., Any] = require("botocore.auth", "s3").S3SigV4Auth
        self._signed: Callable[..., Any] = require("botocore.awsrequest", "s3").AWSRequest
        self.errors: tuple[type[BaseException], ...] = (
            S3Error,
            aiohttp.ClientError,
            OSError,
            require("botocore.exceptions", "s3").BotoCoreError,
        )
        self._access = access
        self._counts = counts
        self._credentials: Any = None
        self._sessions = Sessions(self._session)

    def _session(self) -> Any:
        access = self._access
        timeout = self._aiohttp.ClientTimeout(total=access.timeout, sock_connect=min(10.0, access.timeout))
        trusted = ssl.create_default_context(cafile=access.ca_bundle) if access.ca_bundle else True
        connector = self._aiohttp.TCPConnector(limit=access.max_connections, keepalive_timeout=20, ssl=trusted)
        return self._aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)

    async def ask(
        self,
        kind: str,
        method: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        accept: Callable[[S3Error], bool] = lambda _error: False,
    ) -> Answer:
        """The server's answer: a success, or an error that is accepted as an answer, too."""
        url = f"{self._access.address}/{quote(key, safe='/-_.~')}"
        if query:
            url += f"?{urlencode(sorted(query.items()), quote_via=quote)}"
        pause = _FIRST_PAUSE
        for left in range(self._access.max_retries, -1, -1):
            self._counts[kind] += 1
            try:
                answer = await self._send(method, url, body, dict(headers or {}))
            except (self._aiohttp.ClientError, OSError):
                if not left:
                    raise
            else:
                if answer.status < 300:
                    return answer
                error = error_of(answer.status, answer.body, f"{method} {key or self._access.bucket}")
                if accept(error):
                    return answer
                if not left or not error.passing:
                    raise error
            await asyncio.sleep(pause * (0.5 + random.random()))
            pause = min(pause * 3, _LONGEST_PAUSE)
        raise AssertionError("the last try returns or raises")

    async def _send(self, method: str, url: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        request = self._signed(method=method, url=url, data=body, headers=headers)
        self._sign(await self._current(), "s3", self._access.region_name).add_auth(request)
        session = await self._sessions.here()
        sent = dict(request.headers.items())
        data = BytesIO(body) if body is not None and len(body) >= _LARGE else body
        async with session.request(method, self._url(url, encoded=True), headers=sent, data=data) as response:
            return Answer(response.status, await response.read())

    async def _current(self) -> Any:
        """Credentials that are valid now. Finding or renewing them may take requests that block."""
        if self._credentials is None:
            self._credentials = await asyncio.to_thread(self._access.credentials)
        renewable = getattr(self._credentials, "refresh_needed", None)
        if renewable is not None and renewable():
            return await asyncio.to_thread(self._credentials.get_frozen_credentials)
        return self._credentials.get_frozen_credentials()

    async def close(self) -> None:
        await self._sessions.close()


class S3ObjectStore(ObjectStore):
    """The five requests, from any event loop."""

    def __init__(self, access: Access, prefix: str) -> None:
        super().__init__()
        self._access = access
        self._prefix = prefix
        self._client = S3Client(access, self.requests)
        self.driver_errors = self._client.errors  # type: ignore[misc]  # known when the driver is
        self.at_once = access.max_connections

    @property
    def identity(self) -> str:
        return f"s3:{self._access.address}/{self._prefix}"

    def translate(self, error: BaseException) -> CheckpointError:
        return translated(error, self._access.bucket, self._access.endpoint_url)

    async def put(self, key: str, body: bytes, *, if_absent: bool) -> bool:
        headers = {"If-None-Match": "*"} if if_absent else {}
        answer = await self._client.ask(
            "put", "PUT", self._prefix + key, body=body, headers=headers, accept=lambda error: error.status == 412
        )
        return answer.status != 412

    async def get(self, key: str) -> bytes | None:
        answer = await self._client.ask(
            "get", "GET", self._prefix + key, accept=lambda error: error.code == "NoSuchKey"
        )
        return answer.body if answer.status < 300 else None

    async def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> builtins.list[Listed]:
        found: builtins.list[Listed] = []
        query = {"list-type": "2", "encoding-type": "url", "prefix": self._prefix + prefix}
        if start_after is not None:
            query["start-after"] = self._prefix + start_after
        while limit is None or len(found) < limit:
            query["max-keys"] = str(PAGE if limit is None else min(PAGE, limit - len(found)))
            answer = await self._client.ask("list", "GET", "", query=query)
            page = _parsed(answer.body)
            encoded = field(page, "EncodingType") == "url"
            found += [self._listed(node, encoded) for node in page if local(node.tag) == "Contents"]
            token = field(page, "NextContinuationToken")
            if field(page, "IsTruncated") != "true" or not token:
                break
            query["continuation-token"] = token
        return found

    def _listed(self, node: ElementTree.Element, encoded: bool) -> Listed:
        key = field(node, "Key")
        key = (unquote(key) if encoded else key).removeprefix(self._prefix)
        return Listed(key, int(field(node, "Size")), datetime.fromisoformat(field(node, "LastModified")))

    async def delete(self, keys: Iterable[str]) -> None:
        for some in _pages(keys):
            entries = "".join(f"<Object><Key>{escape(self._prefix + key)}</Key></Object>" for key in some)
            body = f"<Delete><Quiet>true</Quiet>{entries}</Delete>".encode()
            digest = b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
            headers = {"Content-MD5": digest, "Content-Type": "application/xml"}
            answer = await self._client.ask("delete", "POST", "", query={"delete": ""}, body=body, headers=headers)
            for node in _parsed(answer.body):
                if local(node.tag) == "Error" and field(node, "Code") != "NoSuchKey":
                    raise S3Error(200, field(node, "Code"), field(node, "Message"), "deleting objects")

    async def close(self) -> None:
        await self._client.close()


def _parsed(body: bytes) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(body)
    except ElementTree.ParseError as error:
        raise error_of(200, b"", f"the answer is not XML ({error})") from error


def _pages(keys: Iterable[str]) -> Iterator[builtins.list[str]]:
    left = list(keys)
    for start in range(0, len(left), PAGE):
        yield left[start : start + PAGE]
