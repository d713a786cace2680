"""One transcript: a log of entries (see `locus.threads.ItemLog`) to which each entry is added once.

Entries have a `uuid`, and whoever does not know whether a batch has arrived sends it again. Which of its entries are
new is decided for the checkpoint that the commit names as the latest, so two writers never both add the same one. To
decide it, nobody reads a transcript as long as it is not in doubt:

- A handle that has followed a transcript from its beginning, or has read it once, knows all uuids.
- Any other looks at the notes beside the log: an entry whose `timestamp` is later than every one before it is new, and
  those whose uuid came last are not.
- Only if that does not answer it, as when a whole session is imported again, the transcript is read.

The notes are in the metadata of each checkpoint, and so is the SDK's summary of a session: a list of sessions needs no
more than a list of checkpoints.
"""

from __future__ import annotations

import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from hashlib import blake2b
from typing import Any, NamedTuple

from locus.errors import CheckpointNotFoundError, ConfigurationError, ConflictError
from locus.threads import Addition, ItemLog, LogPoint
from locus.threads.json import encode

Fold = Callable[[dict[str, Any] | None, Sequence[Any]], dict[str, Any]]
"""Folds entries into the data of a summary; None is that of no entries."""

_DIGEST_BYTES = 9
_DIGEST_LENGTH = 12
"""Of a uuid: short, because it is written with every batch, and long enough that two are never the same by chance."""
_MOST_LAST = 64
"""How many uuids that came last are in the notes: those of the last batch, unless it was larger."""
_LARGEST_SUMMARY = 8_192
"""Characters. A larger one is not kept, because it would be written with every batch."""

_LATEST = 1 << 48
"""No time in milliseconds is as late: ten thousand years from now."""

_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?Z", re.ASCII)


class Notes(NamedTuple):
    """The facts about a transcript that its newest checkpoint keeps, so that an append need not read the entries."""

    newest: str = ""
    """The latest timestamp of its entries, in a form in which times and texts have the same order."""
    last: str = ""
    """The digests of the uuids that came last, one behind the other."""
    summary: dict[str, Any] | None = None
    """What the SDK's summary of the session keeps; None if there is none."""
    written: int = 0
    """When the last batch was written, in milliseconds: never twice the same in a process, nor earlier than before."""

    @property
    def last_uuids(self) -> set[str]:
        return {self.last[at : at + _DIGEST_LENGTH] for at in range(0, len(self.last), _DIGEST_LENGTH)}

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in self._asdict().items() if value is not None}


class EntryBatch(NamedTuple):
    """Entries, each with the digest of its uuid and its time; None for an entry without one."""

    entries: Sequence[Any]
    uuids: Sequence[str | None]
    times: Sequence[str | None]

    def newest(self, before: str = "") -> str:
        """The latest time in the batch, or `before` if that is later."""
        return max([before, *filter(None, self.times)])

    def in_doubt(self, notes: Notes) -> bool:
        """Whether notes cannot tell, for some entry of the batch, if it is in the log already."""
        last = notes.last_uuids
        return any(
            uuid is not None and uuid not in last and (said is None or said <= notes.newest)
            for uuid, said in zip(self.uuids, self.times, strict=True)
        )

    def without(self, known: Set[str]) -> EntryBatch:
        """The entries of the batch that are new. Each uuid is kept once; an entry without one is always new."""
        seen: set[str] = set()
        kept: list[int] = []
        for place, uuid in enumerate(self.uuids):
            if uuid is None or (uuid not in known and uuid not in seen):
                kept.append(place)
                seen.update((uuid,) if uuid else ())
        return EntryBatch(*([each[place] for place in kept] for each in self))


class Followed(NamedTuple):
    """A checkpoint of a transcript, and all uuids up to it."""

    checkpoint_id: str | None
    uuids: set[str]


