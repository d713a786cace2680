"""Oracle's stand-in killed under load, and connections cut in a transaction: what was acknowledged is there."""

from __future__ import annotations

import asyncio

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError
from locus.memory.backends import oracle_checkpointer
from locus.memory.checkpointer import Checkpointer
from tests.backends.oracle.fixtures import oracle_place, oracle_proxy, oracle_store, oracle_tables
from tests.backends.oracle.stores import OracleStore, place_of
from tests.servers.oracle.server import OracleServer
from tests.servers.proxy import Proxy

__all__ = ["oracle_place", "oracle_proxy", "oracle_store", "oracle_tables"]

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("oracle_server")]

WRITERS = 4


class Writers:
    """Tasks that save turn by turn, each to a thread of its own, until they are told to stop."""

    def __init__(self, checkpointer: Checkpointer) -> None:
        self._checkpointer = checkpointer
        self._stop = asyncio.Event()
        self.saved: dict[str, dict[str, AgentState]] = {f"writer {number}": {} for number in range(WRITERS)}
        """What was acknowledged."""
        self._tasks = [asyncio.ensure_future(self._write(name)) for name in self.saved]

    async def _write(self, name: str) -> None:
        state = AgentState(agent_id=name)
        while not self._stop.is_set():
            grown = state.with_message(Message.user(f"{name} {len(state.messages)}"))
            self.saved[name][await self._checkpointer.save(grown, name)] = grown
            state = grown

    async def progress(self) -> None:
        """Wait until each has saved again."""
        before = {name: len(saved) for name, saved in self.saved.items()}
        async with asyncio.timeout(60):
            while any(len(self.saved[name]) == count for name, count in before.items()):
                for task in self._tasks:
                    assert not task.done() or task.result()  # raises what it was that was not survived
                await asyncio.sleep(0.005)

    async def end(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)
        for name, saved in self.saved.items():
            await _assert_whole(self._checkpointer, name, saved)
            assert len(await self._checkpointer.history(name, None)) == len(saved), "a save was made twice"


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


def _opened(store: OracleStore, **options: float) -> Checkpointer:
    return oracle_checkpointer(**place_of(store.database), **(store.options | options))


@pytest.mark.crash
async def test_a_server_killed_under_load_loses_nothing_that_was_acknowledged(
    oracle_store: OracleStore, oracle_server: OracleServer
) -> None:
    async with _opened(oracle_store, retry_seconds=30, max_pool_size=WRITERS) as checkpointer:
        writers = Writers(checkpointer)
        for _ in range(2):
            await writers.progress()
            await asyncio.to_thread(oracle_server.kill)
            await asyncio.to_thread(oracle_server.start)
        await writers.progress()
        await writers.end()


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
    async with _opened(oracle_store, retry_seconds=30, max_pool_size=WRITERS) as checkpointer:
        writers = Writers(checkpointer)
        for _ in range(5):
            await writers.progress()
            oracle_proxy.cut()
        await writers.progress()
        await writers.end()


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
