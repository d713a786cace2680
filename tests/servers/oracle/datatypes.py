"""Data types: SQL Language Reference, "Data Types"."""

from __future__ import annotations

from tests.servers.oracle.parser import Parser
from tests.servers.oracle.types import LONGEST_TEXT

LONGEST_RAW = 2000
SIMPLE = {
    "CLOB": "oracle_sys.clob",
    "NCLOB": "oracle_sys.clob",
    "BLOB": "oracle_sys.blob",
    "JSON": "jsonb",
    "BOOLEAN": "boolean",
    "BINARY_DOUBLE": "float8",
    "BINARY_FLOAT": "float4",
    "DATE": "timestamp(0)",
    "INTEGER": "numeric(38)",
    "INT": "numeric(38)",
    "SMALLINT": "numeric(38)",
    "REAL": "numeric",
}


class DataTypes(Parser):
    checks: list[str]
    """What a column of the type that was read last must fulfil besides, with {} for its value."""

    def data_type(self) -> str:
        self.checks = []
        token = self.token
        if token.kind != "word":
            raise self.wrong(902, "invalid datatype")
        word = self.take().text
        if word in SIMPLE:
            return SIMPLE[word]
        if word in ("VARCHAR2", "NVARCHAR2", "VARCHAR"):
            return self._characters(word)
        if word in ("CHAR", "NCHAR"):
            size = self._size() if self.see("(") else 1
            return f"character({size})"
        if word in ("NUMBER", "NUMERIC", "DECIMAL", "DEC", "FLOAT"):
            return self._number_type(word)
        if word == "RAW":
            size = self._size()
            if size > LONGEST_RAW:
                raise self.wrong(910, "specified length too long for its datatype")
            self.checks.append(f"oracle_sys.fits({{}}, {size}, '{{}}')")
            return "oracle_sys.raw"
        if word == "TIMESTAMP":
            return self._timestamp()
        if word == "INTERVAL":
            return self._interval()
        self._at -= 1
        raise self.wrong(902, "invalid datatype")

    def _size(self) -> int:
        self.expect("(")
        size = self.whole_number()
        self.one_of("BYTE", "CHAR")
        self.expect(")")
        return size

    def _characters(self, word: str) -> str:
        """The length is of bytes unless CHAR is said: "VARCHAR2 Data Type"."""
        if not self.see("("):
            raise self.wrong(906, "missing left parenthesis")
        in_characters = self.ahead(2).is_("CHAR") or word == "NVARCHAR2"
        size = self._size()
        if not size:
            raise self.wrong(1723, "zero-length columns are not allowed")
        if size > LONGEST_TEXT:
            raise self.wrong(910, "specified length too long for its datatype")
        self.checks.append(f"oracle_sys.fits{'_characters' if in_characters else ''}({{}}, {size}, '{{}}')")
        return "text"

    def _number_type(self, word: str) -> str:
        if not self.accept("("):
            return "numeric"
        precision = 38 if self.accept("*") else self.whole_number()
        scale = 0
        if self.accept(","):
            sign = -1 if self.accept("-") else 1
            scale = sign * self.whole_number()
        self.expect(")")
        if not 1 <= precision <= 38 and word != "FLOAT":
            raise self.wrong(1727, "numeric precision specifier is out of range (1 to 38)")
        return "numeric" if word == "FLOAT" else f"numeric({precision}, {scale})"

    def _timestamp(self) -> str:
        digits = self._size() if self.see("(") else 6
        if digits > 9:
            raise self.wrong(30088, "datetime/interval precision is out of range")
        zoned = self.accept("WITH", "TIME", "ZONE") or self.accept("WITH", "LOCAL", "TIME", "ZONE")
        return f"timestamp{'tz' if zoned else ''}({min(digits, 6) or 1})"

    def _interval(self) -> str:
        for word in ("DAY", "TO", "SECOND"):
            if self.see("("):
                self._size()
            self.expect(word)
        if self.see("("):
            self._size()
        return "interval"
