"""Shared commits: of saves of many threads at once, each gets its own answer, as if it had been alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, ClassVar

import pytest

from locus.core.state import AgentState
from locus.errors import CheckpointNotFoundError, ConflictError
from locus.memory.checkpointer import Checkpointer
from locus.memory.engine import CommitsTogether, Engine, KeepsWrites
from locus.memory.model.payloads import dict_from, dict_payload
from locus.memory.model.plan import Planner
from locus.memory.model.records import (
    ANY,
    DEFAULT_NAMESPACE,
    Base,
    Commit,
    Outcome,
    TaskWrites,
    Verdict,
    Write,
    writes_order,
)
from locus.memory.model.trace import Trace
from locus.memory.together import send_alone
from locus.testing.data import SOAK, conversation, message
from locus.testing.laws.base import Laws, OpenHandle, assert_same_state, dicts, ids, present

_BEGUN = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
_LARGE = "so long that it is kept beside the head " * 40


class SharedCommitLaws(Laws):
    """A save that shares a commit of the database with others is not affected by them."""

    commits_together: ClassVar[bool | None] = None
    """True if saves that are sent at the same time share a commit; None: if the engine is able to."""

    in_order: ClassVar[bool] = True
    """False if saves that are sent at the same time are sent by several OS threads, which have no order."""

    together: ClassVar[int] = 24
    """The number of saves that are sent at once."""

    def _shares(self, checkpointer: Checkpointer) -> bool:
        offered = checkpointer.store.engine.offers(CommitsTogether)
        assert offered == self.commits_together or self.commits_together is None
        return offered

    async def test_saves_of_many_threads_at_once_all_come_back(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        names = list(self.other_ids)[: self.together]

        async def converse(number: int, thread_id: str) -> tuple[list[str], AgentState]:
            state, saved = AgentState(agent_id=f"agent {number}"), list[str]()
            for turn in range(3):
                state = state.with_messages(conversation(2, number * 100 + turn)).with_metadata("n", _LARGE[turn:])
                saved.append(await checkpointer.save(state, thread_id, metadata={"turn": turn}))
            return saved, state

        done = await asyncio.gather(*(converse(number, name) for number, name in enumerate(names)))
        for handle in (checkpointer, open_handle()):
            for thread_id, (saved, state) in zip(names, done, strict=True):
                assert_same_state(await handle.load(thread_id), state)
                history = await handle.history(thread_id, None)
                assert [entry.checkpoint_id for entry in history] == saved[::-1]
                assert [entry.parent_id for entry in history] == [*saved[-2::-1], None]

    async def test_each_of_many_at_once_has_a_verdict_of_its_own(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """Refusals, replacements and stale bases are mixed with ordinary saves."""
        base = AgentState().with_messages(conversation(3)).with_metadata("large", _LARGE)
        names = [f"{kind} {number}" for number in range(2) for kind in _KINDS]
        threads = [*names, *list(self.other_ids)[: self.together - len(names)]]
        await asyncio.gather(*(checkpointer.save(base, name, "first") for name in threads))
        other = open_handle()
        for name in threads:
            if name.startswith("stale"):
                await other.delete(name)
        grown = {
            name: base if name.startswith("repeated") else base.with_message(message(number))
            for number, name in enumerate(threads)
        }
        answers = await asyncio.gather(
            *(_KINDS.get(name.partition(" ")[0], _ordinary)(checkpointer, grown[name], name) for name in threads),
            return_exceptions=True,
        )
        reader = open_handle()
        for name, answer in zip(threads, answers, strict=True):
            kind, listed = name.partition(" ")[0], await ids(reader, name)
            if kind == "conflict":
                assert isinstance(answer, ConflictError), answer
                assert (answer.expected, answer.latest) == ("elsewhere", "first")
            elif kind == "orphan":
                assert isinstance(answer, CheckpointNotFoundError), answer
            elif kind == "repeated":
                assert answer == "first"
            elif kind == "writes":
                assert [write.value for write in await reader.get_writes(name, "first")] == [[name], _LARGE]
            if kind in ("conflict", "orphan", "repeated", "writes"):
                assert listed == ["first"], name
                assert_same_state(await reader.load(name), base)
                continue
            assert isinstance(answer, str), answer
            expected = [answer] if kind in ("stale", "replaced") else [answer, "first"]
            assert listed == expected, f"{name}: {listed} are listed"
            assert_same_state(await reader.load(name), grown[name])

    async def test_saves_of_one_thread_at_once_all_survive_in_their_order(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        others = {f"other {number}": AgentState().with_messages(conversation(3)) for number in range(6)}
        base = AgentState().with_messages(conversation(3))
        # Each state knows what it is stored as, so none has to look that up before it is sent.
        for name, state in {**others, "t": base}.items():
            await checkpointer.save(state, name, "first")
        states = [base.with_message(message(number)) for number in range(8)]
        sent = [checkpointer.save(state, "t", f"c{number}") for number, state in enumerate(states)]
        beside = [checkpointer.save(state.with_message(message(50)), name, "c") for name, state in others.items()]
        await asyncio.gather(*sent[:3], *beside, *sent[3:])
        reader = open_handle()
        for name in others:
            assert await ids(reader, name) == ["c", "first"]
        listed = await ids(reader, "t")
        expected = [f"c{number}" for number in reversed(range(8))]
        ordered = self._shares(checkpointer) and self.in_order
        assert listed == [*expected, "first"] or (not ordered and set(listed) > set(expected))
        for name, state in zip(reversed(expected), states, strict=True):
            assert_same_state(await reader.load("t", name), state)

    async def test_cancelled_saves_are_there_wholly_or_not_at_all(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """Some saves are cancelled before they are sent and some on their way. Their neighbours don't notice."""
        states = {f"t{n}": AgentState().with_messages(conversation(3, n)) for n in range(self.together)}
        await checkpointer.save(AgentState(), "warm")
        tasks = {name: asyncio.create_task(checkpointer.save(state, name)) for name, state in states.items()}
        doomed = list(tasks)[::3]
        for number, name in enumerate(doomed):
            if number % 2:
                await asyncio.sleep(0)
            tasks[name].cancel()
        answers = await asyncio.gather(*tasks.values(), return_exceptions=True)
        await checkpointer.close()  # waits for what is on its way
        reader = open_handle()
        for (name, state), answer in zip(states.items(), answers, strict=True):
            listed = await ids(reader, name)
            if isinstance(answer, asyncio.CancelledError):
                assert name in doomed
                assert len(listed) <= 1
            else:
                assert listed == [answer], answer
            if listed:
                assert_same_state(await reader.load(name), state)
            longer = state.with_message(message(90))
            await reader.save(longer, name)
            assert_same_state(await reader.load(name), longer)

    @pytest.mark.parametrize("seed", range(100) if SOAK else (2, 48))
    async def test_a_group_is_answered_as_its_members_one_by_one(self, checkpointer: Checkpointer, seed: int) -> None:
        """Two sets of threads get equal saves, in groups and one by one."""
        async with checkpointer.store.using() as engine:
            if not self._shares(checkpointer):
                return
            assert isinstance(engine, CommitsTogether)
            course, verdicts = _Course(Random(seed)), set[Verdict]()
            for _ in range(9):
                group = course.group()
                outcomes = await engine.commit_together([_on("grouped", member) for member in group])
                assert len(outcomes) == len(group)
                for member, outcome in zip(group, outcomes, strict=True):
                    # None says that nothing was done, because the thread was held; here that can't last.
                    answer = outcome or await send_alone(engine, _on("grouped", member))
                    expected = await send_alone(engine, _on("alone", member))
                    assert _told(answer) == _told(expected), member
                    verdicts.add(answer.verdict)
                    if answer.is_written:
                        course.note(member)
            assert verdicts == set(Verdict) or SOAK
            for thread in course.threads:
                grouped, alone = [await _content(engine, f"{side} {thread}") for side in ("grouped", "alone")]
                assert grouped == alone

    async def test_the_contents_of_a_group_are_there_when_it_is_answered(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        if not self._shares(checkpointer):
            return
        reader = open_handle()
        async with checkpointer.store.using() as engine, reader.store.using() as another:
            assert isinstance(engine, CommitsTogether)
            course = _Course(Random(99))
            for _ in range(3):
                group = course.group()
                outcomes = await engine.commit_together([_on("grouped", member) for member in group])
                for member, outcome in zip(group, outcomes, strict=True):
                    if outcome is None or not outcome.is_written or isinstance(member, TaskWrites):
                        continue
                    course.note(member)
                    entry = await another.entry(f"grouped {member.thread_id}", member.namespace, member.checkpoint_id)
                    assert entry is not None
                    assert (entry.rev, entry.seq, entry.parent_id) == (member.rev, outcome.seq, outcome.parent_id)


Saving = Callable[[Checkpointer, AgentState, str], Awaitable[Any]]


def _ordinary(handle: Checkpointer, state: AgentState, name: str) -> Awaitable[str]:
    return handle.save(state, name)


_KINDS: dict[str, Saving] = {
    "conflict": lambda handle, state, name: handle.save(state, name, if_latest="elsewhere"),
    "expected": lambda handle, state, name: handle.save(state, name, if_latest="first"),
    "orphan": lambda handle, state, name: handle.save(state, name, parent="never there"),
    "repeated": lambda handle, state, name: handle.save(
        AgentState.from_checkpoint(state.to_checkpoint()), name, "first"
    ),
    "replaced": lambda handle, state, name: handle.save(state, name, "first"),
    "stale": _ordinary,
    "writes": lambda handle, _, name: handle.put_writes(name, "first", "task", [("x", [name]), ("y", _LARGE)]),
    "dict": lambda handle, state, name: dicts(handle).save(name, state.to_checkpoint()),
}


class _Course:
    """Random groups of commits for some threads: ordinary saves, conflicts, stale bases and replacements."""

    threads = ("a", "a ", "'b'", "%c", "d/../e", "\0f😀")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._number = 0
        self._kept: dict[str, list[tuple[Commit, Trace, dict[str, Any]]]] = {thread: [] for thread in self.threads}
        self._drawn: dict[str, tuple[Trace, dict[str, Any]]] = {}

    def group(self) -> list[Commit | TaskWrites]:
        count = self._random.randrange(2, len(self.threads) + 1)
        return [self._member(thread) for thread in self._random.sample(self.threads, count)]

    def note(self, member: Commit | TaskWrites) -> None:
        """Remember that a commit, or the writes of a task, reached the database."""
        if isinstance(member, Commit):
            kept = self._kept[member.thread_id]
            kept[:] = [one for one in kept if one[0].checkpoint_id != member.checkpoint_id]
            kept.append((member, *self._drawn[member.rev]))

    def _member(self, thread: str) -> Commit | TaskWrites:
        kept, random = self._kept[thread], self._random
        self._number += 1
        if random.randrange(5) == 0:
            write = Write("task", "p", random.choice((0, 1, -1)), "channel", f'"{self._number} \\u00e9"')
            return TaskWrites(thread, DEFAULT_NAMESPACE, "c", "task", (write,), random.randrange(2) == 0)
        latest = kept[-1] if kept else None
        commit = self._commit(thread, latest)
        if latest is None:
            odd = {"if_latest": "elsewhere"}, {"base": Base("gone", "x" * 24)}, {"parent_id": "gone"}
            return replace(commit, **random.choice(odd), parent_required=True) if random.randrange(3) == 0 else commit
        older, newest = random.choice(kept)[0], latest[0]
        match random.randrange(10):
            case 0:
                return replace(commit, if_latest=random.choice((newest.checkpoint_id, "elsewhere", None)))
            case 1:
                return replace(commit, base=Base(newest.checkpoint_id, "x" * 24))
            case 2:
                return self._commit(thread, random.choice(kept))  # its branch has most likely gone on
            case 3:
                return replace(commit, parent_id=random.choice((older.checkpoint_id, "gone")), parent_required=True)
            case 4:
                return replace(commit, checkpoint_id=older.checkpoint_id, fresh_id=False)
            case 5:
                return replace(
                    commit,
                    checkpoint_id=older.checkpoint_id,
                    fresh_id=False,
                    replaces=older.rev,
                    base=Base(older.checkpoint_id, older.rev),
                )
            case 6:
                return replace(newest, fresh_id=False)  # the answer was lost
            case _:
                return commit

    def _commit(self, thread: str, base: tuple[Commit, Trace, dict[str, Any]] | None) -> Commit:
        rev = f"{self._number:024}"
        payload = {} if base is None else base[2]
        items = [*payload.get("items", ()), *({"n": self._number, "i": index} for index in range(3))]
        payload = {**payload, "items": items, "number": self._number, "large": _LARGE[self._number % 3 :]}
        trace = base[1] if base else None
        plan = Planner(rev, trace, own_branches=False).plan(dict_payload(payload))
        named = self._number % 4 == 0
        commit = Commit(
            thread,
            DEFAULT_NAMESPACE,
            f"named {self._number}" if named else rev,
            rev,
            _BEGUN + timedelta(seconds=self._number),
            f'{{"k":{self._number % 3}}}',
            plan.head,
            plan.manifest,
            plan.runs,
            plan.values,
            base=trace.base if trace else None,
            parent_id=trace.base.checkpoint_id if trace else ANY,
            fresh_id=not named,
        )
        self._drawn[rev] = Trace(Base(commit.checkpoint_id, rev), plan.fields), payload
        return commit


def _on(side: str, member: Commit | TaskWrites) -> Commit | TaskWrites:
    return replace(member, thread_id=f"{side} {member.thread_id}")


def _told(outcome: Outcome) -> tuple[Any, ...]:
    """The part of an outcome that a commit alone and one together with others have in common: all but the number."""
    replaced = outcome.replaced and (outcome.replaced.checkpoint_id, outcome.replaced.rev)
    if outcome.verdict is not Verdict.COMMITTED:
        return outcome.verdict, outcome.latest
    return outcome.verdict, outcome.parent_id, outcome.repeated, replaced


async def _content(engine: Engine, thread_id: str) -> list[Any]:
    """Everything that a thread holds, without its id."""
    assert isinstance(engine, KeepsWrites)
    content: list[Any] = [sorted(await engine.get_writes(thread_id, DEFAULT_NAMESPACE, "c", None), key=writes_order)]
    for entry in await engine.history(thread_id, None, None, None):
        stored = present(await engine.read(thread_id, DEFAULT_NAMESPACE, entry.checkpoint_id))
        assert stored.entry == entry
        named = (entry.checkpoint_id, entry.rev, entry.parent_id, entry.created_at, entry.metadata)
        content.append((named, dict_from(stored)))
    return content
