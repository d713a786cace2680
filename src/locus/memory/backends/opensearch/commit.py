"""The save: a commit is decided on what is known of the thread, and becomes the next record of its log.

Saves of several threads may share a request: see `commit_group`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from locus.errors import CorruptCheckpointError
from locus.memory.backends.opensearch.client import BUSY, RACE, BulkItem, Client, Failure, MoreNeeded, ReadClient
from locus.memory.backends.opensearch.log import (
    CONTENTS,
    ConcurrentRemoval,
    KnownBase,
    Log,
    ThreadCache,
    base_from,
    creation,
    is_same,
)
from locus.memory.backends.opensearch.remove import finish_removal, purge_dead_epochs, replacing_record
from locus.memory.backends.opensearch.schema import (
    CHECKPOINT,
    CheckpointName,
    EarlierRuns,
    Record,
    RunKey,
    RunLocation,
    RunRef,
    StoredRun,
    ThreadState,
    extend_earlier_runs,
    now_micros,
    record_id,
    run_keys,
    to_micros,
)
from locus.memory.backends.opensearch.writes import writes_ids, writes_item
from locus.memory.model.commit_rules import decide
from locus.memory.model.ids import shown_thread
from locus.memory.model.manifest import newest_runs, wanted
from locus.memory.model.records import ANY, Commit, Known, Outcome, TaskWrites, Verdict

_MAX_ATTEMPTS = 400
"""The number of attempts at a commit while other writers are faster."""
_MAX_RESENDS = 3
"""The number of times that a commit is sent again after a connection broke."""


def commit_to_log(log: Log, commit: Commit) -> Outcome:
    """Decide on a commit, and write it.

    The first attempt relies on the cache, if that has the thread. An outcome other than success needs a second one
    on the state as it is now.
    """
    state_is_current = not log.use_cached_state()
    resends = 0
    unchanged: tuple[int, int, int] | None = None
    for attempt in range(_MAX_ATTEMPTS):
        try:
            outcome = _attempt(log, commit, state_is_current)
        except ConcurrentRemoval:
            at = (log.state.epoch, log.state.changes, log.state.removing)
            if state_is_current and at == unchanged:
                raise CorruptCheckpointError(f"a record of {shown_thread(log.thread_id)} is missing") from None
            unchanged = at if state_is_current else None
            log.cache.drop(log.thread)
            state_is_current = True
            RACE.block(attempt)
            continue
        except Failure as failure:
            # Nobody knows whether the record arrived. Its rev identifies it, so it may be sent again.
            if resends == _MAX_RESENDS or failure.status != "N/A":
                raise
            resends += 1
            state_is_current, commit = True, replace(commit, fresh_id=False)
            BUSY.block(resends)
            continue
        if outcome is not None:
            return outcome
        if state_is_current:
            RACE.block(attempt)
        state_is_current = True
    raise Failure(409, "too many writers", f"{_MAX_ATTEMPTS} times another one was faster")


@dataclass(frozen=True, slots=True)
class _Draft:
    """A commit that may be written, as the next record of its thread."""

    outcome: Outcome
    record: Record
    runs_of_base: Mapping[RunKey, StoredRun] | None

    def remember(self, log: Log) -> None:
        """Cache a checkpoint that was written."""
        log.cache.put(log.thread, log.state, base_from(self.record, self.runs_of_base), self.record.namespace)


def _attempt(log: Log, commit: Commit, state_is_current: bool) -> Outcome | None:
    """Try once. None means: read the state, and decide again."""
    if state_is_current:
        log.read_state(names=_referenced_names(commit), latest=commit.namespace)
    if log.pending_removal is not None and not commit.fresh_id:
        # The id may be one that is being removed, and no removal may begin before the last one has ended.
        finish_removal(log)
    draft = _drafted(log, commit, state_is_current)
    if not isinstance(draft, _Draft):
        if draft is not None and draft.repeated:
            _complete(log)
        return draft
    if not log.append(draft.record):
        return None
    draft.remember(log)
    _complete(log, draft.record)
    return draft.outcome


def _drafted(log: Log, commit: Commit, state_is_current: bool) -> _Draft | Outcome | None:
    """Draft the record, or return the outcome if nothing is written. None if only the current state can tell."""
    state = log.state.restarted() if log.state.expired(now_micros()) else log.state
    view = CommitView(log, state, commit, _referenced_names(commit))
    outcome = decide(commit, view)
    if outcome.verdict is not Verdict.COMMITTED:
        return outcome if state_is_current else None
    if outcome.repeated:
        return outcome if state_is_current else None  # it may have been removed since
    record = _record(log, commit, outcome, state, view)
    if record is None:
        return Outcome(Verdict.STALE_BASE) if state_is_current else None
    if outcome.replaced is not None:
        if not state_is_current:
            return None
        record = replacing_record(log, state, record, view.bases[record.name].place)
    return _Draft(outcome, record, view.base.runs if view.base else None)


def commit_group(client: Client, cache: ThreadCache, group: Sequence[Commit | TaskWrites]) -> list[Outcome | None]:
    """Commit for several threads with one request, as far as the cache has them, and one more if some are published.

    None for those that need more: their thread is not in the cache, or has changed since; they are refused, replace a
    checkpoint, or build on one that the cache does not have.
    """
    logs = [Log(client, cache, member.thread_id) for member in group]
    known = [log.use_cached_state() for log in logs]
    ids = [
        (log.thread, doc_id)
        for log, member, is_known in zip(logs, group, known, strict=True)
        if is_known
        for doc_id in _ids_to_read(log, member)
    ]
    read = ReadClient(client, ids, excludes=CONTENTS)
    steps = [
        _step(log, member, read) if is_known else None for log, member, is_known in zip(logs, group, known, strict=True)
    ]
    done = _written(client, [step for step in steps if step is not None])
    _complete_all(client, [(step.log, step.draft.record) for step in done if step.draft is not None])
    return [step.outcome if step is not None and step in done else None for step in steps]


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """The document that a member of a group writes. It has a draft if it is of a commit."""

    log: Log
    item: BulkItem
    outcome: Outcome
    draft: _Draft | None = None


def _ids_to_read(log: Log, member: Commit | TaskWrites) -> list[str]:
    """The documents that are likely to be needed, beside those that the cache has."""
    if isinstance(member, TaskWrites):
        name = (member.namespace, member.checkpoint_id)
        return [*log.ids_ahead(log.state.position), *writes_ids(log, name, member.task_id)]
    names, cached = _referenced_names(member), log.cache.get(log.thread)
    bases = {name: base for name, base in cached.bases.items() if name in names} if cached else {}
    ids = [doc_id for name in names - bases.keys() for doc_id in log.ids_to_find(name)]
    place = log.state.latest_places.get(member.namespace)
    asks_for_latest = member.if_latest is not ANY or member.parent_id is ANY
    if asks_for_latest and place is not None and place not in [base.place for base in bases.values()]:
        ids.append(record_id(log.thread, log.state.batch, place))
    return ids


def _step(log: Log, member: Commit | TaskWrites, read: ReadClient) -> _Step | None:
    """The step of a member; None if the documents that were read do not suffice, or do not allow it for certain."""
    client, log.client = log.client, read
    try:
        if isinstance(member, TaskWrites):
            if log.read_state().expired(now_micros()):
                return None
            return _Step(log, writes_item(log, member), Outcome(Verdict.COMMITTED))
        draft = _drafted(log, member, state_is_current=False)
        return _Step(log, creation(draft.record), draft.outcome, draft) if isinstance(draft, _Draft) else None
    except (MoreNeeded, ConcurrentRemoval, CorruptCheckpointError):
        return None  # if something is damaged, that is told to whom it belongs to
    finally:
        log.client = client


def _written(client: Client, steps: Sequence[_Step]) -> list[_Step]:
    """Write all steps, and return those that were written."""
    answers = client.write_each([(step.log.thread, step.item) for step in steps])
    taken = [step for step, answer in zip(steps, answers, strict=True) if answer is False]
    found = client.get_each([(step.log.thread, step.item.id) for step in taken], excludes=CONTENTS)
    done: list[_Step] = []
    for step, answer in zip(steps, answers, strict=True):
        log, draft = step.log, step.draft
        if answer or (draft is not None and is_same(draft.record, found.get(draft.record.id))):
            done.append(step)
            if draft is not None:
                log.note_appended(draft.record)
                draft.remember(log)
        elif answer is False:
            log.cache.drop(log.thread)  # it has changed since
    return done


def _complete_all(client: Client, done: Sequence[tuple[Log, Record]]) -> None:
    """Do for many commits what has to be done before they may be acknowledged. One request publishes all."""
    due = [
        (log, log.items_to_publish())
        for log, _ in done
        if log.state.must_publish and log.state.published.changes == log.state.changes
    ]
    answers = client.write_each([(log.thread, item) for log, items in due for item in items])
    for log, items in due:
        own, answers = answers[: len(items)], answers[len(items) :]
        if all(own):
            log.note_published()
            log.cache.put(log.thread, log.state)
    for log, record in done:
        _complete(log, record)


def _referenced_names(commit: Commit) -> set[CheckpointName]:
    """The names of the checkpoints that `decide` will look up."""
    found = [] if commit.fresh_id else [commit.checkpoint_id]
    if commit.base is not None:
        found.append(commit.base.checkpoint_id)
    if isinstance(commit.parent_id, str):
        found.append(commit.parent_id)
    return {(commit.namespace, checkpoint_id) for checkpoint_id in found}


def _complete(log: Log, record: Record | None = None) -> None:
    """Do what has to be done after a commit before it may be acknowledged."""
    epoch_ended = log.state.published.changes != log.state.changes and record is not None and record.removal is None
    if log.state.must_publish:
        log.publish()
        log.cache.put(log.thread, log.state)
    if record is not None and record.removal is not None:
        finish_removal(log, record)
    elif epoch_ended:
        purge_dead_epochs(log)


class CommitView:
    """The state of a thread's log as the `View` on which `commit_rules.decide` decides."""

    def __init__(self, log: Log, state: ThreadState, commit: Commit, names: set[CheckpointName]) -> None:
        self._log = log
        self._state = state
        self.last_seq = state.last_seq
        self.bases: dict[CheckpointName, KnownBase] = {}
        cached = log.cache.get(log.thread)
        if cached is not None and cached.state.changes == state.changes:
            self.bases = {name: base for name, base in cached.bases.items() if name in names}
        self._newest_runs: Mapping[str, int] | None = None
        self._base_name = None if commit.base is None else (commit.namespace, commit.base.checkpoint_id)

    @property
    def base(self) -> KnownBase | None:
        """The checkpoint that the commit is a delta of, as far as it was found."""
        return self.bases.get(self._base_name) if self._base_name else None

    def find(self, namespace: str, checkpoint_id: str) -> Known | None:
        name = (namespace, checkpoint_id)
        if name not in self.bases and self._state.live:
            record = self._log.find(namespace, checkpoint_id)
            if record is not None:
                self.bases[name] = base_from(record)
        return self.bases.get(name)

    def latest(self, namespace: str) -> Known | None:
        place = self._state.latest_places.get(namespace)
        for base in self.bases.values():
            if base.place == place:
                return base
        if not self._state.live:
            return None
        record = self._log.latest(namespace)
        return None if record is None else record.known

    def has_run(self, branch: str, number: int) -> bool:
        """Tell whether this run, which follows one of the base, may be stored already.

        It surely is not if the base is the latest of its namespace (namespaces never share branches), and had the
        newest run when it was saved.
        """
        if number == 0:
            return self._is_opened(branch)
        if self._base_name is None:
            return True
        base = self.bases[self._base_name]
        location = base.locations.get((branch, number - 1))
        if location is None or self._state.latest_places.get(self._base_name[0]) != base.place:
            return True
        if location.newest:
            return False
        # Others had continued what the base brought itself. They may be gone.
        return location.place != base.place or self._newest_run(branch) >= number

    def _is_opened(self, branch: str) -> bool:
        """Tell whether a checkpoint names a branch that a commit opens.

        If nothing was removed, only those at hand are looked at: a commit that is sent again is known by its id then.
        A checkpoint names the records that hold its runs, so another's branch of the same name changes none of it.
        """
        if any(name == branch for base in self.bases.values() for name, _ in base.locations):
            return True
        nothing_was_removed = self._state.live == self._state.last_seq
        return not nothing_was_removed and branch in self._named_runs()

    def _newest_run(self, branch: str) -> int:
        """The number of the newest run of a branch that a checkpoint names; 0 if there is none."""
        return self._named_runs().get(branch, 0)

    def _named_runs(self) -> Mapping[str, int]:
        """The newest run that checkpoints name of each branch. Reads them all."""
        if self._newest_runs is None:
            checkpoints = self._log.visible_checkpoints(self._log.all_records())
            self._newest_runs = newest_runs(record.manifest for record in checkpoints)
        return self._newest_runs


