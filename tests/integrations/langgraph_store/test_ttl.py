"""Items that end: when they are seen, what lets them live longer, and who removes them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from langgraph.store.base import GetOp

from locus.errors import ConfigurationError
from locus.integrations.langgraph_store.store import LocusStore
from locus.testing.stores import DurableTestStore
from tests.integrations.langgraph_store.conftest import Clock

N = ("n",)


async def test_an_item_ends_for_every_reader(store: LocusStore, clock: Clock) -> None:
    await store.aput(N, "brief", {"v": 1}, ttl=10)
    await store.aput(N, "lasting", {"v": 1})
    clock.pass_minutes(9.9)
    assert await store.aget(N, "brief", refresh_ttl=False) is not None
    clock.pass_minutes(0.2)
    assert await store.aget(N, "brief") is None
    assert [item.key for item in await store.asearch(N)] == ["lasting"]
    assert [item.key for item in await store.asearch(N, filter={"v": 1})] == ["lasting"]
    await store.adelete(N, "lasting")
    assert await store.alist_namespaces() == []
    assert await store.asweep_ttl() == 1
    assert await store.asweep_ttl() == 0


@pytest.mark.parametrize("how", ["get", "search", "filter"])
async def test_reading_lets_an_item_live_longer(store: LocusStore, clock: Clock, how: str) -> None:
    await store.aput(N, "brief", {"v": 1}, ttl=10)
    for _ in range(3):
        clock.pass_minutes(9)
        if how == "get":
            assert await store.aget(N, "brief") is not None
        else:
            assert await store.asearch(N, filter={"v": 1} if how == "filter" else None)
    clock.pass_minutes(11)
    assert await store.aget(N, "brief") is None


async def test_reading_need_not(store: LocusStore, clock: Clock) -> None:
    await store.aput(N, "brief", {"v": 1}, ttl=10)
    clock.pass_minutes(9)
    assert await store.aget(N, "brief", refresh_ttl=False) is not None
    assert await store.asearch(N, refresh_ttl=False)
    clock.pass_minutes(2)
    assert await store.aget(N, "brief") is None


async def test_writing_begins_the_time_anew_or_ends_it(store: LocusStore, clock: Clock) -> None:
    await store.aput(N, "a", {"v": 1}, ttl=10)
    await store.aput(N, "b", {"v": 1}, ttl=10)
    clock.pass_minutes(9)
    await store.aput(N, "a", {"v": 2}, ttl=10)
    await store.aput(N, "b", {"v": 2}, ttl=None)
    clock.pass_minutes(9)
    assert await store.aget(N, "a", refresh_ttl=False) is not None
    clock.pass_minutes(1_000)
    assert await store.aget(N, "a") is None
    assert await store.aget(N, "b") is not None


async def test_an_item_that_comes_again_after_its_end_is_new(store: LocusStore, clock: Clock) -> None:
    await store.aput(N, "a", {"v": 1}, ttl=10)
    clock.pass_minutes(11)
    await store.aput(N, "a", {"v": 2}, ttl=10)
    item = await store.aget(N, "a")
    assert item is not None
    assert item.created_at == item.updated_at == clock.now


@pytest_asyncio.fixture
async def configured(place: DurableTestStore) -> AsyncIterator[LocusStore]:
    async with LocusStore(place.url, ttl={"default_ttl": 10, "refresh_on_read": False}) as store:
        yield store


async def test_the_configuration_says_what_calls_do_not(configured: LocusStore, clock: Clock) -> None:
    await configured.aput(N, "brief", {})
    await configured.aput(N, "longer", {}, ttl=30)
    await configured.aput(N, "lasting", {}, ttl=None)
    clock.pass_minutes(9)
    assert await configured.aget(N, "brief") is not None
    clock.pass_minutes(2)
    assert sorted(item.key for item in await configured.asearch(N, refresh_ttl=True)) == ["lasting", "longer"]
    clock.pass_minutes(29)
    found = await configured.abatch([GetOp(N, "longer", refresh_ttl=False), GetOp(N, "lasting")])
    assert [item is not None for item in found] == [True, True]
    with pytest.raises(ConfigurationError, match="ttl"):
        await configured.aput(N, "a", {}, ttl=0)
