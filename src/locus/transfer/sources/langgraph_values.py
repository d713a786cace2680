"""Reads values that LangGraph's savers have written. It imports and calls only classes that are allowed.

LangChain's messages and documents are data, and are made of their stored fields without a constructor or validator.
Other instances are made by constructors: those of the standard library's types and of LangGraph's own, which only keep
their arguments, and those of classes that the user allows.

LangGraph's own reader returns the raw fields of an object if it may not or cannot create it. Here both are errors,
because an import must not change what was stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from importlib import import_module
from typing import Any

import ormsgpack
from langchain_core.agents import AgentAction, AgentFinish
from langchain_core.outputs import Generation, GenerationChunk
from langchain_core.prompt_values import StringPromptValue
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from pydantic import BaseModel

from locus.errors import CorruptCheckpointError, SerializationError
from locus.integrations.langgraph.classes import ModelKind, langchain_data
from locus.integrations.langgraph.codec import RefusedError, TypedCodec, check_hashes

EMPTY = "empty"
"""The `type` of a channel without a value."""


class MissingClasses:
    """The classes in the values of one thread that are not allowed, each with the place of its first instance."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}

    def check(self) -> None:
        """Raise one error that names all of them, if there are any."""
        for place in self.places.values():
            raise SerializationError(
                f"{place} holds instances of classes that are not allowed: allow them with {allow_options(self.places)}"
            )


def allow_options(names: Collection[str]) -> str:
    """The command-line options that allow these classes, for a user to copy."""
    options = [f"--allow {name}" for name in names]
    of_script = any(name.startswith(_OF_SCRIPT) for name in names)
    return " ".join(options) + (", where SCRIPT is the file that was run, without .py" if of_script else "")


_MAIN = "__main__"
_OF_SCRIPT = f"{_MAIN}=SCRIPT:"
"""The prefix for a class that a script defines: its module `__main__` can be imported only under another name."""


class ValueReader:
    """Reads values that LangGraph's savers have written.

    `allowed` are classes beyond those that LangGraph considers safe. `aliases` maps a stored module and name to the
    class that has moved from there.
    """

    def __init__(self, allowed: Iterable[type] = (), aliases: Mapping[tuple[str, str], type] | None = None) -> None:
        self._allowed = {**(aliases or {}), **{(kind.__module__, kind.__name__): kind for kind in allowed}}
        self._refused: dict[str, None] = {}
        self._missing: dict[str, None] = {}

    def read(
        self, kind: str | None, data: bytes | str | None, where: str, missing: MissingClasses | None = None
    ) -> Any:
        """Read a value of a stored type. `where` describes its place, for errors.

        Classes that are not allowed are added to `missing`, if it is given, and the value is unusable then.
        """
        raw = data.encode() if isinstance(data, str) else bytes(data or b"")
        if kind in ("msgpack", "json"):
            return self._read_objects(self._unpack if kind == "msgpack" else self._read_json, raw, where, missing)
        if kind in ("bytes", "bytearray"):
            return raw if kind == "bytes" else bytearray(raw)
        if kind in ("null", None):
            return None
        hint = "it was written with pickle_fallback=True" if kind == "pickle" else "it may be encrypted"
        raise SerializationError(f"{where} is written as {kind!r:.40}, which cannot be moved: {hint}")

    def _read_objects(
        self, read: Callable[[bytes], Any], data: bytes, where: str, missing: MissingClasses | None
    ) -> Any:
        self._refused, self._missing = {}, {}
        try:
            value = read(data)
        except (ormsgpack.MsgpackDecodeError, ValueError, RecursionError) as error:
            if not self._note(where, missing):
                raise CorruptCheckpointError(f"{where} cannot be read: {error}") from error
            return None
        return None if self._note(where, missing) else value

    def _note(self, where: str, missing: MissingClasses | None) -> bool:
        """Add missing classes to `missing`, and return whether there are any. Raises if anything else was refused."""
        if not self._missing:
            for refused in self._refused:
                raise SerializationError(f"{where} holds {refused}")
        noted = MissingClasses() if missing is None else missing
        for name in self._missing:
            noted.places.setdefault(name, where)
        if missing is None:
            noted.check()
        return bool(self._missing)

    def _unpack(self, data: bytes) -> Any:
        return ormsgpack.unpackb(data, ext_hook=self._hook, option=ormsgpack.OPT_NON_STR_KEYS)

    def _hook(self, code: int, data: bytes) -> Any:
        """Make an object, for the unpacker. It collects errors, because one raised here would lose its text."""
        try:
            return self._object(code, self._unpack(data))
        except SerializationError as error:
            self._refused[str(error)] = None
            return None

    def _object(self, code: int, parts: Any) -> Any:
        if code == jsonplus.EXT_DELTA_SNAPSHOT:
            return _DeltaSnapshot(parts)
        if code == jsonplus.EXT_NUMPY_ARRAY:
            return _array(*parts)
        make = _MAKERS.get(code)
        if make is None:
            raise SerializationError(f"something of an unknown kind ({code})")
        module, name, fields = parts[:3]
        try:
            return make(self._class(str(module), str(name)), fields, parts)
        except SerializationError:
            raise
        except Exception as error:
            # The text of the error may quote stored data.
            raise SerializationError(
                f"a {module}.{name} that cannot be made of what was written ({type(error).__name__})"
            ) from error

    def _class(self, module: str, name: str) -> Any:
        key = (module, name)
        if key in self._allowed:
            return self._allowed[key]
        if key in SAFE_MSGPACK_TYPES:
            return getattr(import_module(module), name)
        if key in _FLAT:
            return _FLAT[key]
        self._missing[f"{_OF_SCRIPT}{name}" if module == _MAIN else f"{module}:{name}"] = None
        raise SerializationError(f"a {module}.{name}")

    def _read_json(self, data: bytes) -> Any:
        """Read the format that LangGraph wrote until 2024: JSON in which objects name their constructor."""
        return json.loads(data, object_hook=self._revive)

    def _revive(self, value: dict[str, Any]) -> Any:
        if value.get("type") != "constructor" or value.get("lc") not in (1, 2) or not isinstance(value.get("id"), list):
            return value
        *module, name = map(str, value["id"])
        try:
            fields = value.get("kwargs") or {}
            if value["lc"] == 1:
                return _from_langchain(module, name, fields)
            kind = self._class(".".join(module), name)
            if _is_langchain(kind):
                return _from_fields(kind, fields)
            return kind(*(value.get("args") or ()), **fields)
        except Exception as error:  # noqa: BLE001 - whatever a constructor raises
            self._refused[f"a {'.'.join(module)}.{name} that cannot be made ({type(error).__name__})"] = None
            return None


