"""What a campaign reports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What is wrong."""

    LOST = "lost"
    """It was acknowledged, and is not there."""
    TORN = "torn"
    """It is there, but not as it was sent."""
    WRONG_LATEST = "wrong latest"
    """What was loaded, listed or compared as the latest was not the latest."""
    REFUSED = "refused but there"
    NEVER_SENT = "never sent"
    DELETED = "deleted but there"
    ORDER = "order"
    """Of two saves that followed each other, the later one is stored as the earlier."""
    LINEAGE = "lineage"
    """A parent is not there, or is another one than was named."""
    TWICE = "twice"
    """A save, or a side effect of a tool, happened twice."""
    ORPHANED = "orphaned runs"
    """Something is stored that no checkpoint needs."""
    WRONG_ERROR = "wrong error"
    """A client was told something else than a refusal or an outage, or was refused without a cause."""


@dataclass(frozen=True)
class Finding:
    """Something that must not be."""

    kind: Kind
    thread: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.thread}: {self.what}"
