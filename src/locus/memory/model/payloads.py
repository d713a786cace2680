"""Payloads in their two shapes, an `AgentState` and a plain dict.

`state_payload` and `dict_payload` take one apart for the planner. `loaded_state` and `dict_from` put a stored one
together again, and `state_of` one whose lists are decoded already. A trace (`loaded_state` gives one, and so does
`stored_trace`) says what the next save may refer to.
This is the only module of the model that knows `AgentState`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from types import MappingProxyType
from typing import Any, cast, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from locus.core.frozen import FrozenDict, FrozenList, Items, freeze
from locus.core.state import AgentState
from locus.errors import CorruptCheckpointError, SerializationError, WindowError
from locus.memory.model.codec import decode, encode
from locus.memory.model.digests import DigestChain, chain_of, fingerprint
from locus.memory.model.ids import shown_thread
from locus.memory.model.item_texts import item_text
from locus.memory.model.manifest import Cuts, decode_manifest, items_text, items_texts, list_items
from locus.memory.model.parts import Window, between, total_of
from locus.memory.model.plan import LARGE_VALUE, Payload
from locus.memory.model.records import Base, Extent, Path, Stored
from locus.memory.model.trace import FieldTrace, ListTrace, Trace

_OMITTED = "locus_omitted"
"""The field of a state that is never stored: it says what a window left out."""
_LISTS = tuple(name for name, info in AgentState.model_fields.items() if isinstance(info.default, Items))
_DICTS = tuple(
    name for name, info in AgentState.model_fields.items() if isinstance(info.default, FrozenDict) and name != _OMITTED
)
_FIELDS = (*_DICTS, *_LISTS)
_CONTAINERS = frozenset(_FIELDS)
_NESTED = (dict, list, tuple)
_SHORT = frozenset({int, float, bool, type(None)})


def times_of(kind: type[BaseModel]) -> tuple[str, ...]:
    """The fields that hold a time, or may: JSON has none, so they are written as text."""
    annotations = {name: info.annotation for name, info in kind.model_fields.items()}
    return tuple(name for name, found in annotations.items() if datetime in (found, *get_args(found)))


LoadedState = tuple[AgentState, Trace]
"""A state, and what the next save of it may refer to."""
ChainsOf = Callable[[Path, tuple[Extent, ...]], dict[str, DigestChain]]
"""Gives the chains of the branches that a list is on."""


def _items_adapter(name: str) -> TypeAdapter[Any]:
    annotation: Any = AgentState.model_fields[name].annotation
    return TypeAdapter(annotation)


_ITEMS = {(name,): _items_adapter(name) for name in _LISTS}
_VALUES = TypeAdapter(list[Any])
_SCALARS = AgentState.model_fields.keys() - _CONTAINERS
_TIMES = times_of(AgentState)
_PLAIN = tuple(name for name in AgentState.model_fields if name not in {*_CONTAINERS, *_TIMES, _OMITTED})
STATE_LISTS: frozenset[Path] = frozenset((name,) for name in _LISTS)
"""The lists that a window of a state shortens."""


def state_payload(state: AgentState) -> Payload:
    """A state taken apart, without dumping its long fields."""
    if not isinstance(state, AgentState):
        raise SerializationError(
            f"a checkpointer keeps AgentState, got {type(state).__name__}: {state!r:.80}. "
            "Plain dicts are kept by storage backends: backend.save(thread_id, data)"
        )
    extra = state.__pydantic_extra__ or {}
    fields: dict[str, Any] = {name: getattr(state, name) for name in _FIELDS}
    if type(state) is AgentState:
        plain = {name: getattr(state, name) for name in _PLAIN}
        for name in _TIMES:
            at = getattr(state, name)
            plain[name] = None if at is None else at.isoformat()
    else:
        plain = state.model_dump(exclude={*_CONTAINERS, *extra, _OMITTED})
    plain.update(extra)
    for name in [name for name, value in plain.items() if type(value) not in _SHORT and _is_long(value)]:
        fields[name] = plain.pop(name)
    return Payload(plain, fields, frozen=True, omitted=state.locus_omitted)


def _is_long(value: Any) -> bool:
    """Whether something may have to be cut out of a value."""
    return len(value) >= LARGE_VALUE if isinstance(value, str) else isinstance(value, _NESTED)


def dict_payload(data: Mapping[str, Any]) -> Payload:
    """A plain dict taken apart; its keys must be text."""
    if not isinstance(data, dict):
        raise SerializationError(
            f"a storage backend keeps dicts, got {type(data).__name__}: {data!r:.80}. "
            "An AgentState is kept by a checkpointer: StorageBackendAdapter(backend).save(state, thread_id)"
        )
    if data.get(_OMITTED):
        raise WindowError(
            "this dict is the dump of a window of a state, and what the window left out would be lost. Nothing was "
            "written. Save the state itself with a checkpointer, or dump it after `without_omitted()`"
        )
    for key in data:
        if not isinstance(key, str):
            raise SerializationError(f"the payload has a key of type {type(key).__name__}: {key!r:.40}")
    return Payload({}, data, frozen=False)


def payload_text(stored: Stored) -> str:
    """The payload as JSON text: the head, with everything that was cut out put back."""
    cuts = decode_manifest(stored.manifest)
    return _text(stored, cuts, decode(stored.head)) if cuts else stored.head


def _text(stored: Stored, cuts: Cuts, head: Any) -> str:
    """The payload, with what these cuts say put back: all, or less of some lists."""
    if not cuts:
        return stored.head
    tree: dict[str, Any] = {}
    for path, cut in cuts.items():
        node = tree
        for step in path:
            node = node.setdefault(step, {})
        # Below the key None, which no path has: the parts of the text that stands here.
        if isinstance(cut, str):
            node[cast(str, None)] = [items_text(_value_extents(cut), stored.runs)[1:-1]]
        else:
            node[cast(str, None)] = items_texts(cut, stored.runs)
    parts: list[str] = []
    _fill(parts, head, tree)
    return "".join(parts)


def _value_extents(branch: str) -> list[Extent]:
    """Where a large value is: alone on a branch of its own."""
    return [Extent(branch, 0, 0, 1)]


def _fill(parts: list[str], value: Any, tree: Mapping[Any, Any]) -> None:
    """Add the parts of a value's text. They are joined once, in the end: the text may be tens of megabytes long."""
    inner = {key: node for key, node in tree.items() if key is not None}
    if None in tree:
        if not inner:
            parts += tree[None]
            return
        value = decode("".join(tree[None]))
    if not isinstance(value, dict) or not inner.keys() <= value.keys():
        raise _unfit()
    opening = "{"
    for key, item in value.items():
        parts.append(f"{opening}{encode(key)}:")
        if key in inner:
            _fill(parts, item, inner[key])
        else:
            parts.append(encode(item))
        opening = ","
    parts.append("}" if value else "{}")


