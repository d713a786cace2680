"""The result of a copy or an import."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from locus.errors import LocusError


@dataclass(frozen=True)
class Problem:
    """A thread that could not be moved, or that differs at the destination.

    `thread` is empty for the items of long-term memory, which belong to no thread.
    """

    thread: str
    kind: str
    message: str

    @classmethod
    def of(cls, thread_id: str, error: LocusError) -> Problem:
        return cls(thread_id, type(error).__name__, str(error))


@dataclass
class Report:
    """How many threads and checkpoints a copy or an import has brought over; `ok` is true if there was no problem."""

    source: str
    destination: str
    dry_run: bool = False
    threads: int = 0
    """Threads at the source that match the pattern."""
    done: int = 0
    """Threads that are complete at the destination; in a dry run, those that could be."""
    checkpoints: int = 0
    """Checkpoints of all threads."""
    moved: int = 0
    """Checkpoints that this run has saved; in a dry run, those that it would save."""
    present: int = 0
    """Checkpoints that the destination had already."""
    verified: int = 0
    """Checkpoints that were read back from the destination and are equal."""
    seconds: float = 0.0
    problems: list[Problem] = field(default_factory=list)
    items: int = 0
    """Items of long-term memory at the source."""
    items_moved: int = 0
    """Versions of items that this run has saved; in a dry run 0."""
    spaces: dict[str, Report] = field(default_factory=dict)
    """The reports of the key spaces that were moved, too, by name."""
    missing: list[str] = field(default_factory=list)
    """Classes that would have to be allowed, for all threads together, as `module:name`."""

    @property
    def ok(self) -> bool:
        return not self.problems and all(report.ok for report in self.spaces.values())

    def as_dict(self) -> dict[str, Any]:
        """The report as a dict for JSON. Counts that few moves need are left out if they are zero."""
        facts = asdict(self)
        if not self.items:
            del facts["items"], facts["items_moved"]
        if not self.missing:
            del facts["missing"]
        facts["spaces"] = {name: report.as_dict() for name, report in self.spaces.items()}
        if not self.spaces:
            del facts["spaces"]
        return {"ok": self.ok, **facts}


Progress = Callable[[Report], None]
"""Called after every checkpoint and every thread, with the counts so far."""
