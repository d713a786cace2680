"""Sessions of the OpenAI Agents SDK on every backend, with their whole history.

    from locus.integrations.openai_agents import LocusSession

    session = LocusSession("alice", checkpointer)        # or a storage backend, or "sqlite:agents.db"
    await Runner.run(agent, "Hello", session=session)

A session is a log of items (see `locus.memory.item_log`) in a namespace of its own, of the thread with the session's
id. So a Locus agent may have a thread with the same id. Every batch that is added is one checkpoint, and only new items
are stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

from locus.errors import CheckpointNotFoundError, LocusError
from locus.extras import require
from locus.hints import options_of_open_store, with_own_options
from locus.memory.item_log import ItemLog, logged_change
from locus.memory.model.arguments import UNLIMITED, checked_limit
from locus.memory.model.records import Entry
from locus.memory.registry import get_checkpointer
from locus.memory.saver import store_of
from locus.memory.store import CheckpointStore

if TYPE_CHECKING:
    from agents import SessionSettings, TResponseInputItem

__all__ = ["NAMESPACE", "LocusSession", "SessionClosedError", "SessionPoint", "SessionView", "list_sessions"]

_OWN_OPTIONS = ("session_settings", "namespace")
AT_ONCE = 8
"""How many threads are looked into at the same time."""

NAMESPACE = "openai-agents"
"""The namespace of sessions. For a store without namespaces, pass `namespace="default"`."""


@dataclass(frozen=True)
class SessionPoint:
    """One point in the history of a session: how many items it had, and what the change was (`add`, `pop`, …).

    For a checkpoint that was not made by a session, `items` is None and `change` is empty.
    """

    checkpoint_id: str
    parent_id: str | None
    created_at: datetime
    items: int | None
    change: str


@dataclass(frozen=True)
class CompactionSnapshot:
    """What the SDK's compaction needs: the newest items of a session, and a way to replace some of them."""

    items: list[TResponseInputItem]
    complete: bool
    replace_suffix: Callable[[int, list[TResponseInputItem]], Awaitable[bool]]


class SessionView:
    """A session as it was at a checkpoint, read-only. `LocusSession.fork` makes one that can continue."""

    def __init__(self, session_id: str, checkpoint_id: str, log: ItemLog, session: LocusSession | None = None) -> None:
        self.session_id = session_id
        self.checkpoint_id = checkpoint_id
        self._log = log
        self._session = session

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The newest items up to that checkpoint, in order."""
        if self._session is not None:
            self._session._check_open()
        return await self._log.read(limit, self.checkpoint_id)


class SessionClosedError(LocusError, RuntimeError):
    """A session is used after it was closed. (Sessions of the SDK raise `RuntimeError`.)"""


class LocusSession:
    """A session of the SDK (its `Session` protocol) in a Locus store.

    `store` is a checkpointer, a storage backend, or a name or URL with its `options` (`"sqlite:agents.db"`,
    `"https://…", token="…"`). `close` ends the session, closes a store that the session has opened by name, and leaves
    others open. `session_settings` are the SDK's, as an object or a dict.
    """

    session_settings: SessionSettings | None = None

    def __init__(
        self,
        session_id: str,
        store: Any,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        namespace: str = NAMESPACE,
        **options: Any,
    ) -> None:
        self.session_id = session_id
        self.session_settings = _settings(session_settings)
        self._opened = isinstance(store, str)
        self._items = ItemLog(_opened_store(store, options, "LocusSession", _OWN_OPTIONS), session_id, namespace)
        self._closed = False
        self._owner: LocusSession | None = None

    @property
    def _log(self) -> ItemLog:
        self._check_open()
        return self._items

    def _check_open(self) -> None:
        """Refuse to go on after the end: the store would be opened again, and nobody would close it."""
        if self._closed or (self._owner is not None and self._owner._closed):
            raise SessionClosedError(f"session {self.session_id!r:.80} is closed: make a new LocusSession")

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The newest `limit` items, in order. Without a limit, the settings decide, and by default all are returned."""
        settings = _settings(self.session_settings)  # somebody may have set a dict
        if limit is None and settings is not None:
            limit = settings.limit
        return await self._log.read(limit)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add a batch atomically and in order, even if others add items at the same time."""
        await self._log.append(items)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item and return it. Earlier points in the history keep it."""
        item: TResponseInputItem | None = await self._log.pop()
        return item

    async def clear_session(self) -> None:
        """Delete all items and the history."""
        await self._log.delete()

    async def history(self, limit: int | None = 10, before: str | None = None) -> list[SessionPoint]:
        """The points in the history that the session can be read at or forked from, newest first, without items."""
        log = self._log
        entries = await log.store.history(self.session_id, limit, before, log.namespace)
        return [_point(entry) for entry in entries]

    def at(self, checkpoint_id: str) -> SessionView:
        """The session as it was at a point in its history."""
        return SessionView(self.session_id, checkpoint_id, self._log, self)

    async def fork(self, new_session_id: str, checkpoint_id: str | None = None) -> LocusSession:
        """A new session that continues from a point in this one, by default the latest.

        Raises `ConflictError` if the new id is in use.
        """
        log = self._log
        forked = copy(self)
        forked.session_id, forked._opened = new_session_id, False
        forked._owner = self if self._opened else self._owner
        forked._items = ItemLog(log.store, new_session_id, log.namespace)
        start = checkpoint_id if checkpoint_id is not None else await log.latest()
        if start is not None:
            copied = await log.store.copy(self.session_id, new_session_id, start, log.namespace)
            if not copied:
                raise CheckpointNotFoundError(f"session {self.session_id!r} has no checkpoint {start!r} to fork from")
        return forked

    async def rewind(self, checkpoint_id: str) -> None:
        """Continue from an earlier point in this session. Later points stay in the history."""
        await self._log.rewind(checkpoint_id)

    async def list_sessions(self, limit: int | None = 100, pattern: str = "*") -> list[str]:
        """The ids of the sessions in this store that match a pattern (`*` any text, `?` one character), in order."""
        log = self._log
        return await _session_ids(log.store, log.namespace, limit, pattern)

    async def close(self) -> None:
        """End the session, and close the store if this session opened it. Sessions that were forked from it end too."""
        self._closed = True
        if self._opened:
            await self._items.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"LocusSession({self.session_id!r}, {type(self._items.store.engine).__name__})"

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[TResponseInputItem], bool] | None = None
    ) -> CompactionSnapshot | None:
        """For the SDK's `OpenAIResponsesCompactionSession`, which would otherwise clear and refill the session."""
        if prune_prefix is not None:
            return None
        newest = await self.history(1)
        if not newest or newest[0].items is None:
            return None
        latest, count = newest[0].checkpoint_id, newest[0].items
        items = await self._log.read(limit, latest)
        start = count - len(items)

        async def replace_suffix(offset: int, output: Sequence[TResponseInputItem]) -> bool:
            if offset >= len(items):
                return False
            return await self._log.replace_from(start + offset, output, if_latest=latest)

        return CompactionSnapshot(items, start == 0, replace_suffix)


