"""The tables in PostgreSQL, and how they come to be what this version needs.

    locus_threads      one row a thread: its id, its counter of sequence numbers, when it ends
    locus_checkpoints  one row a checkpoint: who, when, metadata (jsonb), head and manifest (json)
    locus_runs         one row a run: `items` is a jsonb array (see `locus.memory.model.records`)
    locus_writes       pending writes: `value` is jsonb, or NULL if zlib has packed the JSON into `packed` (bytea)
    locus_search       full text, brought up to date when it is asked: one row a run, or a checkpoint's own text
    locus_indexed      how far, in each thread, the full text has got
    locus_format       the version of these tables

`removals` in a thread's row counts deletions. Together with `last_seq` it tells a save, which is one statement,
whether anything happened to the thread between its looking and its writing. All text that is compared has the
collation "C", so that ids differ if their bytes do. Columns of fixed width come first, so that no row is padded. Heads
are json, not jsonb, which takes a fifth more room for such small objects, and has to be taken apart and put together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from locus.memory.backends.postgresql.postgresql_flavour import PostgreSQLFlavour

ID = 'text COLLATE "C"'


def _first(sql: PostgreSQLFlavour) -> list[str]:
    return [
        f"""CREATE TABLE {sql.threads} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    thread_id {ID} NOT NULL UNIQUE,
    last_seq bigint NOT NULL,
    removals bigint NOT NULL DEFAULT 0,
    expires_at timestamptz
) WITH (fillfactor = 80)""",
        f"""CREATE TABLE {sql.checkpoints} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    thread bigint NOT NULL,
    seq bigint NOT NULL,
    created_at timestamptz NOT NULL,
    namespace {ID} NOT NULL,
    checkpoint_id {ID} NOT NULL,
    parent_id {ID},
    rev {ID} NOT NULL,
    metadata jsonb NOT NULL,
    head json NOT NULL,
    manifest json NOT NULL
)""",
        f"CREATE UNIQUE INDEX {sql.index('checkpoints_by_id')} ON {sql.checkpoints} (thread, namespace, checkpoint_id)",
        f"CREATE UNIQUE INDEX {sql.index('checkpoints_by_seq')} ON {sql.checkpoints}"
        f" ({sql.in_order('namespace')}, thread, seq)",
        f"""CREATE INDEX {sql.index("checkpoints_by_metadata")} ON {sql.checkpoints}
    USING gin (metadata jsonb_path_ops) WHERE metadata <> '{{}}'""",
        f"""CREATE TABLE {sql.runs} (
    thread bigint NOT NULL,
    seq bigint NOT NULL,
    number integer NOT NULL,
    start integer NOT NULL,
    count integer NOT NULL,
    branch {ID} NOT NULL,
    items jsonb NOT NULL,
    PRIMARY KEY (thread, branch, number) INCLUDE (start, count, seq)
)""",
        f"""CREATE TABLE {sql.writes} (
    thread bigint NOT NULL,
    namespace {ID} NOT NULL,
    checkpoint_id {ID} NOT NULL,
    task_id {ID} NOT NULL,
    idx integer NOT NULL,
    task_path {ID} NOT NULL,
    channel {ID} NOT NULL,
    value jsonb NOT NULL
)""",
        f"CREATE INDEX {sql.index('writes_by_checkpoint')} ON {sql.writes} (thread, namespace, checkpoint_id)",
        f"""CREATE TABLE {sql.search} (
    thread bigint NOT NULL,
    seq bigint NOT NULL,
    branch {ID},
    number integer,
    words tsvector
)""",
        f"CREATE INDEX {sql.index('search_by_thread')} ON {sql.search} (thread, seq)",
        f"CREATE INDEX {sql.index('search_by_words')} ON {sql.search} USING gin (words)",
        f"CREATE INDEX {sql.index('search_too_large')} ON {sql.search} (thread) WHERE words IS NULL",
        f"CREATE TABLE {sql.indexed} (thread bigint PRIMARY KEY, up_to bigint NOT NULL)",
    ]


def _second(sql: PostgreSQLFlavour) -> list[str]:
    """Neither statement touches a row."""
    return [
        f"ALTER TABLE {sql.writes} ALTER COLUMN value DROP NOT NULL",
        f"ALTER TABLE {sql.writes} ADD COLUMN packed bytea",
    ]


MIGRATIONS: tuple[Callable[[PostgreSQLFlavour], list[str]], ...] = (_first, _second)
FORMAT = len(MIGRATIONS)


def statements(sql: PostgreSQLFlavour, found: int = 0) -> list[str]:
    """What brings tables of format `found` (0: none) to the newest one, inside one transaction."""
    steps = [f"CREATE TABLE {sql.format} (version integer NOT NULL)", f"INSERT INTO {sql.format} VALUES (0)"]
    steps = [] if found else steps
    for migration in MIGRATIONS[found:]:
        steps += migration(sql)
    return [*steps, f"UPDATE {sql.format} SET version = {FORMAT}"]


def ddl(sql: PostgreSQLFlavour, found: int = 0) -> str:
    """The same as a script for a database administrator."""
    schema = [f"CREATE SCHEMA IF NOT EXISTS {sql.schema}"] if sql.schema and not found else []
    return "".join(f"{statement};\n" for statement in ["BEGIN", *schema, *statements(sql, found), "COMMIT"])


def lock_number(sql: PostgreSQLFlavour) -> int:
    """The advisory lock of those who create or migrate these tables."""
    return int.from_bytes(hashlib.sha256(f"locus {sql.format}".encode()).digest()[:8], "big", signed=True)
