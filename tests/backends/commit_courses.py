"""Courses of commits, deletions and copies, carried out by an engine and by a plain model that asks `decide`.

The model has lists and no shortcut. An engine has to answer every commit as `decide` does on what the model holds, and
to show the same checkpoints in the end. Most courses are random. What they do next depends on what there is: most
commits are ordinary ones with one thing about them that is not, because that is what the conditions of a shortcut have
to notice. What chance hardly ever brings about is directed (see `DIRECTED`).

A run has two items at most here, so that a save that adds three brings several runs of a branch.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from typing import Any, NamedTuple, TypeVar

import pytest

from locus.memory.backends.sql.engine import SQLServerEngine
from locus.memory.engine import CommitsTogether, Copies, Engine, Expires, KeepsWrites
from locus.memory.model import plan as planning
from locus.memory.model.codec import canonical, decode
from locus.memory.model.commit_rules import contested_runs, decide
from locus.memory.model.manifest import wanted
from locus.memory.model.payloads import dict_from, dict_payload
from locus.memory.model.plan import Plan, Planner
from locus.memory.model.records import (
    ANY,
    Base,
    Commit,
    Entry,
    Known,
    Outcome,
    RunInfo,
    TaskWrites,
    Unset,
    Verdict,
    Write,
)
from locus.memory.model.retention import Listed, ancestors, new_parents, unneeded_runs
from locus.memory.model.trace import FieldTrace, Trace
from tests.backends.sql.lost_saves import alter

T = TypeVar("T")
Payload = dict[str, Any]

BEGUN = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
NAMESPACES = ("", "side")
IDS = ("c0", "c1")
SOON = timedelta(milliseconds=10)
LARGE = tuple(f"{letter} and so on, at such a length that it is kept once. " * 24 for letter in "AB")

_names = count()


def _plan(rev: str, trace: Trace | None, own_branches: bool, payload: Payload) -> Plan:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "MOST_ITEMS", 2)
        return Planner(rev, trace, own_branches=own_branches).plan(dict_payload(payload))


class DifferenceFound(AssertionError):
    """An engine did not do what the model did; says what led there."""


@dataclass(frozen=True)
class Traits:
    """What an engine may do in its own way."""

    counts: bool = True
    """Whether sequence numbers are 1, 2, 3…; else they only grow."""
    forgets_runs: bool = True
    """Whether the number of a run that was removed is free again; else it is never given out again."""
    sure_of_branches: bool = True
    """Whether a branch is said to be taken only where it is. If not, it may be said of one that goes on, but for the
    run that follows one which the latest checkpoint brought: the save comes again then, on a branch of its own."""


@dataclass(frozen=True)
class Kept:
    """A checkpoint of the model."""

    entry: Entry
    manifest: str
    payload: Payload
    fields: Mapping[str, FieldTrace]
    brought: frozenset[tuple[str, int]]
    """The runs that came with it."""

    @property
    def base(self) -> Base:
        return Base(self.entry.checkpoint_id, self.entry.rev)

    @property
    def known(self) -> Known:
        return Known(self.entry.checkpoint_id, self.entry.seq, self.entry.rev, self.entry.parent_id)


@dataclass(frozen=True)
class Save:
    """A commit, and what it stands for."""

    commit: Commit
    payload: Payload
    fields: Mapping[str, FieldTrace]

    def again(self) -> Save:
        """What is sent again is no longer known to be the first of its id."""
        return replace(self, commit=replace(self.commit, fresh_id=False))

    def kept(self, outcome: Outcome) -> Kept:
        commit = self.commit
        entry = Entry(
            commit.thread_id,
            commit.namespace,
            commit.checkpoint_id,
            outcome.parent_id,
            outcome.seq,
            commit.rev,
            commit.created_at,
            commit.metadata,
        )
        return Kept(entry, commit.manifest, self.payload, self.fields, frozenset(run[:2] for run in commit.runs))


class Thread:
    """A thread of the model, as `decide` sees it."""

    def __init__(self, forgets_runs: bool) -> None:
        self.last_seq = 0
        self.expires_at: datetime | None = None
        self.kept: list[Kept] = []
        self._runs: set[RunInfo] = set()
        self._forgets_runs = forgets_runs
        self._given_out: set[tuple[str, int]] = set()

    def of(self, namespace: str) -> list[Kept]:
        return [kept for kept in self.kept if kept.entry.namespace == namespace]

    def find(self, namespace: str, checkpoint_id: str) -> Known | None:
        found = [kept for kept in self.of(namespace) if kept.entry.checkpoint_id == checkpoint_id]
        return found[0].known if found else None

    def latest(self, namespace: str) -> Known | None:
        found = self.of(namespace)
        return found[-1].known if found else None

    def awaited(self, namespace: str) -> list[str]:
        """Parents that were named, and are not there."""
        named = [kept.entry.parent_id for kept in self.of(namespace)]
        return [parent_id for parent_id in named if parent_id and self.find(namespace, parent_id) is None]

    def has_run(self, branch: str, number: int) -> bool:
        there = {run[:2] for run in self._runs} if self._forgets_runs else self._given_out
        return any(name == branch and taken >= number for name, taken in there)

    def has_continued(self, commit: Commit) -> bool:
        """Whether there is more on a branch that this commit opened."""
        opened = {run.branch for run in commit.runs if run.number == 0}
        newest = {run.branch: run.number for run in commit.runs}
        return any(self.has_run(branch, newest[branch] + 1) for branch in opened)

    def add(self, save: Save, outcome: Outcome) -> None:
        commit = save.commit
        names = {run[:2] for run in self._runs}
        self._add_runs([RunInfo(*run[:4]) for run in (*commit.runs, *commit.values) if run[:2] not in names])
        if outcome.replaced is not None:
            self._remove({outcome.replaced.seq})
        self.kept.append(save.kept(outcome))
        self.last_seq = outcome.seq
        if outcome.replaced is not None:
            self._drop_unneeded()

    def remove(self, doomed: Collection[int]) -> None:
        self._remove(doomed)
        self._drop_unneeded()

    def exchange(self, lost: Kept, found: Entry) -> None:
        """What was saved is another checkpoint now."""
        self.kept = [replace(kept, entry=found) if kept == lost else kept for kept in self.kept]

    def chosen(self, namespace: str | None, seqs: Mapping[int, str] | None) -> set[int]:
        return {
            kept.entry.seq
            for kept in self.kept
            if namespace in (None, kept.entry.namespace)
            and (seqs is None or seqs.get(kept.entry.seq) == kept.entry.rev)
        }

    def copied(self, dest: str, which: Listed | None) -> Thread:
        copy = Thread(self._forgets_runs)
        copy.last_seq, copy.expires_at = self.last_seq, self.expires_at
        copy.kept = [
            replace(kept, entry=replace(kept.entry, thread_id=dest))
            for kept in self.kept
            if which is None
            or (kept.entry.namespace == which.namespace and kept.entry.checkpoint_id in which.checkpoint_ids)
        ]
        copy._runs = set(self._runs)
        copy._drop_unneeded()
        copy._given_out = {run[:2] for run in copy._runs}
        return copy

    def _add_runs(self, runs: Collection[RunInfo]) -> None:
        self._runs.update(runs)
        self._given_out.update(run[:2] for run in runs)

    def _remove(self, doomed: Collection[int]) -> None:
        parents = new_parents([kept.entry for kept in self.kept], doomed)
        left = [kept for kept in self.kept if kept.entry.seq not in doomed]
        self.kept = [
            replace(kept, entry=replace(kept.entry, parent_id=parents.get(kept.entry.seq, kept.entry.parent_id)))
            for kept in left
        ]

    def _drop_unneeded(self) -> None:
        extents = [extent for kept in self.kept for extent in wanted(kept.manifest)]
        self._runs -= set(unneeded_runs(extents, self._runs))


class Model:
    """All threads of a course. It does at once what an engine is asked to do."""

    def __init__(self, traits: Traits) -> None:
        self._traits = traits
        self._threads: dict[str, Thread] = {}

    def thread(self, thread_id: str) -> Thread:
        return self._threads.get(thread_id) or Thread(self._traits.forgets_runs)

    def decided(self, commit: Commit) -> Outcome:
        return decide(commit, self.thread(commit.thread_id))

    def write(self, save: Save, outcome: Outcome) -> None:
        if outcome.verdict is not Verdict.COMMITTED or outcome.repeated:
            return
        thread_id = save.commit.thread_id
        thread = self._threads[thread_id] = self.thread(thread_id)
        thread.add(save, outcome)
        thread.expires_at = save.commit.expires_at
        self.expire()

    def expire(self) -> None:
        """Remove what has ended."""
        now = datetime.now(UTC)
        for thread_id, thread in list(self._threads.items()):
            if thread.expires_at is not None and thread.expires_at <= now:
                del self._threads[thread_id]

    def ends_soon(self) -> datetime | None:
        """When the thread ends that is to end soon."""
        soon = datetime.now(UTC) + SOON
        ends = [thread.expires_at for thread in self._threads.values() if thread.expires_at is not None]
        return min((end for end in ends if end <= soon), default=None)

    def may_be_taken(self, commit: Commit) -> bool:
        """Whether an engine that is not sure may say that a branch has gone on."""
        latest = self.thread(commit.thread_id).of(commit.namespace)[-1:]
        brought = latest[0].brought if latest and latest[0].base == commit.base else frozenset()
        return any(run.number and (run.branch, run.number - 1) not in brought for run in contested_runs(commit))

    def delete(self, thread_id: str, namespace: str | None, seqs: Mapping[int, str] | None) -> int:
        thread = self.thread(thread_id)
        doomed = thread.chosen(namespace, seqs)
        if len(doomed) == len(thread.kept):
            self._threads.pop(thread_id, None)
        elif doomed:
            thread.remove(doomed)
        return len(doomed)

    def copy(self, source: str, dest: str, copied: Listed | None) -> int:
        copy = self.thread(source).copied(dest, copied)
        if not copy.kept:
            return 0
        if self.thread(dest).kept:
            return -1
        self._threads[dest] = copy
        return len(copy.kept)


class Dice:
    """Chance. Each step has a seed of its own, so that it stays much the same if others are left out."""

    def __init__(self) -> None:
        self._random = Random(0)

    def take_up(self, seed: int) -> None:
        self._random = Random(seed)

    def pick(self, options: Sequence[T]) -> T:
        return options[self._random.randrange(len(options))]

    def rarely(self, times: int) -> bool:
        """Once in so many times."""
        return self._random.randrange(times) == times - 1

    def below(self, number: int) -> int:
        return self._random.randrange(number)


STEPS = 30
"""How many a course has."""


def seeds_of(course: int) -> list[int]:
    """The steps of a course, by its number."""
    return [course * STEPS + step for step in range(STEPS)]


def shortened(seeds: list[int], tried: Callable[[list[int]], DifferenceFound | None]) -> DifferenceFound | None:
    """The difference that is found when all steps are left out that it can be found without.

    Hypothesis could do that, too, but most of what it tries is nearly the same as what it has tried before.
    """
    found = tried(seeds)
    size = len(seeds) // 2 if found else 0
    while size:
        for start in range(len(seeds) - size, -1, -size):
            fewer = seeds[:start] + seeds[start + size :]
            again = tried(fewer)
            if again:
                seeds, found = fewer, again
        size //= 2
    return found


ASPECTS = ("id", "base", "base", "parent", "parent", "latest", "latest", "replaces", "branches", "expiry")
"""What may be out of the ordinary about a commit. A replacement and a fork have a few things in common."""


class Saves:
    """Draws commits: ordinary ones, and others."""

    def __init__(self, dice: Dice, model: Model, expires: bool) -> None:
        self._dice = dice
        self._model = model
        self._expires = expires
        self._revs = count()
        self._items = count()
        self._course = next(_names)
        self.made: list[Kept] = []
        """All checkpoints that there ever were."""

    def drawn(self, thread_id: str, odd: Collection[str] | None = None, base: Kept | None = None) -> Save:
        """`odd` says what is out of the ordinary about it, and `base` what it builds on, if that is not to be drawn."""
        dice = self._dice
        odd = self._odd() if odd is None else set(odd)
        namespace = base.entry.namespace if base else dice.pick(("", *NAMESPACES))
        thread = self._model.thread(thread_id)
        rev = self._rev()
        awaited = thread.awaited(namespace)
        fresh = not odd & {"id", "replacement"} and not dice.rarely(2 if awaited else 5)
        checkpoint_id = rev if fresh else self._id(thread, namespace, odd)
        origin = base or self._origin(thread_id, namespace, odd)
        named = origin.base if origin else None
        parent_id, required, as_named = self._parent(thread_id, namespace, checkpoint_id, named, odd)
        before = origin.payload if origin else {}
        payload = before if "return" in odd else self._payload(before, "append" in odd)
        trace = Trace(origin.base, origin.fields) if origin else None
        plan = _plan(rev, trace, "branches" in odd, payload)
        commit = Commit(
            thread_id,
            namespace,
            checkpoint_id,
            rev,
            self._created_at(rev),
            dice.pick(("{}", '{"k":1}')),
            plan.head,
            plan.manifest,
            plan.runs,
            plan.values,
            named,
            parent_id,
            required,
            as_named,
            self._if_latest(thread_id, namespace, named, odd),
            self._replaces(thread, namespace, checkpoint_id, odd),
            fresh,
            self._expiry(odd),
        )
        return Save(commit, payload, plan.fields)

    def told(
        self, thread_id: str, payload: Payload, base: Kept | None, own_branches: bool, rev: str = "", **terms: Any
    ) -> Save:
        """One that is not drawn: ordinary, but for these terms of the commit."""
        rev = rev or self._rev()
        trace = Trace(base.base, base.fields) if base else None
        plan = _plan(rev, trace, own_branches, payload)
        usual = {
            "namespace": base.entry.namespace if base else "",
            "checkpoint_id": rev,
            "base": base.base if base else None,
            "parent_id": base.entry.checkpoint_id if base else ANY,
            "fresh_id": "checkpoint_id" not in terms,
        }
        commit = Commit(
            thread_id,
            rev=rev,
            created_at=self._created_at(rev),
            metadata="{}",
            head=plan.head,
            manifest=plan.manifest,
            runs=plan.runs,
            values=plan.values,
            **(usual | terms),
        )
        return Save(commit, payload, plan.fields)

    def another_rev(self) -> str:
        """Of what somebody else has saved."""
        return self._rev()

    def _rev(self) -> str:
        return f"r{self._course:04x}{next(self._revs):04x}"

    def _created_at(self, rev: str) -> datetime:
        return BEGUN + timedelta(seconds=self._course * 1_000 + int(rev[5:], 16))

    def lasting(self, thread_id: str, odd: Collection[str] | None = None, base: Kept | None = None) -> Save:
        """One that does not let its thread end soon: nobody knows what will be first, the end or what comes next."""
        save = self.drawn(thread_id, odd, base)
        return replace(save, commit=replace(save.commit, expires_at=None))

    def _odd(self) -> set[str]:
        match self._dice.pick(("ordinary", "ordinary", "replacement", "fork", "fork", *["one"] * 3, "two", "any")):
            case "one":
                return {self._dice.pick(ASPECTS)}
            case "two":
                return {self._dice.pick(ASPECTS), self._dice.pick(ASPECTS)}
            case "any":
                return {aspect for aspect in ASPECTS if self._dice.rarely(3)}
            case kind:
                return {kind}

    def _id(self, thread: Thread, namespace: str, odd: Collection[str]) -> str:
        """An id of the caller's."""
        there = [kept.entry.checkpoint_id for kept in thread.of(namespace)]
        if "replacement" in odd and there:
            return self._dice.pick(there[-3:])
        return self._dice.pick([*IDS, *thread.awaited(namespace) * 3])

    def _others(self, thread_id: str, namespace: str) -> list[Kept]:
        """What does not belong here: of another thread, of another namespace, or no longer there."""
        there = {kept.entry.rev for kept in self._model.thread(thread_id).of(namespace)}
        return [kept for kept in self.made[-20:] if kept.entry.rev not in there]

    def _origin(self, thread_id: str, namespace: str, odd: Collection[str]) -> Kept | None:
        """The checkpoint that the commit is a delta of."""
        there = self._model.thread(thread_id).of(namespace)
        if "whole" in odd:
            return None
        if "fork" in odd and there:
            return self._dice.pick(there)
        if "replacement" in odd and there:
            return self._dice.pick([*there[-3:], None])
        other = self._others(thread_id, namespace)
        gone = [kept for kept in other if (kept.entry.thread_id, kept.entry.namespace) == (thread_id, namespace)]
        if "base" not in odd:
            # Whoever saves next may not know that everything was deleted.
            latest = there or (gone if self._dice.rarely(3) else [])
            return latest[-1] if latest else None
        # One that had the id of one that is there is the hardest to tell from it.
        names = {kept.entry.checkpoint_id for kept in there}
        alike = [kept for kept in other if kept.entry.checkpoint_id in names]
        # So is the checkpoint that was saved last, if that was in another namespace.
        last = [kept for kept in self._model.thread(thread_id).kept[-1:] if kept.entry.namespace != namespace]
        choice = self._dice.pick([there[:-1], alike or gone, gone[-3:], last or gone[-3:], other, []])
        return self._dice.pick(choice) if choice else None

    def _parent(
        self, thread_id: str, namespace: str, checkpoint_id: str, base: Base | None, odd: Collection[str]
    ) -> tuple[str | None | Unset, bool, bool]:
        dice = self._dice
        usual = base.checkpoint_id if base else ANY
        if "replacement" in odd:
            return dice.pick((usual, ANY, checkpoint_id, checkpoint_id, "nobody")), False, dice.rarely(4)
        if "parent" not in odd:
            return dice.pick((usual, usual, ANY)), False, False
        there = [kept.entry.checkpoint_id for kept in self._model.thread(thread_id).of(namespace)]
        other = [kept.entry.checkpoint_id for kept in self._others(thread_id, namespace)]
        named = dice.pick(
            [usual, ANY, None, None, *["nobody"] * 3, *[checkpoint_id] * 3, *there[-3:], *other[-3:], *IDS]
        )
        if dice.rarely(3):
            return dice.pick((named, *IDS)), dice.rarely(2), True
        return named, dice.rarely(2), False

    def _if_latest(self, thread_id: str, namespace: str, base: Base | None, odd: Collection[str]) -> str | None | Unset:
        dice, thread = self._dice, self._model.thread(thread_id)
        latest = thread.latest(namespace)
        right = latest.checkpoint_id if latest else None
        followed = base.checkpoint_id if base else right
        if "latest" not in odd:
            # Who builds on something that is not there may take that for the latest.
            return dice.pick((ANY, followed) if "base" in odd else (ANY, ANY, ANY, right, right, followed))
        there = [kept.entry.checkpoint_id for kept in thread.kept]
        return dice.pick((None, None, right, base.checkpoint_id if base else None, "nobody", "nobody", *there[-3:]))

    def _replaces(self, thread: Thread, namespace: str, checkpoint_id: str, odd: Collection[str]) -> str | None:
        same = thread.find(namespace, checkpoint_id)
        right = same.rev if same else None
        if "replaces" not in odd:
            return self._dice.pick((right, right, right, None))
        return self._dice.pick([None, "nothing", *(kept.entry.rev for kept in self.made[-4:])])

    def _expiry(self, odd: Collection[str]) -> datetime | None:
        if "expiry" not in odd or not self._expires:
            return None
        day = timedelta(days=1)
        return datetime.now(UTC) + self._dice.pick((day, day, -day, SOON))

    def _payload(self, before: Payload, append: bool) -> Payload:
        """Mostly one list with something at its end; nothing but that with `append`."""
        dice = self._dice
        if append:
            return {**before, "a": [*before.get("a", []), {"n": next(self._items)}]}
        payload: Payload = {"a": list(before.get("a", [])), "b": list(before.get("b", []))}
        for name in ("a", "b") if dice.rarely(3) else ("a",):
            payload[name] = self._edited(payload[name])
        text = before.get("text") if not dice.rarely(4) else dice.pick((None, *LARGE))
        if text is not None:
            payload["text"] = text
        return payload

    def _edited(self, items: list[Any]) -> list[Any]:
        number = next(self._items)
        # Not drawn, so that the rest of the step is as it would be without it.
        fresh = [{"n": number}, *({"n": next(self._items)} for _ in range(2 * (number % 5 == 0)))]
        match self._dice.pick(("append", "append", "append", "edit", "cut", "trim", "keep")):
            case "append":
                return items + fresh
            case "edit":
                return items[:-1] + fresh
            case "cut":
                return items[: self._dice.below(len(items) + 1)] + fresh
            case "trim":
                return items[self._dice.below(len(items) + 1) :] + fresh
            case _:
                return items


