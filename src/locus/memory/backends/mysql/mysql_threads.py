"""Threads inside a MySQL transaction: the shared steps, and what the indexes and the quick save add to them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from locus.memory.backends.mysql.mysql_flavour import MySQLFlavour
from locus.memory.backends.sql.commit import SQLThread, SQLThreads
from locus.memory.backends.sql.flavour import Steps, marks, portions
from locus.memory.backends.sql.sql_words import metadata_key
from locus.memory.model.codec import canonical, decode, encode_trusted
from locus.memory.model.records import Entry, RunInfo

_COLUMNS = "thread, namespace, checkpoint_id, parent_id, seq, rev, created_at, metadata, head, manifest, metadata_keys"


class MySQLThread(SQLThread):
    sql: MySQLFlavour

    def insert(self, entry: Entry, head: str, manifest: str) -> Steps[None]:
        sql = self.sql
        yield (
            f"INSERT INTO {sql.checkpoints} ({_COLUMNS}) VALUES {marks(11)}",
            (
                self.key,
                entry.namespace,
                entry.checkpoint_id,
                entry.parent_id,
                entry.seq,
                entry.rev,
                sql.time(entry.created_at),
                sql.json(entry.metadata),
                sql.json(head),
                sql.json(manifest),
                metadata_keys(entry.metadata),
            ),
        )

    def before_removing(self, entries: Sequence[Entry], runs: Sequence[RunInfo]) -> Steps[None]:
        sql = self.sql
        for seqs in portions([entry.seq for entry in entries]):
            yield (
                f"DELETE s FROM {sql.search} s JOIN {sql.checkpoints} c ON c.id = s.checkpoint"
                f" WHERE c.thread = ? AND c.seq IN {marks(len(seqs))}",
                (self.key, *seqs),
            )
        for gone in portions(runs):
            names = [value for run in gone for value in (run.branch, run.number)]
            condition = f"thread = ? AND (branch, number) IN {sql.pairs(len(gone))}"
            yield f"DELETE FROM {sql.search} WHERE {condition}", (self.key, *names)

    def remove(self, doomed: Collection[int], spare: str | None = None) -> Steps[None]:
        yield from super().remove(doomed, spare)
        # Whoever saved last here must not take the thread for what it was.
        yield f"UPDATE {self.sql.threads} SET removals = removals + 1 WHERE id = ?", (self.key,)

    def drop(self) -> Steps[int]:
        sql = self.sql
        ((dropped,),) = yield f"SELECT count(*) FROM {sql.checkpoints} WHERE thread = ?", (self.key,)
        for statement in self.deletions():  # noqa: UP028 - a list takes no rows
            yield statement
        return int(dropped)

    def deletions(self) -> list[tuple[str, tuple[int]]]:
        """What removes the whole thread; the first statement counts its checkpoints."""
        sql = self.sql
        tables = (sql.checkpoints, sql.runs, sql.writes, sql.search)
        statements = [f"DELETE FROM {table} WHERE thread = ?" for table in tables]
        return [(statement, (self.key,)) for statement in (*statements, f"DELETE FROM {sql.threads} WHERE id = ?")]


class MySQLThreads(SQLThreads):
    sql: MySQLFlavour

    def thread(self, key: int, thread_id: str, last_seq: int) -> MySQLThread:
        return MySQLThread(self.sql, key, thread_id, last_seq)


MOST_KEYS = 200
"""A record can have some hundred values in a multi-valued index."""
TOO_MANY = "*"
"""Stands for all pairs of metadata with more keys than that: they are looked at, whatever is asked for."""


def metadata_keys(metadata: str) -> str | None:
    """What the index has of metadata (JSON text): a digest for each pair."""
    if metadata == "{}":
        return None
    pairs = decode(metadata)
    if len(pairs) > MOST_KEYS:
        return encode_trusted([TOO_MANY])
    return encode_trusted([metadata_key(key, canonical(value)) for key, value in pairs.items()])
