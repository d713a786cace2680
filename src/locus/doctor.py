"""Examines a store: whether it can be reached, has the right format, is undamaged, and is set up well.

`Maintains.examine` checks how one kind of database is set up. This module does the rest, for every store: it reads each
thread once, and each item once, to find damaged data before somebody needs it. It changes nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from locus.effects import Effects
from locus.effects.effects import SPACE as EFFECTS
from locus.errors import (
    BackendUnavailableError,
    CheckpointError,
    ConfigurationError,
    CorruptCheckpointError,
    DamagedThreadsWarning,
    LocusError,
    UnsupportedFormatError,
)
from locus.looking.reading import exported_pages
from locus.looking.spaces import spaces_of
from locus.looking.spaces import stored_format as stored_format
from locus.memory.checkpointer import Checkpointer
from locus.memory.engine import ForeignStoreError, Maintains, NotAllowedError, NothingThereError
from locus.memory.long_term.store import ItemStore
from locus.memory.model.codec import decode, decode_head
from locus.memory.model.payloads import dict_from
from locus.memory.model.records import Entry, Finding, Stored, StoredFormat
from locus.memory.store import CheckpointStore
from locus.transfer.content import StoredContent
from locus.transfer.items import ThreadItems

_PAGE: Final = 500
_AHEAD: Final = timedelta(minutes=2)
"""How far a clock may be ahead before it is reported."""


@dataclass(frozen=True, slots=True)
class DamagedThread:
    """A thread that cannot be read as a whole."""

    thread_id: str
    error: CheckpointError
    unreadable: tuple[tuple[str, str], ...] = ()
    """Namespace and id of each checkpoint that cannot be put together."""
    readable: int = 0
    """How many checkpoints can be put together. If all can, the damage is in pending writes or unneeded records."""

    @property
    def what(self) -> str:
        """The unreadable part of the thread, for people."""
        if not self.unreadable:
            return "a part of the records" if self.readable else "the history"
        return f"{len(self.unreadable):,} of {len(self.unreadable) + self.readable:,} checkpoints"


@dataclass
class Examination:
    """The findings of an examination, so far."""

    findings: list[Finding] = field(default_factory=list)
    damaged: list[DamagedThread] = field(default_factory=list)
    threads: int = 0
    checkpoints: int = 0
    reached: bool = False
    is_empty: bool = False
    """Whether there are no threads, because none was ever saved."""
    spaces: dict[str, Examination] = field(default_factory=dict)
    """The examinations of the key spaces that are there, by name."""

    @property
    def healthy(self) -> bool:
        sound = not self.damaged and all(finding.severity == "note" for finding in self.findings)
        return sound and all(space.healthy for space in self.spaces.values())


Progress = Callable[[Examination], None]


async def examine(
    store: CheckpointStore, *, read_all: bool = True, progress: Progress = lambda _examination: None
) -> Examination:
    """Examine a store, and the key spaces that it has. Without `read_all` no thread is read."""
    examination = await _examined(store, read_all=read_all, progress=progress)
    if not examination.reached and not examination.is_empty:
        return examination
    try:
        for name, space in (await spaces_of(store)).items():
            part = await _examined(space, read_all=read_all, progress=progress)
            part.findings = [finding for finding in part.findings if finding not in examination.findings]
            if read_all and part.healthy:
                part.findings += await _unreadable_items(store, name)
                part.findings += await _unknown_effects(store) if name == EFFECTS else []
            examination.spaces[name] = part
    except LocusError as error:
        examination.findings.append(_cannot(error))
    if examination.is_empty and examination.spaces:
        examination.reached, examination.findings = True, []
    return examination


async def _unreadable_items(store: CheckpointStore, space: str) -> list[Finding]:
    """What is wrong with the newest versions of items that can be read as checkpoints."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", DamagedThreadsWarning)
        async with aclosing(ItemStore(store, space).pages(())) as pages:
            async for _ in pages:
                pass
    advice = "restore it from a backup, or remove it"
    return [Finding("error", str(one.message), advice) for one in told if one.category is DamagedThreadsWarning]


async def _examined(store: CheckpointStore, *, read_all: bool, progress: Progress) -> Examination:
    """Examine a store without its key spaces, or one of these."""
    examination = Examination()
    try:
        formats = await stored_format(store)
        is_older = formats is not None and 0 < formats.found < formats.newest
        examination.reached = formats is not None and formats.found > 0
        if formats is not None and not formats.found:
            if store.engine.reading_only:
                async with store.using():  # which knows whether it is another framework's
                    pass
            raise store.engine.nothing_there()
        try:
            async with store.using() as engine:
                examination.reached = True
                if formats is not None and is_older:
                    examination.findings.append(_older(formats))
                if isinstance(engine, Maintains):
                    examination.findings += await engine.examine()
                    examination.findings += await engine.examine_indexes() if read_all else []
        except ConfigurationError as error:
            if not is_older:
                raise
            # Some stores of an older format are not read before they are migrated.
            examination.findings.append(Finding("error", str(error), _MIGRATE))
            return examination
        await _look_at_clock(store, examination)
        if read_all:
            async with aclosing(_threads(store)) as threads:
                async for thread_id in threads:
                    damaged = await read_through(store, thread_id, examination)
                    if damaged is not None:
                        examination.damaged.append(damaged)
                    examination.threads += 1
                    progress(examination)
    except LocusError as error:
        examination.is_empty = isinstance(error, NothingThereError)
        examination.findings.append(_cannot(error))
    return examination


