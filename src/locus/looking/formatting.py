"""Text, times and sizes as people read them. Pure functions.

Stored text is made visible before anybody sees it, so that nothing in it drives a terminal, hides, or turns the line
around: control characters, escape sequences, bidirectional marks and other characters without a shape become escapes,
`\\x1b` or `\\u202e`. Widths are those of a terminal, where some characters take two columns and others none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final
from unicodedata import category, combining, east_asian_width

from locus.errors import ConfigurationError

ELLIPSIS: Final = "…"

_UNITS: Final = (("y", 31_557_600), ("mo", 2_629_800), ("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_DAYS: Final = {"s": 1 / 86_400, "m": 1 / 1440, "min": 1 / 1440, "h": 1 / 24, "d": 1, "w": 7}
_AGE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(s|m|min|h|d|w)?")

_JOINER: Final = "\u200d"
_SHAPELESS: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_PLAIN = re.compile(r"[\x20-\x7e]*")
_BLANK = re.compile(r"\A +| +\Z| {2,}")
_BLANKS: Final = frozenset(
    "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000\u3164\uffa0\u115f\u1160\u2800"
)
"""Characters that look like a space, or like nothing, and are letters to a program."""


def visible(text: str, *, keep: str = "") -> str:
    """The text, with everything that has no shape of its own as an escape. The characters in `keep` stay."""
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
    return _BLANK.sub(lambda blanks: escaped(" ") * len(blanks[0]), visible(text))


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
    """A visible text in at most so many columns; it ends with `…` if something is left out."""
    if columns <= 0:
        return ""
    if width(text) <= columns:
        return text
    return text[: fitting(text, columns - 1)] + ELLIPSIS


def one_line(text: str, columns: int | None = None) -> str:
    """A text on one line: each run of blanks and line ends becomes one space, everything else is made visible."""
    most = 2_000 if columns is None else 4 * columns + 40
    # Only the beginning is looked at: what is stored may be of any length.
    shown = visible(" ".join(text[:most].split()))
    if columns is not None:
        return cut(shown if len(text) <= most else shown + ELLIPSIS, columns)
    return shown


def dotted(path: Iterable[str]) -> str:
    """A path in a payload as it is typed: `channel_values.messages`."""
    return ".".join(path)


def ago(moment: datetime, now: datetime | None = None) -> str:
    """How long ago something was: `3 min ago`, or `in 2 h` if the clock that dated it is ahead."""
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    for name, length in _UNITS:
        if abs(seconds) >= length:
            shown = f"{abs(seconds) / length:.0f} {name}"
            return f"{shown} ago" if seconds > 0 else f"in {shown}"
    return "0 s ago"


def local_time(moment: datetime, *, utc: bool = False) -> str:
    """A moment in the time zone of this machine, to the second; or in UTC, which it says."""
    if utc:
        return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    try:
        return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except OverflowError:  # of a year that the local time has not
        return moment.isoformat(timespec="seconds")


def clock(moment: datetime, *, utc: bool = False, now: datetime | None = None) -> str:
    """The time of a moment, local or in UTC: `14:03:20`; of another day, with the date: `11-18 14:03:20`."""
    try:
        here = moment.astimezone(UTC) if utc else moment.astimezone()
        today = (now or datetime.now(UTC)).astimezone(here.tzinfo)
    except OverflowError:  # of a year that the local time has not
        return moment.isoformat(timespec="seconds")
    if here.date() == today.date():
        return here.strftime("%H:%M:%S")
    return here.strftime("%m-%d %H:%M:%S" if here.year == today.year else "%Y-%m-%d %H:%M:%S")


def duration(seconds: float) -> str:
    """A duration in the largest unit that it fills: `250 ms`, `4.2 s`, `1.5 h`."""
    if seconds < 1:
        return f"{1_000 * seconds:.0f} ms"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def facts_text(tokens: int | None, model: str | None, cost: float | None, seconds: float | None) -> list[str]:
    """The recorded facts of a save as short texts, such as `1,204 tok`, `gpt-x`, `0.004` and `40 ms`."""
    return [
        *([] if tokens is None else [f"{tokens:,} tok"]),
        *([] if model is None else [one_line(model, 24)]),
        *([] if cost is None else [f"{cost:.4g}"]),
        *([] if seconds is None else [duration(seconds)]),
    ]


def days(age: str) -> float:
    """The number of days in an age that somebody has typed: `30d`, `12h`, `2w`, or a plain number of days."""
    parts = _AGE.fullmatch(age)
    if parts is None:
        raise ConfigurationError("give an age, such as 30d, 12h or 2w")
    return float(parts[1]) * _DAYS[parts[2] or "d"]