Work = Callable[[], Awaitable[None]]
Overlap = Callable[[Engine, Work, Engine, Work], Awaitable[bool]]
"""Does two works, each with its handle, so that the first gets in the way of the second while that is under way.

Returns whether it did, so that all is as if it had been first; if not, as if the second had been first."""


async def one_after_another(_first: Engine, do_first: Work, _second: Engine, do_second: Work) -> bool:
    await do_first()
    await do_second()
    return True


class Step(NamedTuple):
    """Something that an engine is asked to do; `settle` lets the model do it, and compares the answers."""

    do: Callable[[Engine], Awaitable[Any]]
    settle: Callable[[Any], None]


PAIRS = (
    ("any", "any"),
    ("deletion", "ordinary"),
    ("deletion", "replacement"),
    *[("base", "replacement")] * 3,
    ("replacement", "fork"),
    ("ordinary", "ordinary"),
    ("parent", "ordinary"),
)
"""What is done at once: what is out of the ordinary about two saves. The first may be a deletion instead, or build on
what the second replaces."""

KINDS_OF_STEP = (
    "restore",
    *["save"] * 15,
    *["resend"] * 2,
    *["delete"] * 3,
    "copy",
    "copy",
    "writes",
    "return",
    "overlap",
    "overlap",
)


class Course:
    """One course on a few threads, by an engine (all handles are on the same data) and by the model."""

    def __init__(
        self,
        handles: Sequence[Engine],
        traits: Traits,
        overlap: Overlap = one_after_another,
        tally: Counter[str] | None = None,
        *,
        together: bool = False,
    ) -> None:
        """`together` sends every commit in a group."""
        self._dice = Dice()
        self._together = together
        self._handles = handles
        self._traits = traits
        self._overlap = overlap
        self._tally: Counter[str] = Counter() if tally is None else tally
        self._model = Model(traits)
        self.expires = isinstance(handles[0], Expires)
        self._saves = Saves(self._dice, self._model, self.expires)
        name = next(_names)
        self._threads = tuple(f"course {name} {letter}" for letter in "abc")
        self._numbers: dict[str, dict[int, int]] = {thread_id: {} for thread_id in self._threads}
        """What the engine calls the sequence numbers of the model."""
        self._sent: list[Save] = []
        self._told: list[str] = []

    async def run(self, seeds: Sequence[int]) -> None:
        """A random step for each seed."""
        with self._telling():
            for seed in seeds:
                self._dice.take_up(seed)
                await self._step()
            for thread_id in self._threads:
                await self._compare(thread_id)

    async def follow(self, name: str) -> None:
        """A directed course. It leaves nothing: another may depend on what threads there are."""
        with self._telling():
            await DIRECTED[name](self)
            for thread_id in dict.fromkeys(save.commit.thread_id for save in self._sent):
                await self._compare(thread_id)
                await self._do(self._removing(thread_id, None, None))

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise DifferenceFound("\n".join([*self._told, f"{type(error).__name__}: {error}"])) from error

    async def save(self, items: Sequence[int], base: Kept | None = None, **terms: Any) -> Kept:
        """A step of a directed course: a list with these items is saved."""
        await self._save_as_told(Verdict.COMMITTED, items, base, **terms)
        return self._saves.made[-1]

    async def refused(self, verdict: Verdict, items: Sequence[int], base: Kept | None = None, **terms: Any) -> None:
        """A step of a directed course: this is not saved."""
        await self._save_as_told(verdict, items, base, **terms)

    async def _save_as_told(
        self,
        verdict: Verdict,
        items: Sequence[int],
        base: Kept | None,
        *,
        thread: int = 0,
        handle: int = 0,
        own_branches: bool = False,
        **terms: Any,
    ) -> None:
        payload = {"a": [{"n": item} for item in items]}
        save = self._saves.told(self._threads[thread], payload, base, own_branches, **terms)
        assert self._model.decided(save.commit).verdict is verdict, "a directed course goes another way than it says"
        step = self._saving(save)
        step.settle(await step.do(self._handles[handle]))

    async def resend(self, kept: Kept, verdict: Verdict = Verdict.COMMITTED, *, handle: int = 0) -> None:
        """A step of a directed course: the save of a checkpoint is sent again."""
        save = next(save for save in self._sent if save.commit.rev == kept.entry.rev)
        assert self._model.decided(save.again().commit).verdict is verdict, "a directed course goes another way"
        step = self._saving(save.again())
        step.settle(await step.do(self._handles[handle]))

    async def remove(self, *kept: Kept, thread: int = 0, handle: int = 0) -> None:
        """A step of a directed course: these checkpoints are removed, or else the whole thread."""
        seqs = {one.entry.seq: one.entry.rev for one in kept} or None
        step = self._removing(self._threads[thread], None, seqs)
        step.settle(await step.do(self._handles[handle]))

    async def copy(self, source: int, dest: int) -> None:
        """A step of a directed course: all of a thread is copied."""
        assert await self._copy_to(self._handles[0], self._threads[source], self._threads[dest], None)

    @property
    def finds_all_branches(self) -> bool:
        return self._traits.sure_of_branches

    @property
    def loses(self) -> bool:
        """Whether the store can be changed behind the back of its handles, as a failover does that loses saves."""
        return isinstance(self._handles[0], SQLServerEngine)

    async def lose(self, kept: Kept) -> None:
        """A step of a directed course: a failover has lost this checkpoint, and another one got its id and number."""
        sql, entry, other = self._server.sql, kept.entry, self._saves.another_rev()
        of_thread = f"thread = (SELECT id FROM {sql.threads} WHERE thread_id = ?)"
        self._told.append(f"lose {entry}, and find {other!r} there")
        await alter(
            self._server,
            f"UPDATE {sql.checkpoints} SET rev = ? WHERE rev = ? AND {of_thread}",
            *(other, entry.rev, entry.thread_id),
        )
        self._model.thread(entry.thread_id).exchange(kept, replace(entry, rev=other))

    async def lose_thread(self, source: int, dest: int) -> None:
        """A step of a directed course: a failover has lost a thread, and another got its key, and holds the same."""
        lost, found, threads = self._threads[source], self._threads[dest], self._server.sql.threads
        self._told.append(f"lose {lost!r}, and find {found!r} there")
        await alter(self._server, f"UPDATE {threads} SET thread_id = ? WHERE thread_id = ?", found, lost)
        assert self._model.copy(lost, found, None) > 0
        self._model.delete(lost, None, None)
        self._numbers[found], self._numbers[lost] = self._numbers[lost], {}

    @property
    def _server(self) -> SQLServerEngine[Any]:
        engine = self._handles[0]
        assert isinstance(engine, SQLServerEngine)
        return engine

    @property
    def _engine(self) -> Engine:
        """Mostly the first handle: what it remembers of a thread is what a shortcut goes by. The last knows little."""
        return self._handles[self._dice.pick((0, 0, 0, 0, 0, 0, 1, 1, -1))]

    async def _step(self) -> None:
        dice = self._dice
        thread_id = dice.pick((*self._threads[:1] * 3, *self._threads))
        match dice.pick(KINDS_OF_STEP):
            case "resend" if self._sent:
                sent = dice.pick(self._removed() if dice.rarely(2) else self._sent[-6:])
                await self._do(self._saving(sent.again()))
            case "delete":
                await self._do(self._deleting(thread_id))
            case "copy":
                await self._copy(thread_id)
            case "writes":
                await self._put_writes(thread_id)
            case "return":
                await self._return(thread_id)
            case "restore":
                await self._restore(thread_id)
            case "overlap":
                await self._do_both(thread_id)
            case _ if self._together and dice.rarely(2):
                await self._do_together()
            case _:
                await self._do(self._saving(self._saves.drawn(thread_id)))

    async def _do_together(self) -> None:
        """A save of each thread, in one group."""
        saves = [self._saves.lasting(thread_id) for thread_id in self._threads]
        answers = await self._grouped(self._engine, [save.commit for save in saves])
        for save, answer in zip(saves, answers, strict=True):
            self._saving(save).settle(answer)

    @staticmethod
    async def _grouped(engine: Engine, commits: Sequence[Commit]) -> list[Outcome]:
        """As `together` sends them: whoever is left out goes alone, and everybody if the group has failed."""
        assert isinstance(engine, CommitsTogether)
        try:
            answers = await engine.commit_together(commits)
        except engine.driver_errors:
            return [await engine.commit(replace(commit, fresh_id=False)) for commit in commits]
        return [answer or await engine.commit(commit) for commit, answer in zip(commits, answers, strict=True)]

    async def _do(self, step: Step) -> None:
        step.settle(await step.do(self._engine))
        await self._wait()

    async def _return(self, thread_id: str) -> None:
        """Save an old checkpoint anew, without a change, and go on from there: its lists may have been continued."""
        kept = self._model.thread(thread_id).kept
        if kept:
            base = self._dice.pick(kept)
            await self._do(self._saving(self._saves.drawn(thread_id, {"return"}, base)))
            latest = self._model.thread(thread_id).of(base.entry.namespace)[-1:]
            await self._do(self._saving(self._saves.drawn(thread_id, {"ordinary"}, *latest)))

    async def _restore(self, thread_id: str) -> None:
        """Remove a checkpoint whose lists others have continued, send it again, and go on from there."""
        thread = self._model.thread(thread_id)
        there = {kept.entry.rev: kept for kept in thread.kept}
        continued = [
            save
            for save in self._sent
            if save.commit.rev in there and save.commit.thread_id == thread_id and thread.has_continued(save.commit)
        ]
        if continued:
            save = self._dice.pick(continued)
            await self._do(self._deleting(thread_id, [there[save.commit.rev]]))
            await self._do(self._saving(save.again()))
            latest = self._model.thread(thread_id).of(save.commit.namespace)[-1:]
            await self._do(self._saving(self._saves.drawn(thread_id, {"ordinary"}, *latest)))

    async def _do_both(self, thread_id: str) -> None:
        saves, there = self._saves, self._model.thread(thread_id).kept
        match self._dice.pick(PAIRS):
            case "any", "any":
                first, second = self._saving(saves.lasting(thread_id)), saves.lasting(thread_id)
            case "deletion", odd:
                # Somebody removes a checkpoint while another builds on it.
                second = saves.lasting(thread_id, {odd})
                first = self._deleting(thread_id, [kept for kept in there if kept.base == second.commit.base])
            case "base", odd:
                # Somebody builds on a checkpoint while another replaces it, and needs nothing of it.
                second = saves.lasting(thread_id, {odd, "whole"})
                old = [kept for kept in there if kept.entry.rev == second.commit.replaces]
                first = self._saving(saves.lasting(thread_id, {"ordinary"}, *old))
            case odd, other:
                first, second = self._saving(saves.lasting(thread_id, {odd})), saves.lasting(thread_id, {other})
        await self._do_at_once(first, self._saving(second))

    async def _do_at_once(self, first: Step, second: Step) -> None:
        handle, meddler = self._handles[:2]
        found: list[Any] = [None, None]

        async def do_first() -> None:
            found[0] = await first.do(meddler)

        async def do_second() -> None:
            found[1] = await second.do(handle)

        in_order = await self._overlap(meddler, do_first, handle, do_second)
        self._told.append(f"these two at once, the {'first' if in_order else 'second'} counts first:")
        done = [(first, found[0]), (second, found[1])]
        for step, answer in done if in_order else done[::-1]:
            step.settle(answer)
        await self._wait()

    async def _wait(self) -> None:
        """Until what ends soon has ended."""
        ends = self._model.ends_soon()
        if ends is not None:
            await asyncio.sleep((ends - datetime.now(UTC)).total_seconds() + 0.005)
            self._model.expire()
            for thread_id in self._threads:
                self._forget_numbers(thread_id)

    def _removed(self) -> list[Save]:
        """What was sent, and is not there, in threads that are, and of that what others have continued, if any."""
        threads = {thread_id: self._model.thread(thread_id) for thread_id in self._threads}
        revs = {kept.entry.rev for thread in threads.values() for kept in thread.kept}
        removed = [s for s in self._sent if threads[s.commit.thread_id].kept and s.commit.rev not in revs]
        continued = [save for save in removed if threads[save.commit.thread_id].has_continued(save.commit)]
        return continued or removed or self._sent

    def _saving(self, save: Save) -> Step:
        commit = save.commit

        async def do(engine: Engine) -> Outcome:
            if self._together:
                return (await self._grouped(engine, [commit]))[0]
            return await engine.commit(commit)

        def settle(found: Outcome) -> None:
            expected = self._model.decided(commit)
            self._told.append(f"{_shown(commit)} -> {_shown(expected)}")
            self._tally[f"{expected.verdict.name}{' again' if expected.repeated else ''}"] += 1
            self._sent.append(save)
            if found.verdict is Verdict.BRANCH_TAKEN and expected.verdict in (Verdict.COMMITTED, Verdict.NO_PARENT):
                doubted = not self._traits.sure_of_branches and self._model.may_be_taken(commit)
                assert doubted, f"{found}, not {expected}"
                return
            self._check_answer(commit.thread_id, found, expected)
            self._model.write(save, expected)
            if expected.verdict is Verdict.COMMITTED and not expected.repeated:
                self._saves.made.append(save.kept(expected))
            self._forget_numbers(commit.thread_id)

        return Step(do, settle)

    def _check_answer(self, thread_id: str, found: Outcome, expected: Outcome) -> None:
        numbers = self._numbers[thread_id]
        if expected.verdict is Verdict.COMMITTED and found.verdict is Verdict.COMMITTED and not expected.repeated:
            number = expected.seq if self._traits.counts else found.seq
            assert number > max(numbers.values(), default=0), f"{found} has a number from before"
            numbers[expected.seq] = number
        said = replace(expected, seq=numbers.get(expected.seq, 0), replaced=None)
        if self._together and expected.repeated:
            # A group is sent without a look at what is there. What is found then may be told as just written.
            said = replace(said, repeated=found.repeated)
        assert replace(found, replaced=None) == said, f"{found}, not {said}"
        # Not every engine says what it has replaced.
        if found.replaced is not None:
            old = found.replaced
            assert expected.replaced is not None, f"{old} was replaced"
            right = replace(expected.replaced, seq=numbers[expected.replaced.seq])
            assert Known(old.checkpoint_id, old.seq, old.rev, old.parent_id) == right, (
                f"{old} was replaced, not {right}"
            )

    def _forget_numbers(self, thread_id: str) -> None:
        left = {kept.entry.seq for kept in self._model.thread(thread_id).kept}
        numbers = self._numbers[thread_id]
        for seq in numbers.keys() - left:
            del numbers[seq]

    def _deleting(self, thread_id: str, favoured: Sequence[Kept] = ()) -> Step:
        dice, kept = self._dice, self._model.thread(thread_id).kept
        namespace: str | None = dice.pick((None, *NAMESPACES))
        seqs: dict[int, str] | None = None
        if not dice.rarely(6):
            if not favoured and dice.rarely(2):
                # Who loses a parent gets another.
                parents = {one.entry.parent_id for one in kept}
                favoured = [one for one in kept if one.entry.checkpoint_id in parents]
            chosen = [dice.pick(favoured or kept) for _ in range(dice.pick((1, 1, 1, 2, 3)))] if kept else []
            revs = [one.entry.rev for one in self._saves.made[-5:]]
            seqs = {one.entry.seq: dice.pick(revs) if dice.rarely(6) else one.entry.rev for one in chosen}
        elif dice.rarely(2):
            namespace = None
        return self._removing(thread_id, namespace, seqs)

    def _removing(self, thread_id: str, namespace: str | None, seqs: Mapping[int, str] | None) -> Step:
        numbers = self._numbers[thread_id]
        named = None if seqs is None else {numbers[seq]: rev for seq, rev in seqs.items()}

        async def do(engine: Engine) -> int:
            return await engine.delete(thread_id, namespace, named)

        def settle(found: int) -> None:
            self._told.append(f"delete {thread_id!r} {namespace!r} {seqs}")
            expected = self._model.delete(thread_id, namespace, seqs)
            assert found == expected, f"{found} were deleted, not {expected}"
            self._forget_numbers(thread_id)

        return Step(do, settle)

    async def _copy(self, source: str) -> None:
        engine, dice = self._engine, self._dice
        dest = dice.pick([thread_id for thread_id in self._threads if thread_id != source])
        kept = self._model.thread(source).kept
        listed: Listed | None = None
        if kept and dice.rarely(2):
            tip = dice.pick(kept).entry
            line = [one.entry for one in self._model.thread(source).of(tip.namespace)]
            listed = Listed(tip.namespace, {entry.checkpoint_id for entry in ancestors(line, tip.checkpoint_id)})
        elif dice.rarely(6):
            listed = Listed("", {"nobody"})
        if await self._copy_to(engine, source, dest, listed):
            copied = self._model.thread(dest).kept
            self._saves.made += copied
            # Both go on from there, on branches of the same names.
            for thread_id in (source, dest):
                latest = [one for one in self._model.thread(thread_id).kept if one.entry.rev == copied[-1].entry.rev]
                await self._do(self._saving(self._saves.drawn(thread_id, {"append"}, *latest)))

    async def _copy_to(self, engine: Engine, source: str, dest: str, copied: Listed | None) -> bool:
        """Whether anything was copied."""
        assert isinstance(engine, Copies)
        self._told.append(f"copy {source!r} to {dest!r} {copied}")
        there = bool(self._model.thread(dest).kept)
        found = await engine.copy(source, dest, copied)
        expected = self._model.copy(source, dest, copied)
        # Where there is nothing to copy, and no place for it either, both may be said.
        assert found == expected or (expected == 0 and there and found == -1), f"{found} copied, not {expected}"
        if found > 0:
            entries = await engine.history(dest, None, None, None)
            seqs = (one.entry.seq for one in self._model.thread(dest).kept)
            numbers = [entry.seq for entry in reversed(entries)]
            self._numbers[dest] = dict(zip(seqs, numbers, strict=True))
        return found > 0

    async def _put_writes(self, thread_id: str) -> None:
        """Only because a thread may then be there without a checkpoint."""
        engine = self._engine
        assert isinstance(engine, KeepsWrites)
        self._told.append(f"put writes in {thread_id!r}")
        await engine.put_writes(TaskWrites(thread_id, "", IDS[0], "task", (Write("task", "", 0, "channel", "1"),)))

    async def _compare(self, thread_id: str) -> None:
        """The history of a thread, and every checkpoint with its payload."""
        engine, thread, numbers = self._engine, self._model.thread(thread_id), self._numbers[thread_id]
        self._told.append(f"compare {thread_id!r}")
        kept = {numbers[one.entry.seq]: one for one in thread.kept}
        entries = [replace(one.entry, seq=seq) for seq, one in kept.items()]
        history = [_canonical(entry) for entry in await engine.history(thread_id, None, None, None)]
        assert history == entries[::-1], f"{history}\ninstead of\n{entries[::-1]}"
        for namespace in NAMESPACES:
            there = [entry for entry in entries if entry.namespace == namespace]
            latest = await engine.entry(thread_id, namespace, None)
            assert (latest and _canonical(latest)) == (there[-1] if there else None), f"{latest} is the latest"
            for entry in there:
                stored = await engine.read(thread_id, namespace, entry.checkpoint_id)
                assert stored is not None, f"{entry} cannot be read"
                payload, right = dict_from(stored), kept[entry.seq].payload
                found = (_canonical(stored.entry), stored.passed, payload)
                assert found == (entry, entry is not there[-1], right), f"{found}\ninstead of\n{entry} {right}"


