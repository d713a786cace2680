"""The checkpoint that a person means: by its place in a thread, by time, or by its metadata.

    THREAD              the latest checkpoint
    THREAD@3f9a         the checkpoint whose id begins with this
    THREAD@#42          the checkpoint with this number
    THREAD@~3           three before the latest, from parent to parent
    THREAD@14:03        what was the latest at that time of today; also @2026-11-18T14:03, @yesterday

A thread's id may contain `@`, too. If the text is the id of a thread as a whole, that thread is meant; if both could be
meant, that is an error that says so. `parse` is pure; `resolve` asks the store, and reads no payload.

`latest_at` answers "what did the agent know at 14:03:20?". `checkpoints_by_metadata` and `threads_by_metadata` take
`KEY=VALUE`.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

from locus.errors import CheckpointNotFoundError, ConfigurationError
from locus.hints import did_you_mean
from locus.looking.formatting import local_time
from locus.memory.model.ids import Pattern, check_id
from locus.memory.model.records import DEFAULT_NAMESPACE, Entry
from locus.memory.store import CheckpointStore

_PAGE: Final = 500
_MOST_BACK: Final = 1_000_000
_MOST_NAMED: Final = 10
_NEAR: Final = 200
"""The number of ids among which the one that was most likely meant is looked for."""
_MOST_ENTRIES: Final = 50_000
"""The number of checkpoints with the same metadata after which no more are read to find their threads."""
_MOST_CHARACTERS: Final = 64_000_000
"""The length of their metadata together after which no more are read."""

_FRACTION: Final = re.compile(r":\d\d[.,]\d")
_SECOND: Final = timedelta(seconds=1) - timedelta(microseconds=1)
_MINUTE: Final = timedelta(minutes=1) - timedelta(microseconds=1)
_DAYS: Final = {"today": 0, "yesterday": 1}
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME: Final = re.compile(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,6})?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?")
_TO_THE_SECOND: Final = re.compile(r"[0-9]{2}:[0-9]{2}:[0-9]{2}")
_NUMBER = re.compile(r"#([0-9]{1,15})")
_BACK = re.compile(r"~([0-9]{1,15})?")


class NoSuchThreadError(CheckpointNotFoundError):
    """There is no such thread, or it has no such checkpoint."""


class AmbiguousRevisionError(ConfigurationError):
    """The text can mean several checkpoints; the message lists them."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A thread and at most one of a beginning of an id, a number and a number of steps; none of them: the latest."""

    thread_id: str
    prefix: str | None = None
    number: int | None = None
    back: int | None = None
    moment: datetime | None = None
    """The latest by then, unless `prefix` is the id of a checkpoint."""


def parse(text: str) -> list[Revision]:
    """The meanings of a text, the likeliest first: with `@` in it, a checkpoint, or a thread with that id."""
    thread_id, at, rest = text.rpartition("@")
    if not at or not thread_id:
        return [Revision(text)]
    return [checkpoint_of(thread_id, rest), Revision(text)]


def checkpoint_of(thread_id: str, text: str) -> Revision:
    """Make a revision of a thread's id and the text that follows it after `@`."""
    if number := _NUMBER.fullmatch(text):
        return Revision(thread_id, number=int(number[1]))
    if back := _BACK.fullmatch(text):
        return Revision(thread_id, back=int(back[1] or 1))
    return Revision(thread_id, prefix=text, moment=local_moment(text))


async def resolve(
    store: CheckpointStore, text: str, *, checkpoint: str | None = None, namespace: str | None = None
) -> Entry:
    """The checkpoint that is meant. If the thread's id contains `@`, `checkpoint` is what would follow another `@`.

    Without a namespace it is the thread's only one, or the default one, if the thread has checkpoints there.
    """
    check_id(text, "thread")
    if checkpoint is not None:
        return await _entry(store, checkpoint_of(text, checkpoint), namespace)
    meanings = parse(text)
    if len(meanings) == 1:
        return await _entry(store, meanings[0], namespace)
    as_checkpoint, as_thread = meanings
    is_thread_too = bool(await store.history(text, 1, None, namespace))
    try:
        entry = await _entry(store, as_checkpoint, namespace)
    except (CheckpointNotFoundError, AmbiguousRevisionError):
        if is_thread_too:
            return await _entry(store, as_thread, namespace)
        if await store.history(as_checkpoint.thread_id, 1, None, None):
            raise
        raise await _neither(store, text, as_checkpoint.thread_id) from None
    if is_thread_too:
        raise AmbiguousRevisionError(
            f"{text!r} is a thread, and also a checkpoint of the thread {as_checkpoint.thread_id!r}. "
            f"For the checkpoint, say {as_checkpoint.thread_id}@#{entry.seq}; for the thread, {text}@~0"
        )
    return entry


