"""Bodies that cost more than their size says: many values, and what follows a gzip. Others are served meanwhile."""

from __future__ import annotations

import asyncio
import gzip
import json
import select
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from locus.memory.backends import MemoryCheckpointer
from locus.memory.model.ids import digest, new_id
from locus.server import Limits, create_app
from locus.server.parsing import ValueCounter
from locus.wire.problems import Problem
from tests.server.running import Serving, asking, serving

JSON = {"Content-Type": "application/json"}
PATH = "/threads/t/checkpoints"
MOST = 300_000
MANY_VALUES = 50_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder: Path = tmp_path_factory.mktemp("large")
    with serving(folder, "memory", "--max-values", str(MOST), "--max-body", "40") as server:
        yield server


def _peak_memory(server: Serving) -> int:
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    limits = Limits(body_bytes=1_000_000, body_values=MANY_VALUES)
    async with asking(create_app(MemoryCheckpointer(), limits=limits)) as client:
        yield client


@pytest.fixture
def few_values(monkeypatch: pytest.MonkeyPatch) -> int:
    """So few that the tests are quick: beyond them, values are counted one by one."""
    monkeypatch.setattr("locus.server.parsing.FEW_VALUES", 1_000)
    return 1_000


def test_others_are_answered_while_a_large_body_is_read(server: Serving) -> None:
    body = gzip.compress(b'{"state":{"x":[' + b"1," * (MOST + 100_000) + b"1]}}")
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection, httpx.Client() as other:
        assert other.get(f"{server.url}/health").is_success
        connection.sendall(head.encode() + body)
        for _ in range(3):
            assert other.get(f"{server.url}/health", timeout=60).is_success
        answered, _, _ = select.select([connection], [], [], 0)
        assert not answered, "the large body was dealt with before anybody else was"
        assert connection.recv(12) == b"HTTP/1.1 413"


