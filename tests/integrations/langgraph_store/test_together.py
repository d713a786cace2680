"""Operations of many tasks at the same time: they share connections and transactions, and nothing else."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from langgraph.store.base import GetOp, PutOp

from locus.errors import BackendUnavailableError, CorruptCheckpointError, DamagedThreadsWarning, SerializationError
from locus.integrations.langgraph_store.store import LocusStore
from locus.memory.backends.postgresql.engine import PostgreSQLEngine
from locus.memory.backends.sql.engine import Pool, SQLEngine
from locus.memory.backends.sqlite.engine import SQLiteEngine
from locus.testing.stores import DurableTestStore
from tests.backends.embedded import SQLiteStore
from tests.backends.postgresql.store import PostgreSQLStore

N = ("n",)
MANY = 15_000


class Count:
    """How often a method of a class is called, and how many calls are under way at most."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, with_: Count | None = None) -> None:
        self.calls = self.under_way = self.most = 0
        method, count = getattr(owner, name), with_ or self

        async def counted(*args: Any, **options: Any) -> Any:
            count.calls += 1
            count.under_way += 1
            count.most = max(count.most, count.under_way)
            try:
                return await method(*args, **options)
            finally:
                count.under_way -= 1

        monkeypatch.setattr(owner, name, counted)


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> Count:
    """Each writes, or reads, for many."""
    counted = Count(monkeypatch, SQLEngine, "newest_of")
    for engine in (SQLiteEngine, PostgreSQLEngine):
        Count(monkeypatch, engine, "commit_whole", counted)
    return counted


async def test_many_at_once_share_a_few_connections(
    place: DurableTestStore, store: LocusStore, transactions: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.aput(N, "first", {})
    taken = Count(monkeypatch, Pool, "take")
    transactions.calls = transactions.most = 0
    await asyncio.gather(*(store.aput(N, str(n), {"n": n}) for n in range(MANY)))
    assert transactions.calls <= 40
    found = await asyncio.gather(*(store.aget(N, str(n)) for n in range(MANY)))
    assert [item.value["n"] for item in found if item is not None] == list(range(MANY))
    assert transactions.calls <= 65
    assert transactions.most <= 4
    if isinstance(place, PostgreSQLStore):
        assert taken.calls <= transactions.calls + 10
        with place.connection() as connection:
            counted = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", (place._application,)
            ).fetchone()
        assert counted is not None
        assert counted[0] <= 5  # type: ignore[operator]


async def test_each_gets_its_own_answer(store: LocusStore) -> None:
    await store.abatch([PutOp((f"of{n}",), f"k{n}", {"n": n}) for n in range(600)])
    searches = asyncio.gather(*(store.asearch((f"of{n}",), filter={"n": n}) for n in range(30)))
    listings = asyncio.gather(*(store.alist_namespaces(prefix=(f"of{n}",)) for n in range(30)))
    gets = asyncio.gather(*(store.aget((f"of{n}",), f"k{n}") for n in [*range(600), 3, 700]))
    assert [[item.key for item in found] for found in await searches] == [[f"k{n}"] for n in range(30)]
    assert await listings == [[(f"of{n}",)] for n in range(30)]
    found = [None if item is None else item.value["n"] for item in await gets]
    assert found == [*range(600), 3, None]


async def test_writes_at_once_keep_their_order(store: LocusStore) -> None:
    changes = [store.aput(N, "a", {"n": n}) for n in range(50)] + [store.adelete(N, "b"), store.aput(N, "b", {"n": 1})]
    await asyncio.gather(*changes, store.aput(N, "c", {}), store.adelete(N, "c"))
    found = await store.abatch([GetOp(N, key) for key in "abc"])
    assert [item and item.value for item in found] == [{"n": 49}, {"n": 1}, None]  # type: ignore[union-attr]


def behind_the_back(place: DurableTestStore, on_postgresql: str, on_sqlite: str) -> None:
    if isinstance(place, PostgreSQLStore):
        with place.connection() as connection:
            connection.execute(on_postgresql.encode())
        return
    assert isinstance(place, SQLiteStore)
    with closing(sqlite3.connect(place.path)) as file, file:
        file.execute(on_sqlite)


