"""The records that the model and the engines exchange: plain data, no I/O.

A payload is stored as a *head*, and *runs* of items. Each list of the payload is cut out of the head; what
is left of it there is `[]`, and a line in the *manifest* says where its items are:

    head      {"agent_id": "a", "iteration": 7, "messages": []}
    manifest  [[["messages"], [["k3v9…", 6, 0, 28]]]]      path, extents: branch, run, skip, length

A *branch* is a log of versions of one list. Run number n of a branch says: from position `start` on, the
list is now these items. So an append is a run that starts at the end, and an edit of the last message one
that starts a little before it; neither makes the manifest longer. The list "as of run n" is read from the
newest run backwards. An *extent* takes `length` items, from position `skip` on, of a branch as of a run; a
list is one extent, or a few after forks and edits in the middle.

Large values that are no lists stay out of the head too: a branch named `#digest` has one run with one
item, and the manifest line has that name in place of extents.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import Final, Literal, NamedTuple

DEFAULT_NAMESPACE: Final = "default"


class Unset(Enum):
    """Stands for "not given" where `None` already means something."""

    ANY = "any"


ANY: Final = Unset.ANY
"""As `if_latest`: whatever is the latest, save."""

Path = tuple[str, ...]


class Extent(NamedTuple):
    """A part of a list: `length` items from position `skip` on, of `branch` as of its run number `run`."""

    branch: str
    run: int
    skip: int
    length: int


Cuts = Mapping[Path, tuple[Extent, ...] | str]
"""What was cut out of a head, by path: the extents of a list, or the branch of a large value."""


class Run(NamedTuple):
    """Items added to a branch: from position `start` on, it now has these `length` items (a JSON array)."""

    branch: str
    number: int
    start: int
    length: int
    items: str
    before: str | None = None
    """A digest of the items that precede `start` (see `digests`); None if there are none, or it is not known."""


class CheckpointKey(NamedTuple):
    """The thread, the namespace and the id that together name one checkpoint of a store."""

    thread_id: str
    namespace: str
    checkpoint_id: str


@dataclass(frozen=True, slots=True)
class Base:
    """The checkpoint that a delta builds on. `rev` tells it from a later checkpoint of the same id."""

    checkpoint_id: str
    rev: str


class Write(NamedTuple):
    """A pending write; `value` is JSON text."""

    task_id: str
    task_path: str
    idx: int
    channel: str
    value: str


@dataclass(frozen=True, slots=True)
class TaskWrites:
    """The pending writes of one task of a checkpoint, as `KeepsWrites.put_writes` gets them."""

    thread_id: str
    namespace: str
    checkpoint_id: str
    task_id: str
    writes: tuple[Write, ...]
    keep_numbered: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    """One save, as the engines see it: everything that has to become visible in one step."""

    thread_id: str
    namespace: str
    checkpoint_id: str
    rev: str
    created_at: datetime
    metadata: str
    head: str
    manifest: str
    runs: tuple[Run, ...] = ()
    values: tuple[Run, ...] = ()
    base: Base | None = None
    parent_id: str | None | Unset = ANY
    """The parent's id, `None` for a first checkpoint, or ANY: the latest one."""
    parent_required: bool = False
    """Whether a parent that is not there is an error, or gives way to the latest one."""
    parent_as_named: bool = False
    """Whether a parent is kept as it is named, there or not; then `parent_required` says nothing more."""
    if_latest: str | None | Unset = ANY
    replaces: str | None = None
    """The `rev` of the checkpoint of the same id that this one takes the place of."""
    fresh_id: bool = False
    """The id was made for this save, so no other checkpoint can have it."""
    expires_at: datetime | None = None
    writes: tuple[TaskWrites, ...] = ()
    """Pending writes of its thread that are written with it, or not at all (see `engine.CommitsWithWrites`)."""
    extents: tuple[Extent, ...] | None = field(default=None, compare=False, repr=False)
    """Everything that the manifest names, from whoever has encoded it. None: it has to be decoded to know."""

    def entry(self, outcome: Outcome) -> Entry:
        """The entry of the checkpoint that this commit adds."""
        return Entry(
            thread_id=self.thread_id,
            namespace=self.namespace,
            checkpoint_id=self.checkpoint_id,
            parent_id=outcome.parent_id,
            seq=outcome.seq,
            rev=self.rev,
            created_at=self.created_at,
            metadata=self.metadata,
        )


class Verdict(Enum):
    """An engine's answer to a commit. Only `COMMITTED` means that something was written."""

    COMMITTED = auto()
    CONFLICT = auto()
    EXISTS = auto()
    STALE_BASE = auto()
    BRANCH_TAKEN = auto()
    NO_PARENT = auto()


