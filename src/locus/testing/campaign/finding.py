"""The violations that a campaign reports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The kinds of violations."""

    LOST = "lost"
    """An acknowledged save or write is missing."""
    TORN = "torn"
    """Stored data is not as it was sent."""
    WRONG_LATEST = "wrong latest"
    """A load, a list or a condition took another checkpoint for the latest."""
    REFUSED = "refused but there"
    NEVER_SENT = "never sent"
    DELETED = "deleted but there"
    ORDER = "order"
    """Of two successive saves, the later one is stored before the earlier."""
    LINEAGE = "lineage"
    """A parent is missing, or is not the one that was named."""
    TWICE = "twice"
    """A save, or a side effect of a tool, happened twice."""
    ORPHANED = "orphaned runs"
    """Runs are stored that no checkpoint needs."""
    WRONG_ERROR = "wrong error"
    """A client got an error other than a refusal or an outage, or was refused without a cause."""


@dataclass(frozen=True)
class Finding:
    """One violation of the promises of a store."""

    kind: Kind
    thread: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.thread}: {self.what}"


Claim = tuple[Kind, str]
"""What a check says of one thread: the kind of a violation, and its description."""
