"""`LocusSessionService`: the sessions of ADK in a Locus store, with their whole history.

A session is a document (see `locus.threads.Document`): a list of events, and its state in a field. So an event and what
it does to the state of the session are one checkpoint, and the id of the newest one is what ADK calls the revision
marker of a session: whoever appends names the checkpoint that he has seen, and is refused if there is a newer one. No
clock has a part in that. State with the prefix `user:` or `app:` is kept by `shared_state`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache, partial
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

from locus.core.frozen import EMPTY, FrozenDict
from locus.core.tasks import finished
from locus.errors import CheckpointNotFoundError, ConflictError, CorruptCheckpointError, LocusError
from locus.integrations.google_adk import NAMESPACE
from locus.integrations.google_adk.names import thread_of
from locus.integrations.google_adk.shared_state import SharedState, SharedStates
from locus.threads import (
    AsyncStoreUser,
    Document,
    Kept,
    SessionPoint,
    Version,
    point_metadata,
    readable,
    session_points,
    warn_of_damage,
)
from locus.threads.ids import parted, shown_thread
from locus.threads.json import encode_trusted

__all__ = ["LocusSessionService", "SessionPoint"]

_EVENTS: Final = "items"
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
    """A session whose latest checkpoint a service holds in memory, without its events."""

    document: Document
    version: Version | None = None
    newest: Any = None
    """The newest event."""

    @property
    def checkpoint_id(self) -> str | None:
        return None if self.version is None else self.version.checkpoint_id

    def remember(self, version: Version, newest: Sequence[Any]) -> None:
        self.version, self.newest = version, newest[-1] if newest else None

    def forget(self) -> None:
        self.version = self.newest = None

    async def save(
        self, fields: Mapping[str, Any], new: Sequence[Any], after: Version | None, latest: str | None, change: str
    ) -> Version:
        """Save a session that goes on from a version with new events, if nobody has changed it since the latest."""
        kept = 0 if after is None else after.counts[_EVENTS]
        lists, metadata = {_EVENTS: Kept(kept, new)}, point_metadata(change, kept + len(new))
        save = partial(self.document.save, fields, lists=lists, after=after, metadata=metadata, if_latest=latest)
        try:
            return await save()
        except asyncio.CancelledError:
            with suppress(LocusError):  # once more: it is stored by the one or by the other, and then that is settled
                await finished(save())
            raise


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
        return _HeldSession(self._document(thread_id))

    def _document(self, thread_id: str) -> Document:
        return self._store.document(thread_id, self._namespace, (_EVENTS,))

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
            created = await held.save(fields, [], None, None, "create")
        except ConflictError:
            raise AlreadyExistsError("a session with this id exists already") from None
        await self._change_shared(app_name, user_id, delta, created.checkpoint_id)
        held.remember(created, [])
        user, app = await self._shared_states(app_name, user_id)
        return _session((app_name, user_id, session_id), created, now, [], user, app)

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
        thread_id = thread_of(app_name, user_id, session_id)
        held = self._held(thread_id)
        limit = None if config is None else config.num_recent_events
        after = None if config is None else config.after_timestamp
        most = None if after or limit is None else max(limit, 1)  # the newest event is good to know
        reads = held.document.read(at, newest=most), self._shared_states(app_name, user_id)
        version, (user, app) = await _both(*reads)
        if version is None and at is not None:
            raise await self._store.not_found(thread_id, self._namespace, at)
        if version is None:
            return None
        items = _items(version, thread_id)
        if at is None:
            user, app = await self._completed(thread_id, version, user, app)
            held.remember(version, items)
        events = [_event(item, thread_id) for item in items] if limit != 0 else []
        if after:
            events = [event for event in events if event.timestamp >= after]
        if limit:
            events = events[-limit:]
        return _session((app_name, user_id, session_id), version, _updated(version, thread_id), events, user, app)

    @override
    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """The sessions of a user, or of all users of an app, without events. The last active one comes last.

        Damaged ones are left out with a `DamagedThreadsWarning`, and so are those of users whose state is damaged,
        unless the user is named.
        """
        prefix = f"{thread_of(app_name, user_id)}/"
        threads = [one for one in await self._store.list_threads(prefix=prefix) if len(parted(one)) == 3]
        damaged: list[CorruptCheckpointError] = []
        listed = await readable(self._listed, threads, damaged)
        stored = [(parted(one), version) for one, version in listed if version is not None]
        users = sorted({names[1] for names, _ in stored})
        without_state: list[CorruptCheckpointError] = []
        states = dict(await readable(lambda one: self._states.read(thread_of(app_name, one)), users, without_state))
        if user_id is not None and without_state:
            raise without_state[0]
        app = await self._states.read(thread_of(app_name)) if stored else _NO_STATE
        sessions = [
            _session(names, version, _updated(version, thread_of(*names)), [], states[names[1]], app)
            for names, version in stored
            if names[1] in states
        ]
        warn_of_damage([*damaged, *without_state])
        sessions.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=sessions)

    async def _listed(self, thread_id: str) -> Version | None:
        """The session in a thread, with its newest event; None if the thread holds something else."""
        version = await self._document(thread_id).read(newest=1)
        if version is not None:
            _updated(version, thread_id)
        return version

    @override
    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session with its history. Its artifacts stay, and so does the state of its user."""
        thread_id = thread_of(app_name, user_id, session_id)
        held = self._held(thread_id)
        held.forget()
        await finished(held.document.delete())

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
        held = self._held(thread_id)
        async with held.document.lock():
            if any(known == event for known in session.events[-_NEWEST:] if known.id == event.id):
                return event
            marker, updated = await self._append(held, session, item)
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
                version = await held.document.read(newest=1)
                if version is None or version.entry is None:
                    raise SessionNotFoundError(_NOT_FOUND)
                await self._completed(held.document.thread_id, version)
                held.remember(version, _items(version, held.document.thread_id))
                before = version.entry.parent_id
            there = held.version
            assert there is not None
            latest = there.checkpoint_id
            if held.newest == item and marker in (None, latest, before):
                return latest, item["timestamp"]  # it is stored already, and perhaps the answer got lost
            if marker != latest and (marker is not None or not _is_newest(session, held.newest)):
                raise StaleSessionError(_STALE)
            state = there.fields.get(_STATE, EMPTY)
            if delta.session or type(state) is not FrozenDict:  # nobody else has it; a save knows it again by identity
                state = FrozenDict(state | delta.session)
            fields = _fields(state, delta)
            try:
                stored = await held.save(fields, [item], there, latest, "add")
            except ConflictError:
                held.forget()
                continue
            held.forget()  # until all of it is stored
            await self._change_shared(session.app_name, session.user_id, delta, stored.checkpoint_id)
            held.remember(stored, [item])
            return stored.checkpoint_id, item["timestamp"]
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
        thread_id = thread_of(app_name, user_id, session_id)
        held = self._held(thread_id)
        for _ in range(_ATTEMPTS):
            earlier = await held.document.read(at, newest=0)
            if earlier is None:
                raise await self._store.not_found(thread_id, self._namespace, at)
            latest = await held.document.read(newest=0)
            if latest is None:
                raise SessionNotFoundError(_NOT_FOUND)
            await self._completed(thread_id, latest)
            _items(earlier, thread_id)
            fields = {name: value for name, value in earlier.fields.items() if name != _SHARED}
            try:
                await held.save(fields, [], earlier, latest.checkpoint_id, "rewind")
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
        if delta.user:
            await self._states.change(thread_of(app_name, user_id), delta.user, checkpoint_id)
        if delta.app:
            await self._states.change(thread_of(app_name), delta.app, checkpoint_id)

    async def _completed(
        self, thread_id: str, version: Version, user: SharedState | None = None, app: SharedState | None = None
    ) -> tuple[SharedState, SharedState]:
        """The states of the user and of the app, after completing the changes of a session's newest event."""
        _items(version, thread_id)
        assert version.entry is not None
        app_name, user_id, _ = parted(thread_id)
        parts, checkpoint_id = version.fields.get(_SHARED, {}), version.checkpoint_id
        if user is None or app is None:
            user, app = await self._shared_states(app_name, user_id) if parts else (_NO_STATE, _NO_STATE)
        user_thread, app_thread = thread_of(app_name, user_id), thread_of(app_name)
        time = version.entry.created_at.timestamp()
        user = await self._states.complete(user_thread, parts.get("user", {}), checkpoint_id, time, user)
        app = await self._states.complete(app_thread, parts.get("app", {}), checkpoint_id, time, app)
        return user, app


