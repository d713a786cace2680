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

SQL as PostgreSQL speaks it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import Any

from locus.errors import ConfigurationError
from locus.memory.backends.sql.flavour import PackingFlavour
from locus.memory.model.codec import Dialect

JSONB = Dialect(exact=False, nul=False, negative_zero=False, float_exponents=False)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LONGEST_NAME = 40
"""PostgreSQL cuts names after 63 characters without a word; the tables' and indexes' own endings need some."""


def checked_name(name: object, what: str) -> str:
    """A name that can be pasted into a statement, in quotes."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise ConfigurationError(
            f"{what} must be letters, digits and underscores, {LONGEST_NAME} at most, and no digit first, "
            f"got {name!r:.80}"
        )
    return name


def numbered(statement: str) -> str:
    """The statement with `$1`, `$2`, … for its question marks, except for those in literals."""
    numbers = count(1)
    return re.sub(r"'[^']*'|\?", lambda found: found[0] if found[0] != "?" else f"${next(numbers)}", statement)


class PostgreSQLFlavour(PackingFlavour):
    """jsonb columns, and ids as text in the order of code points.

    A text column holds no NUL, so ids have `\\x01\\x01` in its place, and `\\x01\\x02` for the character 1.
    """

    dialect = JSONB

    def __init__(self, table_name: str = "locus", schema_name: str | None = None) -> None:
        self.schema_name = None if schema_name is None else checked_name(schema_name, "schema_name")
        super().__init__(f"{checked_name(table_name, 'table_name')}_")
        self.search = self.table("search")
        self.indexed = self.table("indexed")
        self.format = self.table("format")

    @property
    def schema(self) -> str | None:
        """The schema in quotes, if one was named."""
        return None if self.schema_name is None else f'"{self.schema_name}"'

    def table(self, name: str) -> str:
        quoted = f'"{self.prefix}{name}"'
        return quoted if self.schema is None else f"{self.schema}.{quoted}"

    def index(self, name: str) -> str:
        """An index is in the schema of its table, whatever its name says."""
        return f'"{self.prefix}{name}"'

    @property
    def of_thread(self) -> str:
        """The thread's number as one value: joined to `c`, it hides that an index has the checkpoints in order.

        All of the thread's would be read and sorted, for the newest ten or one.
        """
        return f"c.thread = (SELECT id FROM {self.threads} WHERE thread_id = ?)"

    def in_order(self, column: str) -> str:
        """An expression of its own, so that no plan takes the index by number to look for an id.

        It would read the whole history of the thread, and seem cheap as long as there are no statistics.
        """
        return f"({column} || '')"

    def json_column(self, column: str) -> str:
        return f"{column}::text"

    def holds(self, column: str) -> str:
        return f"jsonb_path_exists({column}::jsonb, '$.** ? (@ == $leaf)', ?::jsonb)"

    def leaf(self, value: str) -> str:
        """A value that is tagged is found by the text in the tag."""
        native = json.loads(self.json(value))
        return json.dumps({"leaf": next(iter(native.values())) if isinstance(native, dict) else native})

    def put_write(self) -> str:
        """The thread is locked, so nobody can come between; a unique index would be too wide for long ids."""
        columns = "thread, namespace, checkpoint_id, task_id, idx"
        return (
            f"WITH gone AS (DELETE FROM {self.writes} WHERE thread = $1 AND namespace = $2 AND checkpoint_id = $3"
            f" AND task_id = $4 AND idx = $5) INSERT INTO {self.writes} ({columns}, task_path, channel, value, packed)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7, $8::jsonb, $9::bytea)"
        )

    def time(self, at: datetime) -> datetime:
        return at.astimezone(UTC)

    def read_time(self, value: Any) -> datetime:
        return super().read_time(value).astimezone(UTC)

    def text(self, value: str) -> str:
        if "\0" in value or "\x01" in value:
            return value.replace("\x01", "\x01\x02").replace("\0", "\x01\x01")
        return value

    def read_text(self, value: str) -> str:
        if "\x01" in value:
            return value.replace("\x01\x01", "\0").replace("\x01\x02", "\x01")
        return value


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
