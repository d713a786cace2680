"""`/t/{id}/diff/{a}/{b}`: what changed from one checkpoint to another. What they share is not read."""

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
from locus.memory.model.changes import PAGE, ItemChange, ListDiff, PayloadDiff
from locus.memory.model.comparison import LARGEST_PAGE, TooMuchText
from locus.memory.model.ids import MAX_ID_LENGTH
from locus.memory.model.records import DEFAULT_NAMESPACE, CheckpointKey, Entry
from locus.server.inspector.pages.base import Pages, off_loop
from locus.server.inspector.trees import without_encoded
from locus.server.inspector.words import Effort, Piece, compared
from locus.server.memory_budget import share_of
from locus.server.requests import Query
from locus.wire.format import from_segment
from locus.wire.problems import Problem

LONGEST: Final = 6_000
"""Characters of one value that are shown."""
_NEAR: Final = 500
"""How many checkpoints are looked at to see whether one continues the other."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?")


class DiffQuery(Query):
    ns: Annotated[str, Field(max_length=MAX_ID_LENGTH)] = DEFAULT_NAMESPACE
    other: Annotated[str | None, Field(max_length=MAX_ID_LENGTH)] = None
    start: Annotated[str, Field(max_length=12, pattern="^[0-9]*$")] = ""


@dataclass(frozen=True)
class Side:
    """A value or an item before or after a change, in pieces. The label of an item is its role."""

    label: str
    pieces: list[Piece]
    more: int


@dataclass(frozen=True)
class ChangeShown:
    """A change of a value or of an item. One side is None if nothing is there."""

    kind: str
    place: str
    before: Side | None
    after: Side | None
    is_time: bool = False
    """Whether it is only a time that moved on, as it does with every save."""


@dataclass(frozen=True)
class ListShown:
    """A list that differs, with the changes of this page. `breaks_off`: whether this page ends with it."""

    name: str
    found: ListDiff
    changes: list[ChangeShown]
    breaks_off: bool


def routes(pages: Pages) -> list[Route]:
    async def diff(request: Request) -> Response:
        thread_id = pages.thread(request)
        query = DiffQuery.of(request)
        ids = [from_segment(request.path_params[name]) for name in ("a", "b")]
        other = query.ns if query.other is None else query.other
        old = await pages.checkpoint(thread_id, ids[0], query.ns)
        new = await pages.checkpoint(thread_id, ids[1], other)
        found = await _compared(pages, request, old, new, int(query.start or 0))
        branches = await _branches(pages, old, new)

        def page() -> Response:
            effort = Effort()
            values = [_value(dotted(one.path), one.kind, one.before, one.after, effort) for one in found.values]
            return pages.rendering.page(
                request,
                "diff.html",
                thread_id=thread_id,
                old=old,
                new=new,
                query=query,
                found=found,
                values=[one for one in values if not one.is_time],
                times=[one for one in values if one.is_time],
                lists=_lists(found, effort),
                branches=branches,
            )

        return await off_loop(page)

    return [Route("/t/{thread_id}/diff/{a}/{b}", diff)]


async def _compared(pages: Pages, request: Request, old: Entry, new: Entry, start: int) -> PayloadDiff:
    """What changed, within the limits that the API has for the same question."""
    most = pages.authorized.limits.state_bytes
    share_of(request).take(2 * LARGEST_PAGE)
    keys = [CheckpointKey(one.thread_id, one.namespace, one.checkpoint_id) for one in (old, new)]
    try:
        return await pages.authorized.query(pages.store.diff(keys[0], keys[1], start, PAGE, most))
    except TooMuchText:
        raise Problem(
            507, "state_too_large", f"What these checkpoints differ in is larger than {most:,} bytes."
        ) from None


def _lists(found: PayloadDiff, effort: Effort) -> list[ListShown]:
    """The lists that differ. A page ends at one place: inside of the last list that has changes on it, or after it."""
    shown = []
    last = next((one for one in reversed(found.lists) if one.changes), None)
    for one in found.lists:
        is_whole = len(one.changes) == one.added + one.removed + one.changed
        breaks_off = found.next is not None and one is last and not is_whole
        shown.append(ListShown(dotted(one.path), one, [_item(change, effort) for change in one.changes], breaks_off))
    return shown


async def _branches(pages: Pages, old: Entry, new: Entry) -> Entry | None | Literal[False]:
    """False if one of two checkpoints continues the other, as far as is known; or else they are on two branches, and
    this is the last checkpoint that both continue, if it is near."""
    first, last = sorted([old, new], key=lambda entry: entry.seq)
    if first.namespace != last.namespace or last.parent_id == first.checkpoint_id or first.seq == last.seq:
        return False
    near = await pages.history(last.thread_id, last.namespace, _NEAR, last.seq)
    known = {entry.checkpoint_id: entry for entry in near}

    def parent_of(entry: Entry) -> Entry | None:
        """Only an older one: parents that were named before they were there may lead in a circle."""
        found = known.get(entry.parent_id or "")
        return found if found is not None and found.seq < entry.seq else None

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


def _value(name: str, kind: str, before: Any, after: Any, effort: Effort) -> ChangeShown:
    old = None if kind == "added" else ChangedSide("", _text(before))
    new = None if kind == "removed" else ChangedSide("", _text(after))
    is_time = kind == "changed" and _is_time(before) and _is_time(after)
    return replace(_change(kind, name, old, new, effort), is_time=is_time)


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


def _side(side: ChangedSide | None, pieces: list[Piece]) -> Side | None:
    return None if side is None else Side(side.role, pieces, max(0, len(side.text) - LONGEST))
