"""A long thread of which only the newest events are read: it answers as one that was read as a whole, for less."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from locus.core.state import AgentState, ToolExecution
from locus.errors import BackendUnavailableError, CorruptCheckpointError
from locus.memory.backends.objects import engine as objects_engine
from locus.memory.backends.objects.backend import ObjectCheckpointStore
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.objects.schema import to_line
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.ids import new_id
from locus.memory.model.manifest import items_text
from locus.memory.model.parts import Part, Range, Window, needed, page_of
from locus.memory.model.records import DEFAULT_NAMESPACE, Base, Commit, Run, Stored, Verdict, Write
from locus.testing.data import conversation, message
from locus.testing.laws.loading.partial_reads import PartialReadLaws
from tests.backends.objects.in_memory import MemoryObjectStore, StoreFault
from tests.backends.objects.small import make_small
from tests.backends.objects.test_contract import ObjectsInMemory

LISTS = frozenset({("messages",), ("tool_executions",), ("tool_history",), ("confidence_history",)})
WINDOW = Window(20, LISTS)
MOMENT = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)


@pytest.mark.usefixtures("small")
class TestPartsOfLongThreads(PartialReadLaws):
    @pytest.fixture
    def store(self) -> ObjectsInMemory:
        return ObjectsInMemory()


def opened(objects: MemoryObjectStore) -> tuple[MemoryObjectStore, Checkpointer]:
    """A handle that knows nothing, and what it costs."""
    store = MemoryObjectStore(shared=objects)
    return store, Checkpointer(ObjectCheckpointStore(ObjectEngine(store)))


def turned(state: AgentState, turn: int) -> AgentState:
    execution = ToolExecution(tool_name="look", tool_call_id=f"call-{turn:05}", result="x" * 200)
    return state.with_messages(conversation(2, 10_000 + turn * 2)).with_tool_execution(execution).with_confidence(0.5)


async def long_thread(objects: MemoryObjectStore, state: AgentState, *turns: int) -> list[MemoryObjectStore]:
    """Save turn after turn; the objects as they were after each of these numbers of turns."""
    _, warm = opened(objects)
    found = []
    for turn in range(1, turns[-1] + 1):
        state = turned(state, turn)
        await warm.save(state, "t")
        if turn in turns:
            found.append(MemoryObjectStore())
            found[-1].objects = dict(objects.objects)
    return found


@pytest.fixture(scope="module")
def long() -> MemoryObjectStore:
    objects = MemoryObjectStore()
    asyncio.run(long_thread(objects, AgentState(), 260))
    return objects


@pytest.fixture
def objects(long: MemoryObjectStore) -> MemoryObjectStore:
    """A thread of 260 turns: 256 of them are merged into one object of entries and one of items."""
    found = MemoryObjectStore()
    found.objects = dict(long.objects)
    return found


async def part_of(checkpointer: Checkpointer, part: Part, checkpoint_id: str | None = None) -> Stored:
    found = await checkpointer.store.read_part("t", checkpoint_id, DEFAULT_NAMESPACE, part)
    assert found is not None
    return found


async def same_as_whole(objects: MemoryObjectStore, part: Part = WINDOW) -> MemoryObjectStore:
    """Read a part with a handle that knows nothing, and compare it with all; what it has cost."""
    store, cold = opened(objects)
    found = await part_of(cold, part)
    whole = await opened(objects)[1].store.read("t", None, DEFAULT_NAMESPACE)
    assert whole is not None
    assert (found.entry, found.head, found.manifest) == (whole.entry, whole.head, whole.manifest)
    extents = needed(found.manifest, part)
    assert items_text(extents, found.runs) == items_text(extents, whole.runs)
    return store


async def appended(engine: ObjectEngine, thread_id: str, found: Stored) -> Verdict:
    """Save an item more in each list, on top of what was read."""
    manifest, runs = [], []
    for path, extents in json.loads(found.manifest):
        if tuple(path) in LISTS:
            branch, run, skip, length = extents[-1]
            runs.append(Run(branch, run + 1, skip + length, 1, '["new"]'))
            extents = [*extents[:-1], [branch, run + 1, skip, length + 1]]
        manifest.append([path, extents])
    base = Base(found.entry.checkpoint_id, found.entry.rev)
    facts = (thread_id, DEFAULT_NAMESPACE, new_id(), new_id(), MOMENT, "{}", found.head, json.dumps(manifest))
    return (await engine.commit(Commit(*facts, tuple(runs), base=base, fresh_id=True))).verdict


async def test_a_turn_costs_as_much_in_a_long_thread_as_in_a_short_one() -> None:
    """Counted: load the last items with a handle that knows nothing, and save."""
    costs = []
    for objects in await long_thread(MemoryObjectStore(), AgentState(), 90, 346, 522):
        await same_as_whole(objects)
        store = MemoryObjectStore(shared=objects)
        engine = ObjectEngine(store)
        found = await engine.read_part("t", DEFAULT_NAMESPACE, None, WINDOW)
        assert found is not None
        loaded = dict(store.requests)
        assert loaded["list"] == 1
        assert await appended(engine, "t", found) is Verdict.COMMITTED
        assert store.requests["put"] == 1
        assert sum(store.requests.values()) == sum(loaded.values()) + 1
        costs.append((sum(store.requests.values()), store.received))
    (requests, received), *later = costs
    for requests_later, received_later in later:
        assert requests_later <= requests + 3
        assert received_later <= 1.25 * received


async def test_the_first_page_of_a_listing_is_enough_and_short(objects: MemoryObjectStore) -> None:
    listed: list[int] = []

    class Watched(MemoryObjectStore):
        async def list(self, prefix: str, *, start_after: str | None = None, limit: int | None = None) -> Any:
            found = await super().list(prefix, start_after=start_after, limit=limit)
            listed.append(len(found))
            return found

    assert await ObjectEngine(Watched(shared=objects)).entry("t", DEFAULT_NAMESPACE, None) is not None
    assert len(listed) == 1
    assert listed[0] < 150 < len(objects.objects)


async def test_what_was_stored_long_ago_is_found_without_reading_everything() -> None:
    """A long text, a list that never changed, and one that did when the thread was half as long."""
    state = AgentState().with_metadata("prompt", "p" * 2_000).with_metadata("fixed", ["f" * 90, "g"])
    objects = MemoryObjectStore()
    _, warm = opened(objects)
    for turn in range(300):
        state = turned(state.with_metadata("seen", ["s" * 90, turn]) if turn == 150 else state, turn)
        await warm.save(state, "t")
    store = await same_as_whole(objects)
    everything = sum(len(body) for key, (body, _) in objects.objects.items() if "/m/" in key)
    assert store.received < everything / 3
    # Now each turn is saved by a handle that knows nothing before; every sixteenth merges, and passes on the tip.
    for _ in range(50):
        engine = ObjectEngine(MemoryObjectStore(shared=objects))
        found = await engine.read_part("t", DEFAULT_NAMESPACE, None, WINDOW)
        assert found is not None
        assert await appended(engine, "t", found) is Verdict.COMMITTED
    later = await same_as_whole(objects)
    assert later.received < 1.25 * store.received


async def test_items_from_the_middle_are_read_from_their_places(objects: MemoryObjectStore) -> None:
    store, handle = opened(objects)
    await part_of(handle, Range(("messages",), 200, 20))
    store.received = 0
    found = await part_of(handle, Range(("messages",), 200, 20))
    assert [item["content"] for item in page_of(found, Range(("messages",), 200, 20)).items] == [
        one.text for one in conversation(20, 10_202)
    ]
    (merged,) = [len(body) for key, (body, _) in objects.objects.items() if key.endswith("-1-256.2.0.items")]
    assert store.received < merged / 5


async def test_one_new_turn_is_all_that_a_reader_of_the_turn_before_is_sent() -> None:
    objects = MemoryObjectStore()
    await long_thread(objects, AgentState(), 90)
    _, writer = opened(objects)
    store, reader = opened(objects)
    state = await writer.load("t")
    whole = await reader.store.read("t", None, DEFAULT_NAMESPACE)
    assert state is not None
    assert whole is not None
    store.received = 0
    store.requests.clear()
    await writer.save(turned(state, 91), "t")
    async with reader.store.using() as engine:
        held = Base(whole.entry.checkpoint_id, whole.entry.rev)
        found = await engine.read_since("t", DEFAULT_NAMESPACE, None, held)
    assert found is not None
    assert found.since == held
    assert sum(map(len, found.runs.values())) == 4
    (event,) = [len(body) for key, (body, _) in objects.objects.items() if key.endswith("-91")]
    assert store.received < 2 * event + 3_000
    assert "list" not in store.requests


@contextmanager
def reading_everything() -> Iterator[None]:
    """What a handle does if it never tries to do with less."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_NEWEST", "_LATEST", "_ALL_ENTRIES"):
            patch.setattr(objects_engine, name, None)
        yield


