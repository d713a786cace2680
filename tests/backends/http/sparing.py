"""A store in memory that reads as little as it may, so that what a request asked for can be seen in its answer."""

from __future__ import annotations

from dataclasses import replace

from locus.memory.backends import MemoryCheckpointer
from locus.memory.backends.memory import MemoryEngine
from locus.memory.model.manifest import by_branch, visible
from locus.memory.model.parts import Part, needed
from locus.memory.model.records import Base, Stored
from tests.testing.broken import newer_than


class SparingEngine(MemoryEngine):
    """The memory engine, without what is not needed."""

    async def read_part(self, thread_id: str, namespace: str, checkpoint_id: str | None, part: Part) -> Stored | None:
        stored = await self.read(thread_id, namespace, checkpoint_id)
        if stored is None:
            return None
        extents = needed(stored.manifest, part)
        runs = {run for extent in extents for run, _, _ in visible(extent, stored.runs.get(extent.branch, ()))}
        return replace(stored, runs=by_branch(sorted(runs)))

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        stored = await self.read(thread_id, namespace, checkpoint_id)
        known = await self.manifest(thread_id, namespace, held.checkpoint_id)
        if stored is None or known is None or known[0] != held.rev:
            return stored
        newer = newer_than((run for runs in stored.runs.values() for run in runs), known[1])
        return replace(stored, runs=by_branch(newer), since=held)


def sparing() -> MemoryCheckpointer:
    """A checkpointer on such an engine."""
    checkpointer = MemoryCheckpointer()
    checkpointer.store.engine = SparingEngine()
    return checkpointer
