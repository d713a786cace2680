"""What is known of a log of items (see `item_log`) at one of its checkpoints. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from locus.errors import CorruptCheckpointError
from locus.memory.model.codec import decode
from locus.memory.model.manifest import items_text, part
from locus.memory.model.payloads import decode_manifest, dict_from
from locus.memory.model.records import Base, Entry, Extent, Stored

_PATH = ("items",)


@dataclass(frozen=True, slots=True)
class Tip:
    """A checkpoint of a log, as a change needs to know it."""

    base: Base
    count: int
    extents: tuple[Extent, ...] | None
    """Where the items are. None: nowhere that a delta could refer to."""
    last: str | None = None
    """The last item, if it is known."""


@dataclass(frozen=True, slots=True)
class Edit:
    """The first `kept` items of a checkpoint (`None`: of an empty log), and after them these texts."""

    tip: Tip | None
    kept: int
    texts: Sequence[str] = ()


def tip_of(stored: Stored) -> Tip:
    base = Base(stored.entry.checkpoint_id, stored.entry.rev)
    cut = decode_manifest(stored.manifest).get(_PATH)
    if isinstance(cut, tuple):
        return Tip(base, sum(extent.length for extent in cut), cut)
    items = dict_from(stored).get("items")
    if not isinstance(items, list):
        entry = stored.entry
        raise CorruptCheckpointError(
            f"thread {entry.thread_id!r}, namespace {entry.namespace!r}, is no list of items: something else uses it. "
            "Use another id, or another namespace"
        )
    return Tip(base, len(items), () if not items else None)


def first_extents(tip: Tip | None, count: int) -> list[Extent]:
    """Where the first items of a checkpoint are, as far as a delta can refer to them."""
    if tip is None or tip.extents is None:
        return []
    return list(tip.extents) if count == tip.count else part(tip.extents, 0, count)


def items_of(stored: Stored, tip: Tip, start: int) -> list[Any]:
    if tip.extents is None:
        found: list[Any] = dict_from(stored)["items"]
        return found[start:]
    return list(decode(items_text(part(tip.extents, start, tip.count - start), stored.runs)))


class Noted(NamedTuple):
    """What a checkpoint's metadata says of the log."""

    change: str
    extents: tuple[Extent, ...]
    rev: str | None = None
    """The checkpoint that it was said of; None if it was put right when the log was moved."""

    @property
    def items(self) -> int:
        return sum(extent.length for extent in self.extents)


def noted(metadata: str) -> Noted | None:
    """None if the checkpoint was made by something else."""
    try:
        change, extents, *rest = decode(decode(metadata)["log"])
        return Noted(str(change), tuple(Extent(*extent) for extent in extents), *rest)
    except (KeyError, TypeError, ValueError, CorruptCheckpointError):
        return None


def noted_tip(entry: Entry) -> Tip | None:
    """What the metadata of a checkpoint say, if it is of this very checkpoint that they say it."""
    found = noted(entry.metadata)
    if found is None or found.rev not in (None, entry.rev):
        return None
    return Tip(Base(entry.checkpoint_id, entry.rev), found.items, found.extents)
