"""What was said with a save, as the lines of a row: who speaks, and the words. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from locus.looking.formatting import one_line
from locus.looking.previews import Kind, Preview
from locus.looking.turns import Save

_SPEAKER: Final = 16


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was said or done."""

    kind: Kind
    who: str
    """The speaker; empty for calls and their results, whose signs say what they are."""
    text: str
    asks: bool = False
    """Whether a turn begins with it."""


def lines_of(save: Save) -> list[Line]:
    """The lines of a save, in the order in which it was said."""
    return [Line(preview.kind, _speaker(preview), one_line(line), preview.is_question) for preview, line in save.rows]


def last_line(saves: Iterable[Save], kind: Kind | None = None) -> Line | None:
    """The last words of these saves, which are given newest first; with `kind`, the last ones of that kind."""
    for save in saves:
        said = [line for line in lines_of(save) if (line.kind is kind if kind else line.kind is not Kind.THOUGHT)]
        if said:
            return said[-1]
    return None


def _speaker(preview: Preview) -> str:
    if preview.kind is not Kind.SAID:
        return ""
    return one_line(preview.name or preview.role or "item", _SPEAKER)