async def test_a_large_body_is_read_by_another_thread(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, answered = threading.Event(), threading.Event()
    parse = ValueCounter.parse

    def slowly(self: ValueCounter, text: str) -> Any:
        if len(text) > 100_000:
            begun.set()
            assert answered.wait(30)
        return parse(self, text)

    monkeypatch.setattr(ValueCounter, "parse", slowly)
    body = json.dumps({"state": {"text": "x" * 200_000}})
    saving = asyncio.ensure_future(client.post(PATH, content=body, headers=JSON))
    assert await asyncio.to_thread(begun.wait, 30)
    assert (await client.get("/health")).is_success
    answered.set()
    assert (await saving).status_code == 201
    assert (await client.get("/threads/t/latest")).json()["state"] == {"text": "x" * 200_000}


def test_a_few_bytes_that_stand_for_very_many_values_take_little_memory(server: Serving) -> None:
    body = gzip.compress(b'{"state":{"x":[' + b"{}," * 10_000_000 + b"{}]}}")
    assert len(body) < 50_000
    response = httpx.post(f"{server.url}{PATH}", content=body, headers=JSON | {"Content-Encoding": "gzip"}, timeout=60)
    assert (response.status_code, response.json()["code"]) == (413, "too_many_values")
    assert _peak_memory(server) < 400_000_000


@pytest.mark.parametrize("ends", [True, False], ids=["a whole gzip first", "a gzip that goes on with nothing"])
def test_what_brings_no_data_counts_too(server: Serving, ends: bool) -> None:
    """Bytes behind a gzip, and blocks of it that hold nothing."""
    packed = gzip.compress(b'{"state":{}}')
    start, more = (packed, b"x" * 65_536) if ends else (packed[:10], b"\0\0\0\xff\xff" * 13_107)
    sent = 0

    def pieces() -> Iterator[bytes]:
        nonlocal sent
        yield start
        for _ in range(1_000):
            sent += len(more)
            yield more

    try:
        response = httpx.post(
            f"{server.url}{PATH}", content=pieces(), headers=JSON | {"Content-Encoding": "gzip"}, timeout=60
        )
        assert response.status_code in (400, 413)
    except httpx.WriteError:  # the server has answered, and closed the connection
        pass
    # Sockets on the way hold some megabytes.
    assert sent < 60_000_000, "a body of 64 MB was taken, with a limit of 40"


async def test_values_inside_a_text_are_counted(client: httpx.AsyncClient) -> None:
    text = "[" + "{}," * MANY_VALUES + "{}]"
    rev = new_id()
    commit = {
        "checkpoint_id": "c",
        "rev": rev,
        "created_at": "2026-01-31T12:00:00+00:00",
        "metadata": {},
        "head": {"x": None},
        "manifest": [[["x"], f"#{digest(text)}"]],
        "values": [[f"#{digest(text)}", text]],
    }
    response = await client.post("/threads/t/commits", json=commit)
    assert (response.status_code, response.json()["code"]) == (413, "too_many_values")


async def test_many_values_are_kept_up_to_the_limit(client: httpx.AsyncClient, few_values: int) -> None:
    """Beyond the number that is read at once, they are the same."""
    state = {"numbers": [[number, f"{number}"] for number in range(6_000)], "x": {"a": [None, True, -1.5e3, "\u00e4"]}}
    assert (await client.post(PATH, json={"state": state})).status_code == 201
    assert (await client.get("/threads/t/latest")).json()["state"] == state
    writes = [["channel", [{"n": number} for number in range(6_000)]]]
    put = await client.put(f"{PATH}/c/writes", json={"task_id": "t", "writes": writes})
    assert put.status_code == 204


TEXTS = [
    *('[1,{"a":[]},"x",null,true,false,-0.0,1E5,-12]', '{"a":1,"a":2}', " [ 1 , 2 ] ", '"\\ud83d\\ude00\\u0000"', "{}"),
    *("NaN", "[-Infinity]", '"\\ud800"', "[1e400]", "123456789012345678901234567890"),
    *(
        "",
        "[",
        "{",
        "[1,]",
        '{"a":}',
        '{"a" 1}',
        "nul",
        "[1 2]",
        '"a',
        '"\n"',
        "01",
        "-",
        "1.",
        "+1",
        '{"a":1,}',
        "{}{}",
    ),
    *("[\u0661]", "1\u0662", '"\\x"', "[" * 90_000, "9" * 5_000),
]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_both_readers_read_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(most: int) -> str:
        monkeypatch.setattr("locus.server.parsing.FEW_VALUES", most)
        try:
            return repr(ValueCounter(1_000_000).parse(text))
        except (ValueError, RecursionError) as error:
            return (
                f"{type(error).__name__}: {error}" if isinstance(error, json.JSONDecodeError) else type(error).__name__
            )

    assert read(0) == read(1_000_000)


def test_values_are_counted_exactly(few_values: int) -> None:
    text = "[" + '"many, many [ of { them",' * few_values + "1]"
    assert len(ValueCounter(few_values + 2).parse(text)) == few_values + 1
    with pytest.raises(Problem) as caught:
        ValueCounter(few_values + 1).parse(text)
    assert caught.value.code == "too_many_values"


async def test_bodies_in_progress_share_a_budget_and_one_is_always_let_in() -> None:
    app = create_app(MemoryCheckpointer(), limits=Limits(memory_bytes=100_000))
    body = json.dumps({"state": {"text": "x" * 90_000}}).encode()
    begun, more = asyncio.Event(), asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield body[:80_000]
        begun.set()
        await more.wait()
        yield body[80_000:]

    async with asking(app) as client:
        waiting = asyncio.ensure_future(client.post(PATH, content=pieces(), headers=JSON))
        await begun.wait()
        refused = await client.post("/threads/u/checkpoints", content=body, headers=JSON)
        assert (refused.status_code, refused.json()["code"]) == (503, "busy")
        assert refused.headers["retry-after"] == "1"
        more.set()
        assert (await waiting).status_code == 201
        assert app.memory.taken == 0
        assert (await client.post("/threads/u/checkpoints", content=body, headers=JSON)).status_code == 201


async def test_what_tasks_wrote_is_limited_as_a_state_is() -> None:
    limits = Limits(state_bytes=300_000)
    async with asking(create_app(MemoryCheckpointer(), limits=limits)) as client:
        await client.post(PATH, json={"checkpoint_id": "c", "state": {}})
        for task in range(4):
            body = {"task_id": f"{task}", "writes": [["channel", "x" * 100_000]]}
            assert (await client.put(f"{PATH}/c/writes", json=body)).status_code == 204
        one = await client.get(f"{PATH}/c/writes", params={"task_id": "1"})
        assert [write["value"] for write in one.json()["writes"]] == ["x" * 100_000]
        every = await client.get(f"{PATH}/c/writes")
        assert (every.status_code, every.json()["code"]) == (507, "state_too_large")


async def test_large_answers_are_whole() -> None:
    """States, writes and lines of an export that worker threads put together."""
    async with asking(create_app(MemoryCheckpointer())) as client:
        state = {"items": ["x" * 1_000] * 1_500, "n": 1}
        writes = [["channel", {"text": "y" * 1_200_000}]]
        await client.post(PATH, json={"checkpoint_id": "c", "state": state})
        assert (await client.put(f"{PATH}/c/writes", json={"task_id": "1", "writes": writes})).status_code == 204
        assert (await client.get("/threads/t/latest")).json()["state"] == state
        assert (await client.get(f"{PATH}/c/writes")).json()["writes"][0]["value"] == writes[0][1]
        for encoding in ("gzip", "identity"):
            lines = (await client.get("/threads/t/export", headers={"Accept-Encoding": encoding})).text.splitlines()
            (line,) = map(json.loads, lines)
            assert line["state"] == state
            assert line["writes"][0]["value"] == writes[0][1]


async def test_many_compressed_bodies_at_once_are_let_in() -> None:
    """They take the memory that they need, and not what they might need."""
    body = gzip.compress(json.dumps({"state": {"text": "x" * 100_000}}).encode())
    async with asking(create_app(MemoryCheckpointer())) as client:
        headers = JSON | {"Content-Encoding": "gzip"}
        answers = await asyncio.gather(
            *(client.post(f"/threads/{n}/checkpoints", content=body, headers=headers) for n in range(40))
        )
    assert {answer.status_code for answer in answers} == {201}


@pytest.mark.parametrize("size", [10, 65_000, 65_536, 65_537, 200_000, 4_194_304, 9_000_000])
async def test_a_compressed_body_of_any_size_is_read(size: int) -> None:
    for level in (0, 1):
        data = b'{"state":{}}'.ljust(size)
        body = gzip.compress(data, level)
        async with asking(create_app(MemoryCheckpointer())) as client:
            headers = JSON | {"Content-Encoding": "gzip"}
            assert (await client.post(PATH, content=body, headers=headers)).status_code == 201
            for wrong in (body[:-1], body[: len(body) // 2], body + b"x", body + body):
                answer = await client.post(PATH, content=wrong, headers=headers)
                assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
