"""S3 as an `ObjectStore`: signed requests, retries, and the meaning of S3's errors.

There is one HTTP session, with a pool of connections, for each event loop. Every request may be sent twice: reads and
deletions by nature, and a conditional put because the engine compares the existing object with the one it sent. So
every request that fails for a passing reason is sent again.
"""

from __future__ import annotations

import asyncio
import builtins
import concurrent.futures.thread  # noqa: F401 - asyncio needs it for the first request, when the process may be forking
import hashlib
import ssl
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from io import BytesIO
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from locus.errors import BackendUnavailableError, CheckpointError, SerializationError
from locus.extras import require
from locus.memory.backends.objects.client import PAGE, ByteSpan, ListedObject, ObjectStore
from locus.memory.backends.s3.config import S3Config
from locus.memory.model.findings import http_time
from locus.memory.runtime.per_loop import PerLoop
from locus.memory.runtime.retry import Backoff


class S3ObjectStore(ObjectStore):
    """The objects under a prefix of an S3 bucket. Can be used from any event loop."""

    def __init__(self, config: S3Config) -> None:
        super().__init__(config.prefix)
        self._config = config
        self._client = S3Client(config, self.requests)
        self.driver_errors = self._client.errors  # type: ignore[misc]  # known when the driver is
        self.at_once = config.max_connections

    @property
    def identity(self) -> str:
        return f"s3:{self._config.bucket_url}/{self._prefix}"

    def translate(self, error: BaseException) -> CheckpointError:
        return translated(error, self._config.bucket, self._config.endpoint_url)

    async def put(self, key: str, body: bytes, *, if_absent: bool) -> bool:
        headers = {"If-None-Match": "*"} if if_absent else {}
        response = await self._client.request(
            "put", "PUT", self._prefix + key, body=body, headers=headers, accept=lambda error: error.status == 412
        )
        return response.status != 412

    async def get(self, key: str, span: ByteSpan | None = None) -> bytes | None:
        response = await self._client.request(
            "get",
            "GET",
            self._prefix + key,
            headers={"Range": span.header} if span else None,
            accept=lambda error: error.code == "NoSuchKey" or error.status == 416,
        )
        if response.status == 416:
            return b""
        if response.status >= 300:
            return None
        # A server need not heed the range, and says so.
        return response.body if span is None or response.status == 206 else span.of(response.body)

    async def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> builtins.list[ListedObject]:
        objects: builtins.list[ListedObject] = []
        query = {"list-type": "2", "encoding-type": "url", "prefix": self._prefix + prefix}
        if start_after is not None:
            query["start-after"] = self._prefix + start_after
        while limit is None or len(objects) < limit:
            query["max-keys"] = str(PAGE if limit is None else min(PAGE, limit - len(objects)))
            response = await self._client.request("list", "GET", "", query=query)
            page = _parsed(response.body)
            encoded = child_text(page, "EncodingType") == "url"
            objects += [self._listed(node, encoded) for node in page if local_name(node.tag) == "Contents"]
            token = child_text(page, "NextContinuationToken")
            if child_text(page, "IsTruncated") != "true" or not token:
                break
            query["continuation-token"] = token
        return objects

    def _listed(self, node: ElementTree.Element, encoded: bool) -> ListedObject:
        key = child_text(node, "Key")
        key = (unquote(key) if encoded else key).removeprefix(self._prefix)
        return ListedObject(
            key, int(child_text(node, "Size")), datetime.fromisoformat(child_text(node, "LastModified"))
        )

    async def delete(self, keys: Iterable[str]) -> None:
        for some in _pages(keys):
            entries = "".join(f"<Object><Key>{escape(self._prefix + key)}</Key></Object>" for key in some)
            body = f"<Delete><Quiet>true</Quiet>{entries}</Delete>".encode()
            digest = b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
            headers = {"Content-MD5": digest, "Content-Type": "application/xml"}
            response = await self._client.request(
                "delete", "POST", "", query={"delete": ""}, body=body, headers=headers
            )
            for node in _parsed(response.body):
                if local_name(node.tag) == "Error" and child_text(node, "Code") != "NoSuchKey":
                    raise S3Error(200, child_text(node, "Code"), child_text(node, "Message"), "deleting objects")

    async def server_time(self) -> datetime | None:
        query = {"list-type": "2", "prefix": self._prefix, "max-keys": "1"}
        response = await self._client.request("list", "GET", "", query=query)
        return http_time(response.date)

    async def close(self) -> None:
        await self._client.close()


def _parsed(body: bytes) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(body)
    except ElementTree.ParseError as error:
        raise error_from(200, b"", f"the answer is not XML ({error})") from error


def _pages(keys: Iterable[str]) -> Iterator[builtins.list[str]]:
    left = list(keys)
    for start in range(0, len(left), PAGE):
        yield left[start : start + PAGE]


_BETWEEN_TRIES = Backoff(0.075, 3.0, factor=3.0, random_part=2 / 3)
_LARGE = 2**20
"""Bodies from this size on are sent in pieces, so that the event loop can do other work in between."""


class Response(NamedTuple):
    status: int
    body: bytes
    date: str = ""
    """The time at which the server answered, by its clock."""


