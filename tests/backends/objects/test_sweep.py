"""Sweeps: what is deleted goes, what is not stays, and nobody notices."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import CorruptCheckpointError, UnsupportedFormatError
from locus.memory.backends.objects import engine as objects_engine
from locus.memory.backends.objects import merge as objects_merge
from locus.memory.backends.objects import read as objects_read
from locus.memory.backends.objects import remove as objects_remove
from locus.memory.backends.objects.backend import ObjectCheckpointStore
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.objects.schema import Draft, event_key, thread_folder, thread_name
from locus.memory.checkpointer import Checkpointer
from locus.memory.storage import StorageBackend
from tests.backends.objects.in_memory import MemoryObjectStore, StoreFault

HOUR = timedelta(hours=1)


@pytest.fixture
def objects() -> MemoryObjectStore:
    return MemoryObjectStore()


def opened(objects: MemoryObjectStore) -> StorageBackend:
    return StorageBackend(ObjectCheckpointStore(ObjectEngine(MemoryObjectStore(shared=objects))))


async def sweep(backend: StorageBackend, grace: timedelta = HOUR) -> int:
    store = backend.store
    assert isinstance(store, ObjectCheckpointStore)
    return await store.sweep(grace)


def age(objects: MemoryObjectStore, by: timedelta = 2 * HOUR) -> None:
    """Let everything be older. Handles that are opened afterwards know nothing of before."""
    for key, (body, moment) in objects.objects.items():
        objects.objects[key] = (body, moment - by)


def everything(objects: MemoryObjectStore) -> bytes:
    return b"".join(key.encode() + body for key, (body, _) in objects.objects.items())


async def saved(backend: StorageBackend, count: int, thread_id: str = "t") -> dict[str, Any]:
    states: dict[str, Any] = {}
    items: list[str] = []
    for number in range(count):
        items = [*items, f"secret {number} {'x' * 50}"]
        data = {"items": items, "head": f"only {number}"}
        states[await backend.save(thread_id, data)] = data
    return states


async def test_what_is_deleted_is_gone_from_every_object(objects: MemoryObjectStore) -> None:
    backend = opened(objects)
    states = await saved(backend, 50)
    names = list(states)
    await backend.delete("t", names[20])
    del states[names[20]]
    assert b"only 20" in everything(objects)
    await sweep(backend)
    assert b"only 20" in everything(objects), "a handle may still rely on the event"
    age(objects)
    await sweep(opened(objects))
    assert b"only 20" not in everything(objects)
    assert b"secret 20" in everything(objects), "later checkpoints show it"
    for handle in (backend, opened(objects)):
        assert {name: await handle.load("t", name) for name in states} == states


async def test_a_deleted_thread_leaves_one_small_object_without_its_id(objects: MemoryObjectStore) -> None:
    backend = opened(objects)
    await saved(backend, 40, "customer-7")
    await saved(backend, 3, "other")
    await backend.delete("customer-7")
    for _ in range(3):
        age(objects)
        await sweep(opened(objects))
    left = {key: body for key, (body, _) in objects.objects.items() if thread_name("customer-7") in key}
    assert sum(len(body) for body in left.values()) < 400
    assert len(left) <= 2
    assert b"customer" not in everything(objects)
    handle = opened(objects)
    assert await handle.list_threads() == ["other"]
    await handle.save("customer-7", {"n": 1})
    assert [entry.seq for entry in await opened(objects).history("customer-7")] == [42]


async def test_a_sweep_that_has_nothing_to_do_writes_nothing(objects: MemoryObjectStore) -> None:
    backend = opened(objects)
    await saved(backend, 40)
    await sweep(backend)
    store = MemoryObjectStore(shared=objects)
    await sweep(StorageBackend(ObjectCheckpointStore(ObjectEngine(store))))
    assert store.requests["put"] == 0


@pytest.mark.parametrize("kind", ["put", "delete"])
async def test_a_sweep_may_end_after_any_request(objects: MemoryObjectStore, kind: str) -> None:
    backend = opened(objects)
    states = await saved(backend, 60)
    names = list(states)
    for name in (*names[:20], names[40]):
        await backend.delete("t", name)
        del states[name]
    age(objects)
    for last in (*range(1, 6), *range(6, 200, 11)):
        done = 0

        async def stop(what: str, _key: str, last: int = last) -> None:
            nonlocal done
            done += what == kind
            if done >= last:
                raise StoreFault("ended here")

        copy = MemoryObjectStore()
        copy.objects = dict(objects.objects)
        stopped = MemoryObjectStore(after=stop, shared=copy)
        failed = False
        try:
            await ObjectEngine(stopped).sweep(HOUR)
        except StoreFault:
            failed = True
        for _ in range(2):
            handle = opened(copy)
            assert {name: await handle.load("t", name) for name in names if name in states} == states
            await sweep(handle)
        if not failed:
            return
    raise AssertionError("the sweep never came to its end")


async def test_a_large_value_that_was_gone_and_comes_again_is_found(objects: MemoryObjectStore) -> None:
    """A handle that has not seen the sweep must not look for the text where it was before."""
    backend, large = opened(objects), {"manual": "y" * 5_000}
    first = await backend.save("t", large)
    await backend.save("t", {"manual": "short"})
    await backend.delete("t", first)
    age(objects, timedelta(minutes=1))
    await sweep(opened(objects), timedelta(0))
    again = await backend.save("t", large)
    for handle in (backend, opened(objects)):
        assert await handle.load("t", again) == large


async def test_a_handle_that_rested_looks_again_before_it_writes(
    objects: MemoryObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may have been given out, and the event swept."""
    rested = opened(objects)
    await rested.save("t", {"n": 0})
    busy = opened(objects)
    for number in range(1, 20):
        await busy.save("t", {"n": number})
    await busy.delete("t", (await busy.list_checkpoints("t"))[3])
    age(objects)
    await sweep(busy)
    monkeypatch.setattr(objects_read, "CACHE_SECONDS", 0.0)
    saved_as = await rested.save("t", {"n": 20})
    history = await opened(objects).history("t", None)
    assert history[0].checkpoint_id == saved_as
    assert len(history) == 20
    assert history[0].seq == 22


