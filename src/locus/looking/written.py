"""Searches words that stand in pending writes only: the index of a store has checkpoints, and no writes.

A graph of LangGraph that keeps its messages as deltas (see `deltas`) has them nowhere else, and what a graph asks a
person is a write, too. So the writes of the newest graphs are read: of `THREADS` threads, `DEPTH` checkpoints back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from locus.looking.deltas import MESSAGES, keeps_deltas
from locus.looking.saves import INTERRUPT, questions_in
from locus.memory.engine import Deadline, Engine, KeepsWrites
from locus.memory.model.arguments import SEARCH_SECONDS
from locus.memory.model.codec import decode
from locus.memory.model.ids import words
from locus.memory.model.matching import score, searchable, snippet
from locus.memory.model.parts import Range
from locus.memory.model.records import AncestorQuery, Entry, Hit, Write
from locus.memory.store import CheckpointStore

THREADS: Final = 100
DEPTH: Final = 500
_AT_ONCE: Final = 8
_CHANNEL: Final = "messages"
_GRAPH: Final = ""
"""The namespace of a graph; those of its subgraphs have a colon."""


async def search_written(
    store: CheckpointStore, query: str, prefix: str = "", timeout_seconds: float = SEARCH_SECONDS
) -> list[Hit]:
    """The checkpoints whose words came as pending writes and have all words of a query, the newest threads first.

    No thread is begun after the timeout.
    """
    terms = list(dict.fromkeys(words(query)))
    if not terms or not store.keeps_writes:
        return []
    newest = await store.newest_threads(THREADS, None, prefix)
    gate, deadline = asyncio.Semaphore(_AT_ONCE), Deadline(timeout_seconds)

    async def hits_of(entry: Entry) -> list[Hit]:
        async with gate, store.using() as engine:
            if deadline.has_passed:
                return []
            assert isinstance(engine, KeepsWrites)
            found = await _hits(engine, entry, terms)
            root = None if entry.namespace == _GRAPH else await engine.entry(entry.thread_id, _GRAPH, None)
            return found if root is None else [*found, *await _hits(engine, root, terms)]

    graphs = [entry for entry in newest.entries if entry.namespace == _GRAPH or ":" in entry.namespace]
    return [hit for some in await asyncio.gather(*map(hits_of, graphs)) for hit in some]


async def _hits(engine: Engine, tip: Entry, terms: Sequence[str]) -> list[Hit]:
    """The hits among what was written for a checkpoint and, if it keeps its messages so, for its ancestors."""
    assert isinstance(engine, KeepsWrites)
    place = (tip.thread_id, tip.namespace)
    hits = _hit(tip, await engine.get_writes(*place, tip.checkpoint_id, None), terms)
    stored = await engine.read_part(*place, tip.checkpoint_id, Range(MESSAGES, 0, 0))
    if stored is None or not keeps_deltas(stored):
        return hits
    # The tasks of a checkpoint write what comes with the next one.
    came_with: str = tip.checkpoint_id
    for ancestor in await engine.ancestors(AncestorQuery(*place, tip.checkpoint_id, DEPTH, (_CHANNEL,))):
        if _hit(tip, ancestor.writes, terms):
            entry = await engine.entry(*place, came_with)
            hits += [] if entry is None else _hit(entry, ancestor.writes, terms)
        came_with = ancestor.checkpoint_id
    return hits


def _hit(entry: Entry, writes: Sequence[Write], terms: Sequence[str]) -> list[Hit]:
    """The hit of a checkpoint in what was written, if one of the values has all terms."""
    best: tuple[float, str] = (0.0, "")
    for write in writes:
        is_question = write.channel == INTERRUPT
        text = "\n".join(questions_in(decode(write.value))) if is_question else searchable(write.value)
        best = max(best, (score(terms, text), text))
    return [Hit(entry, best[0], snippet(terms, best[1]))] if best[0] else []
