"""What a handle knows of the threads that it saved to last.

Whoever has just saved to a thread knows its row: if `last_seq` and `removals` are still what they were, nothing
at all has happened to it since, and the next save that builds on the last one needs no questions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from locus.memory.checkpointer import ANY
from locus.memory.model.records import Base, Commit

MOST_CHAINS = 10_000
MOST_TIPS = 100


@dataclass(frozen=True)
class Chain:
    """What a saver knows of a thread if nobody else was there since."""

    key: int
    seq: int
    removals: int
    namespace: str
    base: Base
    tips: dict[str, int] = field(default_factory=dict)
    """The newest run of each branch that was written on this chain."""

    def continued_by(self, commit: Commit, *, any_id: bool = False) -> bool:
        """Whether nothing has to be found out for this commit. See `decisions.decide` for what could have to be.

        `any_id`: an id that is taken would be noticed when it is written.
        """
        base = self.base
        return (
            (any_id or commit.fresh_id)
            and commit.namespace == self.namespace
            and commit.base == base
            and commit.parent_id in (ANY, base.checkpoint_id)
            and commit.if_latest in (ANY, base.checkpoint_id)
            and all(run.number == 0 or self.tips.get(run.branch) == run.number - 1 for run in commit.runs)
        )


class Chains:
    """The chains of a handle, by thread. Used from several event loops: each step is atomic."""

    def __init__(self) -> None:
        self._chains: dict[str, Chain] = {}

    def get(self, thread_id: str) -> Chain | None:
        return self._chains.get(thread_id)

    def forget(self, thread_id: str) -> None:
        self._chains.pop(thread_id, None)

    def note(self, commit: Commit, key: int, seq: int, removals: int, before: Chain | None = None) -> None:
        """A commit was written; `before` is the chain that it continues."""
        tips = {**(before.tips if before else {}), **{run.branch: run.number for run in commit.runs}}
        while len(tips) > MOST_TIPS:
            del tips[next(iter(tips))]
        if len(self._chains) >= MOST_CHAINS and commit.thread_id not in self._chains:
            self._chains.clear()
        base = Base(commit.checkpoint_id, commit.rev)
        self._chains[commit.thread_id] = Chain(key, seq, removals, commit.namespace, base, tips)


def can_be_first(commit: Commit) -> bool:
    """Whether a commit can begin a thread."""
    if commit.base is not None or commit.if_latest not in (ANY, None):
        return False
    return not (isinstance(commit.parent_id, str) and commit.parent_required)
