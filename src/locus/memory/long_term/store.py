"""`ItemStore`: items as small threads in a key space of their own. Each version is a checkpoint, written whole.

A conditional deletion first leaves a mark, which is a version like any other: so of a writer and a deleter who both
have seen the same version, one is refused. If a process is killed between the mark and the removal, the item is gone
for everybody, and a sweep removes what is left.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator, Hashable
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice, takewhile
from secrets import token_urlsafe
from typing import Any

from locus.errors import CheckpointNotFoundError, ConflictError, CorruptCheckpointError, DamagedThreadsWarning
from locus.memory.engine import Expires, TellsState
from locus.memory.long_term.items import DELETED, MARK, SOURCE, Item, has_ended, item_of, payload_of
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
from locus.memory.model.codec import decode, encode
from locus.memory.model.plan import Payload, Planner
from locus.memory.model.records import ANY, DEFAULT_NAMESPACE, Commit, Entry, Outcome, Stored, Unset, Verdict
from locus.memory.store import CheckpointStore

SPACE = "memory"
_ATTEMPTS = 8
_ID_BYTES = 6
"""How many random bytes the id of a version has: it has to differ from those of the same item only."""


class ItemStore:
    """The items of one store. It knows full namespaces only."""

    def __init__(self, store: CheckpointStore, space: str = SPACE) -> None:
        self.store = store.key_space(space)

    async def current(self, namespace: Namespace, key: str) -> Item | None:
        """The newest version of an item, unless it has ended."""
        stored = await self._newest(item_id(namespace, key))
        return None if stored is None else _alive(stored, datetime.now(UTC))

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

    async def put(self, draft: Item, if_version: Item | int | Unset | None) -> Item:
        """Keep a version of an item. `draft` has everything but what is known only when it is written."""
        name = item_id(draft.namespace, draft.key)
        for _ in range(_ATTEMPTS):
            created_at, base, required = draft.updated_at, None, False
            if isinstance(if_version, Item):
                if has_ended(if_version, draft.updated_at):
                    raise _refused(None, if_version.version)
                created_at, base = if_version.created_at, if_version.rev
            else:
                stored = await self._newest(name)
                now = None if stored is None else _alive(stored, draft.updated_at)
                if stored is not None and now is None:  # it has ended, or was deleted, and is still there
                    await self.remove_versions(name, stored.entry.seq)
                    continue
                if now is not None:
                    base, required, created_at = now.rev, True, now.created_at
                if not isinstance(if_version, Unset) and (now.version if now else None) != if_version:
                    raise _refused(now.version if now else None, _number_of(if_version))
            item = Item(**{**vars(draft), "created_at": created_at})
            unconditional = isinstance(if_version, Unset)
            async with self.store.using():
                commit = self._commit(
                    name,
                    payload_of(item),
                    item.updated_at,
                    expires_at=item.expires_at,
                    metadata={} if item.source is None else {SOURCE: item.source},
                    if_latest=ANY if unconditional else base,
                    parent_id=base if unconditional and required else ANY,
                    parent_required=unconditional and required,
                )
            outcome = await self._send(commit)
            if outcome.verdict is Verdict.COMMITTED:
                return Item(**{**vars(item), "version": outcome.seq, "rev": commit.checkpoint_id})
            if outcome.verdict is Verdict.CONFLICT:
                latest = await self.current(draft.namespace, draft.key)
                raise _refused(latest.version if latest else None, _number_of(if_version))
        raise ConflictError("this item keeps being changed by other writers; try again")

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
        stored = await self._newest(name)
        item = None if stored is None else _alive(stored, datetime.now(UTC))
        if isinstance(if_version, Unset):
            removed = await self.store.delete(name, None, None)
            return removed and item is not None
        given = (if_version.version, if_version.rev) if isinstance(if_version, Item) else (if_version, None)
        if item is None or item.version != given[0] or given[1] not in (None, item.rev):
            raise _refused(item.version if item else None, given[0])
        async with self.store.using():
            commit = self._commit(name, MARK, datetime.now(UTC), metadata={DELETED: True}, if_latest=item.rev)
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
        path, erased = path_of(prefix), 0
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
        stored = await self._newest(name)
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

    async def _newest(self, name: str) -> Stored | None:
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

    def _commit(
        self,
        name: str,
        payload: Payload,
        at: datetime,
        *,
        expires_at: datetime | None = None,
        metadata: dict[str, Any],
        if_latest: str | None | Unset = ANY,
        parent_id: str | None | Unset = ANY,
        parent_required: bool = False,
    ) -> Commit:
        rev, engine = token_urlsafe(_ID_BYTES), self.store.engine
        plan = Planner(rev, None, sort_keys=not engine.dialect.exact).plan(payload)
        return Commit(
            thread_id=name,
            namespace=DEFAULT_NAMESPACE,
            checkpoint_id=rev,
            rev=rev,
            created_at=at,
            metadata=encode(metadata),
            head=plan.head,
            manifest=plan.manifest,
            extents=plan.extents,
            runs=plan.runs,
            values=plan.values,
            parent_id=parent_id,
            parent_required=parent_required,
            if_latest=if_latest,
            fresh_id=True,
            expires_at=expires_at if expires_at and self.store.capabilities.ttl else None,
        )


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


def _refused(found: int | None, wanted: int | None) -> ConflictError:
    there, expected = ("nothing" if number is None else f"version {number}" for number in (found, wanted))
    return ConflictError(
        f"expected {expected} of this item, and found {there}; nothing was changed. Get it anew, and apply the change "
        "to that"
    )
