"""A save in MySQL: one round trip if nothing has to be asked, else two.

A save to a thread that is as this handle has left it needs no questions (see `LastSeenThread` in `sql.commit`). All of
it goes to the server at once. The UPDATE locks the thread's row and raises its counter, if the thread is as expected.
The first INSERT checks whether it did. If not, it inserts NULL into a column that allows none; the server stops there,
and nothing is written. A new thread is created in a similar way: if another process was faster, its row is a duplicate.

    BEGIN;
    UPDATE locus_threads SET last_seq = 8, … WHERE id = 5 AND thread_id = 'a' AND last_seq = 7 AND removals = 0 AND …
        AND EXISTS (SELECT 1 FROM locus_checkpoints …);    this handle's last save
    INSERT INTO locus_runs … VALUES (IF(ROW_COUNT() = 1, 5, NULL), …);
    INSERT INTO locus_checkpoints … VALUES (5, …);
    COMMIT

In all other cases the first round trip locks the thread and asks everything, and the second writes the result, or rolls
back.
"""

from __future__ import annotations

from collections.abc import Sequence

from locus.memory.backends.mysql.client import Expression, Statement
from locus.memory.backends.mysql.schema import MySQLFlavour
from locus.memory.backends.sql.commit import LastSeenThread, LoadedView, SQLThread, SQLThreads
from locus.memory.backends.sql.flavour import Row, Steps, marks, portions
from locus.memory.backends.sql.schema import KNOWN, of
from locus.memory.backends.sql.search import metadata_key
from locus.memory.model.codec import canonical, decode, encode_trusted
from locus.memory.model.commit_rules import contested_runs
from locus.memory.model.records import ANY, Base, Commit, Entry, Known, Outcome, RunInfo, Verdict
from locus.memory.model.retention import Removal


class MySQLThread(SQLThread):
    """A locked thread in MySQL. It keeps the indexes and `removals` up to date."""

    sql: MySQLFlavour

    def insert(self, entry: Entry, head: str, manifest: str) -> Steps[None]:
        row = self.sql.new_checkpoint(self.key, entry, head, manifest)
        yield self.sql.insert_with_keys, (*row, metadata_keys(entry.metadata))

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

    def take_out(self, gone: Sequence[Entry], removal: Removal, *, keep_writes: bool = False) -> Steps[None]:
        yield from super().take_out(gone, removal, keep_writes=keep_writes)
        # A handle that saved here before must notice that the thread has changed.
        yield f"UPDATE {self.sql.threads} SET removals = removals + 1 WHERE id = ?", (self.key,)

    def drop(self) -> Steps[int]:
        sql = self.sql
        ((dropped,),) = yield f"SELECT count(*) FROM {sql.checkpoints} WHERE thread = ?", (self.key,)
        for statement in self.deletions():  # noqa: UP028 - a list takes no rows
            yield statement
        return int(dropped)

    def deletions(self) -> list[tuple[str, tuple[int]]]:
        """The statements that remove the whole thread. The first changes as many rows as it has checkpoints."""
        sql = self.sql
        tables = (sql.checkpoints, sql.runs, sql.writes, sql.search)
        statements = [f"DELETE FROM {table} WHERE thread = ?" for table in tables]
        return [(statement, (self.key,)) for statement in (*statements, f"DELETE FROM {sql.threads} WHERE id = ?")]


class MySQLThreads(SQLThreads):
    """The operations that change threads in MySQL."""

    sql: MySQLFlavour

    def thread(self, key: int, thread_id: str, last_seq: int) -> MySQLThread:
        return MySQLThread(self.sql, key, thread_id, last_seq)


MOST_KEYS = 200
"""The largest number of metadata pairs that the index holds. A multi-valued index takes some hundreds of values a row.
"""
TOO_MANY = "*"
"""Stands in the index for metadata with more than `MOST_KEYS` pairs. Every query looks at those rows."""


def metadata_keys(metadata: str) -> str | None:
    """The content of the index for metadata (JSON text): a digest of each pair; None if there are none."""
    if metadata == "{}":
        return None
    pairs = decode(metadata)
    if len(pairs) > MOST_KEYS:
        return encode_trusted([TOO_MANY])
    return encode_trusted([metadata_key(key, canonical(value)) for key, value in pairs.items()])


BEGIN: Statement = ("BEGIN", ())
COMMIT: Statement = ("COMMIT", ())


def in_new_thread(sql: MySQLFlavour, commit: Commit) -> list[Statement]:
    """The statements of a save that creates its thread. The second one fails with a duplicate if the thread exists."""
    thread = MySQLThread(sql, Expression("LAST_INSERT_ID()"), commit.thread_id, 0)  # type: ignore[arg-type]
    begun = (
        f"INSERT INTO {sql.threads} (thread_id, last_seq, expires_at) VALUES (?, 1, ?)",
        (commit.thread_id, sql.expiry(commit.expires_at)),
    )
    return [BEGIN, begun, *statements_of(thread.add(commit, Outcome(Verdict.COMMITTED, 1)))[:-1], COMMIT]


def reliance(sql: MySQLFlavour, commit: Commit, last_seen: LastSeenThread) -> list[Statement] | None:
    """The conditions that a save relies on, if its thread is as this handle last saw it; None if it has to ask.

    A save on top of the last one relies on nothing else. A save on top of an older checkpoint needs its base, which is
    also its parent, and branches that nobody has continued. A condition may see a state from before the lock on the
    thread's row; but nothing has happened to the thread since, so it is the same.
    """
    if last_seen.continued_by(commit):
        return []
    base = commit.base
    if base is None or not commit.fresh_id or commit.if_latest is not ANY or commit.parent_id != base.checkpoint_id:
        return None
    runs = contested_runs(commit)
    if any(last_seen.newest_runs.get(run.branch, -1) >= run.number for run in runs):
        return None  # it will be refused
    free = f"NOT EXISTS (SELECT 1 FROM {sql.runs} r WHERE r.thread = ? AND r.branch = ? AND r.number >= ?)"
    return [
        is_there(sql, last_seen.key, commit.namespace, base),
        *((free, (last_seen.key, run.branch, run.number)) for run in runs),
    ]


