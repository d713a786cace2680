"""Remembers values that were decoded from texts, so that the same text need not be decoded again.

A graph gets objects of its own each time, because it may change them. So what is kept here is never given out: it is
copied, which takes a third of the time of decoding. A text stands for one value, whichever checkpoint it is from.
Values of types that cannot be copied with certainty are decoded each time.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from pydantic import BaseModel

from locus.integrations.langgraph.codec import TypedCodec
from locus.integrations.langgraph.items import ATOMS
from locus.threads.blocking import fork_safe_lock

MOST_CHARACTERS: Final = 50_000_000
"""How long all texts together may be. Their values take about twice as many bytes."""

_SHARED: Final = ATOMS | {datetime.datetime, datetime.date, datetime.time, datetime.timedelta, Decimal}
"""Types whose instances cannot be changed, so that a copy may be the object itself."""

_set = object.__setattr__

Copy = Callable[[], Any]
"""Makes one more copy of a value."""


class DecodedTexts:
    """The values of texts that a codec has decoded. The oldest are dropped first."""

    def __init__(self, codec: TypedCodec) -> None:
        self._codec = codec
        self._changes = codec.changes
        self._copies: dict[str, Copy | None] = {}
        """None for a value that cannot be copied."""
        self._weight = 0
        self._lock = fork_safe_lock()  # a saver may be used from several OS threads and event loops at once

    def value(self, text: str, decode: Callable[[], Any]) -> Any:
        """The value of a text. `decode` decodes it if that has not been done."""
        if self._changes != self._codec.changes:  # the same name may stand for another class
            with self._lock:
                self._changes = self._codec.changes
                self._copies, self._weight = {}, 0
        copies = self._copies
        copy = copies.get(text)  # without the lock: a long thread asks thousands of times
        if copy is not None:
            return copy()
        value = decode()
        if text not in copies:
            self._keep(text, _copier(value), copies)
        return value

    def _keep(self, text: str, copy: Copy | None, copies: dict[str, Copy | None]) -> None:
        with self._lock:
            if copies is not self._copies or text in copies:
                return  # types were added in the meantime, or somebody else was faster
            copies[text] = copy
            self._weight += len(text)
            while self._weight > MOST_CHARACTERS:
                oldest = next(iter(copies))
                del copies[oldest]
                self._weight -= len(oldest)


class _NoCopyError(Exception):
    """A value is of a type that is not known well enough to be copied."""


def _copier(value: Any) -> Copy | None:
    """A function that makes copies of a value as it is now; None if that cannot be done."""
    try:
        return _copy_of(value)
    except (_NoCopyError, RecursionError):
        return None


def _copy_of(value: Any) -> Copy:
    kind = type(value)
    if kind in _SHARED:
        return lambda: value
    if kind is list:
        if not value:
            return list
        items = [_copy_of(item) for item in value]
        return lambda: [copy() for copy in items]
    if kind is dict:
        if not value:
            return dict
        return _dict_copy(value)
    if issubclass(kind, BaseModel) and not kind.__private_attributes__ and value.__pydantic_private__ is None:
        return _model_copy(value)
    raise _NoCopyError


def _dict_copy(value: dict[Any, Any]) -> Copy:
    if not _SHARED.issuperset(map(type, value)):
        raise _NoCopyError
    kept = value.copy()
    inner = [(name, _copy_of(item)) for name, item in value.items() if type(item) not in _SHARED]
    if not inner:
        return kept.copy

    def copy() -> dict[Any, Any]:
        copied = kept.copy()
        for name, make in inner:
            copied[name] = make()
        return copied

    for name, _ in inner:
        kept[name] = None
    return copy


def _model_copy(model: BaseModel) -> Copy:
    kind, values, extra = type(model), _dict_copy(model.__dict__), model.__pydantic_extra__
    given = set(model.__pydantic_fields_set__)
    more = None if extra is None else _copy_of(extra)
    new, set_attribute = object.__new__, _set

    def copy() -> BaseModel:
        made = new(kind)
        set_attribute(made, "__dict__", values())
        set_attribute(made, "__pydantic_fields_set__", given.copy())
        set_attribute(made, "__pydantic_extra__", None if more is None else more())
        set_attribute(made, "__pydantic_private__", None)
        return made

    return copy
