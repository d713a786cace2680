"""Holds what clients have read against what had been acknowledged before, and against what is stored. Pure functions.

A reading shows the store at one instant between its beginning and its end. So it shows nothing that had been removed or
replaced for certain when it began, and lacks nothing that was there for certain from its beginning to its end. What
somebody has seen counts as acknowledged from then on, so nobody sees less than was seen before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from locus.testing.campaign.finding import Finding, Kind
from locus.testing.campaign.found import FoundCheckpoint, FoundThread
from locus.testing.campaign.history import Operation
from locus.testing.campaign.judged import Judged, Sent


def check_reads(judged: Judged, there: FoundThread) -> Iterator[Finding]:
    """What was read in one thread."""
    readings = judged.readings[there.thread_id]
    if not readings:
        return
    thread = _Thread(judged, there)
    for one in readings:
        if one.told != "acknowledged":
            continue
        if one.kind == "load":
            yield from thread.load(one, judged.by_digest(there.thread_id).get(one.answer, ()))
        elif one.kind == "tail":
            yield from thread.load(one, judged.by_tail(there.thread_id).get(one.answer, ()))
        elif one.kind == "list":
            yield from thread.listed(one)
        elif one.kind == "history":
            yield from thread.history(one)
        elif one.kind == "exists":
            yield from thread.exists(one)
        elif one.kind == "get":
            yield from thread.pending(one)
        elif one.kind == "window" and one.answer != one.facts["digest"]:
            yield thread.finding(Kind.TORN, f"{one} of {one.facts['id']!r} is not the end of it")


class _Thread:
    """One thread, with what every reading of it is compared with."""

    def __init__(self, judged: Judged, there: FoundThread) -> None:
        self._judged = judged
        self._id = there.thread_id
        self._known = [(one, judged.sent[one.op]) for one in there.checkpoints if one.op in judged.sent]
        self._seqs = {sent.op: one.seq for one, sent in self._known}
        self._seqs_of_ids = {one.checkpoint_id: one.seq for one in there.checkpoints}
        self._newest = _newest(self._known, self._id)
        self._saves = [one for one in judged.by_thread[self._id] if one.acknowledged and not one.refused]

    def finding(self, kind: Kind, what: str) -> Finding:
        return Finding(kind, self._id, what)

    def load(self, load: Operation, saved: Sequence[Sent]) -> Iterator[Finding]:
        """What was loaded had been sent, and nothing had been acknowledged after it, or in its place."""
        named = load.facts["id"]
        if load.answer is None:
            yield from self._nothing(load, named)
        elif not saved:
            yield self.finding(Kind.NEVER_SENT, f"{load} gave what was never sent")
        elif all(one.refused for one in saved):
            yield self.finding(Kind.REFUSED, f"{load} gave {saved[0]}")
        elif named is not None and all(one.checkpoint not in (None, named) for one in saved):
            yield self.finding(Kind.TORN, f"{load} of {named!r} gave {saved[0]}")
        else:
            yield from self._outdated(load, [one for one in saved if named is None or one.checkpoint in (None, named)])

    def _outdated(self, load: Operation, saved: Sequence[Sent]) -> Iterator[Finding]:
        named = load.facts["id"]
        if all(self._judged.is_deleted(one, self._id, load.begun) for one in saved):
            yield self.finding(Kind.DELETED, f"{load} gave {saved[0]}, which was deleted before")
        elif all(self._replaced(one, load, named) for one in saved):
            other = self._replaced(saved[0], load, named)
            yield self.finding(Kind.WRONG_LATEST, f"{load} gave {saved[0]}, and {other} had taken its place")
        elif named is None:
            must = self._must_be_seen(load)
            if must is not None and all(must[1] > self._seqs.get(one.op, math.inf) for one in saved):
                yield self.finding(Kind.WRONG_LATEST, f"{load} gave {saved[0]}, and not {must[2]}")
            elif all(self._followed(one, load) for one in saved):
                other = self._followed(saved[0], load)
                yield self.finding(Kind.WRONG_LATEST, f"{load} gave {saved[0]}, although {other} came after it")

    def _must_be_seen(self, reading: Operation) -> tuple[float, int, Sent] | None:
        return next((found for found in reversed(self._newest) if found[0] < reading.begun), None)

    def _replaced(self, sent: Sent, reading: Operation, named: str | None = None) -> Sent | None:
        """What had taken the place of a checkpoint for certain, before a reading began."""
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
        """What had been saved after a checkpoint before a reading began, and was there until it ended."""
        over = self._judged.over(sent, self._id)
        return next((other for other in self._stays(reading) if other is not sent and over < other.begun), None)

    def _stays(self, reading: Operation) -> Iterator[Sent]:
        """What was there from the beginning of a reading to its end: it, or what has replaced it."""
        for one in self._saves:
            if one.ended < reading.begun and self._judged.removed_from(one) > reading.ended:
                yield one

    def _nothing(self, reading: Operation, named: str | None) -> Iterator[Finding]:
        for one, sent in self._known:
            is_it = named in (None, one.checkpoint_id) and sent.thread == self._id
            if is_it and sent.ended < reading.begun and self._judged.came_once(sent):
                yield self.finding(Kind.WRONG_LATEST, f"{reading} found nothing, although {sent} is there")
                return
        for sent in self._stays(reading):
            if named in (None, sent.checkpoint):
                yield self.finding(Kind.WRONG_LATEST, f"{reading} found nothing, although {sent} was there")
                return

    def listed(self, listed: Operation) -> Iterator[Finding]:
        """A list begins with the latest, is in order, lacks nothing, and has nothing that was deleted before."""
        names: Sequence[str] = listed.answer
        if not names:
            yield from self._nothing(listed, None)
            return
        must = self._must_be_seen(listed)
        # One that was replaced since then had a lower number.
        if must is not None and must[1] > self._seqs_of_ids.get(names[0], math.inf):
            yield self.finding(Kind.WRONG_LATEST, f"{listed} began with {names[0]!r}, and not with {must[2]}")
        else:
            yield from self._lacks(listed, names)
        fixed = [
            self._seqs_of_ids[name]
            for name in names
            if name in self._seqs_of_ids and self._judged.was_never_replaced(self._id, name)
        ]
        if fixed != sorted(fixed, reverse=True):
            yield self.finding(Kind.ORDER, f"{listed} was not in order: {fixed}")
        else:
            yield from self._in_order(listed, [(name, self._may_be(name, listed)) for name in names])
        for name in names:
            saves = self._judged.saves_under(self._id, name)
            if saves and all(one.refused or self._judged.is_deleted(one, self._id, listed.begun) for one in saves):
                yield self.finding(Kind.DELETED, f"{listed} has {name!r}, which was deleted before")

    def _may_be(self, name: str, reading: Operation) -> list[Sent]:
        """The saves that a reading may have seen under an id; none if nobody knows them all."""
        return [
            one
            for one in self._judged.saves_under(self._id, name)
            if not one.refused and one.begun <= reading.ended and not self._replaced(one, reading)
        ]

    def _in_order(self, reading: Operation, shown: Iterable[tuple[str, Sequence[Sent]]]) -> Iterator[Finding]:
        """Newest first. Each comes with the saves that it may be; none if nobody knows."""
        earliest, newer = math.inf, ""
        for name, saves in shown:
            if not saves:
                continue
            if earliest < min(one.begun for one in saves):
                yield self.finding(Kind.ORDER, f"{reading} has {newer!r} before {name!r}, which came after it")
                return
            over = max(self._judged.over(one, self._id) for one in saves)
            if over < earliest:
                earliest, newer = over, name

    def _lacks(self, reading: Operation, names: Sequence[str]) -> Iterator[Finding]:
        """A list has whatever is newer than its last one; one that is shorter than asked for has everything."""
        limit = reading.facts.get("limit", 0)
        if limit is None or len(names) < limit:
            since = -math.inf
        else:
            overs = [
                max(self._judged.over(one, self._id) for one in saves)
                for name in names
                if (saves := self._may_be(name, reading))
            ]
            since = min(overs, default=math.inf)
        for sent in self._stays(reading):
            if sent.begun > since and sent.checkpoint is not None and sent.checkpoint not in names:
                yield self.finding(Kind.WRONG_LATEST, f"{reading} lacks {sent}")
                return

    def history(self, reading: Operation) -> Iterator[Finding]:
        """The same as a list; it also says which save each checkpoint is."""
        origins = {self._id, *self._judged.origins(self._id)}
        shown: list[tuple[str, list[Sent]]] = []
        for name, op in reading.answer:
            sent = self._judged.sent.get(op or "")
            if sent is None or sent.thread not in origins:
                yield self.finding(Kind.NEVER_SENT, f"{reading} has {name!r}, which was never sent (save {op})")
                continue
            shown.append((name, [sent] if sent.thread == self._id else []))
            if sent.refused:
                yield self.finding(Kind.REFUSED, f"{reading} has {sent}")
            elif sent.checkpoint not in (None, name):
                yield self.finding(Kind.TORN, f"{reading} has {sent} as {name!r}")
            elif deletion := self._judged.is_deleted(sent, self._id, reading.begun):
                yield self.finding(Kind.DELETED, f"{reading} has {sent} after {deletion}")
            elif other := self._replaced(sent, reading, name):
                yield self.finding(Kind.WRONG_LATEST, f"{reading} has {sent}, and {other} had taken its place")
        yield from self._in_order(reading, shown)
        if reading.facts["before"] is None:
            names = [name for name, _ in reading.answer]
            yield from self._lacks(reading, names) if names else self._nothing(reading, None)

    def exists(self, reading: Operation) -> Iterator[Finding]:
        named = reading.facts["id"]
        if not reading.answer:
            yield from self._nothing(reading, named)
        elif named is not None and not self._judged.copies[self._id]:
            saves = self._judged.under_id[self._id, named]
            if saves and all(one.refused or self._judged.is_deleted(one, self._id, reading.begun) for one in saves):
                yield self.finding(Kind.DELETED, f"{reading} found {named!r}, which was deleted before")

    def pending(self, reading: Operation) -> Iterator[Finding]:
        """The pending writes of a task are those of its last operation, unless another one was under way."""
        if self._judged.copies[self._id]:
            return
        checkpoint_id, asked = reading.facts["id"], reading.facts["task"]
        put = [one for one in self._judged.writes[self._id] if one.facts["id"] == checkpoint_id]
        put = [one for one in put if one.facts["namespace"] == "default" and one.begun <= reading.ended]
        tasks = {asked} if asked is not None else {*reading.answer, *(one.facts["task"] for one in put)}
        for task in sorted(tasks):
            possible = [one for one in put if one.facts["task"] == task and one.may_have_happened]
            done = [one for one in possible if self._judged.written(one) < reading.begun]
            current = [one for one in possible if not any(one.precedes(other) for other in done)]
            text, what = reading.answer.get(task), f"pending writes of {(checkpoint_id, task)}"
            if text is None:
                if done and not self._judged.may_delete(self._id, checkpoint_id):
                    yield self.finding(Kind.LOST, f"{reading} found no {what}")
            elif text not in {one.facts["digest"] for one in current}:
                is_older = text in {one.facts["digest"] for one in possible}
                kind = Kind.ORDER if is_older else Kind.TORN
                yield self.finding(kind, f"{reading}, {what}: {'older ones' if is_older else 'not as sent'}")


Newest = list[tuple[float, int, Sent]]
"""By the time at which each had happened, with the highest number up to there."""


def _newest(known: Iterable[tuple[FoundCheckpoint, Sent]], thread: str) -> Newest:
    newest: Newest = []
    for one, sent in sorted(known, key=lambda pair: pair[1].ended):
        if sent.thread == thread and (not newest or one.seq > newest[-1][1]):
            newest.append((sent.ended, one.seq, sent))
    return newest