async def _a_thread_is_gone_and_another_is_like_it(course: Course) -> None:
    """This one has to be first, where no other threads are like them."""
    gone = await course.save([1], thread=0)
    await course.save([1], thread=1)
    await course.remove(thread=0, handle=1)
    await course.refused(Verdict.STALE_BASE, [1, 2], gone, thread=0)


async def _another_handle_saves_in_another_namespace(course: Course) -> None:
    """The next number is not taken in the namespace where the first one goes on. Twice, because MySQL tells a row that
    was found from one that was changed: the counter must not be what it would become."""
    first = await course.save([1])
    other = await course.save([1], namespace="side", handle=1)
    await course.save([1, 2], other, handle=1)
    await course.save([1, 2], first)


async def _a_save_is_sent_twice(course: Course) -> None:
    """Its answer was lost, and others may have gone on. It is there, and is not written again."""
    first = await course.save([1])
    await course.resend(first)
    second = await course.save([1, 2, 3, 4], first)
    await course.resend(second)
    await course.save([1, 2, 3, 4, 5], second)


async def _a_base_is_of_another_thread(course: Course) -> None:
    """All else is right: nothing is said of the parent, and the delta needs no run of its base's."""
    elsewhere = await course.save([1], thread=1)
    await course.save([1], thread=0)
    await course.refused(Verdict.STALE_BASE, [1, 2], elsewhere, thread=0, own_branches=True, parent_id=ANY)


