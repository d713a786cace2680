"""The tables in MySQL, and how they come to be what this version needs.

    locus_threads      one row a thread: its id, its counter of sequence numbers, when it ends
    locus_checkpoints  one row a checkpoint: who, when, metadata, head and manifest (JSON)
    locus_runs         one row a run: `items` is a JSON array (see `locus.memory.model.records`)
    locus_writes       pending writes: `value` is JSON, or NULL if zlib has packed it into `packed`
    locus_search       full text, brought up to date when it is asked: one row a run, or a checkpoint's own text
    locus_format       the version of these tables

`removals` in a thread's row counts deletions: together with `last_seq` it tells a save whether anything has
happened to the thread. `indexed_seq` is how far the full text has got. `metadata_keys` has a digest for each pair
in the metadata, and a multi-valued index.

All text that is compared has the collation utf8mb4_0900_bin, in which case, accents and spaces at the end count,
and the order is that of code points. InnoDB's keys have 3,072 bytes, which is less than three ids can have: so
the digest of a task's id, and not the id itself, is in the key of the pending writes.

DDL commits by itself in MySQL. A migration may therefore be interrupted between two statements, and every
statement can be run again.

SQL as MySQL speaks it.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from locus.errors import ConfigurationError
from locus.memory.backends.sql.flavour import PackingFlavour
from locus.memory.model.codec import Dialect, has_digits
from locus.memory.model.ids import digest

NATIVE = Dialect(exact=False, integer_bits=64)
"""MySQL's JSON keeps everything but integers past 64 bits: floats bit for bit, -0.0 and NUL included."""

TAG = "$locus:"
_WRITTEN_ALIKE = re.compile(r'"[^"\\\x00-\x1f\x7f]*"|-?[0-9]{1,18}|true|false|null')
_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LONGEST_NAME = 40
"""MySQL takes names of 64 characters; the tables' own endings need some."""


def checked_name(name: object, what: str) -> str:
    """A name that can be pasted into a statement."""
    if not isinstance(name, str) or not _TABLE_NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise ConfigurationError(
            f"{what} must be letters, digits and underscores, {LONGEST_NAME} at most, and no digit first, "
            f"got {name!r:.80}"
        )
    return name


@dataclass(frozen=True)
class Expression:
    """SQL that stands where a value would."""

    text: str


def literal(value: Any) -> str:
    """A value as it is written in a statement.

    Between quotes only a quote and a backslash mean anything; that is so in utf8mb4, and as long as the SQL mode
    is without NO_BACKSLASH_ESCAPES. The driver's own escaping also touches every double quote, of which JSON is full.
    """
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "''")
        return f"'{escaped}'"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, bytes):
        # In hexadecimal it could be longer than the JSON that was packed, and than the server takes.
        return f"FROM_BASE64('{b64encode(value).decode()}')"
    if value is None:
        return "NULL"
    if isinstance(value, Expression):
        return value.text
    raise TypeError(f"no value of a statement: {type(value).__name__}")


def rendered(statement: str, values: Sequence[Any]) -> str:
    """The statement with its values in place of the question marks. Statements hold no text of a user's."""
    parts = _parts(statement)
    if len(parts) != len(values) + 1:
        raise ValueError(f"a statement has {len(parts) - 1} marks, and {len(values)} values")
    written = [parts[0]]
    for value, part in zip(values, parts[1:], strict=True):
        written += (literal(value), part)
    return "".join(written)


@lru_cache(maxsize=512)
def _parts(statement: str) -> list[str]:
    return statement.split("?")


