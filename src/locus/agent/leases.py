"""The lease of a thread: tells a run that is under way from one whose worker is gone.

The worker that saves the first checkpoint of a run has the lease. That save is conditional, so of two workers one is
refused, and taking the lease costs nothing. Every checkpoint of a run that is under way names its lease, and says for
how long its worker may be silent, counted from `created_at`:

    metadata["lease"]                     {"id": …, "seconds": 30.0}

A run that saves nothing for a third of that time renews its lease, and a run that is over releases it. Both are pending
writes of a checkpoint that is never saved, in a namespace of its own; namespace, checkpoint and channel are all called
`PLACE`. A thread has one such write: a new one replaces it, and it is deleted with the thread.

    {"id": …, "until": 1760000000.0}      a renewal: alive until then
    {"id": …, "ended": "cancelled"}       this run is over, and why

The id of a lease fits only the thread that it was made for, so a copy of a checkpoint brings no lease along. A worker
that has lost its lease, and does not know it yet, may replace the write of its successor: until the successor renews
again, only the checkpoints of the successor count.

If the clocks of workers are further apart than `SKEW` seconds (see `locus.memory.runtime.leases`), a worker that is
alive may lose its thread. Its next save then fails; nothing is lost or written twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from locus.memory.checkpointer import HistoryEntry, PendingWrite
from locus.memory.model.ids import digest, new_id
from locus.memory.runtime.leases import LONGEST, Lease

PLACE = "locus:lease"

Cause = Literal["cancelled", "model_error", "stopped", "taken_over"]
"""The reason why a run was cut off. A run that was killed leaves none, and counts as `stopped`."""

End = Literal["complete", "cancelled", "model_error", "stopped"]
"""The way a run has ended, as its worker records it."""


def new_lease_id(thread_id: str) -> str:
    """A random id for the lease of one worker on one thread. It reveals neither."""
    name = new_id()
    return name + _mark(name, thread_id)


def _mark(name: str, thread_id: str) -> str:
    return digest(f"{name}{thread_id}")[:12]


def _fits(lease_id: object, thread_id: str) -> bool:
    return isinstance(lease_id, str) and lease_id[-12:] == _mark(lease_id[:-12], thread_id)


def lease_facts(lease_id: str, seconds: float) -> dict[str, Any]:
    """The entry of a lease in the metadata of a checkpoint."""
    return {"id": lease_id, "seconds": seconds}


def renewal(lease_id: str, seconds: float) -> dict[str, Any]:
    return {"id": lease_id, "until": time.time() + seconds}


def release(lease_id: str, end: End) -> dict[str, Any]:
    return {"id": lease_id, "ended": end}


def found_lease(thread_id: str, entry: HistoryEntry, writes: Sequence[PendingWrite]) -> Lease | Cause:
    """The lease that a checkpoint and the writes beside it hold, or the reason why it is no longer valid."""
    facts = _mapping(entry.metadata.get("lease"))
    lease_id, seconds = facts.get("id"), _number(facts.get("seconds"))
    if not _fits(lease_id, thread_id) or seconds is None or not 0 < seconds <= LONGEST:
        return "stopped"
    said = _mapping(next((write.value for write in writes if write.channel == PLACE), None))
    if said.get("id") != lease_id:
        said = {}
    if "ended" in said:
        return _CAUSES.get(str(said["ended"]), "stopped")
    # The later of the two counts: a run that saves often has no reason to renew its lease.
    saved, renewed = entry.created_at.timestamp() + seconds, _number(said.get("until"))
    return Lease(seconds, saved if renewed is None else max(saved, renewed))


def is_overdue(lease: Lease) -> bool:
    """Whether the renewal of a lease, after a third of its time, has not come, though it had some seconds more."""
    return time.time() - (lease.until - lease.seconds) > lease.seconds / 3 + _LATE


_LATE = 2.0
"""The seconds that a renewal may be late: on its way to the store, or by another clock."""

_CAUSES: Mapping[str, Cause] = {"cancelled": "cancelled", "model_error": "model_error"}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: object) -> float | None:
    """A stored value as a number, or None if it cannot be a time. Stored metadata may hold anything."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e12 < value < 1e12:
        return None
    return float(value)
