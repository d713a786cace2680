"""Checkpoints that are being moved from one store to another: their digests, and the plans of their saves.

A checkpoint of a Locus store is read as it is stored, as a head and a manifest, with its items in `ThreadItems`. Only
items that no earlier checkpoint had are processed. A checkpoint of another library is read whole.

The metadata of an item log refers to the places of its items, and is rewritten for the destination.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from locus.core.state import AgentState
from locus.looking.reading import check_cuts
from locus.memory.item_log import logged_change, logged_notes
from locus.memory.model.codec import canonical, decode, encode_trusted
from locus.memory.model.digests import DigestChain
from locus.memory.model.ids import digest
from locus.memory.model.manifest import decode_manifest
from locus.memory.model.payloads import chains, dict_from, dict_payload, stored_trace
from locus.memory.model.plan import ListWriter, NewRuns, Planner, encode_manifest, run_of
from locus.memory.model.records import Base, Entry, Extent, Path, Run, Stored, Write
from locus.memory.model.states import state_payload
from locus.memory.model.trace import Trace
from locus.transfer.digests import value_digest, writes_digest
from locus.transfer.items import Span, SpanMatcher, ThreadItems, spans_length


@dataclass(frozen=True, slots=True)
class MovedCheckpoint:
    """A checkpoint that is being moved."""

    namespace: str
    checkpoint_id: str
    parent_id: str | None
    created_at: datetime
    metadata: str
    content: MovedContent
    writes: tuple[Write, ...] = ()

    @property
    def header(self) -> tuple[Any, ...]:
        """Everything but the content and the writes, normalized for comparison."""
        return header_of(self)

    @property
    def writes_digest(self) -> bytes:
        return writes_digest(self.writes)


def header_of(record: MovedCheckpoint | Entry) -> tuple[Any, ...]:
    metadata = canonical(comparable_metadata(record.metadata))
    return record.namespace, record.checkpoint_id, record.parent_id, record.created_at.astimezone(UTC), metadata


@dataclass(frozen=True, slots=True)
class Planned:
    """The records that the save of a checkpoint writes. The next plan may be a delta to `delta_base`."""

    head: str
    manifest: str
    runs: tuple[Run, ...]
    values: tuple[Run, ...]
    delta_base: Any


class MovedContent(ABC):
    """The payload of a checkpoint that is being moved."""

    @property
    @abstractmethod
    def digest(self) -> bytes:
        """A digest of the payload that does not depend on how it is stored."""

    @abstractmethod
    def plan(self, rev: str, delta_base: Any, *, own_branches: bool, sort_keys: bool) -> Planned:
        """Plan the save under `rev`, as a delta to `delta_base` if that fits, or whole.

        `delta_base` comes from an earlier plan, or from `stored_base`.
        """

    def metadata(self, given: str, planned: Planned) -> str:
        """The metadata to save with a plan."""
        return given

    @abstractmethod
    def stored_base(self, stored: Stored, *, sort_keys: bool) -> Any:
        """The base for the next plan, if this content is already at the destination, as `stored`."""


class StoredContent(MovedContent):
    """The content of a checkpoint in a Locus store: its head and manifest. Raises if they do not fit together."""

    def __init__(self, head: str, manifest: str, items: ThreadItems) -> None:
        self._head = head
        self._manifest = manifest
        self._items = items
        self._names: dict[Path, str] = {}
        self._values: dict[Path, str] = {}
        self._lists: dict[Path, list[Span]] = {}
        cuts = decode_manifest(manifest)
        self._opened = (
            check_cuts(decode(head), cuts, lambda name: decode(items.value(name))) if cuts else frozenset[Path]()
        )
        for path, cut in cuts.items():
            if isinstance(cut, str):
                self._names[path] = cut
                self._values[path] = items.value(cut)
            else:
                self._lists[path] = items.spans(cut)

    @property
    def digest(self) -> bytes:
        return value_digest(decode(self._head), (), self._cut_digest)

    def _cut_digest(self, path: Path) -> bytes | None:
        if path in self._lists:
            return self._items.digest(self._lists[path])
        if path in self._values:
            return self._value_digest(path)
        return None

    def _value_digest(self, path: Path) -> bytes:
        """The digest of a large value. It is remembered, unless other values were cut out of this one."""
        name, known = self._names[path], self._items.value_digests
        if path in self._opened:
            return value_digest(decode(self._values[path]), path, self._cut_digest)
        if name not in known:
            known[name] = value_digest(decode(self._values[path]))
        return known[name]

    def plan(self, rev: str, delta_base: Any, *, own_branches: bool, sort_keys: bool) -> Planned:
        base = delta_base if isinstance(delta_base, DeltaBase) else DeltaBase({}, frozenset())
        runs = NewRuns(rev, own_branches=own_branches)
        names = {path: f"#{digest(text)}" for path, text in self._values.items()}
        lists = {
            path: self._written(runs, spans, base.lists.get(path), sort_keys) for path, spans in self._lists.items()
        }
        cuts: dict[Path, tuple[Extent, ...] | str] = {path: written.extents for path, written in lists.items()}
        texts = {names[path]: text for path, text in self._values.items() if names[path] not in base.values}
        return Planned(
            head=self._head,
            manifest=encode_manifest(cuts | names),
            runs=tuple(runs.added),
            values=tuple(Run(name, 0, 0, 1, f"[{text}]") for name, text in texts.items()),
            delta_base=DeltaBase(lists, frozenset(names.values())),
        )

    def _written(self, runs: NewRuns, spans: list[Span], known: WrittenList | None, sort_keys: bool) -> WrittenList:
        old = known or WrittenList([], ())

        starts = list(accumulate((span.length for span in spans), initial=0))

        def text(index: int) -> str:
            at = bisect_right(starts, index) - 1
            stored = self._items.text(spans[at].first + index - starts[at])
            # A database that sorts keys would give the item back like this, and digests are of the text.
            return canonical(decode(stored)) if sort_keys else stored

        writer = ListWriter(runs, old.extents, spans_length(spans), text, old.chains, sort_keys=sort_keys)
        return WrittenList(spans, writer.extents(SpanMatcher(old.spans).matches(spans)), writer.chains)

    def metadata(self, given: str, planned: Planned) -> str:
        return metadata_for(given, self._manifest, planned.manifest)

    def stored_base(self, stored: Stored, *, sort_keys: bool) -> DeltaBase:
        lists: dict[Path, WrittenList] = {}
        values: set[str] = set()
        for path, cut in decode_manifest(stored.manifest).items():
            if isinstance(cut, str):
                values.add(cut)
            elif spans_length(self._lists.get(path, [])) == sum(extent.length for extent in cut):
                lists[path] = WrittenList(self._lists[path], cut, chains(stored, cut))
        return DeltaBase(lists, frozenset(values))


@dataclass(frozen=True, slots=True)
class WrittenList:
    """A list that was moved: the spans of its items at the source, its extents and digest chains at the destination."""

    spans: list[Span]
    extents: tuple[Extent, ...]
    chains: Mapping[str, DigestChain] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeltaBase:
    """The lists and the names of large values of a checkpoint at the destination."""

    lists: Mapping[Path, WrittenList]
    values: frozenset[str]


class WholeContent(MovedContent):
    """The content of a checkpoint of another library: its payload as a dict."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data

    @property
    def digest(self) -> bytes:
        return value_digest(self._data)

    def plan(self, rev: str, delta_base: Any, *, own_branches: bool, sort_keys: bool) -> Planned:
        trace = None if delta_base is None else Trace(Base("", ""), delta_base)
        plan = Planner(rev, trace, own_branches=own_branches, sort_keys=sort_keys).plan(dict_payload(self._data))
        return Planned(plan.head, plan.manifest, plan.runs, plan.values, plan.fields)

    def stored_base(self, stored: Stored, *, sort_keys: bool) -> Any:
        return stored_trace(stored, sort_keys).fields


