"""JSON from clients, with a bound on the number of its values.

The size of a text says little about its cost: 30 MB of `{}` become ten million objects. So values are counted while
they are read, and reading ends at the bound. The reader of the standard library that is written in C holds the
interpreter until it is done, so a text with many values is read by the one that is written in Python: in a worker
thread it leaves other threads their turn, the event loop among them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from json import decoder
from typing import Any

from locus.wire.problems import Problem

FEW_VALUES = 250_000
"""So many values are read at once, in a tenth of a second at most, and mostly much faster."""

VALUE_BYTES = 100
"""About what a value takes in memory."""


def most_values_of(text: str) -> int:
    """An upper bound: each value but the first follows a comma or a bracket. Those in texts are counted, too."""
    return 1 + text.count(",") + text.count("[") + text.count("{")


_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORDS = {"n": ("null", None), "t": ("true", True), "f": ("false", False)}
_CONSTANTS = ("NaN", "Infinity", "-Infinity")
_text: Callable[[str, int, bool], tuple[Any, int]] = decoder.scanstring  # type: ignore[attr-defined]
_array: Callable[..., tuple[Any, int]] = decoder.JSONArray  # type: ignore[attr-defined]
_object: Callable[..., tuple[Any, int]] = decoder.JSONObject  # type: ignore[attr-defined]


class ValueCounter:
    """Reads the JSON texts of one request, and counts their values together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = most

    def parse(self, text: str) -> Any:
        """The value of a text. Raises `ValueError` if it is no JSON, and a problem if it has too many values."""
        bound = most_values_of(text)
        if bound <= min(FEW_VALUES, self._left):
            self._left -= bound
            return json.loads(text)
        reader: Any = json.JSONDecoder()
        reader.scan_once = self._scanner()
        return reader.decode(text)

    def _scanner(self) -> Callable[[str, int], tuple[Any, int]]:
        """What reads the value at a place. As the standard library's, which also reads what is inside of it."""
        keys: dict[str, str] = {}

        def scan(text: str, at: int) -> tuple[Any, int]:
            self._left -= 1
            if self._left < 0:
                raise Problem(413, "too_many_values", f"a body has at most {self._most} values here: send less at once")
            first = text[at : at + 1]
            if first == '"':
                return _text(text, at + 1, True)
            if first == "{":
                return _object((text, at + 1), True, scan, None, None, keys)
            if first == "[":
                return _array((text, at + 1), scan)
            if first in _WORDS and text.startswith(_WORDS[first][0], at):
                word, value = _WORDS[first]
                return value, at + len(word)
            if number := _NUMBER.match(text, at):
                whole, fraction, exponent = number.groups()
                is_float = fraction or exponent
                return float(number[0]) if is_float else int(whole), number.end()
            for constant in _CONSTANTS:
                if text.startswith(constant, at):
                    return float(constant), at + len(constant)
            raise StopIteration(at)

        return scan
