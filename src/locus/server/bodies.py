"""Request bodies and responses.

A request body is JSON, limited in size and in the time it may take to arrive. A large response is compressed if the
client accepts gzip.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from locus.memory.model.codec import encode_trusted
from locus.memory.model.price import Amount, most_values_of
from locus.server.memory_budget import MemoryShare, share_of
from locus.server.parsing import VALUE_BYTES, ValueCounter
from locus.wire.problems import Problem

T = TypeVar("T")

COMPRESS_FROM = 8_192
"""The least size of a response that is compressed, in bytes."""

INLINE_BYTES = 65_536
"""The largest body that is parsed on the event loop, in bytes."""

LARGE_TEXT = 1_000_000
"""A text of this many characters is put together by a worker thread."""

FORM_BYTES = 65_536
MOST_FIELDS = 32
"""The most fields of a form of the inspector. `FORM_BYTES` is the most bytes of one."""

PIECE_BYTES = 65_536
"""The size of the pieces in which a response is sent, in bytes: a client that stops reading holds up only a few."""

_PIECE = 4 * 1024 * 1024
_LARGE_KEY = "locus.large_body"
_SIZE_KEY = "locus.body_bytes"
_CLOSE = {"Connection": "close"}
_GZIP = 31
"""The `wbits` of zlib for a gzip header and the largest window."""


@dataclass(frozen=True)
class Limits:
    """The limits of a request: its size, its time to arrive, and the time of a query."""

    body_bytes: int = 64 * 1024 * 1024
    """The largest request body, before and after decompression."""
    body_seconds: float = 30.0
    state_bytes: int = 256 * 1024 * 1024
    """The largest state or list that the server builds for one request, in bytes."""
    metadata_bytes: int = 4 * 1024 * 1024
    """The largest metadata of a checkpoint. A list has that of many checkpoints."""
    body_values: int = 1_000_000
    """The most JSON values in a body: numbers, texts, lists, objects and so on, however deep inside."""
    memory_bytes: int = 1024 * 1024 * 1024
    """About the most memory for all bodies and states in progress. A request that is alone may exceed it."""
    query_seconds: float = 30.0
    """How long a search, a list of threads or a metadata query may take."""


async def read_body(request: Request, limits: Limits, check: Callable[[dict[str, Any], ValueCounter], T]) -> T:
    """Read the body of a request, a JSON object, and return the result of `check`.

    A worker thread decompresses, parses and checks a large body, because the event loop has other requests to serve.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, "unsupported_media_type", "send JSON: Content-Type: application/json")
    body, is_gzip = await _received(request, limits)
    counter, share = ValueCounter(limits.body_values), share_of(request)

    def parsed(text: str) -> T:
        try:
            value = counter.parse(text)
        except (ValueError, RecursionError) as error:
            raise Problem(400, "malformed", f"the body is no JSON: {_reason(error)}") from error
        if not isinstance(value, dict):
            raise Problem(400, "malformed", "the body is no JSON object")
        return check(value, counter)

    data = await _decompressed(body, limits, share) if is_gzip else body
    request.scope[_SIZE_KEY] = len(data)
    if len(data) <= INLINE_BYTES:
        return parsed(_decoded(data))
    request.scope[_LARGE_KEY] = True
    text = await _in_thread(lambda: _decoded(data))
    values = await _in_thread(lambda: most_values_of(text))
    share.take(len(data) + VALUE_BYTES * min(values, limits.body_values))
    return await _in_thread(lambda: parsed(text))


async def read_form(request: Request, limits: Limits) -> dict[str, str]:
    """Read the fields of a form that a browser has sent. Raises a problem if a field is repeated."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Problem(415, "unsupported_media_type", "send a form: Content-Type: application/x-www-form-urlencoded")
    body, is_gzip = await _received(request, replace(limits, body_bytes=FORM_BYTES))
    if is_gzip:
        raise Problem(415, "unsupported_encoding", "a form is sent as it is")
    request.scope[_SIZE_KEY] = len(body)
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS, encoding="utf-8"
        )
    except ValueError as error:
        raise Problem(400, "malformed", "the form is too long, or no UTF-8 that is percent-encoded") from error
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise Problem(400, "malformed", "send each field of a form once")
    return fields


def _decoded(data: bytes) -> str:
    """The text of a body in UTF-8. `json.loads` would guess the encoding of bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Problem(400, "malformed", f"the body is no JSON: {_reason(error)}") from error


def is_large(request: Request) -> bool:
    """Whether the body of a request was so large that a worker thread has to process it."""
    return _LARGE_KEY in request.scope


def body_size(request: Request) -> int:
    """The size in bytes of a request's body after decompression. The body has been read."""
    size: int = request.scope.get(_SIZE_KEY, 0)
    return size


async def _in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_large_bodies(), work)


@cache
def _large_bodies() -> ThreadPoolExecutor:
    """The OS threads that decode large request bodies: only two, because more would slow down the event loop."""
    return ThreadPoolExecutor(2, thread_name_prefix="locus-large-bodies")