def _array(kind: str, shape: Any, order: Any, data: bytes) -> Any:
    numpy = import_module("numpy")
    return numpy.frombuffer(data, dtype=numpy.dtype(kind)).reshape(shape, order=order)


_LANGCHAIN = {name: module for module, name in SAFE_MSGPACK_TYPES if module.startswith("langchain_core.")} | {
    kind.__name__: kind.__module__ for kind in langchain_data() if issubclass(kind, BaseModel)
}
"""The module of each class of LangChain's messages, documents and other data."""

_FLAT = {
    (kind.__module__, kind.__name__): kind
    for kind in (AgentAction, AgentFinish, Generation, GenerationChunk, StringPromptValue)
}
"""LangChain's classes without other models inside. LangGraph writes inner models without their class, so only a
validator could restore them, and that has to be allowed."""


def _from_langchain(module: list[str], name: str, fields: Mapping[str, Any]) -> Any:
    """Make a message or a document from LangChain's own format. Its other objects are programs, and refused."""
    if module[:1] not in (["langchain"], ["langchain_core"]) or name not in _LANGCHAIN:
        raise SerializationError("an object that is no data")
    return _from_fields(getattr(import_module(_LANGCHAIN[name]), name), fields)


def _is_langchain(kind: Any) -> bool:
    return isinstance(kind, type) and _LANGCHAIN.get(kind.__name__) == kind.__module__


def _from_fields(kind: Any, fields: Mapping[str, Any]) -> Any:
    try:
        return ModelKind(TypedCodec(), kind).from_values(fields)
    except RefusedError as refused:
        raise ValueError(refused.reason) from refused


def _model(kind: Any, fields: Any, _parts: Any) -> Any:
    """Make a pydantic model. If its validators refuse the fields today, skip them, as LangGraph does."""
    if _is_langchain(kind):
        return _from_fields(kind, fields)
    try:
        return kind(**fields)
    except Exception:  # noqa: BLE001 - whatever a validator raises
        return (kind.model_construct if hasattr(kind, "model_construct") else kind.construct)(**fields)


def _send_or_instance(kind: Any, fields: Any, _parts: Any) -> Any:
    if kind.__name__ == "Send" and len(fields) == 3:
        return kind(fields[0], fields[1], timeout=fields[2])
    return kind(*fields)


def _of_one(kind: Any, argument: Any, _parts: Any) -> Any:
    if kind in (set, frozenset):
        check_hashes(argument)
    return kind(argument)


def _by_method(kind: Any, argument: Any, parts: Any) -> Any:
    if kind is not datetime or parts[3] != "fromisoformat":
        raise SerializationError(f"a call of {kind.__name__}.{parts[3]!s:.40}, which is not allowed")
    return datetime.fromisoformat(argument)


_MAKERS: dict[int, Callable[[Any, Any, Any], Any]] = {
    jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG: _of_one,
    jsonplus.EXT_CONSTRUCTOR_POS_ARGS: _send_or_instance,
    jsonplus.EXT_CONSTRUCTOR_KW_ARGS: lambda kind, fields, _: kind(**fields),
    jsonplus.EXT_METHOD_SINGLE_ARG: _by_method,
    jsonplus.EXT_PYDANTIC_V1: _model,
    jsonplus.EXT_PYDANTIC_V2: _model,
}
