"""Parts of a checkpoint in OpenSearch: few requests for few documents, and as of one instant.

What a part holds is tried on the real server by the contract. Here requests and documents are counted, on a model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import CorruptCheckpointError
from locus.memory.backends.opensearch.client import Client, StoredDocument
from locus.memory.backends.opensearch.schema import BLOCK
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.ids import digest
from locus.memory.model.manifest import decode_manifest, items_text, newest_runs, wanted
from locus.memory.model.parts import Range, Window, between, page_of, total_of
from locus.memory.model.records import DEFAULT_NAMESPACE, Base, Run, Stored
from tests.backends.opensearch.model import ModelIndex, open_model

MESSAGES = ("messages",)
WINDOW = Window(10, frozenset({MESSAGES}))
LAST = Range(MESSAGES, -10, 10)


@dataclass
class Fetched:
    """What a handle has read since `clear`: the sizes of its requests by id, and the documents that it got."""

    documents: list[str] = field(default_factory=list)
    requests: int = 0

    def clear(self) -> None:
        self.documents.clear()
        self.requests = 0


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Fetched:
    counted = Fetched()
    get = Client._get

    def counting(self: Client, *args: Any) -> dict[str, StoredDocument]:
        found = get(self, *args)
        counted.requests += 1
        counted.documents += found
        return found

    monkeypatch.setattr(Client, "_get", counting)
    return counted


def _said(number: int) -> list[Message]:
    return [Message.user(f"question {number}"), Message.assistant(f"answer {number}")]


async def _talk(index: ModelIndex, turns: int, state: AgentState | None = None) -> AgentState:
    """So many turns of two messages, each saved."""
    state = state or AgentState()
    async with open_model(index) as handle:
        for number in range(turns):
            state = state.with_messages(_said(number))
            await handle.save(state, "t")
    return state


async def _part(handle: Checkpointer, part: Window | Range, checkpoint_id: str | None = None) -> Stored:
    stored = await handle.store.read_part("t", checkpoint_id, DEFAULT_NAMESPACE, part)
    assert stored is not None
    return stored


async def _since(handle: Checkpointer, held: Base, checkpoint_id: str | None = None) -> Stored:
    async with handle.store.using() as engine:
        stored = await engine.read_since("t", DEFAULT_NAMESPACE, checkpoint_id, held)
    assert stored is not None
    return stored


async def _held(handle: Checkpointer, checkpoint_id: str | None = None) -> Stored:
    stored = await handle.store.read("t", checkpoint_id, DEFAULT_NAMESPACE)
    assert stored is not None
    return stored


def _base(stored: Stored) -> Base:
    return Base(stored.entry.checkpoint_id, stored.entry.rev)


def _last(stored: Stored, size: int = 10) -> str:
    """The last messages, as text."""
    (extents,) = [
        cut for path, cut in decode_manifest(stored.manifest).items() if path == MESSAGES and not isinstance(cut, str)
    ]
    total = total_of(extents)
    return items_text(between(extents, max(0, total - size), total), stored.runs)


@pytest.fixture(scope="module")
def long_thread() -> ModelIndex:
    """Ten blocks of runs, and its end is at the same place of a block as that of a thread of 40 turns."""
    index = ModelIndex()
    asyncio.run(_talk(index, 10 * BLOCK + 8))
    return index


async def test_a_window_costs_the_same_in_a_long_thread(fetched: Fetched, long_thread: ModelIndex) -> None:
    short = ModelIndex()
    await _talk(short, BLOCK + 8)
    costs = list[tuple[int, int, int]]()
    for index in (short, long_thread):
        async with open_model(index) as cold:
            fetched.clear()
            stored = await _part(cold, WINDOW)
            first = (fetched.requests, len(fetched.documents))
            fetched.clear()
            assert _last(await _part(cold, WINDOW)) == _last(stored)
            costs.append((*first, fetched.requests))
            assert _last(await _held(cold)) == _last(stored)
    assert costs[0] == costs[1]
    requests, documents, warm_requests = costs[0]
    assert requests <= 3
    assert documents <= 17 + 6
    assert warm_requests <= 2


async def test_a_window_over_two_blocks_costs_no_request_more(fetched: Fetched) -> None:
    index = ModelIndex()
    state = await _talk(index, 2 * BLOCK + 3)
    async with open_model(index) as handle:
        whole = await _held(handle)
        fetched.clear()
        assert _last(await _part(handle, WINDOW)) == _last(whole)
        assert fetched.requests == 2
        assert len(set(fetched.documents)) <= 7
    async with open_model(index) as cold:
        fetched.clear()
        assert await cold.load("t") == state
        assert fetched.requests == 3


async def test_all_of_a_long_thread_is_read_with_three_requests(fetched: Fetched, long_thread: ModelIndex) -> None:
    """The thread, the newest records, and the rest at once; no document twice but that of the thread."""
    async with open_model(long_thread) as cold:
        fetched.clear()
        state = await cold.load("t")
        assert state is not None
        assert len(state.messages) == 2 * (10 * BLOCK + 8)
        assert fetched.requests == 3
        assert len(fetched.documents) - len(set(fetched.documents)) <= 1


@pytest.mark.parametrize("start", [0, 200, 600, -30])
async def test_a_range_is_read_without_what_is_before_and_behind_it(
    fetched: Fetched, long_thread: ModelIndex, start: int
) -> None:
    async with open_model(long_thread) as cold:
        fetched.clear()
        part = Range(MESSAGES, start, 20)
        page = page_of(await _part(cold, part), part)
        assert fetched.requests <= 5
        assert len(set(fetched.documents)) < 2 * BLOCK
        first = start % page.total
        said = [message for number in range(page.total // 2) for message in _said(number)]
        assert [item["content"] for item in page.items] == [message.content for message in said[first : first + 20]]


async def test_runs_that_later_ones_hide_are_not_read(fetched: Fetched) -> None:
    """The last message is edited over and over."""
    index = ModelIndex()
    state = await _talk(index, 3)
    async with open_model(index) as writer:
        for number in range(10 * BLOCK):
            state = state.with_messages_replaced((*state.messages[:-1], Message.assistant(f"answer {number}")))
            await writer.save(state, "t")
        state = state.with_message(Message.user("and now?"))
        await writer.save(state, "t")
    async with open_model(index) as cold:
        fetched.clear()
        assert await cold.load("t") == state
        assert len(set(fetched.documents)) < 2 * BLOCK


async def test_one_new_turn_is_one_request_for_a_handle_that_was_there(fetched: Fetched) -> None:
    index = ModelIndex()
    state = await _talk(index, 3 * BLOCK + 4)
    async with open_model(index) as reader:
        held = await _held(reader)
        state = await _talk(index, 1, state)
        fetched.clear()
        found = await _since(reader, _base(held))
        assert fetched.requests == 1
        assert len(fetched.documents) <= 2
        assert found.since == _base(held)
        assert sum(map(len, found.runs.values())) == 1
        # What the handle knew is still enough for a save.
        fetched.clear()
        loaded = await _since(reader, _base(found))
        assert not loaded.runs
        assert fetched.requests == 1
        before = index.requests
        again = await reader.load("t")
        assert again == state
        assert index.requests - before <= 3
        before = index.requests
        await reader.save(again.with_message(Message.user("one more")), "t")
        assert index.requests - before == 1


async def test_one_new_turn_is_few_requests_for_a_handle_that_is_new(fetched: Fetched) -> None:
    index = ModelIndex()
    state = await _talk(index, 3 * BLOCK + 4)
    async with open_model(index) as other:
        newest = await _held(other)
        oldest = await _held(other, (await other.list_checkpoints("t", 200))[-2])
    await _talk(index, 1, state)
    for held, runs in ((newest, 1), (oldest, 3 * BLOCK + 3)):
        async with open_model(index) as reader:
            fetched.clear()
            found = await _since(reader, _base(held))
            assert found.since == _base(held)
            assert sum(map(len, found.runs.values())) == runs
            assert len(set(fetched.documents)) <= runs + 17 + 4
            assert fetched.requests <= (3 if runs == 1 else 5)


async def test_a_save_after_a_part_asks_nothing(fetched: Fetched) -> None:
    """The newest runs came with the part, and a save refers to them."""
    index = ModelIndex()
    state = await _talk(index, BLOCK + 8)
    async with open_model(index) as worker:
        await _part(worker, WINDOW)
        other = await _held(worker)
        async with open_model(index) as fresh:
            await _part(fresh, WINDOW)
            whole = await fresh.load("t")
            assert whole == state
            await _since(fresh, _base(other))
            before = index.requests
            await fresh.save(whole.with_message(Message.user("more")), "t")
            assert index.requests - before == 1


async def test_an_older_checkpoint_is_not_put_together_from_a_newer_one() -> None:
    """The reader of the newer one need not have runs that were hidden since."""
    index = ModelIndex()
    state = await _talk(index, 3)
    async with open_model(index) as handle:
        for number in range(3):
            state = state.with_messages_replaced((*state.messages[:-1], Message.assistant(f"edit {number}")))
            await handle.save(state, "t", f"edit {number}")
        newest, old = await _held(handle, "edit 2"), await _held(handle, "edit 0")
        found = await _since(handle, _base(newest), "edit 0")
        assert found.since is None
        assert _last(found) == _last(old)


async def test_new_turns_after_an_edit_in_the_middle_are_read_without_the_rest(fetched: Fetched) -> None:
    """From then on the list is in several pieces, and some of them are of older runs."""
    index = ModelIndex()
    state = await _talk(index, BLOCK)
    state = state.with_messages_replaced((*state.messages[:9], Message.user("edited"), *state.messages[10:]))
    state = await _talk(index, 3, state)
    async with open_model(index) as handle:
        held = await _held(handle)
        await _talk(index, 1, state)
        fetched.clear()
        found = await _since(handle, _base(held))
        assert fetched.requests == 1
        assert found.since == _base(held)
        assert sum(map(len, found.runs.values())) == 1
        whole = await _held(handle)
        extents = wanted(whole.manifest)
        assert len({extent.branch for extent in extents}) < len(extents)
        assert items_text(extents, _completed(held, found)) == items_text(extents, whole.runs)


@pytest.mark.parametrize("at", range(1, 6))
@pytest.mark.parametrize("gone", ["newest", "held", "all"])
@pytest.mark.parametrize("how", ["part", "since"])
async def test_a_part_is_as_of_one_instant(at: int, gone: str, how: str) -> None:
    """Something is removed, and the thread goes on, before one of the requests of a reader."""
    index, requests = ModelIndex(), 0
    state = await _talk(index, BLOCK + 8)
    async with open_model(index) as other:
        ids = await other.list_checkpoints("t", 2)
        held = await _held(other, ids[1])

    async def change() -> None:
        async with open_model(index) as other:
            await other.delete("t", {"newest": ids[0], "held": ids[1], "all": None}[gone])
            rest = await other.load("t") or AgentState()
            await other.save(rest.with_messages(_said(1_000)), "t")

    def before() -> None:
        nonlocal requests
        requests += 1
        if requests == at:
            asyncio.run(change())

    async with open_model(index, before) as reader:
        found = await (_part(reader, WINDOW) if how == "part" else _since(reader, _base(held)))
    async with open_model(index) as other:
        after = await other.load("t")
    assert after is not None
    runs = _completed(held, found) if found.since else found.runs
    page = page_of(replace(found, runs=runs), LAST)
    assert [item["content"] for item in page.items] in [
        [message.content for message in one.messages[-10:]] for one in (state, after)
    ]


def _completed(held: Stored, found: Stored) -> dict[str, list[Run]]:
    known = newest_runs([held.manifest])
    return {
        branch: [
            *(run for run in held.runs.get(branch, ()) if run.number <= known[branch]),
            *found.runs.get(branch, ()),
        ]
        for branch in known
    }


def _change_runs(index: ModelIndex, place: int, change: Callable[[dict[str, Any]], object]) -> None:
    for run in index.docs[f"{digest('t')}.{place}"].source["body"]["runs"]:
        change(run)


async def test_damage_inside_of_a_part_is_told_and_outside_of_it_is_not_looked_for() -> None:
    index = ModelIndex()
    await _talk(index, 2 * BLOCK)
    _change_runs(index, 5, lambda run: run.update(items=run["items"].replace("question", "answered")))
    first, last = Range(MESSAGES, 6, 6), Range(MESSAGES, -6, 6)
    async with open_model(index) as handle:
        with pytest.raises(CorruptCheckpointError, match="checksum"):
            await _part(handle, first)
        assert len(page_of(await _part(handle, last), last).items) == 6
        await _part(handle, WINDOW)


async def test_a_lost_record_of_a_part_is_damage() -> None:
    index = ModelIndex()
    await _talk(index, 2 * BLOCK + 2)  # the document of the thread is newer than the lost record
    del index.docs[f"{digest('t')}.{2 * BLOCK}"]
    async with open_model(index) as handle:
        with pytest.raises(CorruptCheckpointError, match="missing"):
            await _part(handle, WINDOW)
        first = Range(MESSAGES, 0, 6)
        assert len(page_of(await _part(handle, first), first).items) == 6


async def test_references_that_do_not_lead_back_are_damage() -> None:
    index = ModelIndex()
    await _talk(index, BLOCK)
    own = f"{digest('t')}.{BLOCK}"
    (run,) = index.docs[own].source["body"]["runs"]
    run["trail"] = [run["number"], BLOCK, run["start"]]
    run["starts"] = [2]
    async with open_model(index) as handle:
        with pytest.raises(CorruptCheckpointError, match="not earlier"):
            await handle.load("t")


async def test_a_held_checkpoint_that_is_damaged_counts_for_nothing() -> None:
    index = ModelIndex()
    await _talk(index, 20)
    async with open_model(index) as handle:
        held = await _held(handle, (await handle.list_checkpoints("t", 20))[-4])
    body = index.docs[f"{digest('t')}.4"].source["body"]
    body["head"] = body["head"].replace("agent", "urgent")
    async with open_model(index) as handle:
        found = await _since(handle, _base(held))
        assert found.since is None
        assert _last(found) == _last(await _held(handle))


@pytest.mark.parametrize("without", [range(1, 80), range(1, 50), range(40, 80)])
async def test_runs_of_an_earlier_version_are_read_and_carried_on(fetched: Fetched, without: range) -> None:
    """These do not say where the runs begin that they refer to."""
    index = ModelIndex()
    state = await _talk(index, 79)
    for place in without:
        _change_runs(index, place, lambda run: run.pop("starts", None))
    state = await _talk(index, 40, state)
    async with open_model(index) as handle:
        assert await handle.load("t") == state
        for part in (Range(MESSAGES, 20, 30), Range(MESSAGES, -10, 10), Range(MESSAGES, 100, 10)):
            low, high = part.within(len(state.messages))
            found = page_of(await _part(handle, part), part)
            assert [item["content"] for item in found.items] == [m.content for m in state.messages[low:high]]


async def test_parts_of_a_copy_are_read_from_the_copy() -> None:
    index = ModelIndex()
    state = await _talk(index, 3 * BLOCK + 4)
    async with open_model(index) as handle:
        assert await handle.copy_thread("t", "copy")
        part = Range(MESSAGES, 70, 20)
        stored = await handle.store.read_part("copy", None, DEFAULT_NAMESPACE, part)
        assert stored is not None
        expected = [message.content for message in state.messages[70:90]]
        assert [item["content"] for item in page_of(stored, part).items] == expected
        assert sum(map(len, stored.runs.values())) < BLOCK
