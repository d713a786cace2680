"""SQL as Oracle Database speaks it.

Shared statements are written for all databases, with `?`, LIMIT and column names that are reserved words here;
`spoken` puts them into Oracle's words. They hold no text of a user's, so there is nothing in them to mistake.
"""

from __future__ import annotations

import json
import re
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

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_WORDS = re.compile(r"'[^']*'|\?|\bLIMIT (\?|[0-9]+)|\bnumber\b|\bstart\b")
_RENAMED = {"number": "num", "start": "begins"}
_WRITTEN_ALIKE = re.compile(r'"[^"\\/\x00-\x1f\x7f]*"|-?[0-9]{1,15}|true|false|null')


def checked_name(name: object, what: str) -> str:
    """A name that can be pasted into a statement, without quotes: Oracle reads it in upper case."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
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
