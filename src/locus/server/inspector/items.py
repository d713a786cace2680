"""The items of a conversation as a page shows them: the words, and tool calls with their results beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from locus.looking.tool_calls import results_beside, role_of, style_of
from locus.memory.conversations import Utterance, utterance_of
from locus.server.inspector.trees import folded, is_encoded

LONGEST: Final = 4_000
"""Characters of one item's text on a page with others."""
_LONG_JSON: Final = 12_000
_WHOLE: Final = 2_000_000
"""Characters of an item that is shown alone. An export has all of it."""


@dataclass(frozen=True)
class CallShown:
    """A tool call with its result, if that is on the same page."""

    name: str
    arguments: str
    more: str
    """The note about arguments that are left out."""
    result: ItemShown | None = None


@dataclass(frozen=True)
class ItemShown:
    """An item of a conversation."""

    at: int
    role: str
    style: str
    """The class that decides the colour (see `tool_calls.style_of`)."""
    name: str | None
    text: str
    more: int
    """The number of characters that are left out."""
    json: str
    json_more: str
    calls: list[CallShown] = field(default_factory=list)


def items_shown(items: Sequence[Any], start: int, *, whole: bool = False) -> list[ItemShown]:
    """The items of a page, whose first has the number `start`. A result stands beside its call, and not alone."""
    said = [utterance_of(item) for item in items]
    beside = results_beside(said)
    results = set(beside.values())

    def shown(position: int, calls: list[CallShown]) -> ItemShown:
        return _item(start + position, items[position], said[position], calls, whole)

    page: list[ItemShown] = []
    for position, utterance in enumerate(said):
        if position in results:
            continue
        calls: list[CallShown] = []
        for number, call in enumerate(utterance.calls):
            arguments, more = folded(call.arguments, _LONG_JSON)
            result = beside.get((position, number))
            calls.append(CallShown(call.name, arguments, more, None if result is None else shown(result, [])))
        page.append(shown(position, calls))
    return page


def best_item(items: Sequence[ItemShown], terms: Sequence[str]) -> int | None:
    """The number of the item that has the most of these terms, and of several the last one; None if none has any."""
    wanted = [term.casefold() for term in terms]
    best, most = None, 0
    for item in items:
        texts = [item.text]
        for call in item.calls:
            texts += [call.name, call.arguments, call.result.text if call.result is not None else ""]
        said = "\n".join(texts).casefold()
        count = sum(term in said for term in wanted)
        if count and count >= most:
            best, most = item.at, count
    return best


def _item(at: int, item: Any, said: Utterance, calls: list[CallShown], whole: bool) -> ItemShown:
    encoded = is_encoded(said.text)
    text = said.text if encoded is None else f"[{encoded}]"
    most = _WHOLE if whole else LONGEST
    json_text, json_more = folded(item, _WHOLE if whole else _LONG_JSON)
    more = max(0, len(text) - most)
    return ItemShown(at, role_of(said), style_of(said.role), said.name, text[:most], more, json_text, json_more, calls)
