"""OpenSearch killed under load, blocked, too busy, and cut off in the middle of a request."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError
from locus.memory.backends import OpenSearchBackend, opensearch_checkpointer
from locus.memory.backends.opensearch.client import BulkItem, Client, Failure
from locus.memory.backends.opensearch.log import Log
from locus.memory.backends.opensearch.schema import COPY, END, REMOVAL, Record
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import SOAK
from tests.backends.acknowledged import Acknowledged
from tests.backends.opensearch.store import OpenSearchStore
from tests.servers.opensearch import OpenSearchServer
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.opensearch

WRITERS = 4


@pytest.fixture
def proxy(opensearch_server: OpenSearchServer) -> Iterator[Proxy]:
    with Proxy(opensearch_server.port) as proxy:
        yield proxy


@pytest.fixture
def store(opensearch_server: OpenSearchServer, proxy: Proxy) -> Iterator[OpenSearchStore]:
    store = OpenSearchStore(opensearch_server.url, proxy=proxy)
    yield store
    store.remove()


def _said(number: int) -> Message:
    return Message.user(f"message {number} {'and so on ' * 50}")


async def _write(checkpointer: Checkpointer, number: int, written: Acknowledged, stop: asyncio.Event) -> None:
    """Save turn by turn until told to stop; note what was acknowledged."""
    name = f"thread {number}"
    state = AgentState(agent_id=name)
    while not stop.is_set():
        grown = state.with_message(_said(len(state.messages)))
        try:
            await written.note(number, await checkpointer.save(grown, name), grown)
            state = grown
        except BackendUnavailableError:
            await asyncio.sleep(0.2)


async def _assert_whole(checkpointer: Checkpointer, name: str, saved: dict[str, AgentState]) -> None:
    """All that was acknowledged is there as it was saved; whatever else is there is whole."""
    entries = await checkpointer.history(name, None)
    assert {entry.checkpoint_id for entry in entries} >= set(saved)
    assert [entry.seq for entry in entries] == list(range(len(entries), 0, -1))
    for entry in entries[:: max(1, len(entries) // 20)]:
        state = await checkpointer.load(name, entry.checkpoint_id)
        assert state is not None
        assert state == saved.get(entry.checkpoint_id, state)
        assert [message.content for message in state.messages] == [_said(n).content for n in range(len(state.messages))]


@pytest.mark.crash
async def test_nothing_acknowledged_is_lost_when_the_server_is_killed(opensearch_server: OpenSearchServer) -> None:
    """The one of the session, which waits for the disk as every other: to start one takes longer than all the rest."""
    server, store = opensearch_server, OpenSearchStore(opensearch_server.url)
    written, stop = Acknowledged(WRITERS), asyncio.Event()
    async with store.open(timeout=20) as checkpointer:
        await checkpointer.save(AgentState(), "made")
        writers = [asyncio.create_task(_write(checkpointer, number, written, stop)) for number in range(WRITERS)]
        for _ in range(5 if SOAK else 1):
            await written.more_of_each(8)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.restart)
        await written.more_of_each(8)
        stop.set()
        await asyncio.gather(*writers)
    async with store.open() as cold:
        assert await cold.list_threads() == ["made", *(f"thread {n}" for n in range(WRITERS))]
        for number, acknowledged in enumerate(written.of_each):
            await _assert_whole(cold, f"thread {number}", acknowledged)
    store.remove()


@pytest.mark.parametrize("direction", ["to_server", "from_server"])
async def test_a_connection_cut_in_the_middle_leaves_a_save_or_none(
    store: OpenSearchStore, proxy: Proxy, direction: str
) -> None:
    """Anywhere in the request or in its answer; what was sent again is there once."""
    state, saved, raised = AgentState(), dict[str, AgentState](), 0
    async with store.open() as checkpointer:
        saved[await checkpointer.save(state, "thread 0")] = state
        for cut in (1, 60, 150, 300, 400, 700, 1_500, 3_000):
            grown = state.with_message(_said(len(state.messages)))
            proxy.cut_after(**{direction: cut})
            try:
                saved[await checkpointer.save(grown, "thread 0")] = grown
                state = grown
            except BackendUnavailableError:
                raised += 1
            proxy.accept()
            async with store.open() as cold:
                latest = await cold.load("thread 0")
                assert latest in (state, grown)
                await _assert_whole(cold, "thread 0", saved)
    assert len(saved) + raised == 9
    assert len(saved) > 1, "a cut that comes once is got over"


async def test_a_save_whose_answer_is_lost_is_there_once(store: OpenSearchStore, proxy: Proxy) -> None:
    """The driver sends it again by itself: the second time its record exists."""
    state = AgentState()
    async with store.open() as checkpointer:
        for turn, cut in enumerate((None, None, 1, 40, 80)):
            state = state.with_message(_said(turn))
            proxy.cut_after(from_server=cut)
            saved = await checkpointer.save(state, "thread 0")
            proxy.accept()
            entries = await checkpointer.history("thread 0", None)
            assert [entry.seq for entry in entries] == list(range(turn + 1, 0, -1))
            assert entries[0].checkpoint_id == saved


async def test_a_removal_or_a_copy_whose_answer_is_lost_is_done_once(store: OpenSearchStore, proxy: Proxy) -> None:
    states = [AgentState().with_message(_said(0))]
    async with store.open() as checkpointer:
        names = [await checkpointer.save(states[0], "thread 0")]
        for turn in range(1, 4):
            states.append(states[-1].with_message(_said(turn)))
            names.append(await checkpointer.save(states[-1], "thread 0"))
        with pytest.MonkeyPatch.context() as patch:
            write = Client.write

            def cut_records(client: Client, routing: str, items: Sequence[BulkItem]) -> list[bool]:
                if (
                    len(items) == 1
                    and items[0].action == "create"
                    and (items[0].source or {})["kind"] in (REMOVAL, COPY, END)
                ):
                    proxy.cut_after(from_server=1)
                return write(client, routing, items)

            patch.setattr(Client, "write", cut_records)
            assert await checkpointer.copy_thread("thread 0", "copy")
            assert await checkpointer.delete("thread 0", names[1])
            assert await checkpointer.delete("thread 0")
        async with store.open() as cold:
            assert await cold.list_threads() == ["copy"]
            assert await cold.list_checkpoints("copy") == names[::-1]
            for name, state in zip(names, states, strict=True):
                assert await cold.load("copy", name) == state


async def test_a_server_that_does_not_answer_is_given_up(store: OpenSearchStore, proxy: Proxy) -> None:
    state = AgentState().with_message(_said(0))
    async with opensearch_checkpointer([store.host], store.index, timeout=1.0, replicas=0) as checkpointer:
        await checkpointer.save(state, "t")
        proxy.stall()
        for attempt in (checkpointer.load("t"), checkpointer.save(state, "t"), checkpointer.list_threads()):
            started = time.monotonic()
            with pytest.raises(BackendUnavailableError, match="within 1 s"):
                await attempt
            assert time.monotonic() - started < 8
        proxy.accept()
        proxy.cut()
        assert await checkpointer.load("t") == state


async def test_a_blocked_index_is_an_error_until_it_is_unblocked(store: OpenSearchStore) -> None:
    state = AgentState().with_message(_said(0))
    async with store.open() as checkpointer:
        await checkpointer.save(state, "t", "first")
        store.ask("PUT", f"{store.index}/_settings", {"index.blocks.read_only_allow_delete": True})
        with pytest.raises(BackendUnavailableError, match="disk"):
            await checkpointer.save(state.next_iteration(), "t", "second")
        with pytest.raises(BackendUnavailableError):
            await checkpointer.save(state, "new")
        assert await checkpointer.load("t") == state
        assert await checkpointer.list_checkpoints("t") == ["first"]
        store.ask("PUT", f"{store.index}/_settings", {"index.blocks.read_only_allow_delete": None})
        await checkpointer.save(state.next_iteration(), "t", "second")
        assert await checkpointer.list_checkpoints("t") == ["second", "first"]


async def test_a_closed_index_is_an_error(store: OpenSearchStore) -> None:
    async with store.open() as checkpointer:
        await checkpointer.save(AgentState(), "t")
        store.ask("POST", f"{store.index}/_close")
        for attempt in (checkpointer.load("t"), checkpointer.save(AgentState(), "u"), checkpointer.list_threads()):
            with pytest.raises(BackendUnavailableError):
                await attempt
        store.ask("POST", f"{store.index}/_open?wait_for_active_shards=1")
        assert await checkpointer.list_threads() == ["t"]


def _limit_requests(store: OpenSearchStore, limit: str | None) -> None:
    store.ask("PUT", "_cluster/settings", {"transient": {"network.breaker.inflight_requests.limit": limit}})


async def test_what_a_busy_server_refuses_is_tried_again_and_then_an_error(store: OpenSearchStore) -> None:
    """The server's own limit for requests that are under way: it answers 429."""
    state = AgentState().with_messages([_said(number) for number in range(30)])
    async with store.open() as checkpointer:
        first = await checkpointer.save(AgentState(), "t")
        try:
            _limit_requests(store, "4kb")
            with pytest.raises(BackendUnavailableError, match="too busy"):
                await checkpointer.save(state, "t")
            assert await checkpointer.list_checkpoints("t") == [first]
            later = threading.Timer(0.3, _limit_requests, (store, None))
            later.start()
            second = await checkpointer.save(state, "t")
            later.join()
        finally:
            _limit_requests(store, None)
        assert await checkpointer.list_checkpoints("t") == [second, first]