async def test_an_error_is_only_that_of_its_operation(place: DurableTestStore, store: LocusStore) -> None:
    await store.abatch([PutOp(N, key, {}) for key in ("first", "7", "31")])
    store = LocusStore(store._memory._opened)  # which remembers nothing of them
    behind_the_back(
        place,
        "UPDATE locus__memory_checkpoints SET head = '[]' WHERE thread IN"
        " (SELECT id FROM locus__memory_threads WHERE thread_id IN ('n/!7', 'n/!31'))",
        "UPDATE locus__memory_checkpoints SET head = '[]' WHERE thread IN"
        " (SELECT id FROM locus__memory_threads WHERE thread_id IN ('n/!7', 'n/!31'))",
    )
    outcomes = await asyncio.gather(
        *(store.aput(N, str(n), {"n": n}) for n in range(40)),
        store.aput(N, "bad", {"n": float("inf")}),
        return_exceptions=True,
    )
    assert [n for n, outcome in enumerate(outcomes) if outcome is not None] == [7, 31, 40]
    assert isinstance(outcomes[40], SerializationError)
    assert isinstance(outcomes[31], CorruptCheckpointError)
    with pytest.warns(DamagedThreadsWarning):
        kept = {item.key for item in await store.asearch(N, limit=100)}
    assert kept == {"first", *map(str, range(40))} - {"7", "31"}


async def test_one_that_is_cancelled_leaves_the_others_alone(store: LocusStore) -> None:
    await store.aput(N, "first", {})
    tasks = [asyncio.create_task(store.aput(N, str(n), {"n": n})) for n in range(40)]
    await asyncio.sleep(0)  # each is on its way, or waits
    for task in tasks[1::2]:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [outcome is None for outcome in outcomes] == [True, False] * 20
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes[1::2])
    kept = {item.key for item in await store.asearch(N, limit=100)}
    assert kept == {"first", *(str(n) for n in range(0, 40, 2))}


async def test_the_first_may_be_cancelled_too(store: LocusStore) -> None:
    await store.aput(N, "first", {"n": 1})
    tasks = [asyncio.create_task(store.aget(N, "first")) for _ in range(40)]
    await asyncio.sleep(0)
    for task in tasks[:4]:
        task.cancel()
    assert await asyncio.gather(*tasks[4:]) == [await store.aget(N, "first")] * 36


async def test_an_outage_is_told_to_each(place: DurableTestStore, store: LocusStore) -> None:
    await store.aput(N, "a", {"v": 1})
    async with place.outage():
        outcomes = await asyncio.gather(*(store.aget(N, "a") for _ in range(200)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {BackendUnavailableError}
    assert len({id(outcome) for outcome in outcomes}) == 200
    assert await asyncio.gather(*(store.aget(N, "a") for _ in range(8))) == [await store.aget(N, "a")] * 8


async def test_a_damaged_item_harms_only_who_reads_it(place: DurableTestStore) -> None:
    async with LocusStore(place.url) as store:
        await asyncio.gather(*(store.aput((f"n{n}",), "k", {"n": n}) for n in range(30)))
        damage = (
            "UPDATE locus__memory_checkpoints SET head = '[]' WHERE thread IN"
            " (SELECT id FROM locus__memory_threads WHERE thread_id = 'n20/!k')"
        )
        behind_the_back(place, damage, damage)
        outcomes = await asyncio.gather(*(store.aget((f"n{n}",), "k") for n in range(30)), return_exceptions=True)
    assert [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Exception)] == [20]
    assert isinstance(outcomes[20], CorruptCheckpointError)


def test_a_loop_that_ends_leaves_nothing_waiting(place: DurableTestStore) -> None:
    """Each `asyncio.run` has an event loop of its own."""
    with LocusStore(place.url) as store:
        for turn in range(2):

            async def use(turn: int = turn) -> None:
                for n in range(40):
                    asyncio.create_task(store.aput(N, f"{turn}-{n}", {})).add_done_callback(lambda _: None)
                await asyncio.sleep(0)

            asyncio.run(use())
            store.put(N, "after", {"turn": turn})
        found = store.get(N, "after")
        assert found is not None
        assert found.value == {"turn": 1}
