"""Items of long-term memory, and how each version of one is stored: as the payload of a checkpoint.

    format      the version of this layout
    value       JSON of any kind but null
    metadata    a dict
    created_at  when the first version was put, unless that was this one
    expires_at  when the item ends
    ttl_seconds how long after it was put that is
    index       what a search looks at: none for all texts, false for nothing, or a list of paths
    vectors     a list of model, dimension, and the vectors in base 85 (see `vectors`)
    namespace   and `key`, if the id of the thread was cut: otherwise it says both (see `names`)

Only `format` and `value` are always there. All but the value and the metadata stand in the checkpoint itself, so that
whoever ranks items reads one row of each.

The number of a version is the sequence number of its checkpoint, its rev the id of it. Who has taught it, the `source`,
is in the checkpoint's metadata, so that it can be looked up. A version without a key is a mark: the item was deleted,
and whoever did so was about to remove its versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from locus.errors import ConfigurationError, CorruptCheckpointError, SerializationError, UnsupportedFormatError
from locus.memory.long_term.names import Namespace, item_id, place_of
from locus.memory.long_term.vectors import Vectors, read_vectors, stored_vectors
from locus.memory.model.codec import decode
from locus.memory.model.ids import shown_thread
from locus.memory.model.payloads import dict_from
from locus.memory.model.plan import Payload
from locus.memory.model.records import Stored

FORMAT = 1
SOURCE = "source"
"""The key of a checkpoint's metadata that says who has taught a version."""

Index = Sequence[str] | Literal[False] | None


@dataclass(frozen=True)
class Item:
    """One version of an item: by default the newest."""

    namespace: Namespace
    key: str
    value: Any
    metadata: dict[str, Any]
    created_at: datetime
    """When the first version was put."""
    updated_at: datetime
    """When this version was put."""
    version: int
    """Counts from 1. On S3 and OCI a removal takes a number, too, and it goes on after a deletion."""
    source: str | None = None
    """Who has taught this version: mostly the id of a thread."""
    expires_at: datetime | None = None
    ttl_seconds: float | None = None
    index: Index = None
    rev: str = field(default="", repr=False)
    """Names this version and no other, even after the item was deleted and put again."""
    vectors: Vectors | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Found(Item):
    """An item that a search has found."""

    score: float | None = None
    """Ranks the items of one search; None without a query, or if nothing of the query is in it."""
    similarity: float | None = None
    """The cosine of the vectors, of whatever store and search; None if no vectors were compared."""


def payload_of(item: Item) -> Payload:
    """The payload of the checkpoint that keeps a version."""
    is_cut = place_of(item_id(item.namespace, item.key)) is None
    plain = {
        "namespace": list(item.namespace) if is_cut else None,
        "key": item.key if is_cut else None,
        "created_at": None if item.created_at == item.updated_at else item.created_at.isoformat(),
        "expires_at": None if item.expires_at is None else item.expires_at.isoformat(),
        "ttl_seconds": item.ttl_seconds,
        "index": item.index if item.index is None or item.index is False else list(item.index),
        "vectors": None if item.vectors is None else stored_vectors(item.vectors),
    }
    said = {name: part for name, part in plain.items() if part is not None}
    fields = {"value": item.value, **({"metadata": item.metadata} if item.metadata else {})}
    return Payload({"format": FORMAT, **said}, fields, frozen=False)


DELETED = "deleted"
"""The key of a checkpoint's metadata, and of its payload, that says that it marks a deletion."""
MARK = Payload({"format": FORMAT, DELETED: True}, {}, frozen=False)
"""The payload of such a mark."""


def item_of(stored: Stored) -> Item | None:
    """The item of a stored version; None if it is the mark of a deletion."""
    entry = stored.entry
    try:
        data = dict_from(stored)
        if data["format"] > FORMAT:
            raise UnsupportedFormatError(
                f"an item has format {data['format']!r:.20}, and this version of Locus knows up to {FORMAT}: "
                "upgrade locus-state"
            )
        if data.get(DELETED) is True:
            return None
        place = place_of(entry.thread_id)
        namespace, key = place or (tuple(data["namespace"]), data["key"])
        times = [datetime.fromisoformat(text) for text in (data.get("created_at"), data.get("expires_at")) if text]
        item = Item(
            namespace,
            key,
            data["value"],
            data.get("metadata", {}),
            times[0] if data.get("created_at") else entry.created_at,
            entry.created_at,
            entry.seq,
            None if entry.metadata == "{}" else decode(entry.metadata).get(SOURCE),
            times[-1] if data.get("expires_at") else None,
            data.get("ttl_seconds"),
            checked_index(data.get("index")),
            entry.checkpoint_id,
            read_vectors(data.get("vectors")),
        )
        if (
            (place is None and item_id(namespace, key) != entry.thread_id)
            or not isinstance(item.metadata, dict)
            or item.value is None
            or any(time.tzinfo is None for time in times)
        ):
            raise ValueError("it says something else than its place")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise CorruptCheckpointError(f"{shown_thread(entry.thread_id)} of a memory holds no item") from None
    return item


def has_ended(item: Item, now: datetime) -> bool:
    return item.expires_at is not None and item.expires_at <= now


def checked_value(value: Any) -> Any:
    if value is None:
        raise SerializationError("a value is JSON of any kind but null: `delete` removes an item", "value")
    return value


def checked_index(index: Any) -> Index:
    if index is None or index is False:
        return index
    if isinstance(index, list | tuple) and all(isinstance(path, str) for path in index):
        return list(index)
    raise ConfigurationError(f"index is None, False, or a list of paths in the value, got {index!r:.60}")
