"""What may happen between a client and its server: nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError
from locus.memory.backends import HTTPCheckpointer, sqlite_checkpointer
from tests.server.running import Serving, serving
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.http

SAVERS = 8


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    with serving(tmp_path, "sqlite:///t.db", "--log-level", "warning") as server:
        yield server


@pytest.fixture
def proxy(server: Serving) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


def _client(port: int, timeout: float = 30.0) -> HTTPCheckpointer:
    return HTTPCheckpointer(f"http://127.0.0.1:{port}", timeout=timeout)


async def _save_until_it_fails(checkpointer: HTTPCheckpointer, thread_id: str, saved: dict[str, AgentState]) -> None:
    """Note what was acknowledged, until the server is gone."""
    state = AgentState(agent_id=thread_id)
    while True:
        state = state.with_message(Message.user(f"{thread_id} {len(state.messages)} {'x' * 500}"))
        try:
            saved[await checkpointer.save(state, thread_id)] = state
        except BackendUnavailableError:
            return


async def _under_load(server: Serving, signal_number: int, seconds: float) -> list[dict[str, AgentState]]:
    acknowledged: list[dict[str, AgentState]] = [{} for _ in range(SAVERS)]
    async with _client(server.port) as checkpointer:
        savers = [
            asyncio.create_task(_save_until_it_fails(checkpointer, f"thread {number}", saved))
            for number, saved in enumerate(acknowledged)
        ]
        while sum(map(len, acknowledged)) < 20:  # noqa: ASYNC110 - the savers tell nobody
            await asyncio.sleep(0.01)
        await asyncio.sleep(seconds)
        server.process.send_signal(signal_number)
        await asyncio.wait_for(asyncio.gather(*savers), 60)
    return acknowledged


async def _assert_kept(folder: Path, acknowledged: list[dict[str, AgentState]], *, unheard: int) -> None:
    """All that was acknowledged is there, and at most `unheard` more in each thread: answers that got lost."""
    assert sum(map(len, acknowledged)) > 0
    async with sqlite_checkpointer(folder / "t.db") as store:
        for number, saved in enumerate(acknowledged):
            ids = await store.list_checkpoints(f"thread {number}", limit=1_000_000)
            assert {*saved} <= {*ids}
            assert len(ids) <= len(saved) + unheard
            for checkpoint_id in ids:
                loaded = await store.load(f"thread {number}", checkpoint_id)
                assert loaded is not None
                assert loaded == saved.get(checkpoint_id, loaded)


@pytest.mark.crash
@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.3])
async def test_a_server_that_is_killed_has_kept_what_it_acknowledged(
    server: Serving, tmp_path: Path, seconds: float
) -> None:
    acknowledged = await _under_load(server, signal.SIGKILL, seconds)
    await _assert_kept(tmp_path, acknowledged, unheard=1)


@pytest.mark.parametrize("seconds", [0.0, 0.2])
async def test_a_server_that_is_told_to_end_finishes_the_saves_it_has_begun(
    server: Serving, tmp_path: Path, seconds: float
) -> None:
    """Every save that it took is answered: no answer gets lost."""
    acknowledged = await _under_load(server, signal.SIGTERM, seconds)
    assert await asyncio.to_thread(server.process.wait, 60) in (0, -signal.SIGTERM)
    await _assert_kept(tmp_path, acknowledged, unheard=0)


@pytest.mark.crash
async def test_several_workers_share_a_store_and_lose_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, "sqlite:///t.db", "--workers", "2", "--log-level", "warning") as server:
        acknowledged: list[dict[str, AgentState]] = [{} for _ in range(4)]

        async def converse(number: int) -> None:
            state = AgentState()
            async with _client(server.port) as checkpointer:
                for turn in range(10):
                    state = state.with_message(Message.user(f"{number} {turn}"))
                    acknowledged[number][await checkpointer.save(state, f"thread {number}")] = state

        await asyncio.gather(*map(converse, range(4)))
        async with httpx.AsyncClient(base_url=server.url) as client:
            figures = (await client.get("/metrics")).text
        counted = [line for line in figures.splitlines() if line.startswith('locus_requests_total{method="POST"')]
        assert [line.rpartition(" ")[2] for line in counted] == ["40.0"], "the workers do not add up their figures"
        assert await asyncio.to_thread(server.terminate) in (0, -signal.SIGTERM)
    await _assert_kept(tmp_path, acknowledged, unheard=0)


async def test_a_client_goes_on_after_the_server_was_restarted(server: Serving, tmp_path: Path) -> None:
    state = AgentState()
    async with _client(server.port) as checkpointer:
        for turn in range(3):
            state = state.with_message(Message.user(f"turn {turn}"))
            await checkpointer.save(state, "t")
            await asyncio.to_thread(server.terminate)
            with pytest.raises(BackendUnavailableError):
                await checkpointer.load("t")
            server = Serving(tmp_path, "sqlite:///t.db", port=server.port)
            try:
                await asyncio.to_thread(server.wait)
                assert await checkpointer.load("t") == state
            except BaseException:
                server.kill()
                raise
    server.kill()


async def test_a_lost_answer_is_asked_for_again_and_saves_once(server: Serving, proxy: Proxy) -> None:
    async with _client(proxy.port) as checkpointer:
        state = AgentState()
        first = await checkpointer.save(state, "t")
        for number in range(5):
            proxy.cut_after(from_server=number * 40)
            state = state.with_message(Message.user(f"{number}"))
            proxied = asyncio.create_task(checkpointer.save(state, "t"))
            await asyncio.sleep(0.02)
            proxy.cut_after()
            await proxied
        ids = await checkpointer.list_checkpoints("t", limit=100)
        assert len(ids) == 6
        assert ids[-1] == first
        assert await checkpointer.load("t") == state


async def test_a_request_that_was_cut_off_is_sent_again(server: Serving, proxy: Proxy) -> None:
    async with _client(proxy.port) as checkpointer:
        state = AgentState().with_messages([Message.user("x" * 5_000)] * 3)
        await checkpointer.save(state, "t")
        for number in range(5):
            proxy.cut_after(to_server=100 + number * 300)
            state = state.with_message(Message.user(f"{number} {'y' * 2_000}"))
            proxied = asyncio.create_task(checkpointer.save(state, "t"))
            await asyncio.sleep(0.02)
            proxy.cut_after()
            await proxied
        assert len(await checkpointer.list_checkpoints("t", limit=100)) == 6
        assert await checkpointer.load("t") == state


async def test_idle_connections_that_were_cut_are_noticed(proxy: Proxy) -> None:
    async with _client(proxy.port) as checkpointer:
        for turn in range(3):
            await checkpointer.save(AgentState(), "t")
            proxy.cut()
            assert len(await checkpointer.list_checkpoints("t")) == turn + 1
            proxy.cut()


async def test_an_outage_is_an_error_and_ends(proxy: Proxy) -> None:
    state = AgentState().with_message(Message.user("hi"))
    async with _client(proxy.port) as checkpointer:
        await checkpointer.save(state, "t")
        proxy.refuse()
        proxy.cut()
        for call in (checkpointer.load("t"), checkpointer.exists("t"), checkpointer.list_threads()):
            with pytest.raises(BackendUnavailableError) as caught:
                await call
            assert isinstance(caught.value, httpx.HTTPError)
            assert isinstance(caught.value.__cause__, httpx.ConnectError)
        assert await checkpointer.health_check() is False
        proxy.accept()
        assert await checkpointer.load("t") == state
        assert await checkpointer.health_check() is True


async def test_a_server_that_does_not_answer_is_given_up(proxy: Proxy) -> None:
    async with _client(proxy.port, timeout=2.0) as checkpointer:
        await checkpointer.save(AgentState(), "t")
        proxy.stall()
        started = time.monotonic()
        with pytest.raises(BackendUnavailableError, match="did not answer in time"):
            await checkpointer.load("t")
        assert time.monotonic() - started < 20
        proxy.accept()
        assert await checkpointer.exists("t")