class _Refuses(BaseHTTPRequestHandler):
    """A server that knows nobody."""

    status, body = 401, b"Unauthorized"
    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(self.headers.get("authorization", ""))
        self.send_response(self.status)
        self.send_header("content-length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(("status", "body"), [(401, b"Unauthorized"), (403, b"{}"), (200, b"<html>hello"), (502, b"")])
async def test_a_server_that_refuses_or_is_none_is_an_error(
    status: int, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    handler = type("_Handler", (_Refuses,), {"status": status, "body": body, "seen": []})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        host = f"127.0.0.1:{server.server_port}"
        async with OpenSearchBackend([host], username="eve", password="hush-hush", timeout=5) as backend:
            with pytest.raises(BackendUnavailableError) as caught:
                await backend.load("t")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert handler.seen[0].startswith("Basic ")  # type: ignore[attr-defined]
    assert "hush" not in f"{caught.value!r} {caught.value.__cause__!r} {caplog.text}"


class _Killed(BaseException):
    """In the place of SIGKILL: nothing that a save would do afterwards is done."""


async def test_what_a_killed_first_writer_left_is_listed_once_somebody_has_read_it(
    store: OpenSearchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_log: Log) -> None:
        raise _Killed

    async with store.open() as writer:
        with monkeypatch.context() as patched, pytest.raises(_Killed):
            patched.setattr(Log, "publish", killed)
            await writer.save(AgentState(agent_id="a").with_message(_said(1)), "begun")
    async with store.open() as reader:
        assert await reader.list_threads() == []
        state = await reader.load("begun")
        assert state is not None
        assert await reader.list_threads() == ["begun"]
        assert [thread.thread_id for thread in (await reader.recent_threads(5)).threads] == ["begun"]
        await reader.save(state.with_message(_said(2)), "begun")
    async with store.open() as another:
        assert len(await another.list_checkpoints("begun")) == 2


async def test_a_first_save_whose_answer_was_lost_is_not_written_twice(
    store: OpenSearchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds its own record when it is sent again, although nobody has listed the thread before."""
    append, sent = Log.append, 0

    def appended(log: Log, record: Record) -> bool:
        nonlocal sent
        sent += 1
        done = append(log, record)
        if sent == 1:
            raise Failure("N/A", "the answer was lost")
        return done

    async with store.open() as writer:
        with monkeypatch.context() as patched:
            patched.setattr(Log, "append", appended)
            await writer.save(AgentState(agent_id="a").with_message(_said(1)), "begun")
        assert sent == 1
        assert len(await writer.list_checkpoints("begun")) == 1
        assert await writer.list_threads() == ["begun"]
