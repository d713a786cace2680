"""The tables in Oracle Database: their layout, their migrations, and the SQL in which Oracle differs from others.

    locus_threads      one row per thread: its id, its counter of sequence numbers, when it expires
    locus_checkpoints  one row per checkpoint: ids, time, metadata, head and manifest (JSON)
    locus_runs         one row per run: `items` is a JSON array (see `locus.memory.model.records`)
    locus_writes       pending writes
    locus_pairs        a digest of each key-value pair in the metadata of a checkpoint
    locus_search       full text, updated by each search: one row per run, or for a checkpoint's own text
    locus_format       the version of these tables, in the row 1. In the rows 2 and 3, if they are there, from which
                       version on Locus may read and write them (see `locus.memory.model.formats`)

`removals` in a thread's row counts deletions. Together with `last_seq` it tells a save whether anything has
happened to the thread. `indexed_seq` is the last sequence number in the full text. Deleting a thread's row deletes
everything else of the thread. Times are microseconds since 1970. Ids have up to 255 characters, stored as up to 510
(see `OracleFlavour`). The key of an index has at most 6,398 bytes: more than two such ids need, and less than four.

A sequence numbers the checkpoints, and keeps its order on a cluster, too. So the newest checkpoints of all threads
are those with the highest numbers.

The DDL is in `migrations/*.sql`. Oracle commits each DDL statement by itself, so a migration
can be interrupted between any two statements. Every statement can therefore be run again.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import count
from typing import Any

from locus.errors import CorruptCheckpointError
from locus.memory.backends.sql import schema as sql_schema
from locus.memory.backends.sql.flavour import Flavour
from locus.memory.backends.sql.schema import (
    CHECKPOINT_COLUMNS,
    RUN_COLUMNS,
    THREAD_COLUMNS,
    WRITE_COLUMNS,
    read_migrations,
    statements_in,
)
from locus.memory.model.codec import Dialect, encode_trusted, from_native, to_native

PAIR_COLUMNS = "thread, namespace, seq, pair"

NATIVE = Dialect(exact=False, nul=False, negative_zero=False, fractions_only=True, integer_digits=38, longest_key=255)
"""Numbers in Oracle's JSON have 38 digits, and 1 and 1.0 are the same. Before 23ai keys have at most 255 bytes."""

SCALAR = "$locus:scalar"
"""Wraps a plain value in a JSON column, because the driver would send None as SQL's NULL."""
TEXT = "$locus:text"
"""Wraps JSON that only Locus reads, as text: the driver sends and returns it without parsing."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SAME_IN_ORACLE = re.compile(r'"[^"\\/\x00-\x1f\x7f]*"|-?[0-9]{1,15}|true|false|null')
"""JSON values that Oracle writes exactly as Locus does."""


class JSONText(str):
    """JSON for a JSON column."""

    __slots__ = ()


class OracleFlavour(Flavour):
    """SQL with JSON columns, ids as text that is compared byte by byte, and times as microseconds since 1970.

    Oracle treats an empty text as NULL, and some of its tools do not accept NUL in a text. So an empty id is stored
    as the character 1, NUL as `\\x01\\x01`, and the character 1 itself as `\\x01\\x02`. The order of ids is kept.
    """

    dialect = NATIVE

    def __init__(self, table_name: str = "locus", schema_name: str | None = None) -> None:
        self.schema = None if schema_name is None else checked_name(schema_name, "schema_name")
        super().__init__(f"{checked_name(table_name, 'table_name')}_")
        self.newest_format = FORMAT
        self.metadata_pairs = self.table("pairs")
        self.search = self.table("search")
        self.format = self.table("format")

    def table(self, name: str) -> str:
        return f"{self.schema}.{self.prefix}{name}" if self.schema else f"{self.prefix}{name}"

    def latest_in(self, namespace: str) -> tuple[str, list[Any]]:
        """A condition and an order for the latest checkpoint in a namespace: by its number, at the end of an index.

        Otherwise a database may read all rows, with their JSON, to sort them.
        """
        newest = self._newest_in("t.id", "?")
        return f"c.namespace = ? AND c.seq = {newest}", [self.text(namespace), self.text(namespace)]

    def is_passed(self) -> str:
        """A condition: the namespace of the checkpoint `c` has newer ones. The newest one is at the end of an index.

        To ask whether any is newer may seem quicker to a database than that, and then it looks at all, since mostly
        there is none.
        """
        return f"c.seq < {self._newest_in('c.thread', 'c.namespace')}"

    def _newest_in(self, thread: str, namespace: str) -> str:
        return f"(SELECT MAX(n.seq) FROM {self.checkpoints} n WHERE n.thread = {thread} AND n.namespace = {namespace})"

    def truth(self, condition: str) -> str:
        """Make a condition a column. Before 23ai Oracle accepts none there."""
        return f"CASE WHEN {condition} THEN 1 ELSE 0 END"

    def bytes_of(self, column: str) -> str:
        """An expression for the length of a JSON column, in characters: Oracle cannot count the bytes of a CLOB."""
        return f"DBMS_LOB.GETLENGTH(JSON_SERIALIZE({column} RETURNING CLOB))"

    def holds(self, column: str) -> str:
        return f"INSTR('*' || JSON_SERIALIZE({column} RETURNING CLOB), ?) > 0"

    def leaf(self, value: str) -> str:
        """Return the value; or the star that `holds` puts before each text, if Oracle may write the value otherwise."""
        return value if _SAME_IN_ORACLE.fullmatch(value) else "*"

    def insert_unless_there(self, table: str, columns: str, values: str) -> str:
        """An INSERT. If the row exists, it fails with ORA-00001, and the transaction is tried again."""
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

    def manifest_json(self, text: str) -> JSONText:
        """Encode a manifest as text, because only Locus reads it."""
        return JSONText(encode_trusted({TEXT: text}))

    def read_json(self, text: Any) -> str:
        """Read JSON from the value that the driver returns for a JSON column."""
        if not isinstance(text, dict | list):
            raise CorruptCheckpointError("a JSON column holds no object and no list")
        value: Any = text
        if isinstance(text, dict) and len(text) == 1:
            if isinstance(text.get(TEXT), str):
                return str(text[TEXT])
            value = text.get(SCALAR, text)
        try:
            return from_native(_encode(value))
        except (TypeError, ValueError):
            raise CorruptCheckpointError("a JSON column holds something else than JSON") from None


def _number(value: object) -> int | float:
    """Convert a number of JSON, which the driver returns as a Decimal."""
    if not isinstance(value, Decimal):
        raise TypeError(f"{type(value).__name__} is no JSON")
    return int(value) if value == value.to_integral_value() else float(value)


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_number).encode

LONGEST_NAME = 90
"""The longest name of tables that a user may choose.