_NO_STATE: Final = SharedState({}, {})


def _fields(state: dict[str, Any], delta: StateDelta) -> dict[str, Any]:
    """The fields of a session after a change. Empty ones are left out, to keep each checkpoint small."""
    return {**({_STATE: state} if state else {}), **delta.shared}


def _session(
    names: tuple[str, ...],
    version: Version,
    updated: float,
    events: list[Event],
    user: SharedState,
    app: SharedState,
) -> Session:
    """A new session object with its own state, and that of its user and app. Callers may change it."""
    state = deepcopy(version.fields.get(_STATE, {}))
    state.update({f"{State.APP_PREFIX}{key}": deepcopy(value) for key, value in app.state.items()})
    state.update({f"{State.USER_PREFIX}{key}": deepcopy(value) for key, value in user.state.items()})
    app_name, user_id, session_id = names
    session = Session(
        id=session_id, app_name=app_name, user_id=user_id, state=state, events=events, last_update_time=updated
    )
    session._storage_update_marker = version.checkpoint_id
    return session


def _items(version: Version, thread_id: str) -> Sequence[Any]:
    """The events of a session that were read, as they are stored. Raises if it is no session."""
    shared = version.fields.get(_SHARED, {})
    if (
        _EVENTS in version.counts
        and isinstance(version.fields.get(_STATE, {}), dict)
        and isinstance(shared, dict)
        and all(isinstance(part, dict) for part in shared.values())
    ):
        return version.lists[_EVENTS]
    raise _no_session(thread_id)


def _updated(version: Version, thread_id: str) -> float:
    """The time of a session's last change: of its newest event, or of its creation."""
    items = _items(version, thread_id)
    newest = items[-1] if items else None
    found = version.fields.get(_UPDATED) if newest is None else isinstance(newest, dict) and newest.get("timestamp")
    if isinstance(found, int | float) and not isinstance(found, bool):
        return found
    raise _no_session(thread_id)


def _no_session(thread_id: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(f"{shown_thread(thread_id)} does not hold a session of ADK")


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


def _event(item: Any, thread_id: str) -> Event:
    try:
        return Event.model_validate_json(encode_trusted(item))
    except ValidationError as error:
        raise CorruptCheckpointError(
            f"{shown_thread(thread_id)} holds an item that is no event of ADK: "
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