_LOG = "log"
ITEMS = ("items",)
"""The path of the items in the payload of an item log."""
_HEAD = '{"items":[]}'
"""The head of an item log."""


def log_metadata(change: str, extents: Sequence[Extent]) -> str:
    """The metadata of a checkpoint in an item log (see `locus.memory.item_log`)."""
    return encode_trusted({_LOG: encode_trusted([change, extents])})


def log_checkpoints(
    namespace: str, branch: str, steps: Iterable[tuple[str, datetime, Sequence[str]]], items: ThreadItems
) -> Iterator[MovedCheckpoint]:
    """One line of an item log that is imported. A step has the id and time of a checkpoint, and the items it adds."""
    parent, count = None, 0
    for number, (checkpoint_id, created_at, texts) in enumerate(steps):
        items.add([run_of(branch, number, count, texts)])
        count += len(texts)
        extent = Extent(branch, number, 0, count)
        content = StoredContent(_HEAD, encode_manifest({ITEMS: (extent,)}), items)
        yield MovedCheckpoint(namespace, checkpoint_id, parent, created_at, log_metadata("import", [extent]), content)
        parent = checkpoint_id


def comparable_metadata(metadata: str) -> Any:
    """Metadata without the extents of items, which differ between stores."""
    change = logged_change(metadata)
    value = decode(metadata)
    notes = logged_notes(metadata)
    noted = [] if notes is None else [notes]
    return value if change is None else {**value, _LOG: [change.change, change.items, *noted]}


def metadata_for(metadata: str, manifest: str, new_manifest: str) -> str:
    """Metadata with the extents of `new_manifest`, if it is that of an item log; otherwise unchanged."""
    change = logged_change(metadata)
    if change is None or change.extents is None or decode_manifest(manifest).get(ITEMS, ()) != change.extents:
        return metadata
    extents = decode_manifest(new_manifest).get(ITEMS, ())
    notes = logged_notes(metadata)
    noted = [] if notes is None else [None, notes]
    return encode_trusted({**decode(metadata), _LOG: encode_trusted([change.change, extents, *noted])})


_NOWHERE = Entry("", "", "", None, 0, "", datetime.min.replace(tzinfo=UTC), "{}")


def state_dict(state: AgentState) -> dict[str, Any]:
    """The dict that a checkpointer stores for a state."""
    plan = Planner("", None).plan(state_payload(state))
    runs = {run.branch: [run] for run in (*plan.runs, *plan.values)}
    return dict_from(Stored(_NOWHERE, plan.head, plan.manifest, runs))
