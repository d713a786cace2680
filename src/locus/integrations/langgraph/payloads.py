"""LangGraph's checkpoints as payloads, and back.

    {"langgraph": 1, "v": 4, "ts": "2026-…", "channel_versions": {…}, "versions_seen": {…},
     "channel_values": {"messages": [{"$type": "HumanMessage", "content": "Hello", …}], …}}

Lists in the state, at any depth of dicts, are stored item by item, each item once (see `locus.memory.model.records`).
All values are written as described in `codec`. Items that several checkpoints of a thread share are read once if the
checkpoints are read together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from locus.errors import CorruptCheckpointError, SerializationError, UnsupportedFormatError
from locus.integrations.langgraph.codec import TAG, ReadList, TypedCodec
from locus.integrations.langgraph.items import KnownList, ListEncoder, Path
from locus.memory.model.codec import check, decode, path_text
from locus.memory.model.ids import MAX_ID_LENGTH, digest
from locus.memory.model.manifest import decode_manifest, visible
from locus.memory.model.plan import SMALL_LIST, Payload
from locus.memory.model.records import Extent, Run, Stored

FORMAT = 1
FORMAT_KEY = "langgraph"
NAMESPACE = "namespace"
VALUES = "channel_values"
MAX_DEPTH = 60
"""How deep dicts may be nested around a list. The items of the list may be as deep again."""

_LONG = "|"
"""The prefix of shortened namespaces. LangGraph uses it as a separator, so no namespace begins with it."""
_PLAIN = frozenset({str, int, float, bool, type(None)})


@dataclass
class CheckpointEncoder:
    """Encodes one checkpoint as a payload. `known` are its lists as they were before, `lists` as they are now."""

    codec: TypedCodec
    encoder: ListEncoder
    known: Mapping[Path, KnownList]
    touched: Collection[int] = ()
    lists: dict[Path, KnownList] = field(default_factory=dict)

    def payload(self, checkpoint: Mapping[str, Any], namespace: str) -> Payload:
        plain: dict[str, Any] = {FORMAT_KEY: FORMAT}
        if stored_namespace(namespace) != namespace:
            plain[NAMESPACE] = namespace
        for name, value in checkpoint.items():
            if name not in (VALUES, "id"):
                plain[name] = self.codec.encode(value, (name,))
        values = self._tree(checkpoint.get(VALUES, {}), (VALUES,))
        return Payload(plain, {VALUES: values}, frozen=False, checked=True)

    def _tree(self, value: Any, path: Path) -> Any:
        kind = type(value)
        if kind is list and not _is_small(value):
            encoded, self.lists[path] = self.encoder.encoded(value, path, self.known.get(path), self.touched)
            return encoded
        if kind is dict and TAG not in value and all(type(key) is str for key in value):
            if len(path) > MAX_DEPTH:
                where = path_text(path)
                raise SerializationError(f"{where} is nested more than {MAX_DEPTH} levels deep", where)
            return {key: self._tree(item, (*path, key)) for key, item in value.items()}
        written = self.codec.encode(value, path)
        check(written, path)
        return written


def _is_small(items: list[Any]) -> bool:
    """Whether a list may stay in the head. The planner decides."""
    return len(items) <= SMALL_LIST and _PLAIN.issuperset(map(type, items))


def is_langgraph(stored: Stored) -> bool:
    head = decode(stored.head)
    return isinstance(head, dict) and FORMAT_KEY in head


def checkpoint_of(
    stored: Stored, codec: TypedCodec, shared: SharedItems, channels: Collection[str] | None = None
) -> Any:
    """The checkpoint, with the values of these channels (None: all)."""
    data = _payload(stored, shared, channels)
    found = data.pop(FORMAT_KEY, None)
    name = f"checkpoint {stored.entry.checkpoint_id!r} of thread {stored.entry.thread_id!r}"
    if found is None:
        raise CorruptCheckpointError(f"{name} is not one of LangGraph's: use another thread_id for the graph")
    if not isinstance(found, int) or found > FORMAT:
        raise UnsupportedFormatError(
            f"{name} has format {found!r:.40}, and this version knows {FORMAT}: upgrade locus-state"
        )
    data.pop(NAMESPACE, None)
    values = data.pop(VALUES, {})
    if TAG in data or not isinstance(values, dict):
        raise CorruptCheckpointError(f"{name} is damaged: it has no channels")
    if channels is not None and TAG not in values:
        values = {name: value for name, value in values.items() if name in channels}
    read: dict[str, Any] = codec.decode(data)
    return {**read, "id": stored.entry.checkpoint_id, VALUES: codec.decode(values, (VALUES,))}


def stored_namespace(namespace: str) -> str:
    """The name that a namespace is stored under. That of a deeply nested subgraph is too long for Locus."""
    if len(namespace) <= MAX_ID_LENGTH and not namespace.startswith(_LONG):
        return namespace
    return f"{_LONG}{digest(namespace)}"


def namespace_of(stored: Stored) -> str:
    """LangGraph's name for the namespace of a checkpoint."""
    if not stored.entry.namespace.startswith(_LONG):
        return stored.entry.namespace
    return str(decode(stored.head).get(NAMESPACE, stored.entry.namespace))


