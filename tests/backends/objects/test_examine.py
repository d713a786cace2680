"""What `locus doctor` can tell of lost objects, by the names of those that are left."""

from __future__ import annotations

from datetime import timedelta

import pytest

from locus.core.state import AgentState
from locus.doctor import examine
from locus.errors import CorruptCheckpointError
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.objects.schema import event_key, thread_folder, thread_name
from locus.memory.model.records import Finding
from tests.backends.objects.in_memory import MemoryObjectStore
from tests.backends.objects.test_contract import ObjectsInMemory

LONG = "lé" * 100


@pytest.fixture
async def store() -> ObjectsInMemory:
    """Threads of one save and of several, one that is deleted, one that began again, and one that was swept."""
    store = ObjectsInMemory()
    async with store.open() as cp:
        for thread_id in ("one", LONG):
            await cp.save(AgentState(), thread_id, "c1")
        for thread_id in ("deleted", "again", "swept", "many"):
            state = AgentState()
            for number in range(3):
                await cp.save(state, thread_id, f"c{number}")
                state = state.next_iteration()
        for thread_id in ("deleted", "again"):
            await cp.delete(thread_id)
        await cp.delete("swept", "c1")
        await ObjectEngine(MemoryObjectStore(shared=store.objects)).sweep(timedelta(0))
        await cp.save(AgentState(), "again", "anew")
    return store


async def found(store: ObjectsInMemory) -> list[Finding]:
    async with store.open() as cp:
        return (await examine(cp.store)).findings


def lose(store: ObjectsInMemory, start: str) -> None:
    names = [key for key in store.objects.objects if key.startswith(start)]
    assert names
    for key in names:
        del store.objects.objects[key]


async def test_a_whole_store_has_no_findings(store: ObjectsInMemory) -> None:
    assert await found(store) == []


@pytest.mark.parametrize("marker", ["n/one-", "n/again-", "n/swept-", "n/many-", "l/"])
async def test_a_thread_without_its_marker_is_found(store: ObjectsInMemory, marker: str) -> None:
    lose(store, marker)
    (finding,) = await found(store)
    assert finding.severity == "error"
    assert "1 thread lost the marker" in finding.what


async def test_a_lost_first_event_is_found(store: ObjectsInMemory) -> None:
    async with store.open() as cp:
        await cp.save(AgentState(), "new")
    lose(store, event_key(thread_name("new"), 1))
    async with store.open() as cp:
        assert await cp.load("new") is None
    (finding,) = await found(store)
    assert finding.severity == "warning"
    assert "1 thread with a marker but without a first event" in finding.what


async def test_a_lost_thread_is_found(store: ObjectsInMemory) -> None:
    lose(store, thread_folder(thread_name("many")))
    (finding,) = await found(store)
    assert finding.severity == "error"
    assert "1 thread lost the newest objects" in finding.what


async def test_the_newest_event_of_another_place_is_told(store: ObjectsInMemory) -> None:
    """A body that belongs to an earlier event of the thread must not pass for no event at all."""
    thread = thread_name("many")
    older, newest = event_key(thread, 2), event_key(thread, 3)
    store.objects.objects[newest] = store.objects.objects[older]
    async with store.open() as cp:
        for question in (cp.load("many"), cp.load("many", "c0"), cp.history("many"), cp.save(AgentState(), "many")):
            with pytest.raises(CorruptCheckpointError):
                await question


async def test_a_handle_that_knows_the_thread_is_told_too(store: ObjectsInMemory) -> None:
    thread = thread_name("many")
    async with store.open() as cp:
        assert await cp.load("many")
        store.objects.objects[event_key(thread, 4)] = store.objects.objects[event_key(thread, 3)]
        with pytest.raises(CorruptCheckpointError):
            await cp.load("many")


async def test_a_marker_with_another_id_is_told(store: ObjectsInMemory) -> None:
    (key,) = [key for key in store.objects.objects if key.startswith("l/")]
    for body in (LONG.replace("l", "L", 1).encode(), b"\xff"):
        store.objects.objects[key] = (body, store.objects.objects[key][1])
        async with store.open() as cp:
            with pytest.raises(CorruptCheckpointError, match="marker"):
                await cp.list_threads()
