"""Vacuum finds what it removes by itself, page by page, and tells how far it has come."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from locus.core.state import AgentState
from locus.errors import CorruptCheckpointError
from locus.memory.checkpointer import Checkpointer
from locus.memory.engine import Engine, KeepsWrites
from locus.memory.model.records import ANY
from locus.memory.model.retention import Outlived, Retention, VacuumProgress, outlived, retention
from locus.memory.saver import CheckpointSaver
from locus.testing.data import conversation, message
from locus.testing.laws.base import Clock, Laws, OpenHandle, dicts
from locus.testing.stores import TestStore

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


async def _by_history(engine: Engine, kept: Retention) -> dict[str, dict[int, str]]:
    """What goes, found by reading all of every thread."""
    found: dict[str, dict[int, str]] = {}
    for thread_id in ("circle", *(f"t{number}" for number in range(5))):
        entries = await engine.history(thread_id, None, None, None)
        doomed = outlived(entries, kept.cutoff, kept.keep_last)
        if doomed:
            found[thread_id] = {entry.seq: entry.rev for entry in entries if entry.seq in doomed}
    return found


async def _in_pages(engine: Engine, kept: Retention, limit: int, *, anew: bool) -> list[Outlived]:
    """What goes, as the engine finds it; `anew`: each page by a call of its own."""
    found: list[Outlived] = []
    after: str | None = ""
    while after is not None:
        start, after = after, None
        async for page in engine.outlived(kept, start, limit=limit):
            assert not page.damaged
            found += page.threads
            if anew:
                after = page.after
                break
    return found


def _old_id(days: float) -> str:
    """An id as LangGraph makes them, so many days ago."""
    passed = datetime.now(UTC) - timedelta(days=days) - datetime(1582, 10, 15, tzinfo=UTC)
    ticks = passed // timedelta(microseconds=1) * 10
    number = (ticks >> 12) << 80 | 6 << 76 | (ticks & 0xFFF) << 64 | 2 << 62 | random.getrandbits(62)
    return str(UUID(int=number))


class VacuumLaws(Laws):
    """How `vacuum` finds what it removes."""

    @pytest.mark.parametrize("seed", range(3))
    async def test_pages_have_what_reading_every_thread_would_find(
        self, checkpointer: Checkpointer, clock: Clock, seed: int
    ) -> None:
        await _course(checkpointer, clock, seed)
        async with checkpointer.store.using() as engine:
            for days, keep_last in _OPTIONS:
                kept = retention(datetime.now(UTC), days, keep_last)
                expected = await _by_history(engine, kept)
                for limit, anew in ((1, False), (2, True), (100, False)):
                    found = await _in_pages(engine, kept, limit, anew=anew)
                    assert {one.thread_id: dict(one.checkpoints) for one in found} == expected
                    assert sum(len(one.checkpoints) for one in found) == sum(map(len, expected.values()))

    async def test_what_is_counted_is_what_goes(self, checkpointer: Checkpointer, clock: Clock) -> None:
        await _course(checkpointer, clock, 3)
        async with checkpointer.store.using() as engine:
            kept = retention(datetime.now(UTC), 30, 2)
            expected = await _by_history(engine, kept)
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
            assert [one.checkpoints for one in told] == sorted(one.checkpoints for one in told)
            for thread_id, revs in left.items():
                entries = await engine.history(thread_id, None, None, None)
                assert {entry.rev for entry in entries} == revs
                there = {(entry.namespace, entry.checkpoint_id) for entry in entries}
                for entry in entries if thread_id != "circle" else ():
                    assert entry.parent_id is None or (entry.namespace, entry.parent_id) in there
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
        """Some stores do not know of such a thread."""
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
