"""LangGraph's paths of what is searched in a value, as the paths of long-term memory in that very value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from langgraph.store.base import tokenize_path

WHOLE = "$"


def paths_in(value: Any, paths: Iterable[str]) -> list[str]:
    """The places in a value that paths such as `chapters[*].title` and `author.{name,born}` lead to."""
    found: list[str] = []
    for path in paths:
        if not path or path == WHOLE:
            found.append(WHOLE)
        else:
            found += (".".join(keys) for keys in _places(value, tokenize_path(path), ()))
    return found


def _places(value: Any, tokens: Sequence[str], before: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if not tokens:
        if value is not None:
            yield before
        return
    token, rest = tokens[0], tokens[1:]
    if token.startswith("{") and token.endswith("}"):
        for field in token[1:-1].split(","):
            yield from _places(value, [*tokenize_path(field.strip()), *rest], before)
    elif isinstance(value, list):
        for place in _chosen(token, len(value)):
            yield from _places(value[place], rest, (*before, str(place)))
    elif isinstance(value, dict):
        for key in value if token == "*" else [token]:
            if key in value:
                yield from _places(value[key], rest, (*before, key))


def _chosen(token: str, length: int) -> Iterable[int]:
    """The places in a list that a token such as `[*]` or `[-1]` chooses."""
    if token in ("*", "[*]"):
        return range(length)
    try:
        place = int(token[1:-1]) if token.startswith("[") else length
    except ValueError:
        return ()
    place += length if place < 0 else 0
    return (place,) if 0 <= place < length else ()
