"""Which tools the mock calls for a request, and with which arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from locus.models.base import ToolSpec
from locus.models.mock_arguments import PATH, QUOTED, arguments_for
from locus.models.mock_facts import facts_in, is_question, stem, words_in

# A question asks for something to be looked up; each of these lines is one thing to do in several words.
_LOOKING = frozenset({"get", "list", "show", "read", "find", "search", "fetch", "lookup", "look", "query", "check"})
_SAME = (
    frozenset({"save", "store", "record", "keep", "remember", "write", "add", "put", "note"}),
    frozenset({"delete", "remove", "drop", "erase", "forget"}),
    frozenset({"change", "update", "edit", "modify"}),
    frozenset({"send", "mail", "email"}),
    frozenset({"run", "execute", "start"}),
    _LOOKING,
)
_VERBS: frozenset[str] = frozenset().union(*_SAME)
_POLITE = frozenset({"please", "can", "could", "would", "you", "and", "also", "now", "ok", "okay"})
_WHENEVER = re.compile(r"(?i)\b(?:whenever|always|every time|each time|if|when)\b")
_SHARING = re.compile(r"(?i)\b(?:facts?|shares?|tells?|about themsel(?:f|ves))\b")


@dataclass(frozen=True)
class Step:
    """Calls to make at once, or what is missing to make one."""

    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    question: str | None = None


def plan(request: str, tools: Sequence[ToolSpec], instructions: str) -> list[Step]:
    """The steps that a request asks for: "then" separates steps, and lines or semicolons calls within one."""
    standing = [step for step in (_standing_orders(request, tools, instructions),) if step is not None]
    if standing:
        return standing
    steps = [_step(part, tools) for part in re.split(r"(?i)[,.;]?\s+(?:and\s+)?then,?\s+", request)]
    return [step for step in steps if step is not None]


def _step(part: str, tools: Sequence[ToolSpec]) -> Step | None:
    calls: list[tuple[str, dict[str, Any]]] = []
    for clause in re.split(r"\n+|;\s+", part):
        tool = _wanted(clause, tools)
        if tool is None:
            continue
        arguments, missing = arguments_for(tool, clause, _name_words(tool.name), words_in(tool.description))
        if missing:
            return Step(question=f"To use {tool.name} I need: {', '.join(missing)}. What should it be?")
        calls.append((tool.name, arguments))
    return Step(tuple(calls)) if calls else None


def _standing_orders(request: str, tools: Sequence[ToolSpec], instructions: str) -> Step | None:
    """A tool that the system prompt wants called whenever the user tells something."""
    facts = facts_in(request)
    if not facts:
        return None
    for sentence in re.split(r"(?<=[.!?])\s+|\n+", instructions):
        for tool in tools:
            if tool.name in sentence and _WHENEVER.search(sentence) and _SHARING.search(sentence):
                summary = " ".join(fact.saying for fact in facts).replace("Your", "The user's").replace("You", "They")
                return Step(((tool.name, dict.fromkeys(_required_texts(tool), summary)),))
    return None


def _required_texts(tool: ToolSpec) -> Iterator[str]:
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    for name in tool.parameters.get("required", ()):
        if properties[name].get("type", "string") == "string":
            yield name


def _wanted(clause: str, tools: Sequence[ToolSpec]) -> ToolSpec | None:
    """The tool that a clause asks for: by its full name, by the words of its name, or by its description."""
    for tool in sorted(tools, key=lambda tool: -len(tool.name)):
        if re.search(rf"(?<![\w-]){re.escape(tool.name)}(?![\w-])", clause) and "_" in tool.name:
            return tool
    best = max(tools, key=lambda tool: _score(tool, clause), default=None)
    return best if best is not None and _score(best, clause) > 0 else None


def _score(tool: ToolSpec, clause: str) -> float:
    name, said = _name_words(tool.name), _said(clause)
    meant = said | _synonyms(clause)
    if name <= meant and name & said:
        # More words in common are a closer match, and what was asked for as a question is seldom a change.
        return 10.0 + len(name) - (5.0 if is_question(clause) and tool.parameters.get("required") else 0.0)
    common = words_in(tool.description) & meant
    things = (common & said) - _VERBS
    return len(common) / 10.0 if len(common) >= 2 and things and name & meant else 0.0


def _said(clause: str) -> frozenset[str]:
    """The words of a clause's head; what follows a colon, or is quoted, is content and no request."""
    head = QUOTED.sub(" ", clause).partition(":")[0]
    words = frozenset(stem(word) for word in re.findall(r"[a-z]+", head.lower()))
    return words | {"file"} if PATH.search(clause) else words


def _synonyms(clause: str) -> frozenset[str]:
    """Other words for what the clause wants done, which its first word says."""
    if is_question(clause):
        return _LOOKING
    words = [stem(word) for word in re.findall(r"[a-z]+", clause.lower()) if word not in _POLITE]
    return frozenset().union(*(alike for alike in _SAME if words and words[0] in alike))


def _name_words(name: str) -> frozenset[str]:
    parts = re.split(r"[_-]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name))
    return frozenset(stem(part.lower()) for part in parts if part)