def _unfit() -> CorruptCheckpointError:
    return CorruptCheckpointError("stored head and manifest do not fit together")


def loaded_state(stored: Stored, window: Window | None = None) -> LoadedState:
    """The state of a stored checkpoint, or a window of it, and what it knows of where it came from."""
    cuts, head = decode_manifest(stored.manifest), decode(stored.head)
    shown = cuts if window is None else _shown(cuts, window)
    try:
        state = AgentState.model_validate_json(_text(stored, shown, head))
    except ValidationError as error:
        raise CorruptCheckpointError(
            f"checkpoint {stored.entry.seq} of {shown_thread(stored.entry.thread_id)} is not a state: "
            f"{error.error_count()} fields do not fit, the first is {_problem(error)}"
        ) from None  # its text has the values
    left_out: dict[str, tuple[object, ...]] = {}
    if window is not None:
        state, left_out = _windowed(state, cuts, window)
    elif state.locus_omitted:  # nobody stores it, except as a lie
        state = state.model_copy(update=as_whole(state))
    return state, _state_trace(stored, state, cuts, head, lambda _, extents: chains(stored, extents), left_out)


def _shown(cuts: Cuts, window: Window) -> Cuts:
    """What a window shows of each list."""
    shown: dict[Path, tuple[Extent, ...] | str] = {}
    for path, cut in cuts.items():
        if path in window.paths and not isinstance(cut, str):
            total = total_of(cut)
            shown[path] = tuple(between(cut, window.start(total), total))
        else:
            shown[path] = cut
    return shown