class Transcript:
    """One transcript, and the uuids that this handle remembers of it."""

    def __init__(self, log: ItemLog, fold: Fold | None) -> None:
        self.log = log
        self._fold = fold
        self._followed = Followed(None, set())

    @property
    def held(self) -> int:
        """The number of uuids in memory."""
        return len(self._followed.uuids)

    async def append(self, entries: Sequence[Any], *, begins: bool = False) -> None:
        """Add the entries that are not stored yet, in one step.

        If they have to begin a transcript, `ConflictError` if there is one.
        """
        batch = _batch(entries)
        added: list[str] = []
        known: set[str] | None = None
        in_use = False

        async def new_ones(point: LogPoint | None) -> Addition | None:
            nonlocal added, known, in_use
            in_use = begins and point is not None
            if in_use:
                return None
            before, known = await self._before(point, batch)
            new = batch.without(before.last_uuids if known is None else known)
            added = [uuid for uuid in new.uuids if uuid]
            if not new.entries:
                return None
            summary = self._folded(before.summary, new.entries, first=point is None)
            last = "".join(added[-_MOST_LAST:]) or before.last
            notes = Notes(new.newest(before.newest), last, summary, _next_time(before.written))
            return Addition(new.entries, notes.as_json())

        checkpoint_id = await self.log.add(new_ones)
        if in_use:
            raise ConflictError("there is a session with this id already: choose another one")
        if checkpoint_id is not None and known is not None:
            known.update(added)
            self._followed = Followed(checkpoint_id, known)
        elif checkpoint_id is not None:
            self._followed = Followed(None, set())

    async def _before(self, point: LogPoint | None, batch: EntryBatch) -> tuple[Notes, set[str] | None]:
        """The notes about the log before a batch, and all its uuids; None for the uuids if the notes suffice."""
        if point is None:
            return Notes(), set()
        notes = notes_of(point.notes)
        if notes is not None and self._followed.checkpoint_id == point.checkpoint_id:
            return notes, self._followed.uuids
        if notes is not None and not batch.in_doubt(notes):
            return notes, None
        try:
            stored = _batch(await self.log.read(None, point.checkpoint_id))
        except CheckpointNotFoundError as error:
            raise ConflictError("a transcript was changed while it was read; try again") from error
        known = {uuid for uuid in stored.uuids if uuid}
        self._followed = Followed(point.checkpoint_id, known)
        if notes is None:  # somebody else has made this checkpoint
            notes = Notes(stored.newest(), "", self._folded(None, stored.entries, first=True))
        return notes, known

    def _folded(self, summary: dict[str, Any] | None, entries: Sequence[Any], *, first: bool) -> dict[str, Any] | None:
        """The summary after these entries; None if there is no summary any more."""
        if self._fold is None or (summary is None and not first):
            return None
        try:
            folded = self._fold(summary, entries)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            # The SDK's code did not expect an entry like this. It can do without a summary, and reads the session.
            return None
        return folded if len(encode(folded)) <= _LARGEST_SUMMARY else None


def notes_of(noted: Mapping[str, Any] | None) -> Notes | None:
    """The notes of a checkpoint; None if it has none that this module wrote."""
    if noted is None:
        return None
    newest, last, summary, written = map(noted.get, Notes._fields)
    if not isinstance(newest, str) or not isinstance(last, str) or not isinstance(summary, dict | None):
        return None
    return Notes(newest, last, summary, written if type(written) is int and 0 <= written < _LATEST else 0)


_last_time = 0


def _next_time(before: int) -> int:
    """The current time in milliseconds, but later than `before` and than any time returned so far."""
    global _last_time
    _last_time = max(time.time_ns() // 1_000_000, before + 1, _last_time + 1)
    return _last_time


def _batch(entries: Iterable[Any]) -> EntryBatch:
    made = list(entries)
    if not all(isinstance(entry, dict) for entry in made):
        raise ConfigurationError("an entry of a transcript is a dict; nothing was written")
    return EntryBatch(made, [_uuid(entry) for entry in made], [_time(entry) for entry in made])


def _uuid(entry: Mapping[str, Any]) -> str | None:
    found = entry.get("uuid")
    if not isinstance(found, str) or not found:
        return None
    return urlsafe_b64encode(blake2b(found.encode(errors="surrogatepass"), digest_size=_DIGEST_BYTES).digest()).decode()


def _time(entry: Mapping[str, Any]) -> str | None:
    found = entry.get("timestamp")
    parts = _TIMESTAMP.fullmatch(found) if isinstance(found, str) else None
    return f"{parts[1]}.{parts[2] or '':0<6}" if parts else None
