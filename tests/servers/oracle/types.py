"""Oracle's data types on the wire, and which of PostgreSQL's stand for them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any

from oracledb import thin_impl  # type: ignore[attr-defined]

from tests.servers.oracle.buffers import Reader, Writer
from tests.servers.oracle.errors import OracleError
from tests.servers.oracle.oson import encoded
from tests.servers.oracle.values import (
    ESCAPE,
    bytes_to_double,
    bytes_to_number,
    bytes_to_time,
    double_to_bytes,
    number_to_bytes,
    restored,
    stored,
    time_to_bytes,
)

VARCHAR, NUMBER, INTEGER, LONG, DATE, RAW, LONG_RAW = 1, 2, 3, 8, 12, 23, 24
CHAR, BINARY_FLOAT, BINARY_DOUBLE, CLOB, BLOB, JSON = 96, 100, 101, 112, 113, 119
TIMESTAMP, TIMESTAMP_TZ, INTERVAL_DS, TIMESTAMP_LTZ, BOOLEAN = 180, 181, 183, 231, 252
LARGE = {CLOB, BLOB, JSON}
"""The driver asks for these in a second call, in which it says what it wants them as."""
NATIONAL = 2
TEXTS, NUMBERS, BYTES = {VARCHAR, CHAR, LONG}, {NUMBER, INTEGER}, {RAW, LONG_RAW}
TIMES = {DATE, TIMESTAMP, TIMESTAMP_TZ, TIMESTAMP_LTZ}
LONGEST_TEXT = 4000
"""Database Reference, "MAX_STRING_SIZE": 4000 bytes, unless a database was changed for good to EXTENDED."""
codec = thin_impl.ThinConnImpl()
"""Only for its form of JSON, OSON: it is connected to nothing."""


@dataclass(frozen=True, slots=True)
class Locator:
    """Names a LOB of this session."""

    data: bytes


Value = bytes | Locator | None
"""As PostgreSQL reads it."""


@dataclass(frozen=True, slots=True)
class Bind:
    """How the client sends the values of a bind, or wants those of a column."""

    type: int
    form: int = 0
    size: int = 0
    is_array: bool = False

    @property
    def is_long(self) -> bool:
        """Whether the driver sends its values after all others; a LOB's and JSON's sizes are not those of values."""
        return self.size > LONGEST_TEXT and self.type not in LARGE

    def read(self, reader: Reader) -> Value:
        if self.type in (CLOB, BLOB):
            found = reader.counted()
            return Locator(found) if found else None
        if self.type == JSON:
            return _read_json(reader)
        if self.type == BOOLEAN:
            return _read_boolean(reader)
        data = reader.chunks()
        return None if data is None else self._from(data)

    def _from(self, data: bytes) -> bytes:
        if self.type in TEXTS:
            return stored(data.decode("utf-16-be" if self.form == NATIONAL else "utf-8")).encode()
        if self.type in NUMBERS:
            return bytes_to_number(data).encode()
        if self.type in TIMES:
            return bytes_to_time(data).encode()
        if self.type in BYTES:
            return b"\\x" + data.hex().encode()
        if self.type in (BINARY_DOUBLE, BINARY_FLOAT):
            return repr(bytes_to_double(data)).encode()
        raise OracleError(3115, f"unsupported network data type or representation ({self.type})")


def _read_json(reader: Reader) -> bytes | None:
    if not reader.ub():
        return None
    reader.chunks()
    return json_text(codec.decode_oson(reader.chunks() or b"")).encode()


def _read_boolean(reader: Reader) -> bytes | None:
    first = reader.u8()
    if first == 253:
        reader.u8()
        return None
    return (b"true" if reader.raw(first)[0] == 1 else b"false") if first else None


def json_text(value: Any) -> str:
    """Text for PostgreSQL, with every digit. JSON of Oracle's has more scalars than JSON; they are not emulated."""
    if isinstance(value, str):
        return encode_basestring(stored(value))
    if isinstance(value, dict):
        pairs = (f"{encode_basestring(stored(key))}: {json_text(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(json_text, value))}]"
    if isinstance(value, Decimal | int | float) or value is None:
        return json.dumps(value) if isinstance(value, bool | None) else str(value)
    raise OracleError(3001, f"unimplemented feature: {type(value).__name__} in JSON")


def from_json_text(text: str) -> bytes:
    """OSON, for the client."""
    found = json.loads(text, parse_float=Decimal)
    value = _restored(found) if ESCAPE in text else found
    image = encoded(value) if isinstance(value, dict | list) else None
    packed: bytes = codec.encode_oson(value) if image is None else image
    return packed


def _restored(value: Any) -> Any:
    if isinstance(value, str):
        return restored(value)
    if isinstance(value, list):
        return [_restored(item) for item in value]
    if isinstance(value, dict):
        return {restored(key): _restored(item) for key, item in value.items()}
    return value


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a result, as it is described to the client."""

    name: str
    type: int
    form: int
    size: int
    """How many bytes it may have; never 0, which would say that it is always NULL."""
    precision: int = 0
    scale: int = 0

    def describe(self, writer: Writer, position: int) -> None:
        characters = self.size if self.form else 0
        writer.u8(self.type, 0x80, self.precision & 0xFF, self.scale & 0xFF)
        writer.ub(self.size, 0, 0, 0, 0, 873 if self.form else 0)
        writer.u8(self.form)
        writer.ub(characters, 0)
        writer.u8(1, min(len(self.name), 30))
        for text in (self.name, "", ""):
            writer.text(text)
        writer.ub(position, 0)
        writer.text("")
        writer.text("")
        writer.ub(0, 0)
        writer.u8(0, 0)


def column_of(name: str, type_: str, modifier: int) -> Column:
    """Of a column of PostgreSQL's, by the name of its type and what is said about its size."""
    if type_ in ("numeric", "int4", "int8", "int2", "oid"):
        if type_ == "numeric" and modifier >= 4:
            scale = (modifier - 4) & 0x7FF
            return Column(name, NUMBER, 0, 22, (modifier - 4) >> 16 & 0xFFFF, scale)
        return Column(name, NUMBER, 0, 22, 0, -127)
    if type_ == "timestamp":
        return Column(name, DATE, 0, 7) if modifier == 0 else Column(name, TIMESTAMP, 0, 11, 0, 6)
    known = KNOWN.get(type_)
    if known is None:
        raise OracleError(932, f"inconsistent datatypes: {type_} can't be sent to a client")
    return Column(name, *known)


KNOWN = {
    "text": (VARCHAR, 1, LONGEST_TEXT),
    "varchar": (VARCHAR, 1, LONGEST_TEXT),
    "name": (VARCHAR, 1, 128),
    "unknown": (VARCHAR, 1, LONGEST_TEXT),
    "bpchar": (CHAR, 1, 2000),
    "clob": (CLOB, 1, LONGEST_TEXT),
    "blob": (BLOB, 0, LONGEST_TEXT),
    "raw": (RAW, 0, 2000),
    "jsonb": (JSON, 0, LONGEST_TEXT),
    "bool": (BOOLEAN, 0, 4),
    "timestamptz": (TIMESTAMP_TZ, 0, 13),
    "float8": (BINARY_DOUBLE, 0, 8),
}


def parameter_types(named: dict[str, int]) -> dict[int, int]:
    """By the client's types: those of parameters. Texts have none, so that they fit where they stand."""
    return {
        **dict.fromkeys(TEXTS, 0),
        **dict.fromkeys(NUMBERS, named["numeric"]),
        DATE: named["timestamp"],
        TIMESTAMP: named["timestamp"],
        TIMESTAMP_TZ: named["timestamptz"],
        TIMESTAMP_LTZ: named["timestamptz"],
        RAW: named["raw"],
        LONG_RAW: named["blob"],
        CLOB: named["clob"],
        BLOB: named["blob"],
        JSON: named["jsonb"],
        BOOLEAN: named["bool"],
        BINARY_DOUBLE: named["float8"],
        BINARY_FLOAT: named["float8"],
    }


def write_value(writer: Writer, data: bytes | None, from_type: int, as_type: int) -> None:
    """A value that is no LOB, from PostgreSQL's text."""
    if data is None:
        writer.u8(0)
    elif from_type == BOOLEAN:
        writer.chunks(b"\1\1" if data == b"t" else b"\0")
    elif from_type == JSON and as_type == JSON:
        packed = from_json_text(data.decode())
        writer.ub(40, len(packed), 0)
        writer.chunks(packed)
        writer.chunks(bytes(40))
    else:
        writer.chunks(_wire(data, from_type, as_type))


def _wire(data: bytes, from_type: int, as_type: int) -> bytes:
    if from_type in (RAW, BLOB, LONG_RAW):
        return bytes.fromhex(data[2:].decode())
    if from_type in (VARCHAR, CHAR, CLOB, LONG, JSON):
        return _converted(restored(data.decode()), as_type)
    if as_type in TEXTS:
        return data
    if from_type == NUMBER:
        return number_to_bytes(data.decode())
    if from_type == BINARY_DOUBLE:
        return double_to_bytes(float(data))
    kinds = {DATE: "date", TIMESTAMP: "timestamp", TIMESTAMP_TZ: "timestamptz"}
    return time_to_bytes(data.decode(), kinds[from_type])


def _converted(text: str, as_type: int) -> bytes:
    """A text, or what a client wants it as: SQL Language Reference, "Implicit Data Conversion"."""
    if as_type in NUMBERS:
        try:
            return number_to_bytes(str(Decimal(text)))
        except ArithmeticError:
            raise OracleError(1722, "unable to convert string value to a number") from None
    return text.encode()