async def test_an_object_that_is_lost_is_damage(objects: MemoryObjectStore) -> None:
    backend = opened(objects)
    await saved(backend, 3)
    del objects.objects[event_key(thread_name("t"), 2)]
    with pytest.raises(CorruptCheckpointError, match="incomplete"):
        await opened(objects).load("t")


async def test_an_event_of_another_thread_is_damage(objects: MemoryObjectStore) -> None:
    backend = opened(objects)
    await saved(backend, 1, "mine")
    await saved(backend, 1, "yours")
    objects.objects[event_key(thread_name("mine"), 1)] = objects.objects[event_key(thread_name("yours"), 1)]
    with pytest.raises(CorruptCheckpointError, match="another thread"):
        await opened(objects).load("mine")


async def test_a_newer_format_is_refused(objects: MemoryObjectStore) -> None:
    backend = opened(objects)
    await saved(backend, 2)
    kept = dict(objects.objects)
    objects.objects["locus.json"] = (b'{"format":99}', datetime.now(UTC))
    handle = opened(objects)
    for work in (handle.load("t"), handle.list_threads(), handle.save("t", {})):
        with pytest.raises(UnsupportedFormatError, match="99"):
            await work
    objects.objects.clear()
    objects.objects.update(kept)
    body = Draft("commit", {"v": 99}).body("t", 3, "x")
    objects.objects[event_key(thread_name("t"), 3)] = (body, datetime.now(UTC))
    with pytest.raises(UnsupportedFormatError, match="99"):
        await opened(objects).load("t")


async def test_an_unreadable_thread_can_be_deleted_and_begun_anew(objects: MemoryObjectStore) -> None:
    backend = opened(objects)
    await saved(backend, 40)
    for key, (body, moment) in list(objects.objects.items()):
        if key.startswith(thread_folder(thread_name("t"))):
            objects.objects[key] = (body[10:], moment)
    with pytest.raises(CorruptCheckpointError):
        await opened(objects).load("t")
    assert await opened(objects).delete("t")
    handle = opened(objects)
    assert await handle.list_threads() == []
    await handle.save("t", {"n": 1}, if_latest=None)
    assert await opened(objects).load("t") == {"n": 1}
    assert await backend.load("t") == {"n": 1}


async def test_a_save_that_never_came_is_no_thread(objects: MemoryObjectStore) -> None:
    async def stop(kind: str, key: str) -> None:
        if kind == "put" and "/s/" in key:
            raise StoreFault("ended here")

    broken = ObjectCheckpointStore(ObjectEngine(MemoryObjectStore(before=stop, shared=objects)))
    with pytest.raises(Exception, match="ended here"):
        await StorageBackend(broken).save("t", {"n": 1})
    handle = opened(objects)
    assert await handle.list_threads() == []
    await sweep(handle)
    assert [key for key in objects.objects if key.startswith("n/")], "it may still be on its way"
    age(objects)
    await sweep(opened(objects))
    age(objects)
    await sweep(opened(objects))
    age(objects)
    await sweep(opened(objects))
    assert not [key for key in objects.objects if key.startswith("n/")]


class DatedObjectStore(MemoryObjectStore):
    """One that can be asked for the time."""

    async def server_time(self) -> datetime | None:
        return self.now()


class ClockAhead(datetime):
    """The clock of a machine that is off by more than the grace of a sweep."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Any:
        return datetime.now(tz) + 2 * HOUR


@pytest.mark.parametrize("many", [20, 257], ids=["by a vacuum", "by a merge"])
async def test_nothing_is_lost_where_the_clock_of_one_machine_is_ahead(
    monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    """It must not remove events that another handle still counts on: that one would put others under their numbers."""
    objects = DatedObjectStore()

    def handle() -> Checkpointer:
        return Checkpointer(ObjectCheckpointStore(ObjectEngine(DatedObjectStore(shared=objects))))

    waiting, busy = handle(), handle()
    state = AgentState().with_message(Message.user("one"))
    await waiting.save(state, "t")
    for module in (objects_engine, objects_merge, objects_remove):
        monkeypatch.setattr(module, "datetime", ClockAhead, raising=False)
    other = AgentState()
    for _ in range(many):
        other = other.next_iteration()
        await busy.save(other, "t")
    if many < 256:
        await busy.vacuum(30)
    late = await waiting.save(state.with_message(Message.user("late")), "t")
    assert await handle().list_checkpoints("t", 1) == [late]
