"""The tables in MySQL: their layout, their migrations, and the SQL in which MySQL differs from other databases.

    locus_threads      one row per thread: its id, its counter of sequence numbers, when it expires
    locus_checkpoints  one row per checkpoint: ids, time, metadata, head and manifest (JSON)
    locus_runs         one row per run: `items` is a JSON array (see `locus.memory.model.records`)
    locus_writes       pending writes: `value` is JSON, or NULL if zlib has packed it into `packed`
    locus_search       full text, updated by each search: one row per run, or for a checkpoint's own text
    locus_format       the version of these tables

`removals` in a thread's row counts deletions. Together with `last_seq` it tells a save whether anything has
happened to the thread. `indexed_seq` is the last sequence number in the full text. `metadata_keys` has a digest of
each key-value pair in the metadata, and a multi-valued index.

All text that is compared has the collation utf8mb4_0900_bin: case, accents and trailing spaces count, and the order
is that of code points. A key in InnoDB has at most 3,072 bytes, which is less than three ids can need. So the key of
the pending writes has the digest of a task's id, not the id itself.

The DDL is in `migrations/*.sql`. MySQL commits each DDL statement by itself, so a migration
can be interrupted between any two statements. Every statement can therefore be run again.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from locus.memory.backends.sql.flavour import PackingFlavour, marks
from locus.memory.backends.sql.schema import (
    CHECKPOINT_COLUMNS,
    RUN_COLUMNS,
    THREAD_COLUMNS,
    WRITE_COLUMNS,
    checked_name,
    read_migrations,
    statements_in,
)
from locus.memory.model.codec import TAG, Dialect, has_digits
from locus.memory.model.ids import digest

NATIVE = Dialect(exact=False, integer_bits=64)
"""MySQL's JSON keeps everything except integers beyond 64 bits: floats bit for bit, -0.0 and NUL included."""
_SAME_IN_MYSQL = re.compile(r'"[^"\\\x00-\x1f\x7f]*"|-?[0-9]{1,18}|true|false|null')
"""JSON values that MySQL writes exactly as Locus does."""


class MySQLFlavour(PackingFlavour):
    """SQL with JSON columns, and ids as text that is compared byte by byte.

    Times are in UTC. A DATETIME has no time zone, so nothing in the table says so.
    """

    dialect = NATIVE
    along_history = "/*+ INDEX(c by_seq) */ "

    def __init__(self, table_name: str = "locus") -> None:
        super().__init__(f"{checked_name(table_name, 'table_name')}_")
        self.search = self.table("search")
        self.format = self.table("format")
        self.newest_format = FORMAT
        columns = self.checkpoint_columns = f"{CHECKPOINT_COLUMNS}, metadata_keys"
        self.insert_with_keys = f"INSERT INTO {self.checkpoints} ({columns}) VALUES {marks(columns.count(',') + 1)}"

    def table(self, name: str) -> str:
        return f"`{self.prefix}{name}`"

    def is_passed(self) -> str:
        """A condition: the namespace of the checkpoint `c` has newer ones. The newest one is at the end of an index."""
        return f"(c.seq < ({self._newest_seq('c.thread', 'c.namespace')}))"

    def latest_in(self, namespace: str) -> tuple[str, list[Any]]:
        newest = self._newest_seq("t.id", "?")
        return f"c.namespace = ? AND c.seq = ({newest})", [self.text(namespace), self.text(namespace)]

    def _newest_seq(self, thread: str, namespace: str) -> str:
        """A subquery for the number of the newest checkpoint.

        Without the hint and the order of all columns of the index, MySQL takes another index, or sorts: both go through
        all of the thread's history. If one thread has most of the rows, it even goes through the table. MySQL ignores
        the hint if somebody has renamed the index.
        """
        return (
            f"SELECT /*+ INDEX(n by_seq) */ n.seq FROM {self.checkpoints} n"
            f" WHERE n.thread = {thread} AND n.namespace = {namespace}"
            " ORDER BY n.thread DESC, n.namespace DESC, n.seq DESC LIMIT 1"
        )

    def bytes_of(self, column: str) -> str:
        return f"LENGTH(CAST({column} AS CHAR CHARACTER SET utf8mb4))"

    def holds(self, column: str) -> str:
        text = f"CAST({column} AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_0900_bin"
        return f"LOCATE(?, {text}) > 0"

    def leaf(self, value: str) -> str:
        """Return the value; or "", which every text contains, if MySQL may write the value differently."""
        return value if _SAME_IN_MYSQL.fullmatch(value) else ""

    def insert_unless_there(self, table: str, columns: str, values: str) -> str:
        """An INSERT that does nothing if the row exists. INSERT IGNORE would ignore every other error as well."""
        column = columns.partition(",")[0]
        return f"INSERT INTO {table} ({columns}) {values} ON DUPLICATE KEY UPDATE {column} = {table}.{column}"

    def put_write(self) -> str:
        return f"REPLACE INTO {self.writes} ({WRITE_COLUMNS}, packed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"

    def json(self, text: str) -> str:
        """Encode JSON for a JSON column. Most texts need no tags, and a quick check finds that out."""
        return super().json(text) if TAG in text or has_digits(text, 19) else text

    def time(self, at: datetime) -> str:
        return at.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")

    def read_time(self, value: Any) -> datetime:
        return super().read_time(value).replace(tzinfo=UTC)


FORMAT_TABLE, *MIGRATIONS = read_migrations("locus.memory.backends.mysql")
FORMAT = len(MIGRATIONS)

ALREADY_DONE = {1060, 1061, 1091}
"""Errors that say a statement was run before: the column or index it adds exists, or the one it drops does not."""


def statements(sql: MySQLFlavour, version: int) -> list[str]:
    """The statements that bring tables of a format (0: none) to the newest one. Each is committed by itself."""
    made = [*statements_in(FORMAT_TABLE, prefix=sql.prefix)]
    for number, script in enumerate(MIGRATIONS[version:], version + 1):
        made += statements_in(script, prefix=sql.prefix)
        made.append(f"REPLACE INTO {sql.format} (id, version) VALUES (1, {number})")
    return made


def ddl(sql: MySQLFlavour, version: int = 0) -> str:
    """A script for a database administrator that brings tables of a format (0: none) to the newest one."""
    return "".join(f"{statement};\n" for statement in statements(sql, version))


def probes(sql: MySQLFlavour) -> list[str]:
    """Queries that fail for a table that has one of our names, but was not made by Locus."""
    columns = {
        sql.threads: f"{THREAD_COLUMNS}, removals, indexed_seq, unindexed",
        sql.checkpoints: f"id, {CHECKPOINT_COLUMNS}, metadata_keys",
        sql.runs: RUN_COLUMNS,
        sql.writes: f"{WRITE_COLUMNS}, packed",
        sql.search: "id, thread, checkpoint, branch, number, words",
    }
    return [f"SELECT {names} FROM {table} LIMIT 0" for table, names in columns.items()]


def lock_name(sql: MySQLFlavour, database: str) -> str:
    """The name of the lock that guards creating and migrating these tables. Names of locks are server-wide."""
    return f"locus:{digest(f'{database}.{sql.prefix}')}"
