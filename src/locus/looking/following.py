"""What is new in a thread that is followed, look by look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from locus.memory.model.records import Entry
from locus.memory.store import CheckpointStore

NEWEST: Final = 20
"""How many checkpoints one look reads, unless more have come since the one before."""
MOST_CHARACTERS: Final = 64_000_000
"""How long the metadata of what is read at once may be, where that is bounded at all."""
PAUSES: Final = (1.0, 5.0)
"""Seconds between two looks: at first, and when nothing comes."""
_SLOWER: Final = 1.5


class Following:
    """Looks at a thread again and again, beginning after the checkpoint with the number `seen`.

    `most` bounds what one look reads; what came besides that is `missed`. `None`: everything that came.
    """

    def __init__(
        self, store: CheckpointStore, thread_id: str, namespace: str | None, seen: int, *, most: int | None = None
    ) -> None:
        self._store = store
        self._thread_id = thread_id
        self._namespace = namespace
        self._most = most
        self.seen = seen
        self.pause = PAUSES[0]
        """How long to wait before the next look."""
        self.page: list[Entry] = []
        """What the last look read, newest first."""
        self.missed = False
        """Whether the last look left out older ones that are new, too."""
        self.shortened = False
        """Whether checkpoints that were there are gone: the whole thread, or its newest ones."""

    async def look(self) -> list[Entry]:
        """The checkpoints that are new since the last look, oldest first."""
        async with self._store.using() as engine:
            page = await engine.history(self._thread_id, self._namespace, NEWEST, None)
            self.page = found = [*page]
            while len(page) == NEWEST and page[-1].seq > self.seen + 1 and not self._is_enough(found):
                page = await engine.history(self._thread_id, self._namespace, NEWEST, page[-1].seq)
                found += page
        self.missed = len(page) == NEWEST and page[-1].seq > self.seen + 1
        self.shortened = self.seen > 0 and (not found or found[0].seq < self.seen)
        fresh = [entry for entry in reversed(found) if entry.seq > self.seen]
        self.seen = max([self.seen, *(entry.seq for entry in fresh)])
        self.pause = PAUSES[0] if fresh else self.slower()
        return fresh

    def slower(self) -> float:
        """Wait longer from now on."""
        self.pause = min(PAUSES[1], self.pause * _SLOWER)
        return self.pause

    def _is_enough(self, found: Sequence[Entry]) -> bool:
        if self._most is None:
            return False
        return len(found) >= self._most or sum(len(entry.metadata) for entry in found) >= MOST_CHARACTERS
