"""The saves of a thread as turns: somebody asks, the agent calls tools, and it answers. Pure functions.

A turn begins with what a person said, and ends with the answer, an error, a question to a person, or silence. Saves
that add no words (steps of a graph, bookkeeping of a session) belong to the turn that they stand in. Where a history
forks, the fork is a turn of its own, even in the middle of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from locus.looking.previews import NOTHING_RECORDED, Facts, Kind, Preview, facts_together
from locus.memory.model.records import Entry, Path

SILENT: Final = timedelta(minutes=10)
"""After so long without a save, an agent that has not answered is taken to be dead."""


class Status(StrEnum):
    """How a turn ended, or that it has not."""

    ANSWERED = "answered"
    WAITING = "waiting for a person"
    FAILED = "failed"
    UNDER_WAY = "under way"
    KILLED = "killed"
    """Nobody answered: the agent went silent, or the conversation went on without an answer."""


class Stand(StrEnum):
    """What a checkpoint says about the run that saved it."""

    RUNNING = "running"
    DONE = "done"
    WAITS = "waits"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Save:
    """A checkpoint, and what it added to the conversation."""

    entry: Entry
    previews: tuple[Preview, ...] = ()
    """What it added, in the order in which it was said. Of very much, only the end."""
    added: int = 0
    """The number of items that it added to the conversation."""
    removed: int = 0
    total: int | None = None
    """The number of items of its conversation; None if it has none that is known."""
    path: Path | None = None
    """Where the payload has the conversation."""
    facts: Facts = NOTHING_RECORDED
    stand: Stand | None = None
    """What it says about the run; None if it says nothing."""
    grown: Mapping[Path, int] = field(default_factory=dict)
    """The number of items by which each list of the payload became longer, for those who want to know it."""
    is_input: bool = False
    """Whether a framework has saved only what came in, so that the words follow with the next save."""

    @property
    def is_quiet(self) -> bool:
        """Whether it adds no words."""
        return not self.previews

    @property
    def lines(self) -> list[str]:
        """The previews as rows, each call together with its result, if both came with this save."""
        return [line for _, line in self.rows]

    @property
    def rows(self) -> list[tuple[Preview, str]]:
        """The previews that have a row, and the row. The result of a call stands beside the call."""
        shown: list[tuple[Preview, str]] = []
        calls: dict[str, int] = {}
        for preview in self.previews:
            at = calls.pop(preview.call_id, None) if preview.call_id and preview.kind in _RESULTS else None
            if at is not None:
                shown[at] = shown[at][0], f"{shown[at][1]}  {preview.line}"
                continue
            if preview.kind is Kind.CALLED and preview.call_id:
                calls[preview.call_id] = len(shown)
            shown.append((preview, preview.line))
        return shown


_RESULTS: Final = (Kind.RETURNED, Kind.FAILED)


@dataclass(frozen=True, slots=True)
class Turn:
    """A question, what the agent did about it, and how that ended. Saves and previews are in the order of time."""

    saves: tuple[Save, ...]
    previews: tuple[Preview, ...]
    """All that was said and done in it. A save with several turns in it is a save of each."""
    status: Status | None
    """None if nothing was said in it, or if nobody knows from these saves how it went on."""
    forked_from: str | None = None
    """The id of the checkpoint from which it goes another way than an earlier turn did."""

    @property
    def question(self) -> Preview | None:
        """What it began with; None if that is not known: it is on an older page, or nobody asked."""
        return self.previews[0] if self.previews and self.previews[0].is_question else None

    @property
    def answer(self) -> Preview | None:
        """The words of the agent that it ended with; None if it ended otherwise, or not yet."""
        last = next((preview for preview in reversed(self.previews) if preview.kind is not Kind.THOUGHT), None)
        return last if last is not None and last.is_answer else None

    @property
    def began(self) -> datetime:
        return self.saves[0].entry.created_at

    @property
    def seconds(self) -> float:
        """How long it took from its first save to its last."""
        return (self.saves[-1].entry.created_at - self.began).total_seconds()

    @property
    def facts(self) -> Facts:
        """Tokens and costs together, and the model. The seconds are those that were recorded for its parts."""
        return facts_together(save.facts for save in self.saves)


@dataclass(slots=True)
class _Open:
    """A turn that is being put together."""

    saves: list[Save] = field(default_factory=list)
    previews: list[Preview] = field(default_factory=list)
    forked_from: str | None = None
    is_continued: bool = False
    """Whether another turn follows it on its line."""

    def add(self, save: Save, *previews: Preview) -> None:
        if not self.saves or self.saves[-1] is not save:
            self.saves.append(save)
        self.previews += previews


def turns_of(saves: Iterable[Save], now: datetime | None = None, *, newest: bool = True) -> list[Turn]:
    """Group saves of one thread into turns, oldest first. The saves may be given in any order.

    Without `newest`, the thread has newer saves than these, and a turn that seems to be open may go on there.
    """
    turns: list[_Open] = []
    ends: dict[tuple[str, str], _Open] = {}
    """The turn that ends with a checkpoint so far."""
    known: set[tuple[str, str]] = set()
    for save in sorted(saves, key=lambda save: save.entry.seq):
        entry = save.entry
        parent = None if entry.parent_id is None else (entry.namespace, entry.parent_id)
        turn = None if parent is None else ends.pop(parent, None)
        if turn is None or (save.is_input and turn.previews):
            turn = _next(turns, turn, entry.parent_id if turn is None and parent in known else None)
        for preview in save.previews:
            if preview.is_question and any(not earlier.is_question for earlier in turn.previews):
                turn = _next(turns, turn, None)
            turn.add(save, preview)
        turn.add(save)
        here = (entry.namespace, entry.checkpoint_id)
        ends[here] = turn
        known.add(here)
    moment = now or datetime.now(UTC)
    return [
        Turn(tuple(turn.saves), tuple(turn.previews), _status(turn, moment, newest), turn.forked_from) for turn in turns
    ]


def _next(turns: list[_Open], before: _Open | None, forked_from: str | None) -> _Open:
    if before is not None:
        before.is_continued = True
    turns.append(_Open(forked_from=forked_from))
    return turns[-1]


def _status(turn: _Open, now: datetime, newest: bool) -> Status | None:
    last = turn.saves[-1]
    said = [preview for preview in turn.previews if preview.kind is not Kind.THOUGHT and preview.role != "system"]
    end = said[-1] if said else None
    if not turn.is_continued:
        if last.stand is Stand.WAITS or _waits(said):
            return Status.WAITING
        if last.stand is Stand.FAILED:
            return Status.FAILED
    if end is None:
        return None
    if end.is_answer and (turn.is_continued or last.stand is not Stand.RUNNING):
        return Status.ANSWERED
    if end.kind is Kind.FAILED and end.role != "tool":
        return Status.FAILED
    if turn.is_continued or last.stand is Stand.DONE:
        return Status.KILLED
    if not newest:
        return None
    return Status.UNDER_WAY if now - last.entry.created_at < SILENT else Status.KILLED


def _waits(said: Sequence[Preview]) -> bool:
    """Whether the last question to a person that is an item of the conversation has no answer."""
    waiting: Preview | None = None
    for preview in said:
        if preview.kind is Kind.WAITS and preview.call_id is not None:
            waiting = preview
        elif waiting is not None and (preview.is_question or preview.is_answer or preview.call_id == waiting.call_id):
            waiting = None
    return waiting is not None


def open_calls(previews: Iterable[Preview]) -> dict[str, Preview]:
    """The calls that have no result yet, by their ids."""
    calls: dict[str, Preview] = {}
    for preview in previews:
        if preview.call_id is not None:
            if preview.kind is Kind.CALLED:
                calls[preview.call_id] = preview
            elif preview.kind in _RESULTS:
                calls.pop(preview.call_id, None)
    return calls