async def _a_base_is_in_another_namespace(course: Course) -> None:
    """It is what the handle has saved last. All else is right, as above."""
    elsewhere = await course.save([1])
    terms = {"own_branches": True, "parent_id": ANY}
    await course.refused(Verdict.STALE_BASE, [1, 2], elsewhere, namespace="side", **terms)


async def _two_namespaces_have_the_same_id(course: Course) -> None:
    """Each goes on from its own."""
    first = await course.save([1], checkpoint_id="c")
    other = await course.save([1], checkpoint_id="c", namespace="side")
    await course.save([1, 2], first)
    await course.save([1, 2], other)


async def _a_parent_is_in_another_namespace(course: Course) -> None:
    """There it is of no use."""
    await course.save([1], checkpoint_id="p")
    latest = await course.save([1], checkpoint_id="c", namespace="side")
    await course.save([1, 2], latest, parent_id="p")
    terms = {"own_branches": True, "parent_id": "p", "parent_required": True}
    await course.refused(Verdict.NO_PARENT, [1, 2], latest, **terms)


async def _an_older_base_is_not_what_it_was(course: Course) -> None:
    """The handle has saved to the thread last, and goes on from what is gone, replaced, or somewhere else."""
    gone = await course.save([1])
    replaced = await course.save([1], checkpoint_id="c")
    await course.save([2], checkpoint_id="c", replaces=replaced.entry.rev)
    side = await course.save([1], namespace="side")
    other = await course.save([1], thread=1)
    latest = await course.save([1, 2])
    await course.remove(gone)
    for number, base in enumerate((gone, replaced, side, other)):
        latest = await course.save([1, 2, *range(number + 1)], latest, own_branches=True)
        await course.refused(Verdict.STALE_BASE, [1, 9], base, namespace="", own_branches=True)
    latest = await course.save([1, 2], latest, own_branches=True)
    await course.remove(latest)
    await course.refused(Verdict.STALE_BASE, [1, 2, 9], latest, own_branches=True)


