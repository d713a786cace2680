"""Rules about the items of a store, without I/O: paths of namespaces, filters, and the ranking of searches.

A namespace is stored as a path, `users/123/`: each label is followed by a slash, and a slash or tilde in a label is
written as `~1` or `~0`. So labels are never ambiguous, and everything under `("us",)` begins with `us/`, which `user/`
does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.store.base import InvalidNamespaceError, MatchCondition

from locus.errors import ConfigurationError, InvalidIdError
from locus.memory.model.codec import encode, texts_in
from locus.memory.model.ids import check_text, words

LONGEST = 1_024
"""The most bytes of the path of a namespace, and of a key. Both together fit into an index of every database."""

Namespace = tuple[str, ...]

_NUMBERS = (int, float)


def path_of(namespace: Sequence[str]) -> str:
    """The path of a namespace. The path of a parent is a prefix of the paths of its children."""
    for label in namespace:
        if not isinstance(label, str) or not label:
            raise InvalidNamespaceError(f"a label of a namespace is text that is not empty, got {label!r:.40}")
    return _measured("".join(f"{label.replace('~', '~0').replace('/', '~1')}/" for label in namespace), "a namespace")


def namespace_of(path: str) -> Namespace:
    return tuple(label.replace("~1", "/").replace("~0", "~") for label in path.split("/")[:-1])


def end_of(path: str) -> str:
    """The first text after all texts that begin with this path."""
    return f"{path[:-1]}0"  # 0 is the character after /


def checked_key(key: str) -> str:
    if not isinstance(key, str):
        raise InvalidIdError(f"a key is text, got {type(key).__name__}: {key!r:.40}")
    return _measured(key, "a key")


def _measured(text: str, what: str) -> str:
    check_text(text, what)
    if len(text.encode()) > LONGEST:
        raise InvalidIdError(f"{what} may have {LONGEST} bytes, and this one has more: {text!r:.60}")
    return text


def matches_all(conditions: Sequence[MatchCondition], namespace: Namespace) -> bool:
    """Whether a namespace has all these prefixes and suffixes; `*` matches any label."""
    return all(_matches(condition, namespace) for condition in conditions)


def _matches(condition: MatchCondition, namespace: Namespace) -> bool:
    pattern = condition.path
    if condition.match_type not in ("prefix", "suffix"):
        raise ConfigurationError(f"namespaces match by prefix or suffix, not by {condition.match_type!r:.40}")
    if len(namespace) < len(pattern):
        return False
    part = namespace[: len(pattern)] if condition.match_type == "prefix" else namespace[len(namespace) - len(pattern) :]
    return all(wanted in ("*", label) for wanted, label in zip(pattern, part, strict=True))


def fixed_start(conditions: Sequence[MatchCondition]) -> Namespace:
    """The longest prefix without wildcards that every matching namespace has."""
    starts = [()] + [
        tuple(condition.path[: condition.path.index("*")] if "*" in condition.path else condition.path)
        for condition in conditions
        if condition.match_type == "prefix"
    ]
    return max(starts, key=len)


def passes(value: dict[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the value of an item passes a filter: under each key it has what the filter wants."""
    return all(_value_passes(value.get(key), inner) for key, inner in wanted.items())


def _value_passes(value: Any, wanted: Any) -> bool:
    """`wanted` is a plain value, a dict of operators, or a dict or list of such.

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
    """-1, 0 or 1, or None if the two cannot be compared."""
    for kind in (_NUMBERS, (str,)):
        if all(isinstance(one, kind) and not isinstance(one, bool) for one in (value, operand)):
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
    found = _OPERATORS.get(name)
    if found is None:
        raise ConfigurationError(f"a filter has the operators {', '.join(_OPERATORS)}, and not {name!r:.40}")
    return found


def _has_operators(wanted: Mapping[str, Any]) -> bool:
    return any(str(key).startswith("$") for key in wanted)


def check_filter(wanted: Any) -> None:
    """Refuse an invalid filter before anything is read."""
    if not isinstance(wanted, Mapping):
        raise ConfigurationError(f"a filter is a dict, got {type(wanted).__name__}: {wanted!r:.60}")
    encode(dict(wanted), ("filter",))
    for inner in wanted.values():
        _check_operators(inner)


def _check_operators(wanted: Any) -> None:
    if isinstance(wanted, Mapping) and _has_operators(wanted):
        for name in wanted:
            _operator(name)
    elif isinstance(wanted, Mapping | list | tuple):
        for inner in wanted.values() if isinstance(wanted, Mapping) else wanted:
            _check_operators(inner)


def plain_equals(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a filter that requires a key to equal a text, a number or a boolean."""
    asked = {key: inner.get("$eq") if isinstance(inner, Mapping) else inner for key, inner in wanted.items()}
    return {key: inner for key, inner in asked.items() if isinstance(inner, str | int | float)}


def score(terms: set[str], value: Any) -> float | None:
    """The fraction of the words that occur in a value; None if none of them does."""
    found = terms.intersection(word for text in texts_in(value) for word in words(text))
    return len(found) / len(terms) if found else None
