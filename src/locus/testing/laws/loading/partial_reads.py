"""Partial reads: the part of a checkpoint that an engine reads is what a whole read has there, and little more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from locus.core.state import AgentState, ToolExecution
from locus.errors import CorruptCheckpointError
from locus.memory.checkpointer import Checkpointer
from locus.memory.engine import Engine
from locus.memory.model.manifest import decode_manifest, items_text, newest_runs
from locus.memory.model.parts import Window, between, total_of
from locus.memory.model.plan import MOST_ITEMS
from locus.memory.model.records import DEFAULT_NAMESPACE, Base, Extent, Path, Run, Stored
from locus.testing.data import CHANGES, conversation, message
from locus.testing.laws.base import Laws, OpenHandle, assert_same_state, present

_LISTS: frozenset[Path] = frozenset({("messages",), ("tool_executions",), ("tool_history",), ("confidence_history",)})
_SIZES = (1, 3, 50)


class PartialReadLaws(Laws):
    """`read_part` and `read_since` of an engine give what a whole read has, and read less."""

    reads_parts: ClassVar[bool | None] = None
    """True if the engine reads less for a part, and for a reader that holds an older checkpoint.

    None: it does if it overrides the methods for that.
    """

    def _reads_less(self, checkpointer: Checkpointer, method: str) -> bool:
        overridden = getattr(type(checkpointer.store.engine), method) is not getattr(Engine, method)
        return overridden if self.reads_parts is None else self.reads_parts

    async def test_a_window_has_what_a_whole_read_has(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """The checkpoints come from appends, edits, a trimmed front, forks and deletions."""
        saved = await _course(checkpointer)
        for handle in (checkpointer, open_handle()):
            for checkpoint_id in [*saved, None]:
                whole = await _read(handle, checkpoint_id)
                for size in _SIZES:
                    part = await handle.store.read_part("t", checkpoint_id, DEFAULT_NAMESPACE, Window(size, _LISTS))
                    assert part is not None
                    assert (part.entry, part.head, part.manifest) == (whole.entry, whole.head, whole.manifest)
                    assert part.passed == whole.passed
                    assert _shown(part, part.runs, size) == _shown(whole, whole.runs, size)

    async def test_what_follows_a_held_checkpoint_completes_it(self, checkpointer: Checkpointer) -> None:
        saved = await _course(checkpointer)
        wholes = {checkpoint_id: await _read(checkpointer, checkpoint_id) for checkpoint_id in saved}
        left_out = 0
        for checkpoint_id, whole in wholes.items():
            candidates = [*wholes.values()]
            for held in (*candidates[:-5:2], *candidates[-5:]):
                part = await _since(checkpointer, checkpoint_id, _base(held))
                assert (part.entry, part.head, part.manifest) == (whole.entry, whole.head, whole.manifest)
                assert part.passed == whole.passed
                if part.since is None:
                    assert _shown(part, part.runs) == _shown(whole, whole.runs)
                    continue
                assert part.since == _base(held)
                left_out += 1
                try:
                    shown = _shown(part, _completed(held, part))
                except CorruptCheckpointError:
                    # A line that left the held one earlier: the reader sees that it lacks something, and reads all.
                    assert not _is_line(wholes, whole, held)
                else:
                    assert shown == _shown(whole, whole.runs)
        assert bool(left_out) == self._reads_less(checkpointer, "read_since")

    async def test_a_held_checkpoint_that_is_gone_counts_for_nothing(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """After a deletion, ids and numbers of runs may be used again."""
        state = AgentState().with_messages(conversation(4))
        first = await checkpointer.save(state, "t")
        await checkpointer.save(state.with_message(message(7)), "t", "second")
        held = _base(await _read(checkpointer, "second"))
        other = open_handle()
        await other.delete("t", "second")
        again = present(await other.load("t", first))
        await other.save(again.with_message(message(8)), "t", "second")
        for gone in (held, Base("second", "0" * 32), Base(first, held.rev), Base("never", held.rev)):
            part = await _since(checkpointer, None, gone)
            assert part.since is None
            assert _shown(part, part.runs) == _shown(await _read(other, None), (await _read(other, None)).runs)

    async def test_a_held_checkpoint_of_another_thread_or_namespace_counts_for_nothing(
        self, checkpointer: Checkpointer
    ) -> None:
        state = AgentState().with_messages(conversation(4))
        await checkpointer.save(state, "other", "c")
        await checkpointer.save(state, "t", "c", namespace="elsewhere")
        await checkpointer.save(state.with_message(message(5)), "t", "c")
        for thread_id, namespace in (("other", DEFAULT_NAMESPACE), ("t", "elsewhere")):
            stored = present(await checkpointer.store.read(thread_id, "c", namespace))
            part = await _since(checkpointer, None, _base(stored))
            assert part.since is None
            whole = await _read(checkpointer, None)
            assert _shown(part, part.runs) == _shown(whole, whole.runs)

    async def test_a_thread_that_is_not_there_has_no_parts(self, checkpointer: Checkpointer) -> None:
        await checkpointer.save(AgentState(), "t", "c")
        held = _base(await _read(checkpointer, "c"))
        async with checkpointer.store.using() as engine:
            places: tuple[tuple[str, str, str | None], ...] = (
                ("none", DEFAULT_NAMESPACE, None),
                ("t", "none", None),
                ("t", DEFAULT_NAMESPACE, "none"),
            )
            for thread_id, namespace, checkpoint_id in places:
                assert await engine.read_part(thread_id, namespace, checkpoint_id, Window(3, _LISTS)) is None
                assert await engine.read_since(thread_id, namespace, checkpoint_id, held) is None

    async def test_the_runs_of_a_part_do_not_grow_with_the_thread(self, checkpointer: Checkpointer) -> None:
        """The parts are a window, and a new turn for a reader that holds the turn before."""
        state, counts = AgentState(), list[tuple[int, int]]()
        held: Base | None = None
        for turn in range(81):
            state = _turn(state, turn)
            checkpoint_id = await checkpointer.save(state, "t")
            if turn in (19, 79):
                held = _base(await _read(checkpointer, checkpoint_id))
            elif turn in (20, 80):
                assert held is not None
                window = present(await checkpointer.store.read_part("t", None, DEFAULT_NAMESPACE, Window(5, _LISTS)))
                counts.append((_number(window), _number(await _since(checkpointer, None, held))))
        (early_window, early_turn), (late_window, late_turn) = counts
        if self._reads_less(checkpointer, "read_part"):
            assert early_window == late_window
        if self._reads_less(checkpointer, "read_since"):
            assert early_turn == late_turn

    async def test_a_save_of_many_items_can_be_read_in_parts(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """A save of many items brings several runs of a branch, to begin it, to go on, after an edit, and in a fork."""
        states = {"opened": AgentState().with_messages(conversation(600))}
        await checkpointer.save(states["opened"], "t", "opened")
        for name, base, count in (("grown", "opened", 600), ("edited", "grown", 700), ("forked", "opened", 500)):
            loaded = present(await open_handle().load("t", base))
            states[name] = loaded.with_messages_replaced(
                loaded.messages[:count] + tuple(conversation(600, 1_000 * count))
            )
            await checkpointer.save(states[name], "t", name)
        await checkpointer.delete("t", "opened")
        del states["opened"]
        for name, state in states.items():
            stored = await _read(checkpointer, name)
            assert max(run.length for runs in stored.runs.values() for run in runs) <= MOST_ITEMS
            loaded = present(await open_handle().load("t", name))
            assert loaded.messages == state.messages
            part = present(await checkpointer.store.read_part("t", name, DEFAULT_NAMESPACE, Window(5, _LISTS)))
            assert _shown(part, part.runs, 5) == _shown(stored, stored.runs, 5)
            assert _number(part) <= 2 or not self._reads_less(checkpointer, "read_part")

    async def test_a_save_of_unknown_origin_is_recognised_by_the_ends_of_what_is_stored(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The state was appended to and edited near its end. A save reads only the ends of its lists."""
        reads_less = self._reads_less(checkpointer, "read_part")
        read, state = _counted(type(checkpointer.store.engine), monkeypatch), AgentState()
        counts = list[int]()
        for turn in range(61):
            state = _turn(state, turn)
            if turn in (20, 60):
                edited = state.with_messages_replaced(state.messages[:-4] + (message(990), *conversation(4, 500)))
                for unknown in (edited, AgentState.model_validate_json(edited.model_dump_json())):
                    stranger = AgentState.from_checkpoint(unknown.to_checkpoint())
                    read.clear()
                    handle = open_handle()
                    saved = await handle.save(stranger, "t")
                    counts.append(sum(read))
                    assert_same_state(await open_handle().load("t", saved), stranger)
                    await handle.close()
                state = edited
            await checkpointer.save(state, "t")
        if reads_less:
            whole = _number(await _read(checkpointer, None))
            assert max(counts) < 80 < 200 < whole, counts

    async def test_a_save_of_unknown_origin_that_resembles_nothing_is_kept_whole(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """Such a state was trimmed, edited at the front, shuffled or made anew. Its lists may have several pieces."""
        state = _turn(AgentState(), 0)
        first = await checkpointer.save(state, "t")
        for turn in range(1, 8):
            state = _turn(state, turn)
            await checkpointer.save(state, "t")
        state = _turn(state.with_messages_replaced(state.messages[:3] + (message(700),) + state.messages[4:]), 9)
        await checkpointer.save(state, "t", parent=first)
        lists = (
            state.messages[2:],
            (message(701), *state.messages[1:]),
            tuple(reversed(state.messages)),
            (),
            state.messages[:5],
            (*state.messages[:9], message(702)),
            tuple(conversation(3, 800)),
        )
        for number, messages in enumerate(lists):
            other = AgentState.from_checkpoint(state.with_messages_replaced(messages).to_checkpoint())
            handle = open_handle()
            await handle.save(other, "t", f"c{number}")
            assert_same_state(await open_handle().load("t", f"c{number}"), other)
            await handle.save(state, "t", f"again-{number}")
            await handle.close()


def _turn(state: AgentState, turn: int) -> AgentState:
    execution = ToolExecution(tool_name="look", tool_call_id=f"call-{turn}", result="x" * 20)
    return state.with_messages(conversation(2, turn * 2)).with_tool_execution(execution).with_confidence(0.5)


async def _course(checkpointer: Checkpointer) -> list[str]:
    """Save a thread with changes of all kinds. Returns the ids of its checkpoints."""
    state, saved = AgentState(), list[str]()
    states = dict[str, AgentState]()
    for turn in range(12):
        change = CHANGES[("keep", "edit last", "edit middle", "trim", "keep")[turn % 5]]
        messages = change(state.messages, (message(turn + 900),))
        state = _turn(state.with_messages_replaced(messages), turn).with_metadata("seen", ["a" * 90, turn])
        saved.append(await checkpointer.save(state, "t"))
        states[saved[-1]] = state
        if turn in (4, 8):  # go back, and leave the other line where it is
            state = states[saved[-3]]
    for edit in range(4):  # each hides what the one before it has written, and shows what that has left
        kept = state.messages[: len(state.messages) - 1 - edit % 2]
        state = state.with_messages_replaced((*kept, *conversation(1 + edit % 2, 600 + edit)))
        saved.append(await checkpointer.save(state, "t"))
    for gone in (saved.pop(6), saved.pop(-5)):
        await checkpointer.delete("t", gone)
    return saved


async def _read(checkpointer: Checkpointer, checkpoint_id: str | None) -> Stored:
    return present(await checkpointer.store.read("t", checkpoint_id, DEFAULT_NAMESPACE))


async def _since(checkpointer: Checkpointer, checkpoint_id: str | None, held: Base) -> Stored:
    async with checkpointer.store.using() as engine:
        stored = await engine.read_since("t", DEFAULT_NAMESPACE, checkpoint_id, held)
    assert stored is not None
    return stored


def _base(stored: Stored) -> Base:
    return Base(stored.entry.checkpoint_id, stored.entry.rev)


def _counted(kind: type[Engine], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of runs that each read of an engine of this kind gets."""
    counts: list[int] = []
    for name in ("read", "read_part"):
        inner = getattr(kind, name)

        async def counted(self: Engine, *args: Any, inner: Any = inner) -> Stored | None:
            stored: Stored | None = await inner(self, *args)
            counts.append(0 if stored is None else _number(stored))
            return stored

        monkeypatch.setattr(kind, name, counted)
    return counts


def _number(stored: Stored) -> int:
    return sum(map(len, stored.runs.values()))


def _completed(held: Stored, found: Stored) -> Mapping[str, list[Run]]:
    """The runs of a held checkpoint, up to those that it names, completed by the runs that were read."""
    known = newest_runs([held.manifest])
    names = {*known, *found.runs}
    return {
        name: [run for run in held.runs.get(name, ()) if run.number <= known.get(name, -1)]
        + list(found.runs.get(name, ()))
        for name in names
    }


def _is_line(wholes: Mapping[str, Stored], whole: Stored, held: Stored) -> bool:
    """True if a checkpoint comes from a held one by appends and edits at the end, which has to be quick."""
    at: Stored | None = whole
    while at is not None and at.entry.seq > held.entry.seq:
        at = wholes.get(at.entry.parent_id or "")
    if at is not held:
        return False
    newest = newest_runs([held.manifest])
    return all(
        extent.run >= newest.get(extent.branch, 0)
        for cut in decode_manifest(whole.manifest).values()
        for extent in (cut if not isinstance(cut, str) else ())
    )


def _shown(stored: Stored, runs: Mapping[str, list[Run]], size: int | None = None) -> dict[Path, str]:
    """The large values, and the items of each list, or its last ones."""
    shown: dict[Path, str] = {}
    for path, cut in decode_manifest(stored.manifest).items():
        extents: list[Extent] = [Extent(cut, 0, 0, 1)] if isinstance(cut, str) else list(cut)
        if size is not None and path in _LISTS and not isinstance(cut, str):
            total = total_of(extents)
            extents = between(extents, max(0, total - size), total)
        shown[path] = items_text(extents, runs)
    return shown
