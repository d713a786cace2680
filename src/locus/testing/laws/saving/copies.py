"""Copies of threads: whole or up to a point, and independent from then on."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

from locus.core.state import AgentState
from locus.errors import CheckpointNotFoundError, ConfigurationError, ConflictError, InvalidIdError
from locus.memory.checkpointer import Checkpointer, HistoryEntry
from locus.memory.saver import CheckpointSaver
from locus.testing.data import BAD_IDS, conversation, message
from locus.testing.laws.base import (
    Clock,
    Laws,
    OpenHandle,
    assert_all_load,
    assert_same_state,
    dicts,
    ids,
    present,
    snapshot,
)
from locus.testing.laws.loading.diffs import check_pair


async def _forked_thread(handle: Checkpointer) -> dict[str, AgentState]:
    """Save a thread: a ← b ← c ← e, with a fork d from a."""
    state = AgentState().with_messages(conversation(3)).with_metadata("large", "x" * 3_000)
    states: dict[str, AgentState] = {}
    for name, parent in (("a", None), ("b", "a"), ("c", "b"), ("d", "a"), ("e", "c")):
        if parent is not None:
            loaded = present(await handle.load("src", parent))
            state = loaded.with_messages(conversation(2, ord(name))).with_error(name)
        states[name] = state
        await handle.save(state, "src", name, {"name": name})
        await handle.put_writes("src", name, "task", [("x", name), ("__error__", 1)], task_path="p")
    return states


def _facts(entries: list[HistoryEntry]) -> list[tuple[Any, ...]]:
    return [(entry.checkpoint_id, entry.parent_id, entry.metadata, entry.created_at) for entry in entries]


class CopyLaws(Laws):
    """A copy has everything that it was told to take, and is independent of its source."""

    async def test_a_copy_has_everything(self, checkpointer: Checkpointer, open_handle: OpenHandle) -> None:
        states = await _forked_thread(checkpointer)
        await dicts(checkpointer).save("src", {"in": "other"}, namespace="other")
        assert await checkpointer.copy_thread("src", "dst")
        for handle in (checkpointer, open_handle()):
            await assert_all_load(handle, "dst", states)
            assert _facts(await handle.history("dst", None)) == _facts(await handle.history("src", None))
            assert {entry.thread_id for entry in await handle.history("dst", None)} == {"dst"}
            assert await dicts(handle).load("dst", namespace="other") == {"in": "other"}
            for name in states:
                assert await handle.get_writes("dst", name) == await handle.get_writes("src", name)
                assert len(await handle.get_writes("dst", name)) == 2
            assert await handle.list_threads() == ["dst", "src"]
        await assert_all_load(checkpointer, "src", states)

    async def test_a_copy_has_the_parents_that_a_saver_was_told(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        saver = CheckpointSaver(checkpointer)
        place: dict[str, Any] = {"thread_id": "src", "checkpoint_ns": ""}
        for name, parent in (("a", "elsewhere"), ("b", "later"), ("later", "a")):
            await saver.put(checkpoint_id=name, checkpoint_data={"n": name}, parent_checkpoint_id=parent, **place)
        assert await saver.copy_thread(source_thread_id="src", dest_thread_id="dst")
        assert await saver.copy_thread(
            source_thread_id="src", dest_thread_id="line", checkpoint_id="b", checkpoint_ns=""
        )
        assert await saver.delete_checkpoint(thread_id="dst", checkpoint_id="later", checkpoint_ns="")
        reader = CheckpointSaver(open_handle())
        for thread_id, expected in (
            ("src", [("later", "a"), ("b", "later"), ("a", "elsewhere")]),
            ("line", [("later", "a"), ("b", "later"), ("a", "elsewhere")]),
            ("dst", [("b", "a"), ("a", "elsewhere")]),
        ):
            listed = await reader.list_checkpoints(thread_id=thread_id, checkpoint_ns="")
            assert [(each["checkpoint_id"], each["parent_checkpoint_id"]) for each in listed] == expected

    async def test_a_copy_up_to_a_checkpoint_has_it_and_its_ancestors(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        states = await _forked_thread(checkpointer)
        await dicts(checkpointer).save("src", {"in": "other"}, namespace="other")
        lines = {"a": "a", "b": "ba", "c": "cba", "d": "da", "e": "ecba"}
        for point, line in lines.items():
            assert await checkpointer.copy_thread("src", f"up to {point}", point)
            await assert_all_load(open_handle(), f"up to {point}", {name: states[name] for name in line})
            history = await checkpointer.history(f"up to {point}", None)
            assert [entry.checkpoint_id for entry in history] == list(line)
            assert [entry.parent_id for entry in history] == [*line[1:], None]
            assert await checkpointer.load(f"up to {point}", namespace="other") is None
            assert len(await checkpointer.get_writes(f"up to {point}", point)) == 2
            for name in set(states) - set(line):
                assert await checkpointer.get_writes(f"up to {point}", name) == []

    async def test_a_copy_has_as_many_ancestors_as_it_is_told(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        states = await _forked_thread(checkpointer)
        lines = {"e": "ecba", "d": "da", "a": "a"}
        cases: list[tuple[str, int | Literal["all"]]] = [("e", 0), ("e", 2), ("e", "all"), ("d", 99), ("a", 0)]
        for point, count in cases:
            line = lines[point] if count == "all" else lines[point][: count + 1]
            copy = f"{count} before {point}"
            assert await checkpointer.copy_thread("src", copy, point, ancestors=count)
            reader = open_handle()
            await assert_all_load(reader, copy, {name: states[name] for name in line})
            history = await reader.history(copy, None)
            parents = [(entry.checkpoint_id, entry.parent_id) for entry in history]
            assert parents == [*zip(line, [*line[1:], None], strict=True)]
            assert [entry.metadata for entry in history] == [{"name": name} for name in line]
            assert [bool(await reader.get_writes(copy, name)) for name in "abcde"] == [name in line for name in "abcde"]
        saver = CheckpointSaver(checkpointer)
        assert await saver.copy_thread(source_thread_id="src", dest_thread_id="saver", checkpoint_id="c", ancestors=1)
        assert await ids(checkpointer, "saver") == ["c", "b"]
        assert not await checkpointer.copy_thread("src", "nothing", "nothing", ancestors=0)
        with pytest.raises(ConflictError):
            await checkpointer.copy_thread("src", "saver", "c", ancestors=0)
        bad: Any
        for bad in (-1, True, "some", None, 1.5):
            with pytest.raises(ConfigurationError, match="ancestors"):
                await checkpointer.copy_thread("src", "new", "c", ancestors=bad)
        with pytest.raises(ConfigurationError, match="checkpoint_id"):
            await checkpointer.copy_thread("src", "new", ancestors=1)

    async def test_a_copy_without_ancestors_goes_on_without_its_source(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        states = await _forked_thread(checkpointer)
        assert await checkpointer.copy_thread("src", "dst", "c", ancestors=0)
        kept = {"c": states["c"]}
        state = present(await checkpointer.load("dst"))
        for turn in range(2):
            state = state.with_message(message(50 + turn))
            kept[await checkpointer.save(state, "dst")] = state
        for name in ("c", "a"):
            assert await checkpointer.delete("src", name)
        left = {name: source for name, source in states.items() if name not in "ca"}
        await assert_all_load(open_handle(), "src", left)
        assert await checkpointer.delete("dst", "c")
        del kept["c"]
        await assert_all_load(open_handle(), "src", left)
        assert await checkpointer.delete("src")
        await assert_all_load(open_handle(), "dst", kept)

    async def test_parents_in_a_circle_end_a_copy(self, checkpointer: Checkpointer) -> None:
        saver = CheckpointSaver(checkpointer)
        for name, parent in (("a", "c"), ("b", "a"), ("c", "b")):
            await saver.put(
                thread_id="src", checkpoint_id=name, checkpoint_data={"n": name}, parent_checkpoint_id=parent
            )
        for count, expected in ((0, ["c"]), (1, ["c", "b"]), (50, ["c", "b", "a"]), (2_000, ["c", "b", "a"])):
            assert await checkpointer.copy_thread("src", f"{count}", "c", ancestors=count)
            assert await ids(checkpointer, f"{count}") == expected
        assert await checkpointer.copy_thread("src", "all", "c")
        assert await ids(checkpointer, "all") == ["c", "b", "a"]

    async def test_the_copy_and_the_source_do_not_know_each_other(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        states = await _forked_thread(checkpointer)
        assert await checkpointer.copy_thread("src", "dst")
        copy, source = dict(states), dict(states)
        for thread_id, expected, start in (("dst", copy, 100), ("src", source, 200)):
            state = present(await checkpointer.load(thread_id))
            for turn in range(3):
                state = state.with_message(message(start + turn))
                expected[await checkpointer.save(state, thread_id)] = state
        assert await checkpointer.delete("src", "b")
        assert await checkpointer.delete("dst", "d")
        del source["b"], copy["d"]
        await assert_all_load(open_handle(), "src", source)
        await assert_all_load(open_handle(), "dst", copy)
        assert await checkpointer.delete("src")
        await assert_all_load(open_handle(), "dst", copy)
        assert len(await checkpointer.get_writes("dst", "e")) == 2

    async def test_a_copy_and_its_source_can_be_compared(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """Branches have the same names in both, and numbers of runs are used again, so neither proves equal content."""
        backend = dicts(checkpointer)
        items = [{"n": number, "text": "x" * 20} for number in range(30)]
        for number in range(4):
            await backend.save("src", {"m": items[: 10 + 5 * number], "large": "y" * 3_000}, f"c{number}")
        assert await checkpointer.copy_thread("src", "dst")
        assert await backend.delete("src", "c3")
        await backend.save("src", {"m": [*items[:20], {"n": 99}], "large": "y" * 3_000}, "c3")
        await backend.save("src", {"m": [*items[:8], {"n": 98}, *items[9:20]], "large": "z" * 3_000}, "c4")
        await backend.save("dst", {"m": [*items[:25], {"n": 97}], "large": "y" * 3_000}, "c4")
        handle = open_handle()
        for a, b in (("c3", "c3"), ("c2", "c2"), ("c4", "c4"), ("c1", "c4"), ("c4", "c0")):
            await check_pair(handle, "src", a, b, other_thread="dst")
        await check_pair(handle, "dst", "c4", "c3", other_thread="src")
        assert not await handle.payload_diff("src", "c2", "c2", other_thread="dst")
        (changed,) = (await handle.payload_diff("src", "c3", "c3", other_thread="dst")).lists
        assert (changed.removed, changed.added) == (1, 5)
        await backend.delete("src")
        with pytest.raises(CheckpointNotFoundError):
            await handle.payload_diff("src", "c2", "c2", other_thread="dst")

    async def test_a_state_loaded_from_the_source_can_be_saved_in_the_copy(self, checkpointer: Checkpointer) -> None:
        states = await _forked_thread(checkpointer)
        state = present(await checkpointer.load("src", "b"))
        await checkpointer.copy_thread("src", "dst", "c")
        assert await checkpointer.delete("src")
        later = state.with_message(message(50))
        name = await checkpointer.save(later, "dst")
        await assert_all_load(checkpointer, "dst", {**{n: states[n] for n in "abc"}, name: later})

    async def test_a_copy_into_a_thread_that_exists_is_refused(self, checkpointer: Checkpointer) -> None:
        await _forked_thread(checkpointer)
        kept = AgentState(agent_id="kept")
        await checkpointer.save(kept, "dst")
        await checkpointer.save(AgentState(), "elsewhere", namespace="other")
        before = await snapshot(checkpointer)
        for dest in ("dst", "src", "elsewhere"):
            with pytest.raises(ConflictError):
                await checkpointer.copy_thread("src", dest)
            with pytest.raises(ConflictError):
                await checkpointer.copy_thread("src", dest, "b")
        assert await snapshot(checkpointer) == before
        assert_same_state(await checkpointer.load("dst"), kept)

    async def test_a_copy_of_what_is_not_there_is_false(self, checkpointer: Checkpointer) -> None:
        await checkpointer.save(AgentState(), "src", "a", namespace="other")
        assert not await checkpointer.copy_thread("nothing", "dst")
        assert not await checkpointer.copy_thread("nothing", "dst", "a")
        assert not await checkpointer.copy_thread("src", "dst", "nothing")
        assert not await checkpointer.copy_thread("src", "dst", "a")
        assert await checkpointer.list_threads() == ["src"]
        assert await checkpointer.copy_thread("src", "dst", "a", namespace="other")
        assert await checkpointer.exists("dst", "a", namespace="other")

    async def test_a_copy_under_an_id_that_was_deleted_starts_clean(self, checkpointer: Checkpointer) -> None:
        states = await _forked_thread(checkpointer)
        old = await checkpointer.save(AgentState().with_messages(conversation(3, 50)), "dst")
        assert await checkpointer.delete("dst")
        assert await checkpointer.copy_thread("src", "dst")
        assert await checkpointer.load("dst", old) is None
        await assert_all_load(checkpointer, "dst", states)

    async def test_writes_that_wait_under_the_new_id_are_kept(self, checkpointer: Checkpointer) -> None:
        """Pending writes alone are no thread, so the copy is not refused. It must not remove them."""
        await checkpointer.save(AgentState(), "src", "a")
        await checkpointer.put_writes("dst", "b", "task", [("x", 1)])
        await checkpointer.put_writes("dst", "a", "task", [("x", 1)], namespace="other")
        assert await checkpointer.copy_thread("src", "dst")
        assert len(await checkpointer.get_writes("dst", "b")) == 1
        assert len(await checkpointer.get_writes("dst", "a", namespace="other")) == 1
        assert await checkpointer.get_writes("dst", "a") == []

    async def test_a_copy_keeps_the_order_of_commits(self, checkpointer: Checkpointer, clock: Clock) -> None:
        saved = []
        for number in range(4):
            clock.shift(days=-number)
            saved.append(await dicts(checkpointer).save("src", {"n": number}))
        clock.shift()
        await checkpointer.copy_thread("src", "dst")
        assert await ids(checkpointer, "dst") == saved[::-1]
        assert await dicts(checkpointer).load("dst") == {"n": 3}
        newest = await dicts(checkpointer).save("dst", {"n": 4}, if_latest=saved[-1])
        (first, second, *_) = await checkpointer.history("dst")
        assert (first.checkpoint_id, first.parent_id, first.seq > second.seq) == (newest, saved[-1], True)

    async def test_copies_at_once_into_one_thread_leave_one(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        states = await _forked_thread(checkpointer)
        handles = [checkpointer, open_handle(), open_handle()]
        answers = await asyncio.gather(
            *(handle.copy_thread("src", "dst") for handle in handles * 2), return_exceptions=True
        )
        assert answers.count(True) == 1
        assert sum(isinstance(answer, ConflictError) for answer in answers) == 5
        await assert_all_load(checkpointer, "dst", states)

    async def test_any_id_can_be_copied(self, checkpointer: Checkpointer) -> None:
        await dicts(checkpointer).save("source", {"m": [{"n": 1}] * 9})
        for name in self.other_ids:
            assert await checkpointer.copy_thread("source", name)
        for name in self.other_ids:
            assert await dicts(checkpointer).load(name) == {"m": [{"n": 1}] * 9}
        bad: Any
        for bad in (*BAD_IDS, None):
            for source, dest in ((bad, "new"), ("source", bad)):
                with pytest.raises(InvalidIdError):
                    await checkpointer.copy_thread(source, dest)
        assert len(await checkpointer.list_threads(None)) == len(self.other_ids) + 1
