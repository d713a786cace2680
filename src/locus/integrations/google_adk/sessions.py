"""`LocusSessionService`: the sessions of ADK in a Locus store, with their whole history.

A session is a log of events (see `locus.threads.ItemLog`), with its state in a field beside them. So an event and what
it does to the state of the session are one checkpoint, and the id of the newest one is what ADK calls the revision
marker of a session: whoever appends names the checkpoint that he has seen, and is refused if there is a newer one. No
clock has a part in that. State with the prefix `user:` or `app:` is kept by `shared_state`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.platform import time as platform_time
from google.adk.platform import uuid as platform_uuid
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session
from google.adk.sessions.state import State
from pydantic import ValidationError
from typing_extensions import override

from locus.errors import CheckpointNotFoundError, ConflictError, CorruptCheckpointError
from locus.integrations.google_adk import NAMESPACE
from locus.integrations.google_adk.names import thread_of
from locus.integrations.google_adk.shared_state import SharedState, SharedStates
from locus.threads import AsyncStoreUser, ItemLog, LogView, SessionPoint, readable, session_points, warn_of_damage
from locus.threads.ids import parted, shown_thread
from locus.threads.json import encode_trusted

__all__ = ["LocusSessionService", "SessionPoint"]

_STATE: Final = "state"
_UPDATED: Final = "last_update_time"
"""The field with the time of a session that has no events yet."""
_SHARED: Final = "shared"
"""The field with what the newest event changes in the state of the user and of the app."""
_HELD: Final = 64
"""How many sessions a service remembers, so that the next event is appended without reading anything."""
_NEWEST: Final = 32
"""How many events are looked at for one that is sent again: an append must not cost more in a long session."""
_ATTEMPTS: Final = 8
_USUAL: Final = Event().model_dump(mode="json", exclude_none=True, include={"actions", "node_info"})
"""What every event has in these fields. It is not stored."""
_STALE: Final = (
    "the session was changed in the store since it was loaded; nothing was written. Load it again before you append"
)
_NOT_FOUND: Final = "the session is not in the store: it was deleted, or never created"

S = TypeVar("S")
T = TypeVar("T")


class StateDelta(NamedTuple):
    """A change of state by scope, without the prefixes of keys. Keys with `temp:` are left out."""

    session: dict[str, Any]
    user: dict[str, Any]
    app: dict[str, Any]

    @classmethod
    def of(cls, delta: dict[str, Any]) -> StateDelta:
        parts = cls({}, {}, {})
        for key, value in delta.items():
            if key.startswith(State.APP_PREFIX):
                parts.app[key.removeprefix(State.APP_PREFIX)] = value
            elif key.startswith(State.USER_PREFIX):
                parts.user[key.removeprefix(State.USER_PREFIX)] = value
            elif not key.startswith(State.TEMP_PREFIX):
                parts.session[key] = value
        return parts

    @property
    def shared(self) -> dict[str, dict[str, Any]]:
        """The field of a session that lists changes of user and app state; empty if there are none."""
        parts = {name: part for name, part in (("user", self.user), ("app", self.app)) if part}
        return {_SHARED: parts} if parts else {}


@dataclass(slots=True)
class _HeldSession:
    """The part of a session that a service holds in memory, as of a checkpoint."""

    log: ItemLog
    checkpoint_id: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    newest: Any = None
    """The newest event."""

    def remember(self, checkpoint_id: str, fields: dict[str, Any], newest: Sequence[Any]) -> None:
        self.checkpoint_id, self.fields, self.newest = checkpoint_id, fields, newest[-1] if newest else None

    def forget(self) -> None:
        self.checkpoint_id, self.fields, self.newest = None, {}, None


class LocusSessionService(AsyncStoreUser, BaseSessionService):
    """The sessions of ADK in a Locus store.

    `store` is a checkpointer, a storage backend, or a name or URL with its `options` (`"sqlite:agents.db"`,
    `"https://…", token="…"`). `close` closes a store that the service has opened by name, and leaves others open.
    """

    def __init__(self, store: Any, *, namespace: str = NAMESPACE, **options: Any) -> None:
        self._open(store, options, ("namespace",))
        self._namespace = namespace
        self._states = SharedStates(self._store, namespace)
        self._held = lru_cache(maxsize=_HELD)(self._hold)

    def _hold(self, thread_id: str) -> _HeldSession:
        return _HeldSession(self._store.log(thread_id, self._namespace))

    @override
    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session. `AlreadyExistsError` if there is one with this id."""
        session_id = session_id or platform_uuid.new_uuid()
        # As for an event: what JSON cannot hold is written as ADK writes it.
        delta = StateDelta.of(EventActions(state_delta=state or {}).model_dump(mode="json")["state_delta"])
        now = platform_time.get_time()
        fields = _fields(delta.session, delta) | {_UPDATED: now}
        held = self._held(thread_of(app_name, user_id, session_id))
        try:
            created = await held.log.put([], fields, if_latest=None, change="create")
        except ConflictError:
            raise AlreadyExistsError("a session with this id exists already") from None
        await self._change_shared(app_name, user_id, delta, created)
        held.remember(created, fields, [])
        user, app = await self._shared_states(app_name, user_id)
        return _session((app_name, user_id, session_id), created, fields, now, [], user, app)

    @override
    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
        at: str | None = None,
    ) -> Session | None:
        """A session with its events; None if there is none. `config` may limit the events that are read.

        `at` is a checkpoint of `history`: the session as it was then, with the state of the user and of the app as it
        is now. Nothing can be appended to it; `fork_session` makes one that goes on from there.
        """
        held = self._held(thread_of(app_name, user_id, session_id))
        limit = None if config is None else config.num_recent_events
        after = None if config is None else config.after_timestamp
        most = None if after or limit is None else max(limit, 1)  # the newest event is good to know
        view, (user, app) = await _both(held.log.view(most, at), self._shared_states(app_name, user_id))
        if view is None:
            return None
        if at is None:
            user, app = await self._completed(app_name, user_id, view, user, app)
            held.remember(view.entry.checkpoint_id, _checked(view), view.items)
        events = [_event(item, view) for item in view.items] if limit != 0 else []
        if after:
            events = [event for event in events if event.timestamp >= after]
        if limit:
            events = events[-limit:]
        names = (app_name, user_id, session_id)
        return _session(names, view.entry.checkpoint_id, _checked(view), _updated(view), events, user, app)

    @override
    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """The sessions of a user, or of all users of an app, without events. The last active one comes last.

        Damaged ones are left out with a `DamagedThreadsWarning`, and so are those of users whose state is damaged,
        unless the user is named.
        """
        prefix = f"{thread_of(app_name, user_id)}/"
        threads = [one for one in await self._store.list_threads(prefix=prefix) if len(parted(one)) == 3]
        damaged: list[CorruptCheckpointError] = []
        views = await readable(self._listed, threads, damaged)
        named_views = [(parted(one), view) for one, view in views if view is not None]
        users = sorted({names[1] for names, _ in named_views})
        without_state: list[CorruptCheckpointError] = []
        states = dict(await readable(lambda one: self._states.read(thread_of(app_name, one)), users, without_state))
        if user_id is not None and without_state:
            raise without_state[0]
        app = await self._states.read(thread_of(app_name)) if named_views else _NO_STATE
        sessions = [
            _session(names, view.entry.checkpoint_id, view.fields, _updated(view), [], states[names[1]], app)
            for names, view in named_views
            if names[1] in states
        ]
        warn_of_damage([*damaged, *without_state])
        sessions.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=sessions)

    async def _listed(self, thread_id: str) -> LogView | None:
        """The session in a thread, without its events; None if the thread holds something else."""
        view = await self._store.log(thread_id, self._namespace).view(1)
        if view is not None:
            _checked(view)
            _updated(view)
        return view

    @override
    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session with its history. Its artifacts stay, and so does the state of its user."""
        thread_id = thread_of(app_name, user_id, session_id)
        held = self._held(thread_id)
        held.forget()
        await held.log.delete()

    @override
    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """The state of a user, without the prefix `user:`."""
        return (await self._states.read(thread_of(app_name, user_id))).state

    @override
    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event, and apply its changes of state.

        `StaleSessionError` if the session was changed in the store since it was loaded, and `SessionNotFoundError` if
        it is gone; nothing was written then. An event that is among the newest already is not appended again.
        """
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        item = _item(event)
        thread_id = thread_of(session.app_name, session.user_id, session.id)
        # The tasks of a run share one session object: each has to see the marker that the one before it has left.
        async with self._store.document(thread_id, self._namespace).lock():
            if any(known == event for known in session.events[-_NEWEST:] if known.id == event.id):
                return event
            marker, updated = await self._append(self._held(thread_id), session, item)
            session._storage_update_marker = marker
            session.last_update_time = updated
            return self._commit_event_to_session(session, event)

    async def _append(self, held: _HeldSession, session: Session, item: dict[str, Any]) -> tuple[str, float]:
        """Append an event. Returns the new checkpoint, and the time of the session then."""
        delta = StateDelta.of(item.get("actions", {}).get("state_delta", {}))
        marker = session._storage_update_marker
        for _ in range(_ATTEMPTS):
            before = marker
            if marker is None or marker != held.checkpoint_id:
                view = await held.log.view(1)
                if view is None:
                    raise SessionNotFoundError(_NOT_FOUND)
                await self._completed(session.app_name, session.user_id, view)
                held.remember(view.entry.checkpoint_id, _checked(view), view.items)
                before = view.entry.parent_id
            latest = held.checkpoint_id
            assert latest is not None
            if held.newest == item and marker in (None, latest, before):
                return latest, item["timestamp"]  # it is stored already, and perhaps the answer got lost
            if marker != latest and (marker is not None or not _is_newest(session, held.newest)):
                raise StaleSessionError(_STALE)
            fields = _fields(held.fields.get(_STATE, {}) | delta.session, delta)
            try:
                stored = await held.log.put([item], fields, if_latest=latest)
            except ConflictError:
                held.forget()
                continue
            held.forget()  # until all of it is stored
            await self._change_shared(session.app_name, session.user_id, delta, stored)
            held.remember(stored, fields, [item])
            return stored, item["timestamp"]
        raise StaleSessionError(_STALE)

    async def history(
        self, *, app_name: str, user_id: str, session_id: str, limit: int | None = 10, before: str | None = None
    ) -> list[SessionPoint]:
        """The points in the history that a session can be read at or forked from, newest first, without events."""
        thread_id = thread_of(app_name, user_id, session_id)
        return await session_points(self._store, thread_id, self._namespace, limit, before)

    async def fork_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        new_session_id: str | None = None,
        at: str | None = None,
    ) -> Session:
        """A new session of the same user that goes on from a checkpoint of this one, by default the latest.

        Both have the state of the user and of the app; artifacts of the session stay with it. `SessionNotFoundError`
        if there is no such session, `CheckpointNotFoundError` if it does not have the checkpoint, and
        `AlreadyExistsError` if the new id is in use.
        """
        source = thread_of(app_name, user_id, session_id)
        new_session_id = new_session_id or platform_uuid.new_uuid()
        target = thread_of(app_name, user_id, new_session_id)
        try:
            copied = await self._store.fork(source, target, self._namespace, at or None)
        except ConflictError:
            raise AlreadyExistsError("a session with the new id exists already") from None
        if not copied and at:
            raise CheckpointNotFoundError(f"the session has no checkpoint {at!r:.80} to fork from")
        if not copied:
            raise SessionNotFoundError(_NOT_FOUND)
        self._held(target).forget()
        forked = await self.get_session(app_name=app_name, user_id=user_id, session_id=new_session_id)
        if forked is None:
            raise SessionNotFoundError(_NOT_FOUND)
        return forked

    async def rewind_session(self, *, app_name: str, user_id: str, session_id: str, at: str) -> Session:
        """Continue a session from an earlier checkpoint, with its events and its state.

        What came after it stays in the history. The state of the user and of the app, and artifacts, stay as they are.
        """
        held = self._held(thread_of(app_name, user_id, session_id))
        for _ in range(_ATTEMPTS):
            earlier, latest = await held.log.view(0, at), await held.log.view(0)
            if earlier is None or latest is None:
                raise SessionNotFoundError(_NOT_FOUND)
            await self._completed(app_name, user_id, latest)
            fields = {name: value for name, value in _checked(earlier).items() if name != _SHARED}
            try:
                await held.log.put([], fields, if_latest=latest.entry.checkpoint_id, after=at, change="rewind")
            except ConflictError:
                continue
            held.forget()
            found = await self.get_session(app_name=app_name, user_id=user_id, session_id=session_id)
            if found is None:
                raise SessionNotFoundError(_NOT_FOUND)
            return found
        raise ConflictError("the session is changed by others faster than it can be rewound; try again")

    async def _end(self) -> None:
        self._held.cache_clear()
        await super()._end()

    async def _shared_states(self, app_name: str, user_id: str) -> tuple[SharedState, SharedState]:
        return await _both(self._states.read(thread_of(app_name, user_id)), self._states.read(thread_of(app_name)))

    async def _change_shared(self, app_name: str, user_id: str, delta: StateDelta, checkpoint_id: str) -> None:
        await self._states.change(thread_of(app_name, user_id), delta.user, checkpoint_id)
        await self._states.change(thread_of(app_name), delta.app, checkpoint_id)

    async def _completed(
        self,
        app_name: str,
        user_id: str,
        view: LogView,
        user: SharedState | None = None,
        app: SharedState | None = None,
    ) -> tuple[SharedState, SharedState]:
        """The states of the user and of the app, after completing the changes of a session's newest event."""
        parts, checkpoint_id, at = _checked(view).get(_SHARED, {}), view.entry.checkpoint_id, view.entry.created_at
        if user is None or app is None:
            user, app = await self._shared_states(app_name, user_id) if parts else (_NO_STATE, _NO_STATE)
        user_thread, app_thread, time = thread_of(app_name, user_id), thread_of(app_name), at.timestamp()
        user = await self._states.complete(user_thread, parts.get("user", {}), checkpoint_id, time, user)
        app = await self._states.complete(app_thread, parts.get("app", {}), checkpoint_id, time, app)
        return user, app


