"""`/t/{id}/diff/{a}/{b}`: the changes from one checkpoint to another. What they share is not read."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from locus.looking.formatting import dotted
from locus.looking.tool_calls import ChangedSide, changed_sides
from locus.memory.model.changes import PAGE, ItemChange, ListDiff, PayloadDiff, ValueChange
from locus.memory.model.comparison import LARGEST_PAGE, TooMuchText
from locus.memory.model.ids import MAX_ID_LENGTH
from locus.memory.model.records import DEFAULT_NAMESPACE, CheckpointKey, Entry
from locus.server.inspector.pages.base import Pages, off_loop
from locus.server.inspector.pages.marks import MarksQuery
from locus.server.inspector.trees import without_encoded
from locus.server.inspector.words import Effort, Piece, compared
from locus.server.memory_budget import share_of
from locus.wire.format import from_segment
from locus.wire.problems import Problem

LONGEST: Final = 6_000
"""The most characters of one value on a page."""
_NEAR: Final = 500
"""The number of checkpoints that are read to tell if one continues the other."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?")


class DiffQuery(MarksQuery):
    ns: Annotated[str, Field(max_length=MAX_ID_LENGTH)] = DEFAULT_NAMESPACE
    other: Annotated[str | None, Field(max_length=MAX_ID_LENGTH)] = None
    start: Annotated[str, Field(max_length=12, pattern="^[0-9]*$")] = ""


@dataclass(frozen=True)
class SideShown:
    """A value or an item before or after a change, in pieces. The label of an item is its role."""

    label: str
    pieces: list[Piece]
    more: int


@dataclass(frozen=True)
class ChangeShown:
    """A change of a value or of an item. A side is None where there was or is nothing."""

    kind: str
    place: str
    before: SideShown | None
    after: SideShown | None
    is_time: bool = False
    """True if only a time moved on, as it does with every save."""


@dataclass(frozen=True)
class ListShown:
    """A list that differs, with the changes of this page. With `breaks_off`, the next page has more of them."""

    name: str
    found: ListDiff
    changes: list[ChangeShown]
    breaks_off: bool


def routes(pages: Pages) -> list[Route]:
    async def diff_page(request: Request) -> Response:
        thread_id = pages.thread(request)
        query = DiffQuery.of(request)
        ids = [from_segment(request.path_params[name]) for name in ("a", "b")]
        other = query.ns if query.other is None else query.other
        old = await pages.checkpoint(thread_id, ids[0], query.ns)
        new = await pages.checkpoint(thread_id, ids[1], other)
        diff = await _compared(pages, request, old, new, int(query.start or 0))
        branches = await _branches(pages, old, new)

        def page() -> Response:
            effort = Effort()
            values = [_value(change, effort) for change in diff.values]
            return pages.rendering.page(
                request,
                "diff.html",
                thread_id=thread_id,
                old=old,
                new=new,
                query=query,
                found=diff,
                values=[value for value in values if not value.is_time],
                times=[value for value in values if value.is_time],
                lists=_lists(diff, effort),
                branches=branches,
            )

        return await off_loop(page)

    return [Route("/t/{thread_id}/diff/{a}/{b}", diff_page)]


async def _compared(pages: Pages, request: Request, old: Entry, new: Entry, start: int) -> PayloadDiff:
    """The differences of two checkpoints, within the limits of the API."""
    most = pages.authorized.limits.state_bytes
    share_of(request).take(2 * LARGEST_PAGE)
    keys = [CheckpointKey(entry.thread_id, entry.namespace, entry.checkpoint_id) for entry in (old, new)]
    try:
        return await pages.authorized.query(pages.store.diff(keys[0], keys[1], start, PAGE, most))
    except TooMuchText:
        raise Problem(
            507, "state_too_large", f"What these checkpoints differ in is larger than {most:,} bytes."
        ) from None


def _lists(diff: PayloadDiff, effort: Effort) -> list[ListShown]:
    """The lists that differ. A page ends inside of the last list that has changes on it, or after it."""
    shown = []
    last = next((changed for changed in reversed(diff.lists) if changed.changes), None)
    for changed in diff.lists:
        is_whole = len(changed.changes) == changed.added + changed.removed + changed.changed
        breaks_off = diff.next is not None and changed is last and not is_whole
        changes = [_item(change, effort) for change in changed.changes]
        shown.append(ListShown(dotted(changed.path), changed, changes, breaks_off))
    return shown


async def _branches(pages: Pages, old: Entry, new: Entry) -> Entry | None | Literal[False]:
    """The last checkpoint that both continue, if two checkpoints are on two branches and it is near enough to be known.

    False if one of them continues the other, as far as is known.
    """
    first, last = sorted([old, new], key=lambda entry: entry.seq)
    if first.namespace != last.namespace or last.parent_id == first.checkpoint_id or first.seq == last.seq:
        return False
    near = await pages.history(last.thread_id, last.namespace, _NEAR, last.seq)
    known = {entry.checkpoint_id: entry for entry in near}

    def parent_of(entry: Entry) -> Entry | None:
        """The parent, if it is older: parents that were named before they were saved may lead in a circle."""
        parent = known.get(entry.parent_id or "")
        return parent if parent is not None and parent.seq < entry.seq else None

    at: Entry | None = last
    while at is not None and at.seq > first.seq:
        if at.parent_id is None:
            return None
        at = parent_of(at)
    if at is None or at.checkpoint_id == first.checkpoint_id:
        return False
    line = {at.checkpoint_id: at}
    while at is not None and at.parent_id is not None:
        at = parent_of(at)
        line |= {at.checkpoint_id: at} if at is not None else {}
    other: Entry | None = first
    while other is not None and other.checkpoint_id not in line:
        other = parent_of(other)
    return other


def _value(change: ValueChange, effort: Effort) -> ChangeShown:
    before = None if change.kind == "added" else ChangedSide("", _text(change.before))
    after = None if change.kind == "removed" else ChangedSide("", _text(change.after))
    is_time = change.kind == "changed" and _is_time(change.before) and _is_time(change.after)
    return replace(_change(change.kind, dotted(change.path), before, after, effort), is_time=is_time)


def _is_time(value: Any) -> bool:
    return isinstance(value, str) and _TIME.fullmatch(value) is not None


def _text(value: Any) -> str:
    value = without_encoded(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _item(change: ItemChange, effort: Effort) -> ChangeShown:
    place = change.new_index if change.new_index is not None else change.old_index
    return _change(change.kind, str(place), *changed_sides(change, _text), effort)


def _change(
    kind: str, place: str, before: ChangedSide | None, after: ChangedSide | None, effort: Effort
) -> ChangeShown:
    """A change at a place, with the words marked that differ."""
    old, new = ("" if side is None else side.text[:LONGEST] for side in (before, after))
    if before is not None and after is not None:
        old_pieces, new_pieces = compared(old, new, effort)
    else:
        old_pieces, new_pieces = [Piece("removed", old)], [Piece("added", new)]
    return ChangeShown(kind, place, _side(before, old_pieces), _side(after, new_pieces))


def _side(side: ChangedSide | None, pieces: list[Piece]) -> SideShown | None:
    return None if side is None else SideShown(side.role, pieces, max(0, len(side.text) - LONGEST))
