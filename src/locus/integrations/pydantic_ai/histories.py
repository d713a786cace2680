"""Computes the new history of a conversation for a write. Pure functions over stored items.

Entries are a tree: each points at the one before it. The line from the first entry to the record's head is the history,
and is stored as a list, so that its end can be read without the rest. Whatever else the conversation has written is
kept aside, in no order that matters: these are the branches that it has left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from locus.integrations.pydantic_ai.codec import Item


@dataclass(frozen=True)
class NewLine:
    """The new entries of a write that continue a line, which ends with the entry `after` (None: an empty line)."""

    after: str | None
    items: list[Item]
    aside: list[Item]
    """New entries that are not on the line to the head."""


@dataclass(frozen=True)
class HistoryChange:
    """A new history: the first `kept` items of the stored one, then `added`. `left` is added to the entries aside."""

    kept: int
    added: list[Item]
    left: list[Item] = field(default_factory=list)
    indexed: list[str] = field(default_factory=list)
    """The ids of entries that this conversation did not have before."""


def line_to(entry_id: str | None, *lists: Sequence[Item]) -> list[Item] | None:
    """The line of entries from the first one to this one; None if an entry is in none of these lists."""
    known: dict[str, Item] = {}
    for items in lists:
        for item in items:
            known.setdefault(item["id"], item)
    line: list[Item] = []
    while entry_id is not None:
        if entry_id not in known:
            return None
        item = known.pop(entry_id)  # taken out, so that entries that point at each other come to an end
        line.append(item)
        entry_id = item["parent_id"]
    line.reverse()
    return line


def new_line(head_id: str | None, new: Sequence[Item]) -> NewLine:
    """Of the new entries, those on the line to the head, and the stored entry that they follow."""
    known = {item["id"]: item for item in new}
    line: list[Item] = []
    after = head_id
    while after is not None and after in known:
        item = known.pop(after)
        line.append(item)
        after = item["parent_id"]
    line.reverse()
    return NewLine(after, line, list(known.values()))


def continued(count: int, new: NewLine) -> HistoryChange:
    """The change that appends new entries to a stored history of `count` items."""
    return HistoryChange(count, new.items, new.aside, ids_of((*new.items, *new.aside)))


def moved(base: Sequence[Item], new: NewLine, items: Sequence[Item], left: Sequence[Item]) -> HistoryChange:
    """The change that continues the line `base`, which is not the stored history `items`."""
    same = takewhile(lambda pair: pair[0]["id"] == pair[1]["id"], zip(base, items, strict=False))
    kept = sum(1 for _ in same)
    added = [*base[kept:], *new.items]
    aside = set(ids_of(left))
    known = aside.union(ids_of(items))
    gone = [item for item in items[kept:] if item["id"] not in aside]
    indexed = [name for name in ids_of((*added, *new.aside)) if name not in known]
    return HistoryChange(kept, added, [*gone, *new.aside], indexed)


def ids_of(items: Sequence[Item]) -> list[str]:
    return [item["id"] for item in items]
