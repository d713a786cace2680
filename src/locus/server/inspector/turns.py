"""A conversation as people read it: what was said, by whom, and tool calls with their results beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from locus.memory.conversations import Turn, turn_of
from locus.server.inspector.trees import folded, is_encoded

LONGEST: Final = 4_000
"""Characters of one message that are shown at once."""
_LONG_JSON: Final = 12_000
_WHOLE: Final = 2_000_000
"""Characters of a message that is shown alone. An export has all of it."""
_KNOWN: Final = frozenset({"user", "assistant", "system", "tool", "developer", "reasoning"})


@dataclass(frozen=True)
class CallShown:
    """A tool call with its result, if that is on the same page."""

    name: str
    arguments: str
    more: str
    result: TurnShown | None = None


@dataclass(frozen=True)
class TurnShown:
    """An item of a conversation."""

    at: int
    role: str
    kind: str
    """The role, if it is one that is known: it decides the colour."""
    name: str | None
    text: str
    more: int
    """How many characters are left out."""
    json: str
    json_more: str
    calls: list[CallShown] = field(default_factory=list)


def conversation_shown(items: Sequence[Any], start: int, *, whole: bool = False) -> list[TurnShown]:
    """The items of a page. A result that follows its call stands beside it, and not on a line of its own."""
    turns = [turn_of(item) for item in items]
    results = {turn.answers: at for at, turn in enumerate(turns) if turn.answers is not None}
    beside: set[int] = set()
    shown: list[TurnShown] = []
    for at, (item, turn) in enumerate(zip(items, turns, strict=True)):
        calls: list[CallShown] = []
        for call in turn.calls:
            found = results.get(call.call_id) if call.call_id is not None else None
            result = None
            if found is not None and found > at and found not in beside and not turns[found].calls:
                beside.add(found)
                result = _turn(start + found, items[found], turns[found], [], whole)
            arguments, more = folded(call.arguments, _LONG_JSON)
            calls.append(CallShown(call.name, arguments, more, result))
        if at not in beside:
            shown.append(_turn(start + at, item, turn, calls, whole))
    return shown


def best_turn(turns: Sequence[TurnShown], terms: Sequence[str]) -> int | None:
    """The place of the turn that has the most of these terms, and of several the last one; None if none has any."""
    wanted = [term.casefold() for term in terms]
    best, most = None, 0
    for turn in turns:
        texts = [turn.text]
        for call in turn.calls:
            texts += [call.name, call.arguments, call.result.text if call.result is not None else ""]
        said = "\n".join(texts).casefold()
        count = sum(term in said for term in wanted)
        if count and count >= most:
            best, most = turn.at, count
    return best


def _turn(at: int, item: Any, turn: Turn, calls: list[CallShown], whole: bool) -> TurnShown:
    encoded = is_encoded(turn.text)
    text = turn.text if encoded is None else f"[{encoded}]"
    most = _WHOLE if whole else LONGEST
    json_text, json_more = folded(item, _WHOLE if whole else _LONG_JSON)
    role = turn.role or "item"
    kind = turn.role if turn.role in _KNOWN else "other"
    return TurnShown(at, role, kind, turn.name, text[:most], max(0, len(text) - most), json_text, json_more, calls)
