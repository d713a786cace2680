"""Machines whose clocks are off by days: what is forgotten is old by the clock of the cluster, and no save is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends.opensearch import commit, log, read, remove, writes
from locus.memory.backends.opensearch.client import Client
from locus.memory.backends.opensearch.config import OpenSearchConfig
from locus.memory.backends.opensearch.log import CACHE_SECONDS, ThreadCache
from locus.memory.backends.opensearch.schema import STUB_LIFETIME, now_micros
from locus.memory.checkpointer import Checkpointer
from tests.backends.opensearch.model import Died, ModelIndex, open_model
from tests.backends.opensearch.store import OpenSearchStore

TWO_DAYS = 2 * STUB_LIFETIME
REMOVALS = ["checkpoints", "some-checkpoints", "thread"]


@contextmanager
def clock_off(micros: int) -> Iterator[None]:
    """While this lasts, machines have another time than the server."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (commit, log, read, remove, writes):
            patch.setattr(module, "now_micros", lambda: now_micros() + micros)
        yield


async def saved(cp: Checkpointer, thread_id: str, times: int) -> list[str]:
    state, ids = AgentState(), []
    for _ in range(times):
        state = state.next_iteration()
        ids.append(await cp.save(state, thread_id))
    return ids


async def removed(cp: Checkpointer, how: str, ids: list[str]) -> list[str]:
    """Remove by `how`, and return what stays of these."""
    if how == "thread":
        await cp.delete("t")
        return []
    doomed = ids if how == "checkpoints" else ids[:-1]
    for checkpoint_id in doomed:
        await cp.delete("t", checkpoint_id)
    return ids[len(doomed) :]


async def check_late_save(waiting: Checkpointer, fresh: Checkpointer, state: AgentState, staying: list[str]) -> None:
    """A handle that saw only the first save saves once more: it is the latest, and nothing else is gone."""
    late = state.with_message(Message.user("late"))
    latest = await waiting.save(late, "t")
    found = await fresh.list_checkpoints("t", 100)
    assert found[0] == latest
    assert set(staying) <= set(found)
    assert await fresh.load("t") == late


@pytest.mark.parametrize("how", REMOVALS)
@pytest.mark.parametrize(
    ("saver", "remover", "sweeper"),
    [
        pytest.param(0, TWO_DAYS, TWO_DAYS, id="remover-ahead"),
        pytest.param(0, 0, TWO_DAYS, id="sweeper-ahead"),
        pytest.param(-TWO_DAYS, 0, 0, id="saver-behind"),
        pytest.param(0, -TWO_DAYS, 0, id="remover-behind"),
    ],
)
async def test_a_clock_that_is_off_loses_no_save(how: str, saver: int, remover: int, sweeper: int) -> None:
    index = ModelIndex()
    waiting, busy = open_model(index), open_model(index)
    state = AgentState().with_message(Message.user("one"))
    with clock_off(saver):
        await waiting.save(state, "t")
        ids = await saved(busy, "t", 5)
    with clock_off(remover):
        staying = await removed(busy, how, ids)
    with clock_off(sweeper):
        for _ in range(2):
            await open_model(index).vacuum(keep_last=30)
    await check_late_save(waiting, open_model(index), state, staying)


@pytest.mark.opensearch
@pytest.mark.parametrize("how", ["some-checkpoints", "thread"])
async def test_a_server_tells_its_time(store: OpenSearchStore, how: str) -> None:
    async with store.open() as waiting, store.open() as busy, store.open() as fresh:
        state = AgentState().with_message(Message.user("one"))
        await waiting.save(state, "t")
        ids = await saved(busy, "t", 5)
        with clock_off(TWO_DAYS):
            staying = await removed(busy, how, ids)
            await busy.vacuum(keep_last=30)
        await check_late_save(waiting, fresh, state, staying)
        host, port = store.host.split(":")
        client = Client(OpenSearchConfig([{"host": host, "port": int(port)}], store.index, 20.0))
        before = now_micros() // 1_000 * 1_000
        assert before <= client.server_time() <= now_micros()
        client.close()


