"""One-line previews of the items of a conversation: first words, a call, its result, an error, a question.

    →  get_price("Peak")          a call
    ←  89.90                      its result
    ✗  timeout after 5 s          an error
    ◷  get_price("Peak")          waits for a person

Pure functions. Whatever framework wrote the item, `memory.conversations` knows how it reads. Numbers are those that the
framework has recorded; what nobody recorded is None.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from locus.memory.conversations import THOUGHTS, Call, utterance_of, utterances_of

LONGEST: Final = 200
"""The most characters of a preview."""
MOST: Final = 12
"""The most items of a save that have previews: the last ones."""

_CONFIRMATION: Final = "adk_request_confirmation"
_CREDENTIALS: Final = "adk_request_credential"
_ASKED: Final = frozenset({"mcp_approval_request", "function_approval_request"})
_APPROVALS: Final = _ASKED | {"mcp_approval_response", "function_approval_response"}
_TOTALS: Final = ("total_tokens", "total_token_count", "totalTokens", "totalTokenCount")
_SHARES: Final = (
    ("input_tokens", "output_tokens"),
    ("prompt_tokens", "completion_tokens"),
    ("prompt_token_count", "candidates_token_count"),
    ("inputTokens", "outputTokens"),
    ("input_token_count", "output_token_count"),
)
_MODELS: Final = ("model_name", "model", "model_id", "model_version")
_COSTS: Final = ("cost", "cost_usd", "total_cost_usd", "total_cost")
_MILLISECONDS: Final = ("duration_ms", "latencyMs", "latency_ms")
_PLACES: Final = (
    "message",
    "usage",
    "usage_metadata",
    "usage_details",
    "token_usage",
    "metrics",
    "metadata",
    "response_metadata",
)
"""The fields of an item in which frameworks write such numbers down."""
_MOST_PARTS: Final = 200

_SIGNS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"^[ \t]*(?:`{3,}|~{3,})[^\n`]*$", re.MULTILINE), ""),  # the fences of code
    (re.compile(r"^[ \t]*:?-{2,}:?(?:[ \t]*·[ \t]*:?-{2,}:?)*[ \t]*$", re.MULTILINE), ""),  # the rule of a table
    (re.compile(r"^[ \t]*(?:#{1,6}|>)[ \t]+", re.MULTILINE), ""),
    (re.compile(r"^[ \t]*[*+][ \t]+", re.MULTILINE), "- "),
    (re.compile(r"!?\[([^\[\]\n]*)\]\([^()\s]*\)"), r"\1"),
    (re.compile(r"(?<![0-9A-Za-z*])(\*{1,3})(?=[^\s*])([^*\n]*[^\s*])\1(?![0-9A-Za-z*])"), r"\2"),
    (re.compile(r"~~(?=[^\s~])([^~\n]+)~~"), r"\1"),
    (re.compile(r"`([^`\n]+)`"), r"\1"),
)
"""The signs of Markdown that a line does without, and what takes their place."""
_ROW: Final = re.compile(r"^\|(.*)\|[ \t]*$", re.MULTILINE)


class Kind(StrEnum):
    """The kind of a preview."""

    SAID = "said"
    CALLED = "called"
    RETURNED = "returned"
    FAILED = "failed"
    WAITS = "waits"
    THOUGHT = "thought"


SIGNS: Final[Mapping[Kind, str]] = {
    Kind.SAID: "",
    Kind.CALLED: "→ ",
    Kind.RETURNED: "← ",
    Kind.FAILED: "✗ ",
    Kind.WAITS: "◷ waits for a person: ",
    Kind.THOUGHT: "thinks: ",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """What a framework has recorded about an item or a save. None is what nobody recorded."""

    tokens: int | None = None
    model: str | None = None
    cost: float | None = None
    seconds: float | None = None
    """How long it took: a tool, or the model."""

    def with_defaults(self, other: Facts) -> Facts:
        """These facts; what they lack is taken from the other ones."""
        return Facts(
            other.tokens if self.tokens is None else self.tokens,
            other.model if self.model is None else self.model,
            other.cost if self.cost is None else self.cost,
            other.seconds if self.seconds is None else self.seconds,
        )


NOTHING_RECORDED: Final = Facts()


@dataclass(frozen=True, slots=True)
class Preview:
    """One thing that was said or done, in a line of at most `LONGEST` characters. Stored text, not yet visible."""

    kind: Kind
    role: str
    """`user`, `assistant`, `system`, `tool`, `reasoning`, or what the item calls itself."""
    text: str
    name: str | None = None
    """The name of the tool, or of the speaker."""
    call_id: str | None = None
    """The call that this is, or whose result it is."""
    position: int | None = None
    """The number of the item in the conversation; None if it is not in there."""

    @property
    def line(self) -> str:
        """The preview as it reads in a row: `→ get_price("Peak")`."""
        return f"{SIGNS[self.kind]}{self.text}"

    @property
    def is_question(self) -> bool:
        """Whether a turn begins with it: somebody speaks to the agent."""
        return self.kind is Kind.SAID and self.role == "user"

    @property
    def is_answer(self) -> bool:
        return self.kind is Kind.SAID and self.role == "assistant"


def first_words(text: str, most: int = LONGEST, *, markdown: bool = False) -> str:
    """The beginning of a text on one line; it ends with `…` if something is left out.

    If the text is Markdown, its signs are left out: of `**8.99**`, the number stays.
    """
    beginning = text[: 4 * most]
    words = " ".join((_without_signs(beginning) if markdown else beginning).split())
    return words if len(words) <= most and len(beginning) == len(text) else f"{words[: most - 1].rstrip()}…"


def _without_signs(text: str) -> str:
    text = _ROW.sub(lambda row: row[1].replace("|", "·"), text)
    for sign, instead in _SIGNS:
        text = sign.sub(instead, text)
    return text


def call_words(call: Call) -> str:
    """A call in few words: `get_price("Peak")`, `transfer(amount=50, to="Ann")`."""
    return first_words(f"{call.name}({_arguments(call.arguments)})")


def _arguments(arguments: Any) -> str:
    if not isinstance(arguments, dict):
        return _short(arguments)
    if len(arguments) == 1:
        return _short(next(iter(arguments.values())))
    return ", ".join(f"{name}={_short(value)}" for name, value in list(arguments.items())[:_MOST_PARTS])


def _short(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value[: 2 * LONGEST], ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)[: 4 * LONGEST]


def previews_of(item: Any, position: int | None = None) -> list[Preview]:
    """The previews of an item, in the order in which it says them."""
    approval = _approval(item, position)
    if approval is not None:
        return [approval]
    previews: list[Preview] = []
    for said in utterances_of(item):
        is_result = said.answers is not None or said.role == "tool"
        text = first_words(said.text, markdown=not is_result)
        if said.role == THOUGHTS:
            previews.append(Preview(Kind.THOUGHT, said.role, text, said.name, None, position))
        elif is_result:
            kind = Kind.FAILED if said.failed else Kind.RETURNED
            previews.append(Preview(kind, "tool", text, said.name, said.answers, position))
        elif text:
            kind = Kind.FAILED if said.failed else Kind.SAID
            previews.append(Preview(kind, said.role, text, said.name, None, position))
        for call in said.calls:
            previews.append(_called(call, position))
    return previews


def _called(call: Call, position: int | None) -> Preview:
    kind = Kind.CALLED
    if call.name in (_CONFIRMATION, _CREDENTIALS):  # the events with which Google ADK asks a person
        kind = Kind.WAITS
        original = call.arguments.get("originalFunctionCall") if isinstance(call.arguments, dict) else None
        if isinstance(original, dict):
            call = Call(str(original.get("name") or "?"), original.get("args") or {}, call.call_id)
    return Preview(kind, "assistant", call_words(call), call.name, call.call_id, position)


def _approval(item: Any, position: int | None) -> Preview | None:
    """The question to a person, or the person's answer, that an item is: with OpenAI, and in the Agent Framework."""
    if not isinstance(item, dict):
        return None
    parts = item.get("contents")
    for part in (item, *(parts[:_MOST_PARTS] if isinstance(parts, list) else ())):
        kind = _text(part.get("type")) if isinstance(part, dict) else None
        if kind in _APPROVALS:
            inner = part.get("function_call")
            made = inner if isinstance(inner, dict) else part
            call = utterance_of({**made, "type": "function_call"}).calls[0]
            call_id = call.call_id or _text(part.get("id")) or _text(part.get("approval_request_id"))
            if kind in _ASKED:
                return Preview(Kind.WAITS, "assistant", call_words(call), call.name, call_id, position)
            allowed = part.get("approved", part.get("approve")) is True
            return Preview(Kind.RETURNED, "tool", "allowed" if allowed else "not allowed", None, call_id, position)
    return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def facts_of(item: Any) -> Facts:
    """The numbers that a framework has recorded with an item."""
    tokens = model = cost = seconds = None
    for place in _places(item):
        tokens = _tokens(place) if tokens is None else tokens
        model = model or next((place[name] for name in _MODELS if isinstance(place.get(name), str)), None)
        cost = next(_numbers(place, _COSTS), None) if cost is None else cost
        milliseconds = next(_numbers(place, _MILLISECONDS), None)
        seconds = milliseconds / 1_000 if seconds is None and milliseconds else seconds
    return Facts(tokens, None if model is None else first_words(model, 80), cost, seconds)


