"""The tables in PostgreSQL, their migrations, and the SQL of PostgreSQL.

    locus_threads      one row a thread: its id, its counter of sequence numbers, when it expires; `unindexed` is true
                       if the full text lacks something of it: that is indexed up to `indexed_seq`
    locus_checkpoints  one row a checkpoint: who, when, metadata (jsonb), head and manifest (json)
    locus_runs         one row a run: `items` is a jsonb array (see `locus.memory.model.records`)
    locus_writes       pending writes: `value` is jsonb, or NULL if zlib has packed the JSON into `packed` (bytea)
    locus_search       full text, brought up to date by the next search: one row a run, or a checkpoint's own text
    locus_indexed      how far, in each thread, the full text has got: for versions that do not know format 4, too
    locus_format       the version of these tables

With `partitions`, all tables that have the thread in their key are partitioned by its hash (`partitioned/tables.sql`).
No statement depends on that: only the server needs to know how many partitions there are.

`removals` in a thread's row counts deletions. Together with `last_seq` it tells a save, which is one statement, whether
anything happened to the thread between its reading and its writing. All text that is compared has the collation "C", so
that ids differ if their bytes do. Columns of fixed width come first, so that no row is padded. Heads are json, not
jsonb, which takes a fifth more room for such small objects, and has to be taken apart and put together.

The statements are in `migrations/*.sql`, with `${schema}` and `${prefix}` in the place of the user's names. A new file
`migrations/NNNN.sql` is found by itself; it says which older versions may still read and write. If every SQL database
gets a new column, its name goes into `sql/schema.py` (`NewCheckpoint`) and its value into `sql/flavour.py`
(`new_checkpoint`). One that only PostgreSQL has is named in the statements of `commit.py` and `together.py`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import count
from string import Template
from typing import Any, ClassVar

from locus.errors import ConfigurationError
from locus.memory.backends.sql.flavour import FormerItemsFlavour, PackingFlavour
from locus.memory.backends.sql.schema import WRITE_COLUMNS, checked_name, read_migrations, read_script, statements_in
from locus.memory.model.codec import Dialect

_PACKAGE = "locus.memory.backends.postgresql"
JSONB = Dialect(exact=False, nul=False, negative_zero=False, float_exponents=False)
MIGRATIONS = read_migrations(_PACKAGE)
FORMAT = len(MIGRATIONS)
PARTITIONED = ("checkpoints", "runs", "writes", "search", "indexed")
"""The tables that can be partitioned, because they have the thread in their key."""
MOST_PARTITIONS = 128
"""The largest number of partitions.

A statement locks every partition that its plan names, and the server has room for a limited number of locks.
"""

_INDEX = re.compile(r'CREATE (?:UNIQUE )?INDEX "(\w+)"')
_PARTITIONED_TABLE = re.compile(r"CREATE TABLE (\S+) \(.*\) PARTITION BY HASH \(\w+\)", re.DOTALL)


def numbered(statement: str) -> str:
    """Write `$1`, `$2`, … in the place of a statement's question marks, except for those in literals."""
    numbers = count(1)
    return re.sub(r"'[^']*'|\?", lambda found: found[0] if found[0] != "?" else f"${next(numbers)}", statement)