_NO_STATE: Final = SharedState({}, {})


def _fields(state: dict[str, Any], delta: StateDelta) -> dict[str, Any]:
    """The fields of a session after a change. Empty ones are left out, to keep each checkpoint small."""
    return {**({_STATE: state} if state else {}), **delta.shared}


def _session(
    names: tuple[str, ...],
    checkpoint_id: str,
    fields: dict[str, Any],
    updated: float,
    events: list[Event],
    user: SharedState,
    app: SharedState,
) -> Session:
    """A new session object with its own state, and that of its user and app. Callers may change it."""
    state = deepcopy(fields.get(_STATE, {}))
    state.update({f"{State.APP_PREFIX}{key}": deepcopy(value) for key, value in app.state.items()})
    state.update({f"{State.USER_PREFIX}{key}": deepcopy(value) for key, value in user.state.items()})
    app_name, user_id, session_id = names
    session = Session(
        id=session_id, app_name=app_name, user_id=user_id, state=state, events=events, last_update_time=updated
    )
    session._storage_update_marker = checkpoint_id
    return session


def _checked(view: LogView) -> dict[str, Any]:
    """The fields of a session as it was read. Raises if they are not those of a session."""
    fields = view.fields
    shared = fields.get(_SHARED, {})
    if (
        isinstance(fields.get(_STATE, {}), dict)
        and isinstance(shared, dict)
        and all(isinstance(part, dict) for part in shared.values())
    ):
        return fields
    raise _no_session(view)


