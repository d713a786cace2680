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
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from locus.errors import CheckpointNotFoundError, LocusError
from locus.extras import require
from locus.memory.long_term import Facts, LongTermMemory, fenced
from locus.threads import AsyncStoreUser, ItemLog, SessionPoint, ThreadStore, session_ids, session_points

if TYPE_CHECKING:
    from agents import SessionSettings, Tool, TResponseInputItem

__all__ = [
    "NAMESPACE",
    "LocusSession",
    "SessionClosedError",
    "SessionPoint",
    "SessionView",
    "list_sessions",
    "memory_tools",
]

_OWN_OPTIONS = ("session_settings", "namespace")

NAMESPACE = "openai-agents"
"""The namespace of sessions. For a store without namespaces, pass `namespace="default"`."""


@dataclass(frozen=True)
class CompactionSnapshot:
    """The newest items of a session, and a way to replace some of them, for the SDK's compaction."""

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


class LocusSession(AsyncStoreUser):
    """A session of the SDK (its `Session` protocol) in a Locus store.

    `store` is a checkpointer, a storage backend, or a name or URL with its `options` (`"sqlite:agents.db"`,
    `"https://…", token="…"`). `close` ends the session. A store that the session has opened by name is closed, and the
    sessions that were forked from it end, too; others are left open. `session_settings` are the SDK's, as an object or
    a dict.
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
        self._open(store, options, _OWN_OPTIONS)
        self._items = self._store.log(session_id, namespace)

    @property
    def _log(self) -> ItemLog:
        self._check_open()
        return self._items

    def _closed_error(self, name: str) -> Exception:
        return SessionClosedError(f"session {self.session_id!r:.80} is closed: make a new {name}")

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
        return await session_points(self._store, self.session_id, self._log.namespace, limit, before)

    def at(self, checkpoint_id: str) -> SessionView:
        """The session as it was at a point in its history."""
        return SessionView(self.session_id, checkpoint_id, self._log, self)

    async def fork(self, new_session_id: str, checkpoint_id: str | None = None) -> LocusSession:
        """A new session that continues from a point in this one, by default the latest.

        Raises `ConflictError` if the new id is in use.
        """
        namespace = self._log.namespace
        forked = copy(self)
        forked.session_id, forked._handle = new_session_id, self._store.lent()
        forked._items = forked._store.log(new_session_id, namespace)
        copied = await self._store.fork(self.session_id, new_session_id, namespace, checkpoint_id)
        if not copied and checkpoint_id is not None:
            raise CheckpointNotFoundError(
                f"session {self.session_id!r} has no checkpoint {checkpoint_id!r} to fork from"
            )
        return forked

    async def rewind(self, checkpoint_id: str) -> None:
        """Continue from an earlier point in this session. Later points stay in the history."""
        await self._log.rewind(checkpoint_id)

    async def list_sessions(self, limit: int | None = 100, pattern: str = "*") -> list[str]:
        """The ids of the sessions in this store that match a pattern (`*` any text, `?` one character), in order."""
        return await session_ids(self._store, self._log.namespace, limit, pattern)

    def __repr__(self) -> str:
        return f"LocusSession({self.session_id!r}, {self._handle.kind})"

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[TResponseInputItem], bool] | None = None
    ) -> CompactionSnapshot | None:
        """Serves the SDK's compaction, which would otherwise clear and refill the session.

        `prune_prefix` tells which items are not needed any more: a replacement leaves out those at the beginning.
        """
        log = self._log
        version = await self._store.document(self.session_id, log.namespace, ("items",)).read(newest=limit)
        if version is None:
            return None
        items, latest = list(version.lists.get("items", ())), version.checkpoint_id
        start = version.counts.get("items", 0) - len(items)

        async def replace_suffix(offset: int, output: Sequence[TResponseInputItem]) -> bool:
            if offset >= len(items):
                return False
            end = start + offset
            first = 0 if prune_prefix is None else await self._needed_from(prune_prefix, end, latest, limit)
            return await log.replace_from(end, output, if_latest=latest, first=first)

        return CompactionSnapshot(items, start == 0, replace_suffix)

    async def _needed_from(
        self, is_needless: Callable[[TResponseInputItem], bool], end: int, checkpoint_id: str, at_once: int
    ) -> int:
        """The position of the first item before `end` that is needed, or `end`. So many items are read at once."""
        document = self._store.document(self.session_id, self._log.namespace)
        for first in range(0, end, at_once):
            page = await document.items("items", first, min(at_once, end - first), checkpoint_id=checkpoint_id)
            if page is None:  # it was removed meanwhile, so nothing is going to be replaced
                break
            for position, item in enumerate(page.items, first):
                if not is_needless(item):
                    return position
        return end


async def list_sessions(
    store: Any, limit: int | None = 100, pattern: str = "*", *, namespace: str = NAMESPACE, **options: Any
) -> list[str]:
    """The ids of the sessions in a store that match a pattern (`*` any text, `?` one character), in order.

    `store` is what a `LocusSession` takes. One that is opened here by name is closed again.
    """
    opened = ThreadStore.open(store, options, owner="list_sessions", own=("limit", "pattern", "namespace"))
    try:
        return await session_ids(opened, namespace, limit, pattern)
    finally:
        await opened.close()


def _settings(given: SessionSettings | dict[str, Any] | None) -> SessionSettings | None:
    """Session settings as the SDK's own sessions accept them: a default, an object, or a dict."""
    if given is None and find_spec("agents") is None:
        return None
    sdk = require("agents.memory.session_settings", "openai-agents")
    made: SessionSettings = sdk.SessionSettings() if given is None else sdk.coerce_session_settings(given)
    return made


def memory_tools(memory: LongTermMemory, user_id: str, *, source: str | None = None) -> list[Tool]:
    """The tools `remember`, `recall` and `forget` over what is known about a user: `Agent(tools=memory_tools(…))`.

    `source` says who teaches, mostly the id of the session (see `LongTermMemory.erase`).
    """
    function_tool = require("agents", "openai-agents").function_tool
    facts = Facts(memory, user_id)

    async def remember(fact: str) -> str:
        """Keep a fact about the user for later conversations, in one sentence, and return its key."""
        return await facts.remember(fact, source=source)

    async def recall(question: str) -> str:
        """Look for what is known about the user from earlier conversations."""
        return fenced(await facts.recall(question)) or "nothing is known about that"

    async def forget(key: str) -> str:
        """Forget a fact about the user, by its key."""
        return "forgotten" if await facts.forget(key) else "there is no such fact"

    return [function_tool(remember), function_tool(recall), function_tool(forget)]
