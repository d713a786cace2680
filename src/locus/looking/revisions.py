"""Names for checkpoints that a person can type.

    THREAD              the latest checkpoint
    THREAD@3f9a         the one whose id begins with this
    THREAD@#42          the one with this number
    THREAD@~3           three before the latest, from parent to parent

A thread's id may contain `@`, too. If what is typed is the id of a thread as a whole, that thread is meant; if both
could be meant, that is an error that says so. `parse` is pure; `resolve` asks the store, and reads no payload.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from locus.errors import CheckpointNotFoundError, ConfigurationError
from locus.hints import did_you_mean
from locus.memory.model.ids import check_id
from locus.memory.model.records import DEFAULT_NAMESPACE, Entry
from locus.memory.store import CheckpointStore

_PAGE: Final = 500
_MOST_BACK: Final = 1_000_000
_MOST_NAMED: Final = 10
_NEAR: Final = 200
"""How many ids are looked at for the one that was most likely meant."""

_NUMBER = re.compile(r"#([0-9]{1,15})")
_BACK = re.compile(r"~([0-9]{1,15})?")


class NoSuchThreadError(CheckpointNotFoundError):
    """A thread, or a checkpoint of it, that is not there."""


class AmbiguousRevisionError(ConfigurationError):
    """What was typed can mean several things; the text lists them."""


@dataclass(frozen=True, slots=True)
class Revision:
    """What was typed, taken apart. At most one of the last three is given; without any, the latest is meant."""

    thread_id: str
    prefix: str | None = None
    number: int | None = None
    back: int | None = None


def parse(text: str) -> list[Revision]:
    """What a text can mean, the likeliest first: with `@` in it, a checkpoint or a thread with such an id."""
    thread_id, at, rest = text.rpartition("@")
    if not at or not thread_id:
        return [Revision(text)]
    return [checkpoint_of(thread_id, rest), Revision(text)]


def checkpoint_of(thread_id: str, text: str) -> Revision:
    """The same for a thread and what follows its `@`, given apart."""
    if found := _NUMBER.fullmatch(text):
        return Revision(thread_id, number=int(found[1]))
    if found := _BACK.fullmatch(text):
        return Revision(thread_id, back=int(found[1] or 1))
    return Revision(thread_id, prefix=text)


async def resolve(
    store: CheckpointStore, text: str, *, checkpoint: str | None = None, namespace: str | None = None
) -> Entry:
    """The checkpoint that is meant. `checkpoint` is what follows the `@`, if the id of the thread contains one.

    Without a namespace it is the thread's only one, or the default one, if the thread has checkpoints there.
    """
    check_id(text, "thread")
    if checkpoint is not None:
        return await _found(store, checkpoint_of(text, checkpoint), namespace)
    meant = parse(text)
    if len(meant) == 1:
        return await _found(store, meant[0], namespace)
    whole = await store.history(text, 1, None, namespace)
    try:
        found = await _found(store, meant[0], namespace)
    except (CheckpointNotFoundError, AmbiguousRevisionError):
        if whole:
            return await _found(store, meant[1], namespace)
        if await store.history(meant[0].thread_id, 1, None, None):
            raise
        raise await _neither(store, text, meant[0].thread_id) from None
    if whole:
        raise AmbiguousRevisionError(
            f"{text!r} is a thread, and also a checkpoint of the thread {meant[0].thread_id!r}. "
            f"For the checkpoint, say {meant[0].thread_id}@#{found.seq}; for the thread, {text}@~0"
        )
    return found


async def is_thread(store: CheckpointStore, text: str, namespace: str | None = None) -> bool:
    """Whether a text is the id of a thread as a whole, and names no checkpoint."""
    if len(parse(text)) == 1:
        return True
    if not await store.history(check_id(text, "thread"), 1, None, namespace):
        return False
    return (await resolve(store, text, namespace=namespace)).thread_id == text


async def resolve_thread(store: CheckpointStore, thread_id: str, namespace: str | None = None) -> Entry:
    """The latest checkpoint of a thread, whatever its id is made of."""
    return await _found(store, Revision(check_id(thread_id, "thread")), namespace)


async def _found(store: CheckpointStore, revision: Revision, namespace: str | None) -> Entry:
    if revision.number is not None and namespace is None:  # a thread has each number once, in whatever namespace
        return await _numbered(store, revision.thread_id, None, revision.number)
    where = await namespace_of(store, revision.thread_id, namespace)
    if revision.number is not None:
        found = await _numbered(store, revision.thread_id, where, revision.number)
    elif revision.back is not None:
        found = await _ancestor(store, revision.thread_id, where, revision.back)
    elif revision.prefix is not None:
        found = await _beginning_with(store, revision.thread_id, where, revision.prefix)
    else:
        latest = await store.entry(revision.thread_id, None, where)
        if latest is None:
            raise await _no_thread(store, revision.thread_id, namespace)
        return latest
    return found


async def namespace_of(store: CheckpointStore, thread_id: str, wanted: str | None) -> str:
    """The namespace to look into."""
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
        there = await store.other_namespaces(thread_id, namespace)
        if there:
            return NoSuchThreadError(f"thread {thread_id!r} has nothing in the namespace {namespace!r:.80}; {there}")
    near = await _near(store, thread_id)
    return NoSuchThreadError(f"there is no thread {thread_id!r}{did_you_mean(thread_id, near)}")


async def _neither(store: CheckpointStore, text: str, thread_id: str) -> NoSuchThreadError:
    """The same for a text with an `@` that may be an id as a whole, such as an address, or name a checkpoint."""
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
    known: dict[str, Entry] = {}
    found: Entry | None = None
    page = await store.history(thread_id, min(back + 10, _PAGE), None, namespace)
    known.update((entry.checkpoint_id, entry) for entry in page)
    found = page[0] if page else None
    for step in range(back):
        if found is None or found.parent_id is None:
            raise NoSuchThreadError(f"thread {thread_id!r} goes back {step} checkpoints from the latest, not {back}")
        if found.parent_id not in known:
            known = {
                entry.checkpoint_id: entry
                for entry in await store.history(thread_id, _PAGE, found.checkpoint_id, namespace)
            }
        parent = known.get(found.parent_id)
        found = parent if parent is not None else await store.entry(thread_id, found.parent_id, namespace)
    if found is None:
        raise NoSuchThreadError(f"thread {thread_id!r} goes back less than {back} checkpoints from the latest")
    return found


async def _beginning_with(store: CheckpointStore, thread_id: str, namespace: str, prefix: str) -> Entry:
    if not prefix:
        raise ConfigurationError("what follows the @ is empty: give the beginning of an id, #NUMBER or ~STEPS")
    exact = await store.entry(thread_id, prefix, namespace) if len(prefix) <= 255 else None
    if exact is not None:
        return exact
    found: list[Entry] = []
    newest: list[str] = []
    before: str | None = None
    while True:
        page = await store.history(thread_id, _PAGE, before, namespace)
        newest += [entry.checkpoint_id for entry in page[: max(0, _NEAR - len(newest))]]
        found += [entry for entry in page if entry.checkpoint_id.startswith(prefix)]
        if len(page) < _PAGE or len(found) > _MOST_NAMED:
            break
        before = page[-1].checkpoint_id
    if len(found) == 1:
        return found[0]
    if not found:
        raise NoSuchThreadError(
            f"thread {thread_id!r} has no checkpoint whose id begins with {prefix!r:.80}{did_you_mean(prefix, newest)}"
        )
    shown = ", ".join(f"{entry.checkpoint_id} (#{entry.seq})" for entry in found[:_MOST_NAMED])
    more = ", …" if len(found) > _MOST_NAMED else ""
    raise AmbiguousRevisionError(f"{prefix!r:.80} can be several checkpoints: {shown}{more}")