def _reason(error: Exception) -> str:
    """The reason why a body is no JSON, without quoting it."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    return "it is nested too deeply" if isinstance(error, RecursionError) else "it is no UTF-8, or a number is too long"


async def _received(request: Request, limits: Limits) -> tuple[bytes, bool]:
    """The body as received, and whether it is gzip."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise Problem(
            415, "unsupported_encoding", "a body is sent as it is, or as gzip", headers={"Accept-Encoding": "gzip"}
        )
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limits.body_bytes:
        raise _too_large(limits)
    share = share_of(request)
    chunks, size = [], 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limits.body_bytes:
                    raise _too_large(limits)
                share.take(len(chunk))
                chunks.append(chunk)
    except TimeoutError as error:
        raise Problem(
            408, "too_slow", f"the body did not arrive within {limits.body_seconds:g} s", headers=_CLOSE
        ) from error
    except ClientDisconnect as error:
        raise Problem(400, "cut_off", "the body was cut off") from error
    return b"".join(chunks), encoding == "gzip"


async def _decompressed(body: bytes, limits: Limits, share: MemoryShare) -> bytes:
    """Decompress gzip piece by piece, because a few bytes can expand to very many."""
    decompressor, pieces = _Decompressor(body, limits), []
    if len(body) <= INLINE_BYTES:
        pieces.append(decompressor.piece(INLINE_BYTES))
    while not decompressor.is_done:
        pieces.append(await _in_thread(lambda: decompressor.piece(_PIECE)))
        share.take(len(pieces[-1]))
    return b"".join(pieces)


class _Decompressor:
    """Decompresses one gzip stream. Raises a problem if the body ends before the stream or after it."""

    def __init__(self, body: bytes, limits: Limits) -> None:
        self._stream = zlib.decompressobj(_GZIP)
        self._rest = body
        self._limits = limits
        self._size = 0

    @property
    def is_done(self) -> bool:
        return self._stream.eof

    def piece(self, most: int) -> bytes:
        """The next piece of the content, `most` bytes at most."""
        try:
            data = self._stream.decompress(self._rest, most)
        except zlib.error as error:
            raise Problem(400, "malformed", "the body is no gzip") from error
        self._rest = self._stream.unconsumed_tail
        self._size += len(data)
        if self._size > self._limits.body_bytes:
            raise _too_large(self._limits)
        ended_too_early = not self._stream.eof and not self._rest and len(data) < most
        if ended_too_early or self._stream.unused_data:
            raise Problem(400, "malformed", "the body is no whole gzip")
        return data


def _too_large(limits: Limits) -> Problem:
    return Problem(413, "too_large", f"a body has at most {limits.body_bytes} bytes here", headers=_CLOSE)


def admission(request: Request, limits: Limits) -> Callable[[Amount], None]:
    """Counts what was read for a request before it is decoded. Raises a problem if that is too large here."""

    def admit(found: Amount) -> None:
        if found.characters > limits.state_bytes or VALUE_BYTES * found.values > limits.memory_bytes:
            raise Problem(
                507,
                "state_too_large",
                f"the checkpoint that this is compared with is larger than {limits.state_bytes} bytes",
            )
        share_of(request).take(4 * found.characters + VALUE_BYTES * found.values)

    return admit


async def made(request: Request, size: int, text: Callable[[], str], *, times: int, takes_long: bool = False) -> str:
    """Call `text`, and return the text of about `size` characters that it makes.

    If that is large, or takes long, it is called in a worker thread, and `times` as many characters count as memory of
    the request.
    """
    if size < LARGE_TEXT and not takes_long:
        return text()
    share_of(request).take(times * size)
    return await asyncio.to_thread(text)


async def json_response(
    request: Request, data: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return await text_response(request, encode_trusted(data), status, headers)


async def text_response(
    request: Request, text: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Make a response of JSON text, compressed if it is large and the client accepts that."""
    body = text.encode()
    sent = {**headers} if headers else {}
    if len(body) >= COMPRESS_FROM:
        sent["Vary"] = "Accept-Encoding"
        if accepts_gzip(request):
            sent["Content-Encoding"] = "gzip"
            body = await asyncio.to_thread(gzip.compress, body, 1)
    return _PiecewiseResponse(body, status, sent, "application/json")


class _PiecewiseResponse(Response):
    """A response in pieces. Each is sent when the one before has left."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        body = bytes(self.body)
        for start in range(0, max(len(body), 1), PIECE_BYTES):
            end = start + PIECE_BYTES
            await send({"type": "http.response.body", "body": body[start:end], "more_body": end < len(body)})
            if end < len(body):
                await asyncio.sleep(0)


def jsonl_response(request: Request, lines: AsyncIterator[bytes]) -> Response:
    """Make a response that streams JSON objects, one per line."""
    headers, pieces = {"Vary": "Accept-Encoding"}, _pieces_of(lines)
    if accepts_gzip(request):
        pieces, headers["Content-Encoding"] = _compressed(pieces), "gzip"
    return StreamingResponse(pieces, headers=headers, media_type="application/jsonl")


async def _pieces_of(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for line in lines:
        for start in range(0, len(line), PIECE_BYTES):
            yield line[start : start + PIECE_BYTES]
            if len(line) > PIECE_BYTES:
                await asyncio.sleep(0)


async def _compressed(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    stream = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    async for piece in pieces:
        if compressed := stream.compress(piece):
            yield compressed
    yield stream.flush()


def accepts_gzip(request: Request) -> bool:
    """Whether the client accepts gzip; `gzip;q=0` refuses it."""
    for part in request.headers.get("accept-encoding", "").lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
