"""`/t/{id}`: what was said in a thread, newest first: a row for each checkpoint, and the lines of its forks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace
from itertools import accumulate
from typing import Annotated, Final, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from locus.errors import ConfigurationError
from locus.looking.formatting import dotted, facts_text
from locus.looking.graph import Node, lanes_of, lines
from locus.looking.histories import about
from locus.looking.revisions import first_of, latest_at, moment_of, resolve
from locus.looking.saves import saves_of
from locus.looking.turns import Save, Status, Turn, turns_of
from locus.memory.model.ids import MAX_ID_LENGTH
from locus.memory.model.records import Entry
from locus.memory.origins import origin_of
from locus.memory.store import CheckpointStore
from locus.memory.titles import title_of
from locus.server.inspector.lines import Line, lines_of
from locus.server.inspector.pages.base import Pages, no_such_thread, off_loop
from locus.server.inspector.pages.marks import MarksQuery
from locus.server.inspector.rendering import day_of, utc_time
from locus.wire.problems import Problem

PAGE: Final = 100
INTERRUPT: Final = "__interrupt__"
"""The channel of the pending writes with which LangGraph waits for somebody."""
_TIPS: Final = 8
"""The number of checkpoints without a successor whose pending writes a page reads."""

_MOST_NEWER: Final = 500
"""The number of newer checkpoints that are read for the lines that lead to an older page."""

_MOST_PARENTS: Final = 8
"""The number of parents on older pages that are read to tell which rows are forks."""
_SOON: Final = 20
"""The number of checkpoints after such a parent among which its oldest successor is looked for."""

_MOST_NAMESPACES: Final = 20
"""The number of namespaces that a page offers."""

LANE: Final = 14
LINE: Final = 26
PADDING: Final = 8
QUIET: Final = 24
DAY: Final = 32
"""The width of a lane, and the heights of a line, around the lines, of a row without words, and of a heading. The style
sheet has the same."""
MOST_LINES: Final = 4
"""The most lines of a row."""
COLOURS: Final = 6


class TimelineQuery(MarksQuery):
    ns: Annotated[str | None, Field(max_length=MAX_ID_LENGTH)] = None
    before: Annotated[str, Field(max_length=18, pattern="^[0-9]*$")] = ""
    at: Annotated[str, Field(max_length=40)] = ""
    quiet: Literal["", "1"] = ""
    """`1` to show each save that adds no words, too."""


class CompareQuery(MarksQuery):
    a: Annotated[str, Field(max_length=18, pattern="^[0-9]+$")]
    b: Annotated[str, Field(max_length=18, pattern="^[0-9]+$")]


@dataclass(frozen=True)
class TimelineRow:
    """A checkpoint as a row of the timeline: what was said with it."""

    entry: Entry
    lane: int
    latest: bool
    fork_of: int | None
    """The number of the parent, if the parent has an older successor, too."""
    forks: list[Entry]
    """The checkpoints that continue this one, besides the oldest of them."""
    lines: list[Line] = field(default_factory=list)
    more: int = 0
    """The number of things said with it that have no line."""
    facts: str = ""
    status: Status | None = None
    """How the turn ended that ends with this row; None if it was answered, as most are."""
    asks: bool = False
    """Whether a turn begins with it."""
    added: str = ""
    said: str = ""
    """Its metadata, for a row that has no words."""
    day: str = ""
    """The day, if the row above is of another one."""
    writes: int = 0
    waits: bool = False
    folds: int = 0
    """The number of saves without words that this row stands for, itself included."""
    folded: bool = False
    """Whether the row above stands for it, too."""

    @property
    def is_quiet(self) -> bool:
        """Whether it has neither words nor anything else to say."""
        says = self.lines or self.latest or self.forks or self.status or self.waits or self.writes or self.asks
        return not says and self.fork_of is None

    @property
    def name(self) -> str:
        """The name of the row for screen readers."""
        words = [f"Checkpoint {self.entry.seq}"]
        words += [f"fork of {self.fork_of}"] if self.fork_of is not None else []
        words += ["latest"] if self.latest else []
        words += ["waits for somebody"] if self.waits else []
        return ", ".join(words)

    @property
    def x(self) -> int:
        return LANE * self.lane + LANE // 2 + 1

    @property
    def colour(self) -> int:
        return self.lane % COLOURS

    @property
    def count(self) -> int:
        """The number of lines that it takes."""
        return len(self.lines) + (1 if self.more else 0)

    @property
    def height(self) -> int:
        if self.folded:
            return 0
        return (LINE * self.count + PADDING if self.lines else QUIET) + (DAY if self.day else 0)

    @property
    def middle(self) -> int:
        """The place of its mark, below its upper end."""
        if self.folded:
            return -QUIET // 2
        return (DAY if self.day else 0) + ((LINE + PADDING) // 2 if self.lines else QUIET // 2)


@dataclass(frozen=True)
class Stroke:
    """A line of the drawing."""

    path: str
    colour: int


@dataclass(frozen=True)
class Drawing:
    """The drawing of the lanes beside the rows. The rows say the same in words."""

    width: int
    height: int
    strokes: list[Stroke]
    places: list[int]
    """The place of each row's mark, from above."""