async def _a_branch_has_a_gap(course: Course) -> None:
    """The run that a save wants to write is gone, and those after it are not."""
    first = await course.save([1])
    second = await course.save([1, 2], first)
    third = await course.save([2, 3], second)
    await course.save([3, 4], third)
    await course.remove(second, third)
    again = await course.save([1], first, parent_id=ANY)
    await course.refused(Verdict.BRANCH_TAKEN, [1, 5], again)


async def _a_branch_lacks_its_beginning(course: Course) -> None:
    """Who brought it sends it again, and then it is needed again. Nobody else begins it anew, who uses its rev."""
    first = await course.save([1])
    second = await course.save([1, 2], first)
    third = await course.save([2, 3], second)
    await course.remove(first, second)
    await course.resend(first, Verdict.BRANCH_TAKEN)
    latest = await course.save([2, 3, 4], third)
    same = {"rev": first.entry.rev, "checkpoint_id": "another"}
    await course.refused(Verdict.BRANCH_TAKEN, [7], latest, own_branches=True, **same)


async def _a_beginning_is_sent_again(course: Course) -> None:
    """Others have continued it, and go on; who knows nothing of the thread finds that, too."""
    first = await course.save([1])
    second = await course.save([1, 2], first)
    await course.remove(first)
    await course.resend(first, Verdict.BRANCH_TAKEN)
    await course.resend(first, Verdict.BRANCH_TAKEN, handle=-1)
    await course.save([1, 2, 3], second)