async def variants(engine: ObjectEngine) -> list[Commit]:
    """Commits that need to know all sorts of things of the thread."""
    history = await engine.history("t", DEFAULT_NAMESPACE, None, None)
    newest, oldest = history[0], history[-1]
    stored = await engine.read("t", DEFAULT_NAMESPACE, None)
    assert stored is not None
    (branch, run, _, length), *_ = next(cut for path, cut in json.loads(stored.manifest) if path == ["messages"])
    fixed = next(cut for path, cut in json.loads(stored.manifest) if path == ["metadata", "fixed"])[0][0]
    plain = Commit("t", DEFAULT_NAMESPACE, "made", "rev", MOMENT, "{}", "{}", "[]", fresh_id=True)
    base = Base(newest.checkpoint_id, newest.rev)
    known = replace(plain, fresh_id=False)
    return [
        plain,
        known,
        replace(plain, base=base, runs=(Run(branch, run + 1, length, 1, "[1]"),)),
        replace(plain, base=base, runs=(Run(branch, run, length, 1, "[1]"),)),
        replace(plain, base=base, runs=(Run(fixed, 1, 2, 1, "[1]"),)),
        replace(plain, base=Base(oldest.checkpoint_id, oldest.rev)),
        replace(plain, base=Base(oldest.checkpoint_id, newest.rev)),
        replace(plain, base=Base("never", newest.rev)),
        replace(plain, if_latest=newest.checkpoint_id),
        replace(plain, if_latest=oldest.checkpoint_id),
        replace(plain, if_latest=None),
        replace(plain, namespace="other", if_latest=None),
        replace(plain, namespace="new", if_latest=None),
        replace(plain, parent_id=oldest.checkpoint_id, parent_required=True),
        replace(plain, parent_id="never", parent_required=True),
        replace(plain, parent_id="never"),
        replace(plain, parent_id="never", parent_as_named=True),
        replace(plain, parent_id=oldest.checkpoint_id, parent_as_named=True),
        replace(plain, parent_id=None),
        replace(known, checkpoint_id=oldest.checkpoint_id),
        replace(known, checkpoint_id=oldest.checkpoint_id, replaces=oldest.rev),
        replace(known, checkpoint_id=newest.checkpoint_id, replaces=newest.rev),
        replace(known, checkpoint_id=newest.checkpoint_id, rev=newest.rev),
    ]


