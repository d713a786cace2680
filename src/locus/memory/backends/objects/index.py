"""A thread without its payloads, as its events have made it: the facts for decisions, and the places of texts.

All handles apply the same events in the same order. So all of them come to the same index, whether they read the events
one by one, merged, or as a sweep has left them.

An index may also begin in the middle, because the latest checkpoint mostly needs the newest events. Then it answers
only as far as these tell for certain, and otherwise raises `EarlierEventsNeeded`. A fact that it does not know may be
true all the same.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from locus.errors import CorruptCheckpointError
from locus.memory.backends.objects.places import TextPlaces
from locus.memory.backends.objects.schema import IndexedCheckpoint, Parent, Record, TextRef, row_facts, row_from
from locus.memory.model.manifest import decode_manifest, walk, wanted
from locus.memory.model.parts import total_of
from locus.memory.model.records import Entry, Extent, Known, RunInfo
from locus.memory.model.retention import unneeded_runs

RECENT = 64
"""The number of the newest events that a reader of items reads in any case."""

SHORT = 64
"""The longest list whose place a tip may tell. Of longer ones the last items are read, or all."""


class EarlierEventsNeeded(Exception):
    """An index that begins in the middle of its thread cannot answer: more of the thread has to be read."""


class ExtentRuns(NamedTuple):
    """The runs that show an extent."""

    extent: Extent
    runs: Mapping[RunInfo, TextRef]


class WriteInfo(NamedTuple):
    """A pending write without its value."""

    task_path: str
    channel: str
    ref: TextRef


@dataclass
class ThreadIndex:
    """The index of one thread. `next` is the number of the event that comes next."""

    thread_id: str
    next: int = 1
    rows: dict[int, IndexedCheckpoint] = field(default_factory=dict)
    ids: dict[tuple[str, str], int] = field(default_factory=dict)
    newest: dict[str, list[int]] = field(default_factory=dict)
    gone: dict[int, Parent] = field(default_factory=dict)
    """The parent of each row that was removed."""
    awaited: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """The rows by their parent, where that is a checkpoint that does not exist."""
    runs: dict[str, list[RunInfo]] = field(default_factory=dict)
    tops: dict[str, int] = field(default_factory=dict)
    """The highest number that a run of each branch ever had: it is not given out again."""
    run_refs: dict[tuple[str, int], TextRef] = field(default_factory=dict)
    """The place of the items of each run."""
    writes: dict[tuple[str, str], dict[tuple[str, int], WriteInfo]] = field(default_factory=dict)
    removal: int = 0
    """The number of the last event that removed anything."""
    born: int = 0
    """The number of the last event that made a thread with checkpoints out of one without."""
    by: str = ""
    """The attempt that put the last event; "" if that is not known."""
    first: int = 1
    """The number of the first event that is known."""
    versions: dict[tuple[str, int], list[ExtentRuns]] = field(default_factory=dict)
    """The versions of branches before that, by the number of the run, as tips tell them."""
    places: TextPlaces = field(default_factory=TextPlaces)

    @classmethod
    def beginning_at(cls, thread_id: str, number: int) -> ThreadIndex:
        """Make an index that knows nothing of the events before this one."""
        return cls(thread_id, next=number, first=number)

    @property
    def last_seq(self) -> int:
        return self.next - 1

    @property
    def is_whole(self) -> bool:
        return self.first == 1

    def must_be_whole(self) -> None:
        """Raise `EarlierEventsNeeded` unless all events are known."""
        if not self.is_whole:
            raise EarlierEventsNeeded

    def seq(self, namespace: str, checkpoint_id: str) -> int | None:
        """The number of a checkpoint; None if it does not exist."""
        seq = self.ids.get((namespace, checkpoint_id))
        if seq is None:
            self.must_be_whole()
        return seq

    def find(self, namespace: str, checkpoint_id: str) -> Known | None:
        seq = self.seq(namespace, checkpoint_id)
        return None if seq is None else self._known(self.rows[seq])

    def latest(self, namespace: str) -> Known | None:
        seqs = self.newest.get(namespace)
        if not seqs:
            self.must_be_whole()
            return None
        return self._known(self.rows[seqs[-1]])

    def has_run(self, branch: str, number: int) -> bool:
        top = self.tops.get(branch)
        if top is None:
            self.must_be_whole()
            return False
        return top >= number

    def row(self, namespace: str, checkpoint_id: str | None) -> IndexedCheckpoint | None:
        known = self.latest(namespace) if checkpoint_id is None else self.find(namespace, checkpoint_id)
        return None if known is None else self.rows[known.seq]

    def _known(self, row: IndexedCheckpoint) -> Known:
        return Known(row.checkpoint_id, row.seq, row.rev, self._parent_id(row))

    def parent(self, row: IndexedCheckpoint) -> Parent:
        """The nearest ancestor that still exists, or that never did."""
        parent, passed = row.parent, {row.seq}
        while isinstance(parent, int) and parent in self.gone and parent not in passed:
            passed.add(parent)
            parent = self.gone[parent]
        if isinstance(parent, int) and parent < self.first:
            self.must_be_whole()
        # Parents that were named before they existed may lead in a circle.
        return None if parent in passed else parent

    def _parent_id(self, row: IndexedCheckpoint) -> str | None:
        parent = self.parent(row)
        return self.rows[parent].checkpoint_id if isinstance(parent, int) else parent

    def entry(self, row: IndexedCheckpoint) -> Entry:
        return Entry(
            thread_id=self.thread_id,
            namespace=row.namespace,
            checkpoint_id=row.checkpoint_id,
            parent_id=self._parent_id(row),
            seq=row.seq,
            rev=row.rev,
            created_at=row.created_at,
            metadata=row.metadata,
        )

    def newest_first(self, namespace: str | None, before_seq: int | None) -> Iterator[IndexedCheckpoint]:
        seqs = list(self.rows) if namespace is None else self.newest.get(namespace, [])
        end = len(seqs) if before_seq is None else bisect_left(seqs, before_seq)
        for index in range(end - 1, -1, -1):
            yield self.rows[seqs[index]]

    def chosen(self, namespace: str | None, seqs: Mapping[int, str] | None) -> list[int]:
        """Choose checkpoints that exist, by namespace, and by number and rev."""
        found = self.rows if namespace is None else self.newest.get(namespace, [])
        return [seq for seq in found if seqs is None or seqs.get(seq) == self.rows[seq].rev]

    def passed(self, row: IndexedCheckpoint) -> bool:
        return self.newest[row.namespace][-1] != row.seq

    def holding(self, extents: Iterable[Extent]) -> dict[RunInfo, TextRef]:
        """The places of the runs that extents show or name.

        A run that is named tells where the branch ended, even if all items that it brought were cut off since.
        """
        refs: dict[RunInfo, TextRef] = {}
        for extent in extents:
            refs |= self._newer(extent, -1)[0]
            runs = self.runs.get(extent.branch, [])
            at = bisect_left(runs, extent.run, key=lambda run: run.number)
            if at < len(runs) and runs[at].number == extent.run:
                refs[runs[at]] = self.run_refs[extent.branch, extent.run]
        return refs

    def beyond(self, held: Sequence[Extent], extents: Iterable[Extent]) -> dict[RunInfo, TextRef] | None:
        """The places of the runs that extents show to a reader of all that the extents `held` show.

        None if these runs cannot be told: a reader of an extent has only the runs that it shows. So whatever is left
        out must be a part of such an extent, in the same version of the branch.
        """
        newest: dict[str, int] = {}
        for extent in held:
            newest[extent.branch] = max(extent.run, newest.get(extent.branch, -1))
        refs: dict[RunInfo, TextRef] = {}
        for extent in extents:
            if _has(held, extent):
                continue
            least = newest.get(extent.branch, -1)
            if extent.run < least:
                return None
            runs, limit = self._newer(extent, least)
            if limit > extent.skip and not _has(held, extent._replace(run=least, length=limit - extent.skip)):
                return None
            refs |= runs
        return refs

    def _newer(self, extent: Extent, least: int) -> tuple[dict[RunInfo, TextRef], int]:
        """The runs above a number that an extent shows, and the position from which on they do."""
        runs = self.runs.get(extent.branch, [])
        refs, passed = dict[RunInfo, TextRef](), dict[int, int]()
        for index, _, _ in walk(extent, runs, passed):
            if runs[index].number <= least:
                break
            refs[runs[index]] = self.run_refs[extent.branch, runs[index].number]
        limit = extent.skip + extent.length
        if passed:
            limit = min(limit, runs[min(passed)].start)
        if not self.is_whole and limit > extent.skip:
            # What is left belongs to the version that the oldest of these runs was added to.
            before = runs[0].number - 1 if runs and runs[0].number <= extent.run else extent.run
            if before > least:
                shown = self._shown_before(extent._replace(run=before, length=limit - extent.skip))
                newer = {run: ref for run, ref in shown.items() if run.number > least}
                refs |= newer
                limit = min([limit, *(run.start for run in newer)])
        return refs, limit

    def _shown_before(self, extent: Extent) -> dict[RunInfo, TextRef]:
        """The runs of an extent whose events came before those that are known, if a tip has told of them."""
        low, high = extent.skip, extent.skip + extent.length
        for told, runs in self.versions.get((extent.branch, extent.run), ()):
            if told.skip <= low and high <= told.skip + told.length:
                return {run: ref for run, ref in runs.items() if run.start < high and run.start + run.length > low}
        raise EarlierEventsNeeded

    def lists(self, row: IndexedCheckpoint) -> Iterator[list[Extent]]:
        """The extents of everything that was cut out of a checkpoint's head; a large value is a list of one item."""
        for cut in decode_manifest(row.manifest).values():
            yield [Extent(cut, 0, 0, 1)] if isinstance(cut, str) else list(cut)

    def is_far(self, extents: Sequence[Extent]) -> bool:
        """Tell whether a list is short, and has not changed for long: then a tip tells its place."""
        refs = (self.run_refs.get((extent.branch, extent.run)) for extent in extents)
        since = self.last_seq - RECENT
        return total_of(extents) <= SHORT and all(ref is None or ref.event <= since for ref in refs)

    def needed_from(self) -> int:
        """The first event that a load of the latest checkpoint of any namespace needs, without lists that are far away.

        It need not be exact, and is found without looking at all runs.
        """
        rows = [self.rows[seqs[-1]] for seqs in self.newest.values()]
        events = [row.head.event for row in rows]
        for extents in (extents for row in rows for extents in self.lists(row) if not self.is_far(extents)):
            for extent in extents:
                runs = self.runs.get(extent.branch, [])
                at = bisect_right(runs, extent.skip, key=lambda run: run.start) - 1
                if at < 0:
                    self.must_be_whole()
                else:
                    events.append(self.run_refs[extent.branch, runs[at].number].event)
        return min(events, default=self.next)

    def apply(self, record: Record) -> None:
        """Apply the next event."""
        try:
            self._apply(record)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise CorruptCheckpointError(
                f"event {record.get('n')} of the thread is damaged ({type(error).__name__})"
            ) from None

    def _apply(self, record: Record) -> None:
        number = record["n"]
        alive = bool(self.rows) or not self.is_whole
        if not self.is_whole and not self._says_all(record):
            raise EarlierEventsNeeded
        if record.get("after") and self.by and record["after"] != self.by:
            raise CorruptCheckpointError(f"event {number} follows another one than is there: an event was lost")
        self.by = record.get("by", "")
        match record["kind"]:
            case "commit":
                self._commit(record)
            case "delete":
                self._remove(record["seqs"], number)
            case "writes":
                self._put_writes(record)
            case "copy" | "base":
                self._add_all(record)
            case "reset":
                self._forget_all(number)
            case "none":
                pass
            case _:
                raise CorruptCheckpointError(f"event {number} is of an unknown kind")
        self.next = record.get("to", number) + 1
        self.places.add(record)
        if self.rows and not alive:
            self.born = record.get("born", number)

    def _says_all(self, record: Record) -> bool:
        """Tell whether an event can be applied without knowing all events before it."""
        match record["kind"]:
            case "commit":
                return record["replaces"] is None or record["replaces"] in self.rows
            case kind:
                return kind in ("writes", "none")

    def _commit(self, record: Record) -> None:
        number = record["n"]
        namespace, checkpoint_id, parent, rev, created, metadata, manifest = record["row"]
        sums = record.get("sums") or [None] * (len(record["runs"]) + 1)
        for line, run in enumerate(record["runs"], start=1):
            before = run[4] if len(run) > 4 else None
            self._add_run(RunInfo(*run[:4]), TextRef(number, line, sums[line], before))
        if record["replaces"] is not None:
            self._drop([record["replaces"]], keep_writes=True)
            self.removal = number
        created_at = datetime.fromisoformat(created)
        head = TextRef(number, 0, sums[0])
        self._add(
            IndexedCheckpoint(number, namespace, checkpoint_id, parent, rev, created_at, metadata, manifest, head)
        )

    def _add(self, row: IndexedCheckpoint) -> None:
        self.rows[row.seq] = row
        self.ids[row.namespace, row.checkpoint_id] = row.seq
        self.newest.setdefault(row.namespace, []).append(row.seq)
        if isinstance(row.parent, str):
            self.awaited.setdefault((row.namespace, row.parent), []).append(row.seq)
        for seq in self.awaited.pop((row.namespace, row.checkpoint_id), ()):
            if seq in self.gone:
                self.gone[seq] = row.seq
            else:
                self.rows[seq] = replace(self.rows[seq], parent=row.seq)

    def _add_run(self, run: RunInfo, ref: TextRef) -> None:
        top = self.tops.get(run.branch, -1)
        if run.number > top:
            self.runs.setdefault(run.branch, []).append(run)
            self.tops[run.branch] = run.number
            self.run_refs[run.branch, run.number] = ref
        elif run.branch.startswith("#"):
            # A large value again: the old text may be gone, if nothing showed it in between.
            self.run_refs[run.branch, run.number] = ref

    def _remove(self, seqs: Collection[int], number: int) -> None:
        self._drop(seqs, keep_writes=False)
        self.removal = number
        if not self.rows:
            self._forget_all(number)

    def _drop(self, seqs: Iterable[int], *, keep_writes: bool) -> None:
        touched: set[str] = set()
        for seq in seqs:
            row = self.rows.pop(seq)
            self.gone[seq] = row.parent
            del self.ids[row.namespace, row.checkpoint_id]
            touched.add(row.namespace)
            if not keep_writes:
                self.writes.pop((row.namespace, row.checkpoint_id), None)
        for namespace in touched:
            left = [seq for seq in self.newest[namespace] if seq in self.rows]
            if left:
                self.newest[namespace] = left
            else:
                del self.newest[namespace]

    def _forget_all(self, number: int) -> None:
        for known in (self.rows, self.ids, self.newest, self.gone, self.awaited, self.runs, self.tops, self.run_refs):
            known.clear()
        self.writes.clear()
        self.removal = number

    def _put_writes(self, record: Record) -> None:
        namespace, checkpoint_id, task_id = record["of"]
        pending = self.writes.setdefault((namespace, checkpoint_id), {})
        number = record["n"]
        if not record.get("keep_numbered"):
            for key in [key for key in pending if key[0] == task_id and key[1] >= 0]:
                del pending[key]
                self.removal = number
        sums = record.get("sums") or [None] * len(record["writes"])
        for line, (task_path, idx, channel) in enumerate(record["writes"]):
            self.removal = number if (task_id, idx) in pending else self.removal
            pending[task_id, idx] = WriteInfo(task_path, channel, TextRef(number, line, sums[line]))

    def _add_all(self, record: Record) -> None:
        for facts in record["rows"]:
            self._add(row_from(facts))
        for branch, run, start, length, *ref in record["runs"]:
            self._add_run(RunInfo(branch, run, start, length), TextRef(*ref))
        self.tops |= record.get("tops", {})
        for namespace, checkpoint_id, task_id, idx, task_path, channel, *ref in record["writes"]:
            pending = self.writes.setdefault((namespace, checkpoint_id), {})
            pending[task_id, idx] = WriteInfo(task_path, channel, TextRef(*ref))
        self.removal = record.get("removal", self.removal)

    def orphans(self) -> dict[tuple[str, str], int]:
        """Count the pending writes of each checkpoint that does not exist, except for those of special channels."""
        waiting = {
            place: sum(idx >= 0 for _, idx in pending)
            for place, pending in self.writes.items()
            if place not in self.ids
        }
        return {place: count for place, count in waiting.items() if count}

    def needed(self) -> tuple[dict[RunInfo, TextRef], set[TextRef]]:
        """All runs that are needed, and all texts: heads, items of runs, and values of writes."""
        extents = [extent for row in self.rows.values() for extent in wanted(row.manifest)]
        infos = [run for runs in self.runs.values() for run in runs]
        unneeded = set(unneeded_runs(extents, infos))
        runs = {run: self.run_refs[run.branch, run.number] for run in infos if run not in unneeded}
        writes = {write.ref for pending in self.writes.values() for write in pending.values()}
        return runs, {*runs.values(), *writes, *(row.head for row in self.rows.values())}

    def base_record(self) -> dict[str, Any]:
        """Make a record that stands for all events so far."""
        runs, _ = self.needed()
        rows = []
        for row in self.rows.values():
            facts = row_facts(row)
            facts[3] = self.parent(row)
            rows.append(facts)
        return {
            "to": self.last_seq,
            "rows": rows,
            "runs": [[*run, *ref] for run, ref in runs.items()],
            "tops": {run.branch: self.tops[run.branch] for run in runs},
            "writes": self.write_facts(),
            "removal": self.removal,
            "born": self.born,
            "by": self.by,
        }

    def write_facts(self) -> list[list[Any]]:
        return [
            [*of, task_id, idx, write.task_path, write.channel, *write.ref[:3]]
            for of, kept in self.writes.items()
            for (task_id, idx), write in kept.items()
        ]


def _has(held: Iterable[Extent], extent: Extent) -> bool:
    """Tell whether an extent is a part of one of these."""
    return any(
        (other.branch, other.run) == (extent.branch, extent.run)
        and other.skip <= extent.skip
        and extent.skip + extent.length <= other.skip + other.length
        for other in held
    )
