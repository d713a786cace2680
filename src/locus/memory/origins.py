"""The checkpoint that a thread was forked from, so that a fork leads back to where it came from.

It is kept as the lease of an agent's thread is: as a pending write of a checkpoint that is never saved, in a namespace
of its own. Namespace, checkpoint and channel are all called `PLACE`. A thread has one such write, which no list shows
and no copy brings along, and which is deleted with the thread.

    {"thread_id": …, "namespace": …, "checkpoint_id": …}

The copy stands before it is noted where it came from. A process that ends in between leaves a fork without a link.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from locus.errors import BackendUnavailableError
from locus.memory.model.codec import decode
from locus.memory.store import CheckpointStore

PLACE: Final = "locus:origin"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a thread came from."""

    thread_id: str
    namespace: str
    checkpoint_id: str


async def note_origin(store: CheckpointStore, thread_id: str, origin: Origin) -> None:
    """Note where a thread came from that was forked just now. A store that keeps no pending writes notes nothing."""
    if not store.keeps_writes:
        return
    value = {name: getattr(origin, name) for name in Origin.__slots__}
    try:
        await store.put_writes(thread_id, PLACE, PLACE, [(PLACE, value)], task_path="", namespace=PLACE)
    except BackendUnavailableError:  # the fork is made, and whoever would try again would find its id in use
        _log.warning("a fork was made, but not noted where it came from: the store does not answer")


async def origin_of(store: CheckpointStore, thread_id: str) -> Origin | None:
    """Where a thread came from; None if it was not forked, or if nobody noted it."""
    if not store.keeps_writes:
        return None
    for write in await store.get_writes(thread_id, PLACE, task_id=None, namespace=PLACE):
        value = decode(write.value) if write.channel == PLACE else None
        found = [value.get(name) for name in Origin.__slots__] if isinstance(value, dict) else []
        if found and all(isinstance(part, str) for part in found):
            return Origin(*map(str, found))
    return None
