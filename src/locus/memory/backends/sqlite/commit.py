"""A save in SQLite, and the other changes of a thread, inside a transaction that has locked the file.

`append` is the quick way for an ordinary save, which follows the checkpoint that it builds on: one question and some
inserts. Everything else takes the steps that all SQL backends share (`SQLiteThreads`). Both keep `locus_metadata` up to
date, and removals take what they remove out of the full text.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from operator import itemgetter
from typing import Any

from locus.errors import CorruptCheckpointError
from locus.memory.backends.sql.commit import Chosen, LoadedView, SQLThread, SQLThreads
from locus.memory.backends.sql.flavour import Row, Steps
from locus.memory.backends.sqlite import search as sqlite_search
from locus.memory.backends.sqlite.client import execute
from locus.memory.backends.sqlite.proofs import (
    OWNER,
    OWNER_SEAL,
    digest_of,
    newest_of,
    owner_seal,
    owner_text,
    proof_of_checkpoint,
    unsealed,
    write_seal,
)
from locus.memory.backends.sqlite.schema import SQL
from locus.memory.model.codec import canonical, checksum, decode, run_checksum
from locus.memory.model.commit_rules import contested_runs
from locus.memory.model.ids import digest, shown_thread
from locus.memory.model.records import ANY, Base, Commit, Entry, Outcome, RunInfo, TaskWrites, Verdict, Write
from locus.memory.model.retention import Removal
from locus.memory.model.seals import (
    MASK,
    LostSealError,
    Newest,
    carried,
    checkpoint_seal,
    followed,
    reparented,
    seal,
)

MOST_CONTESTED = 16
"""The number of branches that an ordinary commit may ask about. A state has fewer lists."""

_IS_TAKEN = "EXISTS (SELECT 1 FROM locus_runs r WHERE r.thread = t.id AND r.branch = ? AND r.number >= ?)"


@cache
def _look(contested: int) -> str:
    """A query for a thread, a base, an id, and so many branches of a commit that may have its runs already."""
    return (
        "SELECT t.id, t.last_seq, c.rev, c.seq,"
        " (SELECT max(n.seq) FROM locus_checkpoints n WHERE n.thread = t.id AND n.namespace = ?),"
        " EXISTS (SELECT 1 FROM locus_checkpoints s WHERE s.thread = t.id AND s.namespace = ? AND s.checkpoint_id = ?),"
        f" {' OR '.join([_IS_TAKEN] * contested) or '0'}, {OWNER}, {OWNER_SEAL}"
        " FROM locus_threads t LEFT JOIN locus_checkpoints c"
        " ON c.thread = t.id AND c.namespace = ? AND c.checkpoint_id = ?"
        " WHERE t.thread_id = ? AND t.expires_at IS NULL"
    )


_INSERT_RUN, _INSERT_CHECKPOINT = SQL.insert_run, SQL.insert_checkpoint
_INSERT_VALUE = SQL.insert_unless_there(SQL.runs, SQL.run_columns, SQL.run_marks)
_INSERT_METADATA = "INSERT INTO locus_metadata VALUES (?, ?, last_insert_rowid())"


def commit_within(connection: sqlite3.Connection, commit: Commit) -> Outcome:
    """Decide on a commit, and write it. If it is refused, the transaction may hold traces of it."""
    outcome = append(connection, commit)
    if outcome is None:
        return execute(connection, SQLiteThreads(connection).commit(commit))
    if commit.writes and outcome.is_written:
        execute(connection, SQLiteThreads(connection).put_all(commit.writes))
    return outcome


def commit_apart(connection: sqlite3.Connection, member: Commit | TaskWrites) -> Outcome | None:
    """Carry out one of several saves of a transaction; one that is refused, or fails, leaves no trace in it.

    None if it failed: sent alone, it will say why.
    """
    outcome: Outcome | None = None
    connection.execute("SAVEPOINT member")
    try:
        outcome = _carried_out(connection, member)
    except Exception:
        if not connection.in_transaction:  # SQLite has given up everything, as it may do if the disk is full
            raise
    if outcome is None or not outcome.is_written:
        connection.execute("ROLLBACK TO member")
    connection.execute("RELEASE member")
    return outcome


def _carried_out(connection: sqlite3.Connection, member: Commit | TaskWrites) -> Outcome:
    if isinstance(member, Commit):
        return commit_within(connection, member)
    execute(connection, SQLiteThreads(connection).put_all([member]))
    return Outcome(Verdict.COMMITTED)


def append(connection: sqlite3.Connection, commit: Commit) -> Outcome | None:
    """Decide on an ordinary commit, and write it. None if it is not ordinary; then nothing is written.

    An ordinary commit follows its base, in a thread that does not expire, and its id is new. One statement asks all
    that `commit_rules.decide` needs to know about it.
    """
    base = commit.base
    if base is None or not _follows(commit, base):
        return None
    contested = [place for run in contested_runs(commit) for place in (run.branch, run.number)]
    if len(contested) > 2 * MOST_CONTESTED:
        return None
    namespace = commit.namespace
    places = (namespace, namespace, commit.checkpoint_id, *contested, namespace, base.checkpoint_id)
    row = connection.execute(_look(len(contested) // 2), (*places, commit.thread_id)).fetchone()
    if row is None:
        return None
    key, last_seq, rev, seq, last, is_there, is_taken, owner, sealed = row
    if rev is None or is_there or (seq != last and commit.if_latest is not ANY):
        return None
    newest = newest_of(commit.thread_id, owner, sealed)
    _check_newest(commit.thread_id, namespace, last, newest)
    if rev != base.rev:
        return Outcome(Verdict.STALE_BASE)
    if is_taken:
        return Outcome(Verdict.BRANCH_TAKEN)
    _write(connection, commit, key, last_seq + 1, last, newest)
    return Outcome(Verdict.COMMITTED, last_seq + 1, base.checkpoint_id)


def _check_newest(thread_id: str, namespace: str, last: int, newest: Newest | None) -> None:
    """Check that the newest checkpoint of a namespace is there: a save that follows another one would hide its loss."""
    if newest is not None and newest.of(namespace) not in (None, last):
        raise CorruptCheckpointError(f"{shown_thread(thread_id)} is damaged: its newest checkpoint is lost")


def _follows(commit: Commit, base: Base) -> bool:
    """Tell whether nothing but the base has to be known to decide on a commit."""
    if commit.parent_id != base.checkpoint_id:
        return False
    return commit.if_latest is ANY or commit.if_latest == base.checkpoint_id


def _write(
    connection: sqlite3.Connection, commit: Commit, key: int, seq: int, previous: int, newest: Newest | None
) -> None:
    step = connection.execute
    for run in commit.runs:
        step(_INSERT_RUN, SQL.new_run(key, run, seq))
    for run in commit.values:
        step(_INSERT_VALUE, SQL.new_run(key, run, seq))
    place = (key, commit.namespace, commit.checkpoint_id, commit.parent_id, seq)
    row = (*place, commit.rev, SQL.time(commit.created_at), commit.metadata, commit.head, commit.manifest)
    step(_INSERT_CHECKPOINT, (*row, *proof_of_checkpoint(row, previous)))
    if commit.metadata != "{}":
        connection.executemany(_INSERT_METADATA, metadata_pairs(commit.metadata))
    step(*_thread_moved(commit, key, seq, newest))


def _thread_moved(commit: Commit, key: int, seq: int, newest: Newest | None) -> tuple[str, Sequence[Any]]:
    """The statement that raises the counter of a thread to the number of a commit, and seals its row.

    `newest` is None if an older version has written that. Of its other namespaces is known only how far they may reach.
    """
    expires_at = SQL.time(commit.expires_at) if commit.expires_at else None
    now = (newest or Newest({}, seq - 1)).saved(commit.namespace, seq)
    return _seal_thread(commit.thread_id, key, seq, expires_at, now, digest=newest is None)


def _seal_thread(
    thread_id: str, key: int, last_seq: int, expires_at: str | None, newest: Newest, *, digest: bool
) -> tuple[str, Sequence[Any]]:
    """The statement that changes the row of a thread. Its digest is written once: an index has it."""
    named = newest.text
    sealed = owner_seal(thread_id, owner_text(key, last_seq, expires_at, named))
    also, values = (", digest = ?", (digest_of(thread_id),)) if digest else ("", ())
    return (
        f"UPDATE locus_threads SET last_seq = ?, expires_at = ?, newest = ?, seal = ?{also} WHERE id = ?",
        (last_seq, expires_at, named, sealed, *values, key),
    )


class SQLiteThread(SQLThread):
    """A locked thread in SQLite. It keeps the index of metadata and the full text up to date."""

    def __init__(self, connection: sqlite3.Connection, key: int, thread_id: str, last_seq: int) -> None:
        super().__init__(SQL, key, thread_id, last_seq)
        self._connection = connection

    def look(self, commit: Commit) -> Steps[LoadedView]:
        newest, _ = yield from self._row()
        last = yield from self._last_before(commit.namespace, self.last_seq + 1)
        _check_newest(self.thread_id, commit.namespace, last, newest)
        return (yield from super().look(commit))

    def insert(self, entry: Entry, head: str, manifest: str) -> Steps[None]:
        previous = yield from self._last_before(entry.namespace, entry.seq)
        yield SQL.insert_checkpoint, SQL.sealed_checkpoint(self.key, entry, head, manifest, previous)
        if entry.metadata != "{}":
            self._connection.executemany(_INSERT_METADATA, metadata_pairs(entry.metadata))

    def _last_before(self, namespace: str, seq: int) -> Steps[int]:
        ((last,),) = yield (
            "SELECT coalesce(max(seq), 0) FROM locus_checkpoints WHERE thread = ? AND namespace = ? AND seq < ?",
            (self.key, namespace, seq),
        )
        return int(last)

    def moved(self, commit: Commit, outcome: Outcome) -> Steps[None]:
        newest, _ = yield from self._row()
        yield _thread_moved(commit, self.key, outcome.seq, newest)

    def expire_at(self, at: datetime) -> Steps[None]:
        newest, _ = yield from self._row()
        known = Newest({}, self.last_seq) if newest is None else newest
        yield _seal_thread(self.thread_id, self.key, self.last_seq, SQL.time(at), known, digest=newest is None)

    def _row(self) -> Steps[tuple[Newest | None, str | None]]:
        """What the row of the thread says of its newest checkpoints, and when it expires."""
        ((expires_at, owner, sealed),) = yield (
            f"SELECT t.expires_at, {OWNER}, {OWNER_SEAL} FROM locus_threads t WHERE t.id = ?",
            (self.key,),
        )
        return newest_of(self.thread_id, owner, sealed), expires_at

    def reparent(self, seq: int, parent_id: str | None) -> Steps[None]:
        rows = yield "SELECT id, parent_id FROM locus_checkpoints WHERE thread = ? AND seq = ?", (self.key, seq)
        for key, before in rows:
            yield (
                f"UPDATE locus_checkpoints SET parent_id = ?, seal = (seal + ?) & {MASK} WHERE id = ?",
                (parent_id, reparented(before, parent_id), key),
            )

    def _follow(self, namespace: str, seq: int) -> Steps[None]:
        """Let the first checkpoint after a number name the one before it, because some between were removed."""
        rows = yield (
            "SELECT id, seq, previous FROM locus_checkpoints WHERE thread = ? AND namespace = ? AND seq > ?"
            " ORDER BY seq LIMIT 1",
            (self.key, namespace, seq),
        )
        for key, number, before in rows:
            now = yield from self._last_before(namespace, number)
            if before not in (None, now):
                yield (
                    f"UPDATE locus_checkpoints SET previous = ?, seal = (seal + ?) & {MASK} WHERE id = ?",
                    (now, followed(before, now), key),
                )

    def copied(
        self, table: str, columns: str, condition: str, dest: SQLThread, values: Sequence[Any]
    ) -> tuple[str, Sequence[Any]]:
        statement, all_values = super().copied(table, columns, condition, dest, values)
        return statement.replace("o.seal", f"(o.seal + {carried(self.key, dest.key)}) & {MASK}"), all_values

    def copy_to(self, dest: SQLThread, chosen: Chosen) -> Steps[None]:
        for table, key in (("checkpoints", "id"), ("runs", "id"), ("writes", "rowid")):
            if (
                yield (
                    f"SELECT 1 FROM locus_{table} o, locus_format f WHERE o.thread = ? AND o.seal IS NULL"
                    f" AND o.{key} > f.unsealed_{table} LIMIT 1",
                    (self.key,),
                )
            ):
                raise LostSealError(shown_thread(self.thread_id))
        yield from super().copy_to(dest, chosen)
        assert isinstance(dest, SQLiteThread)
        yield from dest._seal_copied_rows()
        yield from dest._prove_copy()

    def _seal_copied_rows(self) -> Steps[None]:
        """Seal the copies of what an older version has stored, which has no seals. It may have checksums."""
        rows = yield (
            "SELECT id, parent_id, namespace, checkpoint_id, seq, rev, created_at, metadata, checksum"
            " FROM locus_checkpoints WHERE thread = ? AND seal IS NULL",
            (self.key,),
        )
        for row_id, parent_id, *covered in rows:
            sealed = checkpoint_seal(checksum(*covered), self.key, 0, parent_id)
            yield "UPDATE locus_checkpoints SET previous = 0, seal = ? WHERE id = ?", (sealed, row_id)
        ids = yield "SELECT id FROM locus_runs WHERE thread = ? AND seal IS NULL", (self.key,)
        for (row_id,) in ids:
            ((*run, stored),) = yield (
                "SELECT branch, number, start, count, items, items_before, checksum FROM locus_runs WHERE id = ?",
                (row_id,),
            )
            found = run_checksum(*run)
            if stored not in (None, found):
                raise CorruptCheckpointError("a run of items does not fit its checksum")
            yield "UPDATE locus_runs SET seal = ? WHERE id = ?", (seal(found, self.key), row_id)
        rows = yield (
            "SELECT rowid, task_id, idx, task_path, channel, value, checksum, thread, namespace, checkpoint_id"
            " FROM locus_writes WHERE thread = ? AND seal IS NULL",
            (self.key,),
        )
        for row_id, *columns, stored, thread, namespace, checkpoint_id in rows:
            place = (thread, namespace, checkpoint_id)
            sealed = write_seal(place, SQL.read_pending([*columns, unsealed(stored), *place]))
            yield "UPDATE locus_writes SET seal = ? WHERE rowid = ?", (sealed, row_id)

    def copy_write(self, dest: SQLThread, place: Sequence[Any], row: Row) -> Steps[None]:
        write = SQL.read_pending(row)
        yield SQL.put_write(), SQL.sealed_write((dest.key, *place, write.task_id), write)

    def _prove_copy(self) -> Steps[None]:
        """Let what was copied here name what it has been copied with."""
        rows = yield (
            "SELECT id, namespace, seq, previous FROM locus_checkpoints WHERE thread = ? ORDER BY namespace, seq",
            (self.key,),
        )
        last: dict[str, int] = {}
        for key, namespace, seq, before in rows:
            now = last.get(namespace, 0)
            if before not in (None, now):
                yield (
                    f"UPDATE locus_checkpoints SET previous = ?, seal = (seal + ?) & {MASK} WHERE id = ?",
                    (now, followed(before, now), key),
                )
            last[namespace] = seq
        newest = Newest({})
        for namespace, seq in sorted(last.items(), key=itemgetter(1)):
            newest = newest.saved(namespace, seq)
        ((last_seq, expires_at),) = yield "SELECT last_seq, expires_at FROM locus_threads WHERE id = ?", (self.key,)
        yield _seal_thread(self.thread_id, self.key, last_seq, expires_at, newest, digest=True)

    def copy_metadata(self, dest: SQLThread, condition: str, values: Sequence[Any]) -> Steps[None]:
        """Index the metadata of the copies. The index itself is sorted by metadata, and cannot be copied."""
        rows = yield (
            "SELECT o.id, o.metadata FROM locus_checkpoints o"
            f" WHERE o.thread = ? AND o.metadata <> '{{}}' AND {condition}",
            (dest.key, *values),
        )
        self._connection.executemany(
            "INSERT INTO locus_metadata VALUES (?, ?, ?)",
            [(*pair, key) for key, metadata in rows for pair in metadata_pairs(metadata)],
        )

    def before_removing(self, entries: Sequence[Entry], runs: Sequence[RunInfo]) -> Steps[None]:
        for entry in entries:
            ((key,),) = yield (
                "SELECT id FROM locus_checkpoints WHERE thread = ? AND namespace = ? AND seq = ?",
                (self.key, entry.namespace, entry.seq),
            )
            sqlite_search.forget_checkpoint(self._connection, key)
            self._connection.executemany(
                "DELETE FROM locus_metadata WHERE key = ? AND value = ? AND checkpoint = ?",
                [(*pair, key) for pair in metadata_pairs(entry.metadata)],
            )
        for run in runs:
            sqlite_search.forget_run(self._connection, self.key, run.branch, run.number)

    def take_out(self, gone: Sequence[Entry], removal: Removal, *, keep_writes: bool = False) -> Steps[None]:
        yield from super().take_out(gone, removal, keep_writes=keep_writes)
        sqlite_search.lower_up_to(self._connection)
        newest, expires_at = yield from self._row()
        for namespace in {entry.namespace for entry in gone}:
            seqs = sorted(entry.seq for entry in gone if entry.namespace == namespace)
            for seq in seqs:
                yield from self._follow(namespace, seq)
            if newest is not None and newest.of(namespace) in seqs:
                newest = newest.lowered(namespace, (yield from self._last_before(namespace, self.last_seq + 1)))
        if gone and newest is not None:
            yield _seal_thread(self.thread_id, self.key, self.last_seq, expires_at, newest, digest=False)

    def drop(self) -> Steps[int]:
        dropped = yield from super().drop()
        sqlite_search.lower_up_to(self._connection)
        return dropped


class SQLiteThreads(SQLThreads):
    """The operations that change threads in SQLite, on one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(SQL)
        self._connection = connection

    def thread(self, key: int, thread_id: str, last_seq: int) -> SQLThread:
        return SQLiteThread(self._connection, key, thread_id, last_seq)

    def put(self, place: Sequence[Any], writes: Sequence[Write], keep_numbered: bool) -> Steps[None]:
        for write in writes:
            yield SQL.put_write(), SQL.sealed_write(place, write)


def metadata_pairs(metadata: str) -> list[tuple[str, str]]:
    """The keys and values of metadata, as `locus_metadata` has them."""
    return [(key, metadata_value(canonical(value))) for key, value in decode(metadata).items()]


def metadata_value(text: str) -> str:
    """A value of metadata, or its digest if it is long."""
    return text if len(text) <= 200 else f"#{digest(text)}"