@pytest.mark.parametrize("off", [-TWO_DAYS, TWO_DAYS])
@pytest.mark.parametrize("how", REMOVALS)
async def test_after_a_day_of_the_server_nothing_is_left_of_what_was_removed(how: str, off: int) -> None:
    index = ModelIndex()
    with clock_off(off):
        cp = open_model(index)
        await removed(cp, how, await saved(cp, "t", 5))
        await open_model(index).vacuum(keep_last=30)
        assert "gone" in {kept.source["kind"] for kept in index.docs.values()}
        index.ahead = 86_400.0 + 60.0
        for _ in range(2):
            await open_model(index).vacuum(keep_last=30)
        kinds = sorted(kept.source["kind"] for kept in index.docs.values())
    assert kinds == (["checkpoint", "name", "thread"] if how == "some-checkpoints" else [])


async def test_an_unfinished_copy_is_swept_after_a_day_of_the_server() -> None:
    index = ModelIndex()
    await saved(open_model(index), "t", 3)
    with clock_off(-TWO_DAYS):
        index.die_at = index.operations + 4
        with pytest.raises(Died):
            await open_model(index).copy_thread("t", "copy")
    begun = {name for name, kept in index.docs.items() if "batch" in kept.source}
    assert begun
    await open_model(index).vacuum(keep_last=30)
    assert begun <= index.docs.keys()
    index.ahead = 86_400.0 + 60.0
    await open_model(index).vacuum(keep_last=30)
    assert not begun & index.docs.keys()


async def test_saves_ask_for_no_time_and_removals_ask_once() -> None:
    index = ModelIndex()
    cp = open_model(index)
    ids = await saved(cp, "t", 40)
    assert index.times_told == 0
    for checkpoint_id in ids[:5]:
        await cp.delete("t", checkpoint_id)
    await cp.save(AgentState(), "t", ids[-1])
    await cp.delete("t")
    await cp.vacuum(keep_last=30)
    assert index.times_told == 1


async def test_a_told_time_is_relied_on_for_ten_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """By both clocks of the machine: one of them stops while it sleeps."""
    clocks = {"monotonic": 0.0, "wall": 0.0}
    time = SimpleNamespace(monotonic=lambda: clocks["monotonic"], time=lambda: clocks["wall"])
    monkeypatch.setattr(log, "time", time)
    told = iter(range(10))

    class Teller(Client):
        def __init__(self) -> None:
            """It has no connection."""

        def server_time(self) -> int:
            return next(told)

    client, cache = Teller(), ThreadCache()
    assert [cache.server_time(client) for _ in range(3)] == [0, 0, 0]
    clocks["wall"] = CACHE_SECONDS - 1
    assert cache.server_time(client) == 0
    clocks["wall"] = CACHE_SECONDS
    assert cache.server_time(client) == 1
    clocks["monotonic"] = CACHE_SECONDS
    assert cache.server_time(client) == 2
    clocks["wall"] = 0.0
    assert cache.server_time(client) == 3
    cache.clear()
    assert cache.server_time(client) == 4


@pytest.mark.parametrize("first", ["looked before", "looked after"])
async def test_who_looked_at_a_deleted_thread_hides_no_save_after_its_sweep(first: str) -> None:
    index = ModelIndex()
    cp = open_model(index)
    await saved(cp, "t", 5)
    await cp.delete("t")
    index.ahead = 86_400.0 + 60.0
    before, after = open_model(index), open_model(index)
    assert await before.load("t") is None
    await open_model(index).vacuum(keep_last=30)
    assert not index.docs
    assert await after.load("t") is None
    order = [before, after] if first == "looked before" else [after, before]
    ids = [await saver.save(AgentState(agent_id="a"), "t") for saver in order]
    assert await open_model(index).list_checkpoints("t") == ids[::-1]
