"""How Pydantic models are written in a checkpoint, LangChain's messages among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from locus.integrations.langgraph.codec import RefusedError, TypedCodec, missing_field

UNSET, EXTRA, PRIVATE = "$unset", "$extra", "$private"
_EMPTY = (dict, list)
_NESTED = (dict, list)
_ATOMS = (str, int, float, bytes, type(None))
_set = object.__setattr__


class ModelKind:
    """How models of exactly one class are written. Fields that nobody has set, and that are as they are by default, are
    left out."""

    def __init__(self, codec: TypedCodec, kind: type[BaseModel]) -> None:
        self._codec = codec
        self._kind = kind
        fields = self._fields = kind.model_fields
        self._with_extra = kind.model_config.get("extra") == "allow"
        self._private = bool(kind.__private_attributes__)
        self._required = [name for name, info in fields.items() if info.is_required()]
        self._plain = {name: None if info.default_factory else info.default for name, info in fields.items()}
        self._made_anew = {
            name: _maker(info) for name, info in fields.items() if not (info.is_required() or _immutable(info))
        }

    def write(self, model: BaseModel) -> dict[str, Any]:
        given, values = model.__pydantic_fields_set__, model.__dict__
        # In the order of the class, so that a model that was loaded is written as it was before.
        shown = {
            name: values[name]
            for name, info in self._fields.items()
            if name in values and (name in given or not _is_default(values[name], info))
        }
        written = self._codec.write_fields(shown)
        unset = shown.keys() - given
        if unset:
            written[UNSET] = sorted(unset)
        if model.__pydantic_extra__:
            written[EXTRA] = self._codec.write(model.__pydantic_extra__)
        if model.__pydantic_private__:
            written[PRIVATE] = self._codec.write(model.__pydantic_private__)
        return written

    def read(self, stored: Mapping[str, Any]) -> BaseModel:
        read, kind = self._codec.read, self._kind
        values = self._values(stored)
        found = values.keys() - set(stored[UNSET]) if UNSET in stored else set(values)
        if len(values) < len(self._fields):
            values = self._completed(values)
        extra = (read(stored[EXTRA]) if EXTRA in stored else {}) if self._with_extra else None
        made = kind.__new__(kind)
        _set(made, "__dict__", values)
        _set(made, "__pydantic_fields_set__", found)
        _set(made, "__pydantic_extra__", extra)
        _set(made, "__pydantic_private__", _private(kind, read(stored.get(PRIVATE, {}))) if self._private else None)
        return made

    def _values(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        name, fields, read = "", self._fields, self._codec.read
        try:
            for name, value in stored.items():
                if name in fields:
                    values[name] = read(value) if isinstance(value, _NESTED) else value
        except RefusedError as refused:
            raise refused.inside(name) from refused.__cause__
        return values

    def _completed(self, values: dict[str, Any]) -> dict[str, Any]:
        """With the defaults of the fields that are not there, all in the order of the class."""
        for name in self._required:
            if name not in values:
                raise missing_field(self._kind, name)
        whole = self._plain | values
        for name, make in self._made_anew.items():
            if name not in values:
                whole[name] = make()
        return whole


def _private(kind: type[BaseModel], found: Mapping[str, Any]) -> dict[str, Any]:
    known = kind.__private_attributes__.items()
    return {name: found[name] if name in found else info.get_default() for name, info in known}


def _immutable(info: FieldInfo) -> bool:
    return info.default_factory is None and isinstance(info.default, _ATOMS)


def _maker(info: FieldInfo) -> Callable[[], Any]:
    """Gives a default that belongs to nobody else."""
    if info.default_factory in _EMPTY:
        return info.default_factory
    return lambda: info.get_default(call_default_factory=True, validated_data={})


def _is_default(value: Any, info: FieldInfo) -> bool:
    """Whether it goes without saying that a field has this value."""
    if info.default_factory is not None:
        return type(value) in _EMPTY and not value and info.default_factory is type(value)
    return value is info.default or (type(value) is str and type(info.default) is str and value == info.default)
