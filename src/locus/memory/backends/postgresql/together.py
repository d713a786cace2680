"""Saves of many threads as one statement: they share a round trip, and a flush to the server's disk.

Everything about the members goes into arrays, so one text serves groups of any size. What `commit` says of a save holds
for each of them: `seen` is the thread as the statement found it when it began, `sound` those whose conditions hold
there, and `locked` those that nobody else holds and that are still as they were. Nobody waits: whoever holds a thread
would hold up all others. The members that are left out are written by nobody, and go alone.

A thread that is new has no row to lock. Another transaction may be creating it, and its end has to be awaited, but not
for longer than `PATIENCE`. Members are inserted in the order of their ids, so two groups do not wait for each other.

Pending writes have no number that tells whether others have been there in the meantime. So a group that has some is
a transaction: first it locks their threads, and what the next statement sees is as it is by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from locus.memory.backends.postgresql.client import JSONArray
from locus.memory.backends.postgresql.schema import PostgreSQLFlavour
from locus.memory.backends.sql.commit import can_be_first
from locus.memory.backends.sql.flavour import Steps
from locus.memory.backends.sql.schema import (
    CHECKPOINT_COLUMNS,
    RUN_COLUMNS,
    RUN_INFO,
    WRITE_COLUMNS,
    NewCheckpoint,
    of,
)
from locus.memory.model.commit_rules import contested_runs
from locus.memory.model.records import ANY, Commit, Outcome, Run, TaskWrites, Verdict, Write

PATIENCE = "50ms"
"""The time that a group waits for those who are creating a thread that one of its members creates, too."""

Columns = Mapping[str, str]
"""The names of columns, and their types."""
Cell = str | None
"""A value in the notation of arrays, as the server reads it."""

_MEMBER: Columns = {
    "thread_id": "text",
    "namespace": "text",
    "checkpoint_id": "text",
    "rev": "text",
    "created_at": "timestamptz",
    "metadata": "jsonb",
    "head": "json",
    "manifest": "json",
    "expires_at": "timestamptz",
    "can_be_first": "boolean",
    "free_id": "text",
    "base_id": "text",
    "base_rev": "text",
    "expects": "boolean",
    "expected_id": "text",
    "follows_latest": "boolean",
    "parent_id": "text",
    "found_id": "text",
}
"""A commit. `free_id` must not exist, and `found_id` has to; each is NULL where that need not be looked up."""

_RUN: Columns = {
    "member": "integer",
    "branch": "text",
    "number": "integer",
    "start": "integer",
    "count": "integer",
    "items": "jsonb",
    "items_before": "text",
    "contested": "boolean",
}
"""A run of a member. `contested`: its branch may have it already."""

_LONG = frozenset({"head", "manifest", "items", "value"})
"""The columns that hold nearly all of the text. They are sent in binary, where nothing has to be escaped."""

_TASK: Columns = {
    "thread": "bigint",
    "namespace": "text",
    "checkpoint_id": "text",
    "task_id": "text",
    "keeps_numbered": "boolean",
}
_OF_TASK = tuple(_TASK)[:4]
"""The columns that name a task."""
_WRITE: Columns = {
    "task": "integer",
    "idx": "integer",
    "task_path": "text",
    "channel": "text",
    "value": "jsonb",
    "packed": "bytea",
}


class GroupStatementKey(NamedTuple):
    """The properties of a group that the text of its statement depends on."""

    creates: bool
    """True if members may create their threads."""
    unless_there: bool
    """True if large values that members bring may be stored already."""


def steps(
    sql: PostgreSQLFlavour, group: Sequence[Commit | TaskWrites], *, creating: bool
) -> Steps[list[Outcome | None]]:
    """Write the members that can be written now. It has to be one transaction if there are pending writes in the group.

    `creating`: threads that do not exist are created, which may fail because it takes too long.
    """
    answers: list[Outcome | None] = [None] * len(group)
    writes = {at: member for at, member in enumerate(group) if isinstance(member, TaskWrites)}
    if writes:
        for at in (yield from _put_writes(sql, writes)):
            answers[at] = Outcome(Verdict.COMMITTED)
    found = [(at, member) for at, member in enumerate(group) if isinstance(member, Commit) and not member.writes]
    if found:
        # In an order that all have in common: see above.
        commits = dict(sorted(found, key=lambda item: item[1].thread_id))
        places = list(commits)
        for member, seq, parent_id in (yield _commit(sql, list(commits.values()), creating)):
            parent = None if parent_id is None else sql.read_text(parent_id)
            answers[places[member - 1]] = Outcome(Verdict.COMMITTED, seq, parent)
    return answers


def _commit(sql: PostgreSQLFlavour, commits: Sequence[Commit], creating: bool) -> tuple[str, Sequence[Any]]:
    runs = [row for number, commit in enumerate(commits, 1) for row in _run_rows(sql, number, commit)]
    firsts = [creating and can_be_first(commit) for commit in commits]
    key = GroupStatementKey(
        creates=any(firsts),
        unless_there=any(commit.values for commit in commits),
    )
    members = [_member_row(sql, commit, first) for commit, first in zip(commits, firsts, strict=True)]
    patience = [PATIENCE] if key.creates else []
    return _statement(sql, key), (*_arrays(_MEMBER, members), *_arrays(_RUN, runs), sql.now(), *patience)


def _member_row(sql: PostgreSQLFlavour, commit: Commit, first: bool) -> tuple[Cell, ...]:
    base, parent = commit.base, commit.parent_id
    named = sql.text(parent) if isinstance(parent, str) else None
    is_base = base is not None and parent == base.checkpoint_id
    checkpoint_id = sql.text(commit.checkpoint_id)
    return (
        sql.text(commit.thread_id),
        sql.text(commit.namespace),
        checkpoint_id,
        commit.rev,
        _time(sql, commit.created_at),
        sql.json(commit.metadata),
        sql.json(commit.head),
        sql.json(commit.manifest),
        None if commit.expires_at is None else _time(sql, commit.expires_at),
        _truth(first),
        None if commit.fresh_id else checkpoint_id,
        None if base is None else sql.text(base.checkpoint_id),
        None if base is None else base.rev,
        _truth(commit.if_latest is not ANY),
        sql.text(commit.if_latest) if isinstance(commit.if_latest, str) else None,
        _truth(parent is ANY),
        named if named != checkpoint_id else None,
        None if commit.parent_as_named or is_base else named,
    )


def _run_rows(sql: PostgreSQLFlavour, member: int, commit: Commit) -> Iterable[tuple[Cell, ...]]:
    contested = {run[:2] for run in contested_runs(commit)}
    for run in commit.runs:
        yield _run_row(sql, member, run, run[:2] in contested)
    for run in commit.values:
        yield _run_row(sql, member, run, False)


def _run_row(sql: PostgreSQLFlavour, member: int, run: Run, contested: bool) -> tuple[Cell, ...]:
    return (
        str(member),
        run.branch,
        str(run.number),
        str(run.start),
        str(run.length),
        sql.json(run.items),
        run.before,
        _truth(contested),
    )


@lru_cache(maxsize=64)
def _statement(sql: PostgreSQLFlavour, key: GroupStatementKey) -> str:
    """The statement that returns the number, the sequence number and the parent of each member that was written."""
    after_arrays = len(_MEMBER) + len(_RUN) + 1
    at_now, patience = f"${after_arrays}::timestamptz", f"${after_arrays + 1}::text"

    def found(alias: str, checkpoint_id: str, condition: str = "") -> str:
        # OFFSET 0 keeps it a look into an index (see `commit._Builder._conditions`).
        return (
            f"EXISTS (SELECT 1 FROM {sql.checkpoints} {alias} WHERE {alias}.thread = s.id"
            f" AND {alias}.namespace = m.namespace AND {alias}.checkpoint_id = {checkpoint_id}{condition} OFFSET 0)"
        )

    latest = (
        f"SELECT c.checkpoint_id FROM {sql.checkpoints} c WHERE c.thread = t.id"
        f" AND {sql.in_order('c.namespace')} = m.namespace ORDER BY c.seq DESC LIMIT 1"
    )
    parts = [
        f"member AS MATERIALIZED (SELECT * FROM {_rows('m', _MEMBER, 1)})",
        f"run AS MATERIALIZED (SELECT * FROM {_rows('r', _RUN, 1 + len(_MEMBER))})",
        "seen AS MATERIALIZED (SELECT m.number, t.id, t.last_seq, t.removals,"
        f" CASE WHEN m.expects OR m.follows_latest THEN ({latest}) END AS latest FROM member m,"
        f" LATERAL (SELECT t.id, t.last_seq, t.removals FROM {sql.threads} t WHERE t.thread_id = m.thread_id"
        f" AND (t.expires_at IS NULL OR t.expires_at > {at_now}) OFFSET 0) t)",
        "sound AS MATERIALIZED (SELECT s.number, s.id, s.last_seq, s.removals, m.expires_at,"
        " CASE WHEN m.follows_latest THEN s.latest ELSE m.parent_id END AS parent_id"
        " FROM seen s JOIN member m ON m.number = s.number"
        " WHERE (NOT m.expects OR s.latest IS NOT DISTINCT FROM m.expected_id)"
        f" AND (m.free_id IS NULL OR NOT {found('same', 'm.free_id')})"
        f" AND (m.base_id IS NULL OR {found('base', 'm.base_id', ' AND base.rev = m.base_rev')})"
        f" AND (m.found_id IS NULL OR {found('parent', 'm.found_id')})"
        " AND NOT EXISTS (SELECT 1 FROM run n WHERE n.member = s.number AND n.contested"
        f" AND EXISTS (SELECT 1 FROM {sql.runs} r WHERE r.thread = s.id AND r.branch = n.branch"
        " AND r.number >= n.number OFFSET 0) OFFSET 0))",
        "locked AS MATERIALIZED (SELECT s.number, s.id, s.expires_at, s.parent_id FROM sound s,"
        f" LATERAL (SELECT t.last_seq, t.removals FROM {sql.threads} t WHERE t.id = s.id"
        f"{sql.lock_if_free}) t WHERE t.last_seq = s.last_seq AND t.removals = s.removals)",
        f"moved AS (UPDATE {sql.threads} t SET last_seq = t.last_seq + 1, expires_at = l.expires_at FROM locked l"
        " WHERE t.id = l.id RETURNING l.number, t.id, t.last_seq, l.parent_id)",
    ]
    done = ["SELECT number, id, last_seq, parent_id FROM moved"]
    if key.creates:
        parts.append(
            f"created AS (INSERT INTO {sql.threads} (thread_id, last_seq, expires_at)"
            " SELECT m.thread_id, 1, m.expires_at FROM member m WHERE m.can_be_first"
            f" AND NOT EXISTS (SELECT 1 FROM {sql.threads} t WHERE t.thread_id = m.thread_id OFFSET 0)"
            f" AND {sql.patience(patience)} ORDER BY m.number"
            " ON CONFLICT DO NOTHING RETURNING id, thread_id, last_seq)"
        )
        # First, because only this may have to wait: until it is done, nothing is locked.
        done.insert(
            0,
            "SELECT m.number, n.id, n.last_seq, NULL AS parent_id FROM created n"
            " JOIN member m ON m.thread_id = n.thread_id",
        )
    columns = NewCheckpoint(
        thread="d.id",
        namespace="m.namespace",
        checkpoint_id="m.checkpoint_id",
        parent_id="d.parent_id",
        seq="d.last_seq",
        rev="m.rev",
        created_at="m.created_at",
        metadata="m.metadata",
        head="m.head",
        manifest="m.manifest",
    )
    parts += [
        f"done AS MATERIALIZED ({' UNION ALL '.join(done)})",
        f"runs AS (INSERT INTO {sql.runs} ({RUN_COLUMNS}) SELECT d.id, {of('r', RUN_INFO)}, d.last_seq, r.items,"
        f" r.items_before FROM done d JOIN run r ON r.member = d.number"
        f"{' ON CONFLICT DO NOTHING' if key.unless_there else ''})",
        f"checkpoints AS (INSERT INTO {sql.checkpoints} ({CHECKPOINT_COLUMNS}) SELECT {', '.join(columns)}"
        " FROM done d JOIN member m ON m.number = d.number)",
    ]
    return f"WITH {', '.join(parts)} SELECT number, last_seq, parent_id FROM done"


def _put_writes(sql: PostgreSQLFlavour, group: Mapping[int, TaskWrites]) -> Steps[list[int]]:
    """Put pending writes into threads that exist and that nobody else holds. Return which were put."""
    wanted = _array([sql.text(member.thread_id) for member in group.values()])
    rows = yield (
        "SELECT m.number, t.id FROM unnest($1::text[]) WITH ORDINALITY AS m (thread_id, number),"
        f" LATERAL (SELECT t.id FROM {sql.threads} t WHERE t.thread_id = m.thread_id"
        f" AND (t.expires_at IS NULL OR t.expires_at > $2::timestamptz){sql.lock_if_free}) t",
        (wanted, sql.now()),
    )
    places = list(group)
    locked = {places[number - 1]: int(key) for number, key in rows}
    if locked:
        yield put_statement(sql, {key: group[at] for at, key in locked.items()})
    return list(locked)


def put_statement(sql: PostgreSQLFlavour, tasks: Mapping[int, TaskWrites]) -> tuple[str, Sequence[Any]]:
    """The statement that puts pending writes into locked threads, by their keys."""
    task_rows: list[tuple[Cell, ...]] = []
    write_rows: list[tuple[Cell, ...]] = []
    for number, (key, task) in enumerate(tasks.items(), 1):
        place = (sql.text(task.namespace), sql.text(task.checkpoint_id), sql.text(task.task_id))
        task_rows.append((str(key), *place, _truth(task.keep_numbered)))
        # If two have the same index, the last one counts.
        newest = {write.idx: write for write in task.writes}
        write_rows += [_write_row(sql, number, write) for write in newest.values()]
    return _put_statement(sql, is_alone=len(tasks) == 1), (*_arrays(_TASK, task_rows), *_arrays(_WRITE, write_rows))


def _write_row(sql: PostgreSQLFlavour, task: int, write: Write) -> tuple[Cell, ...]:
    idx, task_path, channel, value, packed = sql.new_write(write)
    return str(task), str(idx), task_path, channel, value, None if packed is None else f"\\x{packed.hex()}"


@lru_cache(maxsize=8)
def _put_statement(sql: PostgreSQLFlavour, *, is_alone: bool) -> str:
    replaced = "EXISTS (SELECT 1 FROM written w WHERE w.task = k.number AND w.idx = o.idx)"
    if is_alone:
        # A thread that is named is looked for in its own partition only.
        of_task = " AND ".join(f"o.{column} = (${at}::{_TASK[column]}[])[1]" for at, column in enumerate(_OF_TASK, 1))
        gone = (
            f"DELETE FROM {sql.writes} o WHERE {of_task}"
            f" AND EXISTS (SELECT 1 FROM task k WHERE (o.idx >= 0 AND NOT k.keeps_numbered) OR {replaced})"
        )
    else:
        # By their places in the table: a join with the tasks might become a scan of the whole table. Another partition
        # has the same places, but not for the same threads.
        at = sql.row_address
        doomed = (
            f"SELECT o.thread, o.{at} FROM task k, LATERAL (SELECT o.thread, o.{at}, o.idx FROM {sql.writes} o"
            " WHERE o.thread = k.thread AND o.namespace = k.namespace"
            " AND o.checkpoint_id = k.checkpoint_id AND o.task_id = k.task_id OFFSET 0) o"
            f" WHERE (o.idx >= 0 AND NOT k.keeps_numbered) OR {replaced}"
        )
        gone = (
            f"DELETE FROM {sql.writes} WHERE {at} = ANY(ARRAY(SELECT d.{at} FROM doomed d))"
            f" AND (thread, {at}) IN (SELECT d.thread, d.{at} FROM doomed d)"
        )
    parts = [
        f"task AS MATERIALIZED (SELECT * FROM {_rows('k', _TASK, 1)})",
        f"written AS MATERIALIZED (SELECT * FROM {_rows('w', _WRITE, 1 + len(_TASK))})",
        *([] if is_alone else [f"doomed AS MATERIALIZED ({doomed})"]),
        f"gone AS ({gone})",
    ]
    return (
        f"WITH {', '.join(parts)}"
        f" INSERT INTO {sql.writes} ({WRITE_COLUMNS}, packed) SELECT k.thread, k.namespace, k.checkpoint_id,"
        " k.task_id, w.idx, w.task_path, w.channel, w.value, w.packed FROM written w JOIN task k ON k.number = w.task"
    )


def _rows(alias: str, columns: Columns, first: int) -> str:
    """SQL that makes numbered rows of arrays, one for each column. They are the parameters from `first` on."""
    arrays = ", ".join(f"${at}::{kind}[]" for at, kind in enumerate(columns.values(), first))
    # A run has a number of its own.
    last = "number" if "number" not in columns else "place"
    return f"unnest({arrays}) WITH ORDINALITY AS {alias} ({', '.join(columns)}, {last})"


def _arrays(columns: Columns, rows: Sequence[tuple[Cell, ...]]) -> list[str | JSONArray]:
    """Write the columns of rows as arrays that the server reads."""
    if not rows:
        return ["{}"] * len(columns)
    cells_of = zip(columns.items(), zip(*rows, strict=True), strict=True)
    return [JSONArray(kind, cells) if name in _LONG else _array(cells) for (name, kind), cells in cells_of]


def _array(cells: Sequence[Cell]) -> str:
    """Write an array as the server reads it. The driver would write it cell by cell, and take several times as long."""
    texts = [cell for cell in cells if cell is not None]
    if not texts:
        return "{" + ",".join(["NULL"] * len(cells)) + "}"
    together = "\0".join(texts)
    if len(texts) < len(cells) or together.count("\0") >= len(texts):
        return "{" + ",".join(["NULL" if cell is None else f'"{_escaped(cell)}"' for cell in cells]) + "}"
    # No text has a NUL, and all of them at once are escaped in a third of the time.
    return '{"' + _escaped(together).replace("\0", '","') + '"}'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _truth(value: bool) -> str:
    return "t" if value else "f"


def _time(sql: PostgreSQLFlavour, at: datetime) -> str:
    return sql.time(at).isoformat()
