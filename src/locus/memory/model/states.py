"""An `AgentState` taken apart for a save, and put together again by a load.

`state_payload` takes a state apart, and `item_text` writes an item of its lists. `STATES` and `loaded_state` put a
stored one together: the plain fields are validated as they stand in the head; the items of its lists are decoded, or
taken from a state that the reader holds already, and put in their place. The trace that comes with a state says what
the next save may refer to.

This is the only module of the model that knows `AgentState`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any, Final, cast, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from locus.core.frozen import FrozenDict, FrozenList, Items, freeze, is_ours, trusted
from locus.core.state import AgentState
from locus.errors import CorruptCheckpointError, SerializationError
from locus.memory.model.codec import SEALED, check_open, decode, encode, encode_trusted
from locus.memory.model.digests import MOST_MARKS, UNKNOWN_CHAIN, DigestChain
from locus.memory.model.ids import shown_thread
from locus.memory.model.manifest import (
    chain_of,
    decode_manifest,
    digest_before,
    extents_at,
    extents_in,
    items_texts,
    newest_in,
    pieces_text,
    visible,
)
from locus.memory.model.parts import Window, between, total_of
from locus.memory.model.payloads import OMITTED, placed
from locus.memory.model.plan import LARGE_VALUE, Payload
from locus.memory.model.records import Base, Extent, Path, Run, Stored
from locus.memory.model.trace import FieldTrace, ListTrace, Trace
from locus.memory.model.warm import HeldCheckpoint, LoadForm

LoadedState = tuple[AgentState, Trace]
"""A state, and what the next save of it may refer to."""

_LISTS = tuple(name for name, info in AgentState.model_fields.items() if isinstance(info.default, Items))
_DICTS = tuple(
    name for name, info in AgentState.model_fields.items() if isinstance(info.default, FrozenDict) and name != OMITTED
)
_FIELDS = (*_DICTS, *_LISTS)
_CONTAINERS = frozenset(_FIELDS)
_SCALARS = AgentState.model_fields.keys() - _CONTAINERS
_NESTED = (dict, list, tuple)
_SHORT = frozenset({int, float, bool, type(None)})
_UNCHANGED = frozenset({*_SHORT, str, FrozenDict, FrozenList})
"""Types of items and fields that are written as they are."""
_VALUES = TypeAdapter(list[Any])
_NUMBER = attrgetter("number")
STATE_LISTS: frozenset[Path] = frozenset((name,) for name in _LISTS)
"""The lists that a window of a state shortens."""


def times_of(kind: type[BaseModel]) -> tuple[str, ...]:
    """The names of the fields that may hold a time. JSON has no times, so they are written as text."""
    annotations = {name: info.annotation for name, info in kind.model_fields.items()}
    return tuple(name for name, annotation in annotations.items() if _may_be_time(annotation))


def _may_be_time(annotation: Any) -> bool:
    # An Annotated type inside of a union, such as `Instant | None`, still has the datetime as its origin.
    return any(getattr(part, "__origin__", part) is datetime for part in (annotation, *get_args(annotation)))


def _items_adapter(name: str) -> TypeAdapter[Any]:
    annotation: Any = AgentState.model_fields[name].annotation
    return TypeAdapter(annotation)


_ITEMS = {(name,): _items_adapter(name) for name in _LISTS}
_TIMES = times_of(AgentState)
_PLAIN = tuple(name for name in AgentState.model_fields if name not in {*_CONTAINERS, *_TIMES, OMITTED})


# Taking apart.


def state_payload(state: AgentState) -> Payload:
    """Take a state apart for a save. Its lists are not dumped."""
    if not isinstance(state, AgentState):
        raise SerializationError(
            f"a checkpointer keeps AgentState, got {type(state).__name__}: {state!r:.80}. "
            "Plain dicts are kept by storage backends: backend.save(thread_id, data)"
        )
    extra, values = state.__pydantic_extra__ or {}, state.__dict__
    fields: dict[str, Any] = {name: values[name] for name in _FIELDS}
    if type(state) is AgentState:
        plain = {name: values[name] for name in _PLAIN}
        for name in _TIMES:
            at = values[name]
            plain[name] = None if at is None else at.isoformat()
    else:
        plain = state.model_dump(exclude={*_CONTAINERS, *extra, OMITTED})
    plain.update(extra)
    # What may have to be cut out:
    for name, value in [*plain.items()]:
        if len(value) >= LARGE_VALUE if isinstance(value, str) else isinstance(value, _NESTED):
            fields[name] = plain.pop(name)
    lineage = state._private()["_lineage"]
    return Payload(plain, fields, frozen=True, omitted=state.locus_omitted, plain_item=plain_item, lineage=lineage)


def item_text(item: object, path: tuple[str | int, ...], sort_keys: bool = False) -> str:
    """One item of a state's list as JSON text."""
    return encode(plain_item(item), path, sort_keys=sort_keys)


