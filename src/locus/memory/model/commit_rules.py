"""The commit rule: whether a save may be written, and with which number and parent.

An engine calls `decide` inside its atomic step, on a view of the thread as it is there. Pure functions.
"""

from __future__ import annotations

from typing import Protocol

from locus.memory.model.records import ANY, Commit, Known, Outcome, Run, Verdict


class View(Protocol):
    """A thread as an engine sees it inside its atomic step."""

    @property
    def last_seq(self) -> int:
        """The thread's counter: the highest sequence number it ever gave out."""

    def find(self, namespace: str, checkpoint_id: str) -> Known | None: ...

    def latest(self, namespace: str) -> Known | None: ...

    def has_run(self, branch: str, number: int) -> bool:
        """Whether a branch has the run of this number, or a later one."""


def decide(commit: Commit, view: View) -> Outcome:
    """Whether a commit may be written, and with which number and parent."""
    same = None if commit.fresh_id else view.find(commit.namespace, commit.checkpoint_id)
    if same is not None and same.rev == commit.rev:
        return Outcome(Verdict.COMMITTED, same.seq, same.parent_id, repeated=True)
    if same is not None and same.rev != commit.replaces:
        return Outcome(Verdict.EXISTS)
    latest = view.latest(commit.namespace) if commit.if_latest is not ANY or commit.parent_id is ANY else None
    if commit.if_latest is not ANY:
        found = latest.checkpoint_id if latest else None
        if found != commit.if_latest:
            return Outcome(Verdict.CONFLICT, latest=found)
    base = None
    if commit.base is not None:
        base = view.find(commit.namespace, commit.base.checkpoint_id)
        if base is None or base.rev != commit.base.rev:
            return Outcome(Verdict.STALE_BASE)
    if any(view.has_run(run.branch, run.number) for run in contested_runs(commit)):
        return Outcome(Verdict.BRANCH_TAKEN)
    parent_id, known = _parent(commit, view, base, latest, same)
    if not known:
        return Outcome(Verdict.NO_PARENT)
    return Outcome(Verdict.COMMITTED, view.last_seq + 1, parent_id, replaced=same)


def contested_runs(commit: Commit) -> list[Run]:
    """The first run that a commit adds to each branch that may have it already.

    A branch that it continues may have been continued by another. One that it opens has a name that nobody else has,
    unless the commit is sent again, or by somebody who uses a rev twice: then its runs would take the place of others.
    An id that was made for this commit is its rev, which nobody can have used. All further runs follow one of these.
    """
    first: dict[str, Run] = {}
    for run in commit.runs:
        first.setdefault(run.branch, run)
    return [run for run in first.values() if run.number > 0 or not commit.fresh_id]


def _parent(
    commit: Commit, view: View, base: Known | None, latest: Known | None, same: Known | None
) -> tuple[str | None, bool]:
    """The parent's id, and whether it was found."""
    wanted = commit.parent_id
    if wanted is None:
        return None, True
    if same is not None and wanted == same.checkpoint_id:
        return same.parent_id, True
    if isinstance(wanted, str) and commit.parent_as_named:
        return (wanted if wanted != commit.checkpoint_id else None), True
    if isinstance(wanted, str):
        found = base if base and base.checkpoint_id == wanted else view.find(commit.namespace, wanted)
        if found is not None:
            return wanted, True
        if commit.parent_required:
            return None, False
        latest = latest or view.latest(commit.namespace)
    if same is not None and latest is not None and latest.checkpoint_id == same.checkpoint_id:
        return same.parent_id, True
    return (latest.checkpoint_id if latest else None), True
