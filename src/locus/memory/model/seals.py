"""Seals: what a row carries so that a flipped bit in it shows, and a row that is lost, swapped or out of its place.

A *seal* is the CRC-32 of what a row says, plus a multiple of the key of its thread: a row of another thread does not
fit. What may change later, the parent of a checkpoint and the number of the one before it, is added to the seal in the
same way. So it can be changed by adding a difference, and a row that did not fit before does not fit afterwards.

Each checkpoint has the number of the one that precedes it in its namespace, so a history without a gap is proved from
its newest entry on. The row of the thread has the newest number of each namespace (`Newest`), and a seal of its own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

from locus.errors import CorruptCheckpointError
from locus.memory.model.digests import fingerprint

MASK = 0xFFFFFFFF
_THREAD, _PREVIOUS, _PARENT = 2_654_435_761, 2_246_822_519, 3_266_489_917
"""Odd numbers: a difference of one bit is never multiplied to nothing."""
MOST_NEWEST = 8
"""How many namespaces the row of a thread names. A turn of an agent rarely saves in more."""


def seal(content: int, thread: int) -> int:
    """The seal of a row of a thread. `content` is the checksum of what it says."""
    return content + thread * _THREAD & MASK


def carried(source: int, dest: int) -> int:
    """What is added to a seal when a row is copied from one thread to another."""
    return (dest - source) * _THREAD & MASK


def checkpoint_seal(content: int, thread: object, previous: object, parent_id: str | None) -> int | None:
    """The seal of a checkpoint; None if the row can't have one, because its numbers are no numbers."""
    if type(thread) is not int or type(previous) is not int:
        return None
    return content + thread * _THREAD + previous * _PREVIOUS + _of_parent(parent_id) & MASK


def followed(before: int, now: int) -> int:
    """What is added to the seal of a checkpoint when another one comes to precede it."""
    return (now - before) * _PREVIOUS & MASK


def reparented(before: str | None, now: str | None) -> int:
    """What is added to the seal of a checkpoint when it gets another parent."""
    return _of_parent(now) - _of_parent(before) & MASK


def _of_parent(parent_id: str | None) -> int:
    return 0 if parent_id is None else (crc32(str(parent_id).encode()) + 1) * _PARENT


_NAME_LENGTH = 16


@lru_cache(maxsize=1024)
def _name(namespace: str) -> str:
    return fingerprint(namespace).hex()[:_NAME_LENGTH]


class Newest(NamedTuple):
    """The number of the newest checkpoint in each of the namespaces that were saved to last."""

    numbers: dict[str, int]
    """By a digest of the namespace, the one that was saved to last at the end."""
    others: int = 0
    """No namespace that is not named has a higher number. 0: there is no other one."""

    @classmethod
    def read(cls, text: str) -> Newest:
        """Read what `text` has written. It has a seal, so it is as it was written."""
        *named, others = text.split(",")
        numbers: dict[str, int] = {}
        for part in named:
            numbers[part[:_NAME_LENGTH]] = int(part[_NAME_LENGTH + 1 :])
        return cls(numbers, int(others))

    @property
    def text(self) -> str:
        """The names and numbers as the row of the thread has them."""
        return ",".join([*map("%s:%d".__mod__, self.numbers.items()), str(self.others)])

    def of(self, namespace: str) -> int | None:
        """The newest number of a namespace, 0 if it has none; None if it is not known."""
        found = self.numbers.get(_name(namespace))
        return found if found is not None or self.others else 0

    def by_namespace(self, namespace: str) -> str:
        """The key of a namespace in `numbers`."""
        return _name(namespace)

    def saved(self, namespace: str, number: int) -> Newest:
        """What is newest after a checkpoint was saved."""
        numbers, name, others = dict(self.numbers), _name(namespace), self.others
        numbers.pop(name, None)
        while len(numbers) >= MOST_NEWEST:
            others = max(others, numbers.pop(next(iter(numbers))))
        numbers[name] = number
        return Newest(numbers, others)

    def lowered(self, namespace: str, number: int) -> Newest:
        """What is newest after checkpoints were removed, and this one is left as the newest; 0 if none is."""
        numbers, name = dict(self.numbers), _name(namespace)
        if name in numbers:
            numbers[name] = number
        if not number:
            numbers.pop(name, None)
        return Newest(numbers, self.others)


NOTHING_SAVED = Newest({})
"""The newest checkpoints of a thread that has none."""


class LostSealError(CorruptCheckpointError):
    """A row that must have a seal has none."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} has lost its seal: the stored data is damaged, or an older version of Locus has written to it"
            " after the upgrade"
        )