@pytest.mark.usefixtures("small")
async def test_a_handle_that_knows_the_newest_events_decides_as_one_that_knows_all() -> None:
    objects = MemoryObjectStore()
    _, first = opened(objects)
    await first.save(AgentState(), "t", namespace="other")
    # Another line took the next number on the branch of a list that does not change on this one.
    state = AgentState().with_metadata("fixed", ["f" * 90, "g"])
    await first.save(state, "t", "line")
    await first.save(state.with_metadata("fixed", ["f" * 90, "g", "h"]), "t")
    again = await first.load("t", "line")
    assert again is not None
    await long_thread(objects, again, 40)
    verdicts: list[Verdict] = []
    for commit in await variants(ObjectEngine(objects)):
        told = []
        for everything in (True, False):
            mine = MemoryObjectStore()
            mine.objects = dict(objects.objects)
            engine = ObjectEngine(mine)
            if everything:
                with reading_everything():
                    outcome = await engine.commit(commit)
            else:
                outcome = await engine.commit(commit)
            entries = await ObjectEngine(mine).history("t", None, None, None)
            told.append((outcome, entries))
        assert told[0] == told[1], commit
        verdicts.append(outcome.verdict)
    assert verdicts.count(Verdict.BRANCH_TAKEN) == 2


@pytest.mark.usefixtures("small")
async def test_what_others_do_meanwhile_is_seen_by_a_handle_that_knows_the_newest_events() -> None:
    objects = MemoryObjectStore()
    await long_thread(objects, AgentState(), 40)
    names = [entry.checkpoint_id for entry in await ObjectEngine(objects).history("t", None, None, None)]

    async def latest(engine: ObjectEngine) -> str | None:
        entry = await engine.entry("t", DEFAULT_NAMESPACE, None)
        return None if entry is None else entry.checkpoint_id

    _, busy = opened(objects)
    knowing = ObjectEngine(MemoryObjectStore(shared=objects))
    assert await latest(knowing) == names[0]
    await busy.delete("t", names[0])
    assert await latest(knowing) == names[1]
    knowing = ObjectEngine(MemoryObjectStore(shared=objects))
    assert await latest(knowing) == names[1]
    await busy.put_writes("t", names[1], "task", [("channel", 1)])
    assert await knowing.get_writes("t", DEFAULT_NAMESPACE, names[1], None) == [Write("task", "", 0, "channel", "1")]
    await busy.delete("t")
    assert await latest(knowing) is None
    assert await latest(ObjectEngine(objects)) is None
    await busy.save(AgentState(), "t", "again")
    assert await latest(knowing) == "again"


