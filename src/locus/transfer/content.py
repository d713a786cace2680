"""What is moved: checkpoints on their way from one store to another, each with a digest, and a plan of how to save it.

Where the source is a store of ours, a checkpoint comes as it is stored, head and manifest, and its items are on a
`Shelf`: nothing but what is new in it is looked at. Where it is somebody else's, it comes whole.

Metadata that say where items are stored: those of an item log. They are made to fit where they are moved to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from locus.core.state import AgentState
from locus.memory.item_log import logged_change
from locus.memory.model.codec import canonical, decode, encode_trusted
from locus.memory.model.ids import digest
from locus.memory.model.manifest import decode_manifest
from locus.memory.model.payloads import dict_from, dict_payload, state_payload, stored_trace
from locus.memory.model.plan import (
    ListTrace,
    ListWriter,
    Planner,
    Runs,
    Trace,
    encode_manifest,
)
from locus.memory.model.records import (
    Base,
    Entry,
    Extent,
    Path,
    Run,
    Stored,
    Write,
)
from locus.transfer.digests import value_digest, writes_digest
from locus.transfer.items import Shared, Shelf, Span, length_of, part

_NOTE = "log"
ITEMS = ("items",)
HEAD = '{"items":[]}'


def noting(change: str, extents: Sequence[Extent]) -> str:
    """The metadata of a checkpoint of an item log."""
    return encode_trusted({_NOTE: encode_trusted([change, extents])})


def comparable(metadata: str) -> Any:
    """Metadata without the places of items, which two stores need not have in common."""
    found = logged_change(metadata)
    value = decode(metadata)
    return value if found is None else {**value, _NOTE: [found.change, found.items]}


def fitting(metadata: str, manifest: str, new_manifest: str) -> str:
    """The metadata of a checkpoint for another manifest than it had."""
    found = logged_change(metadata)
    if found is None or decode_manifest(manifest).get(ITEMS, ()) != found.extents:
        return metadata
    places = decode_manifest(new_manifest).get(ITEMS, ())
    return encode_trusted({**decode(metadata), _NOTE: encode_trusted([found.change, places])})


@dataclass(frozen=True, slots=True)
class Planned:
    """What a save of a checkpoint writes, and what the next one may build on."""

    head: str
    manifest: str
    runs: tuple[Run, ...]
    values: tuple[Run, ...]
    base: Any


class Content(ABC):
    """The payload of a checkpoint that is moved."""

    @property
    @abstractmethod
    def digest(self) -> bytes:
        """Equal for equal payloads, wherever and however they are stored."""

    @abstractmethod
    def plan(self, rev: str, base: Any, *, own_branches: bool, sort_keys: bool) -> Planned:
        """How to save it under this rev, as a delta to `base`, which an earlier plan or `planted` gave; or whole."""

    def metadata(self, given: str, planned: Planned) -> str:
        """The checkpoint's metadata as they are to be saved with a plan."""
        return given

    @abstractmethod
    def planted(self, stored: Stored, *, sort_keys: bool) -> Any:
        """What the next plan may build on, where this content is already: as it is stored there."""


@dataclass(frozen=True, slots=True)
class Planted:
    """A checkpoint at the destination: its lists as spans of the source's items, with their places there."""

    lists: Mapping[Path, tuple[list[Span], tuple[Extent, ...]]]
    values: frozenset[str]