Oracle allows names of 128 bytes, and the endings of the tables' and indexes' names need some of them.
"""


def checked_name(name: object, what: str) -> str:
    """Check a name that will be pasted into a statement without quotes. Oracle reads it in upper case."""
    return sql_schema.checked_name(name, what, LONGEST_NAME, letter_first=True)


_TO_TRANSLATE = re.compile(r"'[^']*'|\?|\bLIMIT (\?|[0-9]+)|\bnumber\b|\bstart\b")
_RENAMED_COLUMNS = {"number": "num", "start": "begins"}
"""Columns that have other names in Oracle, because those in the SQL of other databases are reserved words."""


@lru_cache(maxsize=512)
def oracle_sql(statement: str) -> str:
    """Rewrite a statement for Oracle: with `:1`, `:2`, …, FETCH FIRST and Oracle's own names of columns.

    Statements contain no text from users, so nothing else in them can be mistaken for these words.
    """
    numbers = count(1)

    def translated(match: re.Match[str]) -> str:
        if match[0] == "?":
            return f":{next(numbers)}"
        if match[1] is not None:
            return f"FETCH FIRST {f':{next(numbers)}' if match[1] == '?' else match[1]} ROWS ONLY"
        return _RENAMED_COLUMNS.get(match[0], match[0])

    return _TO_TRANSLATE.sub(translated, statement)


def unindexed(alias: str = "t.") -> str:
    """An expression for the id of a thread with something to index, else NULL, which no index holds."""
    return f"CASE WHEN {alias}last_seq > {alias}indexed_seq THEN {alias}id END"


FORMAT_TABLE, *MIGRATIONS = read_migrations("locus.memory.backends.oracle")
FORMAT = len(MIGRATIONS)

OLDEST_READER, OLDEST_WRITER = 2, 3
"""The rows that say which versions may use a newer format. Columns could not be added under the lock on the row 1."""

ALREADY_DONE = ("ORA-00955", "ORA-01408", "ORA-01430", "ORA-02260", "ORA-02261", "ORA-02264", "ORA-02275", "ORA-29879")
"""Errors that say a statement was run before: what it creates exists."""


def format_statements(sql: OracleFlavour) -> list[str]:
    """The two statements before any migration: they make the table of the version, and its one row."""
    return _statements(FORMAT_TABLE, sql)


def statements(sql: OracleFlavour, version: int) -> list[str]:
    """The statements that bring tables of a format (0: none) to the newest one, except for the version."""
    return [statement for script in MIGRATIONS[version:] for statement in _statements(script, sql)]


def set_version(sql: OracleFlavour, version: int) -> str:
    return f"UPDATE {sql.format} SET version = {version} WHERE id = 1"


def tables(sql: OracleFlavour) -> list[str]:
    return [sql.format, sql.threads, sql.checkpoints, sql.runs, sql.writes, sql.metadata_pairs, sql.search]


def ddl(sql: OracleFlavour, grantee: str | None = None, version: int = 0) -> str:
    """A script for a database administrator that brings tables of a format (0: none) to the newest one.

    `grantee` is a user who may use the tables.
    """
    first = [] if version else format_statements(sql)
    script = [*first, *statements(sql, version), set_version(sql, FORMAT), "COMMIT"]
    if grantee is not None:
        script += [f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {grantee}" for table in tables(sql)]
    return "".join(f"{statement};\n" for statement in script)


def _statements(script: str, sql: OracleFlavour) -> list[str]:
    return [*statements_in(script, schema=f"{sql.schema}." if sql.schema else "", prefix=sql.prefix)]


def probes(sql: OracleFlavour) -> list[str]:
    """Queries that fail for a table that has one of our names, but was not made by Locus."""
    columns = {
        sql.threads: f"{THREAD_COLUMNS}, removals, indexed_seq",
        sql.checkpoints: f"id, {CHECKPOINT_COLUMNS}",
        sql.runs: RUN_COLUMNS,
        sql.writes: WRITE_COLUMNS,
        sql.metadata_pairs: PAIR_COLUMNS,
        sql.search: "id, thread, seq, branch, num, words",
    }
    return [f"SELECT {names} FROM {table} WHERE 1 = 0" for table, names in columns.items()]
