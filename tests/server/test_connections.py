"""Clients that hold connections, and requests that two programs could read in two ways. All on real sockets."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from locus.memory.backends import MemoryCheckpointer
from locus.memory.storage import StorageBackend
from locus.server import create_app, middleware
from locus.server.connections import BoundedProtocol
from tests.server.ambiguous import AMBIGUOUS, POST, check_refused
from tests.server.running import HTTPConnection, threaded

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
LATEST = b"GET /threads/t/latest HTTP/1.1\r\nHost: localhost\r\n"
REFUSED = POST.replace(b"application/json", b"text/plain")
"""Is answered without a look at its body."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with threaded(create_app(MemoryCheckpointer()), header_seconds=5, body_seconds=0.5, send_seconds=0.5) as port:
        yield port


@pytest.fixture
def connection(port: int) -> Iterator[HTTPConnection]:
    with HTTPConnection(port) as connection:
        yield connection


@pytest.mark.parametrize(
    ("framing", "piece"),
    [(b"Content-Length: 1000000\r\n\r\n", b"x"), (b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n")],
    ids=["length", "chunks"],
)
def test_a_body_that_drips_after_its_answer_is_cut_off(
    connection: HTTPConnection, framing: bytes, piece: bytes
) -> None:
    connection.send(REFUSED + framing)
    assert connection.answer()[0] == 415
    connection.drip(piece)


def test_a_chunk_whose_head_never_ends_is_cut_off(connection: HTTPConnection) -> None:
    connection.send(REFUSED + b"Transfer-Encoding: chunked\r\n\r\n1;")
    assert connection.answer()[0] == 415
    connection.drip(b"x")


def test_a_connection_goes_on_after_a_body_that_nobody_read(connection: HTTPConnection) -> None:
    connection.send(REFUSED + b"Content-Length: 3\r\n\r\n")
    assert connection.answer()[0] == 415
    connection.send(b"abc" + HEALTH)
    assert connection.answer()[0] == 200


def test_headers_of_a_later_request_that_never_end_are_cut_off() -> None:
    """The time for them begins with the request, and not with the connection."""
    with (
        threaded(create_app(MemoryCheckpointer()), keep_alive_seconds=3_600, header_seconds=0.5) as port,
        HTTPConnection(port) as connection,
    ):
        connection.send(HEALTH)
        assert connection.answer()[0] == 200
        connection.send(b"GET /health HTTP/1.1\r\nX: ")
        connection.drip(b"x")


@pytest.mark.parametrize(
    "begun", [b"", REFUSED + b"Content-Length: 1\r\n\r\n"], ids=["a request", "a body read by nobody"]
)
def test_empty_lines_keep_no_connection_open(begun: bytes) -> None:
    with (
        threaded(create_app(MemoryCheckpointer()), keep_alive_seconds=-0.5) as port,
        HTTPConnection(port) as connection,
    ):
        connection.send(begun or HEALTH)
        connection.answer()
        connection.send(b"x" if begun else b"")
        connection.drip(b"\r\n")


def test_a_reader_that_stops_is_cut_off_and_holds_little(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 20_000_000
    held: list[int] = []
    pause = BoundedProtocol.pause_writing

    def noting(self: BoundedProtocol) -> None:
        pause(self)
        held.append(self.transport.get_write_buffer_size())

    monkeypatch.setattr(BoundedProtocol, "pause_writing", noting)
    assert httpx.post(
        f"http://127.0.0.1:{port}/threads/big/checkpoints", json={"state": {"text": "x" * size}}, timeout=60
    ).is_success
    with HTTPConnection(port, receive_buffer=4096) as connection:
        connection.send(b"GET /threads/big/latest HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.socket.recv(12) == b"HTTP/1.1 200"
        while _in_flight(port) > 1:  # the answer waits for its reader, piece by piece, until it is given up
            pass
        assert len(connection.rest()) < size
    assert 0 < max(held) < size / 20, "what the client has not taken was given to its connection"


@pytest.mark.parametrize(
    "requests",
    [
        LATEST + b"Connection: close\r\n\r\n",
        LATEST + b"\r\n" + POST + b"Transfer-Encoding: chunked\r\n\r\nno number\r\n",
    ],
    ids=["the client wants no other", "what follows is no request"],
)
def test_the_rest_of_a_last_answer_is_not_kept_for_a_reader_that_stops(
    monkeypatch: pytest.MonkeyPatch, requests: bytes
) -> None:
    """It is too little for the connection to be paused, and closing the connection would wait for it."""
    ended, lost = threading.Event(), BoundedProtocol.connection_lost

    def noting(self: BoundedProtocol, error: Exception | None) -> None:
        lost(self, error)
        ended.set()

    monkeypatch.setattr(BoundedProtocol, "connection_lost", noting)
    size, store = 50_000, MemoryCheckpointer()
    asyncio.run(StorageBackend(store.store).save("t", {"text": "x" * size}))
    with (
        threaded(create_app(store), send_buffer=4096, send_seconds=0.5) as port,
        HTTPConnection(port, receive_buffer=4096) as connection,
    ):
        connection.send(requests)
        assert ended.wait(20), "what the client does not take is kept"
        assert len(connection.rest()) < size


def test_a_reader_that_is_too_slow_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece is taken in time, but all of them would take hours."""
    monkeypatch.setattr(middleware, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(middleware, "LEAST_RATE", 10**12)
    size = 20_000_000
    with threaded(create_app(MemoryCheckpointer())) as port:
        assert httpx.post(
            f"http://127.0.0.1:{port}/threads/big/checkpoints", json={"state": {"text": "x" * size}}, timeout=60
        ).is_success
        with HTTPConnection(port, receive_buffer=262_144) as connection:
            connection.send(b"GET /threads/big/latest HTTP/1.1\r\nHost: localhost\r\n\r\n")
            received = 0
            while _in_flight(port) > 1:  # which takes some milliseconds each time
                received += len(connection.socket.recv(262_144))
            assert received + len(connection.rest()) < size


def _in_flight(port: int) -> float:
    text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    found = re.search(r"^locus_requests_in_flight (\S+)$", text, re.MULTILINE)
    assert found
    return float(found[1])


class TestTheNumberOfConnections:
    @pytest.fixture
    def few(self) -> Iterator[int]:
        with threaded(create_app(MemoryCheckpointer()), connections=5) as port:
            yield port

    def test_idle_ones_make_room(self, few: int) -> None:
        with ExitStack() as stack:
            idle = [stack.enter_context(HTTPConnection(few)) for _ in range(5)]
            for connection in idle:
                connection.send(HEALTH)
                assert connection.answer()[0] == 200
            for _ in range(3):
                assert stack.enter_context(httpx.Client()).get(f"http://127.0.0.1:{few}/health").is_success
            for connection in idle[:3]:  # those that have been idle longest
                assert connection.rest() == b""
            idle[4].send(HEALTH)
            assert idle[4].answer()[0] == 200

    def test_if_all_are_busy_the_next_one_is_refused(self, few: int) -> None:
        with ExitStack() as stack:
            busy = [stack.enter_context(HTTPConnection(few)) for _ in range(5)]
            for connection in busy:
                connection.send(POST + b"Expect: 100-continue\r\nContent-Length: 12\r\n\r\n")
                assert connection.socket.recv(100).startswith(b"HTTP/1.1 100")
            with HTTPConnection(few) as late:
                status, _ = late.answer()
                assert status == 503
            for connection in busy:
                connection.send(b'{"state":{}}')
                assert connection.answer()[0] == 201


@pytest.mark.parametrize(
    "start",
    [
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"GET /health?",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 100,
    ],
    ids=["a header", "a query", "headers"],
)
def test_headers_without_end_are_refused(connection: HTTPConnection, start: bytes) -> None:
    connection.send(start)
    try:
        for _ in range(200):
            connection.send((b"X: y\r\n" if start.endswith(b"\n") else b"xxxxxx") * 10_000)
        sent_all = True
    except OSError:
        sent_all = False
    assert connection.rest()[9:12] in (b"431", b"")
    assert not sent_all


def test_headers_that_are_too_long_are_refused_and_long_ones_are_not(port: int) -> None:
    for size, status in ((30_000, 200), (70_000, 431)):
        with HTTPConnection(port) as connection:
            connection.send(HEALTH[:-2] + b"X: " + b"x" * size + b"\r\n\r\n")
            assert connection.answer()[0] == status


def test_trailers_without_end_are_refused(connection: HTTPConnection) -> None:
    connection.send(POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n")
    with pytest.raises(OSError):
        for _ in range(200):
            connection.send(b"X: y\r\n" * 10_000)


@pytest.mark.parametrize("request_", AMBIGUOUS)
def test_a_request_that_could_be_read_in_two_ways_is_refused(port: int, request_: bytes) -> None:
    check_refused(port, request_)


def test_requests_that_come_together_are_answered_in_order(connection: HTTPConnection) -> None:
    body = json.dumps({"checkpoint_id": "c", "state": {"x": 1}}).encode()
    connection.send(
        POST.replace(b"/t/", b"/pipe/")
        + f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
        + HEALTH.replace(b"/health", b"/threads/pipe/latest")
        + HEALTH.replace(b"/health", b"/nothing")
        + HEALTH.replace(b"Host", b"Connection: close\r\nHost")
    )
    answers = connection.rest()
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"201", b"200", b"404", b"200"]


def test_very_many_requests_at_once_are_answered(connection: HTTPConnection) -> None:
    connection.send(HEALTH * 300 + HEALTH.replace(b"Host", b"Connection: close\r\nHost"))
    assert connection.rest().count(b"HTTP/1.1 200") == 301


@pytest.mark.parametrize("method", [b"HEAD", b"OPTIONS", b"TRACE", b"CONNECT", b"PATCH", b"PUT"])
def test_other_methods_have_no_side_ways(port: int, method: bytes) -> None:
    with HTTPConnection(port) as connection:
        connection.send(
            method + b" /threads HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n"
            b"Access-Control-Request-Method: DELETE\r\nConnection: close\r\n\r\n"
        )
        answer = connection.rest()
    assert answer[9:12] == (b"200" if method == b"HEAD" else b"405")
    assert b"access-control" not in answer.lower()
    assert method != b"HEAD" or answer.endswith(b"\r\n\r\n")


def test_an_upgrade_is_an_ordinary_request(connection: HTTPConnection) -> None:
    connection.send(HEALTH[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    assert connection.answer()[0] == 200
    connection.send(HEALTH)
    assert connection.answer()[0] == 200
