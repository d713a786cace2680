"""How values reach Oracle Database: which of them the driver encodes, and which it has to be given otherwise."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from locus.memory.backends.oracle.oracle_flavour import JSONText

LONGEST_TEXT = 1_000
"""In bytes; see `input_sizes`."""
MOST_CONTAINERS = 24
"""How many objects and lists a JSON value has that the driver encodes; see `Textual`."""


class Rows(list[Sequence[Any]]):
    """Values for a statement that is carried out once for each of them, in one round trip."""


class Returned:
    """Stands for what a statement returns `INTO`; it becomes the statement's only row."""


class Native(NamedTuple):
    """What a JSON column is to hold, as a value: the driver encodes it."""

    value: Any


class Textual(str):
    """The same as text: the server parses it, from a temporary LOB.

    The driver's encoder takes a time that grows with the square of the number of objects and lists (7 s for 800),
    because its buffer grows by a chunk for each, needed or not.
    """

    __slots__ = ()


def prepared(value: Any) -> Any:
    """A value as it is bound, but for LOBs, which have to be made first."""
    if not isinstance(value, JSONText):
        return value
    if value.count("{") + value.count("[") > MOST_CONTAINERS:  # or they stand in a text
        found = json.loads(value)
        return Native(found) if has_at_most(found, MOST_CONTAINERS) else Textual(value)
    return Native(json.loads(value))


def has_at_most(value: Any, containers: int) -> bool:
    """Whether there are no more objects and lists in a JSON value."""
    waiting, count = [value], 0
    while waiting and count <= containers:
        found = waiting.pop()
        if isinstance(found, dict | list):
            count += 1
            waiting += found.values() if isinstance(found, dict) else found
    return count <= containers


Batch = tuple[str, list[list[Any]]]
"""A statement with the values of all rows that it is carried out for."""


def batches(text: str, rows: Sequence[Sequence[Any]]) -> list[Batch]:
    """The statement, once for all rows whose values are bound in the same way."""
    alike: dict[tuple[int, ...], list[list[Any]]] = {}
    for row in rows:
        values = [prepared(value) for value in row]
        textual = tuple(at for at, value in enumerate(values) if isinstance(value, Textual))
        alike.setdefault(textual, []).append(values)
    return [(_parsed(text, textual), group) for textual, group in alike.items()]


def _parsed(text: str, places: Sequence[int]) -> str:
    """The statement with JSON made of the text in these places."""
    for at in places:
        text = re.sub(rf":{at + 1}\b", f"JSON(:{at + 1})", text, count=1)
    return text


def input_sizes(rows: Sequence[Sequence[Any]], json_type: Any) -> list[Any]:
    """What the driver has to be told of the binds of a statement; None where it finds out by itself.

    It declares four times the bytes of a text, and what is declared with more than 4,000 is a LONG, which may not be
    compared (ORA-01461). If it is told a number of characters, it declares four bytes for each of those.
    """
    sizes: list[Any] = [json_type if isinstance(value, Native) else None for value in rows[0]]
    for row in rows:
        for at, value in enumerate(row):
            if type(value) is str and len(value) * 4 > LONGEST_TEXT:
                sizes[at] = max(sizes[at] or 0, len(value))
    return sizes
