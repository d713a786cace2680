"""Holds what clients were told against what is stored. Pure functions.

An operation that was acknowledged has happened, at one instant between its beginning and its end. One that was refused
has not. Of any other nobody knows: it may have happened, whole or not at all, and may do so even later, until somebody
has seen it. What follows from that is checked, and everything that contradicts it is a `Finding`. Where two operations
overlap, either order is right.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from locus.testing.campaign.finding import Finding, Kind
from locus.testing.campaign.found import FoundCheckpoint, FoundThread, ancestors
from locus.testing.campaign.history import History, Operation
from locus.testing.campaign.judged import CLOCK_MARGIN, Judged, Sent, found_nothing
from locus.testing.campaign.reads import check_reads
from locus.testing.campaign.recorded import REFUSALS, UNKNOWN

EXPECTED_ERRORS: Final = frozenset({"", "killed", *(kind.__name__ for kind in (*REFUSALS, *UNKNOWN))})
"""What a client may be told."""
READS: Final = frozenset({"load", "tail", "list", "history", "exists", "get", "read"})
"""What cannot be refused: it asks for nothing that another writer could be faster with."""


def check(history: History, found: Mapping[str, FoundThread]) -> list[Finding]:
    """Everything that is wrong."""
    judged = Judged(history, found)
    findings: list[Finding] = [*_errors(history)]
    for thread in sorted({*found, *judged.by_thread, *judged.copies}):
        there = found.get(thread, FoundThread(thread))
        if there.damage:
            findings.append(Finding(Kind.TORN, thread, f"it cannot be read: {there.damage}"))
            continue
        findings += _is_whole(there)
        findings += _was_sent(judged, there)
        findings += _nothing_lost(judged, there)
        findings += _in_order(judged, there)
        findings += _lineage(judged, there)
        findings += _conditions(judged, there)
        findings += _refusals(judged, there)
        findings += _missed(judged, there)
        findings += _copied(judged, there)
        findings += _writes(judged, there)
        findings += check_reads(judged, there)
    return findings


def _errors(history: History) -> Iterator[Finding]:
    for one in history.operations:
        if one.error.rpartition(".")[2] not in EXPECTED_ERRORS:
            yield Finding(_kind_of(one.error), one.thread, f"{one}: {one.answer}")
        elif one.told == "refused" and one.kind in READS:
            yield Finding(Kind.WRONG_ERROR, one.thread, f"{one}, which only reads")
    for note in history.notes:
        if "error" in note:
            yield Finding(_kind_of(note["error"]), "", f"{note['error']} came out of a step: {note.get('text')}")


def _kind_of(error: str) -> Kind:
    return Kind.TORN if error.endswith(("CorruptCheckpointError", "UnsupportedFormatError")) else Kind.WRONG_ERROR


def _is_whole(there: FoundThread) -> Iterator[Finding]:
    """What the store itself says of the thread agrees."""
    ids = [one.checkpoint_id for one in there.checkpoints]
    seqs = [one.seq for one in there.checkpoints]
    if seqs != sorted(set(seqs)):
        yield Finding(Kind.ORDER, there.thread_id, f"sequence numbers {seqs}")
    if list(reversed(ids)) != list(there.listed):
        yield Finding(Kind.WRONG_LATEST, there.thread_id, "the list of ids is not that of the history")
    newest = there.checkpoints[-1].digest if there.checkpoints else None
    if there.latest != newest and not (there.checkpoints and there.checkpoints[-1].damage):
        yield Finding(Kind.WRONG_LATEST, there.thread_id, "a load does not give the newest that is listed")
    if there.orphaned_runs:
        yield Finding(Kind.ORPHANED, there.thread_id, f"{there.orphaned_runs} runs that no checkpoint shows")
    for one in there.checkpoints:
        if one.damage:
            yield Finding(Kind.TORN, there.thread_id, f"{one.checkpoint_id!r}: {one.damage}")
        elif one.digest is None:
            yield Finding(Kind.TORN, there.thread_id, f"{one.checkpoint_id!r} is listed, and cannot be loaded")


def _was_sent(judged: Judged, there: FoundThread) -> Iterator[Finding]:
    origins = {there.thread_id, *judged.origins(there.thread_id)}
    for op, times in Counter(one.op for one in there.checkpoints if one.op is not None).items():
        if times > 1:
            yield Finding(Kind.TWICE, there.thread_id, f"save {op} is there {times} times")
    for one in there.checkpoints:
        sent = judged.sent.get(one.op or "")
        if sent is None or sent.thread not in origins:
            yield Finding(Kind.NEVER_SENT, there.thread_id, f"{one.checkpoint_id!r} was never sent (save {one.op})")
            continue
        if sent.refused:
            yield Finding(Kind.REFUSED, there.thread_id, f"{sent} is there")
        if one.digest is not None and one.digest != sent.digest:
            yield Finding(Kind.TORN, there.thread_id, f"{sent} is not as it was sent")
        if sent.checkpoint is not None and sent.checkpoint != one.checkpoint_id:
            yield Finding(Kind.TORN, there.thread_id, f"{sent} is there as {one.checkpoint_id!r}")
        deletion = judged.is_deleted(sent, there.thread_id)
        if deletion is not None:
            yield Finding(Kind.DELETED, there.thread_id, f"{sent} is there after {deletion}")


def _nothing_lost(judged: Judged, there: FoundThread) -> Iterator[Finding]:
    names = {one.op for one in there.checkpoints}
    for sent in judged.by_thread[there.thread_id]:
        if sent.acknowledged and sent.op not in names and not judged.is_explained(sent, names):
            yield Finding(Kind.LOST, there.thread_id, f"{sent} is not there")


def _known(judged: Judged, there: FoundThread) -> list[tuple[FoundCheckpoint, Sent]]:
    """What is there and was sent, by sequence number."""
    return [(one, judged.sent[one.op]) for one in there.checkpoints if one.op in judged.sent]


def _in_order(judged: Judged, there: FoundThread) -> Iterator[Finding]:
    earliest: Sent | None = None
    for _, sent in reversed(_known(judged, there)):
        if earliest is not None and judged.over(earliest) < sent.begun:
            yield Finding(Kind.ORDER, there.thread_id, f"{earliest} ended before {sent} began, and is stored after it")
        if earliest is None or judged.over(sent) < judged.over(earliest):
            earliest = sent


def _lineage(judged: Judged, there: FoundThread) -> Iterator[Finding]:
    ids = {one.checkpoint_id for one in there.checkpoints}
    for one in there.checkpoints:
        if one.parent_id is not None and one.parent_id not in ids:
            yield Finding(Kind.LINEAGE, there.thread_id, f"{one.parent_id!r} is a parent, and not there")
    for one, sent in _known(judged, there):
        if sent.thread != there.thread_id or sent.parent is None or sent.parent not in ids:
            continue
        # A checkpoint that is replaced leaves its children to its own parent.
        if not all(judged.was_never_replaced(sent.thread, known) for known in (one.checkpoint_id, sent.parent)):
            continue
        if one.parent_id != sent.parent and not judged.may_delete(there.thread_id, sent.parent):
            what = f"{sent} has the parent {one.parent_id!r}, and not {sent.parent!r}"
            yield Finding(Kind.LINEAGE, there.thread_id, what)


def _conditions(judged: Judged, there: FoundThread) -> Iterator[Finding]:
    """Whatever was saved with `if_latest` stands right behind that checkpoint: nothing that is there came between.

    So of several saves with the same condition one was written, unless a deletion made it true again.
    """
    before: list[FoundCheckpoint] = []
    at: dict[str, int] = {}
    for one, sent in _known(judged, there):
        if sent.is_conditional and sent.thread == there.thread_id:
            if sent.if_latest is None:
                between = before
            else:
                position = at.get(sent.if_latest)
                between = _later(judged, before, sent) if position is None else before[position + 1 :]
            if between:
                what = f"{sent}, if {sent.if_latest!r} is the latest: but {between[-1].checkpoint_id!r} was"
                yield Finding(Kind.WRONG_LATEST, there.thread_id, what)
        at[one.checkpoint_id] = len(before)
        before.append(one)


def _later(judged: Judged, others: Sequence[FoundCheckpoint], sent: Sent) -> list[FoundCheckpoint]:
    """Of these, what came for certain after a checkpoint that is not there any more."""
    expected = judged.under_id[sent.thread, sent.if_latest or ""]
    if not expected:
        return []
    return [
        one
        for one in others
        if one.op in judged.sent and all(known.settled < judged.sent[one.op].begun for known in expected)
    ]


def _refusals(judged: Judged, there: FoundThread) -> Iterator[Finding]:
    """A save is only refused if something else may have been the latest."""
    thread = there.thread_id
    for sent in judged.by_thread[thread]:
        if not sent.refused or not sent.is_conditional or sent.attempts[0].error != "ConflictError":
            continue
        expected = [one for one in judged.under_id[thread, sent.if_latest or ""] if one.ended < sent.begun]
        if len(expected) != 1 if sent.if_latest is not None else expected:
            continue
        since = expected[0].begun if expected else -math.inf
        others: list[Sent | Operation] = [*judged.by_thread[thread], *judged.deletions[thread], *judged.copies[thread]]
        others = [other for other in others if other is not sent and other not in expected]
        others += [one for one in judged.vacuums if any(judged.may_vacuum(one, known, thread) for known in expected)]
        if not any(_may_be_between(other, since, sent.settled) for other in others):
            what = f"{sent} was refused, and nobody else can have been faster than {sent.if_latest!r}"
            yield Finding(Kind.WRONG_LATEST, thread, what)


def _may_be_between(other: Sent | Operation, since: float, until: float) -> bool:
    if isinstance(other, Sent):
        return not other.refused and other.settled >= since and other.begun <= until
    return other.may_have_happened and other.ended >= since and other.begun <= until


def _missed(judged: Judged, there: FoundThread) -> Iterator[Finding]:
    """Nobody was told that a checkpoint is not there which was: as a parent, behind a window, or to delete it."""
    thread = there.thread_id
    for sent in judged.by_thread[thread]:
        if not sent.refused:
            continue
        error = sent.attempts[0].error
        if error == "CheckpointNotFoundError":
            if not sent.needs_parent or judged.was_there(thread, sent.parent, sent.begun, sent.settled):
                yield Finding(Kind.WRONG_ERROR, thread, f"{sent}, although its parent {sent.parent!r} was there")
        elif error == "WindowError" and sent.parent is not None:
            saves = judged.under_id[thread, sent.parent]
            was_there = judged.was_there(thread, sent.parent, sent.begun, sent.settled)
            if was_there and len(saves) == 1 and not judged.replacements(saves[0], until=sent.settled):
                yield Finding(Kind.WRONG_ERROR, thread, f"{sent}, although {sent.parent!r} was there as it was loaded")
    for deletion in judged.deletions[thread]:
        named = deletion.facts["id"]
        if not found_nothing(deletion) or not judged.was_there(thread, named, deletion.begun, deletion.ended):
            continue
        # It names the checkpoint that it has seen, so one that takes its place is not deleted.
        if not any(judged.replacements(one, until=deletion.ended) for one in judged.under_id[thread, named]):
            yield Finding(Kind.WRONG_ERROR, thread, f"{deletion} found nothing, although {named!r} was there")


def _copied(judged: Judged, there: FoundThread) -> Iterator[Finding]:
    """A copy has everything that its source had, or is not there."""
    thread = there.thread_id
    copies = [one for one in judged.copies[thread] if one.may_have_happened]
    if len(copies) != 1:
        return
    copy, names = copies[0], {one.op for one in there.checkpoints}
    copied = [(one, sent) for one, sent in _known(judged, there) if sent.thread != thread]
    is_told = copy.told == "acknowledged" and copy.answer is True
    for _, sent in copied:
        if sent.begun > copy.ended:
            yield Finding(Kind.NEVER_SENT, thread, f"{copy} has {sent}, which came later")
    if copy.facts["of"] is not None:
        tip = next((one for one, _ in copied if one.checkpoint_id == copy.facts["of"]), None)
        line = set() if tip is None else {one.op for one in ancestors(there, tip.checkpoint_id)}
        for _, sent in copied:
            if tip is not None and sent.op not in line:
                yield Finding(Kind.NEVER_SENT, thread, f"{copy} has {sent}, which is not in its line")
    if not copied and not is_told:
        return
    source = copy.facts["source"]
    for sent in _to_copy(judged, copy, names):
        if sent.op in names or judged.is_explained(sent, names, source, copy.ended):
            continue
        # The copy may have had another one under the same id, and lost that.
        others = judged.replacements(sent, source, copy.ended)
        if not judged.is_explained(sent, names, thread) and not any(judged.removals(one, thread) for one in others):
            yield Finding(Kind.TORN if copied else Kind.LOST, thread, f"{copy} lacks {sent}")


def _to_copy(judged: Judged, copy: Operation, names: Iterable[str | None]) -> Iterator[Sent]:
    """What its source had when a copy began, unless it was removed or replaced before that."""
    source, of = copy.facts["source"], copy.facts["of"]
    for sent in judged.by_thread[source]:
        if of in (None, sent.checkpoint) and sent.ended < copy.begun:
            yield sent
    there = judged.found.get(source, FoundThread(source))
    if of is None:
        # What is there of an earlier copy came in one step.
        earlier = [one for one in judged.copies[source] if one.may_have_happened]
        if len(earlier) == 1 and earlier[0].ended < copy.begun:
            yield from (sent for _, sent in _known(judged, there) if sent.thread != source)
        return
    # Whatever the line has lost since then, it had at least what it has now.
    tip = next((one for one in there.checkpoints if one.checkpoint_id == of), None)
    if tip is not None and tip.op in names:
        yield from (judged.sent[one.op] for one in ancestors(there, of) if one.op in judged.sent)


def _writes(judged: Judged, there: FoundThread) -> Iterator[Finding]:
    """The pending writes of a task are those of one operation, and of the last one if that is known."""
    thread = there.thread_id
    places: defaultdict[tuple[str, str], list[Operation]] = defaultdict(list)
    for one in judged.writes[thread]:
        if one.facts["namespace"] == "default":
            places[one.facts["id"], one.facts["task"]].append(one)
    ids = {one.checkpoint_id for one in there.checkpoints}
    for place, operations in places.items():
        text = there.writes.get(place)
        possible = [one for one in operations if one.may_have_happened]
        current = [
            one
            for one in possible
            if not any(one.precedes(other) and judged.written(other) < math.inf for other in possible)
        ]
        if text is not None and text not in {one.facts["digest"] for one in current}:
            sent = text in {one.facts["digest"] for one in possible}
            kind = Kind.ORDER if sent else Kind.TORN
            yield Finding(kind, thread, f"pending writes of {place}: {'older ones' if sent else 'not as sent'}")
        stays = place[0] in ids and not judged.may_delete(thread, place[0])
        if text is None and stays and any(one.told == "acknowledged" for one in operations):
            yield Finding(Kind.LOST, thread, f"pending writes of {place} are not there")


def left_as_it_was(before: FoundThread, now: FoundThread, vacuums: Sequence[Operation]) -> Iterator[Finding]:
    """A thread that nobody uses any more is as it was, but for what these vacuums may have removed."""
    kept = {one.checkpoint_id: one for one in now.checkpoints}
    may_go = {name for vacuum in vacuums if vacuum.may_have_happened for name in _outlived(before, vacuum)}
    removed = {one.checkpoint_id for one in before.checkpoints if one.checkpoint_id not in kept} & may_go
    expected = [one for one in before.checkpoints if one.checkpoint_id not in removed]
    if any(one.checkpoint_id not in kept for one in expected):
        yield Finding(Kind.LOST, before.thread_id, "what an earlier round had left is not there any more")
        return
    for vacuum in vacuums:
        if vacuum.told == "acknowledged" and (left := _outlived(before, vacuum, -CLOCK_MARGIN) & kept.keys()):
            yield Finding(
                Kind.DELETED, before.thread_id, f"{sorted(left)} of an earlier round are there after {vacuum}"
            )
    if now == before:
        return
    expected = [replace(one, parent_id=_nearest(before, one, removed)) for one in expected]
    as_before = [kept[one.checkpoint_id] for one in expected]
    writes = {place: text for place, text in before.writes.items() if place[0] not in removed}
    latest = expected[-1].digest if expected else None
    if as_before != expected or len(kept) != len(expected) or now.latest != latest or now.writes != writes:
        yield Finding(Kind.TORN, before.thread_id, "what an earlier round had left is not as it was any more")
    elif not removed:
        yield Finding(Kind.TORN, before.thread_id, "what an earlier round had left has changed")
    else:
        yield from _is_whole(now)


def _nearest(there: FoundThread, one: FoundCheckpoint, removed: Collection[str]) -> str | None:
    """The parent of a checkpoint, once these are removed: the nearest ancestor that stays."""
    line = ancestors(there, one.checkpoint_id)[1:]
    if len(line) == 0:
        return one.parent_id  # it has none, or one that was named and never came
    return next((older.checkpoint_id for older in line if older.checkpoint_id not in removed), None)


def _outlived(there: FoundThread, vacuum: Operation, margin: float = CLOCK_MARGIN) -> set[str]:
    """What a vacuum removes from a thread that stands still: it is old, and not among the last of any line."""
    before, keep_last = vacuum.facts["before"], vacuum.facts["keep_last"]
    old = {one.checkpoint_id for one in there.checkpoints if before is None or one.created_at <= before + margin}
    return old if keep_last is None else old - _last_of_lines(there, int(keep_last))


def _last_of_lines(there: FoundThread, number: int) -> set[str]:
    """So many of each line. Every checkpoint that has no child ends a line, and so does the newest."""
    parents = {one.parent_id for one in there.checkpoints}
    ends = [one for one in there.checkpoints if one.checkpoint_id not in parents] + list(there.checkpoints[-1:])
    return {one.checkpoint_id for end in ends for one in ancestors(there, end.checkpoint_id)[:number]}