async def is_thread(store: CheckpointStore, text: str, namespace: str | None = None) -> bool:
    """True if a text is the id of a thread as a whole, and names no checkpoint."""
    if len(parse(text)) == 1:
        return True
    if not await store.history(check_id(text, "thread"), 1, None, namespace):
        return False
    return (await resolve(store, text, namespace=namespace)).thread_id == text


async def resolve_thread(store: CheckpointStore, thread_id: str, namespace: str | None = None) -> Entry:
    """The latest checkpoint of a thread, whatever its id is made of."""
    return await _entry(store, Revision(check_id(thread_id, "thread")), namespace)


async def _entry(store: CheckpointStore, revision: Revision, namespace: str | None) -> Entry:
    if revision.number is not None and namespace is None:  # a thread has each number once, in whatever namespace
        return await _numbered(store, revision.thread_id, None, revision.number)
    where = await namespace_of(store, revision.thread_id, namespace)
    if revision.number is not None:
        return await _numbered(store, revision.thread_id, where, revision.number)
    if revision.back is not None:
        return await _ancestor(store, revision.thread_id, where, revision.back)
    if revision.moment is not None and not await _is_id(store, revision, where):
        return await _at(store, revision.thread_id, where, revision.moment)
    if revision.prefix is not None:
        return await _beginning_with(store, revision.thread_id, where, revision.prefix)
    latest = await store.entry(revision.thread_id, None, where)
    if latest is None:
        raise await _no_thread(store, revision.thread_id, namespace)
    return latest


async def namespace_of(store: CheckpointStore, thread_id: str, wanted: str | None) -> str:
    """The namespace that is wanted; else the default one, if the thread has checkpoints there, or its only root."""
    if wanted is not None:
        return wanted
    if await store.entry(thread_id, None, DEFAULT_NAMESPACE) is not None:
        return DEFAULT_NAMESPACE
    names = await store.namespaces(thread_id)
    if not names:
        raise await _no_thread(store, thread_id, None)
    roots = [
        name for name in names if not any(name.startswith(f"{other}|") or not other for other in names if other != name)
    ]
    if len(roots) == 1:
        return roots[0]
    shown = ", ".join(f"{name!r:.80}" for name in names[:_MOST_NAMED])
    more = ", …" if len(names) > _MOST_NAMED else ""
    raise AmbiguousRevisionError(f"thread {thread_id!r} has several namespaces: choose one with --ns: {shown}{more}")


async def _no_thread(store: CheckpointStore, thread_id: str, namespace: str | None) -> NoSuchThreadError:
    if namespace is not None:
        others = await store.other_namespaces(thread_id, namespace)
        if others:
            return NoSuchThreadError(f"thread {thread_id!r} has nothing in the namespace {namespace!r:.80}; {others}")
    near = await _near(store, thread_id)
    return NoSuchThreadError(f"there is no thread {thread_id!r}{did_you_mean(thread_id, near)}")


async def _neither(store: CheckpointStore, text: str, thread_id: str) -> NoSuchThreadError:
    """The error for a text with an `@` that is neither the id of a thread, as an address may be, nor a checkpoint."""
    meant = did_you_mean(text, await _near(store, text)) or did_you_mean(thread_id, await _near(store, thread_id))
    hint = "; a checkpoint whose id contains an @ is named with --checkpoint" if "@" in thread_id else ""
    return NoSuchThreadError(f"there is no thread {text!r}, and no thread {thread_id!r} either{meant}{hint}")


