"""Sizes: the bytes of a thread are told without reading it, and those that a removal frees are exact."""

from __future__ import annotations

import random
from typing import Any

import pytest

from locus.core.state import AgentState
from locus.errors import CapabilityError, CheckpointNotFoundError, ConfigurationError
from locus.memory.checkpointer import Checkpointer
from locus.memory.engine import Exports
from locus.memory.model.sizes import Freed, ThreadSizes, text_bytes
from locus.testing.data import conversation, message
from locus.testing.laws.base import Clock, Laws, OpenHandle, present


async def _forked(handle: Checkpointer, clock: Clock, seed: int = 1) -> list[str]:
    """A thread with forks, edits, trimmed lists, large values and pending writes, saved over days."""
    chance = random.Random(seed)
    states: list[tuple[str, AgentState]] = []
    for turn in range(12):
        clock.shift(days=turn - 60)
        state = states[-1 if chance.random() < 0.6 else chance.randrange(len(states))][1] if states else AgentState()
        match chance.randrange(4):
            case 0:
                state = state.with_messages_replaced(state.messages[1:])
            case 1:
                state = state.with_messages_replaced((*state.messages[:-1], message(turn)))
            case 2:
                state = state.with_metadata("large", f"é{turn // 2} " * 600)
            case _:
                state = state.with_error(f"error {turn} ü")
        state = state.with_messages(conversation(1 + turn % 3, turn))
        name = await handle.save(state, "t", f"c{turn}", metadata={"turn": turn, "ö": "x" * turn})
        states.append((name, state))
        if chance.random() < 0.5:
            writes = [("x", {"turn": turn}), ("ü", "long " * 400)]
            await handle.put_writes("t", name, f"task {turn}", writes)
    clock.shift()
    return [name for name, _ in states]


async def _sizes(handle: Checkpointer, **options: Any) -> ThreadSizes:
    return present(await handle.sizes("t", **options))


def _lost(before: ThreadSizes, after: ThreadSizes | None) -> Freed:
    """The bytes of each kind that were lost between two measurements."""
    if after is None:
        return Freed(before.checkpoints, before.runs, before.writes, before.bytes)
    return Freed(
        before.checkpoints - after.checkpoints,
        before.runs - after.runs,
        before.writes - after.writes,
        before.bytes - after.bytes,
    )


class SizeLaws(Laws):
    """`sizes` adds up, and tells what a vacuum or a deletion frees."""

    async def test_sizes_add_up(self, checkpointer: Checkpointer, open_handle: OpenHandle, clock: Clock) -> None:
        names = await _forked(checkpointer, clock)
        sizes = await _sizes(open_handle())
        assert (sizes.thread_id, sizes.checkpoints) == ("t", len(names))
        assert sizes.freed is None
        assert sizes.bytes == sizes.head_bytes + sizes.run_bytes + sizes.write_bytes
        assert sizes.run_bytes == sum(each.bytes for each in sizes.lists)
        assert sizes.runs == sum(each.runs for each in sizes.lists)
        assert sizes.shared_bytes == sum(each.shared_bytes for each in sizes.lists)
        assert sizes.bytes > sizes.head_bytes > 0
        if checkpointer.capabilities.windows:
            assert {("messages",), ("metadata", "large")} <= {each.path for each in sizes.lists}
            assert [each.bytes for each in sizes.lists] == sorted((each.bytes for each in sizes.lists), reverse=True)
            assert 0 < sizes.shared_bytes < sizes.run_bytes, "there are forks"

    async def test_sizes_are_those_of_the_texts(self, checkpointer: Checkpointer, clock: Clock) -> None:
        """True for stores that keep JSON as it was written. Files may leave out line feeds between items."""
        await _forked(checkpointer, clock)
        sizes = await _sizes(checkpointer)
        async with checkpointer.store.using() as engine:
            if not engine.offers(Exports) or not engine.dialect.exact:
                return
            assert isinstance(engine, Exports)
            exported = await engine.export("t", 0, 1_000, {})
        heads = sum(
            text_bytes(text)
            for checkpoint in exported.checkpoints
            for text in (checkpoint.head, checkpoint.manifest, checkpoint.entry.metadata)
        )
        assert sizes.head_bytes == heads
        runs = {(run.branch, run.number): text_bytes(run.items) for run in exported.runs}
        items = sum(run.length for run in exported.runs)
        assert sizes.runs == len(runs)
        assert sizes.run_bytes <= sum(runs.values()) <= sizes.run_bytes + items
        assert sizes.writes == sum(map(len, exported.writes.values()))

    @pytest.mark.parametrize(
        "options",
        [{"keep_last": 1}, {"keep_last": 3}, {"older_than_days": 52}, {"older_than_days": 0}, {"older_than_days": 100}],
        ids=str,
    )
    async def test_a_vacuum_frees_what_was_promised(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, clock: Clock, options: dict[str, Any]
    ) -> None:
        await _forked(checkpointer, clock)
        await checkpointer.put_writes("t", "1ec9414c-232a-6b00-b3c8-9e6bdeced846", "task", [("x", "orphan")])
        before = await _sizes(checkpointer, **options)
        removed = await checkpointer.vacuum(**options)
        after = await open_handle().sizes("t")
        assert before.freed is not None
        assert before.freed.checkpoints == removed
        assert before.freed == _lost(before, after)

    async def test_a_deletion_frees_what_was_promised(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, clock: Clock
    ) -> None:
        names = await _forked(checkpointer, clock, 2)
        for name in random.Random(3).sample(names, len(names)):
            before = await _sizes(checkpointer, deleting=[name])
            assert before.freed is not None
            assert await checkpointer.delete("t", name)
            assert before.freed == _lost(before, await open_handle().sizes("t"))
        assert await checkpointer.sizes("t") is None

    async def test_what_cannot_be_measured(self, checkpointer: Checkpointer) -> None:
        assert await checkpointer.sizes("nobody") is None
        await checkpointer.save(AgentState(), "t", "c")
        with pytest.raises(CheckpointNotFoundError):
            await checkpointer.sizes("t", deleting=["no such"])
        wrong: Any
        for wrong in (
            {"keep_last": 0},
            {"older_than_days": -1},
            {"keep_last": 1, "deleting": ["c"]},
            {"deleting": "c"},
        ):
            with pytest.raises((ConfigurationError, CapabilityError)):
                await checkpointer.sizes("t", **wrong)
        assert checkpointer.sync.sizes("t") == await checkpointer.sizes("t")
