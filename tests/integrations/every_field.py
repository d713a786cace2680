"""Hypothesis strategies for the types of frameworks: fields may be missing, empty, or defaults."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
from collections import abc
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from typing_extensions import TypeAliasType, is_typeddict

Values = st.SearchStrategy[Any]

DEPTH = 4
"""How deep objects are nested in one another. Those at the end have their required fields only."""

FEW = settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
"""Each example is one round through a store; a missing field shows within a few."""

_TEXT = st.sampled_from(["", " ", "a", "é\n", "0"])
_PLAIN: dict[Any, Values] = {
    str: _TEXT,
    bool: st.booleans(),
    int: st.integers(0, 3),
    float: st.sampled_from([0.0, 0.5, 1.0]),
    bytes: st.sampled_from([b"", b"\x00\xff"]),
    datetime: st.sampled_from([datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=UTC)]),
    timedelta: st.sampled_from([timedelta(0), timedelta(seconds=1)]),
    type(None): st.none(),
}
JSON: Values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.just(0.5) | _TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=3,
)
_LISTS = (list, abc.Sequence, abc.Iterable, abc.MutableSequence, abc.Collection)
_DICTS = (dict, abc.Mapping, abc.MutableMapping)


@cache
def values(kind: Any, depth: int = DEPTH) -> Values:
    """Values of a type. Types that JSON has no values for, such as functions, have none."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind is Any or kind is object:
        return JSON
    if isinstance(kind, TypeAliasType):
        return values(kind.__value__, depth)
    if origin in (Annotated, Required, NotRequired):
        return values(args[0], depth)
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (Union, types.UnionType):
        return st.one_of([values(each, depth) for each in args])
    if kind in (*_LISTS, set) or origin in (*_LISTS, set, frozenset):
        inner = values(args[0], depth) if args else JSON
        some = st.just([]) if inner.is_empty else st.lists(inner, max_size=2 if depth > 0 else 0)
        return some.map(set) if set in (kind, origin) else some
    if kind in _DICTS or origin in _DICTS:
        inner = values(args[1], depth) if args else JSON
        return st.just({}) if inner.is_empty else st.dictionaries(_TEXT, inner, max_size=2 if depth > 0 else 0)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return st.sampled_from(list(kind))
    if isinstance(kind, type) and kind.__module__ != "builtins" and not issubclass(kind, abc.Callable):  # type: ignore[arg-type]
        return st.deferred(lambda: objects(kind, depth))
    return st.nothing()


def objects(kind: Any, depth: int = DEPTH, **given: Values) -> Values:
    """Objects of a class, with `given` in place of the values of some fields.

    It is a Pydantic model, a dataclass, a typed dict, or a class whose `__init__` has annotations.
    """
    fields = _fields(kind)
    required = {name: values(inner, depth - 1) for name, (inner, needed) in fields.items() if needed}
    optional = {name: values(inner, depth - 1) for name, (inner, needed) in fields.items() if not needed and depth > 0}
    optional = {name: strategy for name, strategy in optional.items() if not strategy.is_empty} | given
    required = {name: given.get(name, strategy) for name, strategy in required.items()}
    some = st.fixed_dictionaries(
        required, optional={name: strategy for name, strategy in optional.items() if name not in required}
    )
    return some.map(lambda chosen: _made(kind, chosen)).filter(lambda made: made is not None)


def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """By name, the type of each field, and whether it has to be given."""
    if issubclass(kind, BaseModel):
        return {name: (field.annotation, field.is_required()) for name, field in kind.model_fields.items()}
    hints = get_type_hints(kind, include_extras=True)
    if is_typeddict(kind):
        return {name: (hint, name in kind.__required_keys__) for name, hint in hints.items()}
    parameters = inspect.signature(kind).parameters
    hints = hints if dataclasses.is_dataclass(kind) else get_type_hints(kind.__init__, include_extras=True)
    return {
        name: (hints[name], parameter.default is parameter.empty)
        for name, parameter in parameters.items()
        if name in hints and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }


def _made(kind: Any, chosen: dict[str, Any]) -> Any:
    """An object with these fields; None if the type refuses them together."""
    try:
        return kind(**chosen)
    except (ValidationError, ValueError, TypeError):
        return None
