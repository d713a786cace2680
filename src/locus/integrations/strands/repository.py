"""`LocusSessionRepository`: the sessions of Strands' `RepositorySessionManager` on every backend.

A session is the namespace `strands` of the thread with its id; `document` describes its payload. Every call that
changes something is one checkpoint, written only if the session is still as the call found it, so a message never takes
the place of another one, whatever processes do at the same time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from strands.session import SessionRepository
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage

from locus.errors import CheckpointNotFoundError, ConflictError, CorruptCheckpointError, WindowError
from locus.integrations.points import SessionPoint, readable, session_ids
from locus.integrations.stores import BlockingStoreUser
from locus.integrations.strands.document import (
    MESSAGE,
    Document,
    Tail,
    change_of,
    list_name,
    message_at,
    position_of,
    read_document,
    read_messages,
    save_document,
    stored_message,
    with_id,
)
from locus.memory.model.codec import canonical
from locus.memory.model.ids import check_ids
from locus.memory.model.manifest import MOST
from locus.memory.model.records import Entry
from locus.memory.runtime.per_loop import LoopLocks
from locus.memory.runtime.portal import PORTAL
from locus.memory.runtime.retry import Backoff

if TYPE_CHECKING:
    from strands.multiagent import MultiAgentBase

__all__ = ["NAMESPACE", "LocusSessionRepository", "SessionPoint"]

NAMESPACE: Final = "strands"
"""The namespace of sessions. For a store without namespaces, pass `namespace="default"`."""

_OWN_OPTIONS = ("namespace",)
_ATTEMPTS = 200
_BETWEEN_ATTEMPTS = Backoff(0.001, 0.05, random_part=1.0)
_MOST_REMEMBERED = 1_024
"""How many sessions a repository remembers, each without its messages."""
_LARGEST_ID = MOST

T = TypeVar("T")

_locks = LoopLocks()


@dataclass(frozen=True, slots=True)
class _Change:
    """A session as a call leaves it, and the tails of the lists that it changes; None: as it was."""

    document: Document | None
    tails: Mapping[str, Tail]


_Work = Callable[[Document | None], Awaitable[_Change]]
_NOTHING: Final = _Change(None, {})


class LocusSessionRepository(BlockingStoreUser, SessionRepository):
    """A `SessionRepository` of Strands on any Locus store, usable from any OS thread; its calls block.

    `store` is a checkpointer, a storage backend, or a name or URL with its `options` (`"sqlite:agents.db"`,
    `"https://…", token="…"`). `close` closes a store that was opened here by name, and leaves others open.

    What Strands itself refuses (a session that exists, an agent that does not) is its `SessionException`. A message
    whose id is taken is refused, too, unless it is the same message once more: then it was sent again, and nothing is
    written. An outage is Locus's `BackendUnavailableError`, and never looks like a session that does not exist.
    """

    def __init__(self, store: Any, *, namespace: str = NAMESPACE, **options: Any) -> None:
        self._open(store, options, _OWN_OPTIONS)
        self._namespace = namespace
        self._remembered: OrderedDict[str, Document] = OrderedDict()

    def _closed_error(self, name: str) -> Exception:
        return SessionException(f"this repository is closed: make a new {name}")

    def create_session(self, session: Session, **kwargs: Any) -> Session:
        """Create a session."""

        async def created(document: Document | None) -> _Change:
            if document is not None:
                raise SessionException(f"session {session.session_id!r:.80} already exists")
            return _Change(Document(_plain(session.to_dict())), {})

        self._change(session.session_id, "session", created)
        return session

    def read_session(self, session_id: str, *, checkpoint_id: str | None = None, **kwargs: Any) -> Session | None:
        """A session, as of a checkpoint or of the latest; None if there is none."""
        document = self._read(session_id, checkpoint_id)
        # A fork has the data of the session that it comes from.
        return None if document is None else Session.from_dict({**document.session, "session_id": session_id})

    def create_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """Create an agent in a session. One that exists keeps its messages, and gets this state."""
        data = session_agent.to_dict()

        async def created(document: Document | None) -> _Change:
            found = _existing(document, session_id)
            agent_id = session_agent.agent_id
            ids = found.ids.get(agent_id, [])
            tails = {} if agent_id in found.agents else {list_name(agent_id): Tail(0)}
            return _Change(_with_agent(found, agent_id, data, ids), tails)

        self._change(session_id, "agent", created)

    def read_agent(
        self, session_id: str, agent_id: str, *, checkpoint_id: str | None = None, **kwargs: Any
    ) -> SessionAgent | None:
        """An agent, as of a checkpoint or of the latest; None if there is none."""
        document = self._read(session_id, checkpoint_id)
        if document is None or agent_id not in document.agents:
            return None
        return SessionAgent.from_dict(dict(document.agents[agent_id]))

    def update_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """Keep another state of an agent."""

        async def updated(document: Document | None) -> _Change:
            found, agent_id = _with_known(document, session_id, session_agent.agent_id), session_agent.agent_id
            session_agent.created_at = found.agents[agent_id]["created_at"]
            return _Change(_with_agent(found, agent_id, session_agent.to_dict(), found.ids[agent_id]), {})

        self._change(session_id, "state", updated)

    def create_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        """Add a message to an agent. An id that another message has is refused; the same message again is done already.

        The same message under a new id is another one, as for Strands: an agent may say the same thing twice.
        """
        number, data = _checked_id(session_message.message_id), session_message.to_dict()

        async def added(document: Document | None) -> _Change:
            found = _with_known(document, session_id, agent_id)
            there = position_of(found.ids[agent_id], number)
            if there is not None:
                (kept,) = await self._tail(session_id, found, agent_id, there, 1)
                if _is_repeated(message_at(kept, there), data):
                    return _NOTHING
                raise SessionException(
                    f"message {number} of agent {agent_id!r:.80} exists already, with other content: nothing was "
                    "written. Another process has gone on with this session; make the agent anew to continue from there"
                )
            at, ids = with_id(found.ids[agent_id], number)
            behind = await self._tail(session_id, found, agent_id, at, found.counts[list_name(agent_id)] - at)
            moved = [stored_message(message_at(item, place), place + 1) for place, item in enumerate(behind, at)]
            tail = Tail(at, behind, [stored_message(data, at), *moved])
            return _Change(replace(found, ids={**found.ids, agent_id: ids}), {list_name(agent_id): tail})

        self._change(session_id, MESSAGE, added)

    def read_message(
        self, session_id: str, agent_id: str, message_id: int, *, checkpoint_id: str | None = None, **kwargs: Any
    ) -> SessionMessage | None:
        """A message, as of a checkpoint or of the latest; None if there is none."""
        number = _checked_id(message_id)

        async def work() -> Any:
            document = await self._document(session_id, checkpoint_id)
            if document is None or agent_id not in document.agents:
                return None
            at = position_of(document.ids[agent_id], number)
            if at is None:
                return None
            (item,) = await self._tail(session_id, document, agent_id, at, 1)
            return message_at(item, at)

        data = PORTAL.run(work())
        return None if data is None else SessionMessage.from_dict(data)

    def update_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        """Put a message in the place of the one with its id. Earlier points in the history keep that one."""
        number = _checked_id(session_message.message_id)

        async def updated(document: Document | None) -> _Change:
            found = _with_known(document, session_id, agent_id)
            at = position_of(found.ids[agent_id], number)
            if at is None:
                raise SessionException(f"message {number} of agent {agent_id!r:.80} does not exist")
            behind = await self._tail(session_id, found, agent_id, at, found.counts[list_name(agent_id)] - at)
            session_message.created_at = message_at(behind[0], at)["created_at"]
            tail = Tail(at, behind, [stored_message(session_message.to_dict(), at), *behind[1:]])
            return _Change(found, {list_name(agent_id): tail})

        self._change(session_id, "redact", updated)

    def list_messages(
        self,
        session_id: str,
        agent_id: str,
        limit: int | None = None,
        offset: int = 0,
        *,
        checkpoint_id: str | None = None,
        **kwargs: Any,
    ) -> list[SessionMessage]:
        """Messages of an agent in the order of their ids, as of a checkpoint or of the latest.

        A negative offset counts from the end: `offset=-20` gives the newest 20, and only these are read.
        """
        start = max(-MOST, min(offset, MOST))
        count = MOST if limit is None else max(0, min(limit, MOST))
        check_ids(session_id, checkpoint_id, self._namespace)
        found = PORTAL.run(
            read_messages(self._store, session_id, checkpoint_id, self._namespace, agent_id, start, count)
        )
        if found is None:
            raise SessionException(f"agent {agent_id!r:.80} in session {session_id!r:.80} does not exist")
        return [SessionMessage.from_dict(message_at(item, place)) for item, place in zip(*found, strict=True)]

    def create_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any) -> None:
        """Keep the state of an orchestrator: a graph or a swarm."""
        self._put_multi_agent(session_id, multi_agent, must_exist=False)

    def read_multi_agent(
        self, session_id: str, multi_agent_id: str, *, checkpoint_id: str | None = None, **kwargs: Any
    ) -> dict[str, Any] | None:
        """The state of an orchestrator, as of a checkpoint or of the latest; None if there is none."""
        document = self._read(session_id, checkpoint_id)
        found: dict[str, Any] | None = None if document is None else document.multi_agents.get(multi_agent_id)
        return found

    def update_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any) -> None:
        """Keep another state of an orchestrator."""
        self._put_multi_agent(session_id, multi_agent, must_exist=True)

    def _put_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, *, must_exist: bool) -> None:
        state = multi_agent.serialize_state()

        async def put(document: Document | None) -> _Change:
            found = _existing(document, session_id)
            if must_exist and multi_agent.id not in found.multi_agents:
                raise SessionException(
                    f"orchestrator {multi_agent.id!r:.80} in session {session_id!r:.80} does not exist"
                )
            known = {**found.multi_agents, multi_agent.id: state}
            return _Change(replace(found, multi_agents=known, who=None), {})

        self._change(session_id, "multi_agent", put)

    def delete_session(self, session_id: str, **kwargs: Any) -> None:
        """Delete a session with its agents, messages and history."""
        if not PORTAL.run(self._deleted(session_id)):
            raise SessionException(f"session {session_id!r:.80} does not exist")

    async def _deleted(self, session_id: str) -> bool:
        async with self._lock(session_id):
            self._remembered.pop(session_id, None)
            return await self._store.delete(session_id, None, self._namespace)

    def history(self, session_id: str, limit: int | None = 10, before: str | None = None) -> list[SessionPoint]:
        """The points in the history that a session can be read at or forked from, newest first, without messages."""
        return PORTAL.run(self._points(session_id, limit, before))

    async def _points(self, session_id: str, limit: int | None, before: str | None) -> list[SessionPoint]:
        entries = await self._store.history(session_id, limit, before, self._namespace)
        damaged: list[CorruptCheckpointError] = []  # a list to go back in is needed most where something is damaged
        documents = await readable(lambda entry: self._document(session_id, entry.checkpoint_id), entries, damaged)
        found = {entry.checkpoint_id: document for entry, document in documents}
        return [_point(entry, found.get(entry.checkpoint_id)) for entry in entries]

    def rewind(self, session_id: str, checkpoint_id: str) -> None:
        """Continue a session from an earlier point. Later points stay in the history. Make its agents anew."""

        async def turned_back(document: Document | None) -> _Change:
            earlier = await self._document(session_id, checkpoint_id)
            if earlier is None:
                raise CheckpointNotFoundError(f"session {session_id!r:.80} has no checkpoint {checkpoint_id!r:.80}")
            return _Change(earlier, {})

        self._change(session_id, "rewind", turned_back)

    def fork(self, session_id: str, new_session_id: str, checkpoint_id: str | None = None) -> None:
        """Begin a new session from a point in this one, by default the latest: all agents, and the history until then.

        Raises `ConflictError` if the new id is in use.
        """
        PORTAL.run(self._forked(session_id, new_session_id, checkpoint_id))

    async def _forked(self, session_id: str, new_session_id: str, checkpoint_id: str | None) -> None:
        start = checkpoint_id
        if start is None:
            entry = await self._store.entry(session_id, None, self._namespace)
            if entry is None:
                raise SessionException(f"session {session_id!r:.80} does not exist")
            start = entry.checkpoint_id
        if not await self._store.copy(session_id, new_session_id, start, self._namespace):
            raise CheckpointNotFoundError(f"session {session_id!r:.80} has no checkpoint {start!r:.80} to fork from")

    def list_sessions(self, limit: int | None = 100, pattern: str = "*") -> list[str]:
        """The ids of the sessions in this store that match a pattern (`*` any text, `?` one character), in order."""
        return PORTAL.run(session_ids(self._store, self._namespace, limit, pattern))

    async def _end(self) -> None:
        self._remembered.clear()
        await super()._end()

    def _read(self, session_id: str, checkpoint_id: str | None) -> Document | None:
        return PORTAL.run(self._document(session_id, checkpoint_id))

    async def _document(self, session_id: str, checkpoint_id: str | None) -> Document | None:
        return await read_document(self._store, session_id, checkpoint_id, self._namespace)

    async def _tail(self, session_id: str, document: Document, agent_id: str, start: int, count: int) -> Sequence[Any]:
        """Some messages of a session as it was found."""
        if not count:
            return ()
        found = await read_messages(
            self._store, session_id, document.checkpoint_id, self._namespace, agent_id, start, count
        )
        if found is None or len(found[0]) != count:
            raise ConflictError("a checkpoint was removed while it was read; try again")
        return found[0]

    def _lock(self, session_id: str) -> Any:
        """One lock for all repositories on this session: they take turns, and do not race each other."""
        return _locks.current((self._store.engine.identity, session_id, self._namespace))

    def _change(self, session_id: str, name: str, work: _Work) -> None:
        check_ids(session_id, None, self._namespace)
        PORTAL.run(self._changed(session_id, name, work))

    async def _changed(self, session_id: str, name: str, work: _Work) -> None:
        """Work a change out for the latest checkpoint and save it, until no other writer is in between."""
        async with self._lock(session_id):
            for attempt in range(_ATTEMPTS):
                remembered = self._remembered.pop(session_id, None)
                try:
                    document = remembered or await self._document(session_id, None)
                    change = await work(document)
                    if change.document is None:
                        if remembered is None:
                            return
                        continue  # somebody else may have taken back what is remembered
                    saved = await save_document(
                        self._store,
                        session_id,
                        change.document,
                        change.tails,
                        name,
                        self._namespace,
                        if_latest=document.checkpoint_id if document else None,
                    )
                except SessionException:
                    if remembered is None:
                        raise
                    continue  # what is remembered may be older than what is there, so it is found out anew
                except (ConflictError, WindowError):
                    # Another writer was faster, or has removed what this change refers to.
                    if attempt:
                        await _BETWEEN_ATTEMPTS.pause(attempt)
                    continue
                self._remember(session_id, saved)
                return
        raise ConflictError(
            f"session {session_id!r:.80} is changed by others faster than this change can follow; try again"
        )

    def _remember(self, session_id: str, document: Document) -> None:
        self._remembered[session_id] = document
        if len(self._remembered) > _MOST_REMEMBERED:
            self._remembered.popitem(last=False)


def _plain(session: Mapping[str, Any]) -> dict[str, Any]:
    """A session as JSON: the SDK leaves the kind of a session as an enum."""
    return {**session, "session_type": str(getattr(session["session_type"], "value", session["session_type"]))}


def _existing(document: Document | None, session_id: str) -> Document:
    if document is None:
        raise SessionException(f"session {session_id!r:.80} does not exist: create it first")
    return document


def _with_known(document: Document | None, session_id: str, agent_id: str) -> Document:
    """A session that has the agent."""
    found = _existing(document, session_id)
    if agent_id not in found.agents:
        raise SessionException(f"agent {agent_id!r:.80} in session {session_id!r:.80} does not exist")
    return found


def _with_agent(document: Document, agent_id: str, data: Mapping[str, Any], ids: Sequence[int]) -> Document:
    agents, every = {**document.agents, agent_id: data}, {**document.ids, agent_id: ids}
    return replace(document, agents=agents, ids=every, who=None)


def _checked_id(message_id: object) -> int:
    if not isinstance(message_id, int) or isinstance(message_id, bool) or abs(message_id) > _LARGEST_ID:
        raise ValueError(f"message_id must be an integer of at most 53 bits, got {message_id!r:.40}")
    return message_id


def _is_repeated(kept: Mapping[str, Any], sent: Mapping[str, Any]) -> bool:
    """Whether a message that is sent is the one that is kept.

    Strands stamps a message with new times whenever it makes one to send, so they tell nothing. If the kept one was
    redacted since, what is sent again does not know of it.
    """
    if canonical(kept["message"]) != canonical(sent["message"]):
        return False
    redacted = sent["redact_message"]
    return redacted is None or canonical(kept["redact_message"]) == canonical(redacted)


def _point(entry: Entry, document: Document | None) -> SessionPoint:
    """A point in the history. What is no session, or is damaged, has no messages that could be counted."""
    if document is None:
        return SessionPoint(entry.checkpoint_id, entry.parent_id, entry.created_at, None, "")
    count, change = sum(document.counts.values()), change_of(entry.metadata)
    return SessionPoint(entry.checkpoint_id, entry.parent_id, entry.created_at, count, change)
