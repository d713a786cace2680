"""`LocusConversationStore`: Pydantic AI's conversations in a Locus store.

A conversation is a namespace of the thread with its id. Every write is one checkpoint:

    payload    {"record": {…}, "items": […], "left": […]}    the record, the history, and what it has left
    metadata   {"messages": 12, "conversation_scope": "…", "entry:<id>": null, …}

So record and entries become visible in one step, and the revision is compared inside it: a write names the checkpoint
that has the expected revision as the latest. A write reads no message, unless it moves to another branch.

The ids of entries are global, and the atomic unit of every backend is one thread. So the index from an entry to its
thread is the metadata of the checkpoint that brought it, which every backend can look up, and writes in the same step.
A write with more entries than `INDEXED` puts the index into checkpoints of another namespace of the thread, just
before: if it never happens, they point at nothing, and whoever looks an entry up reads it before he believes it.

A deletion is a checkpoint too, the last one, with nothing in it. It is conditional like any write. Then everything up
to it is removed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, Final, TypeVar

from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.exceptions import UserError

from locus.core.tasks import finished
from locus.errors import CheckpointNotFoundError, ConflictError, CorruptCheckpointError, LocusError
from locus.integrations.pydantic_ai.codec import (
    Item,
    checked_items,
    entries_from,
    items_from,
    record_from,
    record_json,
    unreadable,
)
from locus.integrations.pydantic_ai.histories import HistoryChange, continued, line_to, moved, new_line
from locus.threads import (
    AsyncStoreUser,
    Document,
    Entry,
    Kept,
    Version,
    metadata_of,
    readable,
    warn_of_damage,
)
from locus.threads.ids import check_ids, shown_thread
from locus.threads.limits import AT_ONCE, MOST, UNLIMITED, checked_limit

T = TypeVar("T")

NAMESPACE: Final = "pydantic-ai"
"""The namespace of conversations. For a store without namespaces, pass `namespace="default"`."""

INDEXED: Final = 100
"""How many entries the metadata of one checkpoint names. Databases index each, and some only so many."""

_ITEMS, _LEFT = "items", "left"
_SCOPE: Final = "conversation_scope"
_ENTRY: Final = "entry:"
_MESSAGES, _DELETED, _FIRST = "messages", "deleted", "first"
_ATTEMPTS = 8
_MOST_SEEN, _MOST_HEADS = 256, 4_096
"""How many conversations and entries a store remembers. It only saves questions."""
_HITS = 20
"""How many places are looked at for one entry: it is in every fork that shares it."""


@dataclass(frozen=True)
class ConversationPoint:
    """One point in the history of a conversation, and how many messages it had.

    For a checkpoint that was not made by a conversation, `messages` is None.
    """

    checkpoint_id: str
    parent_id: str | None
    created_at: datetime
    messages: int | None


class ConversationStoreClosedError(LocusError, RuntimeError):
    """A conversation store is used after it was closed."""


@dataclass(frozen=True, slots=True)
class _Latest:
    """A checkpoint of a conversation, read without its messages."""

    version: Version
    record: Any
    """As JSON; None if the conversation was deleted."""

    @property
    def checkpoint_id(self) -> str:
        return self.version.checkpoint_id

    @property
    def messages(self) -> int:
        return self.version.counts[_ITEMS]

    @property
    def left(self) -> int:
        return self.version.counts[_LEFT]

    @property
    def revision(self) -> str | None:
        return self.record.get("revision") if isinstance(self.record, dict) else None

    @property
    def head_id(self) -> str | None:
        return self.record.get("head_id") if isinstance(self.record, dict) else None


class LocusConversationStore(AsyncStoreUser, ConversationStore):
    """A `ConversationStore` of Pydantic AI on every backend.

    `store` is a checkpointer, a storage backend, or a name or URL with its `options` (`"sqlite:agents.db"`,
    `"https://…", token="…"`). `close` closes a store that was opened here by name, and leaves others open.

    `delete` removes the messages of a conversation with its history. A fork has its own copy of the entries that it
    shares, under the same ids.
    """

    def __init__(self, store: Any, *, namespace: str = NAMESPACE, **options: Any) -> None:
        self._namespace = namespace
        self._index = f"{namespace}/entries"
        check_ids("-", None, self._index)
        self._open(store, options, ("namespace",))
        self._seen: dict[str, _Latest] = {}
        """What `read_record` has read last, for the write that follows it."""
        self._heads: dict[str, tuple[str, str | None]] = {}
        """Where entries are that records have named: the conversation, and the checkpoint whose head it is."""

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        latest = await self._latest(conversation_id)
        return None if latest is None or latest.record is None else self._record(conversation_id, latest)

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        self._check_open()
        most = checked_limit(limit, UNLIMITED)
        records: list[ConversationRecord] = []
        damaged: list[CorruptCheckpointError] = []
        newest = self._newest_in(scope, most) if scope is not None else self._newest(most, damaged)
        async with aclosing(newest) as pages:
            async for conversation_ids in pages:
                for some in _portions(conversation_ids, AT_ONCE):
                    records += [
                        record
                        for record in await self._records(some, damaged)
                        if scope is None or record.scope == scope
                    ]
                    if len(records) >= most:
                        break
                if len(records) >= most:
                    break
        warn_of_damage(damaged)
        records.sort(key=_updated_at, reverse=True)
        return records[:most]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        self._check_open()
        conversation_id = record.conversation_id
        new, value = items_from(new_entries), record_json(record)
        for _ in range(_ATTEMPTS):
            latest = self._seen.pop(conversation_id, None)
            if latest is None or latest.revision != expected_revision:
                latest = await self._latest(conversation_id)
                self._seen.pop(conversation_id, None)
            if (latest.revision if latest else None) != expected_revision:
                raise ConversationConflict(conversation_id)
            if latest is not None and latest.record is None:  # a deletion that did not come to its end
                await self._erase(conversation_id, latest.checkpoint_id)
                latest = None
            change = await self._change(record, new, latest)
            with suppress(ConflictError):
                await self._commit(record, value, change, latest)
                break
        else:
            raise ConversationConflict(conversation_id)
        if record.forked_from is not None and expected_revision is None:
            await self._store.note_origin(conversation_id, record.forked_from, self._namespace)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        latest = await self._latest(conversation_id)
        self._seen.pop(conversation_id, None)
        if latest is None or latest.record is None or latest.revision != expected_revision:
            raise ConversationConflict(conversation_id)
        try:
            deletion = await self._document(conversation_id).save(
                {_DELETED: True},
                lists={_ITEMS: [], _LEFT: []},
                after=latest.version,
                metadata={_DELETED: True},
                if_latest=latest.checkpoint_id,
            )
        except ConflictError:
            raise ConversationConflict(conversation_id) from None
        await finished(self._erase(conversation_id, deletion.checkpoint_id))

    async def delete(self, conversation_id: str, *, scope: str | None = None) -> None:
        await super().delete(conversation_id, scope=scope)
        left = self._seen.pop(conversation_id, None)
        if left is not None and left.record is None:  # the process that deleted it was killed before it had erased it
            await finished(self._erase(conversation_id, left.checkpoint_id))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        self._check_open()
        for hit in await self._hits(entry_id):
            for item in await self._brought_by(hit):
                if item["id"] == entry_id:
                    return entries_from(hit.thread_id, [item])[0]
        raise _no_entry()

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """The entries up to `head_id`, in order, or only the last `limit` of them.

        With a limit, the last entries of a conversation are read without the rest.
        """
        self._check_open()
        if head_id is None or (limit is not None and limit <= 0):
            return []
        found = await self._line_to(head_id, limit, None)
        if found is None:
            raise _no_entry()
        return entries_from(*found)

    async def history(
        self, conversation_id: str, limit: int | None = 10, before: str | None = None, *, scope: str | None = None
    ) -> list[ConversationPoint]:
        """The points of a conversation that can be read, forked or returned to, newest first, without messages.

        Every save, branch and rewind is one. The list goes on `before` one of them.
        """
        if await self._in_scope(conversation_id, scope) is None:
            return []
        entries = await self._store.history(conversation_id, self._namespace, limit, before)
        # What is older than a deletion is about to be removed.
        return [_point(entry) for entry in takewhile(lambda entry: not _is_deletion(entry), entries)]

    async def load_at(
        self, conversation_id: str, checkpoint_id: str, *, limit: int | None = None, scope: str | None = None
    ) -> Conversation:
        """A conversation as it was at a point in its history. `fork_at` and `rewind` go on from there."""
        record = await self._record_at(conversation_id, checkpoint_id, scope)
        entries = await self.read_history(record.head_id, limit=limit)
        return Conversation(
            messages=[entry.message for entry in entries],
            usage=record.usage,
            conversation_id=conversation_id,
            deferred_tool_requests=record.deferred_tool_requests,
            revision=record.revision,
        )

    async def fork_at(
        self,
        conversation_id: str,
        checkpoint_id: str,
        *,
        new_conversation_id: str | None = None,
        scope: str | None = None,
        source_scope: str | None = None,
    ) -> Conversation:
        """A new conversation that continues another from an earlier point, with the usage up to then.

        Raises `ConversationConflict` if the new id is in use.
        """
        record = await self._record_at(conversation_id, checkpoint_id, source_scope)
        forked = ConversationRecord(
            conversation_id=new_conversation_id if new_conversation_id is not None else Conversation().conversation_id,
            head_id=record.head_id,
            usage=record.usage,
            deferred_tool_requests=record.deferred_tool_requests,
            scope=scope if scope is not None else record.scope,
            forked_from=conversation_id,
            forked_at=record.head_id,
        )
        await self.write_record(forked, expected_revision=None)
        await self._store.note_origin(forked.conversation_id, conversation_id, self._namespace, checkpoint_id)
        return await self._loaded(forked.conversation_id)

    async def rewind(
        self,
        conversation_id: str,
        checkpoint_id: str,
        *,
        expected_revision: str | None = None,
        scope: str | None = None,
    ) -> Conversation:
        """Continue from an earlier point, with its deferred requests. Later entries stay, and their usage counts.

        The history that it leaves is one of the record's `branches`. With `expected_revision`, a turn that someone else
        has saved since is not undone: then `ConversationConflict` is raised.
        """
        earlier = await self._record_at(conversation_id, checkpoint_id, scope)
        now = await self.read_record(conversation_id)
        if now is None or (expected_revision is not None and now.revision != expected_revision):
            raise ConversationConflict(conversation_id)
        known = [*now.branches, *([now.head_id] if now.head_id is not None else [])]
        turned_back = ConversationRecord(
            conversation_id=conversation_id,
            head_id=earlier.head_id,
            usage=now.usage,
            deferred_tool_requests=earlier.deferred_tool_requests,
            scope=now.scope,
            forked_from=now.forked_from,
            forked_at=now.forked_at,
            branches=[tip for tip in dict.fromkeys(known) if tip != earlier.head_id],
        )
        await self.write_record(turned_back, expected_revision=now.revision)
        return await self._loaded(conversation_id)

    def _closed_error(self, name: str) -> Exception:
        return ConversationStoreClosedError(f"this conversation store is closed: make a new {name}")

    def _document(self, conversation_id: str) -> Document:
        return self._store.document(conversation_id, self._namespace, (_ITEMS, _LEFT))

    async def _latest(self, conversation_id: str, checkpoint_id: str | None = None) -> _Latest | None:
        """A checkpoint, by default the latest, without messages."""
        version = await self._document(conversation_id).read(checkpoint_id, newest=0)
        if version is None:
            self._seen.pop(conversation_id, None)
            return None
        deleted = version.fields.get(_DELETED) is True
        record = None if deleted else version.fields.get("record")
        if not (deleted or _has_revision(record)) or len(version.counts) < 2:
            raise CorruptCheckpointError(
                f"{shown_thread(conversation_id)}, namespace {self._namespace!r:.80}, is no conversation: something "
                "else uses it. Use another id, or another namespace"
            )
        latest = _Latest(version, record)
        if checkpoint_id is None:
            _bound(self._seen, _MOST_SEEN)
            self._seen[conversation_id] = latest
        return latest

    def _record(self, conversation_id: str, latest: _Latest) -> ConversationRecord:
        """The record of a checkpoint. Remembers where its entries are, since they will be asked for next."""
        record = record_from(conversation_id, latest.record)
        _bound(self._heads, _MOST_HEADS)
        for tip in record.branches[-_MOST_SEEN:]:
            self._heads[tip] = conversation_id, None
        if record.head_id is not None:
            self._heads[record.head_id] = conversation_id, latest.checkpoint_id
        return record

    async def _record_at(self, conversation_id: str, checkpoint_id: str, scope: str | None) -> ConversationRecord:
        if await self._in_scope(conversation_id, scope) is None:
            raise UserError("This conversation is not in the store.")
        latest = await self._latest(conversation_id, checkpoint_id)
        if latest is None or latest.record is None:
            raise CheckpointNotFoundError(f"{shown_thread(conversation_id)} has no such checkpoint: see `history`")
        return self._record(conversation_id, latest)

    async def _in_scope(self, conversation_id: str, scope: str | None) -> ConversationRecord | None:
        """The record of a conversation; None if it does not exist, or belongs to another scope."""
        record = await self.read_record(conversation_id)
        return record if record is None or scope is None or record.scope == scope else None

    async def _loaded(self, conversation_id: str) -> Conversation:
        loaded = await self.load(conversation_id)
        if loaded is None:  # somebody has deleted it in this moment
            raise ConversationConflict(conversation_id)
        return loaded

    async def _change(self, record: ConversationRecord, new: Sequence[Item], latest: _Latest | None) -> HistoryChange:
        """The change of the stored history that a write makes."""
        line = new_line(record.head_id, new)
        if line.after == (latest.head_id if latest else None):
            return continued(latest.messages if latest else 0, line)
        items, left = await self._all_items(record.conversation_id, latest)
        base = line_to(line.after, items, left)
        if base is None and line.after is not None:
            found = await self._line_to(line.after, None, record.forked_from)
            base = None if found is None else found[1]
        if base is None:
            raise ConversationConflict(record.conversation_id)  # what it goes on from was deleted meanwhile
        return moved(base, line, items, left)

    async def _all_items(self, conversation_id: str, latest: _Latest | None) -> tuple[list[Item], list[Item]]:
        """All entries of one checkpoint: those of the history, and those kept aside."""
        if latest is None or not latest.messages + latest.left:
            return [], []
        return await self._lists(conversation_id, latest.checkpoint_id) or ([], [])

    async def _commit(
        self, record: ConversationRecord, value: dict[str, Any], change: HistoryChange, latest: _Latest | None
    ) -> None:
        conversation_id = record.conversation_id
        metadata: dict[str, Any] = {_MESSAGES: change.kept + len(change.added)}
        if record.scope is not None:
            metadata[_SCOPE] = record.scope
        if len(change.indexed) > INDEXED and await self._store.keeps_lists():
            await self._index_before(conversation_id, change)
        else:
            metadata |= _index_of(change.indexed)
        await self._document(conversation_id).save(
            {"record": value},
            lists={
                _ITEMS: Kept(change.kept, change.added),
                _LEFT: Kept(latest.left if latest else 0, change.left),
            },
            after=latest.version if latest else None,
            metadata=metadata,
            if_latest=latest.checkpoint_id if latest else None,
        )

    async def _index_before(self, conversation_id: str, change: HistoryChange) -> None:
        """Save index entries for a write that brings very many entries."""
        places = {item["id"]: change.kept + number for number, item in enumerate(change.added)}
        index = self._store.document(conversation_id, self._index)
        for start in range(0, len(change.indexed), INDEXED):
            some = change.indexed[start : start + INDEXED]
            await index.save({}, metadata={_FIRST: places.get(some[0], 0), **_index_of(some)})

    async def _erase(self, conversation_id: str, deletion: str) -> None:
        """Remove a deleted conversation: everything up to its deletion, and nothing that was begun after it."""
        store = self._store
        last = await store.entry(conversation_id, self._namespace, deletion)
        if last is None:
            return
        for namespace in (self._index, self._namespace):
            entries = await store.history(conversation_id, namespace)
            doomed = [entry for entry in entries if entry.seq <= last.seq]
            if doomed:
                await store.delete_entries(conversation_id, namespace, doomed)

    async def _line_to(self, entry_id: str, limit: int | None, likely: str | None) -> tuple[str, list[Item]] | None:
        """The line to an entry, or its end, and the conversation that has it; None if none has."""
        known = self._heads.get(entry_id)
        places = [known] if known is not None else []
        if likely is not None:
            places.append((likely, None))
        for conversation_id, checkpoint_id in places:
            line = await self._line_in(conversation_id, checkpoint_id, entry_id, limit)
            if line is not None:
                return conversation_id, line
        for conversation_id in dict.fromkeys(hit.thread_id for hit in await self._hits(entry_id)):
            line = await self._line_in(conversation_id, None, entry_id, limit)
            if line is not None:
                return conversation_id, line
        return None

    async def _line_in(
        self, conversation_id: str, checkpoint_id: str | None, entry_id: str, limit: int | None
    ) -> list[Item] | None:
        """The line to an entry in one conversation, or its end; None if the conversation does not have the entry."""
        if limit is not None:
            page = await self._document(conversation_id).items(_ITEMS, -limit, limit, checkpoint_id=checkpoint_id)
            items = [] if page is None else checked_items(conversation_id, page.items)
            if items and items[-1]["id"] == entry_id:
                return items
        found = await self._lists(conversation_id, checkpoint_id)
        line = None if found is None else line_to(entry_id, *found)
        if line is None and found is not None and checkpoint_id is not None:
            raise unreadable(conversation_id)  # its own record says that it has the entry
        if line is None and checkpoint_id is not None:  # the checkpoint was removed as an old one
            return await self._line_in(conversation_id, None, entry_id, limit)
        return line if line is None or limit is None else line[-limit:]

    async def _lists(self, conversation_id: str, checkpoint_id: str | None) -> tuple[list[Item], list[Item]] | None:
        """The history and the entries aside of a checkpoint. Items that this handle holds are not read again."""
        version = await self._document(conversation_id).read(checkpoint_id)
        if version is None:
            return None
        items, left = (checked_items(conversation_id, version.lists.get(name)) for name in (_ITEMS, _LEFT))
        return items, left

    async def _hits(self, entry_id: str) -> list[Entry]:
        """The checkpoints whose index names an entry, newest first."""
        found = await self._store.find(f"{_ENTRY}{entry_id}", None, _HITS)
        return [hit for hit in found if hit.namespace in (self._namespace, self._index)]

    async def _brought_by(self, hit: Entry) -> list[Item]:
        """The entries that a checkpoint's index names, perhaps with others; none if they are gone."""
        conversation_id, metadata = hit.thread_id, metadata_of(hit)
        count = max(1, sum(map(_is_entry_key, metadata)))
        latest = await self._store.entry(conversation_id, self._namespace)
        if latest is None or _is_deletion(latest):
            return []
        document = self._document(conversation_id)
        stored: Sequence[Any]
        if hit.namespace == self._index:
            first = metadata.get(_FIRST)
            start = first if isinstance(first, int) and 0 <= first <= MOST else 0
            page = await document.items(_ITEMS, start, count, checkpoint_id=latest.checkpoint_id)
            stored = [] if page is None else page.items
        else:
            version = await document.read(hit.checkpoint_id, newest=count)
            stored = [] if version is None else [item for items in version.lists.values() for item in items]
        items = checked_items(conversation_id, stored)
        if {f"{_ENTRY}{item['id']}" for item in items}.issuperset(name for name in metadata if _is_entry_key(name)):
            return items
        # The conversation has moved to another branch since, or the checkpoint was removed in this moment.
        lists = await self._lists(conversation_id, None)
        return [] if lists is None else [*lists[0], *lists[1]]

    async def _records(
        self, conversation_ids: Sequence[str], damaged: list[CorruptCheckpointError]
    ) -> list[ConversationRecord]:
        """The records of some conversations. Damaged ones are left out, and added to `damaged`."""
        found = await readable(self.read_record, conversation_ids, damaged)
        return [record for _, record in found if record is not None]

    async def _newest(self, most: int, damaged: list[CorruptCheckpointError]) -> AsyncGenerator[list[str]]:
        """All conversations page by page, the last written one first."""
        cursor: str | None = None
        waiting: list[Entry] = []
        while True:
            page = await self._store.newest_threads(max(most, AT_ONCE), cursor)
            for some in _portions(page.entries, AT_ONCE):
                entries = await readable(self._newest_here, some, damaged)
                waiting += [entry for _, entry in entries if entry is not None and not _is_deletion(entry)]
                # A thread may have something newer in another namespace: then its turn comes later.
                reached = some[-1].created_at
                yield _in_order(entry for entry in waiting if entry.created_at >= reached)
                waiting = [entry for entry in waiting if entry.created_at < reached]
            cursor = page.next
            if cursor is None:
                break
        yield _in_order(waiting)

    async def _newest_here(self, entry: Entry) -> Entry | None:
        """The newest checkpoint of a thread in this store's namespace."""
        if entry.namespace == self._namespace:
            return entry
        return await self._store.entry(entry.thread_id, self._namespace)

    async def _newest_in(self, scope: str, most: int) -> AsyncGenerator[list[str]]:
        """The conversations of one scope, the last written one first."""
        told: set[str] = set()
        size = min(4 * most + 64, UNLIMITED)
        while True:
            entries = await self._store.find(_SCOPE, scope, size)
            here = dict.fromkeys(entry.thread_id for entry in entries if entry.namespace == self._namespace)
            yield [name for name in here if name not in told]
            told |= here.keys()
            if len(entries) < size:
                return
            size = min(4 * size, UNLIMITED)


