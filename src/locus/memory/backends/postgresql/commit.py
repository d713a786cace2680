"""A save as one statement: one round trip, and one flush to the server's disk.

`seen` is the thread as the statement found it when it began. `moved` locks its row and raises its counter, if
everything that the save relies on is there. Another transaction may change the thread while this one waits for the
lock, and then what `seen` says is old. But once PostgreSQL has the lock, it checks the conditions of an UPDATE again,
on the row as it is by then. Every commit raises `last_seq` and every deletion `removals`, so in that case the row is
left alone, nothing is written, and the save takes the steps that all SQL backends share (`PostgreSQLThreads`).

Most saves differ in their values only, so the text of a statement is built once for each `StatementKey` of commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from locus.memory.backends.postgresql.schema import PostgreSQLFlavour
from locus.memory.backends.postgresql.together import put_statement
from locus.memory.backends.sql.commit import SQLThread, SQLThreads, can_be_first
from locus.memory.backends.sql.flavour import Steps, portions
from locus.memory.backends.sql.schema import CHECKPOINT_COLUMNS, RUN_COLUMNS, RUN_INFO, NewCheckpoint, of
from locus.memory.model.codec import to_native
from locus.memory.model.commit_rules import contested_runs
from locus.memory.model.records import (
    ANY,
    Commit,
    Entry,
    Outcome,
    Run,
    RunInfo,
    TaskWrites,
    Unset,
    Verdict,
)
from locus.memory.model.retention import Removal

Name = str | tuple[str, int, str]
"""Names a value of a commit; a value of a run by the field of the commit, its place there, and the column."""

MOST_ROWS = 16
"""The number of runs that are written row by row.

More are sent as arrays, so that a statement does not grow with them: it may have 65,535 parameters, and each key is a
text that the server keeps.
"""


class StatementKey(NamedTuple):
    """The properties of a commit that the text of its statement depends on.

    An id is `ANY`, `None` for none, or "" for one that is named.
    """

    base: bool
    fresh_id: bool
    if_latest: str | None | Unset
    parent: str | None | Unset
    parent_looked_up: bool
    contested: tuple[bool, ...] | None
    """For each run, whether its branch may have it already; None if there are too many of them."""
    values: int


class Statement(NamedTuple):
    """An INSERT that returns the sequence number, the parent and the thread's key, or no row if it wrote nothing."""

    text: str
    names: tuple[Name, ...]
    """The names of its values, in the order of their places."""
    sql: PostgreSQLFlavour

    def values(self, commit: Commit) -> list[Any]:
        """The values of a commit as the driver takes them."""
        return list(map(_values(self.sql, commit).__getitem__, self.names))


def _values(sql: PostgreSQLFlavour, commit: Commit) -> dict[Name, Any]:
    """Everything about a commit that a statement may name."""
    base, parent, latest, expires_at = commit.base, commit.parent_id, commit.if_latest, commit.expires_at
    values: dict[Name, Any] = {
        "thread_id": sql.text(commit.thread_id),
        "namespace": sql.text(commit.namespace),
        "checkpoint_id": sql.text(commit.checkpoint_id),
        "rev": commit.rev,
        "base_id": None if base is None else sql.text(base.checkpoint_id),
        "base_rev": None if base is None else sql.text(base.rev),
        "parent_id": sql.text(parent) if isinstance(parent, str) else None,
        "if_latest": sql.text(latest) if isinstance(latest, str) else None,
        "now": datetime.now(UTC),
        "created_at": sql.time(commit.created_at),
        "expires_at": None if expires_at is None else sql.time(expires_at),
        "metadata": to_native(commit.metadata, sql.dialect),
        "head": to_native(commit.head, sql.dialect),
        "manifest": to_native(commit.manifest, sql.dialect),
    }
    if len(commit.runs) > MOST_ROWS:
        rows = [_run_values(sql, run) for run in commit.runs]
        values |= {name: [row[name] for row in rows] for name in _RUN_TYPES}
        values["contested_branch"] = [run.branch for run in contested_runs(commit)]
        values["contested_number"] = [run.number for run in contested_runs(commit)]
    else:
        for at, run in enumerate(commit.runs):
            for name, value in _run_values(sql, run).items():
                values["runs", at, name] = value
    for at, run in enumerate(commit.values):
        for name, value in _run_values(sql, run).items():
            values["values", at, name] = value
    return values


_RUN_TYPES = {
    "branch": "text",
    "number": "integer",
    "start": "integer",
    "count": "integer",
    "items": "jsonb",
    "items_before": "text",
}
"""The columns of a run, and their types."""


def _run_values(sql: PostgreSQLFlavour, run: Run) -> dict[str, Any]:
    return dict(zip(_RUN_TYPES, (*run[:4], to_native(run.items, sql.dialect), run.before), strict=True))