def facts_together(facts: Iterable[Facts]) -> Facts:
    """The facts of several items: numbers are added up, and of several models the last one counts."""
    tokens = model = cost = seconds = None
    for one in facts:
        tokens = tokens if one.tokens is None else (tokens or 0) + one.tokens
        cost = cost if one.cost is None else (cost or 0) + one.cost
        seconds = seconds if one.seconds is None else (seconds or 0) + one.seconds
        model = one.model or model
    return Facts(tokens, model, cost, seconds)


def _places(value: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, dict):
        yield value
        if depth < 3:
            for name in _PLACES:
                yield from _places(value.get(name), depth + 1)
        parts = value.get("contents")
        for part in parts[-_MOST_PARTS:] if depth == 0 and isinstance(parts, list) else ():
            if isinstance(part, dict) and part.get("type") == "usage":  # of the Agent Framework
                yield from _places(part, depth + 1)


def _tokens(place: Mapping[str, Any]) -> int | None:
    total = next(_numbers(place, _TOTALS), 0)
    for names in () if total else _SHARES:
        total = sum(_numbers(place, names))
        if total:
            break
    return int(total) or None


def _numbers(place: Mapping[str, Any], names: Iterable[str]) -> Iterator[float]:
    for name in names:
        value = place.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15:
            yield value