def _updated_at(record: ConversationRecord) -> datetime:
    at = record.updated_at
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _has_revision(record: Any) -> bool:
    return isinstance(record, dict) and isinstance(record.get("revision"), str)


def _index_of(entry_ids: Collection[str]) -> dict[str, None]:
    return dict.fromkeys((f"{_ENTRY}{entry_id}" for entry_id in entry_ids), None)


def _is_entry_key(name: str) -> bool:
    return name.startswith(_ENTRY)


def _is_deletion(entry: Entry) -> bool:
    return metadata_of(entry).get(_DELETED) is True


def _point(entry: Entry) -> ConversationPoint:
    count = metadata_of(entry).get(_MESSAGES)
    return ConversationPoint(
        entry.checkpoint_id, entry.parent_id, entry.created_at, count if isinstance(count, int) else None
    )


def _no_entry() -> CheckpointNotFoundError:
    return CheckpointNotFoundError(
        "no conversation in this store has an entry with this id, or the checkpoint that brought it was removed as an "
        "old one: then `load_entries` of its conversation has it"
    )


def _bound(remembered: dict[str, Any], most: int) -> None:
    if len(remembered) >= most:
        remembered.clear()


def _in_order(entries: Iterable[Entry]) -> list[str]:
    newest_first = sorted(entries, key=lambda entry: entry.created_at, reverse=True)
    return [entry.thread_id for entry in newest_first]


def _portions(found: Sequence[T], count: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(found), count):
        yield found[start : start + count]
