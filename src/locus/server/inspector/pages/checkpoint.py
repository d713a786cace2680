"""`/t/{id}/c/{checkpoint}`: the conversation, the state, the pending writes and the metadata of a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from locus.errors import ConfigurationError
from locus.looking.formatting import dotted
from locus.looking.histories import readable_metadata
from locus.looking.reading import conversation
from locus.looking.revisions import moment_of
from locus.looking.saves import items_added, saves_of
from locus.memory.model.codec import decode, decode_head
from locus.memory.model.ids import MAX_ID_LENGTH
from locus.memory.model.manifest import decode_manifest, list_items
from locus.memory.model.parts import Range, page_of, total_of
from locus.memory.model.records import DEFAULT_NAMESPACE, Entry, Extent, Path, Stored
from locus.server.inspector.items import ItemShown, best_item, items_shown
from locus.server.inspector.pages.base import Pages, no_such_thread, off_loop, timeline_before
from locus.server.inspector.pages.marks import MarksQuery
from locus.server.inspector.trees import TreeNode, tree
from locus.wire.problems import Problem

PAGE: Final = 50
_NEAR: Final = 200
"""The number of later checkpoints among which successors are looked for."""
_MOST_WRITES: Final = 200
_MOST_CUTS: Final = 1_000
"""The most long lists and large values that a page names."""
_MOST_PATH: Final = 2_000


class CheckpointPageQuery(MarksQuery):
    ns: Annotated[str, Field(max_length=MAX_ID_LENGTH)] = DEFAULT_NAMESPACE
    view: Literal["conversation", "state", "value", "item"] = "conversation"
    start: Annotated[str, Field(max_length=20, pattern="^[0-9]*$", alias="from")] = ""
    path: Annotated[str, Field(max_length=_MOST_PATH)] = ""
    raw: Literal["", "1"] = ""
    """`1` to show texts as they are, and not as Markdown."""
    at: Annotated[str, Field(max_length=40)] = ""
    """The time for which somebody asked the timeline."""


@dataclass(frozen=True)
class CutShown:
    """A long list or a large value that was cut out of the payload: its name, and the query that shows it."""

    name: str
    path: str
    total: int | None
    """The length of a list; None for a value."""


@dataclass(frozen=True)
class WriteShown:
    """A pending write."""

    task_id: str
    idx: int
    channel: str
    value: TreeNode


@dataclass(frozen=True)
class ListPage:
    """A page of one list."""

    name: str
    items: list[ItemShown]
    start: int
    end: int
    total: int
    hit: int | None = None
    """The number of the item with the most marked terms."""
    new: int | None = None
    """The number of the first item that came with this checkpoint; None if none did, or if nobody knows."""

    @property
    def earlier(self) -> int | None:
        return max(0, self.start - PAGE) if self.start else None

    @property
    def later(self) -> int | None:
        return self.end if self.end < self.total else None


def routes(pages: Pages) -> list[Route]:
    async def checkpoint(request: Request) -> Response:
        thread_id = pages.thread(request)
        query = CheckpointPageQuery.of(request)
        entry = await pages.checkpoint(thread_id, pages.authorized.checkpoint(request), query.ns)
        parent, later = await _relatives(pages, entry)
        facts: dict[str, Any] = {
            "part": None,
            "state": None,
            "lists": [],
            "more_lists": 0,
            "pending": [],
            "more_writes": 0,
        }
        try:
            if query.view in ("conversation", "item"):
                facts["part"] = await _part(pages, entry, query)
            elif query.view == "state":
                facts["state"], facts["lists"], facts["more_lists"] = await _state(pages, entry)
            else:
                facts["state"] = await _value(pages, entry, path_of(query.path))
        except ConfigurationError as error:  # the path leads elsewhere: the one who asks has to say another
            raise Problem(422, "invalid_request", str(error)) from None
        writes = await pages.pending_writes(entry)

        def page() -> Response:
            facts["pending"] = [
                WriteShown(write.task_id, write.idx, write.channel, tree(decode(write.value)))
                for write in writes[:_MOST_WRITES]
            ]
            facts["more_writes"] = max(0, len(writes) - _MOST_WRITES)
            return pages.rendering.page(
                request,
                "checkpoint.html",
                thread_id=thread_id,
                entry=entry,
                parent=parent,
                children=[child for child in later if child.parent_id == entry.checkpoint_id],
                query=query,
                terms=query.terms,
                as_of=_as_of(entry, later, query.at),
                timeline_before=timeline_before(later),
                page_size=PAGE,
                metadata=tree(readable_metadata(entry)),
                **facts,
            )

        return await off_loop(page)

    return [Route("/t/{thread_id}/c/{checkpoint_id}", checkpoint)]


def _as_of(entry: Entry, later: Sequence[Entry], at: str) -> datetime | None:
    """The time that the query names, if this checkpoint was the latest then."""
    try:
        moment = moment_of(at) if at else None
    except ConfigurationError:
        return None
    if moment is None or entry.created_at > moment or any(following.created_at <= moment for following in later[:1]):
        return None
    return moment


async def _relatives(pages: Pages, entry: Entry) -> tuple[Entry | None, list[Entry]]:
    """The parent of a checkpoint, if it is still there, and the next checkpoints, oldest first."""
    async with pages.store.using() as engine:
        parent = None
        if entry.parent_id is not None:
            parent = await engine.entry(entry.thread_id, entry.namespace, entry.parent_id)
    later = await pages.history(entry.thread_id, entry.namespace, _NEAR, entry.seq + _NEAR + 1)
    return parent, [following for following in reversed(later) if following.seq > entry.seq]


async def _part(pages: Pages, entry: Entry, query: CheckpointPageQuery) -> ListPage | None:
    """A page of the conversation, or of the list at the query's path: its end, unless the query names a start."""
    count = 1 if query.view == "item" else PAGE
    start = int(query.start) if query.start else -count
    new = None
    if query.path:
        path = path_of(query.path)
        part = Range(path, start, count)
        stored = await _stored(pages, entry, part)
        page = await off_loop(lambda: page_of(stored, part))
    else:
        path_and_page = await conversation(pages.store, entry, start, count)
        if path_and_page is None:
            return None
        path, page = path_and_page
        (save,) = await saves_of(pages.store, [entry])
        if save.added and save.total in (page.total, None):
            new = page.total - save.added
        if save.total is None and new is not None:  # told by the tasks before it, which may have replaced messages
            found = [item for _, item in await items_added(pages.store, entry)]
            new = new if found and page.items[-len(found) :] == found else None
    items = await off_loop(
        lambda: items_shown(page.items, page.start, whole=query.view == "item", raw=bool(query.raw), terms=query.terms)
    )
    hit = await off_loop(lambda: best_item(items, query.terms))
    return ListPage(dotted(path), items, page.start, page.start + len(page.items), page.total, hit, new)


