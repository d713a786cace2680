"""Servers that answer more than anybody can keep: they are given up, and their answer is not."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import httpcore
import httpx
import pytest
from starlette.types import Receive, Scope, Send

from locus.errors import BackendUnavailableError
from locus.memory.backends import HTTPCheckpointer
from locus.memory.backends.http import client as http_client
from locus.memory.backends.http.client import Request, Response, _DirectConnection, _ProxiedConnection
from tests.server.running import threaded

pytestmark = pytest.mark.http

MOST = 100_000


class Answers:
    """A server with one answer, in pieces, for every request."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.pieces: list[bytes] = []
        self.requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self.requests += 1
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        for piece in self.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    monkeypatch.setattr(http_client, "MAX_ANSWER", MOST)
    return Answers()


@pytest.fixture
def port(answers: Answers) -> Iterator[int]:
    with threaded(answers) as port:
        yield port


async def _sent(port: int, proxied: bool) -> Response:
    """Both ways to send a request; httpx would go through a proxy if there were one."""
    url = f"http://127.0.0.1:{port}/x"
    origin = httpcore.Origin(b"http", b"127.0.0.1", port)
    connection = _ProxiedConnection(10) if proxied else _DirectConnection(origin, 10)
    try:
        return await connection.send(Request("GET", url, b"/x", [], None))
    finally:
        await connection.close()


@pytest.mark.parametrize("proxied", [False, True])
async def test_an_answer_is_bounded_before_and_after_it_is_unpacked(port: int, answers: Answers, proxied: bool) -> None:
    most, bomb = b"x" * MOST, gzip.compress(b"x" * (MOST + 1))
    for encoding, pieces, expected in (
        (b"identity", [most], most),
        (b"gzip", [], b""),
        (b"identity", [most, b"x"], None),
        (b"gzip", [gzip.compress(most)], most),
        (b"gzip", [gzip.compress(most[:7]), gzip.compress(most[7:]), b"\0\0"], most),
        (b"gzip", [bomb], None),
        (b"gzip", [gzip.compress(most), gzip.compress(b"x")], None),
    ):
        answers.headers, answers.pieces = [(b"content-encoding", encoding)], pieces
        if expected is None:
            with pytest.raises(BackendUnavailableError, match="larger than 100000 bytes"):
                await _sent(port, proxied)
        else:
            assert (await _sent(port, proxied)).content == expected


@pytest.mark.parametrize("proxied", [False, True])
async def test_what_is_no_whole_gzip_is_no_answer(port: int, answers: Answers, proxied: bool) -> None:
    whole = gzip.compress(b"x" * 1_000)
    answers.headers = [(b"content-encoding", b"gzip")]
    for content in (whole[:-1], whole + b"rest", b"no gzip", whole * 100):
        answers.pieces = [content]
        with pytest.raises(httpx.RemoteProtocolError, match="no whole gzip"):
            await _sent(port, proxied)


async def test_such_an_answer_is_not_asked_for_again(port: int, answers: Answers) -> None:
    """It would be as large, and it was no outage of the network."""
    answers.headers = [(b"content-type", b"application/json"), (b"content-encoding", b"gzip")]
    answers.pieces = [gzip.compress(json.dumps({"state": "x" * MOST}).encode())]
    async with HTTPCheckpointer(f"http://127.0.0.1:{port}") as handle:
        with pytest.raises(BackendUnavailableError, match="larger than 100000 bytes"):
            await handle.load("t")
    assert answers.requests == 1
