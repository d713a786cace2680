"""Vacuum: what it keeps by age and by number, and how it finds what it removes."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from locus.core.state import AgentState
from locus.errors import ConfigurationError, CorruptCheckpointError
from locus.memory.checkpointer import Checkpointer
from locus.memory.engine import Engine, KeepsWrites
from locus.memory.model.records import ANY
from locus.memory.model.retention import Outlived, Retention, VacuumProgress, outlived, retention
from locus.memory.saver import CheckpointSaver
from locus.testing.data import conversation, message
from locus.testing.laws.base import (
    Clock,
    Laws,
    OpenHandle,
    assert_all_load,
    assert_same_state,
    dicts,
    ids,
    parent_of,
    present,
    snapshot,
)
from locus.testing.stores import TestStore


async def _aged(handle: Checkpointer, clock: Clock, ages: list[float], thread_id: str = "t") -> dict[str, AgentState]:
    """Save a conversation over days. Returns its states by checkpoint id."""
    state, saved = AgentState(), dict[str, AgentState]()
    for number, age in enumerate(ages):
        clock.shift(days=-age)
        state = state.with_messages(conversation(2, number)).with_metadata("large", f"{number // 2} " * 600)
        saved[await handle.save(state, thread_id, metadata={"age": age})] = state
    clock.shift()
    return saved


class VacuumLaws(Laws):
    """`vacuum` removes checkpoints by age, by number, or by both."""

    async def test_the_newest_checkpoint_keeps_what_its_tasks_wrote(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """A step of a graph is under way: some tasks have finished, others wait for a person."""
        backend = dicts(checkpointer)
        for name in "abc":
            await backend.save("t", {"name": name}, name)
            await backend.put_writes("t", name, "done", [("x", name)])
        await backend.put_writes("t", "c", "waits", [("__interrupt__", "ok?")])
        await backend.put_writes("t", "d", "early", [("x", "written before its checkpoint")])
        for handle in (checkpointer, open_handle()):
            await handle.vacuum(keep_last=1)
            assert await ids(handle, "t") == ["c"]
            assert [write.task_id for write in await handle.get_writes("t", "c")] == ["done", "waits"]
        await dicts(open_handle()).save("t", {"name": "d"}, "d")
        assert [write.task_id for write in await checkpointer.get_writes("t", "d")] == ["early"]

    async def test_a_checkpoint_keeps_the_ancestors_that_it_is_made_from(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """LangGraph says in the metadata how far back the values of delta channels reach."""
        backend = dicts(checkpointer)
        for number in range(6):
            tagged: Any = [number % 4, number] if number < 5 else {"$type": "tuple", "value": [1, 3]}
            about: dict[str, Any] = {"counters_since_delta_snapshot": {"messages": tagged, "files": [0, 1]}}
            written = {"channel_versions": {"messages": 1}} if number == 5 else {}
            about["counters_since_delta_snapshot"]["never written"] = [0, 100]
            await backend.save("t", {"number": number, **written}, str(number), about)
            await backend.put_writes("t", str(number), "task", [("messages", number)])
            await backend.save("u", {"number": number}, str(number), {"counters_since_delta_snapshot": "nothing"})
        await backend.save("t", {}, "fork", {}, parent="1")
        for dry_run in (True, False):
            assert await open_handle().vacuum(keep_last=1, dry_run=dry_run) == 2 + 5
        assert await ids(checkpointer, "t") == ["fork", "5", "4", "3", "2"]
        for name in "5432":
            assert len(await checkpointer.get_writes("t", name)) == 1
        assert await ids(checkpointer, "u") == ["5"]

    async def test_what_is_older_goes_and_the_rest_stays(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, clock: Clock
    ) -> None:
        saved = await _aged(checkpointer, clock, [50, 40, 31, 29, 5, 0])
        assert await checkpointer.vacuum() == 3
        kept = dict(list(saved.items())[3:])
        for handle in (checkpointer, open_handle()):
            await assert_all_load(handle, "t", kept)
        assert await parent_of(checkpointer, "t", next(iter(kept))) is None
        assert await checkpointer.vacuum(older_than_days=4) == 2
        assert await checkpointer.vacuum(older_than_days=4) == 0
        await assert_all_load(checkpointer, "t", dict(list(saved.items())[5:]))

    async def test_threads_with_nothing_newer_are_gone(self, checkpointer: Checkpointer, clock: Clock) -> None:
        old = await _aged(checkpointer, clock, [50, 40], "old")
        await checkpointer.put_writes("old", next(iter(old)), "task", [("x", 1)])
        young = await _aged(checkpointer, clock, [50, 2], "young")
        assert await checkpointer.vacuum(30) == 3
        assert await checkpointer.list_threads() == ["young"]
        assert not await checkpointer.exists("old")
        assert await checkpointer.get_writes("old", next(iter(old))) == []
        await assert_all_load(checkpointer, "young", dict(list(young.items())[1:]))
        assert await checkpointer.save(AgentState(), "old", if_latest=None)

    async def test_all_namespaces_are_vacuumed(self, checkpointer: Checkpointer, clock: Clock) -> None:
        for days, namespace in ((50, "default"), (50, ""), (50, "n"), (1, ""), (1, "n")):
            clock.shift(days=-days)
            await checkpointer.save(AgentState(), "t", namespace=namespace)
        clock.shift()
        assert await checkpointer.vacuum() == 3
        assert [len(await ids(checkpointer, "t", namespace=name)) for name in ("default", "", "n")] == [0, 1, 1]

    async def test_a_dry_run_counts_and_changes_nothing(self, checkpointer: Checkpointer, clock: Clock) -> None:
        await _aged(checkpointer, clock, [50, 40, 31, 2, 1], "a")
        await _aged(checkpointer, clock, [50, 49], "b")
        before = await snapshot(checkpointer)
        options: list[dict[str, Any]] = [
            {},
            {"older_than_days": 45},
            {"keep_last": 2},
            {"keep_last": 1, "older_than_days": 45},
        ]
        counted = [await checkpointer.vacuum(**chosen, dry_run=True) for chosen in options]
        assert counted == [5, 3, 3, 2]
        assert await snapshot(checkpointer) == before
        for chosen, count in zip(reversed(options), (2, 2, 1, 0), strict=True):
            assert await checkpointer.vacuum(**chosen, dry_run=True) == count
            assert await checkpointer.vacuum(**chosen) == count

    async def test_a_number_is_kept_of_each_thread(self, checkpointer: Checkpointer, clock: Clock) -> None:
        threads = {name: await _aged(checkpointer, clock, [9.0] * length, name) for name, length in _LENGTHS.items()}
        assert await checkpointer.vacuum(keep_last=3) == sum(max(0, n - 3) for n in _LENGTHS.values())
        for name, saved in threads.items():
            await assert_all_load(checkpointer, name, dict(list(saved.items())[-3:]))

    async def test_age_alone_does_not_matter_when_a_number_is_kept(
        self, checkpointer: Checkpointer, clock: Clock
    ) -> None:
        saved = await _aged(checkpointer, clock, [50, 40, 1, 0])
        assert await checkpointer.vacuum(keep_last=3) == 1
        await assert_all_load(checkpointer, "t", dict(list(saved.items())[1:]))

    async def test_number_and_age_must_both_hold(self, checkpointer: Checkpointer, clock: Clock) -> None:
        saved = await _aged(checkpointer, clock, [50, 40, 35, 2, 1, 0])
        assert await checkpointer.vacuum(older_than_days=30, keep_last=5) == 1
        assert await checkpointer.vacuum(older_than_days=30, keep_last=1) == 2
        await assert_all_load(checkpointer, "t", dict(list(saved.items())[3:]))

    async def test_every_fork_is_a_line_of_its_own(self, checkpointer: Checkpointer, open_handle: OpenHandle) -> None:
        """The thread is root ← a1 … a6, with a fork b1 … b3 from a2. Two checkpoints of each line are kept."""
        states: dict[str, AgentState] = {"root": AgentState()}
        await checkpointer.save(states["root"], "t", "root")
        lines = {"a": ("root", 6), "b": ("a2", 3)}
        for line, (start, length) in lines.items():
            state = present(await checkpointer.load("t", start))
            for number in range(1, length + 1):
                state = state.with_message(message(number * 10 + ord(line)))
                states[f"{line}{number}"] = state
                await checkpointer.save(state, "t", f"{line}{number}")
        assert await checkpointer.vacuum(keep_last=2) == 6
        kept = {name: states[name] for name in ("a5", "a6", "b2", "b3")}
        await assert_all_load(open_handle(), "t", kept)
        assert await parent_of(checkpointer, "t", "a6") == "a5"
        assert await parent_of(checkpointer, "t", "a5") is None
        assert await parent_of(checkpointer, "t", "b2") is None
        assert await checkpointer.vacuum(keep_last=2) == 0

    async def test_a_vacuumed_thread_goes_on(self, checkpointer: Checkpointer, open_handle: OpenHandle) -> None:
        state, saved = AgentState(), dict[str, AgentState]()
        for turn in range(20):
            state = state.with_messages_replaced(state.messages[turn % 3 == 2 :] + tuple(conversation(2, turn * 2)))
            saved[await checkpointer.save(state, "t")] = state
            if turn % 4 == 3:
                assert await open_handle().vacuum(keep_last=2) == len(saved) - 2
                saved = dict(list(saved.items())[-2:])
        await assert_all_load(open_handle(), "t", saved)

    async def test_the_latest_is_never_lost_to_a_number(self, checkpointer: Checkpointer) -> None:
        """The tree has several roots, forks, replaced and deleted parents."""
        state = AgentState().with_message(message(1))
        for name in ("a", "b", "c", "a"):
            state = state.with_message(message(ord(name)))
            await checkpointer.save(state, "t", name)
        await checkpointer.save(AgentState(), "t", "lonely", parent=None)
        await checkpointer.delete("t", "b")
        last = AgentState().with_error("last")
        await checkpointer.save(last, "t", "last", parent="lonely")
        await checkpointer.vacuum(keep_last=1)
        assert_same_state(await checkpointer.load("t"), last)
        assert await checkpointer.load("t", "a") is not None

    async def test_options_that_cannot_work_are_refused_and_nothing_is_removed(
        self, checkpointer: Checkpointer, clock: Clock
    ) -> None:
        await _aged(checkpointer, clock, [50, 0])
        before = await snapshot(checkpointer)
        for keep_last in (0, -1):
            with pytest.raises(ConfigurationError):
                await checkpointer.vacuum(keep_last=keep_last)
        for days in (-1, float("nan")):
            with pytest.raises(ConfigurationError):
                await checkpointer.vacuum(older_than_days=days)
        wrong: Any
        for wrong in ("2", 1.5, [1]):
            with pytest.raises(ConfigurationError):
                await checkpointer.vacuum(keep_last=wrong)
        for wrong in ("30", [1], {}):
            with pytest.raises(ConfigurationError):
                await checkpointer.vacuum(older_than_days=wrong)
        assert await snapshot(checkpointer) == before

    async def test_no_age_and_no_number_do_not_mean_everything(self, checkpointer: Checkpointer) -> None:
        await checkpointer.save(AgentState(), "t")
        none: Any = None
        with pytest.raises(ConfigurationError):
            await checkpointer.vacuum(older_than_days=none)
        assert await checkpointer.exists("t")

    async def test_an_age_older_than_the_calendar_removes_nothing(
        self, checkpointer: Checkpointer, clock: Clock
    ) -> None:
        await _aged(checkpointer, clock, [3_650, 0])
        for days in (1_000_000, 10**12, float("inf")):
            assert await checkpointer.vacuum(older_than_days=days) == 0
        assert len(await ids(checkpointer, "t")) == 2


_LENGTHS = {"none over": 2, "just": 3, "more": 7}


_OPTIONS: tuple[tuple[float | None, int | None], ...] = ((30, None), (0, None), (None, 1), (None, 2), (30, 2), (30, 5))


async def _course(handle: Checkpointer, clock: Clock, seed: int) -> None:
    """Threads of any shape: forks, namespaces, equal clocks, deletions, and parents that lead in a circle."""
    chance = random.Random(seed)
    for number in range(5):
        thread_id, saved = f"t{number}", list[tuple[str, str]]()
        for turn in range(chance.choice((1, 2, 5, 8))):
            clock.shift(days=-chance.choice((0, 1, 29, 31, 31, 90)))
            if chance.random() < 0.3:
                clock.stop(datetime(2025, 1, 1, tzinfo=UTC))
            namespace = chance.choice(("default", "default", ""))
            line = [name for place, name in saved if place == namespace]
            parent = chance.choice(line) if line and chance.random() < 0.4 else ANY
            state = {"n": turn, "items": [{"turn": at} for at in range(turn)]}
            await dicts(handle).save(thread_id, state, f"c{turn}", namespace=namespace, parent=parent)
            saved.append((namespace, f"c{turn}"))
        if len(saved) > 2 and chance.random() < 0.5:
            namespace, checkpoint_id = chance.choice(saved)
            await handle.delete(thread_id, checkpoint_id, namespace=namespace)
    clock.shift(days=-40)
    saver = CheckpointSaver(dicts(handle))
    for name, before in (("a", "b"), ("b", "a"), ("c", None)):
        await saver.put(
            thread_id="circle", checkpoint_id=name, checkpoint_data={"n": name}, parent_checkpoint_id=before
        )
    clock.shift()


async def _by_history(engine: Engine, rules: Retention) -> dict[str, dict[int, str]]:
    """The checkpoints to remove, found by reading every thread whole."""
    removed: dict[str, dict[int, str]] = {}
    for thread_id in ("circle", *(f"t{number}" for number in range(5))):
        entries = await engine.history(thread_id, None, None, None)
        doomed = outlived(entries, rules.cutoff, rules.keep_last)
        if doomed:
            removed[thread_id] = {entry.seq: entry.rev for entry in entries if entry.seq in doomed}
    return removed


async def _in_pages(engine: Engine, rules: Retention, limit: int, *, anew: bool) -> list[Outlived]:
    """The checkpoints to remove, as the engine finds them. With `anew`, each page is a call of its own."""
    threads: list[Outlived] = []
    after: str | None = ""
    while after is not None:
        start, after = after, None
        async for page in engine.outlived(rules, start, limit=limit):
            assert not page.damaged
            threads += page.threads
            if anew:
                after = page.after
                break
    return threads


def _old_id(days: float) -> str:
    """An id as LangGraph made it that many days ago."""
    passed = datetime.now(UTC) - timedelta(days=days) - datetime(1582, 10, 15, tzinfo=UTC)
    ticks = passed // timedelta(microseconds=1) * 10
    number = (ticks >> 12) << 80 | 6 << 76 | (ticks & 0xFFF) << 64 | 2 << 62 | random.getrandbits(62)
    return str(UUID(int=number))


class VacuumCandidateLaws(Laws):
    """`vacuum` finds every checkpoint to remove, in pages, and tells how far it has come."""

    @pytest.mark.parametrize("seed", range(3))
    async def test_pages_have_what_reading_every_thread_would_find(
        self, checkpointer: Checkpointer, clock: Clock, seed: int
    ) -> None:
        await _course(checkpointer, clock, seed)
        async with checkpointer.store.using() as engine:
            for days, keep_last in _OPTIONS:
                rules = retention(datetime.now(UTC), days, keep_last)
                expected = await _by_history(engine, rules)
                for limit, anew in ((1, False), (2, True), (100, False)):
                    threads = await _in_pages(engine, rules, limit, anew=anew)
                    assert {thread.thread_id: dict(thread.checkpoints) for thread in threads} == expected
                    assert sum(len(thread.checkpoints) for thread in threads) == sum(map(len, expected.values()))

    async def test_what_is_counted_is_what_goes(self, checkpointer: Checkpointer, clock: Clock) -> None:
        await _course(checkpointer, clock, 3)
        async with checkpointer.store.using() as engine:
            rules = retention(datetime.now(UTC), 30, 2)
            expected = await _by_history(engine, rules)
            left = {
                thread_id: {entry.rev for entry in await engine.history(thread_id, None, None, None)}
                - set(expected.get(thread_id, {}).values())
                for thread_id in ("circle", *(f"t{number}" for number in range(5)))
            }
            count = sum(map(len, expected.values()))
            assert await checkpointer.vacuum(30, keep_last=2, dry_run=True) == count
            told: list[VacuumProgress] = []
            assert await checkpointer.vacuum(30, keep_last=2, progress=told.append) == count
            assert told[-1].checkpoints == count
            assert told[-1].threads >= len(expected)
            assert (told[-1].writes, told[-1].damaged) == (0, 0)
            assert [progress.checkpoints for progress in told] == sorted(progress.checkpoints for progress in told)
            for thread_id, revs in left.items():
                entries = await engine.history(thread_id, None, None, None)
                assert {entry.rev for entry in entries} == revs
                names = {(entry.namespace, entry.checkpoint_id) for entry in entries}
                for entry in entries if thread_id != "circle" else ():
                    assert entry.parent_id is None or (entry.namespace, entry.parent_id) in names
                    assert await checkpointer.store.read(thread_id, entry.checkpoint_id, entry.namespace) is not None

    async def test_what_a_prefix_does_not_fit_is_not_found(self, checkpointer: Checkpointer) -> None:
        for thread_id in ("a/1", "a/2", "b/1", "a"):
            await checkpointer.save(AgentState(), thread_id)
        async with checkpointer.store.using() as engine:
            kept = retention(datetime.now(UTC) + timedelta(days=1), 0, None)
            found = [one.thread_id async for page in engine.outlived(kept, prefix="a/") for one in page.threads]
        assert sorted(found) == ["a/1", "a/2"]

    async def test_writes_of_a_checkpoint_that_never_came_go_when_they_are_old(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        old, young, saved = _old_id(40), _old_id(0.1), _old_id(50)
        await checkpointer.save(AgentState(), "t", saved)
        await checkpointer.put_writes("t", saved, "task", [("x", 1)])
        await checkpointer.put_writes("t", old, "one", [("x", 1), ("y", 2)])
        await checkpointer.put_writes("t", old, "two", [("x", 3)])
        await checkpointer.put_writes("t", old, "one", [("x", 4)], namespace="n")
        await checkpointer.put_writes("t", young, "task", [("x", 1)])
        await checkpointer.put_writes("t", old, "task", [("x", 1)], namespace="locus:lease")
        kept = [("t", saved, "default"), ("t", young, "default"), ("t", old, "locus:lease")]
        gone = [("t", old, "default"), ("t", old, "n")]
        told: list[VacuumProgress] = []
        await checkpointer.vacuum(30, keep_last=1, dry_run=True, progress=told.append)
        engine = checkpointer.store.engine
        assert isinstance(engine, KeepsWrites)
        if told[-1].writes == 0 and type(engine).delete_orphans is KeepsWrites.delete_orphans:
            return  # an engine that does not look for them
        for days in (45, 30):
            for dry_run in (True, False):
                assert await checkpointer.vacuum(days, keep_last=1, dry_run=dry_run, progress=told.append) == 0
                assert told[-1].writes == (4 if days == 30 else 0)
                done = days == 30 and not dry_run
                for handle in (checkpointer, open_handle()):
                    for thread_id, checkpoint_id, namespace in (*kept, *([] if done else gone)):
                        assert await handle.get_writes(thread_id, checkpoint_id, namespace=namespace)
        for thread_id, checkpoint_id, namespace in gone:
            assert not await open_handle().get_writes(thread_id, checkpoint_id, namespace=namespace)
        assert await checkpointer.vacuum(0, keep_last=1, progress=told.append) == 0
        assert told[-1].writes == 0, "whatever age is asked for, a day is the least"
        await checkpointer.save(AgentState(), "t", old)
        assert await checkpointer.get_writes("t", old) == []

    async def test_writes_in_a_thread_without_any_checkpoint(self, checkpointer: Checkpointer) -> None:
        """Some stores do not know a thread that has only pending writes."""
        old = _old_id(40)
        await checkpointer.put_writes("t", old, "task", [("x", 1)])
        told: list[VacuumProgress] = []
        for dry_run in (True, False):
            assert await checkpointer.vacuum(dry_run=dry_run, progress=told.append) == 0
        removed = told[-1].writes if told else 0
        assert len(await checkpointer.get_writes("t", old)) == 1 - removed
        assert {one.writes for one in told} <= {removed}
        await checkpointer.save(AgentState(), "t", old)
        assert await checkpointer.list_threads() == ["t"]

    async def test_a_damaged_thread_does_not_stop_the_others(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, clock: Clock, store: TestStore
    ) -> None:
        clock.shift(days=-40)
        for thread_id in ("a", "b damaged", "c"):
            for number in range(3):
                await checkpointer.save(AgentState().with_messages(conversation(number)), thread_id, f"{number}")
        clock.shift()
        young = AgentState().with_message(message(7))
        for thread_id in ("a", "c"):
            await checkpointer.save(young, thread_id, "young")
        await store.corrupt("b damaged")
        handle = open_handle()
        told: list[VacuumProgress] = []
        try:
            removed = await handle.vacuum(progress=told.append)
        except CorruptCheckpointError:
            assert told[-1].damaged == 1
            removed = told[-1].checkpoints
        assert removed in (6, 9)
        for thread_id in ("a", "c"):
            assert await handle.list_checkpoints(thread_id) == ["young"]