async def _a_rev_is_used_twice(course: Course) -> None:
    """It would take the place of what an older checkpoint shows, be that the base, or one of which nothing is known."""
    first = await course.save([1])
    rev = first.entry.rev
    await course.refused(Verdict.BRANCH_TAKEN, [7], first, own_branches=True, rev=rev, checkpoint_id="another")
    await course.resend(first)
    if course.finds_all_branches:
        await course.refused(Verdict.BRANCH_TAKEN, [7], rev=rev, checkpoint_id="another")
        await course.refused(Verdict.BRANCH_TAKEN, [7], rev=rev, checkpoint_id="another", handle=-1)
        second = await course.save([1, 2], first)
        side = await course.save([8], namespace="side")
        await course.refused(Verdict.BRANCH_TAKEN, [7, 8, 9], rev=rev, checkpoint_id="another")
        await course.remove(first)
        await course.refused(Verdict.BRANCH_TAKEN, [7], rev=side.entry.rev, checkpoint_id="another")
        await course.refused(Verdict.BRANCH_TAKEN, [7], second, own_branches=True, rev=rev, checkpoint_id="another")
        await course.refused(Verdict.BRANCH_TAKEN, [7], rev=rev, checkpoint_id="another", handle=-1)


async def _a_branch_was_continued_before_the_last_save(course: Course) -> None:
    """Who opens the thread anew has to look behind what was saved last."""
    first = await course.save([1])
    await course.save([1, 2], first)
    await course.save([3], namespace="side")
    await course.refused(Verdict.BRANCH_TAKEN, [1, 4], first, handle=-1)


