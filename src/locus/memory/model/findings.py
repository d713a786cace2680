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
    """A finding if the server's clock and this one differ. The server was asked at `asked`, and has just answered."""
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
    """The time in an HTTP header `Date`, to the second; None if there is none."""
    try:
        found = parsedate_to_datetime(date)
    except ValueError:
        return None
    return found.replace(tzinfo=found.tzinfo or UTC)


def missing_indexes(wanted: Mapping[str, str], there: set[str]) -> list[Finding]:
    """A finding for each missing index. `wanted` maps the name of an index to the statement that creates it."""
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
    """The finding that this user may not ask the server for something."""
    return Finding(
        "note",
        f"the server does not tell this user {what}",
        "look at it yourself, or let an administrator run `locus doctor`",
    )