def _record(log: Log, commit: Commit, outcome: Outcome, state: ThreadState, view: CommitView) -> Record | None:
    """Make the record of a commit. None if its base lacks a run that it refers to."""
    place = log.state.position + 1
    base = view.base
    runs = _stored_runs(log, commit, base, place)
    if runs is None:
        return None
    base_is_latest = base is not None and state.latest_places.get(commit.namespace) == base.place
    locations = _run_locations(commit, place, runs, base, base_is_latest)
    if locations is None:
        return None
    created = to_micros(commit.created_at)
    expires = None if commit.expires_at is None else to_micros(commit.expires_at)
    return Record(
        CHECKPOINT,
        log.thread,
        place,
        place,
        now_micros(),
        epoch=state.epoch,
        namespace=commit.namespace,
        checkpoint_id=commit.checkpoint_id,
        parent_id=outcome.parent_id,
        seq=outcome.seq,
        rev=commit.rev,
        after=log.state.rev,
        order=max(created, state.order),
        created=created,
        metadata=commit.metadata,
        head=commit.head,
        manifest=commit.manifest,
        run_locations=tuple(locations),
        runs=tuple(runs.values()),
        expires=expires,
        life=0 if expires is None else max(0, expires - created),
        extents=commit.extents,
    )


def _stored_runs(log: Log, commit: Commit, base: KnownBase | None, place: int) -> dict[RunKey, StoredRun] | None:
    """The runs that a commit brings, at its place, with references to earlier ones.

    None if one follows a run that neither it nor its base has.
    """
    runs: dict[RunKey, StoredRun] = {}
    for run in (*commit.runs, *commit.values):
        earlier: EarlierRuns = ()
        if run.number > 0:
            key = (run.branch, run.number - 1)
            brought = runs.get(key)
            last = (brought, place) if brought else None if base is None else _find_run(log, base, key)
            if last is None:
                return None
            stored, at = last
            earlier = extend_earlier_runs(stored.earlier, RunRef(run.number - 1, at, stored.end, stored.run.start))
        runs[run.branch, run.number] = StoredRun(run, earlier)
    return runs


def _find_run(log: Log, base: KnownBase, key: RunKey) -> tuple[StoredRun, int] | None:
    """Find a run that the base names, without its items, and the place of its record."""
    location = base.locations.get(key)
    if location is None:
        return None
    stored = base.runs.get(key)
    if stored is None:
        record = log.record(location.place)
        stored = None if record is None else record.find_run(*key)
    if stored is None:
        raise ConcurrentRemoval
    return stored, location.place


def _run_locations(
    commit: Commit,
    place: int,
    runs: dict[RunKey, StoredRun],
    base: KnownBase | None,
    base_is_latest: bool,
) -> list[RunLocation] | None:
    """Locate the runs that the manifest names. None if neither the commit nor its base has one of them."""
    highest = dict(sorted(runs))
    locations: list[RunLocation] = []
    for branch, number in run_keys(commit.extents or wanted(commit.manifest)):
        if (branch, number) in runs:
            locations.append(RunLocation(place, highest[branch] == number))
            continue
        location = None if base is None else base.locations.get((branch, number))
        if location is None:
            return None
        newest = location.newest and base_is_latest and branch not in highest
        locations.append(RunLocation(location.place, newest))
    return locations
