"""Differences between two states, and between two checkpoints of states, as a `StateDiff`.

`model/comparison` finds out what two checkpoints share without reading it; only the rest is read here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from locus.core.frozen import freeze
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import CorruptCheckpointError, WindowError
from locus.memory.model.alignment import align
from locus.memory.model.changes import PayloadDiff, gaps
from locus.memory.model.codec import canonical, encode
from locus.memory.model.comparison import MISSING, Comparison, PartRequests, Side, items, payload_diff
from locus.memory.model.records import Stored
from locus.memory.model.states import STATE_LISTS, item_text, joined_items, parsed_items, state_payload
from locus.memory.model.trace import Trace, places_left_out

_MESSAGES = ("messages",)


@dataclass(frozen=True)
class StateDiff:
    """The difference between two states, `a` and `b`.

    A message of `a` is *changed* if another one of the same role stands in its place in `b`; `fields` has
    every other field that differs, as `(before, after)`.
    """

    added: tuple[Message, ...] = ()
    removed: tuple[Message, ...] = ()
    changed: tuple[tuple[Message, Message], ...] = ()
    fields: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.fields)


def diff(a: AgentState, b: AgentState) -> StateDiff:
    """The changes that turn `a` into `b`. Values count as equal only if they are stored as the same bytes.

    Two windows are compared if they left out the same items; otherwise `WindowError` is raised.
    """
    if not _left_out_the_same(a, b):
        raise WindowError(
            "these states are windows that left out different items, or nobody can tell whether they are the same. "
            "Compare the checkpoints with `checkpointer.diff(thread_id, a, b)`, or load both whole, without `last`"
        )
    messages = _changed_messages(a.messages, b.messages)
    return StateDiff(messages.added, messages.removed, messages.changed, _changed_fields(a, b))


def _changed_messages(old: Sequence[Message], new: Sequence[Message]) -> StateDiff:
    before = [item_text(message, _MESSAGES) for message in old]
    after = [item_text(message, _MESSAGES) for message in new]
    added: list[Message] = []
    removed: list[Message] = []
    changed: list[tuple[Message, Message]] = []
    for gap in gaps(align(before, after), len(old), len(new)):
        gone, come = old[gap.old : gap.old_end], new[gap.new : gap.new_end]
        if len(gone) == len(come) and all(x.role == y.role for x, y in zip(gone, come, strict=True)):
            changed += zip(gone, come, strict=True)
        else:
            removed += gone
            added += come
    return StateDiff(tuple(added), tuple(removed), tuple(changed))


def checkpoint_diff(comparison: Comparison) -> PartRequests[StateDiff]:
    """The changes between two stored states. What they share is not read; `fields` has each differing field whole."""
    yield from comparison.read_ahead()
    added: tuple[Message, ...] = ()
    removed: tuple[Message, ...] = ()
    changed: tuple[tuple[Message, Message], ...] = ()
    lengths = [_length(side) for side in (comparison.old, comparison.new)]
    for gap in gaps((yield from comparison.shared(_MESSAGES)), *lengths):
        old = yield from _messages(comparison.old, gap.old, gap.old_end)
        new = yield from _messages(comparison.new, gap.new, gap.new_end)
        inside = _changed_messages(old, new)
        added, removed, changed = added + inside.added, removed + inside.removed, changed + inside.changed
    return StateDiff(added, removed, changed, (yield from _stored_fields(comparison)))


def _head(side: Side) -> dict[str, Any]:
    if not isinstance(side.head, dict):
        raise CorruptCheckpointError("a stored state is no object")
    return side.head


def _length(side: Side) -> int:
    length = side.length_of(_head(side).get("messages", []), _MESSAGES)
    if length is None:
        raise CorruptCheckpointError("the messages of a stored state are no list")
    return length


def _messages(side: Side, low: int, high: int) -> PartRequests[Sequence[Message]]:
    stored = yield from items(side, _head(side).get("messages"), _MESSAGES, low, high)
    return _parsed("messages", stored)


def _parsed(name: str, stored: list[Any]) -> Sequence[Any]:
    """The items of the list `name` of a state, from what is stored of them."""
    try:
        return parsed_items((name,), encode(stored))
    except ValidationError as error:  # its text has the values
        count = error.error_count()
        raise CorruptCheckpointError(f"what is stored is no state: {count} items of {name} do not fit") from None


def _stored_fields(comparison: Comparison) -> PartRequests[dict[str, tuple[Any, Any]]]:
    changed: dict[str, tuple[Any, Any]] = {}
    old, new = _head(comparison.old), _head(comparison.new)
    for name in {**old, **new}:
        if name in ("messages", "locus_omitted"):
            continue
        before, after = old.get(name, MISSING), new.get(name, MISSING)
        if not (yield from comparison.differing(before, after, (name,))):
            continue
        values = []
        for side, value in ((comparison.old, before), (comparison.new, after)):
            values.append(MISSING if value is MISSING else (yield from side.whole(value, (name,))))
        if not _is_default(name, *values):
            changed[name] = _field(name, values[0]), _field(name, values[1])
    return changed


def _is_default(name: str, before: Any, after: Any) -> bool:
    """True if one state lacks a field, as those of an older version do, and the other has the default there."""
    info = AgentState.model_fields.get(name)
    if info is None or info.default_factory is not None or (before is not MISSING and after is not MISSING):
        return False
    return canonical(after if before is MISSING else before) == canonical(info.default)


def _field(name: str, value: Any) -> Any:
    """A stored value as the field of a state; times stay the text that is stored."""
    if value is MISSING:
        return None
    if (name,) in STATE_LISTS and isinstance(value, list):
        return joined_items((name,), [_parsed(name, value)])
    return freeze(value)


def diff_of_payloads(before: Stored, after: Stored, start: int, limit: int) -> PayloadDiff:
    """The changes between two payloads that were read whole."""
    sides = Side(0, before), Side(1, after)
    steps = payload_diff(Comparison(*sides, same_thread=False, sort_keys=True), start, limit)
    try:
        next(steps)
    except StopIteration as stop:
        result: PayloadDiff = stop.value
        return result
    raise CorruptCheckpointError("a payload that is to be compared is not whole")


def _left_out_the_same(a: AgentState, b: AgentState) -> bool:
    """True if the items before two windows are known to be the same: they are stored in the same places."""
    if not a.locus_omitted and not b.locus_omitted:
        return True
    if a.locus_omitted != b.locus_omitted:
        return False
    for key, trace in a._lineage.items():
        other = b._lineage.get(key)
        if isinstance(trace, Trace) and isinstance(other, Trace):
            return trace.window == other.window or places_left_out(trace) == places_left_out(other)
    return False


def _changed_fields(a: AgentState, b: AgentState) -> dict[str, tuple[Any, Any]]:
    missing = object()
    before, after = (
        {name: value for part in (payload.plain, payload.fields) for name, value in part.items()}
        for payload in (state_payload(a), state_payload(b))
    )
    changed: dict[str, tuple[Any, Any]] = {}
    for name in {**before, **after}:
        x, y = before.get(name, missing), after.get(name, missing)
        if name == "messages" or (x is not missing and y is not missing and _same(x, y, name)):
            continue
        changed[name] = (None if x is missing else x, None if y is missing else y)
    return changed


def _same(x: Any, y: Any, name: str) -> bool:
    if isinstance(x, tuple) and isinstance(y, tuple):
        return len(x) == len(y) and all(_same(i, j, name) for i, j in zip(x, y, strict=True))
    return item_text(x, (name,), sort_keys=True) == item_text(y, (name,), sort_keys=True)
