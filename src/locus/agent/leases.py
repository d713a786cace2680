"""The lease of a thread: tells a run that is under way from one whose worker is gone.

Whoever saves the first checkpoint of a run has the lease, and that save is conditional: of two, one is refused. So
taking it costs nothing. Every checkpoint of a run that is under way says whose it is, and for how long its worker may
be silent, counted from `created_at`:

    metadata["lease"]                     {"id": …, "seconds": 30.0}

A run that saves nothing for a third of that time renews its lease, and one that is over gives it back. That is kept
beside the checkpoints of the thread, as the pending write of one that is never saved, in a namespace of its own (all
three are called `PLACE`). There is one such write a thread, each replaces the one before, and it goes with the thread:

    {"id": …, "until": 1760000000.0}      a renewal: alive until then
    {"id": …, "ended": "cancelled"}       this run is over, and why

An id fits only the thread that it was made for, so the lease in a copy of a checkpoint is none. A worker that has lost
its lease, and does not know it yet, may replace what the new one wrote: then only the new one's checkpoints count until
it renews again.

The times are of the writer's clock. A reader adds `SKEW` seconds before it takes a worker for dead, so the clocks of
workers may be that far apart. If they are further apart, a worker that is alive may lose its thread, which its next
save tells it; nothing is lost or written twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from locus.memory.checkpointer import HistoryEntry, PendingWrite
from locus.memory.model.ids import digest, new_id

PLACE = "locus:lease"

SKEW = 5.0
"""How many seconds the clocks of workers may differ."""

LONGEST = 3600.0
"""The longest lease, in seconds: a thread that a worker left is not lost for longer."""

Cause = Literal["cancelled", "model_error", "stopped", "taken_over"]
"""Why a run has not come to its end. One that was killed cannot say so: whatever nobody knows was `stopped`."""

End = Literal["complete", "cancelled", "model_error", "stopped"]
"""How a run has ended, as it says itself."""


@dataclass(frozen=True)
class Lease:
    """A lease as it was found: it lasts `seconds`, `until` a time by the clock of the one who wrote it."""

    seconds: float
    until: float


def new_lease_id(thread_id: str) -> str:
    """A name for one worker's hold on a thread. It shows neither."""
    name = new_id()
    return name + _mark(name, thread_id)


def _mark(name: str, thread_id: str) -> str:
    return digest(f"{name}{thread_id}")[:12]


def _fits(lease_id: object, thread_id: str) -> bool:
    return isinstance(lease_id, str) and lease_id[-12:] == _mark(lease_id[:-12], thread_id)


def lease_facts(lease_id: str, seconds: float) -> dict[str, Any]:
    """What a checkpoint says of the lease."""
    return {"id": lease_id, "seconds": seconds}


def renewal(lease_id: str, seconds: float) -> dict[str, Any]:
    return {"id": lease_id, "until": time.time() + seconds}


def release(lease_id: str, end: End) -> dict[str, Any]:
    return {"id": lease_id, "ended": end}


def found_lease(thread_id: str, entry: HistoryEntry, writes: Sequence[PendingWrite]) -> Lease | Cause:
    """The lease that a checkpoint, and what is kept beside it, tell of; or why there is none any more."""
    facts = _mapping(entry.metadata.get("lease"))
    lease_id, seconds = facts.get("id"), _number(facts.get("seconds"))
    if not _fits(lease_id, thread_id) or seconds is None or not 0 < seconds <= LONGEST:
        return "stopped"
    said = _mapping(next((write.value for write in writes if write.channel == PLACE), None))
    if said.get("id") != lease_id:
        said = {}
    if "ended" in said:
        return _CAUSES.get(str(said["ended"]), "stopped")
    # Whichever is later: a run that saves often has no reason to renew what it said once.
    saved, renewed = entry.created_at.timestamp() + seconds, _number(said.get("until"))
    return Lease(seconds, saved if renewed is None else max(saved, renewed))


_CAUSES: Mapping[str, Cause] = {"cancelled": "cancelled", "model_error": "model_error"}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> float | None:
    """A number that can be a time. What is stored may be anything."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e12 < value < 1e12:
        return None
    return float(value)


class Watch:
    """How long the leases that one worker looks at still last.

    A lease ends by its writer's clock, `SKEW` included; and for those who keep looking, also when its whole time has
    passed since they saw it first. That needs no clock but their own.
    """

    def __init__(self) -> None:
        self._seen: tuple[str, float] | None = None
        self._since = 0.0

    def seconds_left(self, checkpoint_id: str, lease: Lease) -> float:
        """0 when it is over."""
        now = time.monotonic()
        if self._seen != (checkpoint_id, lease.until):
            self._seen, self._since = (checkpoint_id, lease.until), now
        by_own_clock = self._since + lease.seconds - now
        return max(0.0, min(by_own_clock, lease.until + SKEW - time.time()))