def routes(pages: Pages) -> list[Route]:
    async def timeline(request: Request) -> Response:
        thread_id = pages.thread(request)
        query = TimelineQuery.of(request)
        said = None
        if query.at:
            try:
                checkpoint_then = await _at(pages, thread_id, query)
            except ConfigurationError as error:  # of what was typed into the form
                said = NotThere(str(error))
            else:
                if isinstance(checkpoint_then, Response):
                    return checkpoint_then
                said = checkpoint_then
        before = int(query.before) if query.before else None
        names = await pages.store.namespaces(thread_id)
        # Where there is one namespace, an index has its checkpoints in order.
        where = names[0] if query.ns is None and len(names) == 1 else query.ns
        page, newer = await pages.history(thread_id, where, PAGE + 1, before), list[Entry]()
        if before is not None and page:
            near = await pages.history(thread_id, where, _MOST_NEWER, page[0].seq + _MOST_NEWER + 1)
            newer = [entry for entry in near if entry.seq > page[0].seq]
        if not page and before is None:
            raise no_such_thread()
        entries, older = page[:PAGE], len(page) > PAGE
        saves = await pages.authorized.query(saves_of(pages.store, entries))
        below = await _below(pages.store, thread_id, entries, page[PAGE:])
        rows = await off_loop(lambda: rows_of(saves, newest=before is None, above=newer, below=below))
        rows = await _with_writes(pages, rows)
        if not query.quiet:
            rows = folded(rows)
        title = await title_of(pages.store, entries[0]) if entries else None
        forked_from = await _forked_from(pages, request, thread_id)
        return await off_loop(
            lambda: pages.rendering.page(
                request,
                "timeline.html",
                thread_id=thread_id,
                title=title,
                forked_from=forked_from,
                rows=rows,
                drawing=drawing(rows, newer),
                said=said,
                query=query,
                namespaces=names[:_MOST_NAMESPACES],
                more_namespaces=max(0, len(names) - _MOST_NAMESPACES),
                older=entries[-1].seq if older else None,
                newer=newer[-PAGE - 1].seq if len(newer) > PAGE else None,
            )
        )

    async def compare(request: Request) -> Response:
        """Redirect to the page with the differences between two chosen rows, given by their numbers."""
        thread_id = pages.thread(request)
        picked = request.query_params.getlist("pick")
        if picked and len(picked) != 2:
            raise Problem(422, "invalid_request", "Choose two rows of the timeline to compare them.")
        marks = {name: request.query_params.get(name, "") for name in MarksQuery.model_fields}
        query = CompareQuery.check({"a": picked[0], "b": picked[1], **marks}) if picked else CompareQuery.of(request)
        old, new = [
            await resolve(pages.store, thread_id, checkpoint=f"#{number}")
            for number in sorted([query.a, query.b], key=int)
        ]
        other = new.namespace if new.namespace != old.namespace else None
        return RedirectResponse(
            pages.rendering.url(
                "t",
                thread_id,
                "diff",
                old.checkpoint_id,
                new.checkpoint_id,
                ns=old.namespace,
                other=other,
                **query.kept,
            ),
            303,
        )

    return [Route("/t/{thread_id}", timeline), Route("/t/{thread_id}/diff", compare)]