_MIGRATE: Final = "`locus migrate` shows what would be done, and `locus migrate --apply` does it"


def _older(formats: StoredFormat) -> Finding:
    what = f"the store has format {formats.found}, and this version of Locus writes {formats.newest}"
    return Finding("note", what, f"{_MIGRATE}; the next save does it, too")


def _cannot(error: LocusError) -> Finding:
    if isinstance(error, ForeignStoreError):
        return Finding("error", str(error), "import its threads, or check the URL")
    if isinstance(error, NothingThereError):
        return Finding("error", str(error), "check the URL; the first save makes the store")
    if isinstance(error, UnsupportedFormatError):
        return Finding("error", str(error), "upgrade Locus here, or use the version that wrote it")
    if isinstance(error, NotAllowedError):
        return Finding(
            "error", str(error), "a GRANT is missing: the page on this database lists the rights of its user"
        )
    if isinstance(error, BackendUnavailableError):
        return Finding("error", str(error), "check that the server runs, and that the URL and the network are right")
    if isinstance(error, ConfigurationError):
        return Finding("error", str(error), "correct the URL or the options")
    return Finding("error", str(error), "restore it from a backup; nothing else was read")


async def _look_at_clock(store: CheckpointStore, examination: Examination) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedThreadsWarning)  # reading through the threads finds them
        try:
            newest = await store.newest_threads(1)
        except UnsupportedFormatError:
            raise
        except CorruptCheckpointError:
            return  # reading through the threads finds it
    if newest.entries and newest.entries[0].created_at > datetime.now(UTC) + _AHEAD:
        examination.findings.append(
            Finding(
                "warning",
                "the newest checkpoint is from the future: the clock of this machine, or of the one that saved it, is "
                "off",
                "set both by NTP. Order does not depend on clocks, but vacuums by age and expiry do",
            )
        )


async def _unknown_effects(store: CheckpointStore) -> list[Finding]:
    """Whether there are effects of which nobody knows whether they were made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedThreadsWarning)
        unknown = len(await Effects(Checkpointer(store)).find("unknown", limit=_MOST_UNKNOWN))
    if not unknown:
        return []
    count = f"{unknown:,} or more" if unknown == _MOST_UNKNOWN else f"{unknown:,}"
    what = f"of {count} effect{'s' if unknown > 1 else ''} nobody knows whether they were made: their processes died"
    advice = "ask the receivers, and settle them: `locus effects list --state unknown` names them"
    return [Finding("warning", what, advice)]


_MOST_UNKNOWN: Final = 1_000


async def _threads(store: CheckpointStore) -> AsyncGenerator[str, None]:
    after: str | None = None
    while page := await store.list_threads(_PAGE, "*", after=after):
        for thread_id in page:
            yield thread_id
        after = page[-1]


async def read_through(store: CheckpointStore, thread_id: str, examination: Examination) -> DamagedThread | None:
    """Put every checkpoint of a thread together, decoding each item once. Returns the damage, if there is any."""
    items = ThreadItems()
    checkpoints = 0
    try:
        async with aclosing(exported_pages(store, thread_id, lambda: items.known, whole=False)) as pages:
            async for page in pages:
                items.add(page.runs)
                for stored in page.checkpoints:
                    checkpoints += 1
                    _check(stored, items)
    except UnsupportedFormatError:
        raise
    except CorruptCheckpointError as error:
        damaged = await _read_one_by_one(store, thread_id, error)
        examination.checkpoints += damaged.readable
        return damaged
    examination.checkpoints += checkpoints
    return None


def _check(stored: Stored, items: ThreadItems) -> None:
    if not isinstance(decode_head(stored.head), dict) or not isinstance(decode(stored.entry.metadata), dict):
        raise CorruptCheckpointError("a head or its metadata is no object")
    StoredContent(stored.head, stored.manifest, items)


async def _read_one_by_one(store: CheckpointStore, thread_id: str, error: CheckpointError) -> DamagedThread:
    """Find out which checkpoints of a damaged thread can be loaded."""
    try:
        entries = await store.history(thread_id, None, None, None)
    except UnsupportedFormatError:
        raise
    except CorruptCheckpointError as worse:
        return DamagedThread(thread_id, worse)
    readable = [await is_readable(store, entry) for entry in entries]
    lost = [
        (entry.namespace, entry.checkpoint_id) for entry, good in zip(entries, readable, strict=True) if good is False
    ]
    return DamagedThread(thread_id, error, tuple(lost), sum(good is True for good in readable))


async def is_readable(store: CheckpointStore, entry: Entry) -> bool | None:
    """Whether a checkpoint can be loaded; None if it is not there any more."""
    try:
        async with store.using() as engine:
            stored = await engine.read(entry.thread_id, entry.namespace, entry.checkpoint_id)
    except UnsupportedFormatError:
        raise
    except CorruptCheckpointError:
        return False
    if stored is None or stored.entry.rev != entry.rev:
        return None
    return content(stored) is not None


def content(stored: Stored) -> object | None:
    """The payload and metadata of a checkpoint; None if it cannot be put together."""
    try:
        return dict_from(stored), decode(stored.entry.metadata)
    except UnsupportedFormatError:
        raise
    except CorruptCheckpointError:
        return None
