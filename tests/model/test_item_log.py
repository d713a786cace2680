"""Logs of items: what they send to the store, what they never ask of it, and what happens between two steps."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from locus.errors import ConflictError, CorruptCheckpointError
from locus.memory import item_log
from locus.memory.backends import sqlite_checkpointer
from locus.memory.backends.memory import MemoryEngine
from locus.memory.item_log import ItemLog, logged_change
from locus.memory.model import digests
from locus.memory.model.codec import decode
from locus.memory.model.manifest import fits, wanted
from locus.memory.model.parts import Part
from locus.memory.model.payloads import dict_payload
from locus.memory.model.records import Commit, Outcome, Stored, Verdict
from locus.memory.store import CheckpointStore


class Watched(MemoryEngine):
    """Remembers what it was asked. `before` and `after` may stand in the way of a commit, once."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[Commit] = []
        self.reads = 0
        self.before: asyncio.Event | None = None
        self.after: asyncio.Event | None = None
        self.waiting = asyncio.Event()

    async def commit(self, commit: Commit) -> Outcome:
        self.commits.append(commit)
        assert commit.extents is not None
        assert list(commit.extents) == wanted(commit.manifest)
        before, self.before = self.before, None
        if before is not None:
            self.waiting.set()
            await before.wait()
        outcome = await super().commit(commit)
        after, self.after = self.after, None
        if after is not None:
            self.waiting.set()
            await after.wait()
        return outcome

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        self.reads += 1
        return await super().read(thread_id, namespace, checkpoint_id)

    async def read_part(self, thread_id: str, namespace: str, checkpoint_id: str | None, part: Part) -> Stored | None:
        self.reads += 1
        return await super().read_part(thread_id, namespace, checkpoint_id, part)


@pytest.fixture
def engine() -> Watched:
    return Watched()


@pytest.fixture
def log(engine: Watched) -> ItemLog:
    return new_log(engine)


def new_log(engine: Watched, **options: Any) -> ItemLog:
    return ItemLog(CheckpointStore(engine, **options), "thread", "ns")


def sent(commit: Commit) -> int:
    return len(commit.head) + len(commit.manifest) + len(commit.metadata) + sum(len(run.items) for run in commit.runs)


@pytest.mark.parametrize("cold", [False, True])
async def test_an_append_reads_no_item_and_costs_the_same_at_any_length(
    engine: Watched, log: ItemLog, cold: bool
) -> None:
    for number in range(400):
        await (new_log(engine) if cold else log).append([{"content": f"item {number:04}"}])
    assert engine.reads == 0
    assert len(engine.commits) == 400
    assert sent(engine.commits[-1]) <= sent(engine.commits[10]) + 10
    assert all(len(commit.runs) == 1 and len(decode(commit.runs[0].items)) == 1 for commit in engine.commits)
    assert [item["content"] for item in await log.read()] == [f"item {number:04}" for number in range(400)]


async def test_a_pop_of_what_was_just_added_and_a_return_read_nothing(engine: Watched, log: ItemLog) -> None:
    await log.append([1, 2, 3])
    start = engine.commits[0].checkpoint_id
    assert await log.pop() == 3
    assert engine.reads == 0
    assert await log.pop() == 2
    assert engine.reads == 0
    await log.rewind(start)
    assert engine.reads == 0
    assert await log.read() == [1, 2, 3]


async def test_a_checkpoint_says_what_was_done_and_where_the_items_are(engine: Watched, log: ItemLog) -> None:
    await log.append(["a", "b"])
    await log.append(["c"])
    first, second = engine.commits
    branch = first.runs[0].branch
    assert second.manifest == f'[[["items"],[["{branch}",1,0,3]]]]'
    assert decode(second.metadata) == {"log": f'["add",[["{branch}",1,0,3]],"{second.rev}"]'}
    found = logged_change(second.metadata)
    assert found is not None
    assert (found.change, found.items) == ("add", 3)


@pytest.mark.parametrize(
    "metadata", ["{}", '{"log": 5}', '{"log": "x"}', '{"log": "[1]"}', '{"log": "[\\"a\\",[[1]]]"}']
)
def test_metadata_of_something_else_says_nothing(metadata: str) -> None:
    assert logged_change(metadata) is None


async def test_metadata_that_were_copied_to_another_checkpoint_mislead_nobody(engine: Watched, log: ItemLog) -> None:
    await log.append([1, 2])
    store = CheckpointStore(engine)
    copied = decode(engine.commits[0].metadata)
    payload = dict_payload({"items": [3, 4, 5]})
    await store.save("another", payload, namespace="ns", metadata=copied)
    another = ItemLog(store, "another", "ns")
    await another.append([6])
    assert await another.read() == [3, 4, 5, 6]


async def test_a_change_of_a_log_that_went_on_is_worked_out_anew(engine: Watched, log: ItemLog) -> None:
    await log.append([1])
    other = new_log(engine)
    await other.append([2])
    await log.append([3])
    assert await log.read() == [1, 2, 3]
    await other.pop()
    await log.append([4])
    assert await log.read() == [1, 2, 4]


async def test_a_log_that_is_deleted_while_its_last_item_is_read_is_empty(engine: Watched, log: ItemLog) -> None:
    await log.append([1, 2])
    await log.read()  # so that the log is known, and its last item is not
    await new_log(engine).delete()
    assert await log.pop() is None
    await log.append([3])
    assert await log.read() == [3]


