"""Plans removals and copies of checkpoints: the arguments of the scripts that carry them out. No I/O.

`ThreadOutline` plans a removal. Which runs and parents stay depends on every checkpoint of the thread, so the plan is
made here, and the scripts REMOVE and COMMIT carry it out if the thread is still at the version that was planned for.
`ThreadContents` makes a copy or an export.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from locus.errors import CorruptCheckpointError
from locus.memory.backends.redis.schema import (
    Payload,
    StoredEntry,
    bound_payload,
    check_chain,
    check_tasks,
    entry_text,
    index_field,
    link_text,
    metadata_pairs,
    nets,
    place,
    relinked,
    to_extents,
    to_payload,
    to_run,
    to_run_info,
    to_stored_entry,
    to_writes,
    write_text,
)
from locus.memory.model.ids import shown_thread
from locus.memory.model.manifest import newest_in, newest_runs, wanted
from locus.memory.model.records import Commit, Entry, Exported, Extent, RunInfo, Stored, Write, writes_order
from locus.memory.model.retention import Copied, Removal, chosen_in, plan_removal, unneeded_runs
from locus.memory.model.trimming import Portion, Trimming

MOST_RUNS_AT_ONCE = 2_000
"""The most runs that one step removes."""


class ThreadOutline:
    """A thread at one version, without payloads and items, as OUTLINE answers it."""

    def __init__(self, thread_id: str, answer: Sequence[Any]) -> None:
        version, seqs, entries, extents, names, headers = answer
        self.thread_id = thread_id
        self.version: bytes = version
        self.leaves_runs = False
        """Whether the removal that was planned last leaves runs for `leftovers`."""
        self._planned = Removal([], {})
        try:
            self._raw = {int(seq): entry for seq, entry in zip(seqs, entries, strict=True)}
            self.rows = {seq: to_stored_entry(thread_id, seq, entry) for seq, entry in self._raw.items()}
            self.extents = {int(seq): to_extents(text or b"") for seq, text in zip(seqs, extents, strict=True)}
            self.runs = [to_run_info(name, header) for name, header in zip(names, headers, strict=True)]
        except ValueError:
            raise CorruptCheckpointError(f"runs of {shown_thread(thread_id)} cannot be read") from None

    @property
    def entries(self) -> dict[int, Entry]:
        return {seq: row.entry for seq, row in self.rows.items()}

    def select(self, namespace: str | None, seqs: Mapping[int, str] | None) -> set[int]:
        """Choose checkpoints that exist, by their namespace, and by number and rev; None stands for all."""
        return {
            seq
            for seq, entry in self.entries.items()
            if (namespace is None or entry.namespace == namespace) and (seqs is None or seqs.get(seq) == entry.rev)
        }

    def removal_arguments(self, doomed: Collection[int], replacement: Commit | None = None) -> list[Any]:
        """The plan that `remove` in `lua/shared/changes.lua` takes. A `replacement` keeps the runs that it needs.

        It removes so many runs at most that nobody waits for long, and leaves others, which nothing needs any more, for
        `leftovers`: whoever is killed before that leaves the thread whole, and a later removal finds them.
        """
        self._check()
        stay: dict[int, list[Extent]] = {seq: extents for seq, extents in self.extents.items() if seq not in doomed}
        runs = list(self.runs)
        if replacement is not None:
            stay[-1] = list(replacement.extents or wanted(replacement.manifest))
            runs += [RunInfo(*run[:4]) for run in (*replacement.runs, *replacement.values)]
        plan = plan_removal(stay, list(self.entries.values()), doomed, runs)
        self.leaves_runs = len(plan.runs) > MOST_RUNS_AT_ONCE
        self._planned = replace(plan, runs=plan.runs[:MOST_RUNS_AT_ONCE])
        return self._arguments([self.entries[seq] for seq in sorted(doomed)], self._planned, runs)

    def was_removed(self, doomed: Collection[int]) -> None:
        """Apply the removal that was planned last to the outline."""
        self.after(Portion([self.entries[seq] for seq in doomed], self._planned.runs, ()), self._planned)

    def leftovers(self) -> Iterator[list[Any]]:
        """Plans of removals of runs that nothing needs. Each is for the version that the one before it leaves."""
        unneeded = plan_removal(self.extents, list(self.entries.values()), (), self.runs).runs
        for first in range(0, len(unneeded), MOST_RUNS_AT_ONCE):
            plan = Removal(unneeded[first : first + MOST_RUNS_AT_ONCE], {})
            yield self._arguments([], plan, self.runs)
            self.after(Portion((), plan.runs, ()), plan)

    def _arguments(self, gone: Sequence[Entry], plan: Removal, runs: Sequence[RunInfo]) -> list[Any]:
        return [
            *_group([(entry.seq, _field(entry), _place(entry)) for entry in gone]),
            *_group([(f"{run.branch} {run.number}",) for run in plan.runs]),
            *_group(_newest_left(runs, plan.runs)),
            *_group(list(self._relinked({entry.seq for entry in gone}, plan).items())),
            *_group(self._latest({entry.seq for entry in gone})),
        ]

    def trimming(self, doomed: Collection[int], most: int) -> Trimming:
        self._check()
        return Trimming(self.entries.values(), self.extents, self.runs, doomed, most)

    def portion_arguments(self, portion: Portion, removal: Removal) -> list[Any]:
        """The plan of a portion of a removal, as `remove` in `lua/shared/changes.lua` takes it."""
        return self._arguments(portion.entries, removal, self.runs)

    def after(self, portion: Portion, removal: Removal) -> None:
        """Apply a removed portion to the outline.

        Nothing else has changed: the script has raised the counter of removals.
        """
        born, seq, removals = self.version.split(b" ")
        self.version = b"%b %b %d" % (born, seq, int(removals or 0) + 1)
        for number, text in self._relinked(set(portion.seqs), removal).items():
            self._raw[number] = text
            self.rows[number] = to_stored_entry(self.thread_id, number, text)
        for number in portion.seqs:
            del self.rows[number], self.extents[number], self._raw[number]
        gone = set(removal.runs)
        self.runs = [run for run in self.runs if run not in gone]

    def _check(self) -> None:
        """A removal makes the history whole again, so it must not begin with one that has a gap."""
        check_chain(self.thread_id, [row for _, row in sorted(self.rows.items(), reverse=True)], whole=True)

    def _relinked(self, gone: Collection[int], plan: Removal) -> dict[int, bytes]:
        """The entries that stay, and get another parent, or another one before them in their namespace."""
        texts: dict[int, bytes] = {}
        last: dict[str, int] = {}
        for seq, (entry, previous) in sorted(self.rows.items()):
            if seq in gone:
                continue
            before = previous if previous is None else last.get(entry.namespace, 0)
            last[entry.namespace] = seq
            if before != previous or seq in plan.parents:
                texts[seq] = relinked(seq, self._raw[seq], before, plan.parents.get(seq, entry.parent_id))
        return texts

    def _latest(self, doomed: Collection[int]) -> list[tuple[str, str]]:
        """The latest checkpoint that is left in each namespace that loses one."""
        left = {entry.namespace: "" for seq, entry in self.entries.items() if seq in doomed}
        for seq, entry in sorted(self.entries.items()):
            if seq not in doomed and entry.namespace in left:
                left[entry.namespace] = f"{seq} {entry.checkpoint_id}"
        return list(left.items())


def _newest_left(runs: Iterable[RunInfo], unneeded: Iterable[RunInfo]) -> list[tuple[str, str]]:
    """The newest number that is left of each branch that loses a run.

    It is not stored for a branch that has run 0 only.
    """
    gone = set(unneeded)
    left = {run.branch: 0 for run in gone}
    for run in runs:
        if run.branch in left and run not in gone:
            left[run.branch] = max(left[run.branch], run.number)
    return [(branch, str(number) if number else "") for branch, number in left.items()]


class ThreadContents:
    """A whole thread, as CONTENTS answers it."""

    def __init__(self, answer: Sequence[Any]) -> None:
        self._last_seq, self._expires, self._seqs, self._entries, self._payloads, runs, writes = answer
        # Beside its runs the hash has, under names without a space, the newest number of each branch.
        self._runs = {name: text for name, text in _pairs(runs) if b" " in name}
        self._writes = dict(_pairs(writes))

    def copy_arguments(self, dest: str, born: str, copied: Copied) -> tuple[int, list[Any]]:
        """Count the checkpoints to copy, and make the arguments of CREATE. A copy is in the newest format."""
        payloads = {row.entry.seq: (row.entry, payload) for row, payload in self._checkpoints(dest)}
        entries = chosen_in((entry for entry, _ in payloads.values()), copied)
        chosen = [(entry, payloads[entry.seq][1]) for entry in entries]
        expires = self._expires if self._expires > 0 else ""
        return len(chosen), [
            dest,
            self._last_seq,
            expires,
            born,
            *_group(_checkpoint_rows(chosen)),
            *_group(self._runs_of([payload.extents for _, payload in chosen])),
            *_group(
                [
                    (at, task, b"".join([write_text(at, task.decode(), write) for write in writes]))
                    for at, task, writes in self._writes_of(entry for entry, _ in chosen)
                ]
            ),
        ]

    def export(self, thread_id: str, after_seq: int, known: Mapping[str, int]) -> Exported:
        """Export the checkpoints after a sequence number, with the runs they need, except for those that are known."""
        chosen = [(row.entry, payload) for row, payload in self._checkpoints(thread_id) if row.entry.seq > after_seq]
        try:
            checkpoints = [Stored(entry, payload.head, payload.manifest) for entry, payload in chosen]
            newest = newest_runs(stored.manifest for stored in checkpoints)
            runs = [to_run(name, text) for name, text in self._runs.items()]
        except ValueError:
            raise CorruptCheckpointError(f"{shown_thread(thread_id)} cannot be read") from None
        writes: dict[tuple[str, str], list[Write]] = {}
        for entry, _ in chosen:
            some = [write for _, _, writes in self._writes_of([entry]) for write in writes]
            if some:
                writes[entry.namespace, entry.checkpoint_id] = sorted(some, key=writes_order)
        wanted_runs = [run for run in runs if known.get(run.branch, -1) < run.number <= newest.get(run.branch, -1)]
        return Exported(checkpoints, wanted_runs, writes)

    def _checkpoints(self, thread_id: str) -> list[tuple[StoredEntry, Payload]]:
        """Read all checkpoints, oldest first."""
        found: list[tuple[StoredEntry, Payload]] = []
        for seq, stored, payload in zip(self._seqs, self._entries, self._payloads, strict=True):
            row = to_stored_entry(thread_id, seq, stored)
            try:
                found.append((row, to_payload(payload, row.bound)))
            except ValueError:
                raise CorruptCheckpointError(f"checkpoint {row.entry.seq} of a thread cannot be read") from None
        check_chain(thread_id, [row for row, _ in reversed(found)], whole=True)
        return found

    def _runs_of(self, shown: Iterable[str]) -> list[tuple[bytes | str, bytes | str]]:
        """The runs that something is shown of, and the newest number of each branch."""
        try:
            extents = [extent for text in shown for extent in to_extents(text.encode())]
            infos = {
                to_run_info(name, b" ".join(text.split(b" ", 2)[:2])): (name, text) for name, text in self._runs.items()
            }
        except ValueError:
            raise CorruptCheckpointError("the thread to be copied cannot be read") from None
        unneeded = unneeded_runs(extents, infos)
        needed = infos.keys() - set(unneeded)
        newest = newest_in(needed)
        return [
            *(infos[run] for run in needed),
            *((branch, str(number)) for branch, number in newest.items() if number),
        ]

    def _writes_of(self, entries: Iterable[Entry]) -> list[tuple[bytes, bytes, list[Write]]]:
        """The places of checkpoints, the tasks that have written for each, and what they wrote."""
        found: list[tuple[bytes, bytes, list[Write]]] = []
        try:
            for at in map(_place, entries):
                tasks = self._writes.get(b"d" + at, b"")
                check_tasks(at, tasks, self._writes.get(b"D" + at))
                found += [(at, task, to_writes(at, task, self._writes[b"t" + at + task])) for task in nets(tasks)]
        except (KeyError, ValueError):
            raise CorruptCheckpointError("pending writes of a task are gone from Redis, or cannot be read") from None
        return found


def _checkpoint_rows(chosen: Sequence[tuple[Entry, Payload]]) -> list[tuple[Any, ...]]:
    """Make the rows of checkpoints in the order of their numbers, as CREATE takes them."""
    rows: list[tuple[Any, ...]] = []
    last: dict[str, int] = {}
    for entry, payload in chosen:
        rows.append(
            (
                entry.seq,
                _field(entry),
                entry.rev,
                entry.namespace,
                entry.checkpoint_id,
                entry_text(entry),
                link_text(last.get(entry.namespace, 0), entry.parent_id),
                metadata_pairs(entry.metadata),
                bound_payload(entry.rev, payload.extents, payload.head, payload.manifest),
            )
        )
        last[entry.namespace] = entry.seq
    return rows


def _pairs(rows: Sequence[bytes]) -> Iterable[tuple[bytes, bytes]]:
    return zip(rows[::2], rows[1::2], strict=True)


def _group(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Rows as arguments of a script: their number, then all their values."""
    return [len(rows), *chain.from_iterable(rows)]


def _field(entry: Entry) -> bytes:
    return index_field(entry.namespace, entry.checkpoint_id)


def _place(entry: Entry) -> bytes:
    return place(entry.namespace, entry.checkpoint_id)
