"""The tables in Oracle Database, and how they come to be what this version needs.

    locus_threads      one row a thread: its id, its counter of sequence numbers, when it ends
    locus_checkpoints  one row a checkpoint: who, when, metadata, head and manifest (JSON)
    locus_runs         one row a run: `items` is a JSON array (see `locus.memory.model.records`)
    locus_writes       pending writes
    locus_pairs        a digest for each pair in the metadata of a checkpoint
    locus_search       full text, brought up to date when it is asked: one row a run, or a checkpoint's own text
    locus_format       the version of these tables

`removals` in a thread's row counts deletions: together with `last_seq` it tells a save whether anything has
happened to the thread. `indexed_seq` is how far the full text has got. Everything of a thread goes when its row
goes. Times are microseconds since 1970. Ids have 255 characters, which may be written as 510 (see
`OracleFlavour.text`); the key of an index has 6,398 bytes, which is more than two such ids, but less than four.

Checkpoints are numbered by a sequence that keeps its order on a cluster, too, so that the newest of all threads
are those with the highest numbers.

DDL commits by itself in Oracle. A migration may therefore be interrupted between two statements, and every
statement can be run again.
"""

from __future__ import annotations

from collections.abc import Callable

from locus.memory.backends.oracle.oracle_flavour import OracleFlavour

_ID = "VARCHAR2(510 CHAR)"
_NAME = "VARCHAR2(64)"
_NUMBER = "NUMBER(19)"

SEARCH_PARAMETERS = "DATAGUIDE OFF SEARCH_ON TEXT SYNC (ON COMMIT)"
"""What a search has just indexed must be found by that very search."""


def _first(sql: OracleFlavour) -> list[str]:
    thread = f"thread {_NUMBER} NOT NULL REFERENCES {sql.threads} (id) ON DELETE CASCADE"
    return [
        f"""CREATE TABLE {sql.threads} (
    id {_NUMBER} GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    thread_id {_ID} NOT NULL UNIQUE,
    last_seq {_NUMBER} NOT NULL,
    removals {_NUMBER} DEFAULT 0 NOT NULL,
    expires_at {_NUMBER},
    indexed_seq {_NUMBER} DEFAULT 0 NOT NULL
)""",
        f"CREATE INDEX {sql.table('threads_by_end')} ON {sql.threads} (expires_at)",
        f"CREATE INDEX {sql.table('threads_unindexed')} ON {sql.threads} ({unindexed('')})",
        f"""CREATE TABLE {sql.checkpoints} (
    id {_NUMBER} GENERATED ALWAYS AS IDENTITY (CACHE 1000 ORDER) PRIMARY KEY,
    {thread},
    seq {_NUMBER} NOT NULL,
    created_at {_NUMBER} NOT NULL,
    namespace {_ID} NOT NULL,
    checkpoint_id {_ID} NOT NULL,
    parent_id {_ID},
    rev {_NAME} NOT NULL,
    metadata JSON NOT NULL,
    head JSON NOT NULL,
    manifest JSON NOT NULL,
    CONSTRAINT {sql.constraint("checkpoints_by_id")} UNIQUE (thread, namespace, checkpoint_id),
    CONSTRAINT {sql.constraint("checkpoints_by_seq")} UNIQUE (thread, namespace, seq)
)""",
        f"""CREATE TABLE {sql.runs} (
    {thread},
    branch {_NAME} NOT NULL,
    num NUMBER(10) NOT NULL,
    begins NUMBER(10) NOT NULL,
    count NUMBER(10) NOT NULL,
    seq {_NUMBER} NOT NULL,
    items JSON NOT NULL,
    CONSTRAINT {sql.constraint("runs_by_branch")} PRIMARY KEY (thread, branch, num)
)""",
        f"CREATE INDEX {sql.table('runs_by_seq')} ON {sql.runs} (thread, seq)",
        f"""CREATE TABLE {sql.writes} (
    {thread},
    namespace {_ID} NOT NULL,
    checkpoint_id {_ID} NOT NULL,
    task_id {_ID} NOT NULL,
    idx NUMBER(10) NOT NULL,
    task_path {_ID} NOT NULL,
    channel {_ID} NOT NULL,
    value JSON NOT NULL
)""",
        f"CREATE INDEX {sql.table('writes_by_checkpoint')} ON {sql.writes} (thread, namespace, checkpoint_id)",
        f"""CREATE TABLE {sql.metadata_pairs} (
    {thread},
    namespace {_ID} NOT NULL,
    seq {_NUMBER} NOT NULL,
    pair {_NAME} NOT NULL,
    CONSTRAINT {sql.constraint("pairs_by_checkpoint")} PRIMARY KEY (thread, seq, pair)
)""",
        f"CREATE INDEX {sql.table('pairs_by_digest')} ON {sql.metadata_pairs} (pair)",
        f"""CREATE TABLE {sql.search} (
    id {_NUMBER} GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    {thread},
    seq {_NUMBER},
    branch {_NAME},
    num NUMBER(10),
    words JSON NOT NULL
)""",
        f"CREATE INDEX {sql.table('search_by_checkpoint')} ON {sql.search} (thread, seq)",
        f"CREATE INDEX {sql.table('search_by_run')} ON {sql.search} (thread, branch, num)",
        f"CREATE SEARCH INDEX {sql.table('search_by_words')} ON {sql.search} (words)"
        f" FOR JSON PARAMETERS ('{SEARCH_PARAMETERS}')",
    ]


