"""How instances of classes are written in a checkpoint: LangChain's, LangGraph's, and those that the user allows.

    {"$type": "my_app.Ticket", "number": 7, "$unset": ["number"], "$extra": {"note": "x"}}

An instance is created from its stored fields, without calling `__new__`, `__init__`, a validator or a setter. A field
that was added to the class since then gets its default. A field that was removed from a model is ignored. A stored name
never hides a method of the class.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from enum import KEEP, Enum, Flag
from functools import partial, partialmethod, singledispatchmethod
from pathlib import Path
from types import MemberDescriptorType
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typing_extensions import is_typeddict

from locus.errors import ConfigurationError, SerializationError
from locus.integrations.langgraph.codec import (
    TAG,
    ReadValue,
    RefusedError,
    TypedCodec,
    WriteValue,
    class_name,
    missing_field,
    text_of,
)
from locus.integrations.langgraph.standard_types import add_numpy, factory_name, factory_of, standard_kinds

_WRAPPED = (str, int, float, bytes, list, dict, set, frozenset, tuple)
"""Built-in types whose subclasses are written like the type itself."""

_IMMUTABLE, _ON_HEAP = 1 << 8, 1 << 9


def typed_codec(allowed: Iterable[type] = (), stored_names: Mapping[str, type] | None = None) -> TypedCodec:
    """A codec for the types that are always allowed, and for these classes.

    `stored_names` are classes that had other names when their instances were stored, by those names.
    """
    codec = TypedCodec()
    for name, types, write, read in standard_kinds(codec):
        codec.add(name, types, write, read)
    add_numpy(codec)
    for kind in _always_allowed():
        codec.add(kind.__name__.lstrip("_"), (kind,), *class_kind(codec, kind))
    for kind in langchain_data():
        codec.add(class_name(kind), (kind,), *class_kind(codec, kind))
    aliases = stored_names or {}
    for name, kind in aliases.items():
        if not isinstance(name, str) or not isinstance(kind, type) or is_typeddict(kind):
            raise ConfigurationError(
                "a mapping in allowed_types has classes by their stored names, {'my_app.Ticket': Ticket}, not "
                f"{name!r:.80}: {kind!r:.80}"
            )
    for kind in (*allowed, *aliases.values()):
        if not isinstance(kind, type):
            raise ConfigurationError(f"allowed_types takes classes, not {kind!r:.80}")
        if not codec.knows(kind):
            codec.add(class_name(kind), (kind,), *class_kind(codec, kind))
            _read_by_script_name(codec, kind)
    for name, kind in aliases.items():
        if name != class_name(kind):
            codec.add_alias(name, kind)
    codec.add_found(lambda value: _declared_name(codec, value), lambda value: class_kind(codec, type(value))[0](value))
    return codec


def _read_by_script_name(codec: TypedCodec, kind: type) -> None:
    """Also read instances of a class of the script that is running by the name that it has if the script is imported.

    So a script can load what a program that imports it has saved, such as `locus import`.
    """
    main = sys.modules.get("__main__")
    if kind.__module__ != "__main__" or main is None:
        return
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    module = spec.name if spec is not None else Path(file).stem if file else None
    name = f"{module}.{kind.__qualname__}"
    if module is not None and not codec.reads(name):
        codec.add_alias(name, kind)


def _declared_name(codec: TypedCodec, value: Any) -> str | None:
    """The tag of an instance whose class has given way to another one of the same name. It can still be written."""
    name = class_name(type(value))
    return name if codec.declares(name) else None


def declare(codec: TypedCodec, kinds: Iterable[type]) -> None:
    """Allow classes that a graph declares, except for those that cannot be kept, or are allowed already."""
    for kind in kinds:
        if not codec.knows(kind):
            with suppress(ConfigurationError):
                codec.add_declared(class_name(kind), kind, *class_kind(codec, kind))
                if codec.knows(kind):  # unless another class has its name
                    _read_by_script_name(codec, kind)


def refused_types(allowing: TypedCodec, values: Iterable[Any]) -> list[str]:
    """The names of all types in these values that a codec does not allow, nested ones included."""
    refused: dict[str, None] = {}
    writers: dict[type, WriteValue] = {}
    codec = typed_codec()
    declare(codec, allowing.types)

    def note(value: Any) -> str:
        refused[class_name(type(value))] = None
        return ""

    def look_into(value: Any) -> dict[str, Any]:
        kind = type(value)
        if kind not in writers:
            writers[kind] = lambda _value: {}
            with suppress(ConfigurationError):
                writers[kind] = class_kind(codec, kind)[0]
        return writers[kind](value)

    codec.add_found(note, look_into)
    for value in values:
        with suppress(SerializationError):  # what else is wrong with it has been said, or will be
            codec.encode(value)
    return list(refused)


def _always_allowed() -> Iterator[type]:
    """Data classes of LangChain and LangGraph. Creating one has no side effects."""
    from langchain_core import documents, messages
    from langchain_core.messages.base import TextAccessor
    from langgraph.checkpoint.serde.types import _DeltaSnapshot
    from langgraph.store.base import Item, SearchItem

    for name in ("Human", "AI", "System", "Chat", "Tool", "Function"):
        yield getattr(messages, f"{name}Message")
        yield getattr(messages, f"{name}MessageChunk")
    yield from (messages.BaseMessage, messages.BaseMessageChunk, messages.RemoveMessage, documents.Document)
    yield from (TextAccessor, _DeltaSnapshot, Item, SearchItem)
    try:
        from langgraph import types
    except ImportError:  # langgraph-checkpoint can be installed without langgraph
        return
    yield from (types.Send, types.Interrupt, types.Command, types.Overwrite, types.TimeoutPolicy)
    yield from (types.StateSnapshot, types.PregelTask)


def langchain_data() -> Iterator[type]:
    """LangChain's other serialisable classes that hold data only.

    They have the tags of classes that a user lists, because users have had to list them.
    """
    from langchain_core import agents, outputs, prompt_values
    from langgraph.store.base import GetOp

    yield from (agents.AgentAction, agents.AgentActionMessageLog, agents.AgentStep, agents.AgentFinish)
    yield from (outputs.Generation, outputs.GenerationChunk, outputs.ChatGeneration, outputs.ChatGenerationChunk)
    yield from (outputs.LLMResult, outputs.ChatResult, outputs.RunInfo)
    yield from (prompt_values.StringPromptValue, prompt_values.ImagePromptValue)
    yield from (prompt_values.ChatPromptValue, prompt_values.ChatPromptValueConcrete)
    yield GetOp


def class_kind(codec: TypedCodec, kind: type) -> tuple[WriteValue, ReadValue]:
    """How instances of exactly this class are written and read."""
    if issubclass(kind, Enum):
        return _enum_kind(kind)
    if issubclass(kind, BaseModel):
        model = ModelKind(codec, kind)
        return model.write, model.read
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _named_tuple_kind(codec, kind)
    if issubclass(kind, BaseException):
        raise ConfigurationError(
            f"allowed_types has {class_name(kind)}: an exception is kept as text, and needs no leave"
        )
    if issubclass(kind, _WRAPPED):
        wrapped = _WrappedKind(codec, kind)
        return wrapped.write, wrapped.read
    if not dataclasses.is_dataclass(kind):
        _check_plain(kind)
    plain = _ObjectKind(codec, kind)
    return plain.write, plain.read


def _check_plain(kind: type) -> None:
    """Refuse a class whose instances are more than attributes: one written in C, or with its own pickling."""
    classes = kind.__mro__[:-1]
    bases = [vars(base).keys() for base in classes]
    # A `class` statement gives instances a dict or slots, at the latest in the class that only derives from `object`.
    roots = [vars(base).keys() for base in classes if base.__bases__ == (object,)]
    in_c = not all(root & {"__dict__", "__slots__"} for root in roots) or not all(map(_is_python_class, classes))
    if in_c or any(base & {"__reduce__", "__reduce_ex__"} for base in bases):
        raise ConfigurationError(
            f"allowed_types has {class_name(kind)}, whose instances cannot be kept: it takes Pydantic models, "
            "dataclasses, enums, named tuples, and classes whose instances are no more than their attributes"
        )


def _is_python_class(kind: type) -> bool:
    """Whether a class is on the heap and mutable. Classes written in C usually are neither."""
    return kind.__flags__ & (_ON_HEAP | _IMMUTABLE) == _ON_HEAP


def _enum_kind(kind: type[Enum]) -> tuple[WriteValue, ReadValue]:
    def write(value: Enum) -> dict[str, Any]:
        return {"value": value.value if isinstance(value, Flag) else value.name}

    def read(stored: Mapping[str, Any]) -> Enum:
        return _flag(kind, stored["value"]) if issubclass(kind, Flag) else kind[text_of(stored["value"])]

    return write, read


def _flag(kind: type[Flag], value: Any) -> Enum:
    """Make a combination of flags without calling the class's `_missing_`."""
    bits = max([64, *(member.value.bit_length() for member in kind)])
    if type(value) is not int or not 0 <= value < 1 << bits:
        raise ValueError("these are no flags")
    known = kind._value2member_map_.get(value)
    if known is not None:
        return known
    how: Any = kind
    if how._boundary_ is not KEEP and value & ~how._flag_mask_:  # up to Python 3.11.3 flags leave unknown bits out
        raise ValueError("these are no flags")
    return _combined(kind, value)


