"""The JSON text of one item of a state's list: a message, a tool execution, or any plain value."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any

from pydantic import BaseModel

from locus.core.frozen import Items, is_ours, trusted
from locus.memory.model.codec import encode


def item_text(item: object, path: tuple[str | int, ...], sort_keys: bool = False) -> str:
    """One item of a state's list as JSON text; fields at their defaults are left out.

    A user's subclass comes back as its base class, so all of its fields are written.
    """
    if is_ours(item) and trusted(item):
        item = _plain(item)
    elif isinstance(item, BaseModel):
        item = item.model_dump(serialize_as_any=True)
    return encode(item, path, sort_keys=sort_keys)


def _plain(model: BaseModel) -> dict[str, Any]:
    """A built-in model as a dict, without fields at their defaults.

    `model_dump` would turn an object in a metadata dict into something that JSON can hold; here it stays, and
    is refused.
    """
    plain: dict[str, Any] = {}
    for name, default in _defaults(type(model)):
        value = getattr(model, name)
        if value is default or value == default:
            continue
        plain[name] = value if type(value) is str else _plain_value(value)
    return plain | model.__pydantic_extra__ if model.__pydantic_extra__ else plain


def _plain_value(value: Any) -> Any:
    if isinstance(value, Items):
        return [_plain(inner) if is_ours(inner) else inner for inner in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value.value if isinstance(value, Enum) else value


@cache
def _defaults(kind: type[BaseModel]) -> list[tuple[str, Any]]:
    """The fields of a built-in model. There are only a few such classes, so the cache stays small."""
    return [(name, field_info.default) for name, field_info in kind.model_fields.items()]
