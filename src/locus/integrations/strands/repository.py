"""`LocusSessionRepository`: the sessions of Strands' `RepositorySessionManager` on every backend.

A session is the namespace `strands` of the thread with its id; `document` describes its payload. Every call that
changes something is one checkpoint, written only if the session is still as the call found it, so a message never takes
the place of another one, whatever processes do at the same time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from strands.session import SessionRepository
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage

from locus.errors import CheckpointNotFoundError, ConflictError, CorruptCheckpointError
from locus.integrations.strands.document import (
    MESSAGE,
    StoredSession,
    change_of,
    is_list_name,
    list_name,
    message_at,
    new_session,
    position_of,
    stored_message,
    stored_session,
    with_id,
)
from locus.threads import (
    BlockingStoreUser,
    Change,
    Document,
    Entry,
    ItemPage,
    Kept,
    SessionPoint,
    Version,
    metadata_of,
    readable,
    session_ids,
)
from locus.threads.json import canonical
from locus.threads.limits import MOST

if TYPE_CHECKING:
    from strands.multiagent import MultiAgentBase

__all__ = ["NAMESPACE", "LocusSessionRepository", "SessionPoint"]

NAMESPACE: Final = "strands"
"""The namespace of sessions. For a store without namespaces, pass `namespace="default"`."""

_OWN_OPTIONS = ("namespace",)
_LARGEST_ID = MOST

_Changed = tuple[StoredSession, Mapping[str, Kept]]
"""A session as a call leaves it, and those of its lists that the call changes."""
_Work = Callable[[StoredSession | None], Awaitable[_Changed | None]]
"""What a call makes of a session; None: nothing is to be changed."""


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

    def _closed_error(self, name: str) -> Exception:
        return SessionException(f"this repository is closed: make a new {name}")

    def create_session(self, session: Session, **kwargs: Any) -> Session:
        """Create a session."""

        async def created(known: StoredSession | None) -> _Changed:
            if known is not None:
                raise SessionException(f"session {session.session_id!r:.80} already exists")
            return new_session(_plain(session.to_dict())), {}

        self._change(session.session_id, "session", created)
        return session

    def read_session(self, session_id: str, *, checkpoint_id: str | None = None, **kwargs: Any) -> Session | None:
        """A session, as of a checkpoint or of the latest; None if there is none."""
        known = self._read(session_id, checkpoint_id)
        # A fork has the data of the session that it comes from.
        return None if known is None else Session.from_dict({**known.session, "session_id": session_id})

    def create_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """Create an agent in a session. One that exists keeps its messages, and gets this state."""
        agent_id, data = session_agent.agent_id, session_agent.to_dict()

        async def created(known: StoredSession | None) -> _Changed:
            session = _existing(known, session_id)
            return session.with_agent(agent_id, data), {} if agent_id in session.agents else {
                list_name(agent_id): Kept(0)
            }

        self._change(session_id, "agent", created)

    def read_agent(
        self, session_id: str, agent_id: str, *, checkpoint_id: str | None = None, **kwargs: Any
    ) -> SessionAgent | None:
        """An agent, as of a checkpoint or of the latest; None if there is none."""
        known = self._read(session_id, checkpoint_id)
        if known is None or agent_id not in known.agents:
            return None
        return SessionAgent.from_dict(dict(known.agents[agent_id]))

    def update_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """Replace the state of an agent."""

        async def updated(known: StoredSession | None) -> _Changed:
            session, agent_id = _with_known(known, session_id, session_agent.agent_id), session_agent.agent_id
            session_agent.created_at = session.agents[agent_id]["created_at"]
            return session.with_agent(agent_id, session_agent.to_dict()), {}

        self._change(session_id, "state", updated)

    def create_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        """Add a message to an agent. An id in use is refused, unless the message is the same: then nothing is done.

        The same message under a new id is another one, as for Strands: an agent may say the same thing twice.
        """
        number, data = _checked_id(session_message.message_id), session_message.to_dict()

        async def added(known: StoredSession | None) -> _Changed | None:
            session = _with_known(known, session_id, agent_id)
            ids, name = session.ids_of(agent_id), list_name(agent_id)
            there = position_of(ids, number)
            if there is not None:
                (kept,) = await self._messages(session_id, session, agent_id, there, 1)
                if _is_repeated(message_at(kept, there), data):
                    return None
                raise SessionException(
                    f"message {number} of agent {agent_id!r:.80} exists already, with other content: nothing was "
                    "written. Another process has gone on with this session; make the agent anew to continue from there"
                )
            at, ids = with_id(ids, number)
            behind = await self._messages(session_id, session, agent_id, at, session.counts[name] - at)
            moved = [stored_message(message_at(item, place), place + 1) for place, item in enumerate(behind, at)]
            return session.with_ids(agent_id, ids), {name: Kept(at, [stored_message(data, at), *moved], behind)}

        self._change(session_id, MESSAGE, added)

    def read_message(
        self, session_id: str, agent_id: str, message_id: int, *, checkpoint_id: str | None = None, **kwargs: Any
    ) -> SessionMessage | None:
        """A message, as of a checkpoint or of the latest; None if there is none."""
        number = _checked_id(message_id)

        async def work() -> Any:
            session = await self._session(session_id, checkpoint_id)
            if session is None or agent_id not in session.agents:
                return None
            at = position_of(session.ids_of(agent_id), number)
            if at is None:
                return None
            (item,) = await self._messages(session_id, session, agent_id, at, 1)
            return message_at(item, at)

        data = self._run(work())
        return None if data is None else SessionMessage.from_dict(data)

    def update_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        """Replace the message with this id. Earlier points in the history keep the old one."""
        number = _checked_id(session_message.message_id)

        async def updated(known: StoredSession | None) -> _Changed:
            session, name = _with_known(known, session_id, agent_id), list_name(agent_id)
            at = position_of(session.ids_of(agent_id), number)
            if at is None:
                raise SessionException(f"message {number} of agent {agent_id!r:.80} does not exist")
            behind = await self._messages(session_id, session, agent_id, at, session.counts[name] - at)
            session_message.created_at = message_at(behind[0], at)["created_at"]
            return session, {name: Kept(at, [stored_message(session_message.to_dict(), at), *behind[1:]], behind)}

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
        page = self._run(self._page(session_id, checkpoint_id, agent_id, offset, MOST if limit is None else limit))
        if page is None:
            raise SessionException(f"agent {agent_id!r:.80} in session {session_id!r:.80} does not exist")
        return [SessionMessage.from_dict(message_at(item, place)) for place, item in enumerate(page.items, page.start)]

    def create_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any) -> None:
        """Keep the state of an orchestrator: a graph or a swarm."""
        self._put_multi_agent(session_id, multi_agent, must_exist=False)

    def read_multi_agent(
        self, session_id: str, multi_agent_id: str, *, checkpoint_id: str | None = None, **kwargs: Any
    ) -> dict[str, Any] | None:
        """The state of an orchestrator, as of a checkpoint or of the latest; None if there is none."""
        session = self._read(session_id, checkpoint_id)
        return None if session is None else session.multi_agents.get(multi_agent_id)

    def update_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any) -> None:
        """Replace the state of an orchestrator."""
        self._put_multi_agent(session_id, multi_agent, must_exist=True)

    def _put_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, *, must_exist: bool) -> None:
        state = multi_agent.serialize_state()

        async def put(known: StoredSession | None) -> _Changed:
            session = _existing(known, session_id)
            if must_exist and multi_agent.id not in session.multi_agents:
                raise SessionException(
                    f"orchestrator {multi_agent.id!r:.80} in session {session_id!r:.80} does not exist"
                )
            return session.with_multi_agent(multi_agent.id, state), {}

        self._change(session_id, "multi_agent", put)

    def delete_session(self, session_id: str, **kwargs: Any) -> None:
        """Delete a session with its agents, messages and history."""
        if not self._run(self._document(session_id).delete()):
            raise SessionException(f"session {session_id!r:.80} does not exist")

    def history(self, session_id: str, limit: int | None = 10, before: str | None = None) -> list[SessionPoint]:
        """The points in the history that a session can be read at or forked from, newest first, without messages."""
        return self._run(self._points(session_id, limit, before))

    async def _points(self, session_id: str, limit: int | None, before: str | None) -> list[SessionPoint]:
        entries = await self._store.history(session_id, self._namespace, limit, before)
        damaged: list[CorruptCheckpointError] = []  # a list to go back in is needed most where something is damaged
        sessions = await readable(lambda entry: self._session(session_id, entry.checkpoint_id), entries, damaged)
        by_id = {entry.checkpoint_id: session for entry, session in sessions}
        return [_point(entry, by_id.get(entry.checkpoint_id)) for entry in entries]

    def rewind(self, session_id: str, checkpoint_id: str) -> None:
        """Continue a session from an earlier point. Later points stay in the history. Make its agents anew."""

        async def turned_back(_known: StoredSession | None) -> _Changed:
            earlier = await self._session(session_id, checkpoint_id)
            if earlier is None:
                raise CheckpointNotFoundError(f"session {session_id!r:.80} has no checkpoint {checkpoint_id!r:.80}")
            return earlier, {}

        self._change(session_id, "rewind", turned_back)

    def fork(self, session_id: str, new_session_id: str, checkpoint_id: str | None = None) -> None:
        """Begin a new session from a point in this one, by default the latest: all agents, and the history until then.

        Raises `ConflictError` if the new id is in use.
        """
        if self._run(self._store.fork(session_id, new_session_id, self._namespace, checkpoint_id)):
            return
        if checkpoint_id is None:
            raise SessionException(f"session {session_id!r:.80} does not exist")
        raise CheckpointNotFoundError(
            f"session {session_id!r:.80} has no checkpoint {checkpoint_id!r:.80} to fork from"
        )

    def list_sessions(self, limit: int | None = 100, pattern: str = "*") -> list[str]:
        """The ids of the sessions in this store that match a pattern (`*` any text, `?` one character), in order."""
        return self._run(session_ids(self._store, self._namespace, limit, pattern))

    def _document(self, session_id: str) -> Document:
        return self._store.document(session_id, self._namespace, is_list_name)

    def _read(self, session_id: str, checkpoint_id: str | None) -> StoredSession | None:
        return self._run(self._session(session_id, checkpoint_id))

    async def _session(self, session_id: str, checkpoint_id: str | None) -> StoredSession | None:
        version = await self._document(session_id).read(checkpoint_id, newest=0)
        return None if version is None else stored_session(version)

    async def _page(
        self, session_id: str, checkpoint_id: str | None, agent_id: str, start: int, count: int
    ) -> ItemPage | None:
        """Some stored messages of an agent; None if the session or the agent does not exist."""
        document = self._document(session_id)
        return await document.items(list_name(agent_id), start, count, checkpoint_id=checkpoint_id)

    async def _messages(
        self, session_id: str, session: StoredSession, agent_id: str, start: int, count: int
    ) -> Sequence[Any]:
        """Some messages of a session that was just read."""
        if not count:
            return ()
        page = await self._page(session_id, session.checkpoint_id, agent_id, start, count)
        if page is None or len(page.items) != count:
            raise ConflictError("a checkpoint was removed while it was read; try again")
        return page.items

    def _change(self, session_id: str, name: str, work: _Work) -> None:
        async def work_out(version: Version | None) -> Change | None:
            changed = await work(None if version is None else stored_session(version))
            return None if changed is None else changed[0].change(name, changed[1])

        self._run(self._document(session_id).change(work_out))


def _plain(session: Mapping[str, Any]) -> dict[str, Any]:
    """A session as JSON: the SDK leaves the kind of a session as an enum."""
    return {**session, "session_type": str(getattr(session["session_type"], "value", session["session_type"]))}


def _existing(session: StoredSession | None, session_id: str) -> StoredSession:
    if session is None:
        raise SessionException(f"session {session_id!r:.80} does not exist: create it first")
    return session


def _with_known(session: StoredSession | None, session_id: str, agent_id: str) -> StoredSession:
    """The session, if it has this agent; otherwise raises."""
    session = _existing(session, session_id)
    if agent_id not in session.agents:
        raise SessionException(f"agent {agent_id!r:.80} in session {session_id!r:.80} does not exist")
    return session


def _checked_id(message_id: object) -> int:
    if not isinstance(message_id, int) or isinstance(message_id, bool) or abs(message_id) > _LARGEST_ID:
        raise ValueError(f"message_id must be an integer of at most 53 bits, got {message_id!r:.40}")
    return message_id


def _is_repeated(kept: Mapping[str, Any], sent: Mapping[str, Any]) -> bool:
    """Whether a sent message repeats the stored one that has its id.

    Strands stamps a message with new times whenever it makes one to send, so they tell nothing. If the kept one was
    redacted since, what is sent again does not know of it.
    """
    if canonical(kept["message"]) != canonical(sent["message"]):
        return False
    redacted = sent["redact_message"]
    return redacted is None or canonical(kept["redact_message"]) == canonical(redacted)


def _point(entry: Entry, session: StoredSession | None) -> SessionPoint:
    """A point in the history. It has no count of messages if the checkpoint cannot be read."""
    if session is None:
        return SessionPoint(entry.checkpoint_id, entry.parent_id, entry.created_at, None, "")
    count, change = sum(session.counts.values()), change_of(metadata_of(entry))
    return SessionPoint(entry.checkpoint_id, entry.parent_id, entry.created_at, count, change)
