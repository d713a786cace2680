"""Large values of pending writes are packed: what a task wrote stands in the next checkpoint once more.

zlib is part of Python, so every installation can read it, and what it writes will be readable as long as there is
Python. A value that is small, or huge, or that hardly shrinks, stays JSON that a person can read.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from locus.errors import CorruptCheckpointError
from locus.memory.backends.sql.flavour import Flavour

SMALLEST, LARGEST = 256, 262_144
"""In characters. An event loop would have to wait for larger ones, which PostgreSQL packs by itself."""
LEVEL = 6
"""A twentieth smaller than with level 1, for some hundredths of a millisecond a value."""


def packed(text: str) -> bytes | None:
    """The text in less than three quarters of its bytes, or None."""
    if not SMALLEST <= len(text) <= LARGEST:
        return None
    plain = text.encode()
    found = zlib.compress(plain, LEVEL)
    return found if len(found) * 4 < len(plain) * 3 else None


def unpacked(data: bytes) -> str:
    try:
        return zlib.decompress(data).decode()
    except (zlib.error, ValueError) as error:
        raise CorruptCheckpointError(f"a pending write cannot be unpacked: {error}") from error


class PackingFlavour(Flavour):
    """A database whose JSON columns hold nothing but JSON: what is packed has a column of its own."""

    def write_columns(self, of: str = "") -> str:
        return f"{self.json_column(f'{of}value')}, {of}packed"

    def write_values(self, text: str) -> tuple[Any, ...]:
        data = packed(text)
        return (self.json(text), None) if data is None else (None, data)

    def read_write(self, columns: Sequence[Any]) -> str:
        value, data = columns
        return self.read_json(value) if data is None else unpacked(data)
