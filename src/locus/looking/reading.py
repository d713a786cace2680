"""Reads what somebody looks at: a value at a path, a conversation or a part of it, and whole threads.

A conversation is read without the rest of its payload. A whole thread is read in the order of its commits, each item
once, from any store.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from locus.errors import ConfigurationError, ConflictError, CorruptCheckpointError
from locus.hints import did_you_mean
from locus.looking.deltas import MESSAGES as DELTAS
from locus.looking.deltas import delta_messages, keeps_deltas
from locus.memory.conversations import CONVERSATIONS, conversation_path
from locus.memory.engine import Exports, KeepsWrites
from locus.memory.model.codec import decode_head
from locus.memory.model.manifest import decode_manifest
from locus.memory.model.parts import ItemPage, Range, page_of
from locus.memory.model.payloads import dict_from
from locus.memory.model.records import Cuts, Entry, Exported, Path, Stored, Write
from locus.memory.store import CheckpointStore, read_out

PAGE: Final = 500
"""The number of checkpoints that are read in one request, if they are not large."""
_MOST_DIGITS: Final = 15


@dataclass(frozen=True, slots=True)
class Conversation:
    """All items of a checkpoint's conversation, and the rest of its payload."""

    entry: Entry
    items: Sequence[Any]
    rest: Any = None
    """The payload without the conversation."""


async def read_whole(store: CheckpointStore, entry: Entry) -> Stored:
    """A checkpoint as it is stored, with all of its items. Raises if it was deleted meanwhile."""
    stored = await store.read(entry.thread_id, entry.checkpoint_id, entry.namespace)
    if stored is None:
        raise await store.not_found(entry.thread_id, entry.checkpoint_id, entry.namespace)
    return stored


async def conversation(store: CheckpointStore, entry: Entry, start: int, count: int) -> tuple[Path, ItemPage] | None:
    """Some items of a checkpoint's conversation, and the path of it; None if the payload has none that is known."""
    wanted = CONVERSATIONS[0]
    for _attempt in range(2):  # the first answer says where it is, if it is not where it was looked for
        part = Range(wanted, start, count)
        stored = await store.read_part(entry.thread_id, entry.checkpoint_id, entry.namespace, part)
        if stored is None:
            raise await store.not_found(entry.thread_id, entry.checkpoint_id, entry.namespace)
        if keeps_deltas(stored):
            return DELTAS, _page_of(await delta_messages(store, stored), part)
        path = conversation_path(await read_out(stored, partial(list_paths, stored)))
        if path is None:
            return None
        if path == wanted:
            return path, await read_out(stored, partial(page_of, stored, part))
        wanted = path
    return None


def _page_of(items: list[Any], part: Range) -> ItemPage:
    low, high = part.within(len(items))
    return ItemPage(items[low:high], len(items), low)


def list_paths(stored: Stored) -> list[Path]:
    """The paths of a payload's lists: those that were cut out of its head, and known conversations that are short."""
    paths = [path for path, cut in decode_manifest(stored.manifest).items() if not isinstance(cut, str)]
    head = decode_head(stored.head)
    for path in CONVERSATIONS:
        value: Any = head
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, list):
            paths.append(path)
    return paths


async def read_conversation(store: CheckpointStore, entry: Entry) -> Conversation:
    """The conversation of a checkpoint, and the rest of its payload."""
    stored = await read_whole(store, entry)
    if keeps_deltas(stored):
        return Conversation(entry, await delta_messages(store, stored), dict_from(stored))
    return whole_conversation(stored)


def whole_conversation(stored: Stored) -> Conversation:
    """The conversation of a checkpoint that was read whole."""
    rest: Any = dict_from(stored)
    path = conversation_path(_lists_in(rest))
    if path is None:
        return Conversation(stored.entry, [], rest)
    holder = rest
    for step in path[:-1]:
        holder = holder[step]
    return Conversation(stored.entry, holder.pop(path[-1]), rest)


def _lists_in(value: Any, path: Path = ()) -> list[Path]:
    paths: list[Path] = []
    for name, inner in value.items() if isinstance(value, dict) and len(path) < 3 else ():
        paths += [(*path, name)] if isinstance(inner, list) else _lists_in(inner, (*path, name))
    return paths


