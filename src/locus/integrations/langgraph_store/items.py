"""What a store of LangGraph's has to decide about its items, without I/O: where they are, and which are meant.

A namespace is kept as the path `users/123/`: each label with a slash behind it, and `~1` and `~0` for a slash and a
tilde in a label. So no label can be taken for two, and all under `("us",)` begins with `us/`, where `user/` does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.store.base import InvalidNamespaceError, MatchCondition

from locus.errors import ConfigurationError, InvalidIdError
from locus.memory.model.codec import encode, texts_in
from locus.memory.model.ids import check_text, words

LONGEST = 1_024
"""How many bytes a namespace may have as a path, and a key: both together fit into an index of every database."""

Namespace = tuple[str, ...]

_NUMBERS = (int, float)


def path_of(namespace: Sequence[str]) -> str:
    """A namespace as text; one that begins another one's text is above it."""
    for label in namespace:
        if not isinstance(label, str) or not label:
            raise InvalidNamespaceError(f"a label of a namespace is text that is not empty, got {label!r:.40}")
    return _measured("".join(f"{label.replace('~', '~0').replace('/', '~1')}/" for label in namespace), "a namespace")


def namespace_of(path: str) -> Namespace:
    return tuple(label.replace("~1", "/").replace("~0", "~") for label in path.split("/")[:-1])


def end_of(path: str) -> str:
    """The first text that comes after everything that begins with this path."""
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


def is_meant(conditions: Sequence[MatchCondition], namespace: Namespace) -> bool:
    """Whether a namespace has the beginnings and ends that are asked for; `*` stands for any label."""
    return all(_fits(condition, namespace) for condition in conditions)


def _fits(condition: MatchCondition, namespace: Namespace) -> bool:
    pattern = condition.path
    if condition.match_type not in ("prefix", "suffix"):
        raise ConfigurationError(f"namespaces match by prefix or suffix, not by {condition.match_type!r:.40}")
    if len(namespace) < len(pattern):
        return False
    part = namespace[: len(pattern)] if condition.match_type == "prefix" else namespace[len(namespace) - len(pattern) :]
    return all(wanted in ("*", label) for wanted, label in zip(pattern, part, strict=True))


def fixed_start(conditions: Sequence[MatchCondition]) -> Namespace:
    """The longest beginning that every namespace that is meant must have."""
    starts = [()] + [
        tuple(condition.path[: condition.path.index("*")] if "*" in condition.path else condition.path)
        for condition in conditions
        if condition.match_type == "prefix"
    ]
    return max(starts, key=len)


def passes(value: dict[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether an item's value has under each key of a filter what that wants."""
    return all(_is_wanted(value.get(key), inner) for key, inner in wanted.items())


def _is_wanted(value: Any, wanted: Any) -> bool:
    """A plain value, operators, or a dict or list of such.

    Numbers equal numbers and nothing else (`1` is `1.0`, and not `True`); what is not there equals `None`. Numbers are
    compared with numbers, and texts with texts; nothing else is greater or less than anything.
    """
    if isinstance(wanted, Mapping):
        if _has_operators(wanted):
            return all(_operator(name)(value, operand) for name, operand in wanted.items())
        return isinstance(value, dict) and passes(value, wanted)
    if isinstance(wanted, list | tuple):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(_is_wanted, value, wanted))
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
    """-1, 0 or 1, or None for what cannot be compared."""
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
    """Refuse a filter that nothing could be compared with, before anything is read."""
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
    """What of a filter asks for a text, a number or a truth value under a key, and nothing less."""
    asked = {key: inner.get("$eq") if isinstance(inner, Mapping) else inner for key, inner in wanted.items()}
    return {key: inner for key, inner in asked.items() if isinstance(inner, str | int | float)}


def score(terms: set[str], value: Any) -> float | None:
    """Which part of the words are somewhere in a value; None if there are none."""
    found = terms.intersection(word for text in texts_in(value) for word in words(text))
    return len(found) / len(terms) if found else None