@dataclass(frozen=True, slots=True)
class Known:
    """The facts about a stored checkpoint that an engine needs to decide on a commit."""

    checkpoint_id: str
    seq: int
    rev: str
    parent_id: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to a commit: its sequence number and parent, or why it was refused."""

    verdict: Verdict
    seq: int = 0
    parent_id: str | None = None
    latest: str | None = None
    replaced: Known | None = None
    repeated: bool = False
    """This very commit is there already: an answer was lost on the way, and nothing is to be done."""

    @property
    def is_written(self) -> bool:
        """Whether the engine still has to write: a commit that was repeated has been written before."""
        return self.verdict is Verdict.COMMITTED and not self.repeated


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored checkpoint without its payload. `metadata` is JSON text."""

    thread_id: str
    namespace: str
    checkpoint_id: str
    parent_id: str | None
    seq: int
    rev: str
    created_at: datetime
    metadata: str


@dataclass(frozen=True, slots=True)
class NewestThreads:
    """The newest checkpoint of each of some threads, newest first."""

    entries: list[Entry]
    next: str | None = None
    """A cursor: there may be more, and this is where to go on (see `cursors`). None if there are no more."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored checkpoint: its entry, head and manifest, and at least the runs that the manifest names."""

    entry: Entry
    head: str
    manifest: str
    runs: Mapping[str, list[Run]] = field(default_factory=dict)
    passed: bool = False
    """Whether its namespace has newer checkpoints."""
    since: Base | None = None
    """The checkpoint whose runs were left out, because the reader has them; None if nothing was left out for that."""

    @property
    def characters(self) -> int:
        """The length of all of its texts."""
        runs = sum(len(run.items) for some in self.runs.values() for run in some)
        return len(self.head) + len(self.manifest) + runs


@dataclass(frozen=True, slots=True)
class Contents:
    """The newest checkpoints of a page of threads, in the order of the ids of these."""

    stored: list[Stored]
    next: str | None = None
    """The last id that the page covers, behind which the next one begins. None if there are no more."""
    damaged: list[Exception] = field(default_factory=list)
    """One error for each thread that cannot be read, and is left out."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A page of a thread's export: checkpoints, oldest first, and the runs they need that the reader lacks."""

    checkpoints: list[Stored]
    runs: list[Run]
    writes: Mapping[tuple[str, str], list[Write]] = field(default_factory=dict)
    """Pending writes by namespace and checkpoint id, in their order."""
    more: bool = False
    """Fewer were given than were asked for, because they are large: others follow."""


class RunInfo(NamedTuple):
    """A run without its items."""

    branch: str
    number: int
    start: int
    length: int


class Ancestor(NamedTuple):
    """A checkpoint from which another one was made, and pending writes of it, in their order."""

    checkpoint_id: str
    rev: str
    stored: Stored | None
    """Its entry, head and manifest, without its runs; None if the reader knows the rev."""
    writes: list[Write]

    @classmethod
    def of(cls, stored: Stored, writes: Iterable[Write], channels: Collection[str]) -> Ancestor:
        """An ancestor with those of its pending writes that are to these channels."""
        entry = stored.entry
        return cls(entry.checkpoint_id, entry.rev, stored, [write for write in writes if write.channel in channels])


class AncestorQuery(NamedTuple):
    """A question for the ancestors of a checkpoint."""

    thread_id: str
    namespace: str
    checkpoint_id: str
    limit: int
    """How many of them are wanted, the nearest first: 1 or more."""
    channels: Collection[str]
    """The channels whose pending writes are wanted with them."""
    known: Collection[str] = ()
    """The revs of checkpoints that the asker has. Of these, nothing but the pending writes is needed."""


def writes_order(write: Write) -> tuple[str, str, int]:
    """The key by which the pending writes of a checkpoint are sorted."""
    return write.task_path, write.task_id, write.idx


class Finding(NamedTuple):
    """A fact about a store that its operator should know, and advice. It contains no ids and no secrets.

    An `error` loses data or refuses it, a `warning` may do so one day, a `note` is good to know.
    """

    severity: Literal["error", "warning", "note"]
    what: str
    advice: str
    repair: str = ""
    """The statement that repairs it, if there is one (see `Engine.mend`)."""


class Salvage(NamedTuple):
    """The parts of a damaged thread that can be kept. Checkpoints are named by namespace and id."""

    kept: tuple[tuple[str, str], ...]
    lost: tuple[tuple[str, str], ...]
    lost_bytes: int = 0
    """How much more is damaged that does not say what it was."""


class StoredFormat(NamedTuple):
    """The format of a store, and the newest format that this version of Locus writes."""

    found: int
    newest: int
    migration: str = ""
    """What a DBA would run to bring one to the other; empty where there is no such script."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A checkpoint that a search found."""

    entry: Entry
    score: float
    snippet: str


class Hits(list[Hit]):
    """The result of a search, best first. `complete` is False if it ran out of time."""

    def __init__(self, found: Iterable[Hit] = (), complete: bool = True) -> None:
        super().__init__(found)
        self.complete = complete