async def _near(store: CheckpointStore, thread_id: str) -> list[str]:
    """Ids of threads that begin as this one does: a page of them, however many there are."""
    for length in (len(thread_id) // 2, 1, 0):
        known = await store.list_threads(_NEAR, "*", prefix=thread_id[:length])
        if did_you_mean(thread_id, known):
            return known
    return []


async def _numbered(store: CheckpointStore, thread_id: str, namespace: str | None, number: int) -> Entry:
    # Most are in the default namespace. An index has the numbers of one namespace, and not those of all.
    for where in (DEFAULT_NAMESPACE, None) if namespace is None else (namespace,):
        async with store.using() as engine:
            entries = await engine.history(thread_id, where, 1, number + 1)
        if entries and entries[0].seq == number:
            return entries[0]
    newest = await store.history(thread_id, 1, None, namespace)
    if not newest:
        raise await _no_thread(store, thread_id, namespace)
    last = f"; the latest is #{newest[0].seq}"
    nearest = f", and the one before it is #{entries[0].seq}" if entries else ""
    raise NoSuchThreadError(f"thread {thread_id!r} has no checkpoint #{number}{nearest}{last}")


async def _ancestor(store: CheckpointStore, thread_id: str, namespace: str, back: int) -> Entry:
    if back > _MOST_BACK:
        raise ConfigurationError(f"~{back} is too far back: at most {_MOST_BACK:,}")
    page = await store.history(thread_id, min(back + 10, _PAGE), None, namespace)
    known = {entry.checkpoint_id: entry for entry in page}
    ancestor = page[0] if page else None
    for step in range(back):
        if ancestor is None or ancestor.parent_id is None:
            raise NoSuchThreadError(f"thread {thread_id!r} goes back {step} checkpoints from the latest, not {back}")
        if ancestor.parent_id not in known:
            page = await store.history(thread_id, _PAGE, ancestor.checkpoint_id, namespace)
            known = {entry.checkpoint_id: entry for entry in page}
        parent = known.get(ancestor.parent_id)
        ancestor = parent if parent is not None else await store.entry(thread_id, ancestor.parent_id, namespace)
    if ancestor is None:
        raise NoSuchThreadError(f"thread {thread_id!r} goes back less than {back} checkpoints from the latest")
    return ancestor


async def _is_id(store: CheckpointStore, revision: Revision, namespace: str) -> bool:
    name = revision.prefix
    return name is not None and await store.entry(revision.thread_id, name, namespace) is not None


async def _at(store: CheckpointStore, thread_id: str, namespace: str, moment: datetime) -> Entry:
    """The checkpoint that was the latest at a moment."""
    entry = await latest_at(store, thread_id, namespace, moment)
    if entry is not None:
        return entry
    oldest = await first_of(store, thread_id, namespace)
    if oldest is None:
        raise await _no_thread(store, thread_id, namespace)
    began = f"it begins with #{oldest.seq}, saved {local_time(oldest.created_at)}"
    raise NoSuchThreadError(f"thread {thread_id!r} has nothing from then: {began}")


async def _beginning_with(store: CheckpointStore, thread_id: str, namespace: str, prefix: str) -> Entry:
    if not prefix:
        raise ConfigurationError("what follows the @ is empty: give the beginning of an id, #NUMBER or ~STEPS")
    exact = await store.entry(thread_id, prefix, namespace) if len(prefix) <= 255 else None
    if exact is not None:
        return exact
    candidates: list[Entry] = []
    newest: list[str] = []
    before: str | None = None
    while True:
        page = await store.history(thread_id, _PAGE, before, namespace)
        newest += [entry.checkpoint_id for entry in page[: max(0, _NEAR - len(newest))]]
        candidates += [entry for entry in page if entry.checkpoint_id.startswith(prefix)]
        if len(page) < _PAGE or len(candidates) > _MOST_NAMED:
            break
        before = page[-1].checkpoint_id
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise NoSuchThreadError(
            f"thread {thread_id!r} has no checkpoint whose id begins with {prefix!r:.80}{did_you_mean(prefix, newest)}"
        )
    shown = ", ".join(f"{entry.checkpoint_id} (#{entry.seq})" for entry in candidates[:_MOST_NAMED])
    more = ", …" if len(candidates) > _MOST_NAMED else ""
    raise AmbiguousRevisionError(f"{prefix!r:.80} can be several checkpoints: {shown}{more}")


def moment_of(text: str) -> datetime:
    """A time as people and browsers write it, in UTC unless it says something else.

    Pages show times to the second, so a time without a fraction is the end of its second: what was saved in that second
    was known then.
    """
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        return end_of_second(moment, text)
    except (ValueError, OverflowError):
        raise ConfigurationError("a time is written as 2026-11-16T14:03:20, in UTC") from None


def first_moment_of(text: str) -> datetime:
    """The first moment of a day, or of a second, as browsers write them."""
    moment = moment_of(text)
    if _DATE.fullmatch(text):
        return moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return moment if _FRACTION.search(text) else moment - _SECOND


def last_moment_of(text: str) -> datetime:
    """The last moment of a day, or of a second, as browsers write them."""
    return moment_of(f"{text}T23:59:59" if _DATE.fullmatch(text) else text)


def local_moment(text: str, now: datetime | None = None) -> datetime | None:
    """The end of a time that a person writes: to the minute, the second or the day; None if it is no time.

    `14:03` is of today; others are `yesterday`, `2026-11-18` and `2026-11-18T14:03`. Times are those of this machine's
    zone, unless they say another one: `14:03Z`.
    """
    here = now or datetime.now().astimezone()
    if text in _DAYS:
        return _end_of_day(here.date() - timedelta(days=_DAYS[text]))
    try:
        if _DATE.fullmatch(text):
            return _end_of_day(date.fromisoformat(text))
        if _TIME.fullmatch(text):
            given = time.fromisoformat(text.zfill(len(text) + (text[1] == ":")))
            moment = datetime.combine(here.astimezone(given.tzinfo).date(), given)
        elif _DATE.match(text):
            moment = datetime.fromisoformat(text)
        else:
            return None
        return _end(moment if moment.tzinfo is not None else moment.astimezone(), text)
    except (ValueError, OverflowError, OSError):
        return None


def beginning_of(moment: datetime, text: str) -> datetime:
    """The beginning of the time that a text names, whose end this moment is."""
    if text in _DAYS or _DATE.fullmatch(text):
        return moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if _TO_THE_SECOND.search(text):
        return moment if _FRACTION.search(text) else moment - _SECOND
    return moment - _MINUTE if ":" in text else moment


def _end_of_day(day: date) -> datetime:
    return (datetime.combine(day + timedelta(days=1), time()) - timedelta(microseconds=1)).astimezone()


def _end(moment: datetime, text: str) -> datetime:
    """The end of the minute or of the second that a text names; the moment itself, if it has a fraction."""
    return end_of_second(moment, text) if _TO_THE_SECOND.search(text) else moment + _MINUTE


def end_of_second(moment: datetime, text: str) -> datetime:
    """The end of the second of a moment that was read from `text`; the moment itself, if the text has a fraction."""
    return moment if _FRACTION.search(text) else moment + _SECOND


async def first_of(store: CheckpointStore, thread_id: str, namespace: str | None) -> Entry | None:
    """The oldest checkpoint that a thread still has; None without any."""
    async with store.using() as engine:
        newest = await engine.history(thread_id, namespace, 1, None)
        if not newest:
            return None
        # No checkpoint has a number up to `empty_to`.
        oldest, empty_to = newest[0], 0
        while oldest.seq - empty_to > 1:
            middle = (empty_to + oldest.seq) // 2
            older = await engine.history(thread_id, namespace, 1, middle + 1)
            if older:
                oldest = older[0]
            else:
                empty_to = middle
        return oldest


async def latest_at(store: CheckpointStore, thread_id: str, namespace: str | None, moment: datetime) -> Entry | None:
    """The newest checkpoint that was saved by a moment; None if there is none.

    Numbers grow with time, so looking at one checkpoint in the middle tells in which half it is.
    """
    async with store.using() as engine:
        newest = await engine.history(thread_id, namespace, 1, None)
        if not newest or newest[0].created_at <= moment:
            return newest[0] if newest else None
        latest: Entry | None = None
        # Up to `low` everything was saved by then; from `high` on nothing was.
        low, high = 0, newest[0].seq
        while high - low > 1:
            middle = (low + high) // 2
            older = await engine.history(thread_id, namespace, 1, middle + 1)
            if not older:  # nothing is there up to the middle
                low = middle
            elif older[0].created_at <= moment:
                latest, low = older[0], middle
            else:
                high = older[0].seq
        return latest


async def checkpoints_by_metadata(store: CheckpointStore, condition: str, limit: int, prefix: str = "") -> list[Entry]:
    """The newest checkpoints whose metadata fulfil `KEY=VALUE`, such as `user=alice` or `turn=7`.

    A value that looks like JSON may have been saved as text, so both are looked for.
    """
    key, equals, text = condition.partition("=")
    if not equals or not key:
        raise ConfigurationError("give KEY=VALUE, such as user=alice or turn=7")
    values: list[Any] = [text]
    with suppress(ValueError, RecursionError):  # it may be plain text only
        values.append(json.loads(text, parse_constant=float.fromhex))
    entries = [entry for value in values for entry in await store.find(key, value, limit, prefix)]
    return sorted(entries, key=lambda entry: entry.created_at, reverse=True)[:limit]


async def threads_by_metadata(
    store: CheckpointStore, condition: str, limit: int, pattern: Pattern
) -> tuple[list[Entry], bool]:
    """The newest checkpoint of each thread that has one with metadata like `KEY=VALUE`; False if some may be missing.

    One thread may have very many such checkpoints, so more of them are read until there are enough threads.
    """
    portion = limit
    while True:
        entries = await checkpoints_by_metadata(store, condition, portion, pattern.prefix)
        newest: dict[str, Entry] = {}
        for entry in entries:
            if pattern.matches(entry.thread_id):
                newest.setdefault(entry.thread_id, entry)
        if len(newest) >= limit or len(entries) < portion:
            return list(newest.values())[:limit], True
        if portion >= _MOST_ENTRIES or sum(len(entry.metadata) for entry in entries) > _MOST_CHARACTERS:
            return list(newest.values()), False
        portion *= 4
