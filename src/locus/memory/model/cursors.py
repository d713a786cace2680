"""Cursors: short texts that say where a list of the newest threads goes on. Only the engine that made one reads it.

It comes back from callers, and from clients of a server, so it is checked like everything else that they send. It only
says where to go on: whoever makes up one of his own sees nothing else than he would have seen without it.
"""

from __future__ import annotations

import re

from locus.errors import ConfigurationError
from locus.memory.model.ids import MAX_ID_LENGTH, check_text

MAX_LENGTH = MAX_ID_LENGTH + 64
_NUMBER = re.compile(r"[0-9]{1,18}")


class ForeignCursorError(ConfigurationError):
    """A cursor that this store has not made."""

    def __init__(self) -> None:
        super().__init__("before is `next` of an earlier answer of this store; without it, the newest come first")


def cursor_of(*parts: int | str) -> str:
    """Make a cursor of numbers from 0 on, with a text at the end if there is one."""
    return ":".join(map(str, parts))


def numbers_in(cursor: str, count: int) -> list[int]:
    """Read the numbers of a cursor that has nothing else."""
    numbers, rest = parts_of(cursor, count)
    if rest:
        raise ForeignCursorError
    return numbers


def parts_of(cursor: str, count: int) -> tuple[list[int], str]:
    """Read the numbers of a cursor, and the text at its end."""
    parts = cursor.split(":", count)
    numbers = parts[:count]
    if len(numbers) < count or not all(_NUMBER.fullmatch(number) for number in numbers):
        raise ForeignCursorError
    return [int(number) for number in numbers], parts[count] if len(parts) > count else ""


def check_cursor(cursor: object) -> str | None:
    """Refuse a value that no store can have given out as a cursor. None is allowed: it means the first page."""
    if cursor is None:
        return None
    if not isinstance(cursor, str) or not 0 < len(cursor) <= MAX_LENGTH:
        raise ForeignCursorError
    check_text(cursor, "before")
    return cursor
