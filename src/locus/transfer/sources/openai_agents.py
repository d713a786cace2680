"""Reads sessions of the OpenAI Agents SDK: `SQLiteSession`, `AsyncSQLiteSession` and `AdvancedSQLiteSession`.

    agent_sessions      session_id, created_at, updated_at
    agent_messages      id, session_id, message_data (JSON), created_at
    message_structure   the branches of an advanced session, and their messages

Each session becomes a thread that `LocusSession` continues. Times are in seconds, so the messages of one second become
one checkpoint. Each branch becomes a line of the history. The main branch comes last, because the thread continues from
its last checkpoint.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator
from datetime import datetime
from itertools import groupby

from locus.errors import ConfigurationError, CorruptCheckpointError, SerializationError
from locus.memory.model.codec import decode, encode
from locus.transfer.content import MovedCheckpoint, log_checkpoints
from locus.transfer.items import ThreadItems
from locus.transfer.sources import read_moment
from locus.transfer.sources.sql import SourceRow, SQLiteReader, TableSource, quote_name

NAMESPACE = "openai-agents"
MAIN = "main"
STRUCTURE = "message_structure"


class OpenAIAgentsSource(TableSource):
    """The sessions of the OpenAI Agents SDK in an SQLite file."""

    def __init__(self, location: str, sessions_table: str, messages_table: str) -> None:
        self._file = SQLiteReader(location)
        super().__init__(self._file)
        self._sessions = sessions_table
        self._messages = messages_table

    async def ids(self) -> Iterable[str]:
        missing = {self._sessions, self._messages} - await self._file.tables()
        if missing:
            raise ConfigurationError(
                f"{self._file.path!r} has no table {', '.join(sorted(missing))}: is it a file of SQLiteSession, and "
                "are its tables called so?"
            )
        rows = await self._file.all(f"SELECT DISTINCT session_id FROM {quote_name(self._messages)}")
        return [str(name) for (name,) in rows]

    async def checkpoints(self, thread_id: str) -> AsyncGenerator[MovedCheckpoint, None]:
        items = ThreadItems()
        for branch, rows in await self._branches(thread_id):
            name = "" if branch == MAIN else f"{branch}-"
            for checkpoint in log_checkpoints(NAMESPACE, branch, _seconds(thread_id, name, rows), items):
                yield checkpoint

    async def _branches(self, thread_id: str) -> list[tuple[str, list[SourceRow]]]:
        """The rows of each branch of a session, in order. The main branch is the last."""
        if STRUCTURE in await self._file.tables():
            rows = await self._file.all(
                f"SELECT s.branch_id, m.id, m.message_data, m.created_at FROM {STRUCTURE} s"
                f" JOIN {quote_name(self._messages)} m ON m.id = s.message_id WHERE s.session_id = ?"
                " ORDER BY s.branch_id = ?, s.branch_id, s.sequence_number, s.id",
                (thread_id, MAIN),
            )
            if rows:
                by_branch = groupby(rows, key=lambda row: row[0])
                return [(branch, [row[1:] for row in group]) for branch, group in by_branch]
        messages = quote_name(self._messages)
        statement = f"SELECT id, message_data, created_at FROM {messages} WHERE session_id = ? ORDER BY id"
        return [(MAIN, await self._file.all(statement, (thread_id,)))]


def _seconds(thread_id: str, name: str, rows: list[SourceRow]) -> Iterator[tuple[str, datetime, list[str]]]:
    """The messages of each second: the id of their checkpoint, which ends with that of the last one, and its time."""
    for second, rows_of_second in groupby(rows, key=lambda row: row[2]):
        together = list(rows_of_second)
        texts = [_item(thread_id, row) for row in together]
        yield f"import-{name}{together[-1][0]}", read_moment(second, "time of SQLite's"), texts


def _item(thread_id: str, row: SourceRow) -> str:
    try:
        return encode(decode(row[1]))
    except (CorruptCheckpointError, SerializationError, TypeError) as error:
        raise CorruptCheckpointError(
            f"message {row[0]} of session {thread_id!r} is no JSON. The SDK passes over it; remove the row, if it is "
            "not needed, and try again"
        ) from error
