"""Plans the tool calls with which the mock model answers a request.

A request is cut into steps and clauses. A clause asks for the tool whose name or description shares its words. The
arguments are values that the clause names or quotes, or the rest of its words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from locus.models.base import ToolSpec
from locus.models.mock.facts import facts_in, is_question, stem, words_in

# Each set has the verbs for one action. A question is taken for a request to look something up.
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

_QUOTED = re.compile(r"\"([^\"]*)\"|“([^”]*)”|(?<!\w)'([^']*)'(?!\w)|`([^`]*)`")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w]|\.\d)")
_LEADING = re.compile(
    r"(?i)^(?:[\s,:]+|(?:to|that|about|for|in|of|on|at|from|saying|called|named|with|the|a|an|note|is|me|my|as|tool|"
    r"some|this|and)\b\s*)+"
)
_PATH = re.compile(r"(?:[\w./~-]*/[\w./-]+|\b[\w-]+\.[a-z]\w{0,4}\b)")
_SHAPES = {
    "path": _PATH,
    "url": re.compile(r"https?://[^\s'\"]+"),
    "email": re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+"),
}
_SHAPE_NAMES = {"path": "path", "file": "path", "filename": "path", "file_path": "path", "url": "url", "email": "email"}


@dataclass(frozen=True)
class Step:
    """Calls to make at once, or the question that asks the user for a missing argument."""

    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    question: str | None = None


def plan_calls(request: str, tools: Sequence[ToolSpec], instructions: str) -> list[Step]:
    """The steps that a request asks for. "then" separates steps; lines and semicolons separate calls within one."""
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
        arguments, missing = _arguments(tool, clause, _name_words(tool.name), words_in(tool.description))
        if missing:
            return Step(question=f"To use {tool.name} I need: {', '.join(missing)}. What should it be?")
        calls.append((tool.name, arguments))
    return Step(tuple(calls)) if calls else None


def _standing_orders(request: str, tools: Sequence[ToolSpec], instructions: str) -> Step | None:
    """The step that the system prompt demands whenever the user tells a fact; None if it demands none."""
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
    """The tool that a clause asks for, found by its full name, the words of its name, or its description."""
    for tool in sorted(tools, key=lambda tool: -len(tool.name)):
        if re.search(rf"(?<![\w-]){re.escape(tool.name)}(?![\w-])", clause) and "_" in tool.name:
            return tool
    best = max(tools, key=lambda tool: _score(tool, clause), default=None)
    return best if best is not None and _score(best, clause) > 0 else None


def _score(tool: ToolSpec, clause: str) -> float:
    name, said = _name_words(tool.name), _said(clause)
    meant = said | _synonyms(clause)
    if name <= meant and name & said:
        # More words in common are a closer match. A question seldom asks for a tool that changes something.
        return 10.0 + len(name) - (5.0 if is_question(clause) and tool.parameters.get("required") else 0.0)
    common = words_in(tool.description) & meant
    things = (common & said) - _VERBS
    return len(common) / 10.0 if len(common) >= 2 and things and name & meant else 0.0


def _said(clause: str) -> frozenset[str]:
    """The words of a clause before a colon and outside quotes: the rest is content, not part of the request."""
    head = _QUOTED.sub(" ", clause).partition(":")[0]
    words = frozenset(stem(word) for word in re.findall(r"[a-z]+", head.lower()))
    return words | {"file"} if _PATH.search(clause) else words


def _synonyms(clause: str) -> frozenset[str]:
    """Other verbs for the action that a clause asks for, which is its first word."""
    if is_question(clause):
        return _LOOKING
    words = [stem(word) for word in re.findall(r"[a-z]+", clause.lower()) if word not in _POLITE]
    return frozenset().union(*(alike for alike in _SAME if words and words[0] in alike))


def _name_words(name: str) -> frozenset[str]:
    parts = re.split(r"[_-]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name))
    return frozenset(stem(part.lower()) for part in parts if part)


def _arguments(
    tool: ToolSpec, clause: str, name_words: frozenset[str], description_words: frozenset[str]
) -> tuple[dict[str, Any], list[str]]:
    """The arguments that a clause gives, and the names of required ones that it does not."""
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    arguments = _json_arguments(clause, properties)
    for name, schema in properties.items():
        if name not in arguments and (given := _named(name, schema, clause)) is not None:
            arguments[name] = given
    rest = _Rest(clause, name_words, description_words)
    missing: list[str] = []
    required = [name for name in tool.parameters.get("required", ()) if name not in arguments]
    for name in sorted(required, key=lambda name: name not in _SHAPE_NAMES):
        value = rest.take(name, properties[name])
        if value is None:
            missing.append(name)
        else:
            arguments[name] = value
    return arguments, missing


def _json_arguments(clause: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    start, end = clause.find("{"), clause.rfind("}")
    if start < 0 or end < start:
        return {}
    try:
        value = json.loads(clause[start : end + 1])
    except ValueError:
        return {}
    return {name: value[name] for name in properties if name in value} if isinstance(value, dict) else {}


def _named(name: str, schema: Mapping[str, Any], clause: str) -> Any:
    """The value of an argument that a clause writes as `name=value`, or as `name: value` up to its end."""
    match = re.search(
        rf"(?i)(?<!\w){re.escape(name)}\s*(?:=\s*(?P<word>\"[^\"]*\"|'[^']*'|[^\s,;]+)|:\s*(?P<rest>.+))", clause
    )
    if match is None:
        return None
    return _as_type((match["word"] or match["rest"]).strip().strip("\"'"), schema)


def _as_type(text: str, schema: Mapping[str, Any]) -> Any:
    kind = schema.get("type", "string")
    if kind in ("integer", "number"):
        match = _NUMBER.search(text)
        return None if match is None else (int(float(match[0])) if kind == "integer" else float(match[0]))
    if kind == "boolean":
        return text.lower() in ("true", "yes", "on", "1")
    if kind == "array":
        item = schema.get("items", {})
        parts = re.split(r",\s*(?:and\s+)?|\s+and\s+", text)
        return [value for part in parts if (value := _as_type(part.strip(), item)) is not None]
    return text


class _Rest:
    """The values in a clause that no argument has taken yet."""

    def __init__(self, clause: str, name_words: frozenset[str], description_words: frozenset[str]) -> None:
        self._clause = clause
        self._name_words = name_words
        self._description_words = description_words
        self._quoted = [next(group for group in match if group is not None) for match in _groups(clause)]
        self._numbers = [match[0] for match in _NUMBER.finditer(clause)]
        self._used = False

    def take(self, name: str, schema: Mapping[str, Any]) -> Any:
        """Take a value of the kind that the schema wants; None if there is none left."""
        if "enum" in schema:
            said = self._clause.lower()
            return next((value for value in schema["enum"] if str(value).lower() in said), None)
        kind = schema.get("type", "string" if "$ref" not in schema else "object")
        if kind in ("integer", "number"):
            return _as_type(self._numbers.pop(0), schema) if self._numbers else None
        if kind == "boolean":
            return not re.search(r"(?i)\b(?:not|no|without|off)\b", self._clause)
        if kind == "object":
            return None
        text = self._text(name)
        return None if text is None else _as_type(text, schema)

    def _text(self, name: str) -> str | None:
        shape = _SHAPES.get(_SHAPE_NAMES.get(name, ""))
        if shape is not None:
            match = shape.search(self._clause)
            if match is not None:
                self._quoted = [text for text in self._quoted if text != match[0]]
                return match[0]
        if self._quoted:
            return self._quoted.pop(0)
        if self._used:
            return None
        self._used = True
        return self._unquoted() or None

    def _unquoted(self) -> str:
        """The text after the colon, or after the last word that named the tool."""
        head, colon, tail = self._clause.partition(":")
        if colon and tail.strip() and not head.rstrip().endswith(("http", "https")):
            return tail.strip()
        end = 0
        for word in re.finditer(r"[A-Za-z_]+", self._clause):
            if stem(word[0].lower()) in self._name_words or "_" in word[0]:
                end = word.end()
        if end == 0:
            first = re.match(r"\s*\S+", self._clause)
            end = first.end() if first else 0
        tail = self._clause[end:]
        # In "Search the web for news", the web is the place of the search, not its subject.
        place = re.match(r"(?i)\s*(?:the|a|my|all)?\s*(\w+)\s+(?=(?:for|about|of)\b)", tail)
        if place is not None and stem(place[1].lower()) in self._description_words:
            tail = tail[place.end() :]
        return _LEADING.sub("", tail).strip().rstrip("?!.").strip()


def _groups(clause: str) -> list[tuple[str | None, ...]]:
    return [match.groups() for match in _QUOTED.finditer(clause)]
