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

SQL as Oracle Database speaks it.

Shared statements are written for all databases, with `?`, LIMIT and column names that are reserved words here;
`spoken` puts them into Oracle's words. They hold no text of a user's, so there is nothing in them to mistake.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import count
from typing import Any

from locus.errors import ConfigurationError, CorruptCheckpointError
from locus.memory.backends.sql.flavour import Flavour
from locus.memory.model.codec import Dialect, encode_trusted, from_native, to_native

NATIVE = Dialect(exact=False, nul=False, negative_zero=False, fractions_only=True, integer_digits=38, longest_key=255)
"""Numbers in Oracle's JSON have 38 digits, and 1 and 1.0 are the same. Keys have 255 bytes at most, before 23ai."""

LONGEST_NAME = 90
"""Oracle takes names of 128 bytes; the tables' and indexes' own endings need some."""
SCALAR = "$locus:scalar"
"""Wraps a plain value in a JSON column: the driver would send None as SQL's NULL."""
TEXT = "$locus:text"
"""Wraps JSON that nobody but us reads, as text: it is given to the driver and taken from it at no cost."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_TABLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_WORDS = re.compile(r"'[^']*'|\?|\bLIMIT (\?|[0-9]+)|\bnumber\b|\bstart\b")
_RENAMED = {"number": "num", "start": "begins"}
_WRITTEN_ALIKE = re.compile(r'"[^"\\/\x00-\x1f\x7f]*"|-?[0-9]{1,15}|true|false|null')


def checked_name(name: object, what: str) -> str:
    """A name that can be pasted into a statement, without quotes: Oracle reads it in upper case."""
    if not isinstance(name, str) or not _TABLE_NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise ConfigurationError(
            f"{what} must be letters, digits and underscores, {LONGEST_NAME} at most, and begin with a letter, "
            f"got {name!r:.80}"
        )
    return name


@lru_cache(maxsize=512)
def spoken(statement: str) -> str:
    """A statement of the shared layer in Oracle's words, with `:1`, `:2`, … for its question marks."""
    numbers = count(1)

    def word(found: re.Match[str]) -> str:
        if found[0] == "?":
            return f":{next(numbers)}"
        if found[1] is not None:
            return f"FETCH FIRST {f':{next(numbers)}' if found[1] == '?' else found[1]} ROWS ONLY"
        return _RENAMED.get(found[0], found[0])

    return _WORDS.sub(word, statement)


class JSONText(str):
    """JSON for a JSON column."""

    __slots__ = ()


def _number(value: object) -> int | float:
    """The driver gives every number in JSON as a Decimal."""
    if not isinstance(value, Decimal):
        raise TypeError(f"{type(value).__name__} is no JSON")
    return int(value) if value == value.to_integral_value() else float(value)


_written = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_number).encode


class OracleFlavour(Flavour):
    """JSON columns, ids as text of which every byte counts, and times as microseconds since 1970.

    Oracle takes an empty text for NULL, and not every tool of its likes NUL in one. So ids have the character 1
    for an empty text, `\\x01\\x01` in place of NUL, and `\\x01\\x02` for the character 1 itself; their order stays.
    """

    dialect = NATIVE

    def __init__(self, table_name: str = "locus", schema_name: str | None = None) -> None:
        self.schema = None if schema_name is None else checked_name(schema_name, "schema_name")
        super().__init__(f"{checked_name(table_name, 'table_name')}_")
        self.metadata_pairs = self.table("pairs")
        self.search = self.table("search")
        self.format = self.table("format")

    def table(self, name: str) -> str:
        return f"{self.schema}.{self.prefix}{name}" if self.schema else f"{self.prefix}{name}"

    def constraint(self, name: str) -> str:
        """A constraint is in the schema of its table, and is not named with it."""
        return f"{self.prefix}{name}"

    def truth(self, condition: str) -> str:
        """Before 23ai a condition is no value."""
        return f"CASE WHEN {condition} THEN 1 ELSE 0 END"

    def holds(self, column: str) -> str:
        return f"INSTR('*' || JSON_SERIALIZE({column} RETURNING CLOB), ?) > 0"

    def leaf(self, value: str) -> str:
        """Where Oracle may write a value differently, the star that `holds` puts before every text."""
        return value if _WRITTEN_ALIKE.fullmatch(value) else "*"

    def insert_unless_there(self, table: str, columns: str, values: str) -> str:
        """If it is there, the statement fails with ORA-00001, and the transaction is tried again."""
        return f"INSERT INTO {table} ({columns}) {values}"

    def time(self, at: datetime) -> int:
        return (at - EPOCH) // _MICROSECOND

    def read_time(self, value: Any) -> datetime:
        if not isinstance(value, int):
            raise TypeError(f"{type(value).__name__} is no time")
        return EPOCH + value * _MICROSECOND

    def text(self, value: str) -> str:
        if not value:
            return "\x01"
        if "\0" in value or "\x01" in value:
            return value.replace("\x01", "\x01\x02").replace("\0", "\x01\x01")
        return value

    def read_text(self, value: str) -> str:
        if "\x01" not in value:
            return value
        return "" if value == "\x01" else value.replace("\x01\x01", "\0").replace("\x01\x02", "\x01")

    def json(self, text: str) -> JSONText:
        native = to_native(text, self.dialect)
        return JSONText(native if native.startswith(("{", "[")) else f'{{"{SCALAR}":{native}}}')

    def inner_json(self, text: str) -> JSONText:
        """JSON that is only for ourselves."""
        return JSONText(encode_trusted({TEXT: text}))

    def read_json(self, text: Any) -> str:
        """From the value that the driver made of a JSON column."""
        if not isinstance(text, dict | list):
            raise CorruptCheckpointError("a JSON column holds no object and no list")
        value: Any = text
        if isinstance(text, dict) and len(text) == 1:
            if isinstance(text.get(TEXT), str):
                return str(text[TEXT])
            value = text.get(SCALAR, text)
        try:
            return from_native(_written(value))
        except (TypeError, ValueError) as error:
            raise CorruptCheckpointError(f"a JSON column holds something else than JSON: {error}") from error


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