def is_there(sql: MySQLFlavour, key: int, namespace: str, base: Base) -> Statement:
    """The condition that a thread has this checkpoint."""
    return (
        f"EXISTS (SELECT 1 FROM {sql.checkpoints} c"
        " WHERE c.thread = ? AND c.namespace = ? AND c.checkpoint_id = ? AND c.rev = ?)",
        (key, namespace, base.checkpoint_id, base.rev),
    )


def in_seen_thread(
    sql: MySQLFlavour, commit: Commit, last_seen: LastSeenThread, reliance: Sequence[Statement] = ()
) -> list[Statement]:
    """The statements of a save to a thread that is as this handle last saw it. They fail with a NULL if it is not.

    They also fail if one of the conditions `reliance` does not hold.
    """
    thread = MySQLThread(sql, last_seen.key, commit.thread_id, last_seen.seq)
    outcome = seen_thread_outcome(commit, last_seen)
    (statement, values), *others = statements_of(thread.add(commit, outcome))[:-1]
    conditions = [
        ("id = ?", (last_seen.key,)),
        ("thread_id = ?", (commit.thread_id,)),
        ("last_seq = ?", (last_seen.seq,)),
        ("removals = ?", (last_seen.removals,)),
        ("(expires_at IS NULL OR expires_at > ?)", (sql.now(),)),
        is_there(sql, last_seen.key, last_seen.namespace, last_seen.base),
        *reliance,
    ]
    moved = (
        f"UPDATE {sql.threads} SET last_seq = ?, expires_at = ?"
        f" WHERE {' AND '.join(condition for condition, _ in conditions)}",
        (outcome.seq, sql.expiry(commit.expires_at), *(value for _, values in conditions for value in values)),
    )
    key = Expression(f"IF(ROW_COUNT() = 1, {last_seen.key}, NULL)")
    return [BEGIN, moved, (statement, (key, *values[1:])), *others, COMMIT]


def seen_thread_outcome(commit: Commit, last_seen: LastSeenThread) -> Outcome:
    assert commit.base is not None, "without one, questions have to be asked"
    return Outcome(Verdict.COMMITTED, last_seen.seq + 1, commit.base.checkpoint_id)


def lock(sql: MySQLFlavour, thread_id: str) -> list[Statement]:
    """Lock the thread's row, and ask for its key, its counter, and whether it has not expired."""
    return [
        BEGIN,
        (
            f"SELECT t.id, t.last_seq, {sql.alive} FROM {sql.threads} t WHERE t.thread_id = ? FOR UPDATE",
            (sql.now(), thread_id),
        ),
    ]


def questions(sql: MySQLFlavour, commit: Commit) -> list[Statement]:
    """Lock the thread, and ask for everything that `decide` may want to know about this commit."""
    return [
        BEGIN,
        (
            f"SELECT t.id, t.last_seq, t.removals FROM {sql.threads} t"
            f" WHERE t.thread_id = ? AND {sql.alive} FOR UPDATE",
            (commit.thread_id, sql.now()),
        ),
        *questions_in_lock(sql, commit),
    ]


def questions_in_lock(sql: MySQLFlavour, commit: Commit) -> list[Statement]:
    """The questions about a locked thread: known checkpoints, the latest one, and runs of continued branches."""
    ids = {commit.checkpoint_id, *([commit.base.checkpoint_id] if commit.base else [])}
    if isinstance(commit.parent_id, str):
        ids.add(commit.parent_id)
    known = f"SELECT {of('c', KNOWN)} FROM {sql.joined} WHERE t.thread_id = ?"
    latest, place = sql.latest_in(commit.namespace)
    return [
        (
            f"{known} AND c.namespace = ? AND c.checkpoint_id IN {marks(len(ids))}",
            (commit.thread_id, commit.namespace, *ids),
        ),
        (f"{known} AND {latest}", (commit.thread_id, *place)),
        *(
            (
                f"SELECT r.branch, ? FROM {sql.runs} r JOIN {sql.threads} t ON t.id = r.thread"
                " WHERE t.thread_id = ? AND r.branch = ? AND r.number >= ? LIMIT 1",
                (run.number, commit.thread_id, run.branch, run.number),
            )
            for run in contested_runs(commit)
        ),
    ]


def looked(last_seq: int, known: Sequence[Row], latest: Sequence[Row], taken: Sequence[Sequence[Row]]) -> LoadedView:
    """Make the view for `decide` from the answers to `questions_in_lock`."""
    checkpoints = [Known(*row) for row in known]
    newest = [Known(*row) for row in latest]
    return LoadedView(
        last_seq,
        {checkpoint.checkpoint_id: checkpoint for checkpoint in checkpoints},
        newest[0] if newest else None,
        {(branch, number) for rows in taken for branch, number in rows},
    )


def statements_of(steps: Steps[None]) -> list[Statement]:
    """List the statements of steps that only write, and look at no rows."""
    statements: list[Statement] = []
    try:
        statement = next(steps)
        while True:
            statements.append(statement)
            statement = steps.send([])
    except StopIteration:
        return statements
