"""Filters over the values of items: a plain value, or a dict of operators, under each key.

The operators are LangGraph's: `$eq`, `$ne`, `$gt`, `$gte`, `$lt` and `$lte`. A key stands for itself, or, if the value
has no such key, for the keys between its dots: `"user.name"`. Filters are applied in Python, so that one means the same
on every store, and nothing of it is ever part of a statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from locus.errors import ConfigurationError
from locus.memory.model.codec import MAX_DEPTH, encode

_NUMBERS = (int, float)


def passes(value: Any, wanted: Mapping[str, Any]) -> bool:
    """Whether the value of an item passes a filter: under each key it has what the filter wants."""
    return all(_value_passes(value_at(value, key), inner) for key, inner in wanted.items())


def value_at(value: Any, path: str) -> Any:
    """What a value has under a key, or under the keys between its dots; None if it has nothing there.

    In a list, a number is the place of an item.
    """
    if not isinstance(value, dict):
        return None
    if path in value or "." not in path:
        return value.get(path)
    for key in path.split("."):
        if isinstance(value, list) and key.isascii() and key.isdigit() and int(key[:9]) < len(value):
            value = value[int(key[:9])]
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


def check_filter(wanted: Any) -> None:
    """Refuse an invalid filter before anything is read."""
    if not isinstance(wanted, Mapping):
        raise ConfigurationError(f"a filter is a dict, got {type(wanted).__name__}: {wanted!r:.60}")
    _check(dict(wanted), 0)


def plain_equals(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The conditions of a filter that require a text, a number or a boolean under a key that cannot be a path.

    Those are what a database can check.
    """
    equals = {key: inner.get("$eq") if isinstance(inner, Mapping) else inner for key, inner in wanted.items()}
    return {
        key: inner
        for key, inner in equals.items()
        if "." not in key and isinstance(inner, str | int | float) and inner not in _INFINITE
    }


_INFINITE = (float("inf"), float("-inf"))


def _value_passes(value: Any, wanted: Any) -> bool:
    """Whether a value fulfils one condition of a filter: a plain value, a dict of operators, or a structure of these.

    Numbers equal only numbers (`1` is `1.0`, but not `True`); a missing value equals `None`. Only numbers can be
    greater or less than numbers, and texts than texts.
    """
    if isinstance(wanted, Mapping):
        if _has_operators(wanted):
            return all(_operator(name)(value, operand) for name, operand in wanted.items())
        return isinstance(value, dict) and passes(value, wanted)
    if isinstance(wanted, list | tuple):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(_value_passes, value, wanted))
    return _equal(value, wanted)


def _equal(value: Any, wanted: Any) -> bool:
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    if isinstance(wanted, Mapping):
        same = isinstance(value, dict) and value.keys() == wanted.keys()
        return same and all(_equal(value[key], inner) for key, inner in wanted.items())
    if isinstance(wanted, list | tuple):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(_equal, value, wanted))
    return bool(value == wanted)


def _order(value: Any, operand: Any) -> int | None:
    """Compare two values: -1, 0 or 1; None if they cannot be compared."""
    for kind in (_NUMBERS, (str,)):
        if all(isinstance(side, kind) and not isinstance(side, bool) for side in (value, operand)):
            return int(value > operand) - int(value < operand)
    return None


_OPERATORS = {
    "$eq": _equal,
    "$ne": lambda value, operand: not _equal(value, operand),
    "$gt": lambda value, operand: _order(value, operand) == 1,
    "$gte": lambda value, operand: _order(value, operand) in (0, 1),
    "$lt": lambda value, operand: _order(value, operand) == -1,
    "$lte": lambda value, operand: _order(value, operand) in (0, -1),
}


def _operator(name: Any) -> Any:
    operator = _OPERATORS.get(name)
    if operator is None:
        raise ConfigurationError(f"a filter has the operators {', '.join(_OPERATORS)}, and not {name!r:.40}")
    return operator


def _has_operators(wanted: Mapping[str, Any]) -> bool:
    return any(str(key).startswith("$") for key in wanted)


def _check(wanted: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ConfigurationError(f"a filter is at most {MAX_DEPTH} levels deep")
    if isinstance(wanted, Mapping):
        if depth and _has_operators(wanted):
            for name in wanted:
                _operator(name)
        for key, inner in wanted.items():
            encode({key: None}, ("filter",))
            _check(inner, depth + 1)
    elif isinstance(wanted, list | tuple):
        for inner in wanted:
            _check(inner, depth + 1)
    elif not isinstance(wanted, float) or isfinite(wanted):
        encode(wanted, ("filter",))
