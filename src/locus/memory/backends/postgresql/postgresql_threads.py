"""Threads inside a PostgreSQL transaction: the shared steps, and what the one-statement save and search add."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from locus.memory.backends.postgresql.postgresql_flavour import PostgreSQLFlavour
from locus.memory.backends.sql.commit import SQLThread, SQLThreads
from locus.memory.backends.sql.flavour import Steps, portions
from locus.memory.model.records import Entry, RunInfo


class PostgreSQLThread(SQLThread):
    sql: PostgreSQLFlavour

    def remove(self, doomed: Collection[int], spare: str | None = None) -> Steps[None]:
        yield from super().remove(doomed, spare)
        # A save that began before this, and waits for the lock, has to see that it looked at something else.
        yield f"UPDATE {self.sql.threads} SET removals = removals + 1 WHERE id = ?", (self.key,)

    def before_removing(self, entries: Sequence[Entry], runs: Sequence[RunInfo]) -> Steps[None]:
        search = self.sql.search
        for some in portions([entry.seq for entry in entries]):
            yield f"DELETE FROM {search} WHERE thread = ? AND seq = ANY(?) AND branch IS NULL", (self.key, some)
        for gone in portions(runs):
            yield (
                f"DELETE FROM {search} s USING unnest(?::text[], ?::integer[]) AS gone (branch, number)"
                " WHERE s.thread = ? AND s.branch = gone.branch AND s.number = gone.number",
                ([run.branch for run in gone], [run.number for run in gone], self.key),
            )

    def drop(self) -> Steps[int]:
        sql = self.sql
        tables = {"r": sql.runs, "w": sql.writes, "s": sql.search, "i": sql.indexed, "t": sql.threads}
        parts = [
            f"{name} AS (DELETE FROM {table} WHERE {'id' if name == 't' else 'thread'} = $1)"
            for name, table in tables.items()
        ]
        ((dropped,),) = yield (
            f"WITH {', '.join(parts)}, c AS (DELETE FROM {sql.checkpoints} WHERE thread = $1 RETURNING 1)"
            " SELECT count(*) FROM c",
            (self.key,),
        )
        return int(dropped)


class PostgreSQLThreads(SQLThreads):
    sql: PostgreSQLFlavour

    def thread(self, key: int, thread_id: str, last_seq: int) -> SQLThread:
        return PostgreSQLThread(self.sql, key, thread_id, last_seq)