def plain_item(item: object) -> object:
    """One item of a state's list as `encode` takes it; fields at their defaults are left out.

    A user's subclass comes back as its base class, so all of its fields are written.
    """
    if type(item) in _UNCHANGED:
        return item
    if is_ours(item) and trusted(item):
        return _plain(item)
    return item.model_dump(serialize_as_any=True) if isinstance(item, BaseModel) else item


def _plain(model: BaseModel) -> dict[str, Any]:
    """A built-in model as a dict, without fields at their defaults.

    `model_dump` would turn an object in a metadata dict into something that JSON can hold; here it stays, and
    is refused.
    """
    plain: dict[str, Any] = {}
    values = model.__dict__
    for name, default in _defaults(type(model)):
        value = values[name]
        if value is not default and value != default:
            plain[name] = value if type(value) in _UNCHANGED else _plain_value(value)
    return plain | model.__pydantic_extra__ if model.__pydantic_extra__ else plain


def _plain_value(value: Any) -> Any:
    if isinstance(value, Items):
        return [_plain(inner) if is_ours(inner) else inner for inner in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value._value_ if isinstance(value, Enum) else value  # `value` is a property, and takes ten times as long


@cache
def _defaults(kind: type[BaseModel]) -> list[tuple[str, Any]]:
    """The fields of a built-in model, each with its default. The cache stays small, since there are few models."""
    return [(name, info.default) for name, info in kind.model_fields.items()]


# Putting together.


def loaded_state(stored: Stored, window: Window | None = None) -> LoadedState:
    """The state of a stored checkpoint, or a window of it, and the trace for its next save."""
    return _StateBuilder(stored, None, window).build()


def _completed(sent: Stored, held: HeldCheckpoint | None) -> tuple[LoadedState, HeldCheckpoint | None]:
    """Complete a state from the items that a handle holds and the runs that were sent; and say what to hold next.

    That is its decoded items. They cannot change, so that every load shares them.
    """
    builder = _StateBuilder(sent, held)
    state, trace = builder.build()
    for path in builder.cuts:
        if path[0] not in trace.fields:
            return (state, trace), None  # a plain field has a very long text, of which a trace knows nothing
    newest = newest_in(extents_in(builder.cuts))
    return (state, trace), HeldCheckpoint(trace.base, builder.cuts, {}, trace, newest, builder.sizes)


STATES: Final[LoadForm[LoadedState]] = _completed

_NOTHING_HELD: Final = HeldCheckpoint(Base("", ""), {}, {})
_NOTHING_DECODED: Final = ListTrace((), ())

_Span = tuple[int, int]


class _StateBuilder:
    """Builds one state, or a window of it, from runs that were sent and items that are held.

    A list as of one run is the list as of an older run, up to the first position that a run between them begins at.
    That part is taken from what is held; the rest is decoded from the runs that were sent.
    """

    def __init__(self, sent: Stored, held: HeldCheckpoint | None, window: Window | None = None) -> None:
        self.cuts = decode_manifest(sent.manifest)
        self.sizes: dict[Path, int] = {}
        """How many characters each list and each large value has as text."""
        self._sent = sent
        self._held = held or _NOTHING_HELD
        self._window = window
        self._runs: dict[str, list[Run]] = {}
        self._chains: dict[Path, dict[str, DigestChain]] = {}

    def build(self) -> LoadedState:
        head = decode(self._sent.head)
        if not isinstance(head, dict) or () in self.cuts:
            raise self._no_state("it is no object")
        if SEALED in head:
            check_open(head)
        head.pop(OMITTED, None)  # nobody stores it, except as a lie
        texts = self._texts_in(head)
        lists: dict[str, Items[Any]] = {}
        path: Path = ()
        try:
            for path in sorted(self.cuts, key=len):  # what lies inside a large value comes after it
                cut = self.cuts[path]
                value = self._value(path, cut) if isinstance(cut, str) else self._list(path, cut)
                if isinstance(value, Items) and path[0] in head:
                    lists[path[0]] = value
                else:
                    placed(head, path, value)
            path = ()
            state = AgentState.model_validate(head)
        except ValidationError as error:
            problem = f"{error.error_count()} fields do not fit, the first is {_problem(error, path)}"
            raise self._no_state(problem) from None  # its text has the values
        update, left_out = (lists, {}) if self._window is None else self._windowed(state, lists, self._window)
        state = BaseModel.model_copy(state, update=update)
        return state, self._trace(state, texts, left_out)

    def _texts_in(self, head: Mapping[str, Any]) -> dict[str, str]:
        """The JSON text of each field that lists may be cut out of. The next save reuses it if nothing changed."""
        texts: dict[str, str] = {}
        try:
            for name, value in head.items():
                if name not in _SCALARS:
                    texts[name] = encode(value) if value else encode_trusted(value)
        except SerializationError:
            raise self._no_state("its head has something that JSON does not have") from None
        return texts

    def _windowed(
        self, state: AgentState, lists: Mapping[str, Items[Any]], window: Window
    ) -> tuple[dict[str, Any], dict[str, tuple[object, ...]]]:
        """The lists of a state cut to a window, and, of lists that are stored in the head, the items left out."""
        update: dict[str, Any] = {}
        omitted: dict[str, int] = {}
        left_out: dict[str, tuple[object, ...]] = {}
        for name in _LISTS:
            cut = self.cuts.get((name,))
            if name in lists and isinstance(cut, tuple):
                items = lists[name]
                count = total_of(cut) - len(items)
            else:
                whole: Items[Any] = getattr(state, name)
                count = window.start(len(whole))
                left_out[name], items = tuple(whole[:count]), Items(whole[count:])
            update[name] = items.after(count)
            update[name].anchor(stable=True)
            if count:
                omitted[name] = count
        update[OMITTED] = FrozenDict(omitted)
        return update, left_out

    def _trace(self, state: AgentState, texts: Mapping[str, str], left_out: Mapping[str, tuple[object, ...]]) -> Trace:
        entry, omitted = self._sent.entry, state.locus_omitted
        # A field that the class does not know may be called like one of its methods.
        values = {**state.__dict__, **(state.__pydantic_extra__ or {})}
        cuts: dict[str, dict[Path, ListTrace | str]] = {}
        for path, cut in self.cuts.items():
            name, *steps = path
            traces = cuts.setdefault(name, {})
            if isinstance(cut, str):
                traces[path] = cut
                continue
            items: Any = values[name]
            for step in steps:
                items = items[step]
            count = 0 if steps else omitted.get(name, 0)
            traces[path] = ListTrace(cut, items, None, self._chains[path], count)
        fields: dict[str, FieldTrace] = {}
        for name, text in texts.items():
            fields[name] = FieldTrace(values[name], text, cuts.get(name, {}), left_out.get(name, ()))
        base = Base(entry.checkpoint_id, entry.rev)
        return Trace(base, fields, self._sent.passed, base if omitted else None)

    def _decoded(self, path: Path) -> ListTrace | str | None:
        """The held trace of a list, or the held name of a large value, at a path; None if nothing is held."""
        trace = self._held.trace
        known = None if trace is None else trace.fields.get(path[0])
        return None if known is None else known.cuts.get(path)

    def _texts(self, branch: str) -> list[Run]:
        """The runs of a branch, held and sent, in the order of their numbers."""
        runs = self._runs.get(branch)
        if runs is None:
            sent = sorted(self._sent.runs.get(branch, ()), key=_NUMBER)
            runs = self._runs[branch] = [*self._held.runs.get(branch, ()), *sent]
        return runs

    def _value(self, path: Path, branch: str) -> Any:
        """Read a large value: from its run, or from the state that is held."""
        runs = self._texts(branch)
        if runs:
            self.sizes[path] = len(runs[-1].items)
            values = parsed_values("".join(items_texts(extents_at(branch), {branch: runs})))
            if len(values) != 1:
                raise self._no_state(f"the large value {branch!r} is not one")
            return values[0]
        trace = self._held.trace
        if trace is None or self._decoded(path) != branch or branch not in self._held.decoded:
            raise CorruptCheckpointError(f"the large value {branch!r} is missing")
        self.sizes[path] = self._held.sizes.get(path, 0)
        of_field = trace.fields[path[0]]
        value = of_field.value
        for step in path[1:]:
            value = cast(Any, value)[step]
        for inner, cut in of_field.cuts.items():
            # Where a list was cut out of the same text, and is not now, there is an empty one.
            if inner[: len(path)] == path != inner and inner not in self.cuts:
                value = placed(value, inner[len(path) :], None if isinstance(cut, str) else FrozenList())
        return value

    def _list(self, path: Path, extents: tuple[Extent, ...]) -> Sequence[Any]:
        """A list of the state: all of it, or the part in the window."""
        known = self._decoded(path)
        trace = known if isinstance(known, ListTrace) and known.items is not None else _NOTHING_DECODED
        decoded = trace.items or ()
        self._chains[path] = {}
        for branch, number in newest_in(extents).items():
            self._chains[path][branch] = self._chain(branch, number, trace.chains.get(branch, UNKNOWN_CHAIN))
        if self._window is not None and path in self._window.paths:
            total = total_of(extents)
            extents = tuple(between(extents, self._window.start(total), total))
        parts: list[Sequence[Any]] = []
        size, shared = 0, 0
        for extent in extents:
            spans, text = self._covered(extent, trace)
            if len(extents) == 1 and spans == [(0, len(decoded))] and not text:
                self.sizes[path] = self._held.sizes.get(path, 0)
                return decoded
            for low, high in spans:
                parts.append(_part(decoded, low, high))
                shared += high - low
            if text:
                parts.append(parsed_items(path, text))
                size += len(text)
        self.sizes[path] = size + int(self._held.sizes.get(path, 0) * shared / max(1, len(decoded)))
        items = joined_items(path, parts)
        if isinstance(items, Items):
            # Validation made exactly the built-in classes, so the items need not be looked at one by one.
            items.anchor(stable=True)
        return items

    def _covered(self, extent: Extent, trace: ListTrace) -> tuple[list[_Span], str]:
        """The spans of an extent's items among the decoded ones, and the JSON of the items after those."""
        branch, end = extent.branch, extent.skip + extent.length
        decoded = self._held.decoded.get(branch)
        if decoded is not None and extent.run <= decoded:
            return _spans(trace.extents, extent), ""
        runs = self._texts(branch)
        if self._held is _NOTHING_HELD:
            return [], "".join(items_texts([extent], {branch: runs}))
        later = [run for run in runs if run.number <= extent.run and (decoded is None or run.number > decoded)]
        if not later or later[-1].number != extent.run:
            raise CorruptCheckpointError(f"the items of run {extent.run} of branch {branch!r} are missing")
        if decoded is None:
            return [], "".join(items_texts([extent], {branch: later}))
        first = max(extent.skip, min(end, min(run.start for run in later)))
        spans = _spans(trace.extents, Extent(branch, decoded, extent.skip, first - extent.skip))
        pieces = visible(Extent(branch, extent.run, first, end - first), later) if first < end else []
        if spans and pieces and not _continues(pieces[0][0], decoded, later, trace.chains.get(branch, UNKNOWN_CHAIN)):
            raise CorruptCheckpointError(f"run {pieces[0][0].number} of branch {branch!r} does not go on with the held")
        return spans, pieces_text(pieces) if pieces else ""

    def _chain(self, branch: str, number: int, known: DigestChain) -> DigestChain:
        decoded = self._held.decoded.get(branch)
        if decoded is None:
            return chain_of(self._texts(branch), number)
        if number <= decoded:
            return known if number == decoded else UNKNOWN_CHAIN
        later = [run for run in self._texts(branch) if decoded < run.number <= number]
        chain = chain_of(later, number)
        if not chain.marks:
            return chain
        first, before = min(run.start for run in later), known.marks
        if before and before[-1].position >= first:
            before = tuple(mark for mark in before if mark.position < first)
        return chain._replace(marks=(before + chain.marks)[-MOST_MARKS:])

    def _no_state(self, reason: str) -> CorruptCheckpointError:
        entry = self._sent.entry
        return CorruptCheckpointError(
            f"checkpoint {entry.seq} of {shown_thread(entry.thread_id)} is not a state: {reason}"
        )


def _problem(error: ValidationError, path: Path) -> str:
    """A description of the first field that does not fit, without its content. Users' field names are not shown."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    steps = (*path, *first["loc"])
    named = [step if isinstance(step, int) or step in AgentState.model_fields else "…" for step in steps]
    return f"{'.'.join(map(str, named)) or 'the state'} ({first['type']})"


def _part(items: Sequence[Any], low: int, high: int) -> Sequence[Any]:
    if (low, high) == (0, len(items)):
        return items
    part = slice(low, high)  # as a plain tuple: a slice of `Items` would remember where it comes from
    return tuple.__getitem__(items, part) if isinstance(items, tuple) else items[part]


def _spans(extents: Iterable[Extent], wanted: Extent) -> list[_Span]:
    """The spans at which an extent's items stand in a decoded list, which names the same run of the branch."""
    spans: list[_Span] = []
    offset, at, end = 0, wanted.skip, wanted.skip + wanted.length
    candidates: list[tuple[int, int, int]] = []
    for extent in extents:
        if (extent.branch, extent.run) == (wanted.branch, wanted.run):
            candidates.append((extent.skip, extent.length, offset))
        offset += extent.length
    for skip, length, first in sorted(candidates):
        if skip <= at < min(end, skip + length):
            stop = min(end, skip + length)
            spans.append((first + at - skip, first + stop - skip))
            at = stop
    if at < end:
        raise CorruptCheckpointError(f"items {at} to {end} of branch {wanted.branch!r} are not held")
    return spans


def _continues(run: Run, decoded: int, later: Iterable[Run], chain: DigestChain) -> bool:
    """Whether a run was added to the list that is held decoded.

    Where no number is missing between the two, it was. Else some runs were removed, because nothing shows them, or were
    lost; that is told by the digest of what precedes the run.
    """
    if sum(each.number <= run.number for each in later) == run.number - decoded:
        return True
    before = digest_before(run)
    return before is not None and any(chain.at(run.start, sort_keys) == before for sort_keys in (False, True))


def parsed_values(text: str) -> list[Any]:
    """The frozen values of a JSON array, as any field of a state may hold them."""
    return [freeze(value) for value in _VALUES.validate_json(text)]


def parsed_items(path: Path, text: str) -> Sequence[Any]:
    """The items of a part of a state's list, validated as they are in a whole state."""
    adapter = _ITEMS.get((path[0],)) if len(path) == 1 else None
    return parsed_values(text) if adapter is None else cast(tuple[Any, ...], adapter.validate_json(text))


def joined_items(path: Path, parts: Sequence[Sequence[Any]]) -> Items[Any] | FrozenList:
    """Join the parts of a state's list."""
    if len(path) == 1 and path[0] in _LISTS:
        # In C, and each item as seldom as can be: to count a reference to it is what takes the time.
        whole: tuple[Any, ...] = ()
        for part in parts:
            items = part if isinstance(part, tuple) else tuple(part)
            whole = tuple.__add__(whole, items) if whole else items
        return Items(whole)
    return FrozenList(chain.from_iterable(parts))


def anchor(value: object) -> None:
    """Let lists that are derived from this one be compared with it by identity."""
    if isinstance(value, Items):
        value.anchor()