def unindexed(alias: str = "t.") -> str:
    """NULL, which no index has, for a thread whose full text is up to date."""
    return f"CASE WHEN {alias}last_seq > {alias}indexed_seq THEN {alias}id END"


MIGRATIONS: tuple[Callable[[OracleFlavour], list[str]], ...] = (_first,)
FORMAT = len(MIGRATIONS)

DONE_BEFORE = ("ORA-00955", "ORA-01408", "ORA-01430", "ORA-02260", "ORA-02261", "ORA-02264", "ORA-02275", "ORA-29879")
"""What a statement makes is there: it was run before."""


def beginnings(sql: OracleFlavour) -> list[str]:
    """What there has to be before anything else: the table of the version, with its one row."""
    return [
        f"CREATE TABLE {sql.format} (id NUMBER(1) NOT NULL PRIMARY KEY, version NUMBER(9) NOT NULL)",
        f"INSERT INTO {sql.format} (id, version) VALUES (1, 0)",
    ]


def steps(sql: OracleFlavour, found: int) -> list[list[str]]:
    """What brings tables of format `found` to the newest one: the statements of each migration."""
    return [migration(sql) for migration in MIGRATIONS[found:]]


def set_version(sql: OracleFlavour, version: int) -> str:
    return f"UPDATE {sql.format} SET version = {version} WHERE id = 1"


def tables(sql: OracleFlavour) -> list[str]:
    return [sql.format, sql.threads, sql.checkpoints, sql.runs, sql.writes, sql.metadata_pairs, sql.search]


def ddl(sql: OracleFlavour, grantee: str | None = None) -> str:
    """The same as a script for a database administrator; `grantee` is a user who shall work with the tables."""
    statements = [*beginnings(sql), *(statement for step in steps(sql, 0) for statement in step)]
    statements += [set_version(sql, FORMAT), "COMMIT"]
    if grantee is not None:
        statements += [f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {grantee}" for table in tables(sql)]
    return "".join(f"{statement};\n" for statement in statements)


def probes(sql: OracleFlavour) -> list[str]:
    """Fail if a table of that name is there that is not ours."""
    columns = {
        sql.threads: "id, thread_id, last_seq, removals, expires_at, indexed_seq",
        sql.checkpoints: "id, thread, namespace, checkpoint_id, parent_id, seq, rev, created_at, manifest",
        sql.runs: "thread, branch, num, begins, count, seq, items",
        sql.writes: "thread, namespace, checkpoint_id, task_id, idx, task_path, channel, value",
        sql.metadata_pairs: "thread, namespace, seq, pair",
        sql.search: "id, thread, seq, branch, num, words",
    }
    return [f"SELECT {names} FROM {table} WHERE 1 = 0" for table, names in columns.items()]