def _windowed(state: AgentState, cuts: Cuts, window: Window) -> tuple[AgentState, dict[str, tuple[object, ...]]]:
    """A state whose lists say what was left out of them, and the items of short lists that were."""
    changes: dict[str, Any] = {}
    omitted: dict[str, int] = {}
    left_out: dict[str, tuple[object, ...]] = {}
    for name in _LISTS:
        items: Items[Any] = getattr(state, name)
        cut = cuts.get((name,))
        if isinstance(cut, tuple):
            count = total_of(cut) - len(items)
        else:
            count = window.start(len(items))
            left_out[name], items = tuple(items[:count]), Items(items[count:])
        changes[name] = items.after(count)
        if count:
            omitted[name] = count
    return state.model_copy(update={**changes, _OMITTED: FrozenDict(omitted)}), left_out


def as_whole(state: AgentState) -> dict[str, Any]:
    """What has to change for a state to have nothing left out."""
    return {_OMITTED: FrozenDict(), **{name: getattr(state, name).after(0) for name in _LISTS}}


def parsed_values(text: str) -> list[Any]:
    """The values of a JSON array, frozen, as a state has them where any value may stand."""
    return [freeze(value) for value in _VALUES.validate_json(text)]


def parsed_items(path: Path, text: str) -> Sequence[Any]:
    """The items of a part of a state's list, as validating the whole state makes them."""
    adapter = _ITEMS.get((path[0],)) if len(path) == 1 else None
    return parsed_values(text) if adapter is None else cast(tuple[Any, ...], adapter.validate_json(text))


def joined_items(path: Path, parts: Sequence[Sequence[Any]]) -> Items[Any] | FrozenList:
    """A state's list, of parts of it."""
    if len(path) == 1 and path[0] in _LISTS:
        # In C, and each item as seldom as can be: to count a reference to it is what takes the time.
        whole: tuple[Any, ...] = ()
        for part in parts:
            items = part if isinstance(part, tuple) else tuple(part)
            whole = tuple.__add__(whole, items) if whole else items
        return Items(whole)
    return FrozenList(chain.from_iterable(parts))


def state_of(stored: Stored, values: Iterable[tuple[Path, Any]], chains_of: ChainsOf) -> LoadedState:
    """The state of a stored checkpoint, with these values where something was cut out; outer ones come first."""
    cuts, head, found = decode_manifest(stored.manifest), decode(stored.head), list(values)
    whole = {path[0] for path, _ in found if len(path) == 1 and path[0] in _DICTS}
    if not isinstance(head, dict) or not all(path[0] in head and path[0] not in _SCALARS for path, _ in found):
        raise _unfit()
    shell = encode(head | {name: {} for name in whole}) if whole else stored.head
    state = AgentState.model_validate_json(shell)
    if state.locus_omitted:
        raise CorruptCheckpointError("a stored state claims to be a window")
    update: dict[str, Any] = {}
    for (name, *steps), value in found:
        container = update[name] if name in update else _field(state, name)
        update[name] = with_value(container, steps, value)
    if not all(isinstance(update[name], FrozenDict) for name in whole):
        raise CorruptCheckpointError("a stored field of a state is no object")
    state = BaseModel.model_copy(state, update=update)
    return state, _state_trace(stored, state, cuts, head, chains_of)


def _field(state: AgentState, name: str) -> Any:
    """A field by its name in the head. A field that the class does not know may be called like one of its methods."""
    extra = state.__pydantic_extra__ or {}
    return extra[name] if name in extra else getattr(state, name, None)