async def test_a_thread_whose_lists_are_kept_short_is_loaded_from_its_end() -> None:
    objects = MemoryObjectStore()
    _, warm = opened(objects)
    state = AgentState().with_metadata("prompt", "p" * 2_000)
    for turn in range(200):
        state = state.with_messages_replaced((*state.messages, message(turn))[-20:])
        await warm.save(state, "t")
    store, cold = opened(objects)
    assert await cold.load("t") == state
    assert store.requests["list"] == 1
    assert store.received < sum(len(body) for key, (body, _) in objects.objects.items() if "/m/" in key) / 3


async def test_the_newest_entries_are_listed_from_the_end(objects: MemoryObjectStore) -> None:
    store = MemoryObjectStore(shared=objects)
    few = await ObjectEngine(store).history("t", DEFAULT_NAMESPACE, 10, None)
    _, cold = opened(objects)
    everything = await cold.history("t", 1_000)
    assert [entry.checkpoint_id for entry in few] == [entry.checkpoint_id for entry in everything[:10]]
    assert [entry.parent_id for entry in few] == [entry.parent_id for entry in everything[:10]]
    assert len(everything) == 260
    entries = sum(len(body) for key, (body, _) in objects.objects.items() if key.endswith("entries"))
    assert store.received < entries / 2
    for limit, before in ((10, few[-1].seq), (10, 5), (400, None), (1, 1)):
        engine = ObjectEngine(MemoryObjectStore(shared=objects))
        found = await engine.history("t", DEFAULT_NAMESPACE, limit, before)
        expected = [entry for entry in everything if before is None or entry.seq < before][:limit]
        assert [entry.checkpoint_id for entry in found] == [entry.checkpoint_id for entry in expected]


async def test_pending_writes_are_found_without_reading_any_items(objects: MemoryObjectStore) -> None:
    _, writer = opened(objects)
    (latest,) = await writer.list_checkpoints("t", limit=1)
    await writer.put_writes("t", latest, "task", [("channel", 1)])
    store, cold = opened(objects)
    assert await part_of(cold, WINDOW) is not None
    store.received = 0
    assert [write.value for write in await cold.get_writes("t", latest)] == [1]
    items = sum(len(body) for key, (body, _) in objects.objects.items() if key.endswith("items"))
    entries = sum(len(body) for key, (body, _) in objects.objects.items() if key.endswith("entries"))
    assert store.received < entries + items / 5


def changed(objects: MemoryObjectStore, ending: str, change: Any) -> MemoryObjectStore:
    """The same objects, of which one was changed."""
    (key,) = [key for key in objects.objects if key.endswith(ending)]
    found = MemoryObjectStore()
    body, moment = objects.objects[key]
    found.objects = {**objects.objects, key: (change(body), moment)}
    return found


async def test_damage_in_a_part_is_told_and_damage_elsewhere_is_not_met(objects: MemoryObjectStore) -> None:
    ending = "-1-256.2.0.items"
    last = message(10_000 + 254 * 2).text.encode()
    first = message(10_000 + 4).text.encode()
    broken = changed(objects, ending, lambda body: body.replace(last, last[::-1]))
    assert broken.objects != objects.objects
    with pytest.raises(CorruptCheckpointError):
        await part_of(opened(broken)[1], WINDOW)
    await same_window(objects, changed(objects, ending, lambda body: body.replace(first, first[::-1])))
    with pytest.raises(CorruptCheckpointError):
        await part_of(opened(changed(objects, ending, lambda body: body[:-5_000]))[1], WINDOW)
    gone = changed(objects, ending, bytes)
    gone.objects = {key: value for key, value in gone.objects.items() if not key.endswith(ending)}
    for key in [key for key in gone.objects if "/s/" in key and int(key.rpartition("-")[2]) <= 256]:
        del gone.objects[key]
    with pytest.raises(CorruptCheckpointError):
        await part_of(opened(gone)[1], WINDOW)


