"""Programs that were written for LangGraph's own stores: only the name of the class changes."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from concurrent import futures
from contextlib import closing, contextmanager
from typing import Any

import pytest
from langgraph.store.base import TTLConfig

from locus.errors import ConfigurationError, LocusError
from locus.integrations.langgraph_store.store import LocusStore
from locus.testing.stores import DurableTestStore
from tests.backends.embedded import SQLiteStore
from tests.backends.postgresql.store import PostgreSQLStore
from tests.integrations.langgraph_store.conftest import Clock

N = ("n",)
OFTEN = 0.0001
"""Minutes."""


@contextmanager
def opened(place: DurableTestStore, **options: Any) -> Iterator[LocusStore]:
    with LocusStore.from_conn_string(place.url, **options) as store:
        yield store


def has_tables(place: DurableTestStore) -> bool:
    """As another process sees it."""
    with LocusStore(place.url) as other:
        return not other.ddl() if isinstance(place, PostgreSQLStore) else "CREATE" in tables_of(place)


def tables_of(place: DurableTestStore) -> str:
    assert isinstance(place, SQLiteStore)
    with closing(sqlite3.connect(place.path)) as file:
        names = "SELECT group_concat(sql) FROM sqlite_master WHERE name LIKE 'locus\\_\\_memory%' ESCAPE '\\'"
        return str(file.execute(names).fetchone()[0])


def wait_until_empty(store: LocusStore) -> None:
    """The test's own time limit ends this if nothing is swept."""
    items = store._memory._items.store
    while store._run(items.list_threads(None, "*")) or store._run(items.unlisted_threads("", "", 10)):
        time.sleep(0.01)


class TestSetup:
    def test_of_a_sync_program(self, place: DurableTestStore) -> None:
        with LocusStore.from_conn_string(place.url, ttl={"default_ttl": 5}) as store:
            assert not has_tables(place)
            store.setup()
            assert has_tables(place)
            store.setup()
            store.put(N, "a", {"v": 1})
            found = store.get(N, "a")
            assert found is not None
            assert found.value == {"v": 1}
            assert store.ttl_config == {"default_ttl": 5}

    async def test_of_an_async_program(self, place: DurableTestStore) -> None:
        async with LocusStore.from_conn_string(place.url) as store:
            await store.setup()
            assert await asyncio.to_thread(has_tables, place)
            await store.setup()
            await store.aput(N, "a", {"v": 1})
            assert await store.aget(N, "a") is not None

    async def test_an_outage_is_told(self, place: DurableTestStore) -> None:
        async with LocusStore.from_conn_string(place.url) as store, place.outage():
            with pytest.raises(LocusError):
                await store.setup()
            with pytest.raises(LocusError):
                await asyncio.to_thread(store.setup)

    def test_what_it_cannot_do_is_told(self) -> None:
        with pytest.raises(ConfigurationError, match="pipeline"):
            LocusStore.from_conn_string("sqlite::memory:", pipeline=True)


