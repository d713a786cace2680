"""Parses JSON from clients, with a bound on the number of values.

The size of a text says little about its cost: 30 MB of `{}` become ten million objects. Values are therefore counted
while they are parsed, and parsing ends at the bound. The standard library's parser in C blocks all threads until it is
done. A text with many values is parsed by the one in Python instead, in a worker thread, so that the event loop and
other threads go on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from json import decoder
from typing import Any

from locus.memory.model.price import most_values_of
from locus.wire.problems import Problem

FEW_VALUES = 250_000
"""The most values that the parser in C gets. It takes a tenth of a second for them at most, and mostly much less."""

VALUE_BYTES = 100
"""About how many bytes of memory a value takes."""


_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORDS = {"n": ("null", None), "t": ("true", True), "f": ("false", False)}
_CONSTANTS = ("NaN", "Infinity", "-Infinity")
_text: Callable[[str, int, bool], tuple[Any, int]] = decoder.scanstring  # type: ignore[attr-defined]
_array: Callable[..., tuple[Any, int]] = decoder.JSONArray  # type: ignore[attr-defined]
_object: Callable[..., tuple[Any, int]] = decoder.JSONObject  # type: ignore[attr-defined]


class ValueCounter:
    """Parses the JSON texts of one request, and counts the values of all of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = most

    def parse(self, text: str) -> Any:
        """Parse a JSON text. Raises ValueError if it is none, and a problem if it has too many values."""
        bound = most_values_of(text)
        if bound <= min(FEW_VALUES, self._left):
            self._left -= bound
            return json.loads(text)
        reader: Any = json.JSONDecoder()
        reader.scan_once = self._scanner()
        return reader.decode(text)

    def _scanner(self) -> Callable[[str, int], tuple[Any, int]]:
        """A counting version of the standard library's `scan_once`, which parses the value at a position."""
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
