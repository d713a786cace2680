"""Checks what a client's commit says of the items that precede its runs.

A run has a digest of them (`digests`): by it a reader tells a lost run from one that was removed, and a save what is
stored already. A client could make one up. So it is compared with the digest of what is there, which is known of recent
checkpoints, and read for others. What nobody can tell is stored without one; then nothing is checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from locus.memory.model.digests import OPENED_CHAIN, UNKNOWN_CHAIN, DigestChain, digest_text, texts_of
from locus.memory.model.manifest import chain_of, newest_in, newest_runs, wanted
from locus.memory.model.records import Commit, Extent, Run, Stored
from locus.server.requests import invalid

_MOST_BRANCHES = 32
_MOST_MARKS = 4
"""With the limits above, what is remembered of a checkpoint takes some kilobytes, whatever its client has sent."""

Chains = Mapping[tuple[str, int], DigestChain]
"""What is known of branches, by their names and the number of a run: the digests as of that run."""


def chains_of(stored: Stored) -> Chains:
    """What is known of the branches of a checkpoint, by the runs of it that were read."""
    chains: dict[tuple[str, int], DigestChain] = {}
    for branch, number in newest_runs([stored.manifest]).items():
        runs = stored.runs.get(branch, ())
        chain = chain_of(runs, number)
        if chain.marks and chain.tip is None:  # it is long, and is digested all the same
            chain = chain._replace(tip=next(run for run in runs if run.number == number))
        chains[branch, number] = chain
    return chains


def proved(commit: Commit, chains: Chains, *, sort_keys: bool) -> tuple[tuple[Run, ...], Chains]:
    """Return the runs of a commit with the digests that are known to be true, and what to remember of it.

    `chains` is what is known of the base. Raises if a run has a digest of something else than what precedes it.
    """
    found: list[Run] = []
    known = dict(chains)
    for run in commit.runs:
        chain = known.get((run.branch, run.number - 1), UNKNOWN_CHAIN) if run.number else OPENED_CHAIN
        before = digest_text(chain.at(run.start, sort_keys))
        if run.before and before and run.before != before:
            raise invalid("`before`", "the digest of the items that precede its run")
        found.append(run._replace(before=before))
        known[run.branch, run.number] = chain.continued(run.start, texts_of(run, sort_keys), sort_keys)
    return tuple(found), _remembered(known, commit, sort_keys)


def unproved(runs: Iterable[Run], chains: Chains, *, sort_keys: bool) -> list[Run]:
    """The runs that continue a branch of the base, and have a digest that cannot be compared with what is known."""
    first: dict[str, Run] = {}
    for run in runs:
        first.setdefault(run.branch, run)
    return [
        run
        for run in first.values()
        if run.before and chains.get((run.branch, run.number - 1), UNKNOWN_CHAIN).at(run.start, sort_keys) is None
    ]


def ends_before(runs: Collection[Run], extents: Iterable[Extent]) -> int:
    """How many of the last items of each extent have to be read to know what precedes these runs."""
    starts = {run.branch: run.start for run in runs}
    return max((e.skip + e.length - starts[e.branch] for e in extents if e.branch in starts), default=0)


def _remembered(chains: Chains, commit: Commit, sort_keys: bool) -> Chains:
    """The last digests of a few branches, which most saves continue."""
    newest = newest_in(wanted(commit.manifest) if commit.extents is None else commit.extents)
    if len(newest) > _MOST_BRANCHES:
        return {}
    return {
        version: DigestChain(chains[version].digested(sort_keys)[-_MOST_MARKS:])
        for version in newest.items()
        if version in chains
    }
