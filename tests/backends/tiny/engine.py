"""The `Engine`: whole threads in dicts, which is as little as an engine can be."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from locus.errors import BackendUnavailableError, CheckpointError
from locus.memory.engine import Engine
from locus.memory.model.commit_rules import decide
from locus.memory.model.ids import Pattern
from locus.memory.model.matching import newest
from locus.memory.model.records import Commit, Entry, Outcome, Stored
from locus.memory.model.table import Row, ThreadTable
from tests.backends.tiny.config import TinyConfig

SHELVES: dict[tuple[str, str], dict[str, ThreadTable]] = {}


class TinyEngine(Engine):
    """One atomic step a thread is easy here: nothing awaits."""

    def __init__(self, config: TinyConfig) -> None:
        self._config = config
        self._tables = SHELVES.setdefault((config.host, config.shelf), {})

    @property
    def identity(self) -> str:
        return f"tiny:{self._config.host}/{self._config.shelf}"

    def _row(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Row | None:
        table = self._tables.get(thread_id)
        return table.row(namespace, checkpoint_id) if table else None

    async def commit(self, commit: Commit) -> Outcome:
        table = self._tables.setdefault(commit.thread_id, ThreadTable(commit.thread_id))
        outcome = decide(commit, table)
        if outcome.is_written:
            table.add(commit, outcome)
        return outcome

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        row = self._row(thread_id, namespace, checkpoint_id)
        return self._tables[thread_id].stored(row) if row else None

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        row = self._row(thread_id, namespace, checkpoint_id)
        return row.entry if row else None

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        table = self._tables.get(thread_id)
        return list(islice(table.newest_first(namespace, before_seq), limit)) if table else []

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        return sorted(name for name, table in self._tables.items() if table.rows and pattern.matches(name))[:limit]

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        table = self._tables.get(thread_id) or ThreadTable(thread_id)
        doomed = table.seqs(namespace, seqs)
        table.remove(doomed)
        return len(doomed)

    async def recent(self, limit: int, prefix: str = "") -> list[Entry]:
        tables = [table for name, table in self._tables.items() if name.startswith(prefix)]
        return newest((row.entry for table in tables for row in table.rows.values()), limit)

    def translate(self, error: BaseException) -> CheckpointError:
        return BackendUnavailableError(str(error))