class MySQLFlavour(PackingFlavour):
    """JSON columns, and ids as text of which every byte counts.

    Times are UTC, without saying so: a DATETIME has no time zone.
    """

    dialect = NATIVE

    def __init__(self, table_name: str = "locus") -> None:
        super().__init__(f"{checked_name(table_name, 'table_name')}_")
        self.search = self.table("search")
        self.format = self.table("format")

    def table(self, name: str) -> str:
        return f"`{self.prefix}{name}`"

    def holds(self, column: str) -> str:
        text = f"CAST({column} AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_0900_bin"
        return f"LOCATE(?, {text}) > 0"

    def leaf(self, value: str) -> str:
        """Where MySQL may write a value differently, "", which is in every text."""
        return value if _WRITTEN_ALIKE.fullmatch(value) else ""

    def insert_unless_there(self, table: str, columns: str, values: str) -> str:
        """INSERT IGNORE would do, but it ignores everything else that goes wrong, too."""
        column = columns.partition(",")[0]
        return f"INSERT INTO {table} ({columns}) {values} ON DUPLICATE KEY UPDATE {column} = {table}.{column}"

    def put_write(self) -> str:
        return (
            f"REPLACE INTO {self.writes}"
            " (thread, namespace, checkpoint_id, task_id, idx, task_path, channel, value, packed)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        )

    def json(self, text: str) -> str:
        """Most texts hold nothing that would have to be tagged, and a save should not pay much for knowing it."""
        return super().json(text) if TAG in text or has_digits(text, 19) else text

    def time(self, at: datetime) -> str:
        return at.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")

    def read_time(self, value: Any) -> datetime:
        return super().read_time(value).replace(tzinfo=UTC)


_TEXT = "ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin"
_ID = "varchar(255) NOT NULL"
_NAME = "varchar(64) CHARACTER SET ascii COLLATE ascii_bin"


def _first(sql: MySQLFlavour) -> list[str]:
    return [
        f"""CREATE TABLE IF NOT EXISTS {sql.threads} (
    id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    thread_id {_ID},
    last_seq bigint NOT NULL,
    removals bigint NOT NULL DEFAULT 0,
    expires_at datetime(6),
    indexed_seq bigint NOT NULL DEFAULT 0,
    unindexed boolean GENERATED ALWAYS AS (last_seq > indexed_seq) VIRTUAL NOT NULL,
    UNIQUE KEY by_id (thread_id),
    KEY by_end (expires_at),
    KEY by_unindexed (unindexed)
) {_TEXT}""",
        f"""CREATE TABLE IF NOT EXISTS {sql.checkpoints} (
    id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    thread bigint NOT NULL,
    namespace {_ID},
    checkpoint_id {_ID},
    parent_id varchar(255),
    seq bigint NOT NULL,
    rev {_NAME} NOT NULL,
    created_at datetime(6) NOT NULL,
    metadata json NOT NULL,
    head json NOT NULL,
    manifest json NOT NULL,
    metadata_keys json,
    UNIQUE KEY by_id (thread, namespace, checkpoint_id),
    UNIQUE KEY by_seq (thread, namespace, seq),
    KEY by_metadata ((CAST(metadata_keys AS char(32) ARRAY)))
) {_TEXT}""",
        f"""CREATE TABLE IF NOT EXISTS {sql.runs} (
    thread bigint NOT NULL,
    branch {_NAME} NOT NULL,
    number bigint NOT NULL,
    start bigint NOT NULL,
    count bigint NOT NULL,
    seq bigint NOT NULL,
    items json NOT NULL,
    PRIMARY KEY (thread, branch, number),
    KEY by_seq (thread, seq)
) {_TEXT}""",
        f"""CREATE TABLE IF NOT EXISTS {sql.writes} (
    thread bigint NOT NULL,
    namespace {_ID},
    checkpoint_id {_ID},
    task_id {_ID},
    task_digest binary(32) GENERATED ALWAYS AS (unhex(sha2(task_id, 256))) STORED NOT NULL,
    idx int NOT NULL,
    task_path {_ID},
    channel {_ID},
    value json NOT NULL,
    PRIMARY KEY (thread, namespace, checkpoint_id, task_digest, idx)
) {_TEXT}""",
        f"""CREATE TABLE IF NOT EXISTS {sql.search} (
    id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    thread bigint NOT NULL,
    checkpoint bigint,
    branch {_NAME},
    number bigint,
    words longtext CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    KEY by_run (thread, branch, number),
    KEY by_checkpoint (checkpoint),
    FULLTEXT KEY by_words (words)
) {_TEXT}""",
    ]


def _second(sql: MySQLFlavour) -> list[str]:
    return [
        f"ALTER TABLE {sql.writes} MODIFY value json",
        f"ALTER TABLE {sql.writes} ADD COLUMN packed longblob",
    ]


MIGRATIONS: tuple[Callable[[MySQLFlavour], list[str]], ...] = (_first, _second)
FORMAT = len(MIGRATIONS)

DONE_BEFORE = {1060, 1061, 1091}
"""A column or an index that a statement adds is there, or one that it drops is not: it was run before."""


def steps(sql: MySQLFlavour, found: int) -> list[str]:
    """What brings tables of format `found` (0: none) to the newest one, each statement committed by itself."""
    made = [f"CREATE TABLE IF NOT EXISTS {sql.format} (id tinyint NOT NULL PRIMARY KEY, version int NOT NULL)"]
    for number, migration in enumerate(MIGRATIONS[found:], found + 1):
        made += [*migration(sql), f"REPLACE INTO {sql.format} (id, version) VALUES (1, {number})"]
    return made


def ddl(sql: MySQLFlavour, found: int = 0) -> str:
    """The same as a script for a database administrator."""
    return "".join(f"{statement};\n" for statement in steps(sql, found))


def probes(sql: MySQLFlavour) -> list[str]:
    """Fail if a table of that name is there that is not ours."""
    columns = {
        sql.threads: "id, thread_id, last_seq, removals, expires_at, indexed_seq, unindexed",
        sql.checkpoints: "id, thread, namespace, checkpoint_id, parent_id, seq, rev, created_at, metadata_keys",
        sql.runs: "thread, branch, number, start, count, seq, items",
        sql.writes: "thread, namespace, checkpoint_id, task_id, idx, task_path, channel, value, packed",
        sql.search: "id, thread, checkpoint, branch, number, words",
    }
    return [f"SELECT {names} FROM {table} LIMIT 0" for table, names in columns.items()]


def lock_name(sql: MySQLFlavour, database: str) -> str:
    """The lock of those who create or migrate these tables; such locks are the whole server's."""
    return f"locus:{digest(f'{database}.{sql.prefix}')}"
