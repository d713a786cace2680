"""The tables in PostgreSQL, how they are migrated, and the SQL that PostgreSQL speaks.

    locus_threads      one row a thread: its id, its counter of sequence numbers, when it expires
    locus_checkpoints  one row a checkpoint: who, when, metadata (jsonb), head and manifest (json)
    locus_runs         one row a run: `items` is a jsonb array (see `locus.memory.model.records`)
    locus_writes       pending writes: `value` is jsonb, or NULL if zlib has packed the JSON into `packed` (bytea)
    locus_search       full text, brought up to date by the next search: one row a run, or a checkpoint's own text
    locus_indexed      how far, in each thread, the full text has got
    locus_format       the version of these tables

`removals` in a thread's row counts deletions. Together with `last_seq` it tells a save, which is one statement,
whether anything happened to the thread between its reading and its writing. All text that is compared has the
collation "C", so that ids differ if their bytes do. Columns of fixed width come first, so that no row is padded. Heads
are json, not jsonb, which takes a fifth more room for such small objects, and has to be taken apart and put together.

The statements are in `migrations/*.sql`, with `${schema}` and `${prefix}` in the place of what the user chooses.
"""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime
from itertools import count
from typing import Any, ClassVar

from locus.memory.backends.sql.flavour import PackingFlavour
from locus.memory.backends.sql.schema import WRITE_COLUMNS, checked_name, read_migrations, statements_in
from locus.memory.model.codec import Dialect

JSONB = Dialect(exact=False, nul=False, negative_zero=False, float_exponents=False)
MIGRATIONS = read_migrations("locus.memory.backends.postgresql")
FORMAT = len(MIGRATIONS)


def numbered(statement: str) -> str:
    """The statement with `$1`, `$2`, … for its question marks, except for those in literals."""
    numbers = count(1)
    return re.sub(r"'[^']*'|\?", lambda found: found[0] if found[0] != "?" else f"${next(numbers)}", statement)


class PostgreSQLFlavour(PackingFlavour):
    """jsonb columns, and ids as text in the order of code points.

    A text column holds no NUL, so ids have `\\x01\\x01` in its place, and `\\x01\\x02` for the character 1.
    """

    dialect = JSONB
    migrations: ClassVar[tuple[str, ...]] = MIGRATIONS
    """The scripts that make and migrate the tables, with placeholders for their names."""

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
    def newest_format(self) -> int:
        return len(self.migrations)

    def migration(self, script: str) -> tuple[str, ...]:
        """The statements of a migration, with the names of these tables."""
        schema = "" if self.schema is None else f"{self.schema}."
        return statements_in(script, schema=schema, prefix=self.prefix)

    @property
    def of_thread(self) -> str:
        """The thread's key as a single value.

        A join with `c` would hide that an index has the checkpoints in order: the server would read and sort all of
        the thread's, for the newest ten or one.
        """
        return f"c.thread = (SELECT id FROM {self.threads} WHERE thread_id = ?)"

    def in_order(self, column: str) -> str:
        """An expression of its own, so that no plan uses the index of sequence numbers to look for an id.

        Such a plan reads the whole history of the thread, and seems cheap as long as there are no statistics.
        """
        return f"({column} || '')"

    def is_passed(self) -> str:
        """By the newest one, which an index has.

        Whether there is any newer one seems to be known soon, in whatever order one looks, if the statistics know few
        threads. Mostly there is none, and then the server has looked at every checkpoint of every thread.
        """
        newest = (
            f"SELECT n.seq FROM {self.checkpoints} n"
            f" WHERE n.thread = c.thread AND {self.in_order('n.namespace')} = {self.in_order('c.namespace')}"
            " ORDER BY n.seq DESC LIMIT 1"
        )
        return f"(c.seq < ({newest}))"

    def json_column(self, column: str) -> str:
        return f"{column}::text"

    def holds(self, column: str) -> str:
        return f"jsonb_path_exists({column}::jsonb, '$.** ? (@ == $leaf)', ?::jsonb)"

    def leaf(self, value: str) -> str:
        """A value that is tagged is found by the text in the tag."""
        native = json.loads(self.json(value))
        return json.dumps({"leaf": next(iter(native.values())) if isinstance(native, dict) else native})

    def put_write(self) -> str:
        """The thread is locked, so nobody can interfere; a unique index would be too wide for long ids."""
        return (
            f"WITH gone AS (DELETE FROM {self.writes} WHERE thread = $1 AND namespace = $2 AND checkpoint_id = $3"
            f" AND task_id = $4 AND idx = $5) INSERT INTO {self.writes} ({WRITE_COLUMNS}, packed)"
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


def statements(sql: PostgreSQLFlavour, found: int = 0) -> list[str]:
    """What migrates tables of format `found` (0: none) to the newest one, inside one transaction."""
    steps: list[str] = []
    if not found:
        steps += [f"CREATE TABLE {sql.format} (version integer NOT NULL)", f"INSERT INTO {sql.format} VALUES (0)"]
    for script in sql.migrations[found:]:
        steps += sql.migration(script)
    return [*steps, f"UPDATE {sql.format} SET version = {sql.newest_format}"]


def ddl(sql: PostgreSQLFlavour, found: int = 0) -> str:
    """The same as a script for a database administrator."""
    schema = [f"CREATE SCHEMA IF NOT EXISTS {sql.schema}"] if sql.schema and not found else []
    return "".join(f"{statement};\n" for statement in ["BEGIN", *schema, *statements(sql, found), "COMMIT"])


def lock_number(sql: PostgreSQLFlavour) -> int:
    """The number of the advisory lock that guards creating and migrating these tables."""
    return int.from_bytes(hashlib.sha256(f"locus {sql.format}".encode()).digest()[:8], "big", signed=True)
