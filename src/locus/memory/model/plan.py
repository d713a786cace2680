"""From a payload to what has to be written: a head, a manifest, and only the runs that are new."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from locus.core.frozen import FrozenDict, FrozenList, Items
from locus.memory.model.codec import check, encode, encode_trusted
from locus.memory.model.ids import digest
from locus.memory.model.manifest import Match, align, joined, part
from locus.memory.model.records import Extent, Path, Run
from locus.memory.model.traces import FieldTrace, ListTrace, Trace, fingerprint, item_text

MAX_EXTENTS = 8
"""A list in more pieces than this is gathered: its manifest would outgrow what it saves."""

LARGE_VALUE = 1024
"""Values from this length on are stored once, by their digest, and not in every head."""

SMALL_NAME = 64
"""Names of fields up to this length are remembered as JSON."""

SMALL_LIST = 64
"""A list of plain values shorter than this is shorter than a description of where it is."""

MANY = 64
"""From this many unmatched items on it is worth comparing contents, and not only identities."""

_PLAIN = frozenset({str, int, float, bool, type(None)})
_FROZEN = (FrozenDict, FrozenList, Items)


@dataclass(frozen=True, slots=True)
class EncodedList:
    """A list that somebody else encodes, who knows what of it is unchanged: the digest of each item's text, and the
    texts, which are asked for only where they have to be written."""

    digests: tuple[bytes, ...]
    text: Callable[[int], str]

    def __len__(self) -> int:
        return len(self.digests)


@dataclass(frozen=True, slots=True)
class Payload:
    """A payload as the planner takes it: plain values, and fields that lists may be cut out of.

    `frozen` says that a field which is a frozen object can be recognised by its identity; `checked`, that all of it is
    known to be JSON, but for `EncodedList` in the place of lists.
    """

    plain: Mapping[str, Any]
    fields: Mapping[str, Any]
    frozen: bool
    checked: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What a save writes, and what to remember of it."""

    head: str
    manifest: str
    runs: tuple[Run, ...]
    values: tuple[Run, ...]
    fields: Mapping[str, FieldTrace]


class Runs:
    """The runs that one save adds. `own_branches` keeps it from continuing those of its base."""

    def __init__(self, rev: str, *, own_branches: bool) -> None:
        self._rev = rev
        self.may_continue = not own_branches
        self.added: list[Run] = []

    def open_branch(self) -> str:
        return f"{self._rev}{len(self.added):x}"

    def add(self, branch: str, number: int, start: int, texts: Sequence[str]) -> None:
        self.added.append(run_of(branch, number, start, texts))


_SEQUENCES = (list, tuple, EncodedList)


class Planner:
    """Works out one save. `base` is what the delta may refer to; without one everything is new.

    `own_branches` keeps it from continuing branches of the base: another writer has done so already.
    """

    def __init__(self, rev: str, base: Trace | None, *, own_branches: bool = False, sort_keys: bool = False) -> None:
        self._base = base
        self._sort_keys = sort_keys
        self._runs = Runs(rev, own_branches=own_branches)
        self._values: dict[str, Run] = {}
        self._cuts: dict[Path, ListTrace | str] = {}
        self._known: Mapping[Path, ListTrace | str] = {}
        self._frozen = False
        self._checked = False

    def plan(self, payload: Payload) -> Plan:
        self._frozen = payload.frozen
        self._checked = payload.checked
        fields = {name: self._field(name, value) for name, value in payload.fields.items()}
        parts = [encode(payload.plain, sort_keys=self._sort_keys)[1:-1]] if payload.plain else []
        parts += [f"{_name_text(name)}:{trace.text}" for name, trace in fields.items()]
        return Plan(
            head=f"{{{','.join(parts)}}}",
            manifest=encode_manifest({path: cut for trace in fields.values() for path, cut in trace.cuts.items()}),
            runs=tuple(self._runs.added),
            values=tuple(self._values.values()),
            fields=fields,
        )

    def _field(self, name: str, value: Any) -> FieldTrace:
        known = self._base.fields.get(name) if self._base else None
        trusted = self._frozen and isinstance(value, _FROZEN)
        if trusted and known is not None and known.value is value and (not isinstance(value, Items) or value.stable):
            return known
        self._known = known.cuts if known else {}
        self._cuts = {}
        if isinstance(value, dict) and not self._checked:
            check(value, (name,))
        text = self._cut(value, (name,))
        return FieldTrace(value if trusted else None, text, self._cuts)

    def _cut(self, value: Any, path: Path) -> str:
        """The text that stays in the head for a value; what is too much for it is cut out."""
        if isinstance(value, _SEQUENCES):
            return self._cut_list(value, path)
        if isinstance(value, dict):
            parts = (f"{encode(key, path)}:{self._cut(item, (*path, key))}" for key, item in value.items())
            text = f"{{{','.join(parts)}}}"
        else:
            text = encode(value, path, sort_keys=self._sort_keys)
        if len(text) < LARGE_VALUE:
            return text
        branch = f"#{digest(text)}"
        self._cuts[path] = branch
        if not self._is_kept(branch):
            self._values[branch] = Run(branch, 0, 0, 1, f"[{text}]")
        return "null"

    def _is_kept(self, branch: str) -> bool:
        """Whether the base has a large value already."""
        fields = self._base.fields.values() if self._base else ()
        return any(branch == cut for trace in fields for cut in trace.cuts.values())

    def _cut_list(self, items: Sequence[Any] | EncodedList, path: Path) -> str:
        if not items:
            return "[]"
        known = self._known.get(path)
        trace = known if isinstance(known, ListTrace) else None
        if trace is None and len(items) <= SMALL_LIST and not isinstance(items, EncodedList):
            text = encode(items, path) if _PLAIN.issuperset(map(type, items)) else ""
            if text and len(text) < SMALL_LIST:
                return text
        self._cuts[path] = _ListPlan(self, path, items, trace).trace
        return "[]"

    @property
    def runs(self) -> Runs:
        return self._runs

    @property
    def sort_keys(self) -> bool:
        return self._sort_keys

    @property
    def frozen(self) -> bool:
        return self._frozen


