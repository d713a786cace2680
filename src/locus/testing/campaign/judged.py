"""What clients were told, in the order in which the checks look at it. Pure functions.

A save counts as acknowledged from the instant at which its client was told, or at which somebody else had seen it: had
loaded it, found it in a list, or had been acknowledged a save right behind it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from locus.testing.campaign.found import FoundThread
from locus.testing.campaign.history import History, Operation

CLOCK_MARGIN: Final = 120.0
"""Seconds by which a client may read its clock earlier or later than the store does."""


@dataclass(eq=False)
class Sent:
    """A save, with all attempts at it."""

    op: str
    thread: str
    digest: str
    attempts: list[Operation] = field(default_factory=list)
    seen: float = math.inf
    """When somebody else had seen it."""
    followed: float = math.inf
    """When something had been acknowledged that is stored behind it."""
    found_as: str | None = None
    """The id under which it was found, where its client was never told."""

    @cached_property
    def begun(self) -> float:
        return min(attempt.begun for attempt in self.attempts)

    @cached_property
    def _told(self) -> float:
        return min((one.ended for one in self.attempts if one.told == "acknowledged"), default=math.inf)

    @property
    def ended(self) -> float:
        """When it had happened for certain."""
        return min(self._told, self.seen)

    @cached_property
    def settled(self) -> float:
        """When no attempt was under way any more; never, if the outcome of one is not known."""
        return max(attempt.ended for attempt in self.attempts)

    @property
    def acknowledged(self) -> bool:
        return self.ended < math.inf

    @cached_property
    def refused(self) -> bool:
        return all(attempt.told == "refused" for attempt in self.attempts)

    @property
    def checkpoint(self) -> str | None:
        return next((one.checkpoint for one in self.attempts if one.checkpoint is not None), self.found_as)

    @property
    def chose_its_id(self) -> bool:
        """Whether its client named the id, which may have been that of another checkpoint."""
        return self.attempts[0].facts["id"] is not None

    @property
    def is_conditional(self) -> bool:
        return "if_latest" in self.attempts[0].facts

    @property
    def if_latest(self) -> str | None:
        found: str | None = self.attempts[0].facts.get("if_latest")
        return found

    @property
    def parent(self) -> str | None:
        found: str | None = self.attempts[0].facts.get("parent")
        return found

    @property
    def needs_parent(self) -> bool:
        """Whether its client named the parent, which then has to be there."""
        return bool(self.attempts[0].facts.get("needs_parent"))

    @cached_property
    def clock(self) -> float:
        """The earliest time that it may be stored with."""
        clocks = [attempt.facts.get("clock") for attempt in self.attempts]
        return -math.inf if None in clocks else min(float(clock) for clock in clocks if clock is not None)

    def __str__(self) -> str:
        return f"save {self.op} of {self.checkpoint!r} ({', '.join(str(one) for one in self.attempts)})"


class Judged:
    """A history, and what follows from it and from what was found."""

    def __init__(self, history: History, found: Mapping[str, FoundThread] | None = None) -> None:
        self.history = history
        self.found: Mapping[str, FoundThread] = found or {}
        self.sent: dict[str, Sent] = {}
        self.by_thread: defaultdict[str, list[Sent]] = defaultdict(list)
        self.under_id: defaultdict[tuple[str, str], list[Sent]] = defaultdict(list)
        self.deletions = _by_thread(history, "delete")
        self.copies = _by_thread(history, "copy")
        self.loads = _by_thread(history, "load")
        self.readings = _by_thread(history, "load", "tail", "list", "history", "exists", "get", "window")
        self.writes = _by_thread(history, "writes")
        self.vacuums = history.of_kind("vacuum")
        for operation in history.of_kind("save"):
            op = operation.facts["op"]
            if op not in self.sent:
                self.sent[op] = Sent(op, operation.thread, operation.facts["digest"])
                self.by_thread[operation.thread].append(self.sent[op])
            self.sent[op].attempts.append(operation)
        self._removed_from: dict[Sent, float] = {}
        self._by_content: dict[tuple[str, str], dict[str, list[Sent]]] = {}
        self._written: dict[tuple[str, int], float] = {}
        self._find_ids()
        for sent in self.sent.values():
            if sent.checkpoint is not None:
                self.under_id[sent.thread, sent.checkpoint].append(sent)
        self._find_witnesses()
        self._find_followers()

    def _find_ids(self) -> None:
        """The ids of saves whose clients were never told, from what is stored and from what was loaded."""
        for there in self.found.values():
            for one in there.checkpoints:
                sent = self.sent.get(one.op or "")
                if sent is not None and sent.checkpoint is None:
                    sent.found_as = one.checkpoint_id
        for sent, load in self._loaded():
            if sent.checkpoint is None and load.facts["id"] is not None:
                sent.found_as = load.facts["id"]
        for reading in self.history.of_kind("history"):
            for checkpoint_id, op in reading.answer if reading.told == "acknowledged" else ():
                if op in self.sent and self.sent[op].checkpoint is None and self.sent[op].thread == reading.thread:
                    self.sent[op].found_as = checkpoint_id

    def _loaded(self) -> Iterator[tuple[Sent, Operation]]:
        """What was loaded, where only one save can have been it."""
        for thread, loads in list(self.loads.items()):
            by_digest = self.by_digest(thread)
            for load in loads:
                saved = [one for one in by_digest.get(load.answer, ()) if not one.refused]
                if load.told == "acknowledged" and len(saved) == 1:
                    yield saved[0], load

    def by_digest(self, thread: str) -> dict[str, list[Sent]]:
        """What a thread may show, by its content."""
        return self._by(thread, "digest")

    def by_tail(self, thread: str) -> dict[str, list[Sent]]:
        """The same, by the end of its content."""
        return self._by(thread, "tail")

    def _by(self, thread: str, fact: str) -> dict[str, list[Sent]]:
        if (thread, fact) not in self._by_content:
            found = self._by_content[thread, fact] = dict[str, list[Sent]]()
            for name in (thread, *self.origins(thread)):
                for sent in self.by_thread[name]:
                    found.setdefault(sent.attempts[0].facts.get(fact, ""), []).append(sent)
        return self._by_content[thread, fact]

    def _find_witnesses(self) -> None:
        for sent, load in self._loaded():
            sent.seen = min(sent.seen, load.ended)
        for thread, checkpoint_id, witness in self._named():
            saved = self._saved_as(thread, checkpoint_id)
            if saved is not None:
                saved.seen = min(saved.seen, witness.ended)
        for reading in self.history.of_kind("history"):
            for _, op in reading.answer if reading.told == "acknowledged" else ():
                if op in self.sent:
                    self.sent[op].seen = min(self.sent[op].seen, reading.ended)

    def _named(self) -> Iterator[tuple[str, str, Operation]]:
        """The ids of checkpoints that were there for certain, each with who knows."""
        for operation in self.history.operations:
            if operation.told != "acknowledged":
                continue
            facts = operation.facts
            if operation.kind == "save":
                if facts.get("if_latest") is not None:
                    yield operation.thread, facts["if_latest"], operation
                if facts.get("needs_parent"):
                    yield operation.thread, facts["parent"], operation
            elif operation.kind == "list":
                for checkpoint_id in operation.answer:
                    yield operation.thread, checkpoint_id, operation
            elif operation.kind == "exists" and operation.answer is True and facts["id"] is not None:
                yield operation.thread, facts["id"], operation
            elif operation.kind == "copy" and operation.answer is True and facts["of"] is not None:
                yield facts["source"], facts["of"], operation

    def _saved_as(self, thread: str, checkpoint_id: str) -> Sent | None:
        """The save that a checkpoint is, if no other can be it."""
        threads = (thread, *self.origins(thread))
        saves = [one for name in threads for one in self.under_id[name, checkpoint_id] if not one.refused]
        return None if len(saves) != 1 or self._may_be_another(threads, saves) else saves[0]

    def saves_under(self, thread: str, checkpoint_id: str) -> list[Sent]:
        """All saves that a checkpoint of a thread may be, or may have been; none if nobody knows them all."""
        saves = self.under_id[thread, checkpoint_id]
        origins = self.origins(thread)
        is_copied = any(self.under_id[name, checkpoint_id] for name in origins)
        return [] if is_copied or self._may_be_another((thread, *origins), saves) else saves

    def _may_be_another(self, threads: Iterable[str], saves: Iterable[Sent]) -> bool:
        """Whether what these saves replaced may be a save whose client was never told its id.

        Somebody has found that id in a list.
        """
        return all(one.chose_its_id for one in saves) and any(
            one.checkpoint is None and not one.refused for name in threads for one in self.by_thread[name]
        )

    def _find_followers(self) -> None:
        for there in self.found.values():
            earliest = math.inf
            for one in reversed(there.checkpoints):
                sent = self.sent.get(one.op or "")
                if sent is not None and sent.thread == there.thread_id:
                    sent.followed = min(sent.followed, earliest)
                    earliest = min(earliest, sent.ended)

    def origins(self, thread: str) -> set[str]:
        """The threads that a thread may have been copied from, and theirs."""
        found: set[str] = set()
        waiting = [thread]
        while waiting:
            for copy in self.copies.get(waiting.pop(), ()):
                source = copy.facts["source"]
                if copy.may_have_happened and source not in found:
                    found.add(source)
                    waiting.append(source)
        return found

    def removals(self, sent: Sent, thread: str | None = None, until: float = math.inf) -> list[Operation]:
        """What may have removed a checkpoint from its thread, or from this copy of it."""
        at = thread or sent.thread
        return [
            *(
                one
                for one in self.deletions[at]
                if one.ended >= sent.begun and one.begun <= until and _may_delete(one, sent.checkpoint)
            ),
            *(
                one
                for one in self.vacuums
                if one.ended >= sent.begun and one.begun <= until and self.may_vacuum(one, sent, at)
            ),
        ]

    def is_explained(
        self, sent: Sent, names: Collection[str | None], thread: str | None = None, until: float = math.inf
    ) -> bool:
        """Whether something that a client asked for explains that a checkpoint is not among these.

        Another save under its id does if it is there itself, or was removed: one takes the other's place in one step.
        """
        if self.removals(sent, thread, until):
            return True
        return any(
            other.op in names or self.removals(other, thread, until) for other in self.replacements(sent, thread, until)
        )

    def replacements(self, sent: Sent, thread: str | None = None, until: float = math.inf) -> list[Sent]:
        """The saves that may have taken the place of a checkpoint."""
        at = thread or sent.thread
        if sent.checkpoint is None:
            others: Iterable[Sent] = (one for one in self.by_thread[at] if one.chose_its_id)
        else:
            others = self.under_id[at, sent.checkpoint]
        return [
            other
            for other in others
            if other is not sent and not other.refused and other.settled >= sent.begun and other.begun <= until
        ]

    def removed_from(self, sent: Sent) -> float:
        """The earliest instant at which a checkpoint, or what has taken its place, may have been removed."""
        if sent not in self._removed_from:
            lives = [sent, *self.replacements(sent)]
            self._removed_from[sent] = min(
                (removal.begun for one in lives for removal in self.removals(one)), default=math.inf
            )
        return self._removed_from[sent]

    def was_there(self, thread: str, checkpoint_id: str | None, begun: float, ended: float) -> bool:
        """Whether a checkpoint, or what replaced it, was there all the time between two instants."""
        saves = [one for one in self.under_id[thread, checkpoint_id or ""] if not one.refused]
        return any(one.ended < begun for one in saves) and not any(self.removals(one, until=ended) for one in saves)

    def came_once(self, sent: Sent) -> bool:
        """Whether a save cannot have been carried out a second time, after others had removed or replaced it."""
        return len(sent.attempts) == 1 or not (self.replacements(sent) or self.removals(sent))

    def over(self, sent: Sent, thread: str | None = None) -> float:
        """When a save had its place in a thread, or in this copy of it, and could not get a later one any more."""
        if thread is not None and sent.thread != thread:
            return max((copy.ended for copy in self.copies[thread] if copy.may_have_happened), default=math.inf)
        return sent.ended if self.came_once(sent) else sent.settled

    def written(self, writes: Operation) -> float:
        """When pending writes were there for certain: their client was told, or somebody had seen them."""
        if not self._written:
            self._find_written()
        return min(writes.ended, self._written.get((writes.client, writes.number), math.inf))

    def _find_written(self) -> None:
        put: defaultdict[tuple[str, str, str], list[Operation]] = defaultdict(list)
        for one in self.history.of_kind("writes"):
            if one.facts["namespace"] == "default":
                put[one.thread, one.facts["id"], one.facts["task"]].append(one)
                self._written[one.client, one.number] = math.inf
        for reading in self.history.of_kind("get"):
            for task, text in reading.answer.items() if reading.told == "acknowledged" else ():
                seen = [one for one in put[reading.thread, reading.facts["id"], task] if one.facts["digest"] == text]
                if len(seen) == 1:
                    key = seen[0].client, seen[0].number
                    self._written[key] = min(self._written[key], reading.ended)

    def may_vacuum(self, vacuum: Operation, sent: Sent, thread: str) -> bool:
        """Whether a vacuum may have removed a checkpoint from a thread: it was old enough, and enough came after it."""
        before, keep_last = vacuum.facts["before"], vacuum.facts["keep_last"]
        if before is not None and sent.clock > before + CLOCK_MARGIN:
            return False
        if keep_last is None:
            return True
        # In its own thread only what was saved there descends from it.
        threads = (thread,) if thread == sent.thread else (thread, *self.origins(thread))
        younger = sum(
            other is not sent
            and not other.refused
            and other.begun <= vacuum.ended
            and min(other.ended, other.followed) >= sent.begun
            and self._may_descend(other, sent)
            for name in threads
            for other in self.by_thread[name]
        )
        return younger >= int(keep_last)

    def _may_descend(self, sent: Sent, ancestor: Sent) -> bool:
        """Whether a checkpoint may have come from another one. Not if its parents lead to something older."""
        at = sent
        while at is not ancestor:
            if at.ended < ancestor.begun and self.came_once(at):
                return False
            parents = self.under_id[at.thread, at.parent or ""]
            # One whose parent may have been gone, or may have been another one, may have come from anything.
            if at.parent is None or len(parents) != 1 or not self._was_never_removed(at.thread, at.parent, at.ended):
                return True
            # Nor does one that replaced its own parent, or a parent that came later, lead further back.
            if parents[0].begun >= at.begun:
                return True
            at = parents[0]
        return True

    def _was_never_removed(self, thread: str, checkpoint_id: str, until: float) -> bool:
        return not any(one.begun <= until for one in self.vacuums) and not any(
            one.begun <= until and _may_delete(one, checkpoint_id) for one in self.deletions[thread]
        )

    def was_never_replaced(self, thread: str, checkpoint_id: str) -> bool:
        """Whether an id was made for one save, and no other was given it."""
        saves = self.under_id[thread, checkpoint_id]
        return len(saves) == 1 and not saves[0].chose_its_id

    def may_delete(self, thread: str, checkpoint_id: str) -> bool:
        """Whether anybody may have removed such a checkpoint at any time."""
        saves = self.under_id[thread, checkpoint_id]
        if not saves:
            return bool(self.vacuums) or any(_may_delete(one, checkpoint_id) for one in self.deletions[thread])
        return any(self.removals(sent, thread) for sent in saves)

    def is_deleted(self, sent: Sent, thread: str, before: float = math.inf) -> Operation | None:
        """A deletion that came after a save for certain, or after its copy, and was carried out before this time."""
        arrived = sent.settled
        if sent.thread != thread:
            arrived = max((copy.ended for copy in self.copies[thread] if copy.may_have_happened), default=math.inf)
        for one in self.deletions[thread]:
            is_done = one.told == "acknowledged" and arrived < one.begun and one.ended < before
            if is_done and _must_delete(one, sent.checkpoint):
                return one
        return None


def _by_thread(history: History, *kinds: str) -> defaultdict[str, list[Operation]]:
    found: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in history.of_kind(*kinds):
        found[operation.thread].append(operation)
    return found


def _may_delete(deletion: Operation, checkpoint_id: str | None) -> bool:
    named = deletion.facts["id"]
    return named is None or (not found_nothing(deletion) and checkpoint_id in (None, named))


def _must_delete(deletion: Operation, checkpoint_id: str | None) -> bool:
    named = deletion.facts["id"]
    return named is None or (not found_nothing(deletion) and checkpoint_id == named)


def found_nothing(deletion: Operation) -> bool:
    """Whether a deletion was answered with: there is no such checkpoint."""
    return deletion.told == "acknowledged" and deletion.answer is False
