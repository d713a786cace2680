"""Finds checkpoints and threads by their metadata, as people type them: `user=alice`, `turn=7`."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final

from locus.errors import ConfigurationError
from locus.memory.model.ids import Pattern
from locus.memory.model.records import Entry
from locus.memory.store import CheckpointStore

MOST_LOOKED_AT: Final = 50_000
"""How many checkpoints with such metadata are looked at for threads."""
MOST_CHARACTERS: Final = 64_000_000
"""How long their metadata may be together before no more are looked at."""


async def found(store: CheckpointStore, wanted: str, limit: int, prefix: str = "") -> list[Entry]:
    """The newest checkpoints with this `KEY=VALUE`. What looks like a number may have been saved as text."""
    key, equals, text = wanted.partition("=")
    if not equals or not key:
        raise ConfigurationError("give KEY=VALUE, such as user=alice or turn=7")
    values: list[Any] = [text]
    with suppress(ValueError, RecursionError):  # it may be plain text only
        values.append(json.loads(text, parse_constant=float.fromhex))
    entries = [entry for value in values for entry in await store.find(key, value, limit, prefix)]
    return sorted(entries, key=lambda entry: entry.created_at, reverse=True)[:limit]


async def threads_by_metadata(
    store: CheckpointStore, wanted: str, limit: int, pattern: Pattern
) -> tuple[list[Entry], bool]:
    """The newest checkpoint of each thread that has one with this `KEY=VALUE`, and whether these are all or `limit`.

    A thread may have very many such checkpoints, so more are asked for until there are enough threads.
    """
    asked = limit
    while True:
        entries = await found(store, wanted, asked, pattern.prefix)
        threads: dict[str, Entry] = {}
        for entry in entries:
            if pattern.matches(entry.thread_id):
                threads.setdefault(entry.thread_id, entry)
        if len(threads) >= limit or len(entries) < asked:
            return list(threads.values())[:limit], True
        if asked >= MOST_LOOKED_AT or sum(len(entry.metadata) for entry in entries) > MOST_CHARACTERS:
            return list(threads.values()), False
        asked *= 4
