"""Titles of threads: the beginning of the first message of a user, wherever a framework stores it.

`conversations` knows where.

Only the first items of a list are read, and only if somebody asks for titles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from locus.errors import ConfigurationError, CorruptCheckpointError
from locus.memory.conversations import (
    BESIDE,
    CONVERSATIONS,
    conversation_path,
    message_in,
    messages_in,
    utterance_of,
)
from locus.memory.engine import KeepsWrites, warn_of_damage
from locus.memory.model.manifest import decode_manifest
from locus.memory.model.parts import Range, needed, page_of
from locus.memory.model.records import Entry, Stored
from locus.memory.store import CheckpointStore, read_out

LONGEST: Final = 200
"""The most characters of a title."""

AT_ONCE: Final = 8
"""The number of threads that are read at the same time. A single message may be very large."""

_FIRST = 8
"""The number of messages among which the user's is looked for: those of the system may come first."""
_GRAPH = ""
"""The namespace of a LangGraph graph. A subgraph saves into another one, and may save last."""


async def titles_of(store: CheckpointStore, entries: Sequence[Entry], at_once: int = AT_ONCE) -> list[str | None]:
    """The titles of threads by their newest checkpoints, in the same order; None where there is none."""
    turn = asyncio.Semaphore(at_once)
    damaged: list[CorruptCheckpointError] = []

    async def title(entry: Entry) -> str | None:
        async with turn:
            try:
                return await title_of(store, entry)
            except CorruptCheckpointError as error:
                damaged.append(error)  # the list is of use without the title of one thread
                return None

    reading = [asyncio.ensure_future(title(entry)) for entry in entries]
    try:
        titles = await asyncio.gather(*reading)
        warn_of_damage(damaged)
        return titles
    except BaseException:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        raise


async def title_of(store: CheckpointStore, entry: Entry) -> str | None:
    """The title of a thread by its newest checkpoint."""
    title = await _title(store, entry.thread_id, entry.checkpoint_id, entry.namespace)
    beside = _GRAPH if ":" in entry.namespace else BESIDE.get(entry.namespace)
    if title is None and beside is not None:
        title = await _title(store, entry.thread_id, None, beside)
    return title or await _title_of_deltas(store, entry)


async def _title_of_deltas(store: CheckpointStore, entry: Entry) -> str | None:
    """The title of a graph whose messages are kept as what its tasks wrote: the first of them wrote the question."""
    if entry.namespace != _GRAPH and ":" not in entry.namespace:
        return None
    async with store.using() as engine:
        if not isinstance(engine, KeepsWrites):
            return None
        for first in reversed(await engine.history(entry.thread_id, _GRAPH, _FIRST, _FIRST + 1)):
            writes = await engine.get_writes(entry.thread_id, _GRAPH, first.checkpoint_id, None)
            if title := _first_said(messages_in(writes)[:_FIRST]):
                return title
    return None


async def _title(store: CheckpointStore, thread_id: str, checkpoint_id: str | None, namespace: str) -> str | None:
    stored: Stored | None = None
    for path in CONVERSATIONS:
        part = Range(path, 0, _FIRST)
        if stored is None or needed(stored.manifest, part):
            stored = await store.read_part(thread_id, checkpoint_id, namespace, part)
            if stored is None:
                return None
            checkpoint_id = stored.entry.checkpoint_id
        try:
            items = (await read_out(stored, partial(page_of, stored, part))).items
        except ConfigurationError:  # there is no list
            continue
        return _first_said(items)
    return None if stored is None else await _title_of_agents(store, stored)


async def _title_of_agents(store: CheckpointStore, stored: Stored) -> str | None:
    """The title by a payload that keeps its conversation under the name of an agent, or elsewhere."""
    path = conversation_path(await read_out(stored, partial(decode_manifest, stored.manifest)))
    if path is None or len(path) > 1 or path in CONVERSATIONS:
        return None
    entry, part = stored.entry, Range(path, 0, _FIRST)
    at_path = await store.read_part(entry.thread_id, entry.checkpoint_id, entry.namespace, part)
    return None if at_path is None else _first_said((await read_out(at_path, partial(page_of, at_path, part))).items)


def _first_said(items: Sequence[Any]) -> str | None:
    return next(filter(None, map(user_text, items)), None)


def user_text(message: Any) -> str | None:
    """The beginning of what a user says in a message; None if it is someone else's, or has no text."""
    said = utterance_of(message) if isinstance(message, dict) else None
    if said is None or said.role != "user":
        return None
    inner = message_in(message)
    text = ""
    for piece in _texts(inner.get("content", inner.get("contents", said.text))):
        text = " ".join(f"{text} {piece[: 4 * LONGEST]}".split())
        if len(text) >= LONGEST:
            break
    return text[:LONGEST] or None


def _texts(content: Any) -> Iterator[str]:
    """The texts of a message: one, or those of its parts."""
    if isinstance(content, dict) and isinstance(content.get("parts"), list):
        content = content["parts"]
    parts = content if isinstance(content, list) else [content]
    for part in parts[: 4 * _FIRST]:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            yield text