def _updated(view: LogView) -> float:
    """The time of a session's last change: of its newest event, or of its creation."""
    newest = view.items[-1] if view.items else None
    found = view.fields.get(_UPDATED) if newest is None else isinstance(newest, dict) and newest.get("timestamp")
    if isinstance(found, int | float) and not isinstance(found, bool):
        return found
    raise _no_session(view)


def _no_session(view: LogView) -> CorruptCheckpointError:
    return CorruptCheckpointError(f"{shown_thread(view.entry.thread_id)} does not hold a session of ADK")


def _item(event: Event) -> dict[str, Any]:
    """An event as JSON, without what an event has by itself: there, and only there, an empty value says nothing."""
    item = event.model_dump(mode="json", exclude_none=True)
    for name, usual in _USUAL.items():
        kept = {key: value for key, value in item.get(name, {}).items() if key not in usual or value != usual[key]}
        if kept:
            item[name] = kept
        else:
            item.pop(name, None)
    return item


def _event(item: Any, view: LogView) -> Event:
    try:
        return Event.model_validate_json(encode_trusted(item))
    except ValidationError as error:
        raise CorruptCheckpointError(
            f"{shown_thread(view.entry.thread_id)} holds an item that is no event of ADK: "
            f"{error.error_count()} fields do not fit. It is damaged, or a newer version of ADK wrote it"
        ) from None  # its text has the values


def _is_newest(session: Session, newest: Any) -> bool:
    """Whether a session object without a marker is up to date, because its last event is the newest one."""
    stored = newest.get("id") if isinstance(newest, dict) else None
    return bool(stored == (session.events[-1].id if session.events else None))


async def _both(first: Awaitable[T], second: Awaitable[S]) -> tuple[T, S]:
    """Await two calls at once, and return both results. Errors are raised after both have ended."""
    one, other = await asyncio.gather(first, second, return_exceptions=True)
    if isinstance(one, BaseException):
        raise one
    if isinstance(other, BaseException):
        raise other
    return one, other
