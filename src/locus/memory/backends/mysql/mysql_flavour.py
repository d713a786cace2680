"""SQL as MySQL speaks it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from locus.errors import ConfigurationError
from locus.memory.backends.sql.sql_packing import PackingFlavour
from locus.memory.model.codec import Dialect, has_digits

NATIVE = Dialect(exact=False, integer_bits=64)
"""MySQL's JSON keeps everything but integers past 64 bits: floats bit for bit, -0.0 and NUL included."""

TAG = "$locus:"
_WRITTEN_ALIKE = re.compile(r'"[^"\\\x00-\x1f\x7f]*"|-?[0-9]{1,18}|true|false|null')
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LONGEST_NAME = 40
"""MySQL takes names of 64 characters; the tables' own endings need some."""


def checked_name(name: object, what: str) -> str:
    """A name that can be pasted into a statement."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
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
