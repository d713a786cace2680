"""`ItemStore`: items as small threads in a key space of their own. Each version is a checkpoint, written whole.

A conditional deletion first leaves a mark, which is a version like any other: so of a writer and a deleter who both
have seen the same version, one is refused. If a process is killed between the mark and the removal, the item is gone
for everybody, and a sweep removes what is left.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator, Hashable, Sequence
from contextlib import aclosing, suppress
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice, takewhile
from typing import NamedTuple

from locus.errors import (
    BackendUnavailableError,
    CapabilityError,
    CheckpointNotFoundError,
    ConflictError,
    CorruptCheckpointError,
    DamagedThreadsWarning,
)
from locus.memory.engine import CommitsWhole, Engine, Expires, ListsVersions, TellsState
from locus.memory.gathered import Gathered
from locus.memory.long_term.commits import commit_of, commit_of_item
from locus.memory.long_term.items import DELETED, MARK, SOURCE, Item, has_ended, item_of
from locus.memory.long_term.names import (
    PREFIX,
    Namespace,
    behind_keys,
    item_id,
    path_of,
    whole_name,
    within,
)
from locus.memory.long_term.ranking import PAGE
from locus.memory.model.codec import decode
from locus.memory.model.records import ANY, DEFAULT_NAMESPACE, Base, Commit, Entry, Outcome, Stored, Unset, Verdict
from locus.memory.store import CheckpointStore

SPACE = "memory"
VERSIONS_AT_ONCE = 10_000
_ATTEMPTS = 8
_READ_LANES = 4
"""How many requests of one event loop read items at the same time. What comes meanwhile shares the next ones."""
_MOST_BASES = 4_096
"""The number of items of which a handle remembers the newest version."""

Place = tuple[Namespace, str]


class ItemStore:
    """The items of one store. It knows full namespaces only."""

    def __init__(self, store: CheckpointStore, space: str = SPACE, *, keep_last: int | None = None) -> None:
        """`keep_last` is how many versions of an item are kept at least; more than twice as many never are."""
        self.store = store.key_space(space)
        if space == SPACE:
            self.store.when_ready = partial(_move_old_items, store.engine)
        self.keep_last = keep_last
        self._bases: dict[str, _Known] = {}
        self._reads = Gathered[str, Stored | None](_READ_LANES)
        self._writes = Gathered[_Changes, list[Item]](1)

    async def current(self, namespace: Namespace, key: str) -> Item | None:
        """The newest version of an item, unless it has ended. Many tasks that ask at the same time share a request."""
        name = item_id(namespace, key)
        stored = await self._reads.ask(name, len(name), self._newest)
        item = None if stored is None else _alive(stored, datetime.now(UTC))
        if item is not None and stored is not None:
            self._remember(name, _Known.of(item, stored))
        return item

    async def currents(self, places: Sequence[Place]) -> list[Item | None]:
        """The newest versions of several items, in one request where the store can do that."""
        now, names = datetime.now(UTC), [item_id(*place) for place in places]
        return [None if stored is None else _alive(stored, now) for stored in map(_checked, await self._newest(names))]

    async def version(self, namespace: Namespace, key: str, version: int) -> Item | None:
        """A version of an item that has not ended."""
        versions = await self.versions(namespace, key, 1, version + 1)
        return versions[0] if versions and versions[0].version == version else None

    async def versions(self, namespace: Namespace, key: str, limit: int | None, before: int | None) -> list[Item]:
        """The versions of an item with numbers below `before`, newest first; empty if it was deleted or has expired."""
        name = item_id(namespace, key)
        if await self.current(namespace, key) is None:
            return []
        items: list[Item] = []
        async with self.store.using() as engine:
            # What is older than a mark was deleted, so the newer ones count, too.
            entries = await engine.history(name, DEFAULT_NAMESPACE, limit if before is None else None, None)
            there = takewhile(lambda entry: not _is_mark(entry), entries)
            for entry in islice((entry for entry in there if before is None or entry.seq < before), limit):
                stored = await engine.read(name, DEFAULT_NAMESPACE, entry.checkpoint_id)
                item = None if stored is None else item_of(stored)
                items += [] if item is None else [item]
        return items

    async def put(self, draft: Item, if_version: Item | int | Unset | None = ANY) -> Item:
        """Keep a version of an item. `draft` has everything but what is known only when it is written."""
        if isinstance(if_version, Unset) and isinstance(self.store.engine, CommitsWhole):
            (item,) = await self._writes.ask([draft], _size_of(draft), self._write)
            return item
        return await self._put(draft, if_version)

    async def put_all(self, drafts: Sequence[Item], gone: Sequence[Place] = ()) -> list[Item]:
        """Keep versions of different items, and delete others: all of it in one step, or nothing."""
        if not isinstance(self.store.engine, CommitsWhole):
            raise CapabilityError(f"{type(self.store.engine).__name__} changes items one by one: leave out atomic=True")
        changes: _Changes = [*drafts, *gone]
        done = await self._writes.ask(changes, sum(map(_size_of, drafts)), self._write) if changes else []
        return done[: len(drafts)]

    async def _write(self, questions: Sequence[_Changes]) -> list[list[Item] | Exception]:
        """Carry out the changes of several callers, each as a whole. Those of one item keep their order."""
        answers = dict[int, list[Item] | Exception]()
        left = list(enumerate(questions))
        while left:
            taken = set[Place]()
            now, later = list[tuple[int, _Changes]](), list[tuple[int, _Changes]]()
            for number, changes in left:
                names = {_place_of(change) for change in changes}
                mine = later if taken & names else now
                mine.append((number, changes))
                taken |= names
            await self._write_apart(now, answers)
            left = later
        return [answers[number] for number in range(len(questions))]

    async def _write_apart(
        self, questions: Sequence[tuple[int, _Changes]], answers: dict[int, list[Item] | Exception]
    ) -> None:
        """Carry out changes of different items in one step; if that fails, in halves, until one is to blame."""
        try:
            done = iter(await self._change([change for _, changes in questions for change in changes]))
            answers.update({number: list(islice(done, _drafts_in(changes))) for number, changes in questions})
        except Exception as error:  # noqa: BLE001 - each caller gets it
            if len(questions) == 1 or isinstance(error, BackendUnavailableError):
                # One that several tasks raise would collect the tracebacks of all.
                answers.update({number: copy(error).with_traceback(error.__traceback__) for number, _ in questions})
                return
            middle = len(questions) // 2
            await self._write_apart(questions[:middle], answers)
            await self._write_apart(questions[middle:], answers)

    async def _change(self, changes: _Changes) -> list[Item]:
        if len(changes) == 1:
            (only,) = changes
            if isinstance(only, Item):
                return [await self._put(only, ANY)]
            await self.delete(*only)
            return []
        for _ in range(_ATTEMPTS):
            if (items := await self._change_at_once(changes)) is not None:
                return items
        raise _contested()

    async def _change_at_once(self, changes: _Changes) -> list[Item] | None:
        """Try to carry out changes in one step; None if somebody else has changed one of the items.

        A deletion is a mark first, and what it hides is removed afterwards.
        """
        now, names = datetime.now(UTC), [item_id(*_place_of(change)) for change in changes]
        bases = {name: base for name in names if (base := self._base(name, now)) is not None}
        unknown = [name for name in names if name not in bases]
        for name, stored in zip(unknown, map(_checked, await self._newest(unknown)), strict=True):
            if stored is None:
                continue
            item = _alive(stored, now)
            if item is None:  # it has ended, or was deleted, and is still there
                await self.remove_versions(name, stored.entry.seq)
            else:
                bases[name] = _Known.of(item, stored)
        drafts, commits, deleted = list[Item](), list[Commit](), set[str]()
        async with self.store.using() as engine:
            for name, change in zip(names, changes, strict=True):
                base = bases.get(name)
                if isinstance(change, Item):
                    created_at = change.updated_at if base is None else base.created_at
                    drafts.append(replace(change, created_at=created_at))
                    on_top = None if base is None else base.checkpoint
                    commits.append(commit_of_item(engine, name, drafts[-1], base=on_top))
                elif base is not None:
                    deleted.add(name)
                    commits.append(commit_of(engine, name, MARK, now, {DELETED: True}, base=base.checkpoint))
            assert isinstance(engine, CommitsWhole)
            outcomes = await engine.commit_whole(commits)
        if outcomes is None:
            for name in names:
                self._bases.pop(name, None)
            return None
        items, kept = list[Item](), iter(drafts)
        for commit, outcome in zip(commits, outcomes, strict=True):
            if commit.thread_id in deleted:
                self._bases.pop(commit.thread_id, None)
                await self.remove_versions(commit.thread_id, outcome.seq)
            else:
                items.append(await self._kept(next(kept), commit, outcome))
        return items

    async def _put(self, draft: Item, if_version: Item | int | Unset | None) -> Item:
        name, unconditional = item_id(draft.namespace, draft.key), isinstance(if_version, Unset)
        for _ in range(_ATTEMPTS):
            base = self._base(name, draft.updated_at) if unconditional else None
            if_latest: str | None | Unset = ANY
            if isinstance(if_version, Item):
                if has_ended(if_version, draft.updated_at):
                    raise _refused(None, if_version.version)
                created_at, if_latest = if_version.created_at, if_version.rev
            else:
                if base is None:
                    stored = await self._newest_of(name)
                    now = None if stored is None else _alive(stored, draft.updated_at)
                    if stored is not None and now is None:  # it has ended, or was deleted, and is still there
                        await self.remove_versions(name, stored.entry.seq)
                        continue
                    base = None if stored is None or now is None else _Known.of(now, stored)
                    if not unconditional and (now.version if now else None) != if_version:
                        raise _refused(now.version if now else None, _number_of(if_version))
                created_at = draft.updated_at if base is None else base.created_at
                if not unconditional:
                    if_latest = None if base is None else base.checkpoint.checkpoint_id
            item = replace(draft, created_at=created_at)
            on_top = base.checkpoint if base is not None and unconditional else None
            async with self.store.using() as engine:
                commit = commit_of_item(engine, name, item, base=on_top, if_latest=if_latest)
            outcome = await self._send(commit)
            if outcome.verdict is Verdict.COMMITTED:
                return await self._kept(item, commit, outcome)
            self._bases.pop(name, None)
            if outcome.verdict is Verdict.CONFLICT:
                latest = await self.current(draft.namespace, draft.key)
                raise _refused(latest.version if latest else None, _number_of(if_version))
        raise _contested()

    async def restore(self, items: Sequence[Item]) -> int:
        """Keep items with their times, except those that are here in this or a later version; return how many."""
        known = await self.currents([(item.namespace, item.key) for item in items])
        missing = [item for item, old in zip(items, known, strict=True) if not old or old.updated_at < item.updated_at]
        for item in missing:
            async with self.store.using() as engine:
                commit = commit_of_item(engine, name := item_id(item.namespace, item.key), item)
            self._bases.pop(name, None)
            await self._send(commit)
        return len(missing)

    async def refresh(self, item: Item) -> None:
        """Let an item live as long again as it was put for, from now on, unless somebody has changed it.

        It is written again in the place of the version that was read.
        """
        if item.ttl_seconds is None:
            return
        name, now = item_id(item.namespace, item.key), datetime.now(UTC)
        known = self._base(name, now)
        if known is None or known.checkpoint.checkpoint_id != item.rev:
            stored = await self._newest_of(name)
            if stored is None or stored.entry.checkpoint_id != item.rev:
                return
            known = _Known.of(item, stored)
        again = replace(item, expires_at=now + timedelta(seconds=item.ttl_seconds))
        async with self.store.using() as engine:
            commit = commit_of_item(engine, name, again, if_latest=item.rev, replaces=known.checkpoint)
        outcome = await self._send(commit)
        self._bases.pop(name, None)
        if outcome.verdict is Verdict.COMMITTED:
            self._remember(name, _Known(Base(item.rev, commit.rev), item.created_at, again.expires_at))

    async def _kept(self, draft: Item, commit: Commit, outcome: Outcome) -> Item:
        """The item that a commit has written. Now and then, versions that are too many are removed."""
        item = replace(draft, version=outcome.seq, rev=commit.checkpoint_id)
        self._remember(commit.thread_id, _Known(Base(item.rev, commit.rev), item.created_at, item.expires_at))
        if self.keep_last is not None and outcome.seq > self.keep_last and outcome.seq % self.keep_last == 0:
            await self.remove_versions(commit.thread_id, outcome.seq - self.keep_last)
        return item

    def _base(self, name: str, now: datetime) -> _Known | None:
        """What is known of the newest version of an item, which may not be the newest any more."""
        known = self._bases.get(name)
        return None if known is None or (known.expires_at is not None and known.expires_at <= now) else known

    def _remember(self, name: str, known: _Known) -> None:
        self._bases[name] = known
        if len(self._bases) > _MOST_BASES:
            self._bases.pop(next(iter(self._bases)), None)

    async def renew(self, item: Item) -> bool:
        """Keep an item that was read, with other vectors, as a new version. False if somebody has changed it since."""
        try:
            await self.put(replace(item, updated_at=datetime.now(UTC)), item)
        except ConflictError:
            return False
        return True

    async def delete(self, namespace: Namespace, key: str, if_version: Item | int | Unset | None = ANY) -> bool:
        """Remove every version of an item. True if there was one that had not ended."""
        name = item_id(namespace, key)
        self._bases.pop(name, None)
        stored = await self._newest_of(name)
        item = None if stored is None else _alive(stored, datetime.now(UTC))
        if isinstance(if_version, Unset):
            removed = await self.store.delete(name, None, None)
            return removed and item is not None
        given = (if_version.version, if_version.rev) if isinstance(if_version, Item) else (if_version, None)
        if item is None or item.version != given[0] or given[1] not in (None, item.rev):
            raise _refused(item.version if item else None, given[0])
        async with self.store.using() as engine:
            commit = commit_of(engine, name, MARK, datetime.now(UTC), {DELETED: True}, if_latest=item.rev)
        outcome = await self._send(commit)
        if outcome.verdict is not Verdict.COMMITTED:
            latest = await self.current(namespace, key)
            raise _refused(latest.version if latest else None, given[0])
        await self.remove_versions(name, outcome.seq)
        return True

    async def state(self) -> Hashable | None:
        """Something that differs whenever an item was put or removed; None if the store cannot tell cheaply."""
        async with self.store.using() as engine:
            return await engine.state() if isinstance(engine, TellsState) else None

    async def changed(self, prefix: Namespace, since: Hashable) -> list[str] | None:
        path = path_of(prefix)
        async with self.store.using() as engine:
            if not isinstance(engine, TellsState) or len(path) > PREFIX:
                return None
            return await engine.changed(since, path)

    async def revs(self, prefix: Namespace) -> dict[str, str] | None:
        path, after, found = path_of(prefix), "", dict[str, str]()
        while True:
            async with self.store.using() as engine:
                if not isinstance(engine, ListsVersions) or len(path) > PREFIX:
                    return None
                page = await engine.versions(path, after, VERSIONS_AT_ONCE)
            found.update(page)
            if len(page) < VERSIONS_AT_ONCE:
                return found
            after = page[-1][0]

    async def pages(self, prefix: Namespace, size: int = PAGE, *, after: str = "") -> AsyncGenerator[list[Item]]:
        async with aclosing(self.under(path_of(prefix), after=after, limit=size)) as pages:
            async for page in pages:
                yield page

    async def under(self, path: str, *, after: str = "", limit: int = PAGE) -> AsyncGenerator[list[Item]]:
        """All items whose names begin with `path` and follow `after`, in the order of their names, in pages.

        Names are whole here. Those that are cut sort by a digest in the store, so all that share a beginning are
        gathered before they are given. Items that have ended or were deleted are left out.
        """
        damaged, first = 0, None
        held: list[Item] = []
        cursor: str | None = within(after)
        while cursor is not None:
            async with self.store.using() as engine:
                contents = await engine.newest(within(path), cursor, limit)
            items, now, errors = list[Item](), datetime.now(UTC), contents.damaged
            for stored in contents.stored:
                try:
                    item = _alive(stored, now)
                except CorruptCheckpointError as error:
                    errors = [*errors, error]
                else:
                    items += [item] if item is not None and _is_between(item, path, after) else []
            damaged, first = damaged + len(errors), first or next(iter(errors), None)
            last = contents.stored[-1].entry.thread_id if contents.stored else ""
            if held or any(len(stored.entry.thread_id) > PREFIX for stored in contents.stored):
                items = sorted(held + items, key=name_of)
                held = [item for item in items if contents.next and within(name_of(item)) == within(last)]
                items = items[: len(items) - len(held)]
            if items:
                yield items
            cursor = contents.next
        if first is not None:
            text = f"{damaged} damaged item{'s were' if damaged > 1 else ' was'} left out; the first: {first}"
            warnings.warn(text, DamagedThreadsWarning, stacklevel=2)

    async def namespaces(self, prefix: Namespace) -> list[Namespace]:
        """The namespaces below a prefix that have an item, in the order of their paths."""
        path, after, found = path_of(prefix), "", list[Namespace]()
        while (item := await self._first(path, after)) is not None:
            found.append(item.namespace)
            after = behind_keys(path_of(item.namespace))
        return found

    async def _first(self, path: str, after: str) -> Item | None:
        async with aclosing(self.under(path, after=after, limit=1)) as pages:
            async for page in pages:
                return page[0]
        return None

    async def erase(self, prefix: Namespace, *, dry_run: bool = False) -> int:
        """Remove all items below a namespace, ended or damaged ones as well; return how many threads that were."""
        return await self.erase_under(path_of(prefix), dry_run=dry_run)

    async def erase_under(self, path: str, *, dry_run: bool = False) -> int:
        """Remove all items whose names begin so."""
        erased = 0
        for hidden in (False, True):
            after = ""
            while names := await self._names(path, after, hidden=hidden):
                after = names[-1]
                for name in names:
                    if await self._is_below(name, path):
                        erased += dry_run or await self.store.delete(name, None, None)
        await self.store.confirm_deletions()
        return erased

    async def _names(self, path: str, after: str, *, hidden: bool) -> list[str]:
        if hidden:
            return await self.store.unlisted_threads(within(path), after, PAGE)
        return await self.store.list_threads(PAGE, "*", after=after, prefix=within(path))

    async def _is_below(self, name: str, path: str) -> bool:
        if len(path) <= PREFIX:
            return True
        stored = await self._newest_of(name)
        item = None if stored is None else item_of(stored)
        return item is None or _is_below(item, path)

    async def erase_source(self, prefix: Namespace, source: str, *, dry_run: bool = False) -> int:
        """Remove the versions that a source has taught, below a namespace; return how many."""
        path, erased, removed = path_of(prefix), 0, 1
        while removed:
            removed = 0
            for entry in await self.store.find(SOURCE, source, None, within(path)):
                if await self._is_below(entry.thread_id, path):
                    found = {entry.seq: entry.rev}
                    removed += dry_run or await self.store.delete_found(entry.thread_id, DEFAULT_NAMESPACE, found)
            erased += removed
            if dry_run:
                return erased
        await self.store.confirm_deletions()
        return erased

    async def sweep(self, keep_last: int | None = None) -> int:
        """Remove items that have ended, what interrupted deletions have left, and older versions; return how many."""
        now, swept = datetime.now(UTC), 0
        for mark in await self.store.find(DELETED, True, None):
            await self.remove_versions(mark.thread_id, mark.seq)
            swept += 1
        if keep_last is not None:
            swept += await self.store.vacuum(None, keep_last, dry_run=False)
        async with self.store.using() as engine:
            if isinstance(engine, Expires) and self.store.capabilities.ttl:
                return swept + await engine.expire(now)
        cursor: str | None = ""
        while cursor is not None:
            async with self.store.using() as engine:
                contents = await engine.newest("", cursor, PAGE)
            for stored in contents.stored:
                with suppress(CorruptCheckpointError):  # whoever reads it is told
                    item = item_of(stored)
                    if item is not None and has_ended(item, now):
                        await self.remove_versions(item_id(item.namespace, item.key), stored.entry.seq)
                        swept += 1
            cursor = contents.next
        return swept

    async def _newest(self, names: Sequence[str]) -> list[Stored | Exception | None]:
        """The newest versions of several items, or why they cannot be read."""
        if not names:
            return []
        async with self.store.using() as engine:
            if len(names) != 1:
                return [*await engine.newest_of(names)]
            try:
                return [await engine.read(names[0], DEFAULT_NAMESPACE, None)]
            except CorruptCheckpointError as error:
                return [error]

    async def _newest_of(self, name: str) -> Stored | None:
        async with self.store.using() as engine:
            return await engine.read(name, DEFAULT_NAMESPACE, None)

    async def remove_versions(self, name: str, up_to: int) -> None:
        """Remove the versions of the thread of an item up to a number, and none that comes meanwhile."""
        async with self.store.using() as engine:
            entries = await engine.history(name, None, None, up_to + 1)
            if entries:
                await engine.delete(name, None, {entry.seq: entry.rev for entry in entries})

    async def _send(self, commit: Commit) -> Outcome:
        """Send a commit. A server refuses one with an error of its own, which names the thread."""
        try:
            async with self.store.using():
                return await self.store.commit(commit)
        except ConflictError:
            return Outcome(Verdict.CONFLICT)
        except CheckpointNotFoundError:
            return Outcome(Verdict.NO_PARENT)


async def _move_old_items(former: Engine, space: Engine) -> None:
    if hasattr(former, "sql"):  # what moves them brings the SQL databases along
        from locus.memory.long_term.old_items import move_old_items

        await move_old_items(former, space)


async def has_old_items(former: Engine, space: Engine) -> bool:
    """Whether a store has items of an older version, which the first use of its memory moves."""
    if not hasattr(former, "sql"):
        return False
    from locus.memory.long_term.old_items import has_old_items

    return await has_old_items(former, space)


class _Known(NamedTuple):
    """What a handle remembers of the newest version of an item, so that the next one can follow it."""

    checkpoint: Base
    created_at: datetime
    expires_at: datetime | None

    @classmethod
    def of(cls, item: Item, stored: Stored) -> _Known:
        return cls(Base(stored.entry.checkpoint_id, stored.entry.rev), item.created_at, item.expires_at)


_Changes = Sequence[Item | Place]
"""Drafts to put, and the places of items to delete."""


def _drafts_in(changes: _Changes) -> int:
    return sum(isinstance(change, Item) for change in changes)


def _place_of(change: Item | Place) -> Place:
    return (change.namespace, change.key) if isinstance(change, Item) else change


def _size_of(draft: Item) -> int:
    """About how many characters a version has."""
    vectors = 0 if draft.vectors is None else sum(map(len, draft.vectors.texts))
    return len(str(draft.value)) + len(str(draft.metadata)) + vectors


def _checked(found: Stored | Exception | None) -> Stored | None:
    if isinstance(found, Exception):
        raise found
    return found


def _alive(stored: Stored, now: datetime) -> Item | None:
    item = item_of(stored)
    return None if item is None or has_ended(item, now) else item


def _is_mark(entry: Entry) -> bool:
    return decode(entry.metadata).get(DELETED) is True


def name_of(item: Item) -> str:
    return whole_name(item.namespace, item.key)


def _is_below(item: Item, path: str) -> bool:
    return len(path) <= PREFIX or name_of(item).startswith(path)


def _is_between(item: Item, path: str, after: str) -> bool:
    return _is_below(item, path) and (len(after) <= PREFIX or name_of(item) > after)


def _number_of(version: Item | int | Unset | None) -> int | None:
    if isinstance(version, Item):
        return version.version
    return None if isinstance(version, Unset) else version


def _contested() -> ConflictError:
    return ConflictError("this item keeps being changed by other writers; try again")


def _refused(found: int | None, wanted: int | None) -> ConflictError:
    there, expected = ("nothing" if number is None else f"version {number}" for number in (found, wanted))
    return ConflictError(
        f"expected {expected} of this item, and found {there}; nothing was changed. Get it anew, and apply the change "
        "to that"
    )
