"""Stores whose key space for long-term memory is broken on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from locus.errors import CheckpointError
from locus.memory.backends.memory import MemoryEngine
from locus.memory.engine import Engine
from locus.memory.long_term.items import item_of
from locus.memory.model.records import ANY, Commit, Contents, Outcome, Stored


class OneSpace(MemoryEngine):
    """Keeps items among its threads."""

    def _opened_space(self, name: str) -> Engine:
        return self


class LastWriterWins(MemoryEngine):
    """Looks at no condition of a commit."""

    async def commit(self, commit: Commit) -> Outcome:
        return await super().commit(replace(commit, if_latest=ANY))


class KeepsOldVersions(MemoryEngine):
    """Deletes the newest version only."""

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        newest = await self.history(thread_id, namespace, 1, None)
        return await super().delete(thread_id, namespace, {entry.seq: entry.rev for entry in newest})


class LowersNames(MemoryEngine):
    """Takes names for each other that differ in case."""

    async def commit(self, commit: Commit) -> Outcome:
        return await super().commit(replace(commit, thread_id=commit.thread_id.lower()))

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        return await super().read(thread_id.lower(), namespace, checkpoint_id)


class LosesTheLastOfAPage(MemoryEngine):
    """Leaves the last thread of a page out."""

    async def newest(self, prefix: str, after: str, limit: int) -> Contents:
        page = await super().newest(prefix, after, limit)
        return replace(page, stored=page.stored[:-1]) if len(page.stored) > 1 else page


class PrefixIsAPattern(MemoryEngine):
    """Forgets the end of a prefix."""

    async def newest(self, prefix: str, after: str, limit: int) -> Contents:
        return await super().newest(prefix[:-1], after, limit)


class HidesDamage(MemoryEngine):
    """Says nothing of what it left out."""

    async def newest(self, prefix: str, after: str, limit: int) -> Contents:
        page = await super().newest(prefix, after, limit)
        return replace(page, stored=list(filter(_is_sound, page.stored)))


def _is_sound(stored: Stored) -> bool:
    try:
        item_of(stored)
    except CheckpointError:
        return False
    return True


def broken(space: type[MemoryEngine]) -> type[MemoryEngine]:
    """An engine whose key spaces are of this class."""

    class WithBrokenSpace(MemoryEngine):
        def _opened_space(self, name: str) -> Engine:
            return space()

    return WithBrokenSpace