_combined: Callable[[type[Flag], int], Flag] = vars(Flag)["_missing_"].__func__


def _named_tuple_kind(codec: TypedCodec, kind: Any) -> tuple[WriteValue, ReadValue]:
    names: tuple[str, ...] = kind._fields
    defaults: dict[str, Any] = kind._field_defaults

    def write(value: Any) -> dict[str, Any]:
        return codec.write_fields(dict(zip(names, value, strict=True)))

    def read(stored: Mapping[str, Any]) -> Any:
        found = defaults | codec.read_fields({name: stored[name] for name in names if name in stored})
        return tuple.__new__(kind, [found[name] for name in names])

    return write, read


class _WrappedKind:
    """How instances of a subclass of a built-in type are written: as the type, and with their slots.

    Instances with other attributes are refused, because those would be lost.
    """

    def __init__(self, codec: TypedCodec, kind: type) -> None:
        self._codec = codec
        self._kind = kind
        self._base: Any = next(base for base in _WRAPPED if issubclass(kind, base))
        # The class written in C that has the content: not always the base, as for subclasses of OrderedDict.
        self._native: Any = next(base for base in kind.__mro__ if not _is_python_class(base))
        self._slots = _slots(kind)

    def write(self, value: Any) -> dict[str, Any]:
        if getattr(value, "__dict__", None):
            raise RefusedError(f"is a {class_name(self._kind)} with attributes of its own, which cannot be kept")
        written = {"value": self._codec.write(self._base(value))}
        slots = {name: getattr(value, name) for name in self._slots if hasattr(value, name)}
        if slots:
            written[SLOTS] = self._codec.write_fields(slots)
        if issubclass(self._kind, defaultdict):
            written[FACTORY] = factory_name(value)
        return written

    def read(self, stored: Mapping[str, Any]) -> Any:
        content = self._codec.read(stored["value"])
        if type(content) is not self._base and not (self._base is float and type(content) is int):
            raise TypeError(f"a {self._base.__name__} was expected, not a {type(content).__name__}")
        made = self._made(content)
        if issubclass(self._kind, defaultdict):
            defaultdict.__init__(made, factory_of(stored.get(FACTORY)))
        for name, value in self._codec.read_fields(stored.get(SLOTS, {})).items():
            if name in self._slots:
                self._slots[name].__set__(made, value)
        return made

    def _made(self, content: Any) -> Any:
        """An instance with this content. Methods that the class overrides are not called."""
        if self._base not in (list, dict, set):
            return self._native.__new__(self._kind, content)
        made = self._native.__new__(self._kind)
        if self._base is list:
            list.extend(made, content)
        elif self._base is set:
            set.update(made, content)
        else:
            for key, item in content.items():
                self._native.__setitem__(made, key, item)
        return made