def with_value(container: Any, steps: Sequence[str], value: Any) -> Any:
    """A frozen dict with another value where these names lead to."""
    if not steps:
        return value
    if not isinstance(container, FrozenDict) or steps[0] not in container:
        raise _unfit()
    return FrozenDict({**container, steps[0]: with_value(container[steps[0]], steps[1:], value)})


def _problem(error: ValidationError) -> str:
    """Which field does not fit, and why, without what is in it. Names of fields that are no names of ours are data."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    named = [step if isinstance(step, int) or step in AgentState.model_fields else "…" for step in first["loc"]]
    return f"{'.'.join(map(str, named)) or 'the state'} ({first['type']})"


def dict_from(stored: Stored, without: Collection[Path] = ()) -> dict[str, Any]:
    """The dict of a stored checkpoint. The lists at the paths `without` need not have been read, and may be empty."""
    value: Any = decode(stored.head)
    cuts = decode_manifest(stored.manifest)
    for path in sorted(cuts.keys() - set(without), key=len):  # what lies inside a large value comes after it
        cut = cuts[path]
        if isinstance(cut, str):
            (found,) = list_items(_value_extents(cut), stored.runs)
        else:
            found = list_items(cut, stored.runs)
        value = _placed(value, path, found)
    if not isinstance(value, dict):
        raise CorruptCheckpointError(
            f"checkpoint {stored.entry.seq} of {shown_thread(stored.entry.thread_id)} is not an object"
        )
    return value


def _placed(value: Any, path: Path, found: Any) -> Any:
    """A plain value with this where a path leads to."""
    if not path:
        return found
    node = value
    for step in path[:-1]:
        node = node.get(step) if isinstance(node, dict) else None
    if not isinstance(node, dict) or path[-1] not in node:
        raise _unfit()
    node[path[-1]] = found
    return value


def _state_trace(
    stored: Stored,
    state: AgentState,
    cuts: Cuts,
    head: Any,
    chains_of: ChainsOf,
    left_out: Mapping[str, tuple[object, ...]] = MappingProxyType({}),
) -> Trace:
    by_field: dict[str, dict[Path, ListTrace | str]] = {}
    for path, cut in cuts.items():
        traces = by_field.setdefault(path[0], {})
        if isinstance(cut, str):
            traces[path] = cut
        else:
            omitted = state.locus_omitted.get(path[0], 0) if len(path) == 1 else 0
            traces[path] = ListTrace(cut, _frozen_list(state, path), None, chains_of(path, cut), omitted)
    names = [*_CONTAINERS, *(state.__pydantic_extra__ or {})]
    fields = {
        name: FieldTrace(_field(state, name), encode(head[name]), by_field.get(name, {}), left_out.get(name, ()))
        for name in names
        if name in head
    }
    for name in _LISTS:
        # Validation made exactly the built-in classes, so the items need not be looked at one by one.
        getattr(state, name).anchor(stable=True)
    base = Base(stored.entry.checkpoint_id, stored.entry.rev)
    return Trace(base, fields, stored.passed, base if state.locus_omitted else None)


def left_out_items(stored: Stored, trace: Trace) -> dict[Path, list[Any]]:
    """The items that a window left out, from the whole checkpoint that it was loaded from."""
    lists = ((path, cut) for field in trace.fields.values() for path, cut in field.cuts.items())
    return {
        path: list_items(between(cut.extents, 0, cut.omitted), stored.runs)
        for path, cut in lists
        if isinstance(cut, ListTrace) and cut.omitted
    }


def traced_again(fields: Mapping[str, FieldTrace], stored: Stored, window: Base | None) -> Trace | None:
    """The trace of a window, moved to a checkpoint that has the same content; None if that is stored in another way."""
    cuts = decode_manifest(stored.manifest)
    moved: dict[str, FieldTrace] = {}
    for name, trace in fields.items():
        lists: dict[Path, ListTrace | str] = {}
        for path, cut in trace.cuts.items():
            found = cuts.get(path)
            if isinstance(cut, str) or not isinstance(found, tuple):
                if cut != found:
                    return None
                lists[path] = cut
            else:
                lists[path] = replace(cut, extents=found, chains=chains(stored, found))
        moved[name] = replace(trace, cuts=lists)
    return Trace(Base(stored.entry.checkpoint_id, stored.entry.rev), moved, stored.passed, window)


def chains(stored: Stored, extents: tuple[Extent, ...]) -> dict[str, DigestChain]:
    """The chains of the branches that a list is on."""
    newest: dict[str, int] = {}
    for extent in extents:
        newest[extent.branch] = max(extent.run, newest.get(extent.branch, 0))
    return {branch: chain_of(stored.runs.get(branch, ()), number) for branch, number in newest.items()}


def anchor(value: object) -> None:
    """Let what is derived from this list later be compared with it."""
    if isinstance(value, Items):
        value.anchor()


def _frozen_list(state: AgentState, path: Path) -> FrozenList | Items[Any] | None:
    value: Any = _field(state, path[0])
    for step in path[1:]:
        value = value.get(step) if isinstance(value, dict) else None
    return value if isinstance(value, FrozenList | Items) else None


def _digests(stored: Stored, path: Path, extents: tuple[Extent, ...], sort_keys: bool) -> tuple[bytes, ...]:
    items = list_items(extents, stored.runs)
    return tuple(fingerprint(item_text(item, path, sort_keys)) for item in items)


def unread_trace(stored: Stored) -> Trace:
    """A trace for a handle that knows nothing yet, from the ends of what is stored: its items are not known."""
    by_field: dict[str, dict[Path, ListTrace | str]] = {}
    for path, cut in decode_manifest(stored.manifest).items():
        known = cut if isinstance(cut, str) else ListTrace(cut, None, None, chains(stored, cut))
        by_field.setdefault(path[0], {})[path] = known
    fields = {name: FieldTrace(None, "null", cuts) for name, cuts in by_field.items()}
    return Trace(Base(stored.entry.checkpoint_id, stored.entry.rev), fields, stored.passed)


def stored_trace(stored: Stored, sort_keys: bool) -> Trace:
    """A trace for a handle that knows nothing yet: one pass over what is stored."""
    by_field: dict[str, dict[Path, ListTrace | str]] = {}
    for path, cut in decode_manifest(stored.manifest).items():
        by_field.setdefault(path[0], {})[path] = (
            cut
            if isinstance(cut, str)
            else ListTrace(cut, None, _digests(stored, path, cut, sort_keys), chains(stored, cut))
        )
    fields = {name: FieldTrace(None, "null", cuts) for name, cuts in by_field.items()}
    return Trace(Base(stored.entry.checkpoint_id, stored.entry.rev), fields, stored.passed)


def kept_trace(stored: Stored, kept: Mapping[str, int], sort_keys: bool) -> Trace:
    """A trace for a save that keeps the first so many items of these lists without having read them.

    They are for the payload to name as `omitted`. Of each of the lists the last item has to be there, and all of
    everything else (a `Window`).
    """
    by_field: dict[str, dict[Path, ListTrace | str]] = {}
    for path, cut in decode_manifest(stored.manifest).items():
        trace: ListTrace | str
        if isinstance(cut, str):
            trace = cut
        elif len(path) == 1 and path[0] in kept:
            trace = ListTrace(cut, None, (), chains(stored, cut), kept[path[0]])
        else:
            trace = ListTrace(cut, None, _digests(stored, path, cut, sort_keys), chains(stored, cut))
        by_field.setdefault(path[0], {})[path] = trace
    fields = {name: FieldTrace(None, "null", cuts) for name, cuts in by_field.items()}
    base = Base(stored.entry.checkpoint_id, stored.entry.rev)
    return Trace(base, fields, stored.passed, base)