def loaded_lists(stored: Stored, checkpoint: Mapping[str, Any]) -> dict[Path, list[Any]]:
    """The lists of a loaded checkpoint that are stored item by item."""
    found: dict[Path, list[Any]] = {}
    for path, cut in decode_manifest(stored.manifest).items():
        value: Any = checkpoint
        for step in path:
            value = value.get(step) if type(value) is dict else None
        if type(value) is list and not isinstance(cut, str):
            found[path] = value.copy()
    return found


def _payload(stored: Stored, shared: SharedItems, channels: Collection[str] | None) -> dict[str, Any]:
    """The payload as JSON, except for the lists that were cut out of it, which are decoded already."""
    data = decode(stored.head)
    # A large value may contain lists that were cut out as well.
    cuts = sorted(decode_manifest(stored.manifest).items(), key=lambda line: len(line[0]))
    try:
        for path, cut in cuts:
            if channels is not None and path[0] == VALUES and len(path) > 1 and path[1] not in channels:
                continue
            node = data
            for step in path[:-1]:
                node = node[step]
            node[path[-1]] = (
                shared.large(cut, stored.runs) if isinstance(cut, str) else shared.list(cut, stored.runs, path)
            )
    except (KeyError, TypeError, IndexError) as error:
        raise CorruptCheckpointError(f"stored head and manifest do not fit together: {error!r}") from error
    if not isinstance(data, dict):
        raise CorruptCheckpointError(f"checkpoint {stored.entry.checkpoint_id!r} is not an object")
    return data


Runs = Mapping[str, Sequence[Run]]


class SharedItems:
    """Decoded items of one thread. Not for several: a copy of a thread has branches of the same names."""

    def __init__(self, codec: TypedCodec) -> None:
        self._codec = codec
        self._runs: dict[tuple[str, int], list[object]] = {}
        self._known: dict[str, _ReadExtent] = {}

    def list(self, extents: Collection[Extent], runs: Runs, path: tuple[str, ...]) -> ReadList:
        """The items of a list that was cut out of a payload. `path` is its place, for errors."""
        found = ReadList()
        for extent in extents:
            found += self._items(extent, runs.get(extent.branch, ()), path)
        return found

    def large(self, branch: str, runs: Runs) -> object:
        """A large value that was cut out of a payload, as JSON."""
        ((run, _, _),) = visible(Extent(branch, 0, 0, 1), runs.get(branch, ()))
        return _parsed(run)[0]

    def _items(self, extent: Extent, runs: Sequence[Run], path: tuple[str, ...]) -> Sequence[object]:
        known = self._known.get(extent.branch)
        if known is not None and known.begins_with(extent):
            return known.items[: extent.length]
        items: list[object] = []
        for run, low, high in visible(extent, runs):
            read = self._runs.get((run.branch, run.number))
            if read is None:
                read = self._runs[run.branch, run.number] = self._codec.decode(_parsed(run), path)
            items += read if (low, high) == (0, len(read)) else read[low:high]
        self._known[extent.branch] = _ReadExtent(extent, items, {run.number: run.start for run in runs})
        return items


@dataclass(frozen=True, slots=True)
class _ReadExtent:
    """An extent that was read, its items, and where the runs of its branch start."""

    extent: Extent
    items: list[object]
    starts: Mapping[int, int]

    def begins_with(self, extent: Extent) -> bool:
        """Whether an older extent is the beginning of this one, because later runs only appended to it."""
        known = self.extent
        if extent.skip != known.skip or not extent.run <= known.run or extent.length > known.length:
            return False
        end = extent.skip + extent.length
        return all(self.starts.get(number, -1) >= end for number in range(extent.run + 1, known.run + 1))


def _parsed(run: Run) -> list[object]:
    items = decode(run.items)
    if not isinstance(items, list):
        raise CorruptCheckpointError(f"run {run.number} of branch {run.branch!r} is no list")
    return items
