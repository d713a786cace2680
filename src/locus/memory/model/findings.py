"""Findings that several kinds of stores share, for `locus doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

from locus.memory.model.records import Finding

SECOND: Final = timedelta(seconds=1)
_OFF: Final = timedelta(seconds=5)
"""How far two clocks may be apart before that is worth a word."""


def clock(theirs: datetime, asked: datetime, precision: timedelta = timedelta(0)) -> list[Finding]:
    """Compare the server's time with ours: it was asked at `asked`, and has answered by now."""
    behind, ahead = asked - (theirs + precision), theirs - datetime.now(UTC)
    if max(behind, ahead) <= _OFF:
        return []
    seconds = max(behind, ahead).total_seconds()
    return [
        Finding(
            "warning",
            f"the clocks of this machine and of the server are {seconds:,.0f} seconds apart",
            "set both by NTP. Order does not depend on clocks, but vacuums by age and expiry do",
        )
    ]


def http_time(date: str) -> datetime | None:
    """The time in the header `Date`, to the second; None if there is none."""
    try:
        found = parsedate_to_datetime(date)
    except ValueError:
        return None
    return found.replace(tzinfo=found.tzinfo or UTC)


def missing_indexes(wanted: Mapping[str, str], there: set[str]) -> list[Finding]:
    """`wanted` has for the name of each index the statement that creates it."""
    return [
        Finding(
            "error",
            f"the index {name} is missing: what it is for reads whole tables, or is no longer kept unique",
            "create it again with this statement, or with `locus doctor --repair --apply`; saves wait meanwhile",
            statement,
        )
        for name, statement in sorted(wanted.items())
        if name not in there
    ]


def not_told(what: str) -> Finding:
    """Something that this user may not ask the server."""
    return Finding(
        "note",
        f"the server does not tell this user {what}",
        "look at it yourself, or let an administrator run `locus doctor`",
    )
