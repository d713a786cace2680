"""SQL as PostgreSQL speaks it."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from itertools import count
from typing import Any

from locus.errors import ConfigurationError
from locus.memory.backends.sql.sql_packing import PackingFlavour
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