async def _a_branch_was_continued_before_saves_that_leave_it_alone(course: Course) -> None:
    """The latest checkpoint builds on the one before it, and still nobody may go on from where it is."""
    first = await course.save([1])
    await course.save([1, 2], first)
    third = await course.save([1], first, parent_id=ANY)
    fourth = await course.save([1], third)
    await course.refused(Verdict.BRANCH_TAKEN, [1, 4], fourth)


async def _several_runs_of_a_branch_come_at_once(course: Course) -> None:
    """To open it and to go on, by one who knows the thread and one who does not; and at the same place by another."""
    first = await course.save([1, 2, 3, 4, 5])
    second = await course.save([1, 2, 3, 4, 5, 6, 7, 8], first)
    third = await course.save([1, 2, 3, 4, 5, 6, 9, 10, 11], second, handle=1)
    await course.save([1, 2, 3, 4, 5, 6, 9, 10, 11, 12], third, handle=1)
    await course.refused(Verdict.BRANCH_TAKEN, [1, 2, 3, 4, 5, 6, 7, 8, 13, 14, 15], second)
    await course.save([1, 2, 3, 4, 5, 6, 7, 8, 13, 14, 15], second, own_branches=True)
    await course.remove(first, third)
    await course.save([4, 5, 6, 7, 8, 16, 17, 18], second, own_branches=True)


