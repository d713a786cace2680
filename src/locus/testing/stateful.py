"""Random sequences of events: a store and a plain model in memory go through them side by side, and must agree.

Hypothesis chooses the events. Calls to the store block, so that any backend can be tested. `ModelThread` is the model:
a thread as a plain list, written as simply as the laws are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConflictError
from locus.memory.checkpointer import Checkpointer, HistoryEntry
from locus.memory.model.records import ANY, Unset
from locus.memory.sync import SyncBackend, SyncCheckpointer
from locus.testing.data import CHANGES, budget, message
from locus.testing.laws.base import Laws, OpenHandle, dicts, exact, present


@dataclass
class ModelCheckpoint:
    """A checkpoint of the model. Its payload is a text that differs wherever two payloads do."""

    checkpoint_id: str
    parent_id: str | None
    payload: str
    metadata: dict[str, Any]
    writes: dict[tuple[str, int], Any] = field(default_factory=dict)


@dataclass
class ModelThread:
    """A thread of the model, as a list. The newest checkpoint comes last."""

    checkpoints: list[ModelCheckpoint] = field(default_factory=list)

    def find(self, checkpoint_id: str | None) -> ModelCheckpoint | None:
        return next((found for found in self.checkpoints if found.checkpoint_id == checkpoint_id), None)

    @property
    def latest(self) -> str | None:
        return self.checkpoints[-1].checkpoint_id if self.checkpoints else None

    @property
    def names(self) -> list[str]:
        return [found.checkpoint_id for found in self.checkpoints]

    def keeps(self, name: str | None, payload: Any, metadata: dict[str, Any] | None) -> bool:
        """True if a save under this id would only repeat what is there."""
        same = self.find(name)
        return (
            same is not None
            and same.payload == exact(payload)
            and (metadata is None or exact(metadata) == exact(same.metadata))
        )

    def save(self, name: str, payload: Any, metadata: dict[str, Any] | None, known: str | None) -> None:
        """Save a payload that was derived from the checkpoint `known`, or from an unknown one."""
        if self.keeps(name, payload, metadata):
            return
        same = self.find(name)
        parent = known if self.find(known) else self.latest
        if same is not None and parent == name:
            parent = same.parent_id
        self.delete({name})
        writes = same.writes if same else {}
        self.checkpoints.append(ModelCheckpoint(name, parent, exact(payload), dict(metadata or {}), writes))

    def delete(self, names: Collection[str]) -> int:
        gone = {found.checkpoint_id: found.parent_id for found in self.checkpoints if found.checkpoint_id in names}
        self.checkpoints = [found for found in self.checkpoints if found.checkpoint_id not in gone]
        for found in self.checkpoints:
            while found.parent_id in gone:
                found.parent_id = gone[found.parent_id]
        return len(gone)

    def line(self, name: str) -> list[str]:
        """A checkpoint and its ancestors."""
        names: list[str] = []
        found = self.find(name)
        while found is not None:
            names.append(found.checkpoint_id)
            found = self.find(found.parent_id)
        return names

    def vacuum(self, keep_last: int) -> int:
        parents = {found.parent_id for found in self.checkpoints}
        ends = [name for name in self.names if name not in parents]
        kept = {name for end in ends for name in self.line(end)[:keep_last]}
        return self.delete(set(self.names) - kept)

    def copy(self, name: str | None) -> ModelThread:
        chosen = self.names if name is None else self.line(name)
        return ModelThread(deepcopy([found for found in self.checkpoints if found.checkpoint_id in chosen]))

    def put_writes(self, name: str, task: str, values: list[Any]) -> None:
        found = present(self.find(name))
        found.writes = {key: value for key, value in found.writes.items() if key[0] != task}
        found.writes |= {(task, index): value for index, value in enumerate(values)}


STATE_THREADS = ("s/1", "s_1", "s%")
DICT_THREADS = ("d*1", "d?1")
STATE_COPY, DICT_COPY = "s/1 copy", "d copy"
THREADS = (*STATE_THREADS, STATE_COPY, *DICT_THREADS, DICT_COPY)

ROUTES = (
    ("s/1", "s_1"),
    ("s_1", "s/1"),
    ("s/1", STATE_COPY),
    ("s%", STATE_COPY),
    (STATE_COPY, "s%"),
    ("d*1", "d?1"),
    ("d*1", DICT_COPY),
    ("d?1", DICT_COPY),
)
"""The pairs of threads, source and target, that are copied."""

_slots = st.integers(0, 2)
_picks = st.integers(0, 30)
_handles = st.integers(0, 1)
_changes = st.sampled_from([*CHANGES])
_parts = st.sampled_from(["messages", "metadata", "errors"])
_names = st.none() | st.sampled_from(["fixed", "latest"])
_metadata = st.none() | st.sampled_from([{}, {"k": 1}, {"k": True}, {"list": [1, {"x": None}]}])


@dataclass
class Slot:
    """A state that somebody holds, and by thread the checkpoint that it came from, as the model has it."""

    state: AgentState = field(default_factory=AgentState)
    known: dict[str, str] = field(default_factory=dict)


class ThreadsMachine(RuleBasedStateMachine):
    """Drives two handles on one store, with three holders of states and some threads. Empties the store at the end."""

    def __init__(self, handles: Sequence[Checkpointer], copies: bool = True) -> None:
        super().__init__()
        self.states: list[SyncCheckpointer] = [handle.sync for handle in handles]
        self.dicts: list[SyncBackend] = [dicts(handle).sync for handle in handles]
        self.copies = copies
        self.model = {name: ModelThread() for name in THREADS}
        self.seqs: dict[str, dict[int, str]] = {name: {} for name in self.model}
        self.slots = [Slot(), Slot(), Slot()]
        self.data: dict[str, Any] = {"items": [], "deep": {"log": []}}
        self.touched: set[str] = set()
        self.counter = 0

    def _fresh(self, count: int = 3) -> list[int]:
        self.counter += count
        return list(range(self.counter - count, self.counter))

    def _existing(self, thread_id: str, pick: int) -> str | None:
        names = self.model[thread_id].names
        return names[-1 - pick % len(names)] if names else None

    def _changed(self, state: AgentState, part: str, change: str) -> AgentState:
        """A changed version of a state."""
        if part == "messages":
            fresh: tuple[Message, ...] = tuple(message(number) for number in self._fresh())
            return state.with_messages_replaced(CHANGES[change](state.messages, fresh))
        if part == "errors":
            return state.model_copy(update={"errors": CHANGES[change](state.errors, tuple(map(str, self._fresh())))})
        entries = [{"n": number, "large": "x" * 1_100 * (number % 2)} for number in self._fresh()]
        log = list(state.metadata.get("log", []))
        return state.with_metadata({"log": CHANGES[change](log, entries), "note": "y" * 1_200})

    @rule(
        slot=_slots,
        thread=st.sampled_from(STATE_THREADS),
        handle=_handles,
        turns=st.lists(st.tuples(_parts, _changes), min_size=1, max_size=5),
        fork=st.none() | _picks,
    )
    def take_turns(self, slot: int, thread: str, handle: int, turns: list[tuple[str, str]], fork: int | None) -> None:
        """Change a state and save it a few times, by both handles in turn. Some runs start from an old checkpoint."""
        if fork is not None:
            self.load_a_state(slot, thread, handle, fork)
        held = self.slots[slot]
        for number, (part, change) in enumerate(turns):
            held.state = self._changed(held.state, part, change)
            self._save(held, thread, handle ^ number % 2, None, None)

    def _save(
        self,
        held: Slot,
        thread: str,
        handle: int,
        name: str | None,
        metadata: dict[str, Any] | None,
        if_latest: str | None | Unset = ANY,
    ) -> None:
        saved_as = self.states[handle].save(held.state, thread, name, metadata, if_latest=if_latest)
        assert name in (None, saved_as)
        self.model[thread].save(saved_as, held.state.to_checkpoint(), metadata, held.known.get(thread))
        held.known[thread] = saved_as
        self.touched.add(thread)

    @rule(slot=_slots)
    def rebuild_a_state_from_data(self, slot: int) -> None:
        self.slots[slot] = Slot(AgentState.from_checkpoint(self.slots[slot].state.to_checkpoint()))

    @rule(
        slot=_slots,
        thread=st.sampled_from(STATE_THREADS),
        handle=_handles,
        name=_names,
        metadata=_metadata,
        expect=st.booleans(),
    )
    def save_a_state(
        self, slot: int, thread: str, handle: int, name: str | None, metadata: dict[str, Any] | None, expect: bool
    ) -> None:
        if_latest = self.model[thread].latest if expect else ANY
        self._save(self.slots[slot], thread, handle, name, metadata, if_latest)

    @rule(slot=_slots, thread=st.sampled_from(STATE_THREADS), handle=_handles, pick=_picks)
    def load_a_state(self, slot: int, thread: str, handle: int, pick: int) -> None:
        """Load the latest checkpoint or an older one. Its holder goes on from there."""
        name = self._existing(thread, pick)
        state = self.states[handle].load(thread, name if pick else None)
        assert (state is None) == (name is None)
        if state is not None and name is not None:
            self.slots[slot] = Slot(state, {thread: name})
        self.touched.add(thread)

    @rule(
        thread=st.sampled_from(DICT_THREADS),
        handle=_handles,
        turns=st.lists(st.tuples(st.booleans(), _changes), min_size=1, max_size=4),
        name=_names,
        metadata=_metadata,
    )
    def save_dicts(
        self,
        thread: str,
        handle: int,
        turns: list[tuple[bool, str]],
        name: str | None,
        metadata: dict[str, Any] | None,
    ) -> None:
        for number, (deep, change) in enumerate(turns):
            fresh = [{"n": number, "t": "z" * 40} for number in self._fresh()]
            if deep:
                self.data = {**self.data, "deep": {"log": CHANGES[change](self.data["deep"]["log"], fresh)}}
            else:
                self.data = {**self.data, "items": CHANGES[change](self.data["items"], fresh), "large": "w" * 1_300}
            saved_as = self.dicts[handle ^ number % 2].save(thread, self.data, name, metadata)
            self.model[thread].save(saved_as, self.data, metadata, None)
        self.touched.add(thread)

    @rule(slot=_slots, thread=st.sampled_from(STATE_THREADS), handle=_handles, pick=_picks)
    def save_with_a_wrong_expectation(self, slot: int, thread: str, handle: int, pick: int) -> None:
        wrong = self._existing(thread, pick) or "never there"
        if wrong == self.model[thread].latest:
            wrong = "never there"
        with pytest.raises(ConflictError) as caught:
            self.states[handle].save(self.slots[slot].state, thread, if_latest=wrong)
        assert (caught.value.expected, caught.value.latest) == (wrong, self.model[thread].latest)
        self.touched.add(thread)

    @rule(thread=st.sampled_from(THREADS), handle=_handles, pick=_picks)
    def delete_a_checkpoint(self, thread: str, handle: int, pick: int) -> None:
        name = self._existing(thread, pick) or "never there"
        assert self.states[handle].delete(thread, name) == bool(self.model[thread].delete({name}))
        self.touched.add(thread)

    @rule(thread=st.sampled_from(THREADS), handle=_handles, sure=st.integers(0, 2))
    def delete_a_thread(self, thread: str, handle: int, sure: int) -> None:
        """Delete a thread, but not each time that this rule is chosen: otherwise threads would stay short."""
        if sure == 0:
            assert self.states[handle].delete(thread) == bool(self.model[thread].names)
            self.model[thread] = ModelThread()
            self.touched.add(thread)

    @precondition(lambda self: self.copies)
    @rule(
        route=st.sampled_from(ROUTES),
        handle=_handles,
        pick=_picks,
        whole=st.booleans(),
    )
    def copy_a_thread(self, route: tuple[str, str], handle: int, pick: int, whole: bool) -> None:
        source, dest = route
        name = None if whole else self._existing(source, pick) or "never there"
        possible = bool(self.model[source].names)
        try:
            assert self.states[handle].copy_thread(source, dest, name) == possible
        except ConflictError:
            assert self.model[dest].names
            assert possible
        else:
            assert not (possible and self.model[dest].names)
            self.model[dest] = self.model[source].copy(name) if possible else self.model[dest]
        self.touched |= {source, dest}

    @rule(handle=_handles, keep_last=st.integers(1, 4), sure=st.integers(0, 1))
    def vacuum(self, handle: int, keep_last: int, sure: int) -> None:
        if sure:
            counted = self.states[handle].vacuum(keep_last=keep_last, dry_run=True)
            removed = self.states[handle].vacuum(keep_last=keep_last)
            assert counted == removed == sum(model.vacuum(keep_last) for model in self.model.values())
            self.touched.update(self.model)

    @rule(
        thread=st.sampled_from(THREADS),
        handle=_handles,
        pick=_picks,
        task=st.sampled_from(["one", "two"]),
        values=st.lists(st.sampled_from([1, True, None, [1.0], {"a": "\0"}]), max_size=3),
    )
    def put_writes(self, thread: str, handle: int, pick: int, task: str, values: list[Any]) -> None:
        name = self._existing(thread, pick)
        if name is not None:
            self.states[handle].put_writes(thread, name, task, [("channel", value) for value in values])
            self.model[thread].put_writes(name, task, values)
            self.touched.add(thread)

    @invariant()
    def what_was_touched_agrees(self) -> None:
        for thread in sorted(self.touched):
            self._agree(thread)
        self.touched.clear()

    def _agree(self, thread: str) -> None:
        model, handle = self.model[thread], self.states[self.counter % 2]
        history = handle.history(thread, None)
        listed = [(entry.checkpoint_id, entry.parent_id, exact(entry.metadata)) for entry in history]
        assert listed == [(c.checkpoint_id, c.parent_id, exact(c.metadata)) for c in reversed(model.checkpoints)]
        assert handle.exists(thread) == bool(listed)
        assert (thread in handle.list_threads()) == bool(listed)
        self._agree_on_numbers(thread, history)
        for checkpoint in model.checkpoints:
            self._agree_on(thread, checkpoint.checkpoint_id)
        self._agree_on_latest(thread)

    def _agree_on_numbers(self, thread: str, history: Sequence[HistoryEntry]) -> None:
        """Assert that numbers fall from the newest to the oldest, and are never used twice in a thread's life."""
        found = {entry.seq: entry.checkpoint_id for entry in history}
        assert list(found) == sorted(found, reverse=True)
        assert len(found) == len(history)
        given = self.seqs[thread] if found else {}
        fresh = {seq: name for seq, name in found.items() if given.get(seq) != name}
        assert not fresh or min(fresh) > max(given, default=0)
        self.seqs[thread] = given | found if found else {}

    def _agree_on(self, thread: str, name: str) -> None:
        expected, which = self.model[thread].find(name), self.counter % 2
        assert expected is not None
        if thread.startswith("s"):
            state = present(self.states[which].load(thread, name))
            assert exact(state.to_checkpoint()) == expected.payload
        else:
            assert exact(self.dicts[which].load(thread, name)) == expected.payload
        writes = self.states[which].get_writes(thread, name)
        listed = [[write.task_id, write.idx, write.value] for write in writes]
        assert exact(listed) == exact([[*key, value] for key, value in sorted(expected.writes.items(), key=_by_key)])

    def _agree_on_latest(self, thread: str) -> None:
        """Assert that both handles load the latest, although each holds only what it has seen itself."""
        expected = self.model[thread].checkpoints[-1].payload if self.model[thread].checkpoints else exact(None)
        for states, backend in zip(self.states, self.dicts, strict=True):
            if thread.startswith("s"):
                state = states.load(thread)
                assert exact(None if state is None else state.to_checkpoint()) == expected
            else:
                assert exact(backend.load(thread)) == expected

    def teardown(self) -> None:
        try:
            for thread in self.model:
                self._agree(thread)
        finally:
            for thread in self.model:
                self.states[0].delete(thread)


def _by_key(item: tuple[tuple[str, int], Any]) -> tuple[str, int]:
    return item[0]


class StatefulLaws(Laws):
    """A store agrees with a plain model after any sequence of saves, loads, deletions, copies and vacuums."""

    examples_and_steps: ClassVar[tuple[int, int]] = (30, 30)
    """The number of random sequences of events, and their length."""

    def test_any_course_of_events_agrees_with_a_plain_model(self, open_handle: OpenHandle) -> None:
        handles, copies = [open_handle(), open_handle()], self.required.branching

        class Machine(ThreadsMachine):
            def __init__(self) -> None:
                super().__init__(handles, copies)

        run_state_machine_as_test(Machine, settings=budget(*self.examples_and_steps))
