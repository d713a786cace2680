"""From a payload to what has to be written: a head, a manifest, and only the runs that are new."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from locus.core.frozen import FrozenDict, FrozenList, Items
from locus.memory.codec import check, encode, encode_trusted
from locus.memory.keys import digest
from locus.memory.lists import Match, align, joined, part
from locus.memory.records import Extent, Path, Run
from locus.memory.traces import FieldTrace, ListTrace, Trace, fingerprint, item_text

MAX_EXTENTS = 8
"""A list in more pieces than this is gathered: its manifest would outgrow what it saves."""

LARGE_VALUE = 1024
"""Values from this length on are stored once, by their digest, and not in every head."""

SMALL_LIST = 64
"""A list of plain values shorter than this is shorter than a description of where it is."""

MANY = 64
"""From this many unmatched items on it is worth comparing contents, and not only identities."""

_PLAIN = frozenset({str, int, float, bool, type(None)})
_FROZEN = (FrozenDict, FrozenList, Items)


@dataclass(frozen=True, slots=True)
class Payload:
    """A payload as the planner takes it: plain values, and fields that lists may be cut out of.

    `frozen` says that a field which is a frozen object can be recognised by its identity.
    """

    plain: Mapping[str, Any]
    fields: Mapping[str, Any]
    frozen: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What a save writes, and what to remember of it."""

    head: str
    manifest: str
    runs: tuple[Run, ...]
    values: tuple[Run, ...]
    fields: Mapping[str, FieldTrace]


class Planner:
    """Works out one save. `base` is what the delta may refer to; without one everything is new.

    `own_branches` keeps it from continuing branches of the base: another writer has done so already.
    """

    def __init__(self, rev: str, base: Trace | None, *, own_branches: bool = False, sort_keys: bool = False) -> None:
        self._rev = rev
        self._base = base
        self._own_branches = own_branches
        self._sort_keys = sort_keys
        self._runs: list[Run] = []
        self._values: dict[str, Run] = {}
        self._cuts: dict[Path, ListTrace | str] = {}
        self._known: Mapping[Path, ListTrace | str] = {}
        self._frozen = False
        self._kept_values = (
            {cut for trace in base.fields.values() for cut in trace.cuts.values() if isinstance(cut, str)}
            if base
            else set()
        )

    def plan(self, payload: Payload) -> Plan:
        self._frozen = payload.frozen
        fields = {name: self._field(name, value) for name, value in payload.fields.items()}
        parts = [encode(payload.plain, sort_keys=self._sort_keys)[1:-1]] if payload.plain else []
        parts += [f"{encode(name)}:{trace.text}" for name, trace in fields.items()]
        return Plan(
            head=f"{{{','.join(parts)}}}",
            manifest=encode_manifest({path: cut for trace in fields.values() for path, cut in trace.cuts.items()}),
            runs=tuple(self._runs),
            values=tuple(self._values.values()),
            fields=fields,
        )

    def _field(self, name: str, value: Any) -> FieldTrace:
        known = self._base.fields.get(name) if self._base else None
        trusted = self._frozen and isinstance(value, _FROZEN)
        if known is not None and trusted and known.value is value and not self._changeable(value):
            return known
        self._known = known.cuts if known else {}
        self._cuts = {}
        if isinstance(value, dict):
            check(value, (name,))
        text = self._cut(value, (name,))
        return FieldTrace(value if trusted else None, text, self._cuts)

    @staticmethod
    def _changeable(value: object) -> bool:
        return isinstance(value, Items) and not value.stable

    def _cut(self, value: Any, path: Path) -> str:
        """The text that stays in the head for a value; what is too much for it is cut out."""
        if isinstance(value, list | tuple):
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
        if branch not in self._kept_values:
            self._values[branch] = Run(branch, 0, 0, 1, f"[{text}]")
        return "null"

    def _cut_list(self, items: Sequence[Any], path: Path) -> str:
        if not items:
            return "[]"
        known = self._known.get(path)
        trace = known if isinstance(known, ListTrace) else None
        if trace is None and len(items) <= SMALL_LIST and _PLAIN.issuperset(map(type, items)):
            text = encode(items, path)
            if len(text) < SMALL_LIST:
                return text
        self._cuts[path] = _ListPlan(self, path, items, trace).trace
        return "[]"

    def open_branch(self) -> str:
        return f"{self._rev}{len(self._runs):x}"

    def add_run(self, branch: str, number: int, start: int, texts: Sequence[str]) -> None:
        self._runs.append(Run(branch, number, start, len(texts), "[" + "\n,".join(texts) + "]"))

    @property
    def sort_keys(self) -> bool:
        return self._sort_keys

    @property
    def may_continue(self) -> bool:
        return not self._own_branches

    @property
    def frozen(self) -> bool:
        return self._frozen