async def same_window(one: MemoryObjectStore, other: MemoryObjectStore) -> None:
    assert await part_of(opened(one)[1], WINDOW) == await part_of(opened(other)[1], WINDOW)


async def test_texts_that_are_not_where_they_should_be_are_looked_for(objects: MemoryObjectStore) -> None:
    """Nobody writes such an object; but lengths are only a hint, and checksums decide."""
    header = b'{"n":256,"lines":'
    moved = changed(objects, "-1-256.2.0.items", lambda body: body.replace(header, header.replace(b":", b": ")))
    assert moved.objects != objects.objects
    await same_window(objects, moved)


async def test_damaged_newest_entries_are_told(objects: MemoryObjectStore) -> None:
    for change in (lambda body: body[:-3_000], lambda body: body[:-3_000] + b"x" + body[-2_999:]):
        with pytest.raises(CorruptCheckpointError):
            await part_of(opened(changed(objects, "-1-256.2.1.entries", change))[1], WINDOW)


async def test_an_outage_is_no_reason_to_read_less(objects: MemoryObjectStore) -> None:

    async def fail(kind: str, key: str) -> None:
        if kind == "get" and key.endswith(("entries", "items")):
            raise StoreFault("out of reach")

    handle = Checkpointer(ObjectCheckpointStore(ObjectEngine(MemoryObjectStore(before=fail, shared=objects))))
    with pytest.raises(BackendUnavailableError):
        await part_of(handle, WINDOW)


def as_before(objects: MemoryObjectStore) -> MemoryObjectStore:
    """The same objects as versions have put them that wrote no lengths and no tips."""
    found = MemoryObjectStore()
    for key, (body, moment) in objects.objects.items():
        lines = []
        for line in body.split(b"\n"):
            if line.startswith(b'{"v"'):
                record = json.loads(line)
                if record["kind"] == "tip":
                    continue
                del record["sum"]
                record.pop("sizes", None)
                line = to_line(record)
            lines.append(line)
        found.objects[key] = (b"\n".join(lines), moment)
    return found


@pytest.mark.usefixtures("small")
async def test_threads_of_older_versions_are_read_and_carried_on() -> None:
    state = AgentState().with_metadata("prompt", "p" * 2_000).with_metadata("fixed", ["f" * 90, "g"])
    objects = as_before((await long_thread(MemoryObjectStore(), state, 40))[0])
    for part in (WINDOW, Range(("messages",), 30, 20), Range(("messages",), -5, 5)):
        await same_as_whole(objects, part)
    for _ in range(30):
        engine = ObjectEngine(MemoryObjectStore(shared=objects))
        found = await engine.read_part("t", DEFAULT_NAMESPACE, None, Window(3, LISTS))
        assert found is not None
        assert await appended(engine, "t", found) is Verdict.COMMITTED
        await same_as_whole(objects, Window(3, LISTS))
    assert b'"kind":"tip"' in b"".join(body for body, _ in objects.objects.values())
    for part in (WINDOW, Range(("messages",), 30, 20), Range(("messages",), -5, 5)):
        await same_as_whole(objects, part)


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"tops": [], "versions": []},
        {"tops": {"b": "high"}, "versions": []},
        {"tops": {}, "versions": [["b", 0, 0, 1, [[0, 0, 1, 1, 1, 7, None, -5, []]]]]},
        {"tops": {}, "versions": [["b", 0, 0, 1, [[0, 0, 1, 1, 1, 7, None, 5, [["x", 1]]]]]]},
        {"tops": {}, "versions": [["b", 0, 0, 1]]},
    ],
)
async def test_a_tip_that_says_nothing_sensible_is_passed_over(objects: MemoryObjectStore, facts: Any) -> None:
    """Then the whole thread is read, which needs no tip."""
    tip = to_line({"v": 2, "n": 256, "kind": "tip", "thread": "t", **facts})
    odd = changed(objects, "-1-256.2.1.entries", lambda body: body[: body.rindex(b"\n") + 1] + tip)
    await same_window(objects, odd)