class TestSweeping:
    def test_of_a_sync_program(self, place: DurableTestStore, clock: Clock) -> None:
        with opened(place) as store:
            store.put(N, "a", {}, ttl=1)
            clock.pass_minutes(2)
            assert store.sweep_ttl() == 1
            assert store.sweep_ttl() + 1 == 1

    async def test_of_an_async_program(self, store: LocusStore, clock: Clock) -> None:
        await store.aput(N, "a", {}, ttl=1)
        await store.aput(N, "b", {}, ttl=1)
        clock.pass_minutes(2)
        assert await store.sweep_ttl() == 2
        assert type(await store.sweep_ttl()) is int

    def test_a_sweeper_of_a_sync_program(self, place: DurableTestStore, clock: Clock) -> None:
        with opened(place, ttl={"default_ttl": 1, "sweep_interval_minutes": OFTEN}) as store:
            store.put(N, "a", {})
            running = store.start_ttl_sweeper()
            assert store.start_ttl_sweeper() is running
            clock.pass_minutes(2)
            wait_until_empty(store)
            assert not running.done()
            assert store.stop_ttl_sweeper()
            running.result(timeout=30)
            assert store.stop_ttl_sweeper(timeout=0)

    async def test_a_sweeper_of_an_async_program(self, place: DurableTestStore, clock: Clock) -> None:
        async with LocusStore.from_conn_string(place.url, ttl={"default_ttl": 1}) as store:
            await store.aput(N, "a", {})
            task = await store.start_ttl_sweeper(sweep_interval_minutes=OFTEN)
            clock.pass_minutes(2)
            await asyncio.to_thread(wait_until_empty, store)
            assert not task.done()
            assert await store.stop_ttl_sweeper() == 1
            await task
            again = await store.start_ttl_sweeper(OFTEN)
            again.cancel()
            with pytest.raises(asyncio.CancelledError):
                await again
            assert store._sweeper is not None
            ended = await asyncio.to_thread(futures.wait, [store._sweeper.running], 30)
            assert not ended.not_done
            assert not store._sweeper.is_running

    def test_cancelling_stops_it(self, place: DurableTestStore) -> None:
        with opened(place, ttl={"default_ttl": 1}) as store:
            running = store.start_ttl_sweeper()
            assert running.cancel()
            with pytest.raises(futures.CancelledError):
                running.result()
            assert store._sweeper is not None
            assert not store._sweeper.is_running

    def test_it_needs_a_configuration(self, place: DurableTestStore) -> None:
        with opened(place) as store:
            assert store.start_ttl_sweeper().done()
            assert store._sweeper is None
            assert store.stop_ttl_sweeper()

    def test_closing_stops_it(self, place: DurableTestStore) -> None:
        with opened(place, ttl={"default_ttl": 1}) as store:
            running = store.start_ttl_sweeper()
        running.result(timeout=0)
        assert "locus-sweeper" not in {thread.name for thread in threading.enumerate()}

    async def test_aclosing_stops_it(self, place: DurableTestStore) -> None:
        async with LocusStore(place.url, ttl={"default_ttl": 1}) as store:
            running = store.start_ttl_sweeper()
        running.result(timeout=0)

    def test_a_store_that_is_dropped_stops_it(self, place: DurableTestStore) -> None:
        with place_handle(place) as handle:
            store = LocusStore(handle, ttl={"default_ttl": 1})
            running, gone = store.start_ttl_sweeper(), weakref.ref(store)
            del store
            gc.collect()
            assert gone() is None
            running.result(timeout=30)

    def test_it_goes_on_after_an_error(
        self, place: DurableTestStore, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        with opened(place, ttl={"default_ttl": 1, "sweep_interval_minutes": OFTEN}) as store:
            store.put(N, "a", {})
            clock.pass_minutes(2)
            outages = [LocusError("secret"), LocusError("secret")]
            sweep = store._memory.sweep

            async def failing() -> int:
                if outages:
                    raise outages.pop()
                return await sweep()

            monkeypatch.setattr(store._memory, "sweep", failing)
            store.start_ttl_sweeper()
            wait_until_empty(store)
        assert caplog.text.count("LocusError") == 2
        assert "secret" not in caplog.text


@contextmanager
def place_handle(place: DurableTestStore) -> Iterator[Any]:
    handle = place.open()
    try:
        yield handle
    finally:
        asyncio.run(handle.close())


@pytest.fixture
async def omitting(place: DurableTestStore) -> AsyncIterator[LocusStore]:
    async with LocusStore(place.url, ttl={"omit_expired": True, "refresh_on_read": False}) as store:
        yield store


async def test_expired_items_are_omitted(omitting: LocusStore, clock: Clock) -> None:
    await omitting.aput(N, "a", {}, ttl=1)
    clock.pass_minutes(2)
    assert await omitting.aget(N, "a") is None
    assert await omitting.asearch(N) == []
    assert await omitting.alist_namespaces() == []


@pytest.mark.parametrize(
    ("ttl", "word"),
    [
        ({"omit_expired": False}, "omit_expired"),
        ({"sweep_interval_minutes": -1}, "sweep_interval_minutes"),
        ({"default_ttl": float("inf")}, "default_ttl"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(ttl: TTLConfig, word: str) -> None:
    with pytest.raises(ConfigurationError, match=word):
        LocusStore("sqlite::memory:", ttl=ttl)


async def test_filters_know_infinite_bounds_and_paths(store: LocusStore) -> None:
    await store.aput(N, "a", {"user": {"name": "Ann", "age": 30}})
    await store.aput(N, "b", {"user": {"name": "Bob", "age": 2**60}})
    found = await store.asearch(N, filter={"user.age": {"$lt": float("inf"), "$gt": float("-inf")}})
    assert {item.key for item in found} == {"a", "b"}
    assert await store.asearch(N, filter={"user.age": {"$gt": float("inf")}}) == []
    assert [item.key for item in await store.asearch(N, filter={"user.name": "Ann"})] == ["a"]