def _itself(value: Any) -> Any:
    return value


def _dataclass_defaults(kind: Any) -> dict[str, Callable[[], Any]]:
    defaults: dict[str, Callable[[], Any]] = {}
    for field in dataclasses.fields(kind):
        if field.default is not dataclasses.MISSING:
            defaults[field.name] = partial(_itself, field.default)
        elif field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = field.default_factory
    return defaults


class _ObjectKind:
    """How instances of a dataclass, or of a class with nothing but attributes, are written."""

    def __init__(self, codec: TypedCodec, kind: type) -> None:
        self._codec = codec
        self._kind = kind
        self._slots = _slots(kind)
        self._with_dict = any("__dict__" in vars(base) for base in kind.__mro__)
        self._fields = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
        self._defaults = _dataclass_defaults(kind) if self._fields else {}

    def write(self, value: Any) -> dict[str, Any]:
        names = [*self._fields, *self._slots]
        values = {name: getattr(value, name) for name in names if hasattr(value, name)}
        if self._with_dict:
            values |= vars(value)
        if TAG in values:
            raise RefusedError(f"is a {class_name(self._kind)} with an attribute {TAG!r}, which is reserved")
        self._check_names(values)
        return self._codec.write_fields(values)

    def read(self, stored: Mapping[str, Any]) -> Any:
        missing = [name for name in self._fields if name not in stored and name not in self._defaults]
        if missing:
            raise missing_field(self._kind, ", ".join(missing))
        values = self._codec.read_fields({name: value for name, value in stored.items() if name != TAG})
        self._check_names(values)
        for name, default in self._defaults.items():
            if name not in values:
                values[name] = default()
        if "timeout" in self._slots and self._kind.__module__ == "langgraph.types":
            values.setdefault("timeout", None)  # a `Send` of older versions of LangGraph has none
        made: Any = object.__new__(self._kind)
        # Neither these nor slots go through `__setattr__`, which would call the setters of properties.
        attributes = object.__getattribute__(made, "__dict__") if self._with_dict else {}
        for name, value in values.items():
            if name in self._slots:
                self._slots[name].__set__(made, value)
            else:
                attributes[name] = value
        return made

    def _check_names(self, names: Iterable[str]) -> None:
        """Refuse an attribute that would hide a method, or that Python itself looks for."""
        for name in names:
            if name in self._fields or name in self._slots:
                continue
            if (name.startswith("__") and name.endswith("__")) or _is_method(self._kind, name):
                raise RefusedError(
                    f"is a {class_name(self._kind)} with an attribute {name!r:.60}, which its class defines otherwise"
                )