def at_path(value: Any, path: str) -> Any:
    """The value at a path, `a.b.0`, in a payload. A key may have dots in it, too."""
    names: Sequence[str] = path.split(".")
    while names:
        if isinstance(value, list) and (position := position_of(names[0], len(value))) is not None:
            value, names = value[position], names[1:]
        elif isinstance(value, dict) and (key := key_of(value, names)) is not None:
            value, names = value[key[0]], names[key[1] :]
        elif isinstance(value, list):
            raise ConfigurationError(
                f"nothing is at {path!r:.80}: the list before {names[0]!r:.40} has {len(value):,} items"
            )
        elif isinstance(value, dict):
            raise ConfigurationError(f"nothing is at {path!r:.80}{did_you_mean(names[0], value)}")
        else:
            raise ConfigurationError(f"nothing is at {path!r:.80}: what comes before {names[0]!r:.40} has no parts")
    return value


def key_of(value: dict[str, Any], names: Sequence[str]) -> tuple[str, int] | None:
    """The key of an object that a path goes on with, and how many of the path's names it takes; None if there is none.

    A path was split at its dots, so a key with dots in it takes several names. The shortest key counts.
    """
    key = ""
    for count, name in enumerate(names, 1):
        key = name if count == 1 else f"{key}.{name}"
        if key in value:
            return key, count
    return None


def position_of(name: str, length: int) -> int | None:
    """The position in a list of this length that a name of a path means; a negative one counts from the end."""
    digits = name.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _MOST_DIGITS):
        return None
    position = int(name)
    return position % length if -length <= position < length else None


def check_cuts(head: Any, cuts: Cuts, value_of: Callable[[str], Any]) -> frozenset[Path]:
    """Refuse a manifest that does not fit its head: each path must lead through objects to a value that is there.

    `value_of` gives a large value by its name: a part of it may be cut out, too. Returns the paths of the large values
    of which that is true.
    """
    tree: dict[str | None, Any] = {}
    for path in cuts:
        node = tree
        for step in path:
            node = node.setdefault(step, {})
        node[None] = path  # no step is None
    opened: set[Path] = set()
    waiting: list[tuple[Any, dict[str | None, Any]]] = [(head, tree)]
    while waiting:
        value, node = waiting.pop()
        path = node.pop(None, None)
        if not node and path is not None:
            continue
        if path is not None:
            cut = cuts[path]
            if not isinstance(cut, str):
                raise _unfit()
            value = value_of(cut)
            opened.add(path)
        if not isinstance(value, dict) or not node.keys() <= value.keys():
            raise _unfit()
        waiting += [(value[step], below) for step, below in node.items() if step is not None]
    return frozenset(opened)


def _unfit() -> CorruptCheckpointError:
    return CorruptCheckpointError("stored head and manifest do not fit together")


async def exported_pages(
    store: CheckpointStore, thread_id: str, known: Callable[[], Mapping[str, int]], *, whole: bool = True
) -> AsyncGenerator[Exported, None]:
    """The checkpoints of a thread, of all its namespaces, oldest first.

    `known` is called before each page; it gives the newest run of each branch that the caller has already. If the
    thread is deleted between two pages, and perhaps written again, the pages are not all, or of two threads: that is a
    `ConflictError`, unless `whole` is False.
    """
    async with store.using() as engine:
        # Some engines know what they offer only once they are connected.
        exports = engine.offers(Exports)
    if not isinstance(engine, Exports) or not exports:
        async for page in _one_by_one(store, thread_id):
            yield page
        return
    last: Entry | None = None
    is_full = False
    while True:
        async with store.using():
            page = await engine.export(thread_id, 0 if last is None else last.seq, PAGE, known())
        if whole and last is not None and (page.checkpoints or is_full):
            # Asked after the page was read, so that the answer is about that time.
            last_now = await store.entry(thread_id, last.checkpoint_id, last.namespace)
            if last_now is None or last_now.rev != last.rev:
                raise _changed(thread_id)
        if not page.checkpoints:
            break
        yield page
        last = page.checkpoints[-1].entry
        is_full = page.more or len(page.checkpoints) >= PAGE


async def _one_by_one(store: CheckpointStore, thread_id: str) -> AsyncGenerator[Exported, None]:
    """The checkpoints of a thread in a store that returns one at a time, with all of its items."""
    for entry in reversed(await store.history(thread_id, None, None, None)):
        key = (entry.namespace, entry.checkpoint_id)
        stored = await store.read(thread_id, entry.checkpoint_id, entry.namespace)
        if stored is None or stored.entry.rev != entry.rev:
            raise _changed(thread_id)
        writes: list[Write] = []
        if isinstance(store.engine, KeepsWrites) and store.keeps_writes:
            writes = await store.get_writes(thread_id, entry.checkpoint_id, task_id=None, namespace=entry.namespace)
        yield Exported([stored], [run for runs in stored.runs.values() for run in runs], {key: writes})


def _changed(thread_id: str) -> ConflictError:
    return ConflictError(f"thread {thread_id!r} was changed while it was read; try again")