def in_new_thread(sql: PostgreSQLFlavour, commit: Commit) -> Statement | None:
    """The statement for a thread that does not exist yet; None if this commit cannot be the first."""
    # Most saves have a base, and need not ask any further.
    if commit.base is not None or not can_be_first(commit):
        return None
    return _for_new_thread(sql, _statement_key(commit))


def in_thread(sql: PostgreSQLFlavour, commit: Commit) -> Statement:
    """The statement for an existing thread."""
    return _for_thread(sql, _statement_key(commit))


def at_once(statement: Statement, commit: Commit) -> Steps[Outcome | None]:
    """Save with a statement, and put the pending writes that come with it; None if it wrote nothing.

    The statement has locked the thread, and what the next ones see is as it is by then.
    """
    rows = yield statement.text, statement.values(commit)
    if not rows:
        return None
    ((seq, parent_id, key),) = rows
    for task in commit.writes:
        yield put_statement(statement.sql, {key: task})
    return Outcome(Verdict.COMMITTED, seq, None if parent_id is None else statement.sql.read_text(parent_id))


def confirm(sql: PostgreSQLFlavour, thread_id: str) -> Steps[None]:
    """Wait until a synchronous standby has everything that can be seen of a thread, if the server has one.

    A save may be seen although nobody was told that it is safe: its answer was lost, or no standby has confirmed it. A
    row lock goes into the server's log, so the end of this statement waits for the standby as that of a save does.
    """
    yield (
        f"SELECT 1 FROM {sql.threads} WHERE thread_id = ? AND {sql.waits_for_standby}{sql.lock}",
        (sql.text(thread_id),),
    )


def _statement_key(commit: Commit) -> StatementKey:
    base, parent = commit.base, commit.parent_id
    named = isinstance(parent, str)
    return StatementKey(
        base=base is not None,
        fresh_id=commit.fresh_id,
        if_latest="" if isinstance(commit.if_latest, str) else commit.if_latest,
        parent=("" if parent != commit.checkpoint_id else None) if named else parent,
        parent_looked_up=named and not commit.parent_as_named and (base is None or parent != base.checkpoint_id),
        contested=None if len(commit.runs) > MOST_ROWS else _contested(commit),
        values=len(commit.values),
    )


def _contested(commit: Commit) -> tuple[bool, ...]:
    contested = contested_runs(commit)
    return tuple([run in contested for run in commit.runs])


@lru_cache(maxsize=64)
def _for_new_thread(sql: PostgreSQLFlavour, key: StatementKey) -> Statement:
    return _Builder(sql, key).in_new_thread()


@lru_cache(maxsize=64)
def _for_thread(sql: PostgreSQLFlavour, key: StatementKey) -> Statement:
    return _Builder(sql, key).in_thread()


