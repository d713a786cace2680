"""Reads the conversation of a checkpoint: a part of it, and no more of the payload than that; or all of it."""

from __future__ import annotations

from functools import partial
from typing import Any

from locus.looking.documents import Conversation
from locus.memory.conversations import CONVERSATIONS, conversation_path
from locus.memory.model.codec import decode
from locus.memory.model.manifest import decode_manifest
from locus.memory.model.parts import ItemPage, Range, page_of
from locus.memory.model.payloads import dict_from
from locus.memory.model.records import Entry, Path, Stored
from locus.memory.store import CheckpointStore, read_out


async def conversation(store: CheckpointStore, entry: Entry, start: int, count: int) -> tuple[Path, ItemPage] | None:
    """Some items of a checkpoint's conversation, and where it is in the payload; None if it has none that is known."""
    wanted = CONVERSATIONS[0]
    for _attempt in range(2):  # the first answer says where it is, if it is not where it was looked for
        part = Range(wanted, start, count)
        stored = await store.read_part(entry.thread_id, entry.checkpoint_id, entry.namespace, part)
        if stored is None:
            raise await store.not_found(entry.thread_id, entry.checkpoint_id, entry.namespace)
        path = conversation_path(await read_out(stored, partial(lists_of, stored)))
        if path is None:
            return None
        if path == wanted:
            return path, await read_out(stored, partial(page_of, stored, part))
        wanted = path
    return None


def lists_of(stored: Stored) -> list[Path]:
    """Where a payload has lists: those that were cut out of its head, and the known ones that are short."""
    found = [path for path, cut in decode_manifest(stored.manifest).items() if not isinstance(cut, str)]
    head = decode(stored.head)
    for path in CONVERSATIONS:
        value: Any = head
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, list):
            found.append(path)
    return found


async def whole_conversation(store: CheckpointStore, entry: Entry) -> Conversation:
    """A checkpoint's conversation, all of it, and the rest of its state."""
    stored = await store.read(entry.thread_id, entry.checkpoint_id, entry.namespace)
    if stored is None:
        raise await store.not_found(entry.thread_id, entry.checkpoint_id, entry.namespace)
    return taken_apart(stored)


def taken_apart(stored: Stored) -> Conversation:
    """The same for what was read already."""
    rest: Any = dict_from(stored)
    path = conversation_path(_lists_in(rest))
    if path is None:
        return Conversation(stored.entry, [], rest)
    holder = rest
    for step in path[:-1]:
        holder = holder[step]
    return Conversation(stored.entry, holder.pop(path[-1]), rest)


def _lists_in(value: Any, path: Path = ()) -> list[Path]:
    found: list[Path] = []
    for name, inner in value.items() if isinstance(value, dict) and len(path) < 3 else ():
        found += [(*path, name)] if isinstance(inner, list) else _lists_in(inner, (*path, name))
    return found