class Records(Content):
    """A head and a manifest, as they are stored, and the shelf with the items."""

    def __init__(self, head: str, manifest: str, shelf: Shelf) -> None:
        self._head = head
        self._manifest = manifest
        self._shelf = shelf
        self._names: dict[Path, str] = {}
        self._values: dict[Path, str] = {}
        self._lists: dict[Path, list[Span]] = {}
        for path, cut in decode_manifest(manifest).items():
            if isinstance(cut, str):
                self._names[path] = cut
                self._values[path] = shelf.value(cut)
            else:
                self._lists[path] = shelf.spans(cut)

    @property
    def digest(self) -> bytes:
        return value_digest(decode(self._head), (), self._cut)

    def _cut(self, path: Path) -> bytes | None:
        if path in self._lists:
            return self._shelf.digest(self._lists[path])
        if path in self._values:
            return self._value_digest(path)
        return None

    def _value_digest(self, path: Path) -> bytes:
        """That of a large value. It is remembered, unless something was cut out of it, too."""
        name, known = self._names[path], self._shelf.value_digests
        whole = not any(other[: len(path)] == path != other for other in (*self._lists, *self._values))
        if not whole:
            return value_digest(decode(self._values[path]), path, self._cut)
        if name not in known:
            known[name] = value_digest(decode(self._values[path]))
        return known[name]

    def plan(self, rev: str, base: Any, *, own_branches: bool, sort_keys: bool) -> Planned:
        planted = base if isinstance(base, Planted) else Planted({}, frozenset())
        runs = Runs(rev, own_branches=own_branches)
        names = {path: f"#{digest(text)}" for path, text in self._values.items()}
        lists = {
            path: (spans, self._stored(runs, spans, planted.lists.get(path))) for path, spans in self._lists.items()
        }
        cuts = {path: ListTrace(extents) for path, (_, extents) in lists.items()}
        texts = {names[path]: text for path, text in self._values.items() if names[path] not in planted.values}
        return Planned(
            head=self._head,
            manifest=encode_manifest({**cuts, **names}),
            runs=tuple(runs.added),
            values=tuple(Run(name, 0, 0, 1, f"[{text}]") for name, text in texts.items()),
            base=Planted(lists, frozenset(names.values())),
        )

    def _stored(
        self, runs: Runs, spans: list[Span], known: tuple[list[Span], tuple[Extent, ...]] | None
    ) -> tuple[Extent, ...]:
        old, extents = known or ([], ())

        def text(index: int) -> str:
            return self._shelf.text(next(part(spans, index, 1)).first)

        return ListWriter(runs, extents, length_of(spans), text).extents(Shared(old).matches(spans))

    def metadata(self, given: str, planned: Planned) -> str:
        return fitting(given, self._manifest, planned.manifest)

    def planted(self, stored: Stored, *, sort_keys: bool) -> Planted:
        lists: dict[Path, tuple[list[Span], tuple[Extent, ...]]] = {}
        values: set[str] = set()
        for path, cut in decode_manifest(stored.manifest).items():
            if isinstance(cut, str):
                values.add(cut)
            elif length_of(self._lists.get(path, [])) == sum(extent.length for extent in cut):
                lists[path] = (self._lists[path], cut)
        return Planted(lists, frozenset(values))


class Whole(Content):
    """A payload that came whole, as a dict."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data

    @property
    def digest(self) -> bytes:
        return value_digest(self._data)

    def plan(self, rev: str, base: Any, *, own_branches: bool, sort_keys: bool) -> Planned:
        trace = None if base is None else Trace(Base("", ""), base)
        plan = Planner(rev, trace, own_branches=own_branches, sort_keys=sort_keys).plan(dict_payload(self._data))
        return Planned(plan.head, plan.manifest, plan.runs, plan.values, plan.fields)

    def planted(self, stored: Stored, *, sort_keys: bool) -> Any:
        return stored_trace(stored, sort_keys).fields


_NOWHERE = Entry("", "", "", None, 0, "", datetime.min.replace(tzinfo=UTC), "{}")


def state_dict(state: AgentState) -> dict[str, Any]:
    """A state as the dict that a checkpointer stores."""
    plan = Planner("", None).plan(state_payload(state))
    runs = {run.branch: [run] for run in (*plan.runs, *plan.values)}
    return dict_from(Stored(_NOWHERE, plan.head, plan.manifest, runs))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on its way."""

    namespace: str
    checkpoint_id: str
    parent_id: str | None
    created_at: datetime
    metadata: str
    content: Content
    writes: tuple[Write, ...] = ()

    @property
    def header(self) -> tuple[Any, ...]:
        """All of it but its content and its writes, so that equal ones are equal."""
        return header(self.namespace, self.checkpoint_id, self.parent_id, self.created_at, self.metadata)

    @property
    def writes_digest(self) -> bytes:
        return writes_digest(self.writes)


def header(
    namespace: str, checkpoint_id: str, parent_id: str | None, created_at: datetime, metadata: str
) -> tuple[Any, ...]:
    return namespace, checkpoint_id, parent_id, created_at.astimezone(UTC), canonical(comparable(metadata))


def entry_header(entry: Entry) -> tuple[Any, ...]:
    return header(entry.namespace, entry.checkpoint_id, entry.parent_id, entry.created_at, entry.metadata)
