"""Plans what a save writes: a head, a manifest and the runs that are new (see `records` for these words).

The `Planner` compares a `Payload` with the `Trace` of a stored checkpoint. Whatever is unchanged since then is referred
to and not written again: frozen objects are recognised by identity, everything else by digest. The fields of a plan are
the trace for the next save.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from locus.core.frozen import EMPTY, FrozenDict, FrozenList, Items, Lineage
from locus.memory.model.alignment import Match, align, joined, part
from locus.memory.model.codec import check, encode, encode_each, encode_trusted
from locus.memory.model.digests import (
    BEGINNING,
    MOST_MARKS,
    OPENED_CHAIN,
    UNKNOWN_CHAIN,
    DigestChain,
    digest_text,
    extended,
    fingerprints,
    with_items,
)
from locus.memory.model.ids import digest
from locus.memory.model.manifest import newest_in
from locus.memory.model.records import Cuts, Extent, Path, Run
from locus.memory.model.trace import FieldTrace, ListTrace, Trace


@dataclass(frozen=True, slots=True)
class EncodedList:
    """A list that its caller has encoded: the digest of each item's text, and the texts themselves.

    A text is asked for only if it has to be written.
    """

    digests: tuple[bytes, ...]
    text: Callable[[int], str]

    def __len__(self) -> int:
        return len(self.digests)


_UNKNOWN: Final = Lineage()


class Payload(NamedTuple):
    """A payload taken apart for the planner: plain values, and fields that lists may be cut out of.

    `frozen` says that a field which is a frozen object can be recognised by its identity; `checked`, that all of it is
    known to be JSON, except that an `EncodedList` may stand for a list.
    """

    plain: Mapping[str, Any]
    fields: Mapping[str, Any]
    frozen: bool
    checked: bool = False
    omitted: Mapping[str, int] = EMPTY
    """How many items precede those of a field that is a list: a window of it is known, and the base has the rest."""
    plain_item: Callable[[Any], object] | None = None
    """Makes a plain value of an item of a field that is an `Items`; None if they are plain values already."""
    lineage: Lineage = _UNKNOWN
    """The checkpoints that the payload was loaded from or saved as; empty if it does not know."""


class Plan(NamedTuple):
    """The result of planning a save: the head, the manifest, new runs, and the trace to remember."""

    head: str
    manifest: str
    cuts: Cuts
    """What the manifest says."""
    extents: tuple[Extent, ...]
    """Everything that the manifest names."""
    runs: tuple[Run, ...]
    values: tuple[Run, ...]
    fields: Mapping[str, FieldTrace]
    has_digests: bool
    """Whether a payload that nobody knows can be compared with this one."""


LARGE_VALUE = 1024
"""Values from this length on are stored once, by their digest, and not in every head."""
SMALL_NAME = 64
"""Names of fields up to this length are remembered as JSON."""
SMALL_LIST = 64
"""A list of plain values shorter than this is shorter than a description of where it is."""
MOST_CUTS = 1_000
"""From so many lists and large values on, those that the base does not have apart stay in the head: each costs a
reader something."""
MANY = 64
"""From this many unmatched items on, it is worth comparing contents and not only identities."""
_PLAIN = frozenset({str, int, float, bool, type(None)})
_FROZEN = (FrozenDict, FrozenList)
_SEQUENCES = (list, tuple, EncodedList)


class Planner:
    """Plans one save. `base` is the trace of the checkpoint that it builds on; without one, everything is new.

    `own_branches` keeps it from continuing branches of the base: another writer has done so already. `left_out` has the
    items that a window left out, for a plan that cannot do without them: then it raises `LeftOutNeeded`.
    """

    def __init__(
        self,
        rev: str,
        base: Trace | None,
        *,
        own_branches: bool = False,
        sort_keys: bool = False,
        left_out: Mapping[Path, Sequence[object]] | None = None,
    ) -> None:
        self.sort_keys = sort_keys
        self.runs = NewRuns(rev, own_branches=own_branches)
        self._base = base
        self._left_out = left_out
        self._values: dict[str, Run] = {}
        # Of the payload that is planned:
        self.plain_item: Callable[[Any], object] | None = None
        self.frozen = False
        self._checked = False
        self._omitted: Mapping[str, int] = {}
        self._cuts_before = 0
        # Of the field that is planned: what is known of it, and what the plan makes of it.
        self._known: Mapping[Path, ListTrace | str] = {}
        self._known_left_out: tuple[object, ...] = ()
        self._cuts: dict[Path, ListTrace | str] = {}
        self._kept_left_out: tuple[object, ...] = ()

    def plan(self, payload: Payload) -> Plan:
        self.plain_item, self.frozen, self._checked = payload.plain_item, payload.frozen, payload.checked
        self._omitted, self._cuts_before = payload.omitted, 0
        parts = [encode(payload.plain, sort_keys=self.sort_keys)[1:-1]] if payload.plain else []
        fields: dict[str, FieldTrace] = {}
        cuts: dict[Path, tuple[Extent, ...] | str] = {}
        extents: list[Extent] = []
        has_digests, has_omitted = False, False
        for name, value in payload.fields.items():
            trace = fields[name] = self._field(name, value)
            # The names are the same few in every save.
            name_text = _short_name_text(name) if len(name) <= SMALL_NAME else encode(name)
            parts.append(f"{name_text}:{trace.text}")
            self._cuts_before += len(trace.cuts)
            for path, cut in trace.cuts.items():
                if isinstance(cut, str):
                    cuts[path] = cut
                    extents.append(Extent(cut, 0, 0, 1))
                else:
                    cuts[path] = cut.extents
                    extents += cut.extents
                    has_digests, has_omitted = has_digests or bool(cut.digests), has_omitted or bool(cut.omitted)
        return Plan(
            head=f"{{{','.join(parts)}}}",
            manifest=encode_manifest(cuts),
            cuts=cuts,
            extents=tuple(extents),
            runs=tuple(self.runs.added),
            values=tuple(self._values.values()),
            fields=fields,
            has_digests=has_digests and not has_omitted,
        )

    def _field(self, name: str, value: Any) -> FieldTrace:
        known = self._base.fields.get(name) if self._base else None
        if known is not None and self.frozen:
            if known.value is not None and known.value is value:
                return known
            if type(value) is Items and (grown := self._grown(value, known, (name,))) is not None:
                return FieldTrace(value, "[]", {(name,): grown})
        self._known, self._known_left_out = (known.cuts, known.left_out) if known else ({}, ())
        self._cuts, self._kept_left_out = {}, ()
        if isinstance(value, dict) and not self._checked:
            check(value, (name,))
        text = self._cut(value, (name,))
        # Identity tells that it is unchanged, if it cannot change.
        is_fixed = self.frozen and (value.stable if isinstance(value, Items) else isinstance(value, _FROZEN))
        return FieldTrace(value if is_fixed else None, text, self._cuts, self._kept_left_out)

    def _cut(self, value: Any, path: Path) -> str:
        """The JSON of a value for the head, after cutting out long lists and large values."""
        if isinstance(value, _SEQUENCES):
            return self._cut_list(value, path)
        if isinstance(value, dict):
            parts = (f"{encode(key, path)}:{self._cut(item, (*path, key))}" for key, item in value.items())
            text = f"{{{','.join(parts)}}}"
        else:
            text = encode(value, path, sort_keys=self.sort_keys)
        if len(text) < LARGE_VALUE or (self._has_many_cuts and path not in self._known):
            return text
        branch = f"#{digest(text)}"
        self._cuts[path] = branch
        if not self._is_kept(branch):
            self._values[branch] = Run(branch, 0, 0, 1, f"[{text}]")
        return "null"

    @property
    def _has_many_cuts(self) -> bool:
        return self._cuts_before + len(self._cuts) >= MOST_CUTS

    def _is_kept(self, branch: str) -> bool:
        """Whether the base has stored a large value already."""
        fields = self._base.fields.values() if self._base else ()
        return any(branch == cut for trace in fields for cut in trace.cuts.values())

    def _cut_list(self, items: Sequence[Any] | EncodedList, path: Path) -> str:
        omitted = self._omitted.get(path[0], 0) if len(path) == 1 else 0
        if not items and not omitted:
            return "[]"
        known = self._known.get(path)
        trace = known if isinstance(known, ListTrace) else None
        left_out = self._left_out.get(path) if self._left_out else None
        if omitted and trace is None:
            left_out = self._known_left_out
        if omitted and (trace.omitted if trace else len(self._known_left_out)) != omitted:
            raise LeftOutUnknown
        if trace is None and len(items) <= SMALL_LIST and not isinstance(items, EncodedList):
            whole = (*(left_out or ()), *items) if omitted else items
            text = encode(whole, path) if _PLAIN.issuperset(map(type, whole)) else ""
            if text and len(text) < SMALL_LIST:
                self._kept_left_out = self._known_left_out if omitted else ()
                return text
        if trace is None and self._has_many_cuts and not (omitted or isinstance(items, Items | EncodedList)):
            return encode(items, path, sort_keys=self.sort_keys)
        simple: ListTrace | None = None
        if trace is not None and omitted:
            simple = self._added(items, trace, path) if trace.digests == () else None
        elif trace is not None and trace.digests:
            if type(items) is list:  # its items are known by their texts, and nothing else
                texts = encode_each(items, path, sort_keys=self.sort_keys)
                items = EncodedList(fingerprints(texts), texts.__getitem__)
            if isinstance(items, EncodedList):
                simple = self._followed(items, trace)
        self._cuts[path] = simple or _ListPlan(self, path, items, trace, omitted, left_out).trace
        return "[]"

    def _added(self, items: Sequence[Any] | EncodedList, known: ListTrace, path: Path) -> ListTrace | None:
        """The ordinary case: items that follow all stored ones. None if it is not as simple: see `_ListPlan`."""
        stored = known.extents
        if type(items) is not list or not self._may_continue(stored):
            return None
        if sum([extent.length for extent in stored]) != known.omitted:
            return None
        texts = encode_each(items, path, sort_keys=self.sort_keys)
        extents, chains = self._continued(known, texts) if texts else (stored, known.chains)
        return ListTrace(extents, None, fingerprints(texts), chains, known.omitted)

    def _followed(self, items: EncodedList, known: ListTrace) -> ListTrace | None:
        """The ordinary case: an encoded list that has only grown. None if it is not as simple: see `_ListPlan`."""
        older, digests = known.digests or (), items.digests
        if known.omitted or not self._may_continue(known.extents) or digests[: len(older)] != older:
            return None
        texts = [items.text(index) for index in range(len(older), len(digests))]
        extents, chains = self._continued(known, texts) if texts else (known.extents, known.chains)
        return ListTrace(extents, None, digests, chains)

    def _grown(self, items: Items[Any], known_field: FieldTrace, path: Path) -> ListTrace | None:
        """The ordinary case: a list of a state that has only grown. None if it is not as simple: see `_ListPlan`."""
        known = known_field.cuts.get(path)
        if not isinstance(known, ListTrace) or known.omitted or path[0] in self._omitted:
            return None
        older, stored = known.items, known.extents
        if type(older) is not Items or not self._may_continue(stored):
            return None
        count = len(older)
        if items.shared_with(older) != (0, count) or not items.stable:
            return None
        if len(items) == count:
            return ListTrace(stored, items, None, known.chains)
        fresh = tuple.__getitem__(items, slice(count, None))
        plain = fresh if self.plain_item is None else list(map(self.plain_item, fresh))
        texts = encode_each(plain, path, count, sort_keys=self.sort_keys)
        extents, chains = self._continued(known, texts)
        return ListTrace(extents, items, None, chains)

    def _may_continue(self, stored: tuple[Extent, ...]) -> bool:
        """Whether items can simply be added to the branch that a stored list ends on."""
        return self.runs.may_continue and 0 < len(stored) < MAX_EXTENTS and _is_newest(stored[-1], stored)

    def _continued(
        self, known: ListTrace, texts: Sequence[str]
    ) -> tuple[tuple[Extent, ...], Mapping[str, DigestChain]]:
        """Add items to the end of a stored list. Returns its extents then, and its chains."""
        *before, (branch, run, skip, length) = known.extents
        chain = known.chains.get(branch, UNKNOWN_CHAIN)
        newest, chain = self.runs.add(branch, run + 1, skip + length, texts, chain, sort_keys=self.sort_keys)
        grown = Extent(branch, newest, skip, length + len(texts))
        return (*before, grown), {**known.chains, branch: chain}


class _ListPlan:
    """The plan for one list: the stored parts that it reuses, and new runs for the rest."""

    def __init__(
        self,
        planner: Planner,
        path: Path,
        items: Sequence[Any] | EncodedList,
        known: ListTrace | None,
        omitted: int = 0,
        left_out: Sequence[object] | None = None,
    ) -> None:
        self._planner = planner
        self._omitted = omitted
        self._left_out = left_out
        self._path = path
        self._encoded = items if isinstance(items, EncodedList) else None
        self._items: Sequence[Any] = items.digests if isinstance(items, EncodedList) else items
        self._known = known
        self._texts: dict[int, str] = {}
        # A database may give keys back in another order. Digests have to do without it.
        self._sort_keys = planner.sort_keys
        self._digests: tuple[bytes, ...] | None = None
        stable = planner.frozen and (items.stable if isinstance(items, Items) else isinstance(items, FrozenList))
        # Only a state's own lists hold models; anywhere else one is refused, like any object.
        holds_models = planner.frozen and isinstance(items, Items)
        self._plain_item = planner.plain_item if holds_models else None
        matches = self._by_identity() if stable else self._by_content()
        stored, chains, before = (known.extents, known.chains, known.omitted) if known else ((), {}, 0)
        if omitted or before:
            matches = [Match(match.at + omitted, match.start + before, match.length) for match in matches]
            if omitted and known:
                matches.insert(0, Match(0, 0, omitted))
        count = omitted + len(items)
        writer = ListWriter(
            planner.runs,
            stored,
            count,
            self._text,
            chains,
            sort_keys=planner.sort_keys,
            omitted=omitted if known else 0,
        )
        extents = writer.extents(matches)
        self.trace = ListTrace(extents, self._items if stable else None, self._digests, writer.chains, omitted)

    def _text(self, index: int) -> str:
        """The JSON of the item at a position of the whole list, including the items that a window left out."""
        if index < self._omitted:
            if self._left_out is None:
                raise LeftOutNeeded
            return encode(self._left_out[index], (*self._path, index), sort_keys=self._sort_keys)
        return self._visible_text(index - self._omitted)

    def _visible_text(self, index: int) -> str:
        if self._encoded is not None:
            return self._encoded.text(index)
        text = self._texts.get(index)
        if text is None:
            item = self._items[index]
            plain = item if self._plain_item is None else self._plain_item(item)
            text = self._texts[index] = encode(plain, (*self._path, index), sort_keys=self._sort_keys)
        return text

    def _digest_all(self) -> tuple[bytes, ...]:
        if self._encoded is not None:
            return self._encoded.digests
        texts = self._encoded_items(self._items)
        self._texts = dict(enumerate(texts))
        return fingerprints(texts)

    def _encoded_items(self, items: Sequence[Any]) -> list[str]:
        plain = items if self._plain_item is None else list(map(self._plain_item, items))
        return encode_each(plain, self._path, sort_keys=self._sort_keys)

    def _by_identity(self) -> list[Match]:
        known, items = self._known, self._items
        if known is None:
            return []
        if known.items is None:
            return self._by_content()
        skip, kept = 0, 0
        if isinstance(items, Items) and isinstance(known.items, Items):
            skip, kept = items.shared_with(known.items) or (0, 0)
        matches = [Match(0, skip, kept)] if kept else []
        if skip + kept == len(known.items):  # an append: nothing is left of the old list
            return matches
        rest = align(list(map(id, known.items[skip + kept :])), list(map(id, items[kept:])))
        matches += [Match(match.at + kept, match.start + skip + kept, match.length) for match in rest]
        fresh = len(items) - sum(match.length for match in matches)
        return self._by_content() if fresh >= MANY else matches

    def _by_content(self) -> list[Match]:
        self._digests = self._digest_all()
        if self._known is None:
            return []
        if self._known.is_unread:
            return self._by_chain(self._known)
        known = self._known.digests or fingerprints(self._encoded_items(self._known.items or ()))
        return align(known, self._digests)

    def _by_chain(self, known: ListTrace) -> list[Match]:
        """The common beginning of this list and a stored one, of which only digests of its branches are known.

        If that is not most of it, the stored one has to be read.
        """
        if self._encoded is not None:
            raise ContentNeeded  # its digests are of texts that nobody has
        newest = newest_in(known.extents)
        at = 0
        for extent in known.extents:
            chain = known.chains.get(extent.branch, UNKNOWN_CHAIN)
            # The chain is that of the branch as of its newest run. Extents of older ones may have other items.
            if extent.run != newest[extent.branch]:
                break
            same = self._common_with(chain, extent, at)
            at += same
            if same < extent.length:
                break
        total = sum(extent.length for extent in known.extents)
        if total - at >= MANY or (total and not at):
            raise ContentNeeded
        return [Match(0, 0, at)] if at else []

    def _common_with(self, chain: DigestChain, extent: Extent, at: int) -> int:
        """The number of items of an extent that digests prove equal to those of this list from `at` on."""
        marks = {mark.position: mark.digest for mark in chain.digested(self._sort_keys)}
        digest = BEGINNING if extent.skip == 0 else marks.get(extent.skip)
        if digest is None:
            return 0
        same = 0
        count = min(extent.length, len(self._items) - at)
        for index in range(count):
            digest = extended(digest, self._visible_text(at + index))
            if marks.get(extent.skip + index + 1) == digest:
                same = index + 1
        return same


MAX_EXTENTS = 8
"""A list in more pieces than this is gathered: its manifest would outgrow what it saves."""
MAX_LEFT_OUT = 16
"""Where a window left items out, they may be in more pieces, because they have to be read to be gathered."""


class LeftOutNeeded(Exception):
    """A plan needs the items that a window left out, to write them anew."""


class ContentNeeded(Exception):
    """A plan needs the stored content of its base, because digests do not suffice."""


class LeftOutUnknown(Exception):
    """The base of a plan does not have the items that a window left out."""


MOST_ITEMS = 256
LONGEST_RUN = 65_536
"""In characters. A run has at most so many items and so much text, so that a reader of a few items reads little else.
An item that is longer is a run of its own."""


def run_portions(texts: Sequence[str]) -> Iterable[Sequence[str]]:
    """Split texts of items into portions, one for each run."""
    if len(texts) <= MOST_ITEMS and sum(map(len, texts)) + 2 * len(texts) <= LONGEST_RUN:
        return (texts,)
    return _many_portions(texts)


def _many_portions(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    first = size = 0
    for index, text in enumerate(texts):
        length = len(text) + 2  # with what stands between items
        if index > first and (index - first == MOST_ITEMS or size + length > LONGEST_RUN):
            yield texts[first:index]
            first, size = index, 0
        size += length
    yield texts[first:]


class NewRuns:
    """The runs that one save adds. With `own_branches`, it continues none of its base's branches."""

    def __init__(self, rev: str, *, own_branches: bool) -> None:
        self._rev = rev
        self.may_continue = not own_branches
        self.added: list[Run] = []

    def open_branch(self) -> str:
        return f"{self._rev}{len(self.added):x}"

    def add(
        self, branch: str, number: int, start: int, texts: Sequence[str], chain: DigestChain, *, sort_keys: bool
    ) -> tuple[int, DigestChain]:
        """Add items to a branch, as runs from a number and a position on. Returns the newest number and the chain."""
        for some in run_portions(texts):
            marks = chain.marks
            if chain.tip is None and marks and marks[-1].position == start:  # most runs are added at the end
                before: bytes | None = marks[-1].digest
                chain = DigestChain(with_items(marks, some)[-MOST_MARKS:])
            else:
                before = chain.at(start, sort_keys)
                chain = chain.continued(start, some, sort_keys)
            self.added.append(run_of(branch, number, start, some, digest_text(before)))
            start, number = start + len(some), number + 1
        return number - 1, chain


