"""Digests of items: of one item's text, and of all that precedes a position on a branch (`before` in a `Run`).

The digests of a branch are a chain. Each covers one item more than the one before it: BLAKE2b-128 over that digest and
the item's text. The text is the one that is stored, or, for a database that gives keys back in another order, the one
with sorted keys. So two runs fit together if the digest of the older one, continued over its items, is that of the
newer one. That tells a run which was lost or swapped, and it tells a save what it has in common with what is stored.

Nothing precedes the position 0, so a run that starts there has no digest. Nor has one that an older version has
stored, or one whose writer did not know what precedes it: then nothing is checked.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from operator import attrgetter
from typing import NamedTuple

from locus.memory.model.codec import decode, encode
from locus.memory.model.records import Run

BEGINNING = b""
"""The digest at the position 0 of a branch: nothing precedes it."""
DIGEST_SIZE = 16
DIGEST_LENGTH = 22
"""Of a digest as text."""
MOST_MARKS = 64
"""How many positions of a branch are remembered: those near its end, where a list is changed."""
LARGEST_TIP = 65_536
"""In characters. A longer text is not kept in memory only to be digested later."""
_NUMBER = attrgetter("number")


def fingerprint(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()


def extended(before: bytes, text: str) -> bytes:
    """The digest of what precedes a position, after one more item (see `chain`)."""
    return blake2b(before + text.encode(), digest_size=DIGEST_SIZE).digest()


def digest_text(digest: bytes) -> str | None:
    """A digest as it is stored."""
    return b64encode(digest)[:DIGEST_LENGTH].decode() if digest else None


def texts_of(run: Run, sort_keys: bool) -> list[str]:
    """The texts of the items in a run."""
    return [encode(item, sort_keys=sort_keys) for item in decode(run.items)]


class Mark(NamedTuple):
    """A position on a branch, and the digest of what precedes it."""

    position: int
    digest: bytes


class DigestChain(NamedTuple):
    """The marks of a branch as of a run, in order, as far as they are known.

    `tip` is that run, if nobody has digested its items yet: most states that are loaded are never saved.
    """

    marks: tuple[Mark, ...]
    tip: Run | None = None

    def at(self, position: int, sort_keys: bool) -> bytes | None:
        """The digest of what precedes a position; None if that is not known."""
        for mark in reversed(self.digested(sort_keys)):
            if mark.position <= position:
                return mark.digest if mark.position == position else None
        return None

    def continued(self, position: int, texts: Iterable[str], sort_keys: bool) -> DigestChain:
        """The chain after a run with these items was added at a position."""
        found = self.at(position, sort_keys)
        if found is None:
            return UNKNOWN_CHAIN
        kept = self.digested(sort_keys)
        if kept[-1].position > position:  # most runs are added at the end
            kept = tuple(mark for mark in kept if mark.position <= position)
        return DigestChain(with_items(kept, texts)[-MOST_MARKS:])

    def digested(self, sort_keys: bool) -> tuple[Mark, ...]:
        """All marks, also those of the run that nobody has digested yet."""
        tip = self.tip
        if tip is None or not self.marks or self.marks[-1].position != tip.start:
            return self.marks
        return with_items(self.marks, texts_of(tip, sort_keys))


def with_items(marks: tuple[Mark, ...], texts: Iterable[str]) -> tuple[Mark, ...]:
    position, found = marks[-1]
    more: list[Mark] = []
    for text in texts:
        position, found = position + 1, extended(found, text)
        more.append(Mark(position, found))
    return (*marks, *more)


UNKNOWN_CHAIN = DigestChain(())
OPENED_CHAIN = DigestChain((Mark(0, BEGINNING),))
"""A branch without items."""


def digest_before(run: Run) -> bytes | None:
    """The digest of what precedes a run; None if that is not known."""
    if run.start == 0:
        return BEGINNING
    if run.before is None or len(run.before) != DIGEST_LENGTH:
        return None
    try:
        return b64decode(f"{run.before}==", validate=True)
    except ValueError:
        return None


def fits(older: Run, newer: Run) -> bool:
    """Whether a run can be what another one, which is stored now, was added to."""
    start, end = digest_before(older), digest_before(newer)
    if start is None or end is None:
        return True
    count = newer.start - older.start
    for sort_keys in (False, True):
        found = start
        for text in texts_of(older, sort_keys)[:count]:
            found = extended(found, text)
        if found == end:
            return True
    return False


def chain_of(runs: Sequence[Run], number: int) -> DigestChain:
    """The chain of a branch as of the run with this number, from what is stored of it. Digests nothing, if it can."""
    marks: list[Mark] = []
    tip: Run | None = None
    for run in sorted(runs, key=_NUMBER, reverse=True):
        if run.number > number or (marks and run.start >= marks[-1].position):
            continue  # newer, or hidden by a newer one
        if tip is None and run.number != number:
            return UNKNOWN_CHAIN
        tip = tip or run
        found = digest_before(run)
        if found is None:
            break
        marks.append(Mark(run.start, found))
        if run.start == 0 or len(marks) >= MOST_MARKS:
            break
    if tip is None or not marks:
        return UNKNOWN_CHAIN
    chain = DigestChain(tuple(reversed(marks)), tip)
    return chain if len(tip.items) <= LARGEST_TIP else chain._replace(tip=None)