async def list_sessions(
    store: Any, limit: int | None = 100, pattern: str = "*", *, namespace: str = NAMESPACE, **options: Any
) -> list[str]:
    """The ids of the sessions in a store that match a pattern (`*` any text, `?` one character), in order.

    `store` is what a `LocusSession` takes. One that is opened here by name is closed again.
    """
    opened = _opened_store(store, options, "list_sessions", ("limit", "pattern", "namespace"))
    try:
        return await _session_ids(opened, namespace, limit, pattern)
    finally:
        if isinstance(store, str):
            await opened.close()


async def _session_ids(store: CheckpointStore, namespace: str, limit: int | None, pattern: str) -> list[str]:
    """The threads that have something in the namespace. A store lists threads, and not what is in them."""
    most = checked_limit(limit, UNLIMITED)
    threads = await store.list_threads(None, pattern)
    found: list[str] = []
    for start in range(0, len(threads), AT_ONCE):
        if len(found) >= most:
            break
        some = threads[start : start + AT_ONCE]
        entries = await asyncio.gather(*(store.entry(thread_id, None, namespace) for thread_id in some))
        found += [thread_id for thread_id, entry in zip(some, entries, strict=True) if entry is not None]
    return found[:most]


def _opened_store(store: Any, options: Mapping[str, Any], owner: str, own: Sequence[str]) -> CheckpointStore:
    if isinstance(store, str):
        with with_own_options(owner, own):
            return store_of(get_checkpointer(store, **options))
    if options:
        raise options_of_open_store(options, own)
    return store_of(store)


def _settings(given: SessionSettings | dict[str, Any] | None) -> SessionSettings | None:
    """As in the SDK's own sessions: a default, a dict made into an object, and `TypeError` for unknown fields."""
    if given is None and find_spec("agents") is None:
        return None
    sdk = require("agents.memory.session_settings", "openai-agents")
    made: SessionSettings = sdk.SessionSettings() if given is None else sdk.coerce_session_settings(given)
    return made


def _point(entry: Entry) -> SessionPoint:
    log = logged_change(entry.metadata)
    count, change = (log.items, log.change) if log else (None, "")
    return SessionPoint(entry.checkpoint_id, entry.parent_id, entry.created_at, count, change)
