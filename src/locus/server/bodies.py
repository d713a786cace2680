"""Request bodies and responses.

A request body is JSON, limited in size and in the time it may take to arrive. A large response is compressed if the
client accepts gzip.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from locus.memory.model.codec import encode_trusted
from locus.wire.problems import Problem

COMPRESS_FROM = 8_192
"""Responses of at least so many bytes are compressed."""

_CLOSE = {"Connection": "close"}
_GZIP = 31
"""The `wbits` of zlib for a gzip header and the largest window."""


@dataclass(frozen=True)
class Limits:
    """How large a request may be, how long it may take to arrive, and how long a query may take."""

    body_bytes: int = 64 * 1024 * 1024
    """The largest request body, before and after decompression."""
    body_seconds: float = 30.0
    state_bytes: int = 256 * 1024 * 1024
    """The largest state that the server builds for a client that asks for a whole state."""
    query_seconds: float = 30.0
    """How long a search, a list of threads or a metadata query may take."""


async def read_json(request: Request, limits: Limits) -> dict[str, Any]:
    """The body of a request, which must be a JSON object."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, "unsupported_media_type", "send JSON: Content-Type: application/json")
    body = await _body(request, limits)
    try:
        # json.loads would guess the encoding of bytes.
        data = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise Problem(400, "malformed", f"the body is no JSON: {_reason(error)}") from error
    if not isinstance(data, dict):
        raise Problem(400, "malformed", "the body is no JSON object")
    return data


def _reason(error: Exception) -> str:
    """What is wrong with the JSON, without quoting it."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    return "it is nested too deeply" if isinstance(error, RecursionError) else "it is no UTF-8, or a number is too long"


async def _body(request: Request, limits: Limits) -> bytes:
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise Problem(
            415, "unsupported_encoding", "a body is sent as it is, or as gzip", headers={"Accept-Encoding": "gzip"}
        )
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limits.body_bytes:
        raise _too_large(limits)
    decompressor = _Decompressor(limits) if encoding == "gzip" else None
    chunks, size = [], 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in request.stream():
                taken = decompressor.feed(chunk) if decompressor else chunk
                size += len(taken)
                if size > limits.body_bytes:
                    raise _too_large(limits)
                chunks.append(taken)
    except TimeoutError as error:
        raise Problem(
            408, "too_slow", f"the body did not arrive within {limits.body_seconds:g} s", headers=_CLOSE
        ) from error
    except ClientDisconnect as error:
        raise Problem(400, "cut_off", "the body was cut off") from error
    if decompressor:
        decompressor.finish()
    return b"".join(chunks)


class _Decompressor:
    """Decompresses gzip up to the limit: a few bytes can expand to very many."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._stream = zlib.decompressobj(_GZIP)
        self._size = 0

    def feed(self, chunk: bytes) -> bytes:
        try:
            data = self._stream.decompress(chunk, self._limits.body_bytes - self._size + 1)
        except zlib.error as error:
            raise Problem(400, "malformed", "the body is no gzip") from error
        self._size += len(data)
        if self._size > self._limits.body_bytes:
            raise _too_large(self._limits)
        return data

    def finish(self) -> None:
        if not self._stream.eof or self._stream.unused_data:
            raise Problem(400, "malformed", "the body is no whole gzip")


def _too_large(limits: Limits) -> Problem:
    return Problem(413, "too_large", f"a body has at most {limits.body_bytes} bytes here", headers=_CLOSE)


async def json_response(
    request: Request, data: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return await text_response(request, encode_trusted(data), status, headers)


async def text_response(
    request: Request, text: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A response of JSON text."""
    body = text.encode()
    sent = {**headers} if headers else {}
    if len(body) >= COMPRESS_FROM:
        sent["Vary"] = "Accept-Encoding"
        if accepts_gzip(request):
            sent["Content-Encoding"] = "gzip"
            body = await asyncio.to_thread(gzip.compress, body, 1)
    return Response(body, status, sent, "application/json")


def jsonl_response(request: Request, lines: AsyncIterator[bytes]) -> Response:
    """A stream of JSON objects, one per line."""
    headers = {"Vary": "Accept-Encoding"}
    if accepts_gzip(request):
        lines, headers["Content-Encoding"] = _compressed(lines), "gzip"
    return StreamingResponse(lines, headers=headers, media_type="application/jsonl")


async def _compressed(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    stream = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    async for line in lines:
        if compressed := stream.compress(line):
            yield compressed
    yield stream.flush()


def accepts_gzip(request: Request) -> bool:
    """Whether the client accepts gzip; `gzip;q=0` refuses it."""
    for part in request.headers.get("accept-encoding", "").lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
