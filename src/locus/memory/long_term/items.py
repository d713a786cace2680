"""Items of long-term memory, and how each version of one is stored: as the payload of a checkpoint.

    format      the version of this layout
    namespace   the labels, which the id of the thread repeats, possibly cut (see `names`)
    key
    value       JSON of any kind but null
    metadata    a dict
    created_at  when the first version was put
    expires_at  when the item ends, or null
    ttl_seconds how long after it was put that is, or null
    index       what a search looks at: null for all texts, false for none, or a list of paths
    vectors     model, dimension, and the vectors in base64; not there if none were made

The number of a version is the sequence number of its checkpoint, its rev the id of it. Who has taught it, the `source`,
is in the checkpoint's metadata, so that it can be looked up. A version without a key is a mark: the item was deleted,
and whoever did so was about to remove its versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from locus.errors import ConfigurationError, CorruptCheckpointError, SerializationError, UnsupportedFormatError
from locus.memory.long_term.names import Namespace, item_id
from locus.memory.long_term.vectors import Vectors, read_vectors, stored_vectors
from locus.memory.model.codec import decode
from locus.memory.model.ids import shown_thread
from locus.memory.model.payloads import dict_from
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


def payload_of(item: Item) -> dict[str, Any]:
    """The payload of the checkpoint that keeps a version."""
    payload = {
        "format": FORMAT,
        "namespace": list(item.namespace),
        "key": item.key,
        "value": item.value,
        "metadata": item.metadata,
        "created_at": item.created_at.isoformat(),
        "expires_at": None if item.expires_at is None else item.expires_at.isoformat(),
        "ttl_seconds": item.ttl_seconds,
        "index": item.index if item.index is None or item.index is False else list(item.index),
    }
    return payload if item.vectors is None else {**payload, "vectors": stored_vectors(item.vectors)}


DELETED = "deleted"
"""The key of a checkpoint's metadata, and of its payload, that says that it marks a deletion."""
MARK: Mapping[str, Any] = {"format": FORMAT, DELETED: True}
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
        ends = data["expires_at"]
        metadata, index = data["metadata"], data["index"]
        item = Item(
            tuple(data["namespace"]),
            data["key"],
            data["value"],
            metadata,
            datetime.fromisoformat(data["created_at"]),
            entry.created_at,
            entry.seq,
            None if entry.metadata == "{}" else decode(entry.metadata).get(SOURCE),
            None if ends is None else datetime.fromisoformat(ends),
            data["ttl_seconds"],
            index,
            entry.checkpoint_id,
            read_vectors(data.get("vectors")),
        )
        times = [item.created_at, *filter(None, [item.expires_at])]
        if (
            item_id(item.namespace, item.key) != entry.thread_id
            or not isinstance(metadata, dict)
            or any(time.tzinfo is None for time in times)
        ):
            raise ValueError("it says something else than its place")
        checked_index(index)
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
