"""Times and sizes as people read them. Pure functions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_UNITS: Final = (("y", 31_557_600), ("mo", 2_629_800), ("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def ago(moment: datetime, now: datetime | None = None) -> str:
    """How long ago something was: `3 min ago`, `in 2 h` for a clock that is ahead."""
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    for name, length in _UNITS:
        if abs(seconds) >= length:
            shown = f"{abs(seconds) / length:.0f} {name}"
            return f"{shown} ago" if seconds > 0 else f"in {shown}"
    return "0 s ago"


def clock(moment: datetime) -> str:
    """A moment as it is read aloud: local time, to the second."""
    try:
        return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except OverflowError:  # of a year that the local time has not
        return moment.isoformat(timespec="seconds")


def bytes_text(count: float) -> str:
    """A number of bytes as people read it."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(count) < 1_000 or unit == "GB":
            return f"{count:.0f} B" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1_000
    raise AssertionError
