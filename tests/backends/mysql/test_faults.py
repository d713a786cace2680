"""MySQL killed under load, and connections cut in the middle of a transaction: what was acknowledged is there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError
from locus.memory.backends import mysql_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import SOAK
from tests.backends.acknowledged import Acknowledged
from tests.backends.mysql.stores import drop_tables, new_name, with_port
from tests.servers.mysql import MySQLServer
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.mysql

WRITERS = 6


@pytest.fixture
def durable_server(tmp_path: Path) -> Iterator[MySQLServer]:
    """One of its own, that waits for the disk at each commit."""
    with MySQLServer(tmp_path / "server", durable=True) as server:
        yield server


async def _write(
    checkpointer: Checkpointer, number: int, written: Acknowledged, stop: asyncio.Event
) -> AgentState | None:
    """Save turn by turn until told to stop; note what was acknowledged, and return what was not (it may be there)."""
    name = f"writer {number}"
    state, unsure = AgentState(agent_id=name), None
    while not stop.is_set():
        grown = state.with_message(Message.user(f"{name} {len(state.messages)}"))
        try:
            await written.note(number, await checkpointer.save(grown, name), grown)
            state, unsure = grown, None
        except BackendUnavailableError:
            unsure = grown
            await asyncio.sleep(0.05)
    return unsure


async def _assert_whole(checkpointer: Checkpointer, name: str, saved: dict[str, AgentState]) -> None:
    """All that was acknowledged is there as it was saved; whatever else is there is whole."""
    entries = await checkpointer.history(name, None)
    assert {entry.checkpoint_id for entry in entries} >= set(saved)
    assert [entry.seq for entry in entries] == sorted((entry.seq for entry in entries), reverse=True)
    for entry in entries:
        state = await checkpointer.load(name, entry.checkpoint_id)
        assert state is not None
        assert state == saved.get(entry.checkpoint_id, state)
        assert [message.content for message in state.messages] == [f"{name} {n}" for n in range(len(state.messages))]


@pytest.mark.crash
@pytest.mark.timeout(240)
async def test_a_server_killed_under_load_loses_nothing_that_was_acknowledged(durable_server: MySQLServer) -> None:
    stop = asyncio.Event()
    async with mysql_checkpointer(dsn=f"{durable_server.url}?retry_seconds=30&max_pool_size={WRITERS}") as checkpointer:
        await checkpointer.list_threads()
        written = Acknowledged(WRITERS)
        writers = [asyncio.ensure_future(_write(checkpointer, number, written, stop)) for number in range(WRITERS)]
        for _ in range(3 if SOAK else 2):
            await written.more_of_each(5)
            await asyncio.to_thread(durable_server.kill)
            await asyncio.to_thread(durable_server.start)
        await written.more_of_each(5)
        stop.set()
        unsure = await asyncio.gather(*writers)
    assert unsure == [None] * WRITERS, "a restart was not survived within retry_seconds"
    async with mysql_checkpointer(dsn=durable_server.url) as checkpointer:
        for number, saved in enumerate(written.of_each):
            await _assert_whole(checkpointer, f"writer {number}", saved)


@pytest.fixture
def proxied(mysql_server: MySQLServer) -> Iterator[tuple[str, Proxy]]:
    name = new_name()
    with Proxy(mysql_server.port) as proxy:
        yield f"{with_port(mysql_server.url, proxy.port)}?table_name={name}&command_timeout=20&retry_seconds=5", proxy
    drop_tables(mysql_server.url, name)


@pytest.mark.parametrize("direction", ["to_server", "from_server"])
async def test_a_connection_cut_at_any_byte_of_a_save_is_replaced_and_the_save_made_once(
    proxied: tuple[str, Proxy], direction: str
) -> None:
    """Also after the commit, when only its answer is lost: it is found by its rev, and not made again."""
    url, proxy = proxied
    saved: dict[str, AgentState] = {}
    async with mysql_checkpointer(dsn=url) as checkpointer:
        state = AgentState(agent_id="t")
        saved[await checkpointer.save(state, "t")] = state
        for turn, size in enumerate([*range(1, 120, 17), 400, 900, 1_300, 1_700, 2_500]):
            proxy.cut_after(**{direction: size})
            state = state.with_message(Message.user(f"t {turn}"))
            saved[await checkpointer.save(state, "t")] = state
            proxy.cut_after()
        entries = await checkpointer.history("t", None)
        assert [entry.checkpoint_id for entry in entries] == list(reversed(saved))
        assert [entry.seq for entry in entries] == list(range(len(saved), 0, -1))
        await _assert_whole(checkpointer, "t", saved)


async def test_connections_cut_again_and_again_under_load_lose_nothing(proxied: tuple[str, Proxy]) -> None:
    url, proxy = proxied
    stop, written = asyncio.Event(), Acknowledged(WRITERS)
    async with mysql_checkpointer(dsn=url) as checkpointer:
        writers = [asyncio.ensure_future(_write(checkpointer, number, written, stop)) for number in range(WRITERS)]
        for _ in range(15):
            await asyncio.sleep(0.1)
            proxy.cut()
        stop.set()
        await asyncio.gather(*writers)
        for number, saved in enumerate(written.of_each):
            await _assert_whole(checkpointer, f"writer {number}", saved)
            assert saved
            assert len(await checkpointer.history(f"writer {number}", None)) == len(saved), "a save was made twice"


async def test_a_delete_whose_answer_is_lost_is_not_taken_for_done_or_undone(proxied: tuple[str, Proxy]) -> None:
    url, proxy = proxied
    async with mysql_checkpointer(dsn=f"{url}&retry_seconds=0") as checkpointer:
        for size in range(1, 60, 7):
            await checkpointer.save(AgentState(), "t", "one")
            proxy.cut_after(from_server=size)
            try:
                assert await checkpointer.delete("t", "one")
            except BackendUnavailableError:
                pass
            else:
                assert not await checkpointer.exists("t", "one")
            proxy.cut_after()
            await checkpointer.delete("t")
