"""Checks the reads of clients against operations acknowledged before, and against the stored threads. Pure functions.

A read shows the store at one instant between its beginning and its end. It must not show anything that had certainly
been removed or replaced before it began, nor lack anything that certainly existed all the time. Once a read has shown
something, that counts as acknowledged, so no later read may show less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from locus.testing.campaign.finding import Claim, Kind
from locus.testing.campaign.found import FoundCheckpoint, FoundThread
from locus.testing.campaign.history import Operation
from locus.testing.campaign.judged import Judged, Sent


def check_reads(judged: Judged, stored: FoundThread) -> Iterator[Claim]:
    """Check all reads in one thread."""
    readings = judged.readings[stored.thread_id]
    if not readings:
        return
    thread = _Thread(judged, stored)
    for reading in readings:
        if reading.told != "acknowledged":
            continue
        if reading.kind == "load":
            yield from thread.load(reading, judged.by_digest(stored.thread_id).get(reading.answer, ()))
        elif reading.kind == "tail":
            yield from thread.load(reading, judged.by_tail(stored.thread_id).get(reading.answer, ()))
        elif reading.kind == "list":
            yield from thread.listed(reading)
        elif reading.kind == "history":
            yield from thread.history(reading)
        elif reading.kind == "exists":
            yield from thread.exists(reading)
        elif reading.kind == "get":
            yield from thread.pending(reading)
        elif reading.kind == "window" and reading.answer != reading.facts["digest"]:
            yield Kind.TORN, f"{reading} of {reading.facts['id']!r} is not the end of it"


class _Thread:
    """A thread, with the facts that each read of it is compared with."""

    def __init__(self, judged: Judged, stored: FoundThread) -> None:
        self._judged = judged
        self._id = stored.thread_id
        self._known = judged.known(stored)
        self._seqs = {sent.op: checkpoint.seq for checkpoint, sent in self._known}
        self._seqs_of_ids = {checkpoint.checkpoint_id: checkpoint.seq for checkpoint in stored.checkpoints}
        self._newest = _newest(self._known, self._id)
        self._saves = [save for save in judged.by_thread[self._id] if save.acknowledged and not save.refused]

    def load(self, load: Operation, saved: Sequence[Sent]) -> Iterator[Claim]:
        """The loaded state was sent, and no save after it, or in its place, was acknowledged before the load."""
        named = load.facts["id"]
        if load.answer is None:
            yield from self._nothing(load, named)
        elif not saved:
            yield Kind.NEVER_SENT, f"{load} gave what was never sent"
        elif all(save.refused for save in saved):
            yield Kind.REFUSED, f"{load} gave {saved[0]}"
        elif named is not None and all(save.checkpoint not in (None, named) for save in saved):
            yield Kind.TORN, f"{load} of {named!r} gave {saved[0]}"
        else:
            possible = [save for save in saved if named is None or save.checkpoint in (None, named)]
            yield from self._outdated(load, possible)

    def _outdated(self, load: Operation, saved: Sequence[Sent]) -> Iterator[Claim]:
        named = load.facts["id"]
        if all(self._judged.is_deleted(save, self._id, load.begun) for save in saved):
            yield Kind.DELETED, f"{load} gave {saved[0]}, which was deleted before"
        elif all(self._replaced(save, load, named) for save in saved):
            other = self._replaced(saved[0], load, named)
            yield Kind.WRONG_LATEST, f"{load} gave {saved[0]}, and {other} had taken its place"
        elif named is None:
            must = self._must_be_seen(load)
            if must is not None and all(must[1] > self._seqs.get(save.op, math.inf) for save in saved):
                yield Kind.WRONG_LATEST, f"{load} gave {saved[0]}, and not {must[2]}"
            elif all(self._followed(save, load) for save in saved):
                other = self._followed(saved[0], load)
                yield Kind.WRONG_LATEST, f"{load} gave {saved[0]}, although {other} came after it"

    def _must_be_seen(self, reading: Operation) -> tuple[float, int, Sent] | None:
        return next((newest for newest in reversed(self._newest) if newest[0] < reading.begun), None)

    def _replaced(self, sent: Sent, reading: Operation, named: str | None = None) -> Sent | None:
        """A save that had certainly replaced another before a read began."""
        checkpoint = named or sent.checkpoint
        if checkpoint is None:
            return None
        over = self._judged.over(sent, self._id)
        return next(
            (
                other
                for other in self._judged.under_id[self._id, checkpoint]
                if other is not sent and not other.refused and over < other.begun and other.ended < reading.begun
            ),
            None,
        )

    def _followed(self, sent: Sent, reading: Operation) -> Sent | None:
        """A save that came after another, before a read began, and existed until the read ended."""
        over = self._judged.over(sent, self._id)
        return next((other for other in self._stays(reading) if other is not sent and over < other.begun), None)

    def _stays(self, reading: Operation) -> Iterator[Sent]:
        """The saves that existed, themselves or replaced, from the beginning of a read to its end."""
        for save in self._saves:
            if save.ended < reading.begun and self._judged.removed_from(save) > reading.ended:
                yield save

    def _nothing(self, reading: Operation, named: str | None) -> Iterator[Claim]:
        for checkpoint, sent in self._known:
            is_it = named in (None, checkpoint.checkpoint_id) and sent.thread == self._id
            if is_it and sent.ended < reading.begun and self._judged.came_once(sent):
                yield Kind.WRONG_LATEST, f"{reading} found nothing, although {sent} is there"
                return
        for sent in self._stays(reading):
            if named in (None, sent.checkpoint):
                yield Kind.WRONG_LATEST, f"{reading} found nothing, although {sent} was there"
                return

    def listed(self, listed: Operation) -> Iterator[Claim]:
        """A list begins with the latest checkpoint, is in order, is complete, and has no deleted ones."""
        names: Sequence[str] = listed.answer
        if not names:
            yield from self._nothing(listed, None)
            return
        must = self._must_be_seen(listed)
        # A checkpoint that was replaced since then had a lower number.
        if must is not None and must[1] > self._seqs_of_ids.get(names[0], math.inf):
            yield Kind.WRONG_LATEST, f"{listed} began with {names[0]!r}, and not with {must[2]}"
        else:
            yield from self._lacks(listed, names)
        fixed = [
            self._seqs_of_ids[name]
            for name in names
            if name in self._seqs_of_ids and self._judged.was_never_replaced(self._id, name)
        ]
        if fixed != sorted(fixed, reverse=True):
            yield Kind.ORDER, f"{listed} was not in order: {fixed}"
        else:
            yield from self._in_order(listed, [(name, self._may_be(name, listed)) for name in names])
        for name in names:
            saves = self._judged.saves_under(self._id, name)
            if saves and all(save.refused or self._judged.is_deleted(save, self._id, listed.begun) for save in saves):
                yield Kind.DELETED, f"{listed} has {name!r}, which was deleted before"

    def _may_be(self, name: str, reading: Operation) -> list[Sent]:
        """The saves that a read may have seen under an id; empty if they are not all known."""
        return [
            save
            for save in self._judged.saves_under(self._id, name)
            if not save.refused and save.begun <= reading.ended and not self._replaced(save, reading)
        ]

    def _in_order(self, reading: Operation, shown: Iterable[tuple[str, Sequence[Sent]]]) -> Iterator[Claim]:
        """A read shows checkpoints in order, newest first. `shown` has the saves that may have made each, if known."""
        earliest, newer = math.inf, ""
        for name, saves in shown:
            if not saves:
                continue
            if earliest < min(save.begun for save in saves):
                yield Kind.ORDER, f"{reading} has {newer!r} before {name!r}, which came after it"
                return
            over = max(self._judged.over(save, self._id) for save in saves)
            if over < earliest:
                earliest, newer = over, name

    def _lacks(self, reading: Operation, names: Sequence[str]) -> Iterator[Claim]:
        """A list has every checkpoint that is newer than its last one. A list shorter than its limit has all."""
        limit = reading.facts.get("limit", 0)
        if limit is None or len(names) < limit:
            since = -math.inf
        else:
            overs = [
                max(self._judged.over(save, self._id) for save in saves)
                for name in names
                if (saves := self._may_be(name, reading))
            ]
            since = min(overs, default=math.inf)
        for sent in self._stays(reading):
            if sent.begun > since and sent.checkpoint is not None and sent.checkpoint not in names:
                yield Kind.WRONG_LATEST, f"{reading} lacks {sent}"
                return

    def history(self, reading: Operation) -> Iterator[Claim]:
        """A history meets the rules for lists. Its metadata also name the save of each checkpoint."""
        origins = {self._id, *self._judged.origins(self._id)}
        shown: list[tuple[str, list[Sent]]] = []
        for name, op in reading.answer:
            sent = self._judged.sent.get(op or "")
            if sent is None or sent.thread not in origins:
                yield Kind.NEVER_SENT, f"{reading} has {name!r}, which was never sent (save {op})"
                continue
            shown.append((name, [sent] if sent.thread == self._id else []))
            if sent.refused:
                yield Kind.REFUSED, f"{reading} has {sent}"
            elif sent.checkpoint not in (None, name):
                yield Kind.TORN, f"{reading} has {sent} as {name!r}"
            elif deletion := self._judged.is_deleted(sent, self._id, reading.begun):
                yield Kind.DELETED, f"{reading} has {sent} after {deletion}"
            elif other := self._replaced(sent, reading, name):
                yield Kind.WRONG_LATEST, f"{reading} has {sent}, and {other} had taken its place"
        yield from self._in_order(reading, shown)
        if reading.facts["before"] is None:
            names = [name for name, _ in reading.answer]
            yield from self._lacks(reading, names) if names else self._nothing(reading, None)

    def exists(self, reading: Operation) -> Iterator[Claim]:
        named = reading.facts["id"]
        if not reading.answer:
            yield from self._nothing(reading, named)
        elif named is not None and not self._judged.copies[self._id]:
            saves = self._judged.under_id[self._id, named]
            if saves and all(save.refused or self._judged.is_deleted(save, self._id, reading.begun) for save in saves):
                yield Kind.DELETED, f"{reading} found {named!r}, which was deleted before"

    def pending(self, reading: Operation) -> Iterator[Claim]:
        """The pending writes of a task are those of its last operation, unless another was under way."""
        if self._judged.copies[self._id]:
            return
        checkpoint_id, only_task = reading.facts["id"], reading.facts["task"]
        put = [write for write in self._judged.writes[self._id] if write.facts["id"] == checkpoint_id]
        put = [write for write in put if write.facts["namespace"] == "default" and write.begun <= reading.ended]
        tasks = {only_task} if only_task is not None else {*reading.answer, *(write.facts["task"] for write in put)}
        for task in sorted(tasks):
            possible = [write for write in put if write.facts["task"] == task and write.may_have_happened]
            done = [write for write in possible if self._judged.written(write) < reading.begun]
            current = [write for write in possible if not any(write.precedes(other) for other in done)]
            text, what = reading.answer.get(task), f"pending writes of {(checkpoint_id, task)}"
            if text is None:
                if done and not self._judged.may_delete(self._id, checkpoint_id):
                    yield Kind.LOST, f"{reading} found no {what}"
            elif text not in {write.facts["digest"] for write in current}:
                is_older = text in {write.facts["digest"] for write in possible}
                kind = Kind.ORDER if is_older else Kind.TORN
                yield kind, f"{reading}, {what}: {'older ones' if is_older else 'not as sent'}"


Newest = list[tuple[float, int, Sent]]
"""The saves that were the newest once, each with the time at which it had happened, and its sequence number."""


def _newest(known: Iterable[tuple[FoundCheckpoint, Sent]], thread: str) -> Newest:
    newest: Newest = []
    for checkpoint, sent in sorted(known, key=lambda pair: pair[1].ended):
        if sent.thread == thread and (not newest or checkpoint.seq > newest[-1][1]):
            newest.append((sent.ended, checkpoint.seq, sent))
    return newest
