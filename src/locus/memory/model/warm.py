"""What a reader holds of a checkpoint, and how a later load is put together from that and from what is new.

`HeldCheckpoint` is what a handle keeps of the newest checkpoint of a thread that it has loaded or saved: texts of runs,
or the lists that were decoded from them, or decoded lists and the texts of what was saved since. A load tells the
engine which checkpoint that is (`Engine.read_since`), and gets only the runs that are newer. Everything held came from
the store or went to it as text, so that a load gives the same whether or not something was held.

A list as of one run is the list as of an older run, up to the first position that a run between them begins at. That
part is taken from what is held; the rest is walked from the runs that were sent (see `manifest`). Where the two do not
cover a list, or do not fit together, the answer is None, and the caller reads everything. Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from sys import getsizeof
from typing import Any, Final, Generic, TypeVar

from pydantic import ValidationError

from locus.core.frozen import FrozenList
from locus.errors import CorruptCheckpointError
from locus.memory.model.digests import MOST_MARKS, UNKNOWN_CHAIN, DigestChain, chain_of, digest_before
from locus.memory.model.manifest import decode_manifest, newest_runs, pieces_text, visible, wanted
from locus.memory.model.payloads import (
    LoadedState,
    joined_items,
    loaded_state,
    parsed_items,
    parsed_values,
    state_of,
    with_value,
)
from locus.memory.model.records import Base, Extent, Path, Run, Stored
from locus.memory.model.trace import ListTrace, Trace

R = TypeVar("R")

DECODED: Final = 2.2
"""How many bytes a character of JSON takes once it is decoded."""
_RUN_WEIGHT: Final = 160
"""About how many bytes a run takes beside its text."""
MANY_RUNS: Final = 256
SEPARATE_RUNS: Final = MOST_MARKS
"""From how many runs of a branch on its texts are gathered, and how many of the newest stay as they are."""

_NUMBER = attrgetter("number")

Runs = Mapping[str, list[Run]]
_Piece = tuple[Run, int, int]
_Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class HeldCheckpoint:
    """What a reader has of the checkpoint `base`: with the texts of `runs` and the lists of `trace` it has all of it.

    `runs` are none but those that belong to the checkpoint: of the branches that its manifest names, up to the newest
    that it names. Others may be gone by now, and their numbers given out again.
    """

    base: Base
    manifest: str
    runs: Runs
    trace: Trace | None = None
    """What is decoded: this checkpoint, or one that it was made from."""
    decoded: Mapping[str, int] = field(default_factory=dict)
    """The newest run of each branch that the trace names, as far as this checkpoint has that run, too."""
    sizes: Mapping[Path, int] = field(default_factory=dict)
    """Of each list and each large value of the trace: how many characters it has as text."""

    @property
    def weight(self) -> int:
        """About how many bytes this holds on to."""
        texts = sum(weight_of_runs(runs) for runs in self.runs.values())
        decoded = 0 if self.trace is None else self.trace.weight
        return texts + decoded + int(DECODED * sum(self.sizes.values())) + getsizeof(self.manifest)


def weight_of_runs(runs: Iterable[Run]) -> int:
    """About how many bytes these take as texts."""
    texts = [run.items for run in runs]
    return sum(map(getsizeof, texts)) + _RUN_WEIGHT * len(texts)


@dataclass(frozen=True, slots=True)
class LoadForm(Generic[R]):
    """How a payload is loaded: from a whole read, and from what is held and what was sent beside it.

    Either gives what the caller wants, and what is held from then on.
    """

    whole: Callable[[Stored], tuple[R, HeldCheckpoint | None]]
    since: Callable[[HeldCheckpoint, Stored], tuple[R, HeldCheckpoint] | None]


def followed(held: HeldCheckpoint | None, base: Base, manifest: str, added: Iterable[Run]) -> HeldCheckpoint | None:
    """What a writer holds that has saved `base`, with these runs, on what it held before (None: on nothing)."""
    more: dict[str, list[Run]] = {}
    for run in added:
        more.setdefault(run.branch, []).append(run)
    newest = newest_runs([manifest])
    if held is None:
        return HeldCheckpoint(base, manifest, _named(newest, more))
    runs = _named(newest, held.runs, more)
    if held.trace is None:
        return HeldCheckpoint(base, manifest, runs) if _covers(held, manifest, runs) else None
    decoded = {branch: number for branch, number in held.decoded.items() if number <= newest.get(branch, -1)}
    return HeldCheckpoint(base, manifest, runs, held.trace, decoded, held.sizes)


def _named(newest: Mapping[str, int], *sources: Runs) -> dict[str, list[Run]]:
    """The runs of these branches, up to the newest, each once and in the order of their numbers."""
    found: dict[str, list[Run]] = {}
    for branch, number in newest.items():
        runs: list[Run] = []
        for source in sources:
            more = sorted(source.get(branch, ()), key=_NUMBER)
            if runs and more and more[0].number <= runs[-1].number:
                more = sorted({run.number: run for run in (*runs, *more)}.values(), key=_NUMBER)
                runs = []
            runs = runs + more if runs else more
        if runs and runs[-1].number > number:
            runs = [run for run in runs if run.number <= number]
        if runs:
            found[branch] = runs
    return found


# Texts: dicts and graphs. Their values can be changed by whoever gets them, so they are parsed anew for every load.


def _whole_texts(stored: Stored) -> tuple[Stored, HeldCheckpoint | None]:
    gathered = _gathered(stored.manifest, _named(newest_runs([stored.manifest]), stored.runs))
    return replace(stored, runs=gathered), HeldCheckpoint(_base_of(stored), stored.manifest, gathered)


def _texts_since(held: HeldCheckpoint, sent: Stored) -> tuple[Stored, HeldCheckpoint] | None:
    if held.trace is not None:
        return None
    runs = _named(newest_runs([sent.manifest]), held.runs, sent.runs)
    if not _covers(held, sent.manifest, runs):
        return None
    gathered = _gathered(sent.manifest, runs)
    whole = Stored(sent.entry, sent.head, sent.manifest, gathered, sent.passed)
    return whole, HeldCheckpoint(_base_of(sent), sent.manifest, gathered)


def _covers(held: HeldCheckpoint, manifest: str, runs: Runs) -> bool:
    """Whether these runs are all that a manifest needs. What the held checkpoint has in the same place is there."""
    known = decode_manifest(held.manifest)
    for path, cut in decode_manifest(manifest).items():
        if known.get(path) == cut:
            continue
        for extent in [Extent(cut, 0, 0, 1)] if isinstance(cut, str) else cut:
            found = runs.get(extent.branch, ())
            if not any(run.number == extent.run for run in reversed(found)):
                return False
            try:
                visible(extent, found)
            except CorruptCheckpointError:
                return False
    return True


def _gathered(manifest: str, runs: Runs) -> Runs:
    """The same lists in fewer runs, where there are many: each costs a load some time.

    A branch up to a run is made one run of that number. That serves for what names this run or a later one.
    """
    if all(len(found) < MANY_RUNS for found in runs.values()):
        return runs
    gathered = dict(runs)
    firsts: dict[str, tuple[int, int]] = {}
    for extent in wanted(manifest):
        run, skip = firsts.get(extent.branch, (extent.run, extent.skip))
        firsts[extent.branch] = min(run, extent.run), min(skip, extent.skip)
    for branch, (named, skip) in firsts.items():
        found = runs.get(branch, [])
        older = [run for run in found[:-SEPARATE_RUNS] if run.number <= named] if len(found) >= MANY_RUNS else []
        if len(older) < SEPARATE_RUNS:
            continue
        last = older[-1]
        length = last.start + last.length - skip
        if length <= 0:  # nothing shows them any more; the last one is kept, because it may be named
            gathered[branch] = found[len(older) - 1 :]
            continue
        try:
            text = pieces_text(visible(Extent(branch, last.number, skip, length), older))
        except CorruptCheckpointError:
            continue  # it shows less than it has: more was trimmed since than what is kept here
        gathered[branch] = [Run(branch, last.number, skip, length, text), *found[len(older) :]]
    return gathered


TEXTS: Final = LoadForm(_whole_texts, _texts_since)


# States. What is in their lists cannot change, so that every load shares it.


def _whole_state(stored: Stored) -> tuple[LoadedState, HeldCheckpoint | None]:
    state, trace = loaded_state(stored)
    sizes: dict[Path, int] = {}
    for path, cut in decode_manifest(stored.manifest).items():
        if path[0] not in trace.fields:
            return (state, trace), None  # a plain field with a very long text, of which a trace knows nothing
        branches = {cut} if isinstance(cut, str) else {extent.branch for extent in cut}
        sizes[path] = sum(len(run.items) for branch in branches for run in stored.runs.get(branch, ()))
    return (state, trace), _held_state(stored, trace, sizes)


def _held_state(stored: Stored, trace: Trace, sizes: Mapping[Path, int]) -> HeldCheckpoint:
    return HeldCheckpoint(_base_of(stored), stored.manifest, {}, trace, newest_runs([stored.manifest]), sizes)


def _state_since(held: HeldCheckpoint, sent: Stored) -> tuple[LoadedState, HeldCheckpoint] | None:
    try:
        return _Completion(held, sent).state()
    except (_NotCoveredError, CorruptCheckpointError, ValidationError):
        return None


STATES: Final = LoadForm(_whole_state, _state_since)


class _NotCoveredError(Exception):
    """What is held and what was sent do not give all of a checkpoint."""


class _Completion:
    """One state, put together from what is held and what was sent."""

    def __init__(self, held: HeldCheckpoint, sent: Stored) -> None:
        self._held = held
        self._sent = sent
        self._cuts = decode_manifest(sent.manifest)
        self._texts: dict[str, list[Run]] = {}
        self._sizes: dict[Path, int] = {}

    def state(self) -> tuple[LoadedState, HeldCheckpoint]:
        values: list[tuple[Path, Any]] = []
        # What lies inside a large value comes after it.
        for path, cut in sorted(self._cuts.items(), key=lambda line: len(line[0])):
            values.append((path, self._value(path, cut) if isinstance(cut, str) else self._list(path, cut)))
        state, trace = state_of(self._sent, values, self._chains)
        return (state, trace), _held_state(self._sent, trace, self._sizes)

    def _runs(self, branch: str) -> list[Run]:
        """The texts of a branch, in the order of their numbers."""
        found = self._texts.get(branch)
        if found is None:
            sent = sorted(self._sent.runs.get(branch, ()), key=_NUMBER)
            found = self._texts[branch] = [*self._held.runs.get(branch, ()), *sent]
        return found

    def _trace_at(self, path: Path) -> ListTrace | str | None:
        """What is decoded of what was cut out at a path."""
        trace = self._held.trace
        known = None if trace is None else trace.fields.get(path[0])
        return None if known is None else known.cuts.get(path)

    def _value(self, path: Path, branch: str) -> Any:
        runs = self._runs(branch)
        if runs:
            self._sizes[path] = len(runs[-1].items)
            (value,) = parsed_values(pieces_text(visible(Extent(branch, 0, 0, 1), runs)))
            return value
        if self._trace_at(path) != branch or branch not in self._held.decoded:
            raise _NotCoveredError
        assert self._held.trace is not None
        decoded = self._held.trace.fields[path[0]]
        found: Any = decoded.value
        for step in path[1:]:
            found = found[step]
        for inner, cut in decoded.cuts.items():
            # Where a list was cut out of the same text, and is not now, there is an empty one.
            if inner[: len(path)] == path != inner and inner not in self._cuts:
                found = with_value(found, inner[len(path) :], None if isinstance(cut, str) else FrozenList())
        self._sizes[path] = self._held.sizes.get(path, 0)
        return found

    def _list(self, path: Path, extents: tuple[Extent, ...]) -> Sequence[Any]:
        known = self._trace_at(path)
        trace = known if isinstance(known, ListTrace) and known.items is not None else NOTHING_DECODED
        items = trace.items
        assert items is not None
        parts: list[Sequence[Any]] = []
        size, kept = 0.0, 0
        for extent in extents:
            spans, pieces = self._covered(extent, trace)
            for low, high in spans:
                if (low, high) == (0, len(items)) == (0, sum(each.length for each in extents)):
                    self._sizes[path] = self._held.sizes.get(path, 0)
                    return items
                parts.append(_part(items, low, high))
                kept += high - low
            if pieces:
                text = pieces_text(pieces)
                parts.append(parsed_items(path, text))
                size += len(text)
        self._sizes[path] = int(size + self._held.sizes.get(path, 0) * kept / max(1, len(items)))
        return joined_items(path, parts)

    def _covered(self, extent: Extent, trace: ListTrace) -> tuple[list[_Span], list[_Piece]]:
        """Where the items of an extent are: first among those that are decoded, then in texts."""
        branch, end = extent.branch, extent.skip + extent.length
        decoded = self._held.decoded.get(branch)
        runs = self._runs(branch)
        if decoded is not None and extent.run <= decoded:
            return _spans(trace.extents, extent), []
        later = [run for run in runs if run.number <= extent.run and (decoded is None or run.number > decoded)]
        if not later or later[-1].number != extent.run:
            raise _NotCoveredError
        if decoded is None:
            return [], visible(extent, later)
        first = max(extent.skip, min(end, min(run.start for run in later)))
        spans = _spans(trace.extents, Extent(branch, decoded, extent.skip, first - extent.skip))
        pieces = visible(Extent(branch, extent.run, first, end - first), later) if first < end else []
        if spans and pieces and not _continues(pieces[0][0], decoded, later, trace.chains.get(branch, UNKNOWN_CHAIN)):
            raise _NotCoveredError
        return spans, pieces

    def _chains(self, path: Path, extents: tuple[Extent, ...]) -> dict[str, DigestChain]:
        """The chains of the branches that a list is on, as a whole read has them."""
        newest: dict[str, int] = {}
        for extent in extents:
            newest[extent.branch] = max(extent.run, newest.get(extent.branch, 0))
        known = self._trace_at(path)
        chains = known.chains if isinstance(known, ListTrace) else {}
        return {
            branch: self._chain(branch, number, chains.get(branch, UNKNOWN_CHAIN)) for branch, number in newest.items()
        }

    def _chain(self, branch: str, number: int, known: DigestChain) -> DigestChain:
        decoded = self._held.decoded.get(branch)
        if decoded is None:
            return chain_of(self._runs(branch), number)
        if number <= decoded:
            return known if number == decoded else UNKNOWN_CHAIN
        later = [run for run in self._runs(branch) if decoded < run.number <= number]
        chain, first = chain_of(later, number), min(run.start for run in later)
        if not chain.marks:
            return chain
        before = known.marks
        if before and before[-1].position >= first:
            before = tuple(mark for mark in before if mark.position < first)
        return chain._replace(marks=(before + chain.marks)[-MOST_MARKS:])


NOTHING_DECODED: Final = ListTrace((), ())


def _part(items: Sequence[Any], low: int, high: int) -> Sequence[Any]:
    if (low, high) == (0, len(items)):
        return items
    part = slice(low, high)  # as a plain tuple: a slice of `Items` would remember where it comes from
    return tuple.__getitem__(items, part) if isinstance(items, tuple) else items[part]


def _spans(extents: Iterable[Extent], wanted: Extent) -> list[_Span]:
    """Where the items of an extent are in a list with these extents, which has to name the same version of a branch."""
    spans: list[_Span] = []
    offset, at, end = 0, wanted.skip, wanted.skip + wanted.length
    candidates: list[tuple[int, int, int]] = []
    for extent in extents:
        if (extent.branch, extent.run) == (wanted.branch, wanted.run):
            candidates.append((extent.skip, extent.length, offset))
        offset += extent.length
    for skip, length, first in sorted(candidates):
        if skip <= at < min(end, skip + length):
            stop = min(end, skip + length)
            spans.append((first + at - skip, first + stop - skip))
            at = stop
    if at < end:
        raise _NotCoveredError
    return spans


def _continues(run: Run, decoded: int, later: Iterable[Run], chain: DigestChain) -> bool:
    """Whether a run was added to the list that is decoded.

    Where no number is missing between the two, it was. Else some runs were removed, because nothing shows them, or were
    lost; that is told by the digest of what precedes the run.
    """
    if sum(each.number <= run.number for each in later) == run.number - decoded:
        return True
    before = digest_before(run)
    return before is not None and any(chain.at(run.start, sort_keys) == before for sort_keys in (False, True))


def _base_of(stored: Stored) -> Base:
    return Base(stored.entry.checkpoint_id, stored.entry.rev)
