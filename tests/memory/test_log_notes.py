"""Notes beside the items of a log: decided together with what is added, and told by a list of checkpoints."""

from __future__ import annotations

import asyncio
from typing import Any

from locus.errors import ConflictError
from locus.memory.backends.memory import MemoryEngine
from locus.memory.item_log import Addition, ItemLog, LogPoint, logged_change, logged_notes, notes_in
from locus.memory.model.codec import decode
from locus.memory.model.payloads import dict_payload
from locus.memory.store import CheckpointStore


def new_log(store: CheckpointStore) -> ItemLog:
    return ItemLog(store, "thread", "ns")


def counting(*items: Any) -> Any:
    """Adds these items, and notes how many batches there were."""

    async def work_out(point: LogPoint | None) -> Addition | None:
        batches = point.notes["batches"] if point and point.notes else 0
        return Addition(items, {"batches": batches + 1}) if items else None

    return work_out


async def notes_of_latest(log: ItemLog) -> Any:
    entry = await log.store.entry(log.thread_id, None, log.namespace)
    assert entry is not None
    return notes_in(entry)


async def test_notes_are_those_of_the_batches_before_whoever_adds_them() -> None:
    store = CheckpointStore(MemoryEngine())
    logs = [new_log(store) for _ in range(4)]
    made = await asyncio.gather(*(log.add(counting(number)) for number in range(5) for log in logs))
    assert len({*made}) == 20
    assert await notes_of_latest(logs[0]) == {"batches": 20}
    assert sorted(await logs[0].read()) == sorted(number for number in range(5) for _ in logs)
    assert await logs[0].add(counting()) is None
    assert len(await store.history("thread", None, None, "ns")) == 20


async def test_other_changes_keep_the_notes_of_where_they_start() -> None:
    store = CheckpointStore(MemoryEngine())
    log = new_log(store)
    first = await log.add(counting("a"))
    assert first is not None
    await log.add(counting("b"))
    await log.append(["c"])
    assert await notes_of_latest(log) == {"batches": 2}
    await new_log(store).pop()
    assert await notes_of_latest(log) == {"batches": 2}
    await new_log(store).rewind(first)
    assert await notes_of_latest(log) == {"batches": 1}
    await log.add(counting("d"))
    assert await notes_of_latest(log) == {"batches": 2}
    assert await log.read() == ["a", "d"]


async def test_a_log_without_notes_has_the_metadata_that_it_had() -> None:
    store = CheckpointStore(MemoryEngine())
    log = new_log(store)
    await log.append(["a"])
    (entry,) = await store.history("thread", None, None, "ns")
    assert len(decode(decode(entry.metadata)["log"])) == 3
    assert notes_in(entry) is None


async def test_notes_that_were_copied_to_another_checkpoint_say_nothing_of_that_one() -> None:
    store = CheckpointStore(MemoryEngine())
    await new_log(store).add(counting("a"))
    (entry,) = await store.history("thread", None, None, "ns")
    payload = dict_payload({"items": [1, 2]})
    await store.save("another", payload, namespace="ns", metadata=decode(entry.metadata))
    another = ItemLog(store, "another", "ns")
    assert await notes_of_latest(another) is None
    await another.add(counting(3))
    assert await notes_of_latest(another) == {"batches": 1}
    assert await another.read() == [1, 2, 3]


async def test_a_conflict_while_it_is_worked_out_is_another_writer() -> None:
    log = new_log(CheckpointStore(MemoryEngine()))
    calls = 0

    async def work_out(_point: LogPoint | None) -> Addition | None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ConflictError("what it has read is gone")
        return Addition(["a"], {})

    assert await log.add(work_out) is not None
    assert (calls, await log.read()) == (2, ["a"])


def test_notes_of_another_kind_are_none() -> None:
    metadata = '{"log": "[\\"add\\",[],\\"rev\\",5]"}'
    assert logged_change(metadata) is not None
    assert logged_notes(metadata) is None
