"""Compares the answers that clients got with the stored threads. Pure functions.

An acknowledged operation has happened, at one instant between its beginning and its end. A refused one has not. The
outcome of any other is unknown: it may have happened, completely or not at all, and may even happen later, until
somebody has seen it. A `Finding` is anything that contradicts this. If two operations overlap, either order is right.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from locus.testing.campaign.finding import Claim, Finding, Kind
from locus.testing.campaign.found import FoundCheckpoint, FoundThread, ancestors
from locus.testing.campaign.history import History, Operation
from locus.testing.campaign.judged import CLOCK_MARGIN, Judged, Sent, found_nothing
from locus.testing.campaign.reads import check_reads
from locus.testing.campaign.recorded import REFUSALS, UNKNOWN

EXPECTED_ERRORS: Final = frozenset({"", "killed", *(kind.__name__ for kind in (*REFUSALS, *UNKNOWN))})
"""The errors that a client may get, by name."""
READS: Final = frozenset({"load", "tail", "list", "history", "exists", "get", "read"})
"""The kinds of operations that cannot be refused, because no other writer can be in their way."""


def check(history: History, threads: Mapping[str, FoundThread]) -> list[Finding]:
    """All violations in the history and the stored threads."""
    judged = Judged(history, threads)
    findings = [*_errors(history)]
    rules = (
        _was_sent,
        _nothing_lost,
        _in_order,
        _lineage,
        _conditions,
        _refusals,
        _missed,
        _copied,
        _writes,
        check_reads,
    )
    for thread_id in sorted({*threads, *judged.by_thread, *judged.copies}):
        thread = threads.get(thread_id, FoundThread(thread_id))
        if thread.damage:
            findings.append(Finding(Kind.TORN, thread_id, f"it cannot be read: {thread.damage}"))
            continue
        claims = chain(_is_whole(thread), *(rule(judged, thread) for rule in rules))
        findings += [Finding(kind, thread_id, what) for kind, what in claims]
    return findings


def _errors(history: History) -> Iterator[Finding]:
    for operation in history.operations:
        if operation.error.rpartition(".")[2] not in EXPECTED_ERRORS:
            yield Finding(_kind_of(operation.error), operation.thread, f"{operation}: {operation.answer}")
        elif operation.told == "refused" and operation.kind in READS:
            yield Finding(Kind.WRONG_ERROR, operation.thread, f"{operation}, which only reads")
    for note in history.notes:
        if "error" in note:
            yield Finding(_kind_of(note["error"]), "", f"{note['error']} came out of a step: {note.get('text')}")


def _kind_of(error: str) -> Kind:
    return Kind.TORN if error.endswith(("CorruptCheckpointError", "UnsupportedFormatError")) else Kind.WRONG_ERROR


def _is_whole(thread: FoundThread) -> Iterator[Claim]:
    """The lists, loads and sequence numbers of a thread agree with each other."""
    ids = [checkpoint.checkpoint_id for checkpoint in thread.checkpoints]
    seqs = [checkpoint.seq for checkpoint in thread.checkpoints]
    if seqs != sorted(set(seqs)):
        yield Kind.ORDER, f"sequence numbers {seqs}"
    if list(reversed(ids)) != list(thread.listed):
        yield Kind.WRONG_LATEST, "the list of ids is not that of the history"
    newest = thread.checkpoints[-1].digest if thread.checkpoints else None
    if thread.latest != newest and not (thread.checkpoints and thread.checkpoints[-1].damage):
        yield Kind.WRONG_LATEST, "a load does not give the newest that is listed"
    if thread.orphaned_runs:
        yield Kind.ORPHANED, f"{thread.orphaned_runs} runs that no checkpoint shows"
    for checkpoint in thread.checkpoints:
        if checkpoint.damage:
            yield Kind.TORN, f"{checkpoint.checkpoint_id!r}: {checkpoint.damage}"
        elif checkpoint.digest is None:
            yield Kind.TORN, f"{checkpoint.checkpoint_id!r} is listed, and cannot be loaded"


def _was_sent(judged: Judged, thread: FoundThread) -> Iterator[Claim]:
    origins = {thread.thread_id, *judged.origins(thread.thread_id)}
    for op, times in Counter(checkpoint.op for checkpoint in thread.checkpoints if checkpoint.op is not None).items():
        if times > 1:
            yield Kind.TWICE, f"save {op} is there {times} times"
    for checkpoint in thread.checkpoints:
        sent = judged.sent.get(checkpoint.op or "")
        if sent is None or sent.thread not in origins:
            yield Kind.NEVER_SENT, f"{checkpoint.checkpoint_id!r} was never sent (save {checkpoint.op})"
            continue
        if sent.refused:
            yield Kind.REFUSED, f"{sent} is there"
        if checkpoint.digest is not None and checkpoint.digest != sent.digest:
            yield Kind.TORN, f"{sent} is not as it was sent"
        if sent.checkpoint is not None and sent.checkpoint != checkpoint.checkpoint_id:
            yield Kind.TORN, f"{sent} is there as {checkpoint.checkpoint_id!r}"
        deletion = judged.is_deleted(sent, thread.thread_id)
        if deletion is not None:
            yield Kind.DELETED, f"{sent} is there after {deletion}"


def _nothing_lost(judged: Judged, thread: FoundThread) -> Iterator[Claim]:
    names = {checkpoint.op for checkpoint in thread.checkpoints}
    for sent in judged.by_thread[thread.thread_id]:
        if sent.acknowledged and sent.op not in names and not judged.is_explained(sent, names):
            yield Kind.LOST, f"{sent} is not there"


def _in_order(judged: Judged, thread: FoundThread) -> Iterator[Claim]:
    earliest: Sent | None = None
    for _, sent in reversed(judged.known(thread)):
        if earliest is not None and judged.over(earliest) < sent.begun:
            yield Kind.ORDER, f"{earliest} ended before {sent} began, and is stored after it"
        if earliest is None or judged.over(sent) < judged.over(earliest):
            earliest = sent


def _lineage(judged: Judged, thread: FoundThread) -> Iterator[Claim]:
    ids = {checkpoint.checkpoint_id for checkpoint in thread.checkpoints}
    for checkpoint in thread.checkpoints:
        if checkpoint.parent_id is not None and checkpoint.parent_id not in ids:
            yield Kind.LINEAGE, f"{checkpoint.parent_id!r} is a parent, and not there"
    for checkpoint, sent in judged.known(thread):
        if sent.thread != thread.thread_id or sent.parent is None or sent.parent not in ids:
            continue
        # A checkpoint that is replaced leaves its children to its own parent.
        if not all(judged.was_never_replaced(sent.thread, known) for known in (checkpoint.checkpoint_id, sent.parent)):
            continue
        if checkpoint.parent_id != sent.parent and not judged.may_delete(thread.thread_id, sent.parent):
            yield Kind.LINEAGE, f"{sent} has the parent {checkpoint.parent_id!r}, and not {sent.parent!r}"


def _conditions(judged: Judged, thread: FoundThread) -> Iterator[Claim]:
    """A save with `if_latest` is stored right behind that checkpoint, with nothing in between.

    Of several saves with the same condition, only one can be stored, unless a deletion made the condition true again.
    """
    before: list[FoundCheckpoint] = []
    at: dict[str, int] = {}
    for checkpoint, sent in judged.known(thread):
        if sent.is_conditional and sent.thread == thread.thread_id:
            if sent.if_latest is None:
                between = before
            else:
                position = at.get(sent.if_latest)
                between = _later(judged, before, sent) if position is None else before[position + 1 :]
            if between:
                what = f"{sent}, if {sent.if_latest!r} is the latest: but {between[-1].checkpoint_id!r} was"
                yield Kind.WRONG_LATEST, what
        at[checkpoint.checkpoint_id] = len(before)
        before.append(checkpoint)


def _later(judged: Judged, others: Sequence[FoundCheckpoint], sent: Sent) -> list[FoundCheckpoint]:
    """The stored checkpoints that certainly came after the one that `sent` expected, which no longer exists."""
    expected = judged.under_id[sent.thread, sent.if_latest or ""]
    if not expected:
        return []
    return [
        checkpoint
        for checkpoint in others
        if checkpoint.op in judged.sent and all(known.settled < judged.sent[checkpoint.op].begun for known in expected)
    ]


def _refusals(judged: Judged, stored: FoundThread) -> Iterator[Claim]:
    """Find saves that were refused although nothing else can have become the latest checkpoint meanwhile."""
    thread = stored.thread_id
    for sent in judged.by_thread[thread]:
        if not sent.refused or not sent.is_conditional or sent.attempts[0].error != "ConflictError":
            continue
        expected = [save for save in judged.under_id[thread, sent.if_latest or ""] if save.ended < sent.begun]
        if len(expected) != 1 if sent.if_latest is not None else expected:
            continue
        since = expected[0].begun if expected else -math.inf
        others: list[Sent | Operation] = [*judged.by_thread[thread], *judged.deletions[thread], *judged.copies[thread]]
        others = [other for other in others if other is not sent and other not in expected]
        others += [run for run in judged.vacuums if any(judged.may_vacuum(run, known, thread) for known in expected)]
        if not any(_may_be_between(other, since, sent.settled) for other in others):
            yield Kind.WRONG_LATEST, f"{sent} was refused, and nobody else can have been faster than {sent.if_latest!r}"


def _may_be_between(other: Sent | Operation, since: float, until: float) -> bool:
    if isinstance(other, Sent):
        return not other.refused and other.settled >= since and other.begun <= until
    return other.may_have_happened and other.ended >= since and other.begun <= until


def _missed(judged: Judged, stored: FoundThread) -> Iterator[Claim]:
    """No client was told that a checkpoint does not exist while it did, be it a parent, or one to load or delete."""
    thread = stored.thread_id
    for sent in judged.by_thread[thread]:
        if not sent.refused:
            continue
        error = sent.attempts[0].error
        if error == "CheckpointNotFoundError":
            if not sent.needs_parent or judged.was_there(thread, sent.parent, sent.begun, sent.settled):
                yield Kind.WRONG_ERROR, f"{sent}, although its parent {sent.parent!r} was there"
        elif error == "WindowError" and sent.parent is not None:
            saves = judged.under_id[thread, sent.parent]
            was_there = judged.was_there(thread, sent.parent, sent.begun, sent.settled)
            if was_there and len(saves) == 1 and not judged.replacements(saves[0], until=sent.settled):
                yield Kind.WRONG_ERROR, f"{sent}, although {sent.parent!r} was there as it was loaded"
    for deletion in judged.deletions[thread]:
        named = deletion.facts["id"]
        if not found_nothing(deletion) or not judged.was_there(thread, named, deletion.begun, deletion.ended):
            continue
        # A deletion is for the checkpoint that its client has seen, and leaves one that has taken its place.
        if not any(judged.replacements(save, until=deletion.ended) for save in judged.under_id[thread, named]):
            yield Kind.WRONG_ERROR, f"{deletion} found nothing, although {named!r} was there"


def _copied(judged: Judged, stored: FoundThread) -> Iterator[Claim]:
    """A copy has everything that its source had, or does not exist."""
    thread = stored.thread_id
    copies = [copy for copy in judged.copies[thread] if copy.may_have_happened]
    if len(copies) != 1:
        return
    copy, names = copies[0], {checkpoint.op for checkpoint in stored.checkpoints}
    copied = [(checkpoint, sent) for checkpoint, sent in judged.known(stored) if sent.thread != thread]
    is_told = copy.told == "acknowledged" and copy.answer is True
    for _, sent in copied:
        if sent.begun > copy.ended:
            yield Kind.NEVER_SENT, f"{copy} has {sent}, which came later"
    if copy.facts["of"] is not None:
        tip = next((checkpoint for checkpoint, _ in copied if checkpoint.checkpoint_id == copy.facts["of"]), None)
        line = set() if tip is None else {checkpoint.op for checkpoint in ancestors(stored, tip.checkpoint_id)}
        for _, sent in copied:
            if tip is not None and sent.op not in line:
                yield Kind.NEVER_SENT, f"{copy} has {sent}, which is not in its line"
    if not copied and not is_told:
        return
    source = copy.facts["source"]
    for sent in _to_copy(judged, copy, names):
        if sent.op in names or judged.is_explained(sent, names, source, copy.ended):
            continue
        # The copy may have got another checkpoint under the same id, and lost it since.
        others = judged.replacements(sent, source, copy.ended)
        if judged.is_explained(sent, names, thread) or any(judged.removals(other, thread) for other in others):
            continue
        yield Kind.TORN if copied else Kind.LOST, f"{copy} lacks {sent}"


def _to_copy(judged: Judged, copy: Operation, names: Iterable[str | None]) -> Iterator[Sent]:
    """The saves that the source of a copy had when the copy began, unless they were removed or replaced before."""
    source, of = copy.facts["source"], copy.facts["of"]
    for sent in judged.by_thread[source]:
        if of in (None, sent.checkpoint) and sent.ended < copy.begun:
            yield sent
    stored = judged.threads.get(source, FoundThread(source))
    if of is None:
        # The checkpoints that came by an earlier copy came in one step.
        earlier = [copied for copied in judged.copies[source] if copied.may_have_happened]
        if len(earlier) == 1 and earlier[0].ended < copy.begun:
            yield from (sent for _, sent in judged.known(stored) if sent.thread != source)
        return
    # The line may have lost checkpoints since then, but it had at least those that it has now.
    tip = next((checkpoint for checkpoint in stored.checkpoints if checkpoint.checkpoint_id == of), None)
    if tip is not None and tip.op in names:
        yield from (judged.sent[checkpoint.op] for checkpoint in ancestors(stored, of) if checkpoint.op in judged.sent)


def _writes(judged: Judged, stored: FoundThread) -> Iterator[Claim]:
    """The stored writes of a task are all from one operation, and from the last one if it is known."""
    thread = stored.thread_id
    places: defaultdict[tuple[str, str], list[Operation]] = defaultdict(list)
    for operation in judged.writes[thread]:
        if operation.facts["namespace"] == "default":
            places[operation.facts["id"], operation.facts["task"]].append(operation)
    ids = {checkpoint.checkpoint_id for checkpoint in stored.checkpoints}
    for place, operations in places.items():
        text = stored.writes.get(place)
        possible = [operation for operation in operations if operation.may_have_happened]
        current = [
            operation
            for operation in possible
            if not any(operation.precedes(other) and judged.written(other) < math.inf for other in possible)
        ]
        if text is not None and text not in {operation.facts["digest"] for operation in current}:
            sent = text in {operation.facts["digest"] for operation in possible}
            kind = Kind.ORDER if sent else Kind.TORN
            yield kind, f"pending writes of {place}: {'older ones' if sent else 'not as sent'}"
        stays = place[0] in ids and not judged.may_delete(thread, place[0])
        if text is None and stays and any(operation.told == "acknowledged" for operation in operations):
            yield Kind.LOST, f"pending writes of {place} are not there"


def left_as_it_was(before: FoundThread, now: FoundThread, vacuums: Sequence[Operation]) -> Iterator[Finding]:
    """A thread that no client uses any more is unchanged, but for checkpoints that these vacuums may have removed."""
    left_by_id = {checkpoint.checkpoint_id: checkpoint for checkpoint in now.checkpoints}
    may_go = {name for vacuum in vacuums if vacuum.may_have_happened for name in _outlived(before, vacuum)}
    removed = ({checkpoint.checkpoint_id for checkpoint in before.checkpoints} - left_by_id.keys()) & may_go
    expected = [checkpoint for checkpoint in before.checkpoints if checkpoint.checkpoint_id not in removed]
    if any(checkpoint.checkpoint_id not in left_by_id for checkpoint in expected):
        yield Finding(Kind.LOST, before.thread_id, "what an earlier round had left is not there any more")
        return
    for vacuum in vacuums:
        if vacuum.told == "acknowledged" and (left := _outlived(before, vacuum, -CLOCK_MARGIN) & left_by_id.keys()):
            yield Finding(
                Kind.DELETED, before.thread_id, f"{sorted(left)} of an earlier round are there after {vacuum}"
            )
    if now == before:
        return
    expected = [replace(checkpoint, parent_id=_nearest(before, checkpoint, removed)) for checkpoint in expected]
    as_before = [left_by_id[checkpoint.checkpoint_id] for checkpoint in expected]
    writes = {place: text for place, text in before.writes.items() if place[0] not in removed}
    latest = expected[-1].digest if expected else None
    if as_before != expected or len(left_by_id) != len(expected) or now.latest != latest or now.writes != writes:
        yield Finding(Kind.TORN, before.thread_id, "what an earlier round had left is not as it was any more")
    elif not removed:
        yield Finding(Kind.TORN, before.thread_id, "what an earlier round had left has changed")
    else:
        yield from (Finding(kind, now.thread_id, what) for kind, what in _is_whole(now))


def _nearest(thread: FoundThread, checkpoint: FoundCheckpoint, removed: Collection[str]) -> str | None:
    """The parent that a checkpoint has once others are removed: its nearest ancestor that stays."""
    line = ancestors(thread, checkpoint.checkpoint_id)[1:]
    if len(line) == 0:
        return checkpoint.parent_id  # none, or one that was named and never saved
    return next((older.checkpoint_id for older in line if older.checkpoint_id not in removed), None)


def _outlived(thread: FoundThread, vacuum: Operation, margin: float = CLOCK_MARGIN) -> set[str]:
    """The checkpoints that a vacuum removes from a thread at rest: old ones that are not among the last of a line."""
    before, keep_last = vacuum.facts["before"], vacuum.facts["keep_last"]
    latest = math.inf if before is None else before + margin
    old = {checkpoint.checkpoint_id for checkpoint in thread.checkpoints if checkpoint.created_at <= latest}
    return old if keep_last is None else old - _last_of_lines(thread, int(keep_last))


def _last_of_lines(thread: FoundThread, number: int) -> set[str]:
    """The last `number` checkpoints of each line. A line ends at a checkpoint without children, or at the newest."""
    parents = {checkpoint.parent_id for checkpoint in thread.checkpoints}
    ends = [checkpoint for checkpoint in thread.checkpoints if checkpoint.checkpoint_id not in parents]
    ends += thread.checkpoints[-1:]
    return {checkpoint.checkpoint_id for end in ends for checkpoint in ancestors(thread, end.checkpoint_id)[:number]}
