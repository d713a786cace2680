"""Bodies that are too much, too late, cut off or nonsense."""

from __future__ import annotations

import gzip
import json
import socket
import struct
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from locus.memory.backends import MemoryCheckpointer
from locus.server import Limits, create_app
from tests.server.running import Serving, asking, serving

JSON = {"Content-Type": "application/json"}
PATH = "/threads/t/checkpoints"


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(MemoryCheckpointer(), limits=Limits(body_bytes=10_000, state_bytes=20_000))
    async with asking(app) as client:
        yield client


def _body(size: int) -> bytes:
    return json.dumps({"state": {"text": "x" * size}}).encode()


PACKED = gzip.compress(_body(10))


async def test_a_body_beyond_the_limit_is_refused(client: httpx.AsyncClient) -> None:
    assert (await client.post(PATH, content=_body(9_000), headers=JSON)).status_code == 201
    response = await client.post(PATH, content=_body(11_000), headers=JSON)
    assert (response.status_code, response.json()["code"]) == (413, "too_large")
    assert response.headers["connection"] == "close"


async def test_a_body_without_a_length_is_counted(client: httpx.AsyncClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 1_000

    response = await client.post(PATH, content=pieces(), headers=JSON)
    assert response.status_code == 413


async def test_a_few_bytes_that_stand_for_very_many_are_refused(client: httpx.AsyncClient) -> None:
    bomb = gzip.compress(b" " * 50_000_000, 9)
    assert len(bomb) < 100_000
    for body in (bomb[:9_000], gzip.compress(gzip.compress(b" " * 5_000_000) * 30)):
        response = await client.post(PATH, content=body, headers=JSON | {"Content-Encoding": "gzip"})
        assert response.status_code in (400, 413)
        assert response.json()["code"] in ("too_large", "malformed")
    first = await client.post(PATH, content=bomb[:9_000], headers=JSON | {"Content-Encoding": "gzip"})
    assert first.status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        b"no gzip at all",
        gzip.compress(_body(10))[:-5],
        gzip.compress(_body(10)) + b"more",
        zlib.compress(_body(10)),
        b"",
    ],
    ids=["text", "cut off", "something behind it", "deflate", "empty"],
)
async def test_a_body_that_is_no_gzip_is_refused(client: httpx.AsyncClient, body: bytes) -> None:
    response = await client.post(PATH, content=body, headers=JSON | {"Content-Encoding": "gzip"})
    assert (response.status_code, response.json()["code"]) == (400, "malformed")


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[]", b"7", b'"x"', b"{}{}", b"[" * 9_000, b'{"a":' * 1_500])
async def test_a_body_that_is_no_json_object_is_refused(client: httpx.AsyncClient, body: bytes) -> None:
    response = await client.post(PATH, content=body, headers=JSON)
    assert (response.status_code, response.json()["code"]) == (400, "malformed")


async def test_a_number_too_long_to_read_is_refused(client: httpx.AsyncClient) -> None:
    response = await client.post(PATH, content=b'{"state":{"n":' + b"9" * 5_000 + b"}}", headers=JSON)
    assert (response.status_code, response.json()["code"]) == (400, "malformed")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_only_json_is_taken(client: httpx.AsyncClient, kind: str) -> None:
    """A page in a browser may send the others anywhere, without asking."""
    response = await client.post(PATH, content=_body(10), headers={"Content-Type": kind})
    assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type")


async def test_other_encodings_are_refused(client: httpx.AsyncClient) -> None:
    response = await client.post(PATH, content=_body(10), headers=JSON | {"Content-Encoding": "br"})
    assert (response.status_code, response.json()["code"]) == (415, "unsupported_encoding")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder: Path = tmp_path_factory.mktemp("slow")
    with serving(folder, "memory", "--header-timeout", "1", "--body-timeout", "0.5") as server:
        yield server


class TestSlowClients:
    """Real sockets, to a real process."""

    def _connected(self, server: Serving) -> socket.socket:
        return socket.create_connection(("127.0.0.1", server.port), timeout=20)

    def _rest(self, connection: socket.socket) -> bytes:
        """What still comes, until the server has closed the connection."""
        data = b""
        while piece := connection.recv(65_536):
            data += piece
        return data

    @pytest.mark.parametrize("begun", [b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: "])
    def test_headers_that_never_end_are_cut_off(self, server: Serving, begun: bytes) -> None:
        started = time.monotonic()
        with self._connected(server) as connection:
            connection.sendall(begun)
            assert self._rest(connection) == b""
        assert time.monotonic() - started < 15

    def test_headers_that_drip_are_cut_off(self, server: Serving) -> None:
        with self._connected(server) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ")
            until = time.monotonic() + 15
            with pytest.raises(OSError):
                while time.monotonic() < until:
                    connection.sendall(b"x")
                    time.sleep(0.05)

    def test_a_body_that_never_ends_is_answered(self, server: Serving) -> None:
        head = b"POST /threads/t/checkpoints HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with self._connected(server) as connection:
            connection.sendall(head + b"Content-Length: 1000\r\n\r\n{")
            answer = self._rest(connection)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b'"too_slow"' in answer

    def test_a_body_that_is_cut_off_saves_nothing(self, server: Serving) -> None:
        head = b"POST /threads/cut/checkpoints HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with self._connected(server) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(head + b'Content-Length: 1000\r\n\r\n{"state":{}}')
        assert httpx.get(f"{server.url}/threads/cut/latest").status_code == 404

    def test_others_are_served_meanwhile(self, server: Serving) -> None:
        waiting = [self._connected(server) for _ in range(50)]
        for connection in waiting:
            connection.sendall(b"GET /health HTTP/1.1\r\n")
        assert httpx.get(f"{server.url}/health").is_success
        for connection in waiting:
            connection.close()
