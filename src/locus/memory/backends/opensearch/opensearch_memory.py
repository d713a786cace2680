"""What a handle remembers of threads, so that a save need not look first."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from locus.memory.backends.opensearch.opensearch_state import State
from locus.memory.backends.opensearch.schema import HeldRun, Piece, Record, Tip
from locus.memory.model.records import Known

REMEMBERED = 600.0
"""Seconds for which a handle may go on from what it knows, without looking first."""
MOST_THREADS = 1_024
MOST_BASES = 8


@dataclass(frozen=True, slots=True)
class KnownBase(Known):
    """A checkpoint that something may be saved on top of."""

    place: int
    position: int
    tips: Mapping[Piece, Tip]
    held: Mapping[Piece, HeldRun] = field(default_factory=dict)
    """Runs whose trails are known; their items are not kept."""


def base_of(record: Record, held: Mapping[Piece, HeldRun] | None = None) -> KnownBase:
    own = {(h.run.branch, h.run.number): HeldRun(h.run._replace(items=""), h.trail) for h in record.runs}
    tips = record.tip_of()
    others = {piece: found for piece, found in (held or {}).items() if piece in tips}
    return KnownBase(
        record.checkpoint_id,
        record.seq,
        record.rev,
        record.parent_id,
        record.place,
        record.position,
        tips,
        {**others, **own},
    )


@dataclass
class Memory:
    """What a handle knows of a thread: its state at that time, and checkpoints that are there in it."""

    state: State
    bases: OrderedDict[tuple[str, str], KnownBase]
    monotonic: float
    wall: float

    @property
    def fresh(self) -> bool:
        """Both clocks are asked, because one of them stands still while a machine sleeps."""
        passed = max(time.monotonic() - self.monotonic, abs(time.time() - self.wall))
        return passed < REMEMBERED


class Memories:
    """Of many threads, the longest unused forgotten first. Several threads of the program use it at once."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._known: OrderedDict[str, Memory] = OrderedDict()
        self._lock = threading.Lock()
        self._process = os.getpid()

    def _locked(self) -> threading.Lock:
        """The lock. After a fork somebody may have held it who is not there any more, so the child begins anew."""
        if self._process != os.getpid():
            self._begin()
        return self._lock

    def get(self, thread: str) -> Memory | None:
        with self._locked():
            known = self._known.get(thread)
            if known is not None and not known.fresh:
                del self._known[thread]
                return None
            return known

    def put(self, thread: str, state: State, base: KnownBase | None = None, namespace: str = "") -> None:
        """Remember a state; checkpoints that were known before still are, unless something was removed since."""
        with self._locked():
            before = self._known.pop(thread, None)
            if before is not None and before.state.position > state.position:
                self._known[thread] = before
                return
            bases: OrderedDict[tuple[str, str], KnownBase] = OrderedDict()
            if before is not None and before.state.changes == state.changes:
                bases = OrderedDict(before.bases)
            if base is not None:
                bases.pop((namespace, base.checkpoint_id), None)
                bases[namespace, base.checkpoint_id] = base
                while len(bases) > MOST_BASES:
                    bases.popitem(last=False)
            self._known[thread] = Memory(state, bases, time.monotonic(), time.time())
            while len(self._known) > MOST_THREADS:
                self._known.popitem(last=False)

    def drop(self, thread: str) -> None:
        with self._locked():
            self._known.pop(thread, None)

    def clear(self) -> None:
        with self._locked():
            self._known.clear()