class ListWriter:
    """Writes a list of `count` items that shares parts with a stored list: finds extents, and adds runs between.

    `text` gives the JSON of the item at an index. `known` are the chains of the stored one. The first `omitted` items
    are those of the stored one, and their texts are best not asked for.
    """

    def __init__(
        self,
        runs: NewRuns,
        stored: tuple[Extent, ...],
        count: int,
        text: Callable[[int], str],
        known: Mapping[str, DigestChain],
        *,
        sort_keys: bool,
        omitted: int = 0,
    ) -> None:
        self._runs = runs
        self._omitted = omitted
        self._stored = stored
        self._count = count
        self._text = text
        self._sort_keys = sort_keys
        self._known = known
        self.chains: dict[str, DigestChain] = {}
        """The chains of the list that was written."""

    def extents(self, matches: list[Match]) -> tuple[Extent, ...]:
        """Add the runs that the list needs, and return its extents."""
        pieces = self._pieces(matches)
        if len(pieces) > MAX_EXTENTS:
            pieces = self._gathered(pieces)
        if len(pieces) > 1 and isinstance(pieces[-1], range) and isinstance(pieces[-2], Extent):
            grown = self._continued(pieces[-2], pieces[-1])
            if grown is not None:
                pieces[-2:] = [grown]
        extents = tuple(piece if isinstance(piece, Extent) else self._opened(piece) for piece in pieces)
        for extent in extents:
            if extent.branch in self._known:
                self.chains.setdefault(extent.branch, self._known[extent.branch])
        return extents

    def _opened(self, piece: range) -> Extent:
        """Write some items to a new branch, and return their extent."""
        branch = self._runs.open_branch()
        texts = [self._text(index) for index in piece]
        newest, self.chains[branch] = self._runs.add(branch, 0, 0, texts, OPENED_CHAIN, sort_keys=self._sort_keys)
        return Extent(branch, newest, 0, len(piece))

    def _pieces(self, matches: list[Match]) -> list[Extent | range]:
        """The list as a sequence of stored parts (extents) and new ones (ranges of indexes)."""
        pieces: list[Extent | range] = []
        at = 0
        for match in matches:
            if match.at > at:
                pieces.append(range(at, match.at))
            stored = part(self._stored, match.start, match.length)
            last = pieces[-1] if pieces else None
            if isinstance(last, Extent):
                pieces[-1:] = joined([last, *stored])
            else:
                pieces += stored
            at = match.at + match.length
        if at < self._count:
            pieces.append(range(at, self._count))
        return pieces

    def _gathered(self, pieces: list[Extent | range]) -> list[Extent | range]:
        """A list in fewer pieces: the first one if it is at least half of it; the rest is written anew."""
        first, count = pieces[0], self._count
        if self._omitted:
            left_out = part(self._stored, 0, self._omitted)
            if len(left_out) <= MAX_LEFT_OUT:
                few = len(pieces) <= len(left_out) + 2  # the last may be continued, and nothing is to be gathered
                return pieces if few else [*left_out, range(self._omitted, count)]
        if isinstance(first, Extent) and first.length * 2 >= count:
            return [first, range(first.length, count)]
        return [range(count)]

    def _continued(self, last: Extent, fresh: range) -> Extent | None:
        """The last extent, grown by items added to its branch; None if another version has continued the branch."""
        if not self._runs.may_continue or not _is_newest(last, self._stored):
            return None
        end = last.skip + last.length
        texts = [self._text(index) for index in fresh]
        chain = self._known.get(last.branch, UNKNOWN_CHAIN)
        newest, self.chains[last.branch] = self._runs.add(
            last.branch, last.run + 1, end, texts, chain, sort_keys=self._sort_keys
        )
        return Extent(last.branch, newest, last.skip, last.length + len(fresh))


def _is_newest(last: Extent, stored: Sequence[Extent]) -> bool:
    """Whether no other stored extent names a newer run of this extent's branch."""
    return len(stored) == 1 or all(extent.run <= last.run for extent in stored if extent.branch == last.branch)


def run_of(branch: str, number: int, start: int, texts: Sequence[str], before: str | None = None) -> Run:
    """Make a run of items whose JSON texts are given."""
    return Run(branch, number, start, len(texts), "[" + "\n,".join(texts) + "]", before)


def encode_manifest(cuts: Cuts) -> str:
    """Write a manifest: one entry for each part that was cut out of a payload."""
    return encode_trusted(list(cuts.items()))


@lru_cache(maxsize=1024)
def _short_name_text(name: str) -> str:
    return encode(name)