class S3Client:
    """Signed requests to one bucket."""

    def __init__(self, config: S3Config, counts: Counter[str]) -> None:
        aiohttp = self._aiohttp = require("aiohttp", "s3")
        self._url: Callable[..., Any] = require("yarl", "s3").URL
        self._sign: Callable[..., Any] = require("botocore.auth", "s3").S3SigV4Auth
        self._new_request: Callable[..., Any] = require("botocore.awsrequest", "s3").AWSRequest
        self.errors: tuple[type[BaseException], ...] = (
            S3Error,
            aiohttp.ClientError,
            OSError,
            require("botocore.exceptions", "s3").BotoCoreError,
        )
        self._config = config
        self._counts = counts
        self._credentials: Any = None
        self._sessions = PerLoop(self._new_session, _close, until_loop_ends=True)

    def _new_session(self) -> Any:
        config = self._config
        timeout = self._aiohttp.ClientTimeout(total=config.timeout, sock_connect=min(10.0, config.timeout))
        trusted = ssl.create_default_context(cafile=config.ca_bundle) if config.ca_bundle else True
        connector = self._aiohttp.TCPConnector(limit=config.max_connections, keepalive_timeout=20, ssl=trusted)
        return self._aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)

    async def request(
        self,
        kind: str,
        method: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        accept: Callable[[S3Error], bool] = lambda _error: False,
    ) -> Response:
        """Send a request, and return the response: a success, or an error that `accept` takes for an answer."""
        url = f"{self._config.bucket_url}/{quote(key, safe='/-_.~')}"
        if query:
            url += f"?{urlencode(sorted(query.items()), quote_via=quote)}"
        for tried in range(self._config.max_retries + 1):
            is_last = tried == self._config.max_retries
            self._counts[kind] += 1
            try:
                response = await self._send(method, url, body, dict(headers or {}))
            except (self._aiohttp.ClientError, OSError):
                if is_last:
                    raise
            else:
                if response.status < 300:
                    return response
                error = error_from(response.status, response.body, f"{method} {key or self._config.bucket}")
                if accept(error):
                    return response
                if is_last or not error.is_passing:
                    raise error
            await _BETWEEN_TRIES.pause(tried)
        raise AssertionError("the last try returns or raises")

    async def _send(self, method: str, url: str, body: bytes | None, headers: dict[str, str]) -> Response:
        signed = self._new_request(method=method, url=url, data=body, headers=headers)
        self._sign(await self._current_credentials(), "s3", self._config.region_name).add_auth(signed)
        session = self._sessions.current()
        sent = dict(signed.headers.items())
        data = BytesIO(body) if body is not None and len(body) >= _LARGE else body
        async with session.request(method, self._url(url, encoded=True), headers=sent, data=data) as received:
            return Response(received.status, await received.read(), received.headers.get("Date", ""))

    async def _current_credentials(self) -> Any:
        """Credentials that are valid now. Finding or renewing them may take requests that block."""
        if self._credentials is None:
            self._credentials = await asyncio.to_thread(self._config.credentials)
        renewable = getattr(self._credentials, "refresh_needed", None)
        if renewable is not None and renewable():
            return await asyncio.to_thread(self._credentials.get_frozen_credentials)
        return self._credentials.get_frozen_credentials()

    async def close(self) -> None:
        await self._sessions.close()


async def _close(session: Any) -> None:
    with suppress(OSError, RuntimeError):
        await session.close()


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
    """A response that is no success. Only its code and message are kept, which hold no secret."""

    def __init__(self, status: int, code: str, message: str, action: str) -> None:
        super().__init__(f"{action}: {status} {code}: {message}".rstrip(": "))
        self.status = status
        self.code = code

    @property
    def is_passing(self) -> bool:
        """Tell whether the same request may succeed a little later."""
        busy = self.status in (429, 500, 502, 503, 504)
        return busy or self.code in ("ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "SlowDown")


def error_from(status: int, body: bytes, action: str) -> S3Error:
    code = message = ""
    try:
        root = ElementTree.fromstring(body) if body.strip() else None
    except ElementTree.ParseError:
        root = None
    if root is not None:
        code, message = child_text(root, "Code"), child_text(root, "Message")
    return S3Error(status, code, message[:300], action)


def local_name(tag: str) -> str:
    """The tag of an element without its XML namespace: not every server gives one."""
    return tag.rpartition("}")[2]


def child_text(node: ElementTree.Element, name: str) -> str:
    """The text of an element's child; "" if there is none."""
    return next((child.text or "" for child in node if local_name(child.tag) == name), "")


def translated(error: BaseException, bucket: str, endpoint_url: str) -> CheckpointError:
    """Make a `CheckpointError` of one of the driver's errors."""
    where = f"the S3 bucket {bucket!r} at {endpoint_url}"
    if isinstance(error, S3Error):
        if error.code == "EntityTooLarge":
            return SerializationError(f"a checkpoint is larger than {where} takes in one object: {error}")
        advice = _ADVICE.get(error.code)
        return BackendUnavailableError(f"{where} refused a request ({error})" + (f"; {advice}" if advice else ""))
    if isinstance(error, TimeoutError):
        return BackendUnavailableError(f"{where} did not answer in time")
    return BackendUnavailableError(f"{where} cannot be reached: {type(error).__name__}: {error}")