async def _a_beginning_of_several_runs_is_sent_again(course: Course) -> None:
    """Others have continued it, and go on: their runs are not written over, and their numbers not given out again."""
    first = await course.save([1, 2, 3, 4, 5])
    second = await course.save([1, 2, 3, 4, 5, 6, 7, 8], first)
    await course.remove(first)
    await course.resend(first, Verdict.BRANCH_TAKEN, handle=1)
    await course.resend(first, Verdict.BRANCH_TAKEN)
    await course.save([4, 5, 6, 7, 8, 10, 11, 12], second)


async def _a_beginning_of_several_runs_is_needed_again(course: Course) -> None:
    """Some of its runs are gone, because nothing showed them, and some are not."""
    first = await course.save([1, 2, 3, 4, 5])
    second = await course.save([4, 5, 6], first)
    third = await course.save([5, 6, 7, 8, 9], second)
    await course.remove(first, second)
    await course.resend(first, Verdict.BRANCH_TAKEN)
    await course.save([5, 6, 7, 8, 9, 10], third)


async def _another_shows_a_beginning_of_several_runs(course: Course) -> None:
    """It has not continued them, and they are taken all the same."""
    first = await course.save([1, 2, 3, 4, 5])
    second = await course.save([1, 2, 3], first)
    await course.remove(first)
    await course.resend(first, Verdict.BRANCH_TAKEN)
    await course.save([1, 2, 3, 9], second, own_branches=True)


async def _many_runs_of_several_branches_come_at_once(course: Course) -> None:
    """So many that a statement for each of them would be too much."""
    items = list(range(40))
    first = await course.save(items)
    second = await course.save([*items, *range(40, 80)], first)
    await course.refused(Verdict.BRANCH_TAKEN, [*items, *range(80, 120)], first)
    await course.save([*items, *range(80, 120)], first, own_branches=True, handle=1)
    await course.remove(first)
    await course.resend(first, Verdict.BRANCH_TAKEN)
    await course.save([*items, *range(40, 80), *range(120, 160)], second, handle=1)


async def _a_thread_has_ended(course: Course) -> None:
    """Whoever saved to it last has not noticed."""
    if course.expires:
        ended = await course.save([1], expires_at=datetime.now(UTC) - timedelta(days=1))
        await course.refused(Verdict.STALE_BASE, [1, 2], ended)


async def _a_failover_has_lost_what_was_saved_last(course: Course) -> None:
    """As much was saved since, so the numbers are as whoever saved last remembers them. A copy has what is lost."""
    if course.loses:
        first = await course.save([1])
        lost = await course.save([1, 2], first)
        await course.copy(source=0, dest=1)
        await course.lose(lost)
        await course.refused(Verdict.STALE_BASE, [1, 2, 3], lost)
        await course.remove(thread=1)


async def _a_failover_has_lost_a_thread(course: Course) -> None:
    """Another one has its key, its numbers, and the same checkpoint."""
    if course.loses:
        lost = await course.save([1])
        await course.lose_thread(source=0, dest=1)
        await course.refused(Verdict.STALE_BASE, [1, 2], lost)
        await course.save([2], thread=1)


DIRECTED: Mapping[str, Callable[[Course], Awaitable[None]]] = {
    "a thread is gone and another is like it": _a_thread_is_gone_and_another_is_like_it,
    "another handle saves in another namespace": _another_handle_saves_in_another_namespace,
    "a save is sent twice": _a_save_is_sent_twice,
    "a base is of another thread": _a_base_is_of_another_thread,
    "a base is in another namespace": _a_base_is_in_another_namespace,
    "two namespaces have the same id": _two_namespaces_have_the_same_id,
    "a parent is in another namespace": _a_parent_is_in_another_namespace,
    "an older base is not what it was": _an_older_base_is_not_what_it_was,
    "a branch has a gap": _a_branch_has_a_gap,
    "a branch lacks its beginning": _a_branch_lacks_its_beginning,
    "a beginning is sent again": _a_beginning_is_sent_again,
    "a rev is used twice": _a_rev_is_used_twice,
    "a branch was continued before the last save": _a_branch_was_continued_before_the_last_save,
    "a branch was continued before saves that leave it alone": _a_branch_was_continued_before_saves_that_leave_it_alone,
    "several runs of a branch come at once": _several_runs_of_a_branch_come_at_once,
    "a beginning of several runs is sent again": _a_beginning_of_several_runs_is_sent_again,
    "a beginning of several runs is needed again": _a_beginning_of_several_runs_is_needed_again,
    "another shows a beginning of several runs": _another_shows_a_beginning_of_several_runs,
    "many runs of several branches come at once": _many_runs_of_several_branches_come_at_once,
    "a thread has ended": _a_thread_has_ended,
    "a failover has lost what was saved last": _a_failover_has_lost_what_was_saved_last,
    "a failover has lost a thread": _a_failover_has_lost_a_thread,
}
"""Courses that try a single thing each, which random ones hardly ever do."""


def _canonical(entry: Entry) -> Entry:
    """A database may write JSON in its own way."""
    return replace(entry, metadata=canonical(decode(entry.metadata)))


def _shown(record: Commit | Outcome) -> str:
    """What there is to say, in one line."""
    hidden = {"created_at", "metadata", "head", "items"}
    said = {
        item.name: getattr(record, item.name)
        for item in dataclass_fields(record)
        if item.name not in hidden and getattr(record, item.name) != item.default
    }
    if "runs" in said:
        said["runs"] = [f"{run.branch}.{run.number}" for run in said["runs"]]
    if "values" in said:
        said["values"] = [run.branch for run in said["values"]]
    return ", ".join(f"{name}={value}" for name, value in said.items())
