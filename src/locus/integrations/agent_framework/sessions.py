"""Sessions of agents: the content of an `AgentSession` besides its messages, with a checkpoint for each change.

A session is the namespace `agent-framework-session` of the thread with its id. Its payload is what the framework makes
of it, `AgentSession.to_dict()`. So long lists in it, such as the messages of `InMemoryHistoryProvider`, are stored
once.

A session knows which checkpoint it was loaded from or last saved as, and is saved only if that is still the latest one.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from agent_framework import AgentSession, SessionStore
from agent_framework._feature_stage import ExperimentalWarning

from locus.errors import CheckpointNotFoundError, CorruptCheckpointError
from locus.integrations.agent_framework.owned import OwnedStore
from locus.threads import ANY, SessionPoint, session_ids, session_points
from locus.threads.ids import shown_thread

NAMESPACE = "agent-framework-session"
"""The namespace of sessions. For a store without namespaces, pass `namespace="default"`."""

_REVISIONS = "_locus_revisions"
"""The attribute of a session that says which checkpoint it is, in which store. A copy of the session has it too."""

_Place = tuple[str, str, str]

with warnings.catch_warnings():
    # Whoever imports this has chosen it, and the page about it says that the framework calls it experimental.
    warnings.simplefilter("ignore", ExperimentalWarning)

    class _SessionStore(SessionStore):
        """The framework's class, without its warning."""


class LocusAgentSessionStore(OwnedStore, _SessionStore):
    """A session store of the framework in a Locus store.

    `store` is a checkpointer, a storage backend, or a name or URL with its `options` (`"sqlite:agents.db"`,
    `"https://…", token="…"`).
    """

    def __init__(self, store: Any, *, namespace: str = NAMESPACE, **options: Any) -> None:
        _SessionStore.__init__(self)
        self.namespace = namespace
        self._open(store, options, ("namespace",))

    async def get(self, session_id: str, *, checkpoint_id: str | None = None) -> AgentSession | None:
        """A session as it is now, or as it was at a checkpoint; None if there is none under this id."""
        self.validate_session_id(session_id)
        document = self._store.document(session_id, self.namespace)
        version = await document.read(checkpoint_id)
        if version is None:
            if checkpoint_id is not None:
                raise await self._store.not_found(session_id, self.namespace, checkpoint_id)
            return None
        if checkpoint_id is None:
            document.remember(version)
        session = _restored(session_id, version.fields)
        self._remember(session, session_id, version.checkpoint_id)
        return session

    async def set(self, session_id: str, session: AgentSession, *, replace: bool = False) -> None:
        """Keep a session under an id.

        If another writer has saved it since it was loaded, `ConflictError` is raised, and nothing is written. The same
        goes for a session that was not loaded, if there is one under this id. With `replace` it is saved in any case;
        what was there stays in the history.
        """
        self.validate_session_id(session_id)
        if type(session) is not AgentSession:
            raise TypeError(
                f"an AgentSession is kept, got {type(session).__name__}: a class of your own could not be restored"
            )
        data = session.to_dict()
        if isinstance(data["service_session_id"], Mapping):
            data["service_session_id"] = dict(data["service_session_id"])
        revision, document = self._revision(session, session_id), self._store.document(session_id, self.namespace)
        saved = await document.save(data, after=document.remembered(revision), if_latest=ANY if replace else revision)
        self._remember(session, session_id, saved.checkpoint_id)

    async def delete(self, session_id: str) -> None:
        """Delete a session, and its history. The messages of a `LocusHistoryProvider` are not part of it."""
        self.validate_session_id(session_id)
        await self._store.delete(session_id, self.namespace)

    async def newest(self, session_id: str, limit: int, *path: str) -> list[Any]:
        """The newest items of a list in a session's state, as stored. The rest of the session is not read.

        Without a path, they are the messages of `InMemoryHistoryProvider`: its list is `in_memory`, `messages`.
        """
        document = self._store.document(session_id, self.namespace)
        page = await document.items(("state", *(path or ("in_memory", "messages"))), -limit, limit)
        return [] if page is None else page.items

    async def history(self, session_id: str, limit: int | None = 10, before: str | None = None) -> list[SessionPoint]:
        """The points in a session's history that it can be loaded at or forked from, newest first."""
        return await session_points(self._store, session_id, self.namespace, limit, before)

    async def fork(self, session_id: str, new_session_id: str, checkpoint_id: str | None = None) -> AgentSession:
        """A new session that begins with the content of another, now or at a checkpoint. Its history is its own.

        Raises `ConflictError` if the new id is in use, and `CheckpointNotFoundError` if there is no such session.
        """
        session = await self.get(session_id, checkpoint_id=checkpoint_id)
        if session is None:
            raise CheckpointNotFoundError(f"there is no session {session_id!r} to fork")
        # Its own id is where other providers keep what belongs to it, so it goes with the new one.
        name = new_session_id if session.session_id == session_id else session.session_id
        forked = AgentSession(session_id=name, service_session_id=session.service_session_id)
        forked.state = session.state
        await self.set(new_session_id, forked)
        await self._store.note_origin(new_session_id, session_id, self.namespace, checkpoint_id)
        return forked

    async def rewind(self, session_id: str, checkpoint_id: str) -> AgentSession:
        """Go on from an earlier point of a session. What came after it stays in the history.

        Raises `ConflictError` if another writer saves it meanwhile.
        """
        self.validate_session_id(session_id)
        document = self._store.document(session_id, self.namespace)
        latest = await self._store.entry(session_id, self.namespace)
        earlier = await document.read(checkpoint_id)
        if latest is None or earlier is None:
            raise await self._store.not_found(session_id, self.namespace, checkpoint_id)
        session = _restored(session_id, earlier.fields)
        saved = await document.save(earlier.fields, parent=checkpoint_id, if_latest=latest.checkpoint_id)
        self._remember(session, session_id, saved.checkpoint_id)
        return session

    async def list_sessions(self, limit: int | None = 100, pattern: str = "*") -> list[str]:
        """The ids of sessions that match a pattern (`*` any text, `?` one character)."""
        return await session_ids(self._store, self.namespace, limit, pattern)

    def _place(self, session_id: str) -> _Place:
        return self._store.identity, self.namespace, session_id

    def _revision(self, session: AgentSession, session_id: str) -> str | None:
        revisions: Mapping[_Place, str] = getattr(session, _REVISIONS, {})
        return revisions.get(self._place(session_id))

    def _remember(self, session: AgentSession, session_id: str, revision: str) -> None:
        """Note the revision of a session in a new mapping, so that a shallow copy of the session is not affected."""
        known: Mapping[_Place, str] = getattr(session, _REVISIONS, {})
        setattr(session, _REVISIONS, {**known, self._place(session_id): revision})


def _restored(session_id: str, fields: Mapping[str, Any]) -> AgentSession:
    """A session as the framework restores it. The framework's own errors would show its content."""
    named, state = fields.get("session_id"), fields.get("state")
    if not isinstance(named, str) or not named or not isinstance(state, dict):
        raise CorruptCheckpointError(
            f"{shown_thread(session_id)} holds something that is no session of the Agent Framework: something else "
            "uses it. Use another id, or another namespace"
        )
    try:
        return AgentSession.from_dict(dict(fields))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptCheckpointError(
            f"the session of {shown_thread(session_id)} cannot be restored by the Agent Framework "
            f"({type(error).__name__}): is every type in its state registered with register_state_type?"
        ) from None