def _is_method(kind: type, name: str) -> bool:
    found = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    return callable(found) or isinstance(found, classmethod | partialmethod | singledispatchmethod)


def _slots(kind: type) -> dict[str, Any]:
    """The slots of a class and its bases by name, each as the descriptor that sets it."""
    descriptors: dict[str, Any] = {}
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else tuple(slots):
            name = _mangled(base, slot)
            if isinstance(vars(base).get(name), MemberDescriptorType):
                descriptors.setdefault(name, vars(base)[name])
    return descriptors


def _mangled(kind: type, name: str) -> str:
    private = name.startswith("__") and not name.endswith("__")
    return f"_{kind.__name__.lstrip('_')}{name}" if private else name


SLOTS, FACTORY = "slots", "factory"
UNSET, EXTRA, PRIVATE = "$unset", "$extra", "$private"
_EMPTY = (dict, list)
_NESTED = (dict, list)
_ATOMS = (str, int, float, bytes, type(None))
_set = object.__setattr__


class ModelKind:
    """How Pydantic models of exactly one class are written, LangChain's messages among them.

    Fields that were not set and have their default are left out.
    """

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
        # In the order of the class, so that a loaded model is written as it was before.
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
        read = self._codec.read
        values = self._values(stored)
        found = values.keys() - set(stored[UNSET]) if UNSET in stored else set(values)
        if len(values) < len(self._fields):
            values = self._completed(values)
        extra = (read(stored[EXTRA]) if EXTRA in stored else {}) if self._with_extra else None
        if extra is not None and not (type(extra) is dict and all(type(name) is str for name in extra)):
            raise TypeError("extra fields were expected to be a dict")
        return self._made(values, found, extra, read(stored.get(PRIVATE, {})) if self._private else {})

    def from_values(self, given: Mapping[str, Any]) -> BaseModel:
        """An instance with these values of fields, as they are. Others are extra fields, if the class takes those."""
        values = {name: given[name] for name in self._fields if name in given}
        extra = {name: value for name, value in given.items() if name not in values} if self._with_extra else None
        return self._made(self._completed(values), set(values), extra, {})

    def _made(
        self, values: dict[str, Any], found: set[str], extra: dict[str, Any] | None, private: Mapping[str, Any]
    ) -> BaseModel:
        made = object.__new__(self._kind)
        _set(made, "__dict__", values)
        _set(made, "__pydantic_fields_set__", found)
        _set(made, "__pydantic_extra__", extra)
        _set(made, "__pydantic_private__", _private(self._kind, private) if self._private else None)
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
        """The values with defaults for missing fields, in the order of the class."""
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
    """Returns a function that makes a new default value."""
    if info.default_factory in _EMPTY:
        return info.default_factory
    return lambda: info.get_default(call_default_factory=True, validated_data={})


def _is_default(value: Any, info: FieldInfo) -> bool:
    """Whether a field has its default value, which need not be written."""
    if info.default_factory is not None:
        return type(value) in _EMPTY and not value and info.default_factory is type(value)
    return value is info.default or (type(value) is str and type(info.default) is str and value == info.default)
