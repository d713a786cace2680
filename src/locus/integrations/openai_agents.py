"""Sessions of the OpenAI Agents SDK on every backend, with their whole history.

    from locus.integrations.openai_agents import LocusSession

    session = LocusSession("alice", checkpointer)        # or a storage backend, or "sqlite:agents.db"
    await Runner.run(agent, "Hello", session=session)

A session is a log of items (see `locus.memory.item_log`) in a namespace of its own, of the thread with the session's
id. So a Locus agent may have a thread with the same id. Every batch that is added is one checkpoint, and only new items
are stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from locus.errors import CheckpointNotFoundError
from locus.extras import require
from locus.memory.item_log import ItemLog, logged_change
from locus.memory.model.records import Entry
from locus.memory.saver import store_of

if TYPE_CHECKING:
    from agents import SessionSettings, TResponseInputItem

__all__ = ["NAMESPACE", "LocusSession", "SessionPoint", "SessionView"]

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

    def __init__(self, session_id: str, checkpoint_id: str, log: ItemLog) -> None:
        self.session_id = session_id
        self.checkpoint_id = checkpoint_id
        self._log = log

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The newest items up to that checkpoint, in order."""
        return await self._log.read(limit, self.checkpoint_id)


class LocusSession:
    """A session of the SDK (its `Session` protocol) in a Locus store.

    `store` is a checkpointer, a storage backend, or a name or URL (`"sqlite:agents.db"`). `close` closes a store that
    the session has opened by name, and leaves others open. `session_settings` are the SDK's.
    """

    session_settings: SessionSettings | None = None

    def __init__(
        self,
        session_id: str,
        store: Any,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        namespace: str = NAMESPACE,
    ) -> None:
        self.session_id = session_id
        self.session_settings = _settings(session_settings)
        self._opened = isinstance(store, str)
        self._log = ItemLog(store_of(store), session_id, namespace)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The newest `limit` items, in order. Without a limit, the settings decide, and by default all are returned."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
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
        return SessionView(self.session_id, checkpoint_id, self._log)

    async def fork(self, new_session_id: str, checkpoint_id: str | None = None) -> LocusSession:
        """A new session that continues from a point in this one, by default the latest.

        Raises `ConflictError` if the new id is in use.
        """
        log = self._log
        forked = copy(self)
        forked.session_id, forked._opened = new_session_id, False
        forked._log = ItemLog(log.store, new_session_id, log.namespace)
        start = checkpoint_id if checkpoint_id is not None else await log.latest()
        if start is not None:
            copied = await log.store.copy(self.session_id, new_session_id, start, log.namespace)
            if not copied:
                raise CheckpointNotFoundError(f"session {self.session_id!r} has no checkpoint {start!r} to fork from")
        return forked

    async def rewind(self, checkpoint_id: str) -> None:
        """Continue from an earlier point in this session. Later points stay in the history."""
        await self._log.rewind(checkpoint_id)

    async def close(self) -> None:
        """Close the store, if this session opened it."""
        if self._opened:
            await self._log.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"LocusSession({self.session_id!r}, {type(self._log.store.engine).__name__})"

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


def _settings(given: SessionSettings | dict[str, Any] | None) -> SessionSettings | None:
    if isinstance(given, dict):
        made: SessionSettings = require("agents", "openai-agents").SessionSettings(**given)
        return made
    return given


def _point(entry: Entry) -> SessionPoint:
    log = logged_change(entry.metadata)
    count, change = (log.items, log.change) if log else (None, "")
    return SessionPoint(entry.checkpoint_id, entry.parent_id, entry.created_at, count, change)
