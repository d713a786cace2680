"""Stored text as a person may see it: nothing in it drives a terminal, hides, or turns the line around. Pure functions.

Control characters, escape sequences, bidirectional marks and other characters without a shape are shown as escapes,
`\\x1b` or `\\u202e`. Widths are those of a terminal, where some characters take two columns and others none.
"""

from __future__ import annotations

import re
from typing import Final
from unicodedata import category, combining, east_asian_width

ELLIPSIS: Final = "…"

_JOINER: Final = "\u200d"
_SHAPELESS: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_PLAIN = re.compile(r"[\x20-\x7e]*")
_BLANK = re.compile(r"\A +| +\Z| {2,}")
_BLANKS: Final = frozenset(
    "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000\u3164\uffa0\u115f\u1160\u2800"
)
"""They look like a space, or like nothing, and are letters to a program."""


def visible(text: str, *, keep: str = "") -> str:
    """The text with everything that has no shape of its own as an escape. `keep` are characters to leave alone."""
    if _PLAIN.fullmatch(text):
        return text
    shown = []
    for at, character in enumerate(text):
        if character in keep or " " <= character <= "~" or (character == _JOINER and _joins_emoji(text, at)):
            shown.append(character)
        elif character in _BLANKS or category(character) in _SHAPELESS:
            shown.append(_SHORT.get(character) or escaped(character))
        else:
            shown.append(character)
    return "".join(shown)


def visible_id(text: str) -> str:
    """An id on one line, so that no two look alike: of blanks, only single spaces between letters are left."""
    return _BLANK.sub(lambda found: escaped(" ") * len(found[0]), visible(text))


def escaped(character: str) -> str:
    """A character as Python and JSON would spell it: `\\x1b`, `\\u202e`, `\\U000e0041`."""
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _joins_emoji(text: str, at: int) -> bool:
    """Whether a joiner stands between two pictures, where it makes one of them."""
    return 0 < at < len(text) - 1 and all(category(side) in {"So", "Sk", "Mn"} for side in (text[at - 1], text[at + 1]))


def width(text: str) -> int:
    """How many columns a visible text takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if " " <= character <= "~":
        return 1
    if combining(character) or character == _JOINER or category(character) in {"Mn", "Me"}:
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def fitting(text: str, columns: int) -> int:
    """How many characters of a visible text fit into so many columns."""
    used = 0
    for at, character in enumerate(text):
        used += _columns(character)
        if used > columns:
            return at
    return len(text)


def cut(text: str, columns: int) -> str:
    """A visible text in at most so many columns; what is left out is told by `…`."""
    if columns <= 0:
        return ""
    if width(text) <= columns:
        return text
    used, kept = 0, []
    for character in text:
        used += _columns(character)
        if used > columns - 1:
            break
        kept.append(character)
    return "".join(kept) + ELLIPSIS


def one_line(text: str, columns: int | None = None) -> str:
    """A text on one line: blanks and line ends become one space each, everything else is made visible."""
    most = 2_000 if columns is None else 4 * columns + 40
    # Only the beginning is looked at: what is stored may be of any length.
    shown = visible(" ".join(text[:most].split()))
    if columns is not None:
        return cut(shown if len(text) <= most else shown + ELLIPSIS, columns)
    return shown
