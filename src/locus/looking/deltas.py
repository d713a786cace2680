"""Conversations that LangGraph keeps as deltas: no messages, but what tasks wrote since an earlier checkpoint.

A channel of this kind (`DeltaChannel`) is stored whole in few checkpoints. In the others its value is that of the
nearest ancestor that has it, and what the tasks of the ancestors have written since. It is read as LangGraph's
`add_messages` reads it: a message with a known id takes the place of the one before, and one that removes others does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from locus.memory.conversations import MESSAGES_CHANNEL, messages_in
from locus.memory.engine import KeepsWrites
from locus.memory.model.codec import decode_head
from locus.memory.model.manifest import decode_manifest
from locus.memory.model.parts import Range
from locus.memory.model.payloads import dict_from
from locus.memory.model.records import AncestorQuery, Entry, Path, Stored
from locus.memory.store import CheckpointStore

MESSAGES: Final[Path] = ("channel_values", "messages")
_ANCESTORS: Final = 500
"""The number of ancestors that are read at once."""
_REMOVES_ALL: Final = "__remove_all__"


def keeps_deltas(stored: Stored) -> bool:
    """Whether a checkpoint is one of LangGraph whose messages are in the writes of earlier ones."""
    versions = decode_head(stored.head).get("channel_versions") if has_no_messages(stored) else None
    return isinstance(versions, dict) and MESSAGES_CHANNEL in versions


def has_no_messages(stored: Stored) -> bool:
    """Whether a checkpoint is one of LangGraph that has no messages itself: they are elsewhere, or none came yet."""
    head = decode_head(stored.head)
    if not isinstance(head, dict) or "langgraph" not in head or MESSAGES in decode_manifest(stored.manifest):
        return False
    values = head.get("channel_values")
    return not (isinstance(values, dict) and MESSAGES_CHANNEL in values)


async def delta_messages(store: CheckpointStore, stored: Stored) -> list[Any]:
    """All messages of such a checkpoint."""
    entry = stored.entry
    written: list[Sequence[Any]] = []
    earliest: list[Any] = []
    checkpoint_id: str | None = entry.checkpoint_id
    async with store.using() as engine:
        while checkpoint_id is not None and isinstance(engine, KeepsWrites):
            query = AncestorQuery(entry.thread_id, entry.namespace, checkpoint_id, _ANCESTORS, (MESSAGES_CHANNEL,))
            line = await engine.ancestors(query)
            checkpoint_id = line[-1].checkpoint_id if len(line) == _ANCESTORS else None
            for ancestor in line:
                written.append(messages_in(ancestor.writes))
                if ancestor.stored is not None and _has_messages(ancestor.stored):
                    whole = await engine.read(entry.thread_id, entry.namespace, ancestor.checkpoint_id)
                    earliest = _messages_of(whole)
                    checkpoint_id = None
                    break
    messages: list[Any] = []
    for some in (earliest, *reversed(written)):
        messages = added_messages(messages, some)
    return messages


async def keeps_deltas_at(store: CheckpointStore, entry: Entry) -> bool:
    """Whether the messages of a checkpoint are in the writes of earlier ones."""
    stored = await store.read_part(entry.thread_id, entry.checkpoint_id, entry.namespace, Range(MESSAGES, 0, 0))
    return stored is not None and keeps_deltas(stored)


async def messages_of(store: CheckpointStore, entry: Entry) -> list[Any] | None:
    """All messages of a checkpoint, if it keeps them as deltas."""
    stored = await store.read_part(entry.thread_id, entry.checkpoint_id, entry.namespace, Range(MESSAGES, 0, 0))
    return None if stored is None or not keeps_deltas(stored) else await delta_messages(store, stored)


def _has_messages(stored: Stored) -> bool:
    return not keeps_deltas(stored) and MESSAGES_CHANNEL in (decode_head(stored.head).get("channel_values") or {})


def _messages_of(stored: Stored | None) -> list[Any]:
    value: Any = None if stored is None else dict_from(stored)
    for step in MESSAGES:
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, dict):  # a snapshot has the value in a wrapper
        value = value.get("value")
    return value if isinstance(value, list) else []


def added_messages(before: Sequence[Any], written: Iterable[Any]) -> list[Any]:
    """Messages, and those that were written after them: by id, as `add_messages` does it."""
    messages = list(before)
    places = {_id(message): at for at, message in enumerate(messages) if _id(message)}
    for message in written:
        name = _id(message)
        if isinstance(message, dict) and message.get("$type") == "RemoveMessage":
            gone = set(places) if name == _REMOVES_ALL else {name}
            messages = [] if name == _REMOVES_ALL else [one for one in messages if _id(one) not in gone]
            places = {_id(one): at for at, one in enumerate(messages) if _id(one)}
        elif name and name in places:
            messages[places[name]] = message
        else:
            messages.append(message)
            if name:
                places[name] = len(messages) - 1
    return messages


def _id(message: Any) -> str | None:
    name = message.get("id") if isinstance(message, dict) else None
    return name if isinstance(name, str) else None
