"""Looks at what a handle sends to its engine, without being in the way: the texts of the last commit."""

from __future__ import annotations

from locus.memory.checkpointer import Checkpointer
from locus.memory.model.records import Commit, Outcome


class Tap:
    """Remembers the commits of a handle; they are added up later, outside the time that is measured."""

    def __init__(self, handle: Checkpointer) -> None:
        self._engine = handle.store.engine
        self._commit = self._engine.commit
        self._seen: list[Commit] = []
        self._engine.commit = self._note  # type: ignore[method-assign]

    async def _note(self, commit: Commit) -> Outcome:
        self._seen.append(commit)
        return await self._commit(commit)

    def take(self) -> int:
        """The bytes of all texts that were sent since the last call."""
        sent = sum(len(text.encode()) for commit in self._seen for text in _texts(commit))
        self._seen.clear()
        return sent

    def remove(self) -> None:
        del self._engine.commit


def _texts(commit: Commit) -> list[str]:
    runs = [run.items for run in (*commit.runs, *commit.values)]
    return [commit.head, commit.manifest, commit.metadata, *runs]
