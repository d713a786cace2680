"""Oracle's stand-in killed under load, and connections cut in a transaction: what was acknowledged is there."""

from __future__ import annotations

import asyncio

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError
from locus.memory.backends import oracle_checkpointer
from locus.memory.thread_checkpointer import ThreadCheckpointer
from scripts.servers.oracle.server import OracleServer
from scripts.servers.proxy import Proxy
from tests.integration.oracle.places import oracle_place, oracle_proxy, oracle_store, oracle_tables
from tests.integration.oracle.stores import OracleStore, place_of

__all__ = ["oracle_place", "oracle_proxy", "oracle_store", "oracle_tables"]

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("oracle_server")]

WRITERS = 4


async def _write(
    checkpointer: ThreadCheckpointer, name: str, stop: asyncio.Event
) -> tuple[dict[str, AgentState], AgentState | None]:
    """Save turn by turn until told to stop; return what was acknowledged, and what was not (it may be there)."""
    state, saved, unsure = AgentState(agent_id=name), dict[str, AgentState](), None
    while not stop.is_set():
        grown = state.with_message(Message.user(f"{name} {len(state.messages)}"))
        try:
            saved[await checkpointer.save(grown, name)] = grown
            state, unsure = grown, None
        except BackendUnavailableError:
            unsure = grown
            await asyncio.sleep(0.02)
    return saved, unsure


async def _assert_whole(checkpointer: ThreadCheckpointer, name: str, saved: dict[str, AgentState]) -> None:
    """All that was acknowledged is there as it was saved; whatever else is there is whole."""
    entries = await checkpointer.history(name, None)
    assert {entry.checkpoint_id for entry in entries} >= set(saved)
    assert [entry.seq for entry in entries] == sorted((entry.seq for entry in entries), reverse=True)
    for entry in entries:
        state = await checkpointer.load(name, entry.checkpoint_id)
        assert state is not None
        assert state == saved.get(entry.checkpoint_id, state)
        assert [message.content for message in state.messages] == [f"{name} {n}" for n in range(len(state.messages))]


def _opened(store: OracleStore, **options: float) -> ThreadCheckpointer:
    return oracle_checkpointer(**place_of(store.database), **(store.options | options))


@pytest.mark.crash
async def test_a_server_killed_under_load_loses_nothing_that_was_acknowledged(
    oracle_store: OracleStore, oracle_server: OracleServer
) -> None:
    stop = asyncio.Event()
    async with _opened(oracle_store, retry_seconds=30, max_pool_size=WRITERS) as checkpointer:
        await checkpointer.list_threads()
        writers = [asyncio.ensure_future(_write(checkpointer, f"writer {number}", stop)) for number in range(WRITERS)]
        for _ in range(2):
            await asyncio.sleep(0.3)
            await asyncio.to_thread(oracle_server.kill)
            await asyncio.to_thread(oracle_server.start)
        await asyncio.sleep(0.3)
        stop.set()
        written = await asyncio.gather(*writers)
        assert sum(len(saved) for saved, _ in written) > WRITERS * 3
        assert all(unsure is None for _, unsure in written), "a restart was not survived within retry_seconds"
        for number, (saved, _) in enumerate(written):
            await _assert_whole(checkpointer, f"writer {number}", saved)
            assert len(await checkpointer.history(f"writer {number}", None)) == len(saved), "a save was made twice"


@pytest.mark.parametrize("direction", ["to_server", "from_server"])
async def test_a_connection_cut_at_any_byte_of_a_save_is_replaced_and_the_save_made_once(
    oracle_store: OracleStore, oracle_proxy: Proxy, direction: str
) -> None:
    """Also after the commit, when only its answer is lost: it is found by its rev, and not made again."""
    saved: dict[str, AgentState] = {}
    async with _opened(oracle_store, retry_seconds=5) as checkpointer:
        state = AgentState(agent_id="t")
        saved[await checkpointer.save(state, "t")] = state
        for turn, size in enumerate([1, 40, 150, 250, 400, 550, 700, 900, 1_200, 1_600]):
            oracle_proxy.cut_after(**{direction: size})
            state = state.with_message(Message.user(f"t {turn}"))
            saved[await checkpointer.save(state, "t")] = state
            oracle_proxy.cut_after()
        entries = await checkpointer.history("t", None)
        assert [entry.checkpoint_id for entry in entries] == list(reversed(saved))
        assert [entry.seq for entry in entries] == list(range(len(saved), 0, -1))
        await _assert_whole(checkpointer, "t", saved)


async def test_connections_cut_again_and_again_under_load_lose_nothing(
    oracle_store: OracleStore, oracle_proxy: Proxy
) -> None:
    stop = asyncio.Event()
    async with _opened(oracle_store, retry_seconds=5, max_pool_size=WRITERS) as checkpointer:
        writers = [asyncio.ensure_future(_write(checkpointer, f"writer {number}", stop)) for number in range(WRITERS)]
        for _ in range(8):
            await asyncio.sleep(0.1)
            oracle_proxy.cut()
        stop.set()
        written = await asyncio.gather(*writers)
        for number, (saved, _) in enumerate(written):
            await _assert_whole(checkpointer, f"writer {number}", saved)
            assert saved
            assert len(await checkpointer.history(f"writer {number}", None)) == len(saved), "a save was made twice"


async def test_a_delete_whose_answer_is_lost_is_not_taken_for_done_or_undone(
    oracle_store: OracleStore, oracle_proxy: Proxy
) -> None:
    async with _opened(oracle_store, retry_seconds=0) as checkpointer:
        for size in (1, 100, 400, 700, 1_000):
            await checkpointer.save(AgentState(), "t", "one")
            oracle_proxy.cut_after(from_server=size)
            try:
                assert await checkpointer.delete("t", "one")
            except BackendUnavailableError:
                pass
            else:
                assert not await checkpointer.exists("t", "one")
            oracle_proxy.cut_after()
            await checkpointer.delete("t")


async def test_a_server_that_is_gone_is_an_outage_and_no_empty_answer(
    oracle_store: OracleStore, oracle_proxy: Proxy
) -> None:
    async with _opened(oracle_store, retry_seconds=0) as checkpointer:
        await checkpointer.save(AgentState(), "t")
        async with oracle_store.outage():
            for asked in (checkpointer.load("t"), checkpointer.exists("t"), checkpointer.list_threads()):
                with pytest.raises(BackendUnavailableError, match="cannot be reached"):
                    await asked
        assert await checkpointer.exists("t")
