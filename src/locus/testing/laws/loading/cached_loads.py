"""Loads through a handle that holds what it has loaded and saved give what a handle gives that holds nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import LISTS, AgentState, ToolExecution
from locus.errors import CorruptCheckpointError
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.records import Path
from locus.memory.model.trace import ListTrace, Trace
from locus.testing.data import CHANGES, conversation, message
from locus.testing.laws.base import Laws, OpenHandle, WorkerLaws, assert_same, assert_same_state, dicts, ids, present
from locus.testing.laws.saving.stale_bases import DISTURBANCES
from locus.testing.processes import crash_jobs
from locus.testing.processes.workers import Crew
from locus.testing.stores import DurableTestStore, TestStore

Load = Callable[[Checkpointer, str | None], Awaitable[Any]]


async def _state(handle: Checkpointer, checkpoint_id: str | None = None) -> AgentState | None:
    return await handle.load("t", checkpoint_id)


async def _dict(handle: Checkpointer, checkpoint_id: str | None = None) -> dict[str, Any] | None:
    return await dicts(handle).load("t", checkpoint_id)


SHAPES: dict[str, Load] = {"states": _state, "dicts": _dict}


def _traces(handle: Checkpointer, state: AgentState) -> tuple[dict[str, Any], dict[tuple[Path, str], dict[int, bytes]]]:
    """The traces of a state, and for each list and branch its known digests by position."""
    trace: Trace = present(state._kept_at(handle._key("t", "default")))
    sort_keys = not handle.store.engine.dialect.exact
    facts: dict[str, Any] = {"base": trace.base, "passed": trace.passed}
    digests: dict[tuple[Path, str], dict[int, bytes]] = {}
    for name, known in trace.fields.items():
        facts[name] = known.text
        for path, cut in known.cuts.items():
            facts[str(path)] = cut if isinstance(cut, str) else (cut.extents, list(cut.items or ()))
            for branch, chain in cut.chains.items() if isinstance(cut, ListTrace) else ():
                digests[path, branch] = dict(chain.digested(sort_keys))
    return facts, digests


def _assert_same_traces(warm: Checkpointer, loaded: AgentState, cold: Checkpointer, expected: AgentState) -> None:
    """Assert that two traces are equal. Digests are compared where both know them: that depends on the runs read."""
    (facts, digests), (cold_facts, cold_digests) = _traces(warm, loaded), _traces(cold, expected)
    assert facts == cold_facts
    assert digests.keys() == cold_digests.keys()
    for key, known in digests.items():
        assert not cold_digests[key] or max(known, default=None) == max(cold_digests[key])
        assert all(cold_digests[key].get(position, digest) == digest for position, digest in known.items())


async def _assert_as_cold(warm: Checkpointer, cold: Checkpointer, checkpoint_id: str | None = None) -> None:
    """Assert that the handle `warm` loads exactly what `cold` loads, which holds nothing."""
    cold.cache_clear()
    for load in SHAPES.values():
        loaded, expected = await load(warm, checkpoint_id), await load(cold, checkpoint_id)
        if warm.store.engine.dialect.exact:  # others give the keys of dicts back in an order of their own
            assert repr(loaded) == repr(expected)
        if not isinstance(loaded, AgentState) or not isinstance(expected, AgentState):
            assert_same(loaded, expected)
            continue
        assert_same_state(loaded, expected)
        assert loaded.model_fields_set == expected.model_fields_set
        _assert_same_traces(warm, loaded, cold, expected)
        assert all(getattr(loaded, name).stable for name in LISTS)


class _Course:
    """Changes of all kinds, drawn at random from a fixed seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._count = 0

    def next(self, state: AgentState) -> AgentState:
        self._count += 1
        messages = state.messages
        at = self._random.randrange(max(1, len(messages)))
        match self._random.choice(
            ["append"] * 4 + ["edit last", "middle", "trim", "drop last", "log", "note", "extra"]
        ):
            case "append":
                execution = ToolExecution(tool_name="look", tool_call_id=f"call-{self._count}", result="x" * 20)
                return state.with_messages(self._fresh(2)).with_tool_execution(execution).with_confidence(0.5)
            case "middle":
                return state.with_messages_replaced(messages[:at] + self._fresh(1) + messages[at + 1 :])
            case "edit last" | "trim" | "drop last" as change:
                return state.with_messages_replaced(CHANGES[change](messages, self._fresh(1)))
            case "log":
                log = [*state.metadata.get("log", []), {"n": self._count, "text": "é" * 40}]
                table = {f"key {number}": "value" for number in range(80)}  # a large value with a list inside
                return state.with_metadata({"log": log[self._random.randrange(2) :], "table": {**table, "log": log}})
            case "note":
                return state.with_metadata("note", "z" * self._random.choice([3, 1_100 + self._count]))
        more = [*(state.__pydantic_extra__ or {}).get("seen", []), {"text": "w" * 80, "n": self._count}]
        return state.model_copy(update={"seen": more, "summary": "s" * 1_200})

    def choose(self, of: list[str]) -> str:
        return self._random.choice(of)

    def chance(self, part: float) -> bool:
        return self._random.random() < part

    def _fresh(self, count: int) -> tuple[Message, ...]:
        return tuple(message(self._count * 10 + number) for number in range(count))


