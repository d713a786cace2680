"""What each checkpoint of a page added to the one before it, from the manifests: no item is read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from locus.looking.describe import growth, totals
from locus.memory.model.records import Entry, Path
from locus.memory.store import CheckpointStore

_AT_ONCE: Final = 8
_LONGEST: Final = 250_000
"""In characters. Of a manifest with thousands of lists, nobody wants to know how each of them grew."""


async def growths(store: CheckpointStore, entries: Sequence[Entry]) -> dict[int, Mapping[Path, int]]:
    """By how many items the lists of each checkpoint of a thread are longer than its parent's, by its number."""
    known: dict[tuple[str, str], dict[Path, int]] = {}
    gate = asyncio.Semaphore(_AT_ONCE)

    async def read(place: tuple[str, str]) -> None:
        async with gate, store.using() as engine:
            found = await engine.manifest(thread_id, *place)
        if found is None or len(found[1]) <= _LONGEST:
            known[place] = {} if found is None else totals(found[1])

    if not entries:
        return {}
    thread_id = entries[0].thread_id
    places = {(entry.namespace, each) for entry in entries for each in (entry.checkpoint_id, entry.parent_id) if each}
    await asyncio.gather(*map(read, sorted(places)))
    found: dict[int, Mapping[Path, int]] = {}
    for entry in entries:
        own = known.get((entry.namespace, entry.checkpoint_id))
        before = {} if entry.parent_id is None else known.get((entry.namespace, entry.parent_id))
        found[entry.seq] = {} if own is None or before is None else growth(before, own)
    return found
