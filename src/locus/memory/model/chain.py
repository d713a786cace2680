"""What precedes a run on its branch, as a digest: `before` in a `Run`. Pure functions.

The digests of a branch are a chain. Each covers one item more than the one before it: BLAKE2b-128 over that digest and
the item's text. The text is the one that is stored, or, for a database that gives keys back in another order, the one
with sorted keys. So two runs fit together if the digest of the older one, continued over its items, is that of the
newer one. That tells a run which was lost or swapped, and later what a save has in common with what is stored.

Nothing precedes the position 0, so a run that starts there has no digest. Nor has one that an older version has
stored, or one whose writer did not know what precedes it: then nothing is checked.

`plan` makes the digests, because a save needs nothing else of this module.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from operator import attrgetter

from locus.memory.model.plan import BEGINNING, DIGEST_LENGTH, MOST_MARKS, UNKNOWN, Chain, Mark, extended, texts_of
from locus.memory.model.records import Run

LARGEST_TIP = 65_536
"""In characters. A longer text is not kept in memory only to be digested later."""

_NUMBER = attrgetter("number")


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


def chain_of(runs: Sequence[Run], number: int) -> Chain:
    """The chain of a branch as of the run with this number, from what is stored of it. Digests nothing, if it can."""
    marks: list[Mark] = []
    tip: Run | None = None
    for run in sorted(runs, key=_NUMBER, reverse=True):
        if run.number > number or (marks and run.start >= marks[-1].position):
            continue  # newer, or hidden by a newer one
        if tip is None and run.number != number:
            return UNKNOWN
        tip = tip or run
        found = digest_before(run)
        if found is None:
            break
        marks.append(Mark(run.start, found))
        if run.start == 0 or len(marks) >= MOST_MARKS:
            break
    if tip is None or not marks:
        return UNKNOWN
    chain = Chain(tuple(reversed(marks)), tip)
    return chain if len(tip.items) <= LARGEST_TIP else chain._replace(tip=None)