async def _forked_from(pages: Pages, request: Request, thread_id: str) -> Entry | None:
    """The checkpoint that the thread was forked from, if it is still there and the sender may see it."""
    origin = await pages.authorized.query(origin_of(pages.store, thread_id))
    if origin is None or not pages.authorized.grant(request).allows(origin.thread_id):
        return None
    return await pages.store.entry(origin.thread_id, origin.checkpoint_id, origin.namespace)


@dataclass(frozen=True)
class NotThere:
    """The reason why a time leads to no checkpoint; and the first checkpoint, if it is later."""

    text: str
    first: Entry | None = None
    typed: str = ""
    """The time in the format of a form's field."""


async def _at(pages: Pages, thread_id: str, query: TimelineQuery) -> Response | NotThere:
    """A redirection to the checkpoint that was the latest at the time of the query."""
    moment = moment_of(query.at)
    latest = await latest_at(pages.store, thread_id, query.ns, moment)
    if latest is None:
        first = await first_of(pages.store, thread_id, query.ns)
        if first is None:
            raise no_such_thread()
        typed = moment.strftime("%Y-%m-%dT%H:%M:%S")
        return NotThere(f"There was no checkpoint yet at {utc_time(moment)}.", first, typed)
    at = None if latest.created_at == moment else query.at
    address = pages.rendering.url("t", thread_id, "c", latest.checkpoint_id, ns=latest.namespace, at=at, **query.kept)
    return RedirectResponse(address, 303)


def rows_of(
    saves: Sequence[Save], *, newest: bool, above: Sequence[Entry] = (), below: Sequence[Entry] = ()
) -> list[TimelineRow]:
    """The rows of a page, newest first.

    `above` are newer checkpoints, which may continue those of the page. `below` are older ones: parents of checkpoints
    on the page, and their other successors.
    """
    entries = [save.entry for save in saves]
    known = [*above, *entries]
    numbers = {(entry.namespace, entry.checkpoint_id): entry.seq for entry in [*known, *below]}
    successors: dict[tuple[str, str], list[Entry]] = {}
    """The checkpoints that continue each one, oldest first."""
    for entry in reversed([*known, *below]):
        if entry.parent_id is not None:
            successors.setdefault((entry.namespace, entry.parent_id), []).append(entry)
    ends = _ends_of(turns_of(saves, newest=newest))
    rows: list[TimelineRow] = []
    day = ""
    for save, lane in zip(saves, lanes_of([*map(Node.of, known)])[len(above) :], strict=True):
        entry = save.entry
        parent = (entry.namespace, entry.parent_id) if entry.parent_id is not None else None
        fork_of = None
        if parent is not None and successors[parent][0] is not entry:
            fork_of = numbers.get(parent)
        said, before = lines_of(save), day
        day = day_of(entry.created_at)
        row = TimelineRow(
            entry,
            lane,
            newest and entry is entries[0],
            fork_of,
            successors.get((entry.namespace, entry.checkpoint_id), [])[1:],
            said if len(said) <= MOST_LINES else said[1 - MOST_LINES :],
            max(save.added - MOST_LINES + 1, 0) if len(said) > MOST_LINES else 0,
            " · ".join(facts_text(*astuple(save.facts))),
            ends.get(entry.seq),
            any(preview.is_question for preview in save.previews),
            ", ".join(f"{by:+,} {dotted(path)}" for path, by in save.grown.items()),
            about(entry),
            day if day != before else "",
        )
        rows.append(row)
    return rows


def folded(rows: Sequence[TimelineRow]) -> list[TimelineRow]:
    """The rows, of which those in a row that say nothing are one. Where nothing is said at all, each is shown."""
    if not any(row.lines for row in rows):
        return list(rows)
    shown: list[TimelineRow] = []
    at = 0
    while at < len(rows):
        end = at + 1
        while end < len(rows) and rows[at].is_quiet and rows[end].is_quiet and _follow(rows[end - 1], rows[end]):
            end += 1
        count = end - at if rows[at].is_quiet else 0
        shown += [replace(rows[at], folds=count), *(replace(row, folded=True) for row in rows[at + 1 : end])]
        at = end
    return shown