class _Builder:
    """Writes the SQL of a save, as one statement, for all commits that have the same `StatementKey`."""

    def __init__(self, sql: PostgreSQLFlavour, key: StatementKey) -> None:
        self._sql = sql
        self._statement_key = key
        self._names: list[Name] = []
        self._namespace = self._value("namespace")

    def _value(self, name: Name, kind: str = "text") -> str:
        self._names.append(name)
        return f"${len(self._names)}::{kind}"

    def in_new_thread(self) -> Statement:
        moved = (
            f"moved AS (INSERT INTO {self._sql.threads} (thread_id, last_seq, expires_at)"
            f" VALUES ({self._value('thread_id')}, 1, {self._value('expires_at', 'timestamptz')})"
            " ON CONFLICT DO NOTHING RETURNING id, last_seq)"
        )
        return self._statement([moved], parent="NULL::text")

    def in_thread(self) -> Statement:
        sql, key = self._sql, self._statement_key
        latest = (
            f"(SELECT c.checkpoint_id FROM {sql.checkpoints} c WHERE c.thread = t.id"
            f" AND {sql.in_order('c.namespace')} = {self._namespace} ORDER BY c.seq DESC LIMIT 1)"
            if key.if_latest is not ANY or key.parent is ANY
            else "NULL::text"
        )
        seen = (
            f"seen AS MATERIALIZED (SELECT t.id, t.last_seq, t.removals, {latest} AS latest FROM {sql.threads} t"
            f" WHERE t.thread_id = {self._value('thread_id')}"
            f" AND (t.expires_at IS NULL OR t.expires_at > {self._value('now', 'timestamptz')}))"
        )
        conditions = ["t.id = s.id", "t.last_seq = s.last_seq", "t.removals = s.removals", *self._conditions()]
        expires_at = self._value("expires_at", "timestamptz")
        moved = (
            f"moved AS (UPDATE {sql.threads} t SET last_seq = t.last_seq + 1, expires_at = {expires_at}"
            f" FROM seen s WHERE {' AND '.join(conditions)} RETURNING t.id, t.last_seq, s.latest)"
        )
        return self._statement([seen, moved], parent=self._parent())

    def _conditions(self) -> Iterator[str]:
        """The conditions by which `commit_rules.decide` would accept the commit.

        If one does not hold, nothing is written.

        OFFSET 0 keeps each a look into an index. As a join it might become a scan of the whole table, which is cheap
        while the table is small, and the server would keep that plan.
        """
        key = self._statement_key
        if key.if_latest is None:
            yield "s.latest IS NULL"
        elif key.if_latest is not ANY:
            yield f"s.latest = {self._value('if_latest')}"
        if not key.fresh_id:
            yield f"NOT {self._exists('checkpoint_id')}"
        if key.base:
            yield self._exists("base_id", rev="base_rev")
        if key.parent_looked_up:
            yield self._exists("parent_id")
        if key.contested is None:
            yield self._are_next()
            return
        for at, contested in enumerate(key.contested):
            if contested:
                yield self._is_next(at)

    def _is_next(self, at: int) -> str:
        branch = self._value(("runs", at, "branch"))
        number = self._value(("runs", at, "number"), "integer")
        return (
            f"NOT EXISTS (SELECT 1 FROM {self._sql.runs} r WHERE r.thread = s.id"
            f" AND r.branch = {branch} AND r.number >= {number} OFFSET 0)"
        )

    def _are_next(self) -> str:
        branches = self._value("contested_branch", "text[]")
        numbers = self._value("contested_number", "integer[]")
        return (
            f"NOT EXISTS (SELECT 1 FROM unnest({branches}, {numbers}) AS n (branch, number), {self._sql.runs} r"
            " WHERE r.thread = s.id AND r.branch = n.branch AND r.number >= n.number OFFSET 0)"
        )

    def _exists(self, checkpoint_id: Name, rev: Name | None = None) -> str:
        same = f"c.checkpoint_id = {self._value(checkpoint_id)}"
        if rev is not None:
            same += f" AND c.rev = {self._value(rev)}"
        return (
            f"EXISTS (SELECT 1 FROM {self._sql.checkpoints} c WHERE c.thread = s.id"
            f" AND c.namespace = {self._namespace} AND {same} OFFSET 0)"
        )

    def _parent(self) -> str:
        if self._statement_key.parent is ANY:
            return "m.latest"
        return "NULL::text" if self._statement_key.parent is None else self._value("parent_id")

    def _statement(self, parts: list[str], parent: str) -> Statement:
        sql, key = self._sql, self._statement_key
        if key.contested != ():
            rows = self._arrays() if key.contested is None else self._rows("runs", len(key.contested))
            parts.append(f"runs AS ({self._insert(rows)})")
        if key.values:
            parts.append(f"large AS ({self._insert(self._rows('values', key.values))} ON CONFLICT DO NOTHING)")
        columns = NewCheckpoint(
            thread="m.id",
            namespace=self._namespace,
            checkpoint_id=self._value("checkpoint_id"),
            parent_id=parent,
            seq="m.last_seq",
            rev=self._value("rev"),
            created_at=self._value("created_at", "timestamptz"),
            metadata=self._value("metadata", "jsonb"),
            head=self._value("head", "json"),
            manifest=self._value("manifest", "json"),
        )
        text = (
            f"WITH {', '.join(parts)} INSERT INTO {sql.checkpoints} ({CHECKPOINT_COLUMNS})"
            f" SELECT {', '.join(columns)} FROM moved m RETURNING seq, parent_id, thread"
        )
        return Statement(text, tuple(self._names), sql)

    def _insert(self, rows: str) -> str:
        return (
            f"INSERT INTO {self._sql.runs} ({RUN_COLUMNS}) SELECT m.id, {of('r', RUN_INFO)}, m.last_seq, r.items,"
            f" r.items_before FROM moved m, {rows} AS r ({RUN_INFO}, items, items_before)"
        )

    def _rows(self, of: str, count: int) -> str:
        """The runs in a field of the commit, row by row."""
        rows = (
            ", ".join(self._value((of, at, column), kind) for column, kind in _RUN_TYPES.items()) for at in range(count)
        )
        return f"(VALUES {', '.join(f'({row})' for row in rows)})"

    def _arrays(self) -> str:
        """All runs of the commit, as an array for each column."""
        # The driver has no array of jsonb.
        kinds = {**_RUN_TYPES, "items": "text"}
        arrays = {column: self._value(column, f"{kind}[]") for column, kind in kinds.items()}
        arrays["items"] += "::jsonb[]"
        return f"unnest({', '.join(arrays.values())})"


class PostgreSQLThread(SQLThread):
    """A locked thread in PostgreSQL. It keeps the full text and `removals` up to date."""

    sql: PostgreSQLFlavour

    def take_out(self, gone: Sequence[Entry], removal: Removal, *, keep_writes: bool = False) -> Steps[None]:
        yield from super().take_out(gone, removal, keep_writes=keep_writes)
        # A save that began before this, and waits for the lock, has to notice that what it saw has changed.
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

    def put_writes(self, task: TaskWrites) -> Steps[None]:
        """Put the pending writes of a task with one statement."""
        thread = yield from self.open_or_create(task.thread_id)
        yield put_statement(self.sql, {thread.key: task})
