"""The classes that a graph declares: in its state, its input and output, its context, and the inputs of its nodes.

A saver allows them without being told, as LangGraph does in its strict mode. LangGraph hands their names to
`with_allowlist` only if `LANGGRAPH_STRICT_MSGPACK` is set. Otherwise it tells a saver nothing of the graph that uses
it, so the graph is found among the callers of a load. Either way the classes come from the program, never from a stored
row.

Only data is allowed this way: Pydantic models, dataclasses, enums and named tuples. Models, tools and prompts of
LangChain are programs, and stay out of a checkpoint unless the user lists them.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from types import FunctionType
from typing import Any, get_args, get_origin, get_type_hints
from weakref import WeakKeyDictionary, ref

from langchain_core.runnables import Runnable
from pydantic import BaseModel
from typing_extensions import is_typeddict

_GRAPH_MODULE = "langgraph.pregel.main"
_MOST_CALLERS = 40
"""How many callers are looked at. The graph is near, even if another saver wraps this one."""


def calling_graph() -> Any | None:
    """The graph that is calling this program's caller; None if something else does."""
    frame = sys._getframe(1).f_back
    for _ in range(_MOST_CALLERS):
        if frame is None:
            return None
        if frame.f_globals.get("__name__") == _GRAPH_MODULE:
            found = frame.f_locals.get("self")
            if is_graph(found):
                return found
        frame = frame.f_back
    return None


def is_graph(value: Any) -> bool:
    """Whether this is a graph of LangGraph, compiled or not. LangGraph need not be installed."""
    return not isinstance(value, type) and hasattr(value, "nodes") and hasattr(value, "channels")


class DeclaredClasses:
    """Remembers which classes graphs declare, so that a load finds out nothing twice."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Any, tuple[tuple[int, int], list[type]]] = WeakKeyDictionary()
        self._last: ref[Any] | None = None

    def of_another(self, graph: Any) -> list[type] | None:
        """The classes of a graph; None if it is the same graph as the last time."""
        source = getattr(graph, "builder", graph)
        size = (len(source.nodes), len(source.channels))
        known = self._known.get(source)
        if known is None or known[0] != size:  # nodes may be added to a builder after it was compiled
            known = self._known[source] = (size, list(graph_classes(graph)))
        elif self._last is not None and self._last() is source:
            return None
        self._last = ref(source)
        return known[1]


def graph_classes(graph: Any) -> Iterator[type]:
    """The classes in the schemas and channels of a graph."""
    yield from schema_classes(_schemas(getattr(graph, "builder", graph)))


def _schemas(graph: Any) -> Iterator[Any]:
    for name in ("state_schema", "input_schema", "output_schema", "context_schema"):
        yield getattr(graph, name, None)
    for node in graph.nodes.values():
        yield getattr(node, "input_schema", None)
        yield from _signature(getattr(node, "bound", None))
    for branches in getattr(graph, "branches", {}).values():
        for branch in branches.values():
            yield getattr(branch, "input_schema", None)
    for channel in graph.channels.values():
        yield getattr(channel, "ValueType", None)
        yield getattr(channel, "UpdateType", None)


def _signature(node: Any) -> Iterable[Any]:
    """The types in the signature of a graph that is a function (`@entrypoint`)."""
    function = getattr(node, "func", None) or getattr(node, "afunc", None)
    return _hints(function).values() if isinstance(function, FunctionType) else ()


def schema_classes(schemas: Iterable[Any]) -> Iterator[type]:
    """The classes of data in these types: the types themselves, those of their fields, and so on."""
    waiting, seen = list(schemas), set[int]()
    kept: list[Any] = []  # else the id of a type that is gone could be that of another
    while waiting:
        kind = waiting.pop()
        if id(kind) in seen:
            continue
        seen.add(id(kind))
        kept.append(kind)
        if is_data(kind):
            yield kind
        waiting += _parts(kind)


def is_data(kind: Any) -> bool:
    """Whether a type is a class whose instances are no more than their fields."""
    if not isinstance(kind, type) or issubclass(kind, Runnable):
        return False
    named_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return issubclass(kind, BaseModel | Enum) or dataclasses.is_dataclass(kind) or named_tuple


def _parts(kind: Any) -> Iterable[Any]:
    """The parts of a type: members of a union, type parameters, fields."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [info.annotation for info in kind.model_fields.values()]
    if is_typeddict(kind) or is_data(kind):
        return _hints(kind).values()
    if hasattr(kind, "__supertype__"):  # a NewType
        return [kind.__supertype__]
    if hasattr(kind, "__value__"):  # what a `type` statement makes
        return [kind.__value__]
    return [get_origin(kind), *get_args(kind)]


def _hints(kind: Any) -> dict[str, Any]:
    """The types of a class's fields. A name that cannot be resolved is left out."""
    try:
        return get_type_hints(kind, include_extras=True)
    except (NameError, TypeError, AttributeError):
        fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
        return {field.name: field.type for field in fields} or dict(getattr(kind, "__annotations__", {}))


def named_classes(names: Collection[tuple[str, ...]]) -> Iterator[type]:
    """Classes of data by module and name, as LangGraph names them. Only modules that are imported are looked at."""
    for module, name, *_ in names:
        found: Any = getattr(sys.modules.get(module), name, None)
        if is_data(found):
            yield found


def listed_classes(allowed: Iterable[Any]) -> Iterator[Any]:
    """The classes that a user allows: listed one by one, or declared by a listed schema or graph.

    Mappings among them are those of `stored_names`.
    """
    for one in () if isinstance(allowed, Mapping) else allowed:
        if isinstance(one, Mapping):
            continue
        if is_typeddict(one):
            yield from schema_classes([one])
        elif is_graph(one):
            yield from graph_classes(one)
        else:
            yield one


def stored_names(allowed: Iterable[Any]) -> dict[str, Any]:
    """The stored names that a user has mapped to classes, each with its class."""
    if isinstance(allowed, Mapping):
        return dict(allowed)
    return {name: kind for one in allowed if isinstance(one, Mapping) for name, kind in one.items()}