class _ListPlan:
    """One list of a payload: what of it is stored already, and the runs for the rest."""

    def __init__(
        self, planner: Planner, path: Path, items: Sequence[Any] | EncodedList, known: ListTrace | None
    ) -> None:
        self._planner = planner
        self._path = path
        self._encoded = items if isinstance(items, EncodedList) else None
        self._items: Sequence[Any] = items.digests if isinstance(items, EncodedList) else items
        self._known = known
        self._texts: dict[int, str] = {}
        self._sort_keys = False
        self._digests: tuple[bytes, ...] | None = None
        stable = planner.frozen and (items.stable if isinstance(items, Items) else isinstance(items, FrozenList))
        # Only a state's own lists hold models; anywhere else one is refused, like any object.
        holds_models = planner.frozen and isinstance(items, Items)
        self._write = item_text if holds_models else encode
        matches = self._by_identity() if stable else self._by_content()
        stored = known.extents if known else ()
        extents = ListWriter(planner.runs, stored, len(items), self._text).extents(matches)
        self.trace = ListTrace(extents, self._items if stable else None, self._digests)

    def _text(self, index: int) -> str:
        if self._encoded is not None:
            return self._encoded.text(index)
        text = self._texts.get(index)
        if text is None:
            path: tuple[str | int, ...] = (*self._path, index)
            text = self._write(self._items[index], path, sort_keys=self._sort_keys)
            self._texts[index] = text
        return text

    def _digest_all(self) -> tuple[bytes, ...]:
        if self._encoded is not None:
            return self._encoded.digests
        return tuple(fingerprint(self._text(index)) for index in range(len(self._items)))

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
        # A database may give keys back in another order. Only digests have to do without it.
        self._sort_keys = self._planner.sort_keys
        self._digests = self._digest_all()
        if self._known is None:
            return []
        return align(self._known.known_digests(self._path, self._planner.sort_keys), self._digests)


class ListWriter:
    """Writes a list of `count` items that shares parts with a stored one: the extents of both, and the runs between.

    `text` gives the JSON of the item at an index.
    """

    def __init__(self, runs: Runs, stored: tuple[Extent, ...], count: int, text: Callable[[int], str]) -> None:
        self._runs = runs
        self._stored = stored
        self._count = count
        self._text = text

    def extents(self, matches: list[Match]) -> tuple[Extent, ...]:
        """The extents of the list, after adding the runs that they need."""
        pieces = self._pieces(matches)
        if len(pieces) > MAX_EXTENTS:
            pieces = self._gathered(pieces)
        if len(pieces) > 1 and isinstance(pieces[-1], range) and isinstance(pieces[-2], Extent):
            grown = self._continued(pieces[-2], pieces[-1])
            if grown is not None:
                pieces[-2:] = [grown]
        return tuple(piece if isinstance(piece, Extent) else self._opened(piece) for piece in pieces)

    def _opened(self, piece: range) -> Extent:
        """The items on a branch of their own."""
        branch = self._runs.open_branch()
        self._runs.add(branch, 0, 0, [self._text(index) for index in piece])
        return Extent(branch, 0, 0, len(piece))

    def _pieces(self, matches: list[Match]) -> list[Extent | range]:
        """The list as what is stored (extents) and what is not (ranges of indexes)."""
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
        """Fewer pieces: the first if it is at least half of the list, and the rest written anew."""
        first, count = pieces[0], self._count
        if isinstance(first, Extent) and first.length * 2 >= count:
            return [first, range(first.length, count)]
        return [range(count)]

    def _continued(self, last: Extent, fresh: range) -> Extent | None:
        """The last extent with a run added to its branch, unless that has gone on without us."""
        newest = max((extent.run for extent in self._stored if extent.branch == last.branch), default=-1)
        if not self._runs.may_continue or last.run != newest:
            return None
        end = last.skip + last.length
        self._runs.add(last.branch, last.run + 1, end, [self._text(index) for index in fresh])
        return Extent(last.branch, last.run + 1, last.skip, last.length + len(fresh))


@lru_cache(maxsize=1024)
def _short_name_text(name: str) -> str:
    return encode(name)


def _name_text(name: str) -> str:
    """The name of a field as JSON. They are the same few in every save."""
    return _short_name_text(name) if len(name) <= SMALL_NAME else encode(name)


def run_of(branch: str, number: int, start: int, texts: Sequence[str]) -> Run:
    """A run of items that are JSON texts already."""
    return Run(branch, number, start, len(texts), "[" + "\n,".join(texts) + "]")


def encode_manifest(cuts: Mapping[Path, ListTrace | str]) -> str:
    lines = [[path, cut if isinstance(cut, str) else cut.extents] for path, cut in cuts.items()]
    return encode_trusted(lines)
