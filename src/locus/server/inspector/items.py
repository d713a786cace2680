"""The items of a conversation as a page shows them: the words, and tool calls with their results beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from locus.looking.formatting import duration
from locus.looking.previews import call_words, facts_of, first_words
from locus.looking.tool_calls import results_beside, role_of, style_of
from locus.memory.conversations import Utterance, utterance_of
from locus.server.inspector.colours import Colouring
from locus.server.inspector.images import images_of
from locus.server.inspector.markdown import MarkdownNode, markdown, texts
from locus.server.inspector.trees import folded, is_encoded

LONGEST: Final = 4_000
"""Characters of one item's text on a page with others."""
_IMAGES: Final = 4_000_000
"""The most characters of the images of a page, about."""
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
    line: str
    """The call in few words."""
    answer: str = ""
    """The result in few words."""
    took: str = ""
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
    rich: list[MarkdownNode] | None = None
    """The text as Markdown; None where it is shown as it is."""
    images: list[str] = field(default_factory=list)
    failed: bool = False


def items_shown(
    items: Sequence[Any], start: int, *, whole: bool = False, raw: bool = False, terms: Sequence[str] = ()
) -> list[ItemShown]:
    """The items of a page, whose first has the number `start`. A result stands beside its call, and not alone.

    With `raw`, texts are shown as they are. So is one in which `terms` are found only then.
    """
    said = [utterance_of(item) for item in items]
    beside = results_beside(said)
    results = set(beside.values())

    def shown(position: int, calls: list[CallShown]) -> ItemShown:
        rich = not raw and said[position].answers is None and said[position].role != "tool"
        one = _item(start + position, items[position], said[position], calls, whole)
        nodes = markdown(one.text, colouring) if rich and one.text else None
        if nodes is not None and not _loses(nodes, one.text, terms):
            one = replace(one, rich=nodes)
        if room[0] > 0:
            images = images_of(items[position])
            room[0] -= sum(map(len, images))
            one = replace(one, images=images)
        return one

    room, colouring = [_IMAGES], Colouring()
    page: list[ItemShown] = []
    for position, utterance in enumerate(said):
        if position in results:
            continue
        calls: list[CallShown] = []
        for number, call in enumerate(utterance.calls):
            arguments, more = folded(call.arguments, _LONG_JSON)
            result = beside.get((position, number))
            made = CallShown(call.name, arguments, more, call_words(call))
            if result is not None:
                seconds = facts_of(items[result]).seconds
                answer = first_words(said[result].text)
                took = "" if seconds is None else duration(seconds)
                made = replace(made, answer=answer, took=took, result=shown(result, []))
            calls.append(made)
        page.append(shown(position, calls))
    return page


def _loses(nodes: Sequence[MarkdownNode], text: str, terms: Sequence[str]) -> bool:
    """Whether one of the terms is in a text, but in none of the pieces that Markdown makes of it."""
    pieces = [piece.casefold() for piece in texts(nodes)]
    wanted = [term.casefold() for term in terms if term.casefold() in text.casefold()]
    return any(not any(term in piece for piece in pieces) for term in wanted)


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
    return ItemShown(
        at,
        role_of(said),
        style_of(said.role),
        said.name,
        text[:most],
        more,
        json_text,
        json_more,
        calls,
        failed=said.failed,
    )
