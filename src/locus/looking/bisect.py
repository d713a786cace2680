"""Finds the checkpoint with which something came: a text, a value, or whatever a command of the user's tests for.

A bisection walks one line, from a checkpoint back to the first one, parent by parent. For a text or a value the truth
is known for every checkpoint of the line, not guessed from a few: the thread is read once, each item once
(`exported_pages`). Each run is looked at when it comes, and `Branches` knows which checkpoints show it. So an answer
tells if something came, went and came again, and missing items are an error and no answer. Only commands, which may
take long, are run for log2(n) checkpoints; they have to tell an earlier state from a later one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from locus.errors import ConfigurationError, ConflictError, CorruptCheckpointError
from locus.looking.branches import Branches
from locus.looking.deltas import MESSAGES, added_messages, keeps_deltas_at
from locus.looking.histories import readable_metadata
from locus.looking.reading import PAGE, check_cuts, exported_pages, key_of, list_paths, position_of
from locus.memory.conversations import conversation_path, messages_in, utterance_of, utterances_of
from locus.memory.model.codec import canonical, decode, decode_head, texts_in
from locus.memory.model.comparison import TooMuchText
from locus.memory.model.manifest import decode_manifest
from locus.memory.model.records import Cuts, Entry, Extent, Path, Stored
from locus.memory.store import CheckpointStore

R = TypeVar("R")

Progress = Callable[[int], None]
"""A function that is called with the number of checkpoints that were looked at."""
METADATA: Final = "metadata"
_LARGE: Final = 250_000
"""Characters that are looked at before others on the event loop have a turn; a larger piece goes to another thread."""
_EACH: Final = 4_000
"""The characters that each piece counts for, besides its own."""
_LONGEST_PASSAGE: Final = 600
"""Characters of the text around a match that an answer shows."""


@dataclass(frozen=True, slots=True)
class Flip:
    """A checkpoint with which a condition became true (`holds`), or false."""

    entry: Entry
    holds: bool


@dataclass(frozen=True, slots=True)
class Passage:
    """The place where a text stands in a checkpoint, and the words around it."""

    path: Path
    """The list, or the field, that has the text."""
    position: int | None
    """The item of the list; None for a field."""
    in_conversation: bool
    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Bisected:
    """The answer of a bisection: with which checkpoints of a line a condition became true, and false again."""

    line: tuple[Entry, ...]
    flips: tuple[Flip, ...]
    """Oldest first. A condition that is true for the first checkpoint of the line has come with that."""
    looked_at: int
    passage: Passage | None = None
    """The text in the first checkpoint that has it; None for values and commands."""
    others: int = 0
    """The number of older checkpoints of other lines and namespaces that were looked at, too."""
    elsewhere: Entry | None = None
    """The first checkpoint of these for which the condition is true."""

    @property
    def first(self) -> Entry | None:
        """The checkpoint with which the condition first became true; None if it never did."""
        return next((flip.entry for flip in self.flips if flip.holds), None)

    @property
    def before(self) -> Entry | None:
        """The checkpoint before `first` on the line; None if there is none."""
        first = self.first
        at = -1 if first is None else self.line.index(first)
        return self.line[at - 1] if at > 0 else None


async def line_of(store: CheckpointStore, last: Entry, first: Entry | None = None) -> list[Entry]:
    """The line that leads to the checkpoint `last`, oldest first: from the beginning, or from its ancestor `first`."""
    line, parent_id = [last], last.parent_id
    if first is not None and first.checkpoint_id == last.checkpoint_id:
        return line
    before: str = last.checkpoint_id
    while parent_id is not None:
        page = await store.history(last.thread_id, PAGE, before, last.namespace)
        for entry in page:
            if entry.checkpoint_id == parent_id:
                line.append(entry)
                parent_id = entry.parent_id
                if first is not None and entry.checkpoint_id == first.checkpoint_id:
                    return line[::-1]
        if len(page) < PAGE:
            break  # the parent was deleted, and what came before it is another line
        before = page[-1].checkpoint_id
    if first is not None:
        raise ConfigurationError(f"#{first.seq} is not an ancestor of #{last.seq}: a line leads from one to the other")
    return line[::-1]


async def bisect_text(
    store: CheckpointStore,
    line: Sequence[Entry],
    text: str,
    ignore_case: bool = False,
    *,
    progress: Progress | None = None,
    most: int | None = None,
) -> Bisected:
    """Find the checkpoints with which a text came and went, in any string of the payload.

    The items of the thread are held while it is read; if they have more than `most` characters, `TooMuchText` is
    raised.
    """
    if not text:
        raise ConfigurationError("give the text to look for")
    wanted = _Wanted(text, ignore_case)
    if line and await keeps_deltas_at(store, line[-1]):
        in_deltas = await _in_deltas(store, line, wanted, progress)
        if in_deltas.first is not None:
            return in_deltas
    passage: Passage | None = None

    def holds(stored: Stored, branches: Branches) -> bool:
        head = decode_head(stored.head)
        cuts = _cuts(stored, head, branches)
        for cut in cuts.values():
            for extent in [Extent(cut, 0, 0, 1)] if isinstance(cut, str) else cut:
                if branches.has_match(extent):
                    return True
        return wanted.is_in(head)

    def came(stored: Stored, branches: Branches) -> None:
        nonlocal passage
        if passage is None:
            passage = wanted.passage(stored, branches)

    answer = await _scanned(store, line, holds, wanted.is_in, progress, came, most)
    return replace(answer, passage=passage)


async def _in_deltas(
    store: CheckpointStore, line: Sequence[Entry], wanted: _Wanted, progress: Progress | None
) -> Bisected:
    """Find the checkpoints with which a text came and went in messages that a graph keeps as deltas.

    What a checkpoint adds is what the tasks of the one before have written.
    """
    on_line = {(entry.namespace, entry.checkpoint_id) for entry in line}
    written: dict[tuple[str, str], list[Any]] = {}
    async with aclosing(exported_pages(store, line[0].thread_id, dict)) as pages:
        async for page in pages:
            for place in on_line & page.writes.keys():
                written[place] = messages_in(page.writes[place])
            if page.checkpoints[-1].entry.seq >= line[-1].seq:
                break
    flips: list[Flip] = []
    passage: Passage | None = None
    messages: list[Any] = []
    matching: dict[int, bool] = {}
    for looked_at, entry in enumerate(line, 1):
        messages = added_messages(messages, written.get((entry.namespace, entry.parent_id or ""), ()))
        for message in messages:
            if id(message) not in matching:
                matching[id(message)] = wanted.is_in(message)
        holds = any(matching[id(message)] for message in messages)
        if holds != bool(flips and flips[-1].holds):
            flips.append(Flip(entry, holds))
            if passage is None:
                at = next(at for at, message in enumerate(messages) if matching[id(message)])
                passage = wanted.passage_in(MESSAGES, at, messages[at], True)
        if progress is not None:
            progress(looked_at)
        await asyncio.sleep(0)
    return Bisected(tuple(line), tuple(flips), len(line), passage)


class _Wanted:
    """A text that is looked for."""

    def __init__(self, text: str, ignore_case: bool) -> None:
        self._ignore_case = ignore_case
        self._text = text.casefold() if ignore_case else text

    def _within(self, text: str) -> bool:
        return self._text in (text.casefold() if self._ignore_case else text)

    def is_in(self, value: Any) -> bool:
        return any(map(self._within, texts_in(value)))

    def passage(self, stored: Stored, branches: Branches) -> Passage | None:
        """The place of the text in a checkpoint: the first item that has it, or else a field."""
        conversation = conversation_path(list_paths(stored))
        for path, cut in decode_manifest(stored.manifest).items():
            if isinstance(cut, str):
                if branches.has_match(Extent(cut, 0, 0, 1)):
                    return Passage(path, None, False, "", self._around(self._found_in(branches.value(cut))[1]))
                continue
            before = 0
            for extent in cut:
                at = branches.first_match(extent)
                if at is not None:
                    return self.passage_in(path, before + at, branches.item([extent], at), path == conversation)
                before += extent.length
        head = decode_head(stored.head)
        path, text = self._found_in(head)
        if conversation is not None and path[: len(conversation)] == conversation != path:
            position = int(path[len(conversation)])
            for name in conversation:
                head = head[name]
            return self.passage_in(conversation, position, head[position], True)
        return Passage(path, None, False, "", self._around(text)) if path else None

    def passage_in(self, path: Path, position: int, item: Any, in_conversation: bool) -> Passage:
        for said in utterances_of(item):
            if self._within(said.text):
                return Passage(path, position, in_conversation, said.role, self._around(said.text))
        return Passage(path, position, in_conversation, utterance_of(item).role, self._around(self._found_in(item)[1]))

    def _found_in(self, value: Any) -> tuple[Path, str]:
        """The first string in a value that has the text, and the path that leads to it."""
        waiting: list[tuple[Path, Any]] = [((), value)]
        while waiting:
            path, part = waiting.pop()
            if isinstance(part, str) and self._within(part):
                return path, part
            if isinstance(part, dict):
                waiting += [((*path, name), inner) for name, inner in reversed(part.items())]
            elif isinstance(part, list):
                waiting += [((*path, str(at)), inner) for at, inner in reversed([*enumerate(part)])]
        return (), ""

    def _around(self, text: str) -> str:
        """A few lines of a string, around the text in it."""
        # Folding may change lengths, so in some texts the place is only near.
        at = (text.casefold() if self._ignore_case else text).find(self._text)
        start = 0 if len(text) <= _LONGEST_PASSAGE else max(0, at - _LONGEST_PASSAGE // 3)
        end = start + _LONGEST_PASSAGE
        return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"


async def bisect_value(
    store: CheckpointStore,
    line: Sequence[Entry],
    path: Sequence[str],
    equals: Any = ...,
    *,
    progress: Progress | None = None,
    most: int | None = None,
) -> Bisected:
    """Find the checkpoints with which a value at a path in the payload came and went: any value, or the one given.

    A step of the path is the name of a field, or a position in a list; a negative one counts from the end. Several
    steps may be the name of one field that has dots in it.
    """
    if not path:
        raise ConfigurationError("give the path to look at, such as metadata.status or messages.-1.role")
    wanted = ... if equals is ... else decode(canonical(equals))
    compared = _Compared()

    def holds(stored: Stored, branches: Branches) -> bool:
        head = decode_head(stored.head)
        cuts = _cuts(stored, head, branches)
        value = _at(head, cuts, path, branches)
        if value is None or wanted is ...:
            return value is not None
        return compared.equal(value, cuts, branches, wanted)

    return await _scanned(store, line, holds, None, progress, most=most)


async def bisect_path(
    store: CheckpointStore,
    line: Sequence[Entry],
    path: Sequence[str],
    equals: Any = ...,
    *,
    progress: Progress | None = None,
    most: int | None = None,
) -> tuple[Bisected, bool]:
    """Find the checkpoints with which a value came and went; True if the value is in the checkpoints' own metadata.

    `metadata.x` may be a field of a state, or in the metadata of a checkpoint. States count first.
    """
    in_states = await bisect_value(store, line, path, equals, progress=progress, most=most)
    if in_states.first is None and path[0] == METADATA and len(path) > 1:
        in_metadata = bisect_metadata(line, path[1:], equals)
        if in_metadata.first is not None:
            return in_metadata, True
    return in_states, False


def bisect_metadata(line: Sequence[Entry], path: Sequence[str], equals: Any = ...) -> Bisected:
    """Find the checkpoints of a line in whose metadata a value came and went. Nothing is read from the store."""
    wanted = None if equals is ... else canonical(equals)
    flips: list[Flip] = []
    now = False
    for entry in line:
        value = _at(readable_metadata(entry), {}, path, Branches())
        holds = value is not None and wanted in (None, canonical(value.value))
        if holds != now:
            now = holds
            flips.append(Flip(entry, now))
    return Bisected(tuple(line), tuple(flips), len(line))


async def bisect_run(line: Sequence[Entry], test: Callable[[Entry], Awaitable[bool]]) -> Bisected:
    """Find the first checkpoint for which `test` is true, by halves: it has to be true for all after that one, too."""
    if not line:
        return Bisected((), (), 0)
    looked_at = 1
    if await test(line[0]):
        return Bisected(tuple(line), (Flip(line[0], True),), looked_at)
    low, high = 0, len(line) - 1
    if high:
        looked_at += 1
        if not await test(line[high]):
            return Bisected(tuple(line), (), looked_at)
    else:
        return Bisected(tuple(line), (), looked_at)
    while high - low > 1:
        middle = (low + high) // 2
        looked_at += 1
        if await test(line[middle]):
            high = middle
        else:
            low = middle
    return Bisected(tuple(line), (Flip(line[high], True),), looked_at)


async def _scanned(
    store: CheckpointStore,
    line: Sequence[Entry],
    holds: Callable[[Stored, Branches], bool],
    matches: Callable[[Any], bool] | None,
    progress: Progress | None,
    came: Callable[[Stored, Branches], None] = lambda _stored, _branches: None,
    most: int | None = None,
) -> Bisected:
    """Test a condition for every checkpoint of a line, and note where it flips.

    `came` is called with each checkpoint with which the condition becomes true. Until that happens, the checkpoints of
    other lines are tested, too: they are read anyway.
    """
    if not line:
        return Bisected((), (), 0)
    on_line = {entry.rev for entry in line}
    branches = Branches(matches)
    known: dict[str, int] = {}
    flips: list[Flip] = []
    looked_at, now = 0, False
    others, elsewhere = 0, None
    turns, held_size = _Turns(), 0
    async with aclosing(exported_pages(store, line[0].thread_id, lambda: known)) as pages:
        async for page in pages:
            for run in sorted(page.runs, key=lambda run: run[:2]):
                held_size += len(run.items)
                if most is not None and held_size > most:
                    raise TooMuchText
                await turns.do(len(run.items), partial(branches.add, run))
                known[run.branch] = max(run.number, known.get(run.branch, -1))
            for stored in page.checkpoints:
                size = len(stored.head) + len(stored.manifest)
                if stored.entry.rev not in on_line:
                    if stored.entry.seq > line[-1].seq:
                        break
                    with suppress(CorruptCheckpointError):  # which is no answer about this line
                        if not flips and elsewhere is None and await turns.do(size, partial(holds, stored, branches)):
                            elsewhere = stored.entry
                        others += 1
                    if progress is not None:  # whoever is told may want to end this
                        progress(looked_at)
                    continue
                try:
                    held = await turns.do(size, partial(holds, stored, branches))
                except CorruptCheckpointError:
                    held = await _held_alone(store, stored.entry, holds, matches)
                looked_at += 1
                if held != now:
                    now = not now
                    flips.append(Flip(stored.entry, now))
                    if now:
                        with suppress(CorruptCheckpointError):  # of one that had to be read alone
                            await turns.do(size, partial(came, stored, branches))
                if progress is not None:
                    progress(looked_at)
            if page.checkpoints[-1].entry.seq >= line[-1].seq:
                break
    return Bisected(tuple(line), tuple(flips), looked_at, None, others, elsewhere)


class _Turns:
    """Does work in portions, so that others on the event loop have their turn, and can end it."""

    def __init__(self) -> None:
        self._done = 0

    async def do(self, size: int, work: Callable[[], R]) -> R:
        """Do some work on `size` characters, and return its result."""
        if size >= _LARGE:
            return await asyncio.to_thread(work)
        self._done += size + _EACH
        if self._done >= _LARGE:
            self._done = 0
            await asyncio.sleep(0)
        return work()


async def _held_alone(
    store: CheckpointStore,
    entry: Entry,
    holds: Callable[[Stored, Branches], bool],
    matches: Callable[[Any], bool] | None,
) -> bool:
    """Test the condition for a checkpoint that seems damaged, by a load: that knows what older versions left out."""
    stored = await store.read(entry.thread_id, entry.checkpoint_id, entry.namespace)
    if stored is None or stored.entry.rev != entry.rev:
        raise ConflictError(f"thread {entry.thread_id!r} was changed while it was read; try again")
    branches = Branches(matches, named=False)
    for runs in stored.runs.values():
        for run in runs:
            branches.add(run)
    return holds(stored, branches)


def _cuts(stored: Stored, head: Any, branches: Branches) -> Cuts:
    cuts = decode_manifest(stored.manifest)
    if cuts:
        check_cuts(head, cuts, branches.value)
    return cuts


class _ValueAt(NamedTuple):
    """The value at a path, without the parts that were cut out of it, and the keys that lead to it."""

    value: Any
    keys: Path | None
    """None inside of an item: nothing was cut out of that."""


def _at(head: Any, cuts: Cuts, path: Sequence[str], branches: Branches) -> _ValueAt | None:
    """The value at a path of a payload; None if nothing is there."""
    reached, names = _ValueAt(head, ()), path
    while True:
        value, keys = reached
        cut = cuts.get(keys) if keys else None
        if isinstance(cut, str):
            reached = _ValueAt(branches.value(cut), keys)
        elif cut is not None and names:
            position = position_of(names[0], sum(extent.length for extent in cut))
            if position is None:
                return None
            reached, names = _ValueAt(branches.item(cut, position), None), names[1:]
            continue
        elif cut is not None:
            branches.check(cut)
        if not names:
            return reached
        value = reached.value
        if isinstance(value, list):
            position = position_of(names[0], len(value))
            if position is None:
                return None
            reached, names = _ValueAt(value[position], None), names[1:]
            continue
        key = key_of(value, names) if isinstance(value, dict) else None
        if key is None:
            return None
        name, count = key
        reached, names = _ValueAt(value[name], None if keys is None else (*keys, name)), names[count:]


class _Compared:
    """Compares values with the wanted one, without putting their lists together. The last answers are remembered."""

    def __init__(self) -> None:
        self._lists: dict[Path, tuple[tuple[Extent, ...], bool]] = {}

    def equal(self, reached: _ValueAt, cuts: Cuts, branches: Branches, wanted: Any) -> bool:
        if reached.keys is None or not cuts:
            return canonical(reached.value) == canonical(wanted)
        opened = {path[:length] for path in cuts for length in range(len(path))}
        return self._equal(reached.value, reached.keys, cuts, opened, branches, wanted)

    def _equal(
        self, value: Any, keys: Path, cuts: Cuts, opened: Collection[Path], branches: Branches, wanted: Any
    ) -> bool:
        cut = cuts.get(keys)
        if isinstance(cut, tuple):
            if not isinstance(wanted, list):
                return False
            if keys not in self._lists or self._lists[keys][0] != cut:
                self._lists[keys] = cut, branches.equal(cut, wanted)
            return self._lists[keys][1]
        if isinstance(cut, str):
            value = branches.value(cut)
        if keys not in opened:
            return canonical(value) == canonical(wanted)
        return (
            isinstance(wanted, dict)
            and value.keys() == wanted.keys()
            and all(self._equal(part, (*keys, key), cuts, opened, branches, wanted[key]) for key, part in value.items())
        )
