"""Arguments that the mock finds for a tool in the words of a request."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from locus.models.base import ToolSpec
from locus.models.mock_facts import stem

QUOTED = re.compile(r"\"([^\"]*)\"|“([^”]*)”|(?<!\w)'([^']*)'(?!\w)|`([^`]*)`")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w]|\.\d)")
_LEADING = re.compile(
    r"(?i)^(?:[\s,:]+|(?:to|that|about|for|in|of|on|at|from|saying|called|named|with|the|a|an|note|is|me|my|as|tool|"
    r"some|this|and)\b\s*)+"
)
PATH = re.compile(r"(?:[\w./~-]*/[\w./-]+|\b[\w-]+\.[a-z]\w{0,4}\b)")
_SHAPES = {
    "path": PATH,
    "url": re.compile(r"https?://[^\s'\"]+"),
    "email": re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+"),
}
_SHAPE_NAMES = {"path": "path", "file": "path", "filename": "path", "file_path": "path", "url": "url", "email": "email"}


def arguments_for(
    tool: ToolSpec, clause: str, name_words: frozenset[str], description_words: frozenset[str]
) -> tuple[dict[str, Any], list[str]]:
    """The arguments that a clause gives, and the names of required ones that it does not."""
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    found = _json_arguments(clause, properties)
    for name, schema in properties.items():
        if name not in found and (given := _named(name, schema, clause)) is not None:
            found[name] = given
    rest = _Rest(clause, name_words, description_words)
    missing: list[str] = []
    required = [name for name in tool.parameters.get("required", ()) if name not in found]
    for name in sorted(required, key=lambda name: name not in _SHAPE_NAMES):
        value = rest.take(name, properties[name])
        if value is None:
            missing.append(name)
        else:
            found[name] = value
    return found, missing


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
    """`name=value`, or `name: value` up to the end."""
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
    """What of a clause no argument has taken yet."""

    def __init__(self, clause: str, name_words: frozenset[str], description_words: frozenset[str]) -> None:
        self._clause = clause
        self._name_words = name_words
        self._description_words = description_words
        self._quoted = [next(group for group in match if group is not None) for match in _groups(clause)]
        self._numbers = [match[0] for match in _NUMBER.finditer(clause)]
        self._used = False

    def take(self, name: str, schema: Mapping[str, Any]) -> Any:
        """A value of the wanted kind, or None."""
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
        """What follows the colon, or the last of the words that the tool was recognised by."""
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
        # "Search the web for news": the web is where the tool searches, and not what for.
        place = re.match(r"(?i)\s*(?:the|a|my|all)?\s*(\w+)\s+(?=(?:for|about|of)\b)", tail)
        if place is not None and stem(place[1].lower()) in self._description_words:
            tail = tail[place.end() :]
        return _LEADING.sub("", tail).strip().rstrip("?!.").strip()


def _groups(clause: str) -> list[tuple[str | None, ...]]:
    return [match.groups() for match in QUOTED.finditer(clause)]
