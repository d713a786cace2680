"""Saves and loads: what is asked of a thread when a commit is decided, the record that it becomes, and its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from locus.memory.backends.opensearch.client import BulkItem, Failure, back_off, give_way
from locus.memory.backends.opensearch.log import KnownBase, Log, State, Torn, base_of
from locus.memory.backends.opensearch.remove import finish, purge, remove, replacing
from locus.memory.backends.opensearch.schema import (
    CHECKPOINT,
    WRITE,
    HeldRun,
    Mark,
    Piece,
    Record,
    Tip,
    Trail,
    extended,
    micros,
    now,
    pieces_of,
    writes_id,
)
from locus.memory.backends.opensearch.writes import chosen_writes, task_docs, writes_in
from locus.memory.model.commit_rules import decide
from locus.memory.model.records import (
    Commit,
    Known,
    Outcome,
    Verdict,
    Write,
)

T = TypeVar("T")

PATIENCE = 400
"""How often a commit is tried while others are faster."""
RESENT = 3
"""How often it is sent again when the way to the server broke."""


class LogView:
    """A thread as `decide` sees it."""

    def __init__(self, log: Log, state: State) -> None:
        self._log = log
        self._state = state
        self.last_seq = state.last_seq
        self.bases: dict[tuple[str, str], KnownBase] = {}
        self.base: tuple[str, str] | None = None
        """The namespace and id of the checkpoint that the commit is a delta of."""

    def find(self, namespace: str, checkpoint_id: str) -> Known | None:
        name = (namespace, checkpoint_id)
        if name not in self.bases and self._state.live:
            record = self._log.find(namespace, checkpoint_id)
            if record is not None:
                self.bases[name] = base_of(record)
        return self.bases.get(name)

    def latest(self, namespace: str) -> Known | None:
        place = self._state.tips.get(namespace)
        for (space, _), base in self.bases.items():
            if space == namespace and base.place == place:
                return base
        if not self._state.live:
            return None
        record = self._log.latest(namespace)
        return None if record is None else record.known

    def has_run(self, branch: str, number: int) -> bool:
        """Whether the run after one of the base may be taken. It is surely free if the base is the latest of its
        namespace (branches are never shared between them), and had the newest run when it was saved."""
        if self.base is None:
            return True
        base = self.bases[self.base]
        tip = base.tips.get((branch, number - 1))
        return tip is None or not tip.newest or self._state.tips.get(self.base[0]) != base.place


def commit_in(log: Log, commit: Commit) -> Outcome:
    """Decide on a commit, and write it."""
    certain = not log.recall()
    sent = 0
    for attempt in range(PATIENCE):
        try:
            outcome = _tried(log, commit, certain)
        except Torn:
            certain = True
            give_way(attempt)
            continue
        except Failure as failure:
            # Whether it arrived is unknown. It is told by its rev, so it may be sent again.
            if sent == RESENT or failure.status != "N/A":
                raise
            sent += 1
            certain, commit = True, replace(commit, fresh_id=False)
            back_off(sent)
            continue
        if outcome is not None:
            return outcome
        if certain:
            give_way(attempt)
        certain = True
    raise Failure(409, "too many writers", f"{PATIENCE} times another one was faster")


def _tried(log: Log, commit: Commit, certain: bool) -> Outcome | None:
    """One attempt; no outcome means: look at the thread, and decide again."""
    names = {(commit.namespace, name) for name in _named(commit)}
    if certain:
        log.look(names=names, latest=commit.namespace)
    if log.removed is not None and not commit.fresh_id:
        # The id may be one that is being removed, and no removal begins before the last one has ended.
        finish(log)
    state = log.state.begun_anew() if log.state.expired(now()) else log.state
    view = _view(log, commit, state, names)
    outcome = decide(commit, view)
    if outcome.verdict is not Verdict.COMMITTED:
        return outcome if certain else None
    if outcome.repeated:
        settle(log)
        return outcome
    record = _record(log, commit, outcome, state, view)
    if record is None:
        return Outcome(Verdict.STALE_BASE) if certain else None
    if outcome.replaced is not None:
        if not certain:
            return None
        record = replacing(log, state, record, view.bases[commit.namespace, commit.checkpoint_id].place)
    if not log.append(record):
        return None
    base = view.bases.get(view.base) if view.base else None
    log.memories.put(log.thread, log.state, base_of(record, base.held if base else None), commit.namespace)
    settle(log, record)
    return outcome


def settle(log: Log, record: Record | None = None) -> None:
    """What has to be done after a commit before it may be acknowledged."""
    ended = log.state.published.changes != log.state.changes and record is not None and record.removed is None
    if log.state.stale_document:
        log.publish()
        log.memories.put(log.thread, log.state)
    if record is not None and record.removed is not None:
        finish(log, record)
    elif ended:
        purge(log)


def _view(log: Log, commit: Commit, state: State, names: set[tuple[str, str]]) -> LogView:
    view = LogView(log, state)
    known = log.memories.get(log.thread)
    if known is not None and known.state.changes == state.changes:
        view.bases = {name: base for name, base in known.bases.items() if name in names}
    if commit.base is not None:
        view.base = (commit.namespace, commit.base.checkpoint_id)
    return view


def _named(commit: Commit) -> list[str]:
    found = [] if commit.fresh_id else [commit.checkpoint_id]
    if commit.base is not None:
        found.append(commit.base.checkpoint_id)
    if isinstance(commit.parent_id, str):
        found.append(commit.parent_id)
    return found


def _record(log: Log, commit: Commit, outcome: Outcome, state: State, view: LogView) -> Record | None:
    """The record of a commit; None if its base does not have what it refers to."""
    place = log.state.position + 1
    base = view.bases.get(view.base) if view.base else None
    runs: dict[Piece, HeldRun] = {}
    for run in (*commit.runs, *commit.values):
        trail: Trail = ()
        if run.number > 0:
            before = None if base is None else _held(log, base, (run.branch, run.number - 1))
            if before is None:
                return None
            trail = extended(before[0].trail, Mark(run.number - 1, before[1], before[0].mark_end))
        runs[run.branch, run.number] = HeldRun(run, trail)
    highest = dict(sorted(runs))
    latest = base is not None and state.tips.get(commit.namespace) == base.place
    tips: list[Tip] = []
    for piece in pieces_of(commit.manifest):
        if piece in runs:
            tips.append(Tip(place, highest[piece[0]] == piece[1]))
            continue
        tip = None if base is None else base.tips.get(piece)
        if tip is None:
            return None
        tips.append(Tip(tip.place, tip.newest and latest and piece[0] not in highest))
    created = micros(commit.created_at)
    expires = None if commit.expires_at is None else micros(commit.expires_at)
    return Record(
        CHECKPOINT,
        log.thread,
        place,
        place,
        now(),
        epoch=state.epoch,
        namespace=commit.namespace,
        checkpoint_id=commit.checkpoint_id,
        parent_id=outcome.parent_id,
        seq=outcome.seq,
        rev=commit.rev,
        order=max(created, state.order),
        created=created,
        metadata=commit.metadata,
        head=commit.head,
        manifest=commit.manifest,
        tips=tuple(tips),
        runs=tuple(runs.values()),
        expires=expires,
        life=0 if expires is None else max(0, expires - created),
    )


def _held(log: Log, base: KnownBase, piece: Piece) -> tuple[HeldRun, int] | None:
    """A run that the base shows, without its items but with its trail, and its place."""
    tip = base.tips.get(piece)
    if tip is None:
        return None
    held = base.held.get(piece)
    if held is None:
        record = log.record(tip.place)
        held = None if record is None else record.held(*piece)
    if held is None:
        raise Torn
    return held, tip.place


def put_writes(log: Log, place: tuple[str, str, str], writes: Sequence[Write], keep_numbered: bool) -> None:
    """Replace the task's writes with index ≥ 0, unless they are to be kept, and those that are named again."""
    namespace, checkpoint_id, task_id = place
    fresh = {write.idx: write for write in writes}
    for attempt in range(40):
        log.look()
        if log.state.expired(now()):
            remove(log, lambda _: True, expired=True)
            continue
        if log.removed is not None and (namespace, checkpoint_id) in log.removed.names:
            finish(log)
        before = chosen_writes(log, task_docs(log, namespace, checkpoint_id, task_id))
        stay = (write for doc in before for write in writes_in(doc) if keep_numbered or write.idx < 0)
        kept = [write for write in stay if write.idx not in fresh]
        source = {
            "kind": WRITE,
            "thread": log.thread,
            "namespace": namespace,
            "checkpoint_id": checkpoint_id,
            "task_id": task_id,
            "position": log.state.position,
            "epoch": log.state.epoch,
            "body": {"writes": [list(write) for write in (*kept, *fresh.values())]},
        }
        name = writes_id(log.thread, namespace, checkpoint_id, task_id)
        old = log.doc(name)
        action = "create" if old is None else "index"
        (done,) = log.client.write(log.thread, [BulkItem(action, name, source, unchanged=old)])
        if done:
            return
        give_way(attempt)
    raise Failure(409, "too many writers", f"task {task_id!r} writes from several places at once")