class _ListPlan:
    """One list of a payload: what of it is stored already, and the runs for the rest."""

    def __init__(self, planner: Planner, path: Path, items: Sequence[Any], known: ListTrace | None) -> None:
        self._planner = planner
        self._path = path
        self._items = items
        self._known = known
        self._texts: dict[int, str] = {}
        self._digests: tuple[bytes, ...] | None = None
        stable = planner.frozen and (items.stable if isinstance(items, Items) else isinstance(items, FrozenList))
        matches = self._by_identity() if stable else self._by_content()
        extents = tuple(self._stored(matches))
        if not stable and self._digests is None:
            self._digests = self._digest_all()
        self.trace = ListTrace(extents, items if stable else None, self._digests)

    def _text(self, index: int) -> str:
        text = self._texts.get(index)
        if text is None:
            path: tuple[str | int, ...] = (*self._path, index)
            # Only a state's own lists hold models; anywhere else one is refused, like any object.
            write = item_text if self._planner.frozen and isinstance(self._items, Items) else encode
            text = write(self._items[index], path, sort_keys=self._planner.sort_keys)
            self._texts[index] = text
        return text

    def _digest_all(self) -> tuple[bytes, ...]:
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
        self._digests = self._digest_all()
        if self._known is None:
            return []
        return align(self._known.known_digests(self._path, self._planner.sort_keys), self._digests)

    def _stored(self, matches: list[Match]) -> Iterator[Extent]:
        """The extents of the list, after adding the runs that they need."""
        pieces = self._pieces(matches)
        if len(pieces) > MAX_EXTENTS:
            pieces = self._gathered(pieces)
        if len(pieces) > 1 and isinstance(pieces[-1], range) and isinstance(pieces[-2], Extent):
            grown = self._continued(pieces[-2], pieces[-1])
            if grown is not None:
                pieces[-2:] = [grown]
        for piece in pieces:
            if isinstance(piece, Extent):
                yield piece
            else:
                branch = self._planner.open_branch()
                self._planner.add_run(branch, 0, 0, [self._text(index) for index in piece])
                yield Extent(branch, 0, 0, len(piece))

    def _pieces(self, matches: list[Match]) -> list[Extent | range]:
        """The list as what is stored (extents) and what is not (ranges of indexes)."""
        pieces: list[Extent | range] = []
        at = 0
        for match in matches:
            if match.at > at:
                pieces.append(range(at, match.at))
            stored = part(self._known.extents if self._known else (), match.start, match.length)
            last = pieces[-1] if pieces else None
            if isinstance(last, Extent):
                pieces[-1:] = joined([last, *stored])
            else:
                pieces += stored
            at = match.at + match.length
        if at < len(self._items):
            pieces.append(range(at, len(self._items)))
        return pieces

    def _gathered(self, pieces: list[Extent | range]) -> list[Extent | range]:
        """Fewer pieces: the first if it is at least half of the list, and the rest written anew."""
        first, count = pieces[0], len(self._items)
        if isinstance(first, Extent) and first.length * 2 >= count:
            return [first, range(first.length, count)]
        return [range(count)]

    def _continued(self, last: Extent, fresh: range) -> Extent | None:
        """The last extent with a run added to its branch, unless that has gone on without us."""
        known = self._known.extents if self._known else ()
        newest = max((extent.run for extent in known if extent.branch == last.branch), default=-1)
        if not self._planner.may_continue or last.run != newest:
            return None
        end = last.skip + last.length
        self._planner.add_run(last.branch, last.run + 1, end, [self._text(index) for index in fresh])
        return Extent(last.branch, last.run + 1, last.skip, last.length + len(fresh))


def encode_manifest(cuts: Mapping[Path, ListTrace | str]) -> str:
    lines = [[path, cut if isinstance(cut, str) else cut.extents] for path, cut in cuts.items()]
    return encode_trusted(lines)
