"""The history of a round, sorted and indexed for the checks. Pure functions.

A save counts as acknowledged from the instant at which its client got the answer, or at which another client had seen
it: had loaded it, found it in a list, or got the acknowledgement of a save right behind it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from locus.testing.campaign.found import FoundCheckpoint, FoundThread
from locus.testing.campaign.history import History, Operation

CLOCK_MARGIN: Final = 120.0
"""How many seconds the clocks of a client and of the store may differ."""


@dataclass(eq=False)
class Sent:
    """A save that a client has sent, with all attempts at it."""

    op: str
    thread: str
    digest: str
    attempts: list[Operation] = field(default_factory=list)
    seen: float = math.inf
    """The time from which another client had seen it."""
    followed: float = math.inf
    """The time from which a save that is stored behind it was acknowledged."""
    found_as: str | None = None
    """The id under which it is stored, if its client never learnt that id."""

    @cached_property
    def begun(self) -> float:
        return min(attempt.begun for attempt in self.attempts)

    @cached_property
    def _told(self) -> float:
        return min((attempt.ended for attempt in self.attempts if attempt.told == "acknowledged"), default=math.inf)

    @property
    def ended(self) -> float:
        """The time from which it had certainly happened."""
        return min(self._told, self.seen)

    @cached_property
    def settled(self) -> float:
        """The end of the last attempt; infinity if the outcome of one is unknown."""
        return max(attempt.ended for attempt in self.attempts)

    @property
    def acknowledged(self) -> bool:
        return self.ended < math.inf

    @cached_property
    def refused(self) -> bool:
        return all(attempt.told == "refused" for attempt in self.attempts)

    @property
    def checkpoint(self) -> str | None:
        return next((attempt.checkpoint for attempt in self.attempts if attempt.checkpoint is not None), self.found_as)

    @property
    def chose_its_id(self) -> bool:
        """Whether its client chose the id, which another checkpoint may have had."""
        return self.attempts[0].facts["id"] is not None

    @property
    def is_conditional(self) -> bool:
        return "if_latest" in self.attempts[0].facts

    @property
    def if_latest(self) -> str | None:
        expected: str | None = self.attempts[0].facts.get("if_latest")
        return expected

    @property
    def parent(self) -> str | None:
        parent_id: str | None = self.attempts[0].facts.get("parent")
        return parent_id

    @property
    def needs_parent(self) -> bool:
        """Whether its client named the parent, which then has to exist."""
        return bool(self.attempts[0].facts.get("needs_parent"))

    @cached_property
    def clock(self) -> float:
        """The earliest `created_at` that the store may have given it."""
        clocks = [attempt.facts.get("clock") for attempt in self.attempts]
        return -math.inf if None in clocks else min(float(clock) for clock in clocks if clock is not None)

    def __str__(self) -> str:
        return f"save {self.op} of {self.checkpoint!r} ({', '.join(str(attempt) for attempt in self.attempts)})"


class Judged:
    """A history with indexes, and with conclusions from it and from the stored threads."""

    def __init__(self, history: History, threads: Mapping[str, FoundThread] | None = None) -> None:
        self.history = history
        self.threads: Mapping[str, FoundThread] = threads or {}
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

    def known(self, thread: FoundThread) -> list[tuple[FoundCheckpoint, Sent]]:
        """The stored checkpoints of a thread with the saves that sent them, by sequence number."""
        return [(stored, self.sent[stored.op]) for stored in thread.checkpoints if stored.op in self.sent]

    def _find_ids(self) -> None:
        """Find the ids of saves whose clients never learnt them, in the stored threads and in reads."""
        for thread in self.threads.values():
            for checkpoint in thread.checkpoints:
                sent = self.sent.get(checkpoint.op or "")
                if sent is not None and sent.checkpoint is None:
                    sent.found_as = checkpoint.checkpoint_id
        for sent, load in self._loaded():
            if sent.checkpoint is None and load.facts["id"] is not None:
                sent.found_as = load.facts["id"]
        for reading in self.history.of_kind("history"):
            for checkpoint_id, op in reading.answer if reading.told == "acknowledged" else ():
                if op in self.sent and self.sent[op].checkpoint is None and self.sent[op].thread == reading.thread:
                    self.sent[op].found_as = checkpoint_id

    def _loaded(self) -> Iterator[tuple[Sent, Operation]]:
        """The loads that can only have returned one save, each with that save."""
        for thread, loads in list(self.loads.items()):
            by_digest = self.by_digest(thread)
            for load in loads:
                saved = [save for save in by_digest.get(load.answer, ()) if not save.refused]
                if load.told == "acknowledged" and len(saved) == 1:
                    yield saved[0], load

    def by_digest(self, thread: str) -> dict[str, list[Sent]]:
        """The saves that a thread may show, by the digest of their content."""
        return self._by(thread, "digest")

    def by_tail(self, thread: str) -> dict[str, list[Sent]]:
        """The saves that a thread may show, by the digest of their last messages."""
        return self._by(thread, "tail")

    def _by(self, thread: str, fact: str) -> dict[str, list[Sent]]:
        if (thread, fact) not in self._by_content:
            saves = self._by_content[thread, fact] = dict[str, list[Sent]]()
            for name in (thread, *self.origins(thread)):
                for sent in self.by_thread[name]:
                    saves.setdefault(sent.attempts[0].facts.get(fact, ""), []).append(sent)
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
        """The ids of checkpoints that certainly existed, each with the operation that proves it."""
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
        """The save that made a checkpoint, if only one can have made it."""
        threads = (thread, *self.origins(thread))
        saves = [save for name in threads for save in self.under_id[name, checkpoint_id] if not save.refused]
        return None if len(saves) != 1 or self._may_be_another(threads, saves) else saves[0]

    def saves_under(self, thread: str, checkpoint_id: str) -> list[Sent]:
        """All saves that may have made a checkpoint, now or before; empty if they are not all known."""
        saves = self.under_id[thread, checkpoint_id]
        origins = self.origins(thread)
        is_copied = any(self.under_id[name, checkpoint_id] for name in origins)
        return [] if is_copied or self._may_be_another((thread, *origins), saves) else saves

    def _may_be_another(self, threads: Iterable[str], saves: Iterable[Sent]) -> bool:
        """Whether a checkpoint that these saves replaced may come from a save whose client never learnt its id.

        Another client may have found that id in a list.
        """
        return all(save.chose_its_id for save in saves) and any(
            save.checkpoint is None and not save.refused for name in threads for save in self.by_thread[name]
        )

    def _find_followers(self) -> None:
        for thread in self.threads.values():
            earliest = math.inf
            for checkpoint in reversed(thread.checkpoints):
                sent = self.sent.get(checkpoint.op or "")
                if sent is not None and sent.thread == thread.thread_id:
                    sent.followed = min(sent.followed, earliest)
                    earliest = min(earliest, sent.ended)

    def origins(self, thread: str) -> set[str]:
        """The threads that a thread may have been copied from, directly or through other copies."""
        sources: set[str] = set()
        waiting = [thread]
        while waiting:
            for copy in self.copies.get(waiting.pop(), ()):
                source = copy.facts["source"]
                if copy.may_have_happened and source not in sources:
                    sources.add(source)
                    waiting.append(source)
        return sources

    def removals(self, sent: Sent, thread: str | None = None, until: float = math.inf) -> list[Operation]:
        """The operations that may have removed a save from its thread, or from the copy `thread`."""
        at = thread or sent.thread
        return [
            *(
                deletion
                for deletion in self.deletions[at]
                if deletion.ended >= sent.begun and deletion.begun <= until and _may_delete(deletion, sent.checkpoint)
            ),
            *(
                vacuum
                for vacuum in self.vacuums
                if vacuum.ended >= sent.begun and vacuum.begun <= until and self.may_vacuum(vacuum, sent, at)
            ),
        ]

    def is_explained(
        self, sent: Sent, names: Collection[str | None], thread: str | None = None, until: float = math.inf
    ) -> bool:
        """Whether an operation of a client explains that a save is not among `names`, the stored ones.

        A removal explains it. So does another save under its id that is stored, or was removed itself, because a save
        replaces another in one step.
        """
        if self.removals(sent, thread, until):
            return True
        return any(
            other.op in names or self.removals(other, thread, until) for other in self.replacements(sent, thread, until)
        )

    def replacements(self, sent: Sent, thread: str | None = None, until: float = math.inf) -> list[Sent]:
        """The saves that may have replaced a save, under the same id."""
        at = thread or sent.thread
        if sent.checkpoint is None:
            others: Iterable[Sent] = (save for save in self.by_thread[at] if save.chose_its_id)
        else:
            others = self.under_id[at, sent.checkpoint]
        return [
            other
            for other in others
            if other is not sent and not other.refused and other.settled >= sent.begun and other.begun <= until
        ]

    def removed_from(self, sent: Sent) -> float:
        """The earliest time at which a save, or one that has replaced it, may have been removed."""
        if sent not in self._removed_from:
            lives = [sent, *self.replacements(sent)]
            self._removed_from[sent] = min(
                (removal.begun for save in lives for removal in self.removals(save)), default=math.inf
            )
        return self._removed_from[sent]

    def was_there(self, thread: str, checkpoint_id: str | None, begun: float, ended: float) -> bool:
        """Whether a checkpoint, or one that replaced it, existed from one time to another without interruption."""
        saves = [save for save in self.under_id[thread, checkpoint_id or ""] if not save.refused]
        return any(save.ended < begun for save in saves) and not any(self.removals(save, until=ended) for save in saves)

    def came_once(self, sent: Sent) -> bool:
        """Whether a save was certainly carried out only once, rather than again after a removal or replacement."""
        return len(sent.attempts) == 1 or not (self.replacements(sent) or self.removals(sent))

    def over(self, sent: Sent, thread: str | None = None) -> float:
        """The time from which the position of a save in its thread, or in the copy `thread`, was final."""
        if thread is not None and sent.thread != thread:
            return max((copy.ended for copy in self.copies[thread] if copy.may_have_happened), default=math.inf)
        return sent.ended if self.came_once(sent) else sent.settled

    def written(self, writes: Operation) -> float:
        """The time from which pending writes certainly existed: acknowledged, or seen by another client."""
        if not self._written:
            self._find_written()
        return min(writes.ended, self._written.get((writes.client, writes.number), math.inf))

    def _find_written(self) -> None:
        put: defaultdict[tuple[str, str, str], list[Operation]] = defaultdict(list)
        for operation in self.history.of_kind("writes"):
            if operation.facts["namespace"] == "default":
                put[operation.thread, operation.facts["id"], operation.facts["task"]].append(operation)
                self._written[operation.client, operation.number] = math.inf
        for reading in self.history.of_kind("get"):
            for task, text in reading.answer.items() if reading.told == "acknowledged" else ():
                operations = put[reading.thread, reading.facts["id"], task]
                seen = [operation for operation in operations if operation.facts["digest"] == text]
                if len(seen) == 1:
                    key = seen[0].client, seen[0].number
                    self._written[key] = min(self._written[key], reading.ended)

    def may_vacuum(self, vacuum: Operation, sent: Sent, thread: str) -> bool:
        """Whether a vacuum may have removed a save from a thread: it was old enough, and enough saves came after it."""
        before, keep_last = vacuum.facts["before"], vacuum.facts["keep_last"]
        if before is not None and sent.clock > before + CLOCK_MARGIN:
            return False
        if keep_last is None:
            return True
        # In the save's own thread, only saves to that thread descend from it.
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
        """Whether a save may descend from another. It does not if its parents lead to something older."""
        at = sent
        while at is not ancestor:
            if at.ended < ancestor.begun and self.came_once(at):
                return False
            parents = self.under_id[at.thread, at.parent or ""]
            # If the parent may have been removed or replaced, anything may be the real one.
            if at.parent is None or len(parents) != 1 or not self._was_never_removed(at.thread, at.parent, at.ended):
                return True
            # A save that replaced its own parent, or whose parent came later, leads no further back.
            if parents[0].begun >= at.begun:
                return True
            at = parents[0]
        return True

    def _was_never_removed(self, thread: str, checkpoint_id: str, until: float) -> bool:
        return not any(operation.begun <= until for operation in self.vacuums) and not any(
            operation.begun <= until and _may_delete(operation, checkpoint_id) for operation in self.deletions[thread]
        )

    def was_never_replaced(self, thread: str, checkpoint_id: str) -> bool:
        """Whether only one save has an id, which the store made for it."""
        saves = self.under_id[thread, checkpoint_id]
        return len(saves) == 1 and not saves[0].chose_its_id

    def may_delete(self, thread: str, checkpoint_id: str) -> bool:
        """Whether an operation may have removed a checkpoint at any time."""
        saves = self.under_id[thread, checkpoint_id]
        if not saves:
            deletions = self.deletions[thread]
            return bool(self.vacuums) or any(_may_delete(deletion, checkpoint_id) for deletion in deletions)
        return any(self.removals(sent, thread) for sent in saves)

    def is_deleted(self, sent: Sent, thread: str, before: float = math.inf) -> Operation | None:
        """A deletion that certainly came after a save, or after its copy, and that ended before a given time."""
        arrived = sent.settled
        if sent.thread != thread:
            arrived = max((copy.ended for copy in self.copies[thread] if copy.may_have_happened), default=math.inf)
        for deletion in self.deletions[thread]:
            is_done = deletion.told == "acknowledged" and arrived < deletion.begun and deletion.ended < before
            if is_done and _must_delete(deletion, sent.checkpoint):
                return deletion
        return None


def _by_thread(history: History, *kinds: str) -> defaultdict[str, list[Operation]]:
    operations: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in history.of_kind(*kinds):
        operations[operation.thread].append(operation)
    return operations


def _may_delete(deletion: Operation, checkpoint_id: str | None) -> bool:
    named = deletion.facts["id"]
    return named is None or (not found_nothing(deletion) and checkpoint_id in (None, named))


def _must_delete(deletion: Operation, checkpoint_id: str | None) -> bool:
    named = deletion.facts["id"]
    return named is None or (not found_nothing(deletion) and checkpoint_id == named)


def found_nothing(deletion: Operation) -> bool:
    """Whether the answer to a deletion was that the checkpoint does not exist."""
    return deletion.told == "acknowledged" and deletion.answer is False
