"""Digests of items: of one item's text, and of all that precedes a position on a branch (`before` in a `Run`).

The digests of a branch are a chain. Each covers one item more than the one before it: BLAKE2b-128 over that digest and
the item's text. The text is the one that is stored, or, for a database that gives keys back in another order, the one
with sorted keys. So two runs fit together if the digest of the older one, continued over its items, is that of the
newer one. That tells a run which was lost or swapped, and it tells a save what it has in common with what is stored.

Nothing precedes the position 0, so a run that starts there has no digest. Nor has one that an older version has
stored, or one whose writer did not know what precedes it: then nothing is checked.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Iterable
from hashlib import blake2b
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


def fingerprint(text: str) -> bytes:
    """The digest of one text. Items with equal digests count as equal."""
    return blake2b(text.encode(), digest_size=DIGEST_SIZE).digest()


def fingerprints(texts: Iterable[str]) -> tuple[bytes, ...]:
    """The digest of each text."""
    return tuple([blake2b(text.encode(), digest_size=DIGEST_SIZE).digest() for text in texts])


def extended(before: bytes, text: str) -> bytes:
    """The digest of all items up to a position, made from the digest of those before the last one, and its text."""
    return blake2b(before + text.encode(), digest_size=DIGEST_SIZE).digest()


def digest_text(digest: bytes | None) -> str | None:
    """The text that is stored for a digest (base64 without its end); None for no digest."""
    return b2a_base64(digest, newline=False)[:DIGEST_LENGTH].decode() if digest else None


def texts_of(run: Run, sort_keys: bool) -> list[str]:
    """The JSON text of each item in a run."""
    return [encode(item, sort_keys=sort_keys) for item in decode(run.items)]


class Mark(NamedTuple):
    """A position on a branch, and the digest of all items before it."""

    position: int
    digest: bytes


class DigestChain(NamedTuple):
    """The digests that are known of a branch as of one of its runs, in order of their positions.

    `tip` is that run, if nobody has digested its items yet: most states that are loaded are never saved.
    """

    marks: tuple[Mark, ...]
    tip: Run | None = None

    def at(self, position: int, sort_keys: bool) -> bytes | None:
        """The digest of all items before a position; None if it is not known."""
        for mark in reversed(self.digested(sort_keys)):
            if mark.position <= position:
                return mark.digest if mark.position == position else None
        return None

    def continued(self, position: int, texts: Iterable[str], sort_keys: bool) -> DigestChain:
        """The chain of the branch after a run with these items was added at a position."""
        if self.tip is None and self.marks and self.marks[-1].position == position:  # most runs are added at the end
            return DigestChain(with_items(self.marks, texts)[-MOST_MARKS:])
        if self.at(position, sort_keys) is None:
            return UNKNOWN_CHAIN
        before = tuple(mark for mark in self.digested(sort_keys) if mark.position <= position)
        return DigestChain(with_items(before, texts)[-MOST_MARKS:])

    def digested(self, sort_keys: bool) -> tuple[Mark, ...]:
        """All marks, including those of the last run, which are computed only now."""
        tip = self.tip
        if tip is None or not self.marks or self.marks[-1].position != tip.start:
            return self.marks
        return with_items(self.marks, texts_of(tip, sort_keys))


def with_items(marks: tuple[Mark, ...], texts: Iterable[str]) -> tuple[Mark, ...]:
    """The marks of a branch after items with these texts were added at its end."""
    position, digest = marks[-1]
    more: list[Mark] = []
    for text in texts:
        position, digest = position + 1, extended(digest, text)
        more.append(Mark(position, digest))
    return (*marks, *more)


UNKNOWN_CHAIN = DigestChain(())
"""A branch of which nothing is known."""
OPENED_CHAIN = DigestChain((Mark(0, BEGINNING),))
"""A branch without items."""