class CachedLoadLaws(Laws):
    """A handle that holds checkpoints serves nothing that is not stored, and misses nothing that is."""

    @pytest.mark.parametrize("seed", range(4))
    async def test_a_load_gives_the_same_whatever_is_held(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, seed: int
    ) -> None:
        """The thread changes by appends, edits, trims, forks, rewinds, deletions and replacements, on any handle."""
        other, cold, course = open_handle(), open_handle(), _Course(seed)
        state = AgentState(agent_id="a")
        for turn in range(22):
            handle = other if course.chance(0.5) else checkpointer
            state = course.next(state)
            await handle.save(state, "t", "fixed" if turn % 7 == 3 else None)
            if turn % 3:
                await _assert_as_cold(checkpointer, cold)
            saved = await ids(cold, "t")
            if course.chance(0.2):
                back = present(await handle.load("t", course.choose(saved[:4])))
                state = back
            if course.chance(0.15) and len(saved) > 2:
                await handle.delete("t", course.choose(saved[:2]))
        for checkpoint_id in await ids(cold, "t"):
            await _assert_as_cold(checkpointer, cold, checkpoint_id)

    @pytest.mark.parametrize("shape", SHAPES)
    @pytest.mark.parametrize("by_another", [False, True], ids=["by itself", "by another handle"])
    async def test_a_run_number_that_is_given_out_again_is_another_run(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, shape: str, by_another: bool
    ) -> None:
        other, load = open_handle(), SHAPES[shape]
        state = AgentState().with_messages(conversation(6))
        first = await checkpointer.save(state, "t")
        for number in range(4):
            await checkpointer.save(state.with_message(message(100 + number)), "t", "next")
            assert await load(checkpointer, None) == await load(open_handle(), None)
            handle = other if by_another else checkpointer
            assert await handle.delete("t", "next")
            again = present(await handle.load("t", first))
            await handle.save(again.with_message(message(200 + number)), "t", "next" if number % 2 else None)
            assert await load(checkpointer, None) == await load(open_handle(), None)
            await handle.delete("t", (await ids(handle, "t"))[0])

    async def test_a_thread_and_its_copy_are_held_apart(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """A copy has branches of the same names, and goes on with other runs under the same numbers."""
        if not self.required.branching:
            return
        state = AgentState().with_messages(conversation(6))
        await checkpointer.save(state, "t", "c1")
        assert await checkpointer.load("t") == state
        assert await checkpointer.copy_thread("t", "copy")
        lines = {"t": state, "copy": state}
        for turn in range(3):
            for number, thread_id in enumerate(lines):
                loaded = await checkpointer.load(thread_id)
                assert_same_state(loaded, lines[thread_id])
                assert loaded is not None
                lines[thread_id] = loaded.with_message(message(turn * 10 + number))
                await checkpointer.save(lines[thread_id], thread_id, f"c{turn + 2}")
        for handle in (checkpointer, open_handle()):
            for thread_id, line in lines.items():
                assert_same_state(await handle.load(thread_id), line)
                assert_same_state(AgentState.from_checkpoint(await dicts(handle).load(thread_id) or {}), line)

    @pytest.mark.parametrize("disturbance", DISTURBANCES)
    async def test_what_was_disturbed_is_read_anew(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, disturbance: str
    ) -> None:
        other, cold = open_handle(), open_handle()
        state = AgentState().with_messages(conversation(8)).with_metadata("large", "large " * 400)
        for load in SHAPES.values():
            await checkpointer.delete("t")
            await checkpointer.save(state, "t", "base")
            await load(checkpointer, None)
            await DISTURBANCES[disturbance](other)
            await _assert_as_cold(checkpointer, cold)
            await _assert_as_cold(checkpointer, cold, "base")

    async def test_namespaces_are_held_apart(self, checkpointer: Checkpointer) -> None:
        states = {name: AgentState(agent_id=name).with_messages(conversation(4)) for name in ("a", "b")}
        for turn in range(3):
            for name, state in states.items():
                states[name] = state.with_message(message(turn))
                await checkpointer.save(states[name], "t", "c", namespace=name)
                assert_same_state(await checkpointer.load("t", namespace=name), states[name])
        assert await checkpointer.delete("t", namespace="a")
        assert await checkpointer.load("t", namespace="a") is None
        assert_same_state(await checkpointer.load("t", namespace="b"), states["b"])

    async def test_what_a_caller_changes_is_not_seen_by_the_next(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        backend = dicts(checkpointer)
        data: dict[str, Any] = {"items": [{"n": 1, "tags": ["a"]}] * 3, "deep": {"log": [{"x": "y" * 80}]}}
        for turn in range(3):
            await backend.save("t", data)
            expected = await dicts(open_handle()).load("t")
            data["items"][0]["n"] = "changed after the save"
            for _ in range(2):
                loaded = await backend.load("t")
                assert_same(loaded, expected)
                assert loaded is not None
                loaded["items"][0]["tags"].append("changed after the load")
                loaded["deep"]["log"].clear()
                loaded.clear()
            data = {"items": [{"n": turn, "tags": ["a"]}] * (4 + turn), "deep": {"log": [{"x": "y" * 80}]}}

    async def test_every_load_gives_a_state_of_its_own(self, checkpointer: Checkpointer) -> None:
        """Each loaded state remembers its own checkpoint. States share only what cannot change."""
        await checkpointer.save(AgentState().with_messages(conversation(4)), "t", "c1")
        first, second = await checkpointer.load("t"), await checkpointer.load("t")
        assert first is not None
        assert second is not None
        assert first is not second
        await checkpointer.save(first.with_message(message(9)), "t", "c2")
        await checkpointer.save(first, "other")
        assert checkpointer.origin(second, "t") == "c1"
        assert checkpointer.origin(second, "other") is None

    async def test_a_cache_that_is_too_small_serves_all_the_same(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        cache = checkpointer.store.cache
        states = {f"t{number}": AgentState().with_messages(conversation(6, number)) for number in range(4)}
        for limit in (2_000, 40_000):  # less than one thread, and enough for some of them
            cache.clear()
            cache.max_bytes = limit
            for turn in range(3):
                for thread_id, state in states.items():
                    states[thread_id] = state.with_message(message(turn))
                    await checkpointer.save(states[thread_id], thread_id)
                    assert_same_state(await checkpointer.load(thread_id), states[thread_id])
                    info = checkpointer.cache_info()
                    assert info.bytes <= info.max_bytes == limit
                    assert (info.entries == 0) == (limit == 2_000 or not checkpointer.store.caches)

    async def test_hits_and_misses_are_counted(self, checkpointer: Checkpointer, open_handle: OpenHandle) -> None:
        other = open_handle()
        state = AgentState().with_messages(conversation(4))
        await checkpointer.save(state, "t")
        for turn in range(4):
            await checkpointer.load("t")
            state = state.with_message(message(turn))
            await (other if turn % 2 else checkpointer).save(state, "t")
        info = checkpointer.cache_info()
        if not checkpointer.store.caches:
            assert (info.hits, info.misses, info.entries, info.bytes) == (0, 0, 0, 0)
            return
        assert (info.hits, info.misses, info.entries) == (4, 0, 1)
        assert info.bytes > 0
        checkpointer.cache_clear()
        assert checkpointer.cache_info()[2:4] == (0, 0)
        await checkpointer.load("t")
        assert checkpointer.cache_info()[:2] == (4, 1)

    async def test_loads_and_saves_at_once_go_forward(self, checkpointer: Checkpointer) -> None:
        """A load that begins after a save has returned never gives an older state, whatever else runs on the handle."""
        saved = AgentState().with_messages(conversation(2))
        await checkpointer.save(saved, "t")

        async def save_some() -> None:
            nonlocal saved
            for turn in range(15):
                state = saved.with_message(message(turn)).next_iteration()
                await checkpointer.save(state, "t")
                saved = state

        async def load_some(load: Load) -> None:
            for _ in range(12):
                least = saved.iteration
                loaded = await load(checkpointer, None)
                plain = loaded.to_checkpoint() if isinstance(loaded, AgentState) else loaded
                assert plain["iteration"] >= least
                assert len(plain["messages"]) == 2 + plain["iteration"]
                await asyncio.sleep(0)

        await asyncio.gather(save_some(), *(load_some(load) for load in (_state, _dict, _state)))
        assert_same_state(await checkpointer.load("t"), saved)

    @pytest.mark.parametrize("shape", SHAPES)
    async def test_damage_in_what_is_new_is_told(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, store: TestStore, shape: str
    ) -> None:
        state = AgentState().with_messages(conversation(6))
        await checkpointer.save(state, "t")
        await SHAPES[shape](checkpointer, None)
        other = open_handle()
        again = present(await other.load("t"))
        await other.save(again.with_messages(conversation(2, 50)), "t")
        await store.corrupt("t")
        for _ in range(2):
            with pytest.raises(CorruptCheckpointError):
                await SHAPES[shape](checkpointer, None)


class CachedLoadProcessLaws(WorkerLaws):
    """Loads through a handle that holds checkpoints are right while other processes change the thread."""

    async def test_what_other_processes_do_is_seen_by_a_handle_that_holds_something(
        self, store: DurableTestStore, crew: Crew
    ) -> None:
        """The other processes append, edit, trim, fork, replace and delete."""
        async with store.open() as warm, store.open() as cold:
            for turn in range(6):
                worker = crew.start(crash_jobs.some_steps, url=store.url, thread_id="t", seed=turn, count=2 + turn % 5)
                worker.hear_out()
                worker.finish()
                await _assert_as_cold(warm, cold)
