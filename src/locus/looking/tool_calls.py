"""How the items of a conversation read, in the terminal and in the browser: roles, tool calls, results and changes.

The terminal shows a call on one line, `→ find_order({"id": 7})`, and the browser on several. Both take its words from
here, so that a call looks the same in `locus show`, and in diffs in the terminal and in the browser. The rows of a
history and the page of a conversation have shorter ones: `locus.looking.previews.call_words`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from locus.memory.conversations import Call, Utterance, utterance_of
from locus.memory.model.changes import ItemChange

KNOWN_ROLES: Final = frozenset({"user", "assistant", "system", "tool", "developer", "reasoning"})
"""The roles that have a colour of their own."""

Written = Callable[[Any], str]
"""Writes a JSON value as text: on one line, or on several."""


def on_one_line(value: Any) -> str:
    """A JSON value on one line."""
    return json.dumps(value, ensure_ascii=False)


def role_of(said: Utterance) -> str:
    """The role as it is shown. Items that have none are called `item`."""
    return said.role or "item"


def speaker_of(said: Utterance) -> str:
    """The role, and the name of the tool or the speaker if there is one: `tool find_order`."""
    return f"{role_of(said)} {said.name}" if said.name else role_of(said)


def style_of(role: str) -> str:
    """The style of a role: the role itself, or `other` for roles that frameworks or people have made up."""
    return role if role in KNOWN_ROLES else "other"


def call_label(call: Call) -> str:
    """The beginning of a tool call: `→ find_order`."""
    return f"→ {call.name}"


def call_text(call: Call, written: Written = on_one_line) -> str:
    """A tool call with its arguments: `→ find_order({"id": 7})`."""
    return f"{call_label(call)}({written(call.arguments)})"


def results_beside(items: Sequence[Utterance]) -> dict[tuple[int, int], int]:
    """For each call that is answered further on among these items: the position of its result.

    A call is named by the position of its item and its own number in that item. A result belongs to one call, and to
    none if it calls tools itself.
    """
    answers = {said.answers: position for position, said in enumerate(items) if said.answers is not None}
    taken: set[int] = set()
    beside: dict[tuple[int, int], int] = {}
    for position, said in enumerate(items):
        for number, call in enumerate(said.calls):
            result = answers.get(call.call_id) if call.call_id is not None else None
            if result is not None and result > position and result not in taken and not items[result].calls:
                taken.add(result)
                beside[position, number] = result
    return beside


class ChangedSide(NamedTuple):
    """An item before or after a change: its role, empty if it has none, and its text."""

    role: str
    text: str


def changed_sides(change: ItemChange, written: Written = on_one_line) -> tuple[ChangedSide | None, ChangedSide | None]:
    """An item of a list before and after a change; None where there is no item.

    The text is what the item says, and its tool calls. Where the difference is in something else, it is the whole item.
    """
    before = None if change.kind == "added" else utterance_of(change.before)
    after = None if change.kind == "removed" else utterance_of(change.after)

    def side(said: Utterance | None, item: Any) -> ChangedSide | None:
        if said is None:
            return None
        if not said.role or before == after:
            return ChangedSide(said.role, written(item))
        calls = [call_text(call, written) for call in said.calls]
        return ChangedSide(said.role, "\n".join(filter(None, [said.text, *calls])))

    return side(before, change.before), side(after, change.after)