def _follow(newer: TimelineRow, older: TimelineRow) -> bool:
    """Whether a save continues the one of the row below, on the same day."""
    continues = newer.entry.parent_id == older.entry.checkpoint_id and newer.entry.namespace == older.entry.namespace
    return continues and not older.day


def _ends_of(turns: Sequence[Turn]) -> dict[int, Status]:
    """How the turns ended that were not answered, by the number of their last checkpoint."""
    return {turn.saves[-1].entry.seq: turn.status for turn in turns if turn.status not in (None, Status.ANSWERED)}


async def _below(
    store: CheckpointStore, thread_id: str, entries: Sequence[Entry], next_older: Sequence[Entry]
) -> list[Entry]:
    """The checkpoints of older pages that tell which rows of this one are forks, newest first."""
    known = {(entry.namespace, entry.checkpoint_id) for entry in [*entries, *next_older]}
    parents = dict.fromkeys((entry.namespace, entry.parent_id) for entry in entries if entry.parent_id is not None)
    older = {entry.seq: entry for entry in next_older}
    for namespace, parent_id in [parent for parent in parents if parent not in known][:_MOST_PARENTS]:
        parent = await store.entry(thread_id, parent_id, namespace)
        if parent is None:  # it was deleted
            continue
        async with store.using() as engine:
            after = await engine.history(thread_id, namespace, _SOON, parent.seq + _SOON)
        older.update((entry.seq, entry) for entry in [parent, *after] if entry.seq < entries[-1].seq)
    return [older[number] for number in sorted(older, reverse=True)]


async def _with_writes(pages: Pages, rows: list[TimelineRow]) -> list[TimelineRow]:
    """The rows with the pending writes of those that have no successor on this page: they may wait for somebody."""
    parents = {(row.entry.namespace, row.entry.parent_id) for row in rows}
    tips, with_writes = 0, []
    for row in rows:
        entry = row.entry
        if (entry.namespace, entry.checkpoint_id) not in parents and tips < _TIPS:
            tips += 1
            writes = await pages.pending_writes(entry)
            waits = any(write.channel == INTERRUPT for write in writes)
            row = replace(row, writes=len(writes), waits=waits)
        with_writes.append(row)
    return with_writes


def drawing(rows: Sequence[TimelineRow], above: Sequence[Entry] = ()) -> Drawing:
    """The lines beside these rows; those of newer checkpoints come in at the top."""
    nodes = [*map(Node.of, [*above, *(row.entry for row in rows)])]
    tops = [*accumulate((row.height for row in rows), initial=0)]
    places = [top + row.middle for top, row in zip(tops, rows, strict=False)]
    drawn = lines(nodes, len(above))
    colours = [max(lane for _, lane in line.points) % COLOURS for line in drawn]
    paths = [_path(line.points, places, tops[-1]) for line in drawn]
    inside = [lane for line in drawn for row, lane in line.points if row >= 0]
    lanes = max([*inside, *lanes_of(nodes)[len(above) :]], default=0) + 1
    return Drawing(LANE * lanes + 2, tops[-1], [*map(Stroke, paths, colours)], places)


def _path(points: Sequence[tuple[int, int]], places: Sequence[int], end: int) -> str:
    """A line through points, straight inside of a lane and curved between two of them."""

    def place(row: int, lane: int) -> tuple[int, int]:
        y = places[row] if 0 <= row < len(places) else -LINE if row < 0 else end + LINE
        return LANE * lane + LANE // 2 + 1, y

    (row, lane), *rest = points
    x, y = place(row, lane)
    text = f"M{x} {y}"
    for row, lane in rest:
        next_x, next_y = place(row, lane)
        if (next_x, next_y) == (x, y):
            continue
        if next_x == x:
            text += f"V{next_y}"
        else:
            half = (y + next_y) // 2
            text += f"C{x} {half} {next_x} {half} {next_x} {next_y}"
        x, y = next_x, next_y
    return text