class PostgreSQLFlavour(PackingFlavour, FormerItemsFlavour):
    """The SQL of PostgreSQL: jsonb columns, and ids as text in the order of code points.

    A text column holds no NUL, so ids have `\\x01\\x01` in its place, and `\\x01\\x02` for the character 1.

    A subclass serves another server that speaks PostgreSQL's language, or other tables. It overrides `migrations`, and
    what only PostgreSQL has: `lock_if_free`, `row_address`, `waits_for_standby`, `patience`, `migration_lock`,
    `tables_exist`, `has_table` and `schema_exists`. No other statement needs PostgreSQL itself, except those
    of `locus doctor`.
    """

    dialect = JSONB
    migrations: ClassVar[tuple[str, ...]] = MIGRATIONS
    """The scripts that make and migrate the tables, with placeholders for their names."""
    partitioned_tables: ClassVar[str] = read_script(_PACKAGE, "partitioned", "tables.sql")
    """The script that replaces the first migration if the tables are partitioned."""
    lock_if_free = " FOR NO KEY UPDATE SKIP LOCKED"
    """After a SELECT: lock the rows that nobody else holds, and leave out the others."""
    row_address = "ctid"
    """The column that addresses a row of its table for the duration of a statement."""
    waits_for_standby = "current_setting('synchronous_standby_names', true) <> ''"
    """A condition: commits wait for a synchronous standby."""

    def __init__(self, table_name: str = "locus", schema_name: str | None = None, partitions: int = 0) -> None:
        """`partitions` is the number of partitions that each new table gets; 0: none."""
        self.partitions = checked_partitions(partitions)
        self.schema_name = None if schema_name is None else checked_name(schema_name, "schema_name")
        super().__init__(f"{checked_name(table_name, 'table_name')}_")
        self.newest_format = len(self.migrations)
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
        """The name of an index, without a schema: an index is in the schema of its table."""
        return f'"{self.prefix}{name}"'

    def patience(self, time: str) -> str:
        """A condition, always true, that ends the transaction if it has to wait for a lock longer than a time."""
        return f"set_config('lock_timeout', {time}, true) IS NOT NULL"

    def migration_lock(self) -> tuple[str, Sequence[Any]]:
        """A statement after which no other transaction migrates these tables until this one ends."""
        return "SELECT pg_advisory_xact_lock(?)", (lock_number(self),)

    def tables_exist(self) -> tuple[str, Sequence[Any]]:
        """A statement that returns the encoding of the database, and whether these tables exist."""
        # See `has_table`.
        found = "EXISTS (SELECT 1 FROM pg_class WHERE oid = to_regclass(?))"
        return f"SELECT current_setting('server_encoding'), {found}", (self.format,)

    def has_table(self, table: str) -> tuple[str, Sequence[Any]]:
        # `to_regclass` alone may not see yet what another connection has created while this one waited.
        return "SELECT 1 FROM pg_class WHERE oid = to_regclass(?)", (table,)

    def schema_exists(self) -> tuple[str, Sequence[Any]]:
        """A statement that returns a row if the schema of these tables exists."""
        return "SELECT 1 FROM pg_namespace WHERE nspname = ?", (self.schema_name,)

    @property
    def scripts(self) -> tuple[str, ...]:
        """The migrations that make and migrate the tables, with partitions if those were asked for."""
        return (self.partitioned_tables, *self.migrations[1:]) if self.partitions else self.migrations

    def migration(self, script: str) -> tuple[str, ...]:
        """The statements of a migration, with the names of these tables, and those that make partitions."""
        schema = "" if self.schema is None else f"{self.schema}."
        made = statements_in(script, schema=schema, prefix=self.prefix)
        return tuple(each for statement in made for each in (statement, *self._partitions_of(statement)))

    def _partitions_of(self, statement: str) -> list[str]:
        """The statements that make the partitions of the table that a statement makes, if it is partitioned."""
        match = _PARTITIONED_TABLE.fullmatch(statement)
        if match is None:
            return []
        name = match[1].removesuffix('"')
        return [
            f'CREATE TABLE {name}_{number}" PARTITION OF {match[1]}'
            f" FOR VALUES WITH (MODULUS {self.partitions}, REMAINDER {number})"
            for number in range(self.partitions)
        ]

    def is_of_thread(self, alias: str) -> str:
        """A condition: the thread of a row has the id `?`.

        The key is a single value, which tells the server the partition.

        A join would hide that an index has the checkpoints in order: the server would read and sort all of the
        thread's, for the newest ten or one.
        """
        return f"{alias}.thread = (SELECT id FROM {self.threads} WHERE thread_id = ?)"

    def in_order(self, column: str) -> str:
        """The expression for a namespace in the index of sequence numbers, which differs from that in the index of ids.

        Otherwise a plan might use the index of sequence numbers to look for an id. Such a plan reads the whole history
        of the thread, and seems cheap as long as there are no statistics.
        """
        return f"({column} || '')"

    def is_passed(self) -> str:
        """A condition: the namespace of the checkpoint `c` has newer ones. The newest one is in an index.

        A condition that there is any newer one looks as if it were soon decided, in whatever order, if the statistics
        know few threads. Mostly there is none, and then the server has looked at every checkpoint of every thread.
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
        """Prepare a value for `holds`. A value that is tagged is found by the text in the tag."""
        native = json.loads(self.json(value))
        return json.dumps({"leaf": next(iter(native.values())) if isinstance(native, dict) else native})

    def put_write(self) -> str:
        """A statement that replaces a pending write. The thread is locked, so nobody can interfere.

        A unique index, for ON CONFLICT, would be too wide for long ids.
        """
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


def statements(sql: PostgreSQLFlavour, version: int = 0) -> list[str]:
    """The statements that bring tables of a format (0: none) to the newest one, inside one transaction."""
    steps: list[str] = []
    if not version:
        steps += [f"CREATE TABLE {sql.format} (version integer NOT NULL)", f"INSERT INTO {sql.format} VALUES (0)"]
    for script in sql.scripts[version:]:
        steps += sql.migration(script)
    return [*steps, f"UPDATE {sql.format} SET version = {sql.newest_format}"]


def ddl(sql: PostgreSQLFlavour, version: int = 0) -> str:
    """A script for a database administrator that brings tables of a format (0: none) to the newest one."""
    schema = [f"CREATE SCHEMA IF NOT EXISTS {sql.schema}"] if sql.schema and not version else []
    return "".join(f"{statement};\n" for statement in ["BEGIN", *schema, *statements(sql, version), "COMMIT"])


def move(sql: PostgreSQLFlavour) -> str:
    """A script for a database administrator that moves the rows of tables into partitioned tables.

    The new tables are made in a schema of their own, under their final names. In the end they change places with the
    old ones.
    """
    # If two stores had the same names for these, the second script would fail with its first statement.
    new, old = f"{sql.prefix[:27]}partitioned", f"{sql.prefix[:27]}unpartitioned"
    made = type(sql)(sql.prefix.removesuffix("_"), new, sql.partitions)
    everything = [statement for script in made.scripts for statement in made.migration(script)]
    statements = [each for each in everything if made.threads not in each and made.format not in each]
    indexes = [each for each in statements if _INDEX.match(each)]
    return Template(read_script(_PACKAGE, "partitioned", "move.sql")).substitute(
        threads=sql.threads,
        checkpoints=sql.checkpoints,
        format=sql.format,
        version=sql.newest_format,
        prefix=sql.prefix,
        new=new,
        old=old,
        tables=_script(each for each in statements if each not in indexes),
        # Both tables have had the same migrations, so their columns are in the same order.
        rows=_script(f"INSERT INTO {made.table(name)} SELECT * FROM {sql.table(name)}" for name in PARTITIONED),
        indexes=_script(indexes),
        moved=", ".join(f"'{sql.table(name)}'::regclass" for name in PARTITIONED),
        made_indexes=", ".join(f"'{match[1]}'" for each in indexes if (match := _INDEX.match(each))),
        locked=", ".join(map(sql.table, ("search", "indexed", "checkpoints", "runs", "writes"))),
        analyzed=", ".join(map(sql.table, PARTITIONED)),
    )


def _script(statements: Iterable[str]) -> str:
    return "\n".join(f"{statement};" for statement in statements)


def checked_partitions(number: object) -> int:
    """Check the number of partitions that a user gave."""
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= MOST_PARTITIONS:
        raise ConfigurationError(
            f"partitions is a number from 0 (the tables are not partitioned) to {MOST_PARTITIONS}, got {number!r:.40}"
        )
    return number


def lock_number(sql: PostgreSQLFlavour) -> int:
    """The number of the advisory lock that guards creating and migrating these tables."""
    return int.from_bytes(hashlib.sha256(f"locus {sql.format}".encode()).digest()[:8], "big", signed=True)