async def test_other_items_take_the_place_of_the_end(engine: Watched, log: ItemLog) -> None:
    await log.append([1, 2, 3, 4])
    latest = await log.latest()
    assert latest is not None
    assert await log.replace_from(1, ["summary"], if_latest=latest)
    assert await log.read() == [1, "summary"]
    assert await log.read(checkpoint_id=latest) == [1, 2, 3, 4]
    assert not await log.replace_from(0, [], if_latest=latest)
    assert await log.read() == [1, "summary"]
    await log.append([5])
    assert await log.read() == [1, "summary", 5]


@pytest.mark.parametrize("saves", [1, 20])
@pytest.mark.parametrize("kept", [0, 2])
async def test_a_log_is_shortened_at_both_ends_in_one_step(engine: Watched, saves: int, kept: int) -> None:
    """Also if its items are in more pieces than a commit refers to."""
    log = new_log(engine)
    for number in range(saves):
        await log.append(range(4 * number, 4 * number + 4))
        await log.pop()
    there = await log.read()
    await log.append(["x", "y"])
    latest, count = await log.latest(), len(there)
    assert latest is not None
    assert await log.replace_from(count, ["summary"], if_latest=latest, first=count - kept)
    assert await log.read() == await new_log(engine).read() == [*there[count - kept :], "summary"]
    assert await log.pop() == "summary"
    await log.append(["z"])
    assert await log.read() == await new_log(engine).read() == [*there[count - kept :], "z"]
    assert await log.read(checkpoint_id=latest) == [*there, "x", "y"]


async def test_whoever_is_always_slower_is_told(engine: Watched, log: ItemLog, monkeypatch: pytest.MonkeyPatch) -> None:
    async def conflict(_commit: Commit) -> Outcome:
        return Outcome(Verdict.CONFLICT, latest="another")

    monkeypatch.setattr(item_log, "_ATTEMPTS", 3)
    monkeypatch.setattr(engine, "commit", conflict)
    with pytest.raises(ConflictError, match="faster than this change can follow"):
        await log.append([1])


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_cancelled_append_is_settled_when_the_caller_goes_on(engine: Watched, log: ItemLog, when: str) -> None:
    await log.append([1])
    setattr(engine, when, asyncio.Event())
    task = asyncio.create_task(log.append([2]))
    await engine.waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await new_log(engine).read() == [1, 2]
    await log.append([3])
    assert await log.read() == [1, 2, 3]


async def test_the_time_to_live_of_the_store_is_that_of_its_logs(engine: Watched) -> None:
    log = new_log(engine, ttl_seconds=60.0)
    await log.append([1])
    (commit,) = engine.commits
    assert commit.expires_at is not None
    assert 59 < (commit.expires_at - commit.created_at).total_seconds() <= 60


def test_a_log_serves_several_event_loops(engine: Watched, log: ItemLog) -> None:
    async def add(number: int) -> None:
        await asyncio.gather(*(log.append([number + part]) for part in range(5)))

    asyncio.run(add(0))
    asyncio.run(add(10))
    assert sorted(asyncio.run(log.read())) == [*range(5), *range(10, 15)]


ITEMS = [{"b": number, "a": "é"} for number in range(6)]
"""Their keys are in no order, which some databases do not keep."""


async def _edited(log: ItemLog) -> None:
    """Run 1 takes the place of the second item of run 0, and run 2 follows it."""
    await log.append(ITEMS[:2])
    await log.pop()
    await log.append(ITEMS[2:3])
    await log.append(ITEMS[3:4])


@pytest.mark.parametrize("warm", [True, False])
async def test_each_run_has_a_digest_of_what_precedes_it(engine: Watched, log: ItemLog, warm: bool) -> None:
    await _edited(log)
    last = log if warm else new_log(engine)
    if not warm:
        await last.read()
    await last.append(ITEMS[4:])
    runs = [run for commit in engine.commits for run in commit.runs]
    assert [run.start for run in runs] == [0, 1, 2, 3]
    assert [run.before is None for run in runs] == [True, False, False, False]
    for older, newer in ((0, 1), (1, 2), (2, 3)):
        assert fits(runs[older], runs[newer])
    assert not fits(runs[0], runs[2]), "run 1 is between them"
    assert await last.read() == [ITEMS[0], *ITEMS[2:]]


async def test_an_append_takes_no_item_apart_that_it_has_just_encoded(
    engine: Watched, log: ItemLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "texts_of", pytest.fail)
    for start in range(3):
        await log.append(ITEMS[start : start + 1])
    assert [run.before is None for commit in engine.commits for run in commit.runs] == [True, False, False]


async def test_items_that_look_like_the_border_of_two_are_digested_as_one(engine: Watched, log: ItemLog) -> None:
    items = ["[\n,]", {"text": '"\n,"', "\n,": [1e22, -0.0, "\u2028\u0085\r\n,"]}, "]"]
    for _ in range(3):
        await log.append(items)
    runs = [run for commit in engine.commits for run in commit.runs]
    assert all(fits(older, newer) for older, newer in pairwise(runs))
    assert not fits(runs[0], runs[1]._replace(before=runs[2].before))
    assert await log.read() == items * 3


async def test_a_handle_that_knows_no_items_reads_none_for_a_digest(engine: Watched, log: ItemLog) -> None:
    await _edited(log)
    await new_log(engine).append(ITEMS[4:])
    assert engine.reads == 0
    assert engine.commits[-1].runs[0].before is None
    assert await log.read() == [ITEMS[0], *ITEMS[2:]]


async def test_a_lost_edit_of_a_log_does_not_bring_back_what_it_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with sqlite_checkpointer(path) as handle:
        await _edited(ItemLog(handle.store, "t", "ns"))
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("DELETE FROM locus_runs WHERE number = 1").rowcount == 1
    async with sqlite_checkpointer(path) as handle:
        with pytest.raises(CorruptCheckpointError):
            await ItemLog(handle.store, "t", "ns").read()