async def _state(pages: Pages, entry: Entry) -> tuple[TreeNode, list[CutShown], int]:
    """The head of the payload, the parts that were cut out of it, and the number of parts that are not listed."""
    stored = await _stored(pages, entry, Range(("",), 0, 0))

    def shown() -> tuple[TreeNode, list[CutShown], int]:
        cuts = decode_manifest(stored.manifest)
        lists = [
            CutShown(dotted(path), path_text(path), None if isinstance(cut, str) else total_of(cut))
            for path, cut in sorted(cuts.items())[:_MOST_CUTS]
        ]
        return tree(_without(decode_head(stored.head), list(cuts))), lists, max(0, len(cuts) - _MOST_CUTS)

    return await off_loop(shown)


def _without(head: Any, cuts: Sequence[Path]) -> Any:
    """The head without the placeholders of the parts that were cut out."""
    for path in cuts:
        value = head
        for step in path[:-1]:
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, dict):
            value.pop(path[-1], None)
    return head


async def _value(pages: Pages, entry: Entry, path: Path) -> TreeNode:
    """A large value as a tree."""
    stored = await _stored(pages, entry, Range(path, 0, 0))

    def shown() -> TreeNode:
        cut = decode_manifest(stored.manifest).get(path)
        if not isinstance(cut, str):
            raise ConfigurationError("there is no large value under this path")
        (value,) = list_items([Extent(cut, 0, 0, 1)], stored.runs)
        return tree(value, dotted(path))

    return await off_loop(shown)


async def _stored(pages: Pages, entry: Entry, part: Range) -> Stored:
    stored = await pages.store.read_part(entry.thread_id, entry.checkpoint_id, entry.namespace, part)
    if stored is None:
        raise no_such_thread()
    return stored


def path_text(path: Path) -> str:
    """A path as a parameter of a query. It is JSON, because names may contain anything."""
    return json.dumps(list(path), ensure_ascii=False, separators=(",", ":"))


def path_of(text: str) -> Path:
    """The path that a parameter of a query names."""
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ConfigurationError("path is a JSON list of names")
    return tuple(names)
