"""A save as one statement: one round trip, and one flush to the server's disk.

`seen` is the thread as the statement found it when it began. `moved` locks its row and raises its counter, if
everything that the save relies on is there. Another transaction may have changed the thread while this one
waited for the lock, and what `seen` says would be old by then; but PostgreSQL checks the conditions of an UPDATE
again on the row as it is once it has the lock. Every commit raises `last_seq` and every deletion `removals`, so
the row is left alone in that case, nothing is written, and the save is decided on step by step instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from locus.memory.backends.postgresql_flavour import PostgreSQLFlavour
from locus.memory.backends.sql_rows import now
from locus.memory.checkpointer import ANY
from locus.memory.records import Commit, Run

_RUN = "thread, branch, number, start, count, seq, items"
_CHECKPOINT = "thread, namespace, checkpoint_id, parent_id, seq, rev, created_at, metadata, head, manifest"


class Save:
    """The statement for one commit. It returns the sequence number and the parent, or nothing."""

    def __init__(self, sql: PostgreSQLFlavour, commit: Commit) -> None:
        self._sql = sql
        self._commit = commit
        self.values: list[Any] = []
        self._namespace = ""

    def _value(self, value: Any, kind: str = "text") -> str:
        self.values.append(value)
        return f"${len(self.values)}::{kind}"

    def _id(self, value: str) -> str:
        return self._value(self._sql.text(value))

    def _json(self, text: str, kind: str = "jsonb") -> str:
        return self._value(self._sql.json(text), kind)

    def in_new_thread(self) -> str | None:
        """For a thread that is not there yet; None if this commit cannot be the first."""
        commit = self._commit
        if commit.base is not None or commit.if_latest not in (ANY, None):
            return None
        if isinstance(commit.parent_id, str) and commit.parent_required:
            return None
        moved = (
            f"moved AS (INSERT INTO {self._sql.threads} (thread_id, last_seq, expires_at)"
            f" VALUES ({self._id(commit.thread_id)}, 1, {self._expiry()})"
            " ON CONFLICT DO NOTHING RETURNING id, last_seq)"
        )
        self._namespace = self._id(commit.namespace)
        return self._statement([moved], parent="NULL::text")

    def in_thread(self) -> str:
        """For a thread that is there."""
        sql, commit = self._sql, self._commit
        self._namespace = self._id(commit.namespace)
        latest = (
            f"(SELECT c.checkpoint_id FROM {sql.checkpoints} c WHERE c.thread = t.id"
            f" AND {sql.in_order('c.namespace')} = {self._namespace} ORDER BY c.seq DESC LIMIT 1)"
            if commit.if_latest is not ANY or commit.parent_id is ANY
            else "NULL::text"
        )
        seen = (
            f"seen AS MATERIALIZED (SELECT t.id, t.last_seq, t.removals, {latest} AS latest FROM {sql.threads} t"
            f" WHERE t.thread_id = {self._id(commit.thread_id)}"
            f" AND (t.expires_at IS NULL OR t.expires_at > {self._value(now(sql), 'timestamptz')}))"
        )
        conditions = ["t.id = s.id", "t.last_seq = s.last_seq", "t.removals = s.removals", *self._conditions()]
        moved = (
            f"moved AS (UPDATE {sql.threads} t SET last_seq = t.last_seq + 1, expires_at = {self._expiry()}"
            f" FROM seen s WHERE {' AND '.join(conditions)} RETURNING t.id, t.last_seq, s.latest)"
        )
        return self._statement([seen, moved], parent=self._parent())

    def _conditions(self) -> Iterator[str]:
        """What `decisions.decide` would ask; if any of it does not hold, nothing is written."""
        commit, base = self._commit, self._commit.base
        if commit.if_latest is None:
            yield "s.latest IS NULL"
        elif commit.if_latest is not ANY:
            yield f"s.latest = {self._id(str(commit.if_latest))}"
        if not commit.fresh_id:
            yield f"NOT {self._exists(commit.checkpoint_id)}"
        if base is not None:
            yield self._exists(base.checkpoint_id, base.rev)
        if isinstance(commit.parent_id, str) and (base is None or commit.parent_id != base.checkpoint_id):
            yield self._exists(commit.parent_id)
        for run in commit.runs:
            if run.number > 0:
                yield (
                    f"NOT EXISTS (SELECT 1 FROM {self._sql.runs} r WHERE r.thread = s.id"
                    f" AND r.branch = {self._value(run.branch)} AND r.number >= {self._value(run.number, 'integer')})"
                )

    def _exists(self, checkpoint_id: str, rev: str | None = None) -> str:
        same = "" if rev is None else f" AND c.rev = {self._value(rev)}"
        return (
            f"EXISTS (SELECT 1 FROM {self._sql.checkpoints} c WHERE c.thread = s.id"
            f" AND c.namespace = {self._namespace} AND c.checkpoint_id = {self._id(checkpoint_id)}{same})"
        )

    def _parent(self) -> str:
        parent_id = self._commit.parent_id
        if parent_id is ANY:
            return "m.latest"
        return self._id(parent_id) if isinstance(parent_id, str) else "NULL::text"

    def _expiry(self) -> str:
        at = self._commit.expires_at
        return self._value(None if at is None else self._sql.time(at), "timestamptz")

    def _statement(self, parts: list[str], parent: str) -> str:
        sql, commit = self._sql, self._commit
        if commit.runs:
            parts.append(f"runs AS ({self._insert(commit.runs)})")
        if commit.values:
            parts.append(f"large AS ({self._insert(commit.values)} ON CONFLICT DO NOTHING)")
        columns = (
            "m.id",
            self._namespace,
            self._id(commit.checkpoint_id),
            parent,
            "m.last_seq",
            self._value(commit.rev),
            self._value(sql.time(commit.created_at), "timestamptz"),
            self._json(commit.metadata),
            self._json(commit.head, "json"),
            self._json(commit.manifest, "json"),
        )
        return (
            f"WITH {', '.join(parts)} INSERT INTO {sql.checkpoints} ({_CHECKPOINT})"
            f" SELECT {', '.join(columns)} FROM moved m RETURNING seq, parent_id"
        )

    def _insert(self, runs: tuple[Run, ...]) -> str:
        rows = ", ".join(
            f"({self._value(run.branch)}, {self._value(run.number, 'integer')}, {self._value(run.start, 'integer')},"
            f" {self._value(run.length, 'integer')}, {self._json(run.items)})"
            for run in runs
        )
        return (
            f"INSERT INTO {self._sql.runs} ({_RUN})"
            " SELECT m.id, r.branch, r.number, r.start, r.count, m.last_seq, r.items"
            f" FROM moved m, (VALUES {rows}) AS r (branch, number, start, count, items)"
        )
