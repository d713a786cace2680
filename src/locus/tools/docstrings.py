"""What a docstring in Google style says about a function and about each of its arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

_ARGUMENTS = frozenset({"args", "arguments", "parameters", "params"})
_OTHERS = frozenset(
    {"returns", "return", "yields", "raises", "example", "examples", "note", "notes", "warning", "attributes", "todo"}
)
_HEADING = re.compile(r"(\w+):\s*$")
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)$")


@dataclass(frozen=True)
class Documentation:
    """The description of a function (its docstring up to the first section) and of its arguments."""

    description: str = ""
    arguments: dict[str, str] = field(default_factory=dict)


def documentation_of(function: Callable[..., Any]) -> Documentation:
    lines = (inspect.getdoc(function) or "").splitlines()
    sections = [number for number, line in enumerate(lines) if _section(line)]
    description = "\n".join(lines[: sections[0]] if sections else lines).strip()
    arguments: dict[str, str] = {}
    for number in sections:
        if _section(lines[number]) in _ARGUMENTS:
            arguments.update(_entries(_indented(lines[number + 1 :])))
    return Documentation(description, arguments)


def _section(line: str) -> str:
    """The name of the section that this line opens, else nothing."""
    heading = _HEADING.match(line)
    name = heading[1].lower() if heading else ""
    return name if name in _ARGUMENTS or name in _OTHERS else ""


def _indented(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if line and not line[0].isspace():
            return
        if line.strip():
            yield line


def _entries(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """`name (type): text` at the first entry's indentation; what is indented deeper continues the text."""
    name, words, margin = "", [], -1
    for line in lines:
        depth = len(line) - len(line.lstrip())
        entry = _ENTRY.match(line.strip()) if margin < 0 or depth <= margin else None
        if entry is None:
            words.append(line.strip())
            continue
        if name:
            yield name, " ".join(words).strip()
        name, words, margin = entry[1], [entry[2]], depth
    if name:
        yield name, " ".join(words).strip()
