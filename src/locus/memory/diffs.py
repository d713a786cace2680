"""What changed between two states."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import WindowError
from locus.memory.model.payloads import state_payload
from locus.memory.model.plan import Trace, align, item_text, places_left_out


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
    """What has to be done to `a` to get `b`. Values count as equal only if they are stored as the same bytes.

    Two windows are compared if they left out the same items; otherwise `WindowError` is raised.
    """
    if not _left_out_the_same(a, b):
        raise WindowError(
            "these states are windows that left out different items, or nobody can tell whether they are the same. "
            "Compare the checkpoints with `checkpointer.diff(thread_id, a, b)`, or load both whole, without `last`"
        )
    old, new = a.messages, b.messages
    before = [item_text(message, ("messages",)) for message in old]
    after = [item_text(message, ("messages",)) for message in new]
    added: list[Message] = []
    removed: list[Message] = []
    changed: list[tuple[Message, Message]] = []
    at = start = 0
    for match in [*align(before, after), None]:
        gone = old[start : match.start if match else len(old)]
        come = new[at : match.at if match else len(new)]
        if len(gone) == len(come) and all(x.role == y.role for x, y in zip(gone, come, strict=True)):
            changed += zip(gone, come, strict=True)
        else:
            removed += gone
            added += come
        if match:
            at, start = match.at + match.length, match.start + match.length
    return StateDiff(tuple(added), tuple(removed), tuple(changed), _changed_fields(a, b))


def _left_out_the_same(a: AgentState, b: AgentState) -> bool:
    """Whether the items before two windows are known to be the same: they are stored in the same places."""
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
