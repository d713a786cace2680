"""LangGraph's checkpoints as payloads, and back.

    {"langgraph": 1, "v": 4, "ts": "2026-…", "channel_versions": {…}, "versions_seen": {…},
     "channel_values": {"messages": [{"$type": "HumanMessage", "content": "Hello", …}], …}}

Lists in the state, at any depth of dicts, are stored item by item, each item once (see `locus.threads.encoded`).
All values are written as described in `codec`. Items that several checkpoints of a thread share are read once if the
checkpoints are read together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from locus.errors import CorruptCheckpointError, SerializationError, UnsupportedFormatError
from locus.integrations.langgraph.codec import TAG, TypedCodec
from locus.integrations.langgraph.items import KnownList, ListEncoder
from locus.threads import ItemDecoder, Path, ReadVersion, is_small
from locus.threads.ids import MAX_ID_LENGTH, digest
from locus.threads.json import check, path_text

FORMAT = 1
FORMAT_KEY = "langgraph"
NAMESPACE = "namespace"
VALUES = "channel_values"
MAX_DEPTH = 60
"""How deep dicts may be nested around a list. The items of the list may be as deep again."""

_LONG = "|"
"""The prefix of shortened namespaces. LangGraph uses it as a separator, so no namespace begins with it."""
_TEXT = frozenset({str})


@dataclass
class CheckpointEncoder:
    """Encodes one checkpoint as a payload. `known` are its lists as they were before, `lists` as they are now."""

    codec: TypedCodec
    encoder: ListEncoder
    known: Mapping[Path, KnownList]
    touched: Collection[int] = ()
    lists: dict[Path, KnownList] = field(default_factory=dict)

    def head(self, checkpoint: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        """All of a checkpoint but the values of its channels. Most of it is new each time."""
        plain: dict[str, Any] = {FORMAT_KEY: FORMAT}
        if stored_namespace(namespace) != namespace:
            plain[NAMESPACE] = namespace
        for name, value in checkpoint.items():
            if name not in (VALUES, "id"):
                plain[name] = self.codec.encode(value, (name,))
        return plain

    def fields(self, checkpoint: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the channels."""
        return {VALUES: self._tree(checkpoint.get(VALUES, {}), (VALUES,))}

    def _tree(self, value: Any, path: Path) -> Any:
        kind = type(value)
        if kind is list and not is_small(value):
            encoded, self.lists[path] = self.encoder.encoded(value, path, self.known.get(path), self.touched)
            return encoded
        if kind is dict and TAG not in value and _TEXT.issuperset(map(type, value)):
            if len(path) > MAX_DEPTH:
                where = path_text(path)
                raise SerializationError(f"{where} is nested more than {MAX_DEPTH} levels deep", where)
            return {key: self._tree(item, (*path, key)) for key, item in value.items()}
        written = self.codec.encode(value, path)
        check(written, path)
        return written


def is_langgraph(version: ReadVersion) -> bool:
    fields = version.fields()
    return isinstance(fields, dict) and FORMAT_KEY in fields


def checkpoint_of(
    version: ReadVersion, codec: TypedCodec, decoder: ItemDecoder, channels: Collection[str] | None = None
) -> Any:
    """Rebuild a checkpoint, with the values of some channels (None: all)."""
    data = version.content(decoder, None if channels is None else _outside(channels))
    values = _taken_apart(version, data)
    if channels is not None and TAG not in values:
        values = {name: value for name, value in values.items() if name in channels}
    read: dict[str, Any] = codec.decode(data)
    return {**read, "id": version.checkpoint_id, VALUES: codec.decode(values, (VALUES,))}


def valued_channels(version: ReadVersion) -> frozenset[str]:
    """The channels that a checkpoint has values of. Those values need not have been read."""
    data = version.fields()
    if not isinstance(data, dict):
        data = {}
    values = _taken_apart(version, data)
    if values.get(TAG) != "dict":
        return frozenset(values)
    # A channel may be named like the tag: then all of them are written as pairs.
    return frozenset(pair[0] for pair in values.get("items", ()))


def _taken_apart(version: ReadVersion, data: dict[str, Any]) -> dict[str, Any]:
    """Take the values of the channels out of the fields of a checkpoint, and leave there what LangGraph knows."""
    found, entry = data.pop(FORMAT_KEY, None), version.entry
    name = f"checkpoint {entry.checkpoint_id!r} of thread {entry.thread_id!r}"
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
    return values


def _outside(channels: Collection[str]) -> Callable[[Path], bool]:
    """Tells whether a path leads into another channel."""
    return lambda path: path[0] == VALUES and len(path) > 1 and path[1] not in channels


def stored_namespace(namespace: str) -> str:
    """The stored name of a namespace. Names of deeply nested subgraphs are too long, and are shortened."""
    if len(namespace) <= MAX_ID_LENGTH and not namespace.startswith(_LONG):
        return namespace
    return f"{_LONG}{digest(namespace)}"


def namespace_of(version: ReadVersion) -> str:
    """LangGraph's name for the namespace of a checkpoint."""
    namespace = version.entry.namespace
    return str(version.fields().get(NAMESPACE, namespace)) if namespace.startswith(_LONG) else namespace


def loaded_lists(version: ReadVersion, checkpoint: Mapping[str, Any]) -> dict[Path, list[Any]]:
    """The lists of a loaded checkpoint that are stored item by item."""
    lists: dict[Path, list[Any]] = {}
    for path in version.paths:
        value: Any = checkpoint
        for step in path:
            value = value.get(step) if type(value) is dict else None
        if type(value) is list:
            lists[path] = value.copy()
    return lists
