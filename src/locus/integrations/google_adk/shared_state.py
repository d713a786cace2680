"""State that the sessions of a user or of an app share: one small document each, in a thread of its own.

    {"state": {"theme": "dark"}, "origins": {"theme": ["9c1f…", 1767225600.25]}}

An event that changes shared state is stored in two or three steps: the session first, then the user's state, then the
app's. The session decides: whoever is refused there changes nothing else. Its checkpoint keeps what is to be changed
elsewhere, so if a process dies between the steps, whoever loads the session next does the rest.

`origins` says for each key which checkpoint of a session has set it, and when. So what is there already is not done
again, and what was set since then stays.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from locus.errors import CorruptCheckpointError
from locus.threads import Change, ThreadStore, Version
from locus.threads.ids import shown_thread

_STATE, _ORIGINS = "state", "origins"


class SharedState(NamedTuple):
    """The stored state of a user or of an app."""

    state: dict[str, Any]
    origins: dict[str, list[Any]]

    def lacks(self, key: str, checkpoint_id: str, at: float) -> bool:
        """Whether neither this change of a key is stored, nor a later one."""
        found = self.origins.get(key)
        return found is None or (found[0] != checkpoint_id and found[1] < at)


class SharedStates:
    """The states of all users and apps of a store."""

    def __init__(self, store: ThreadStore, namespace: str) -> None:
        self._store = store
        self._namespace = namespace

    async def read(self, thread_id: str) -> SharedState:
        return _shared_state(await self._store.document(thread_id, self._namespace).read(), thread_id)

    async def change(self, thread_id: str, delta: Mapping[str, Any], checkpoint_id: str) -> None:
        """Apply a change of state that a new checkpoint of a session records."""
        await self._update(thread_id, delta, checkpoint_id, time.time(), {*delta})

    async def complete(
        self, thread_id: str, delta: Mapping[str, Any], checkpoint_id: str, at: float, known: SharedState
    ) -> SharedState:
        """Apply the rest of a change that a checkpoint records and that was not applied; return the state."""
        if not any(known.lacks(key, checkpoint_id, at) for key in delta):
            return known
        await self._update(thread_id, delta, checkpoint_id, at, None)
        return await self.read(thread_id)

    async def _update(
        self, thread_id: str, delta: Mapping[str, Any], checkpoint_id: str, at: float, keys: set[str] | None
    ) -> None:
        """Set keys (None: those that the stored state lacks), in one step with concurrent changes."""

        async def updated(version: Version | None) -> Change | None:
            known = _shared_state(version, thread_id)
            chosen = {key for key in delta if known.lacks(key, checkpoint_id, at)} if keys is None else keys
            if not chosen:
                return None
            state = known.state | {key: delta[key] for key in chosen}
            return Change({_STATE: state, _ORIGINS: known.origins | {key: [checkpoint_id, at] for key in chosen}})

        await self._store.document(thread_id, self._namespace).change(updated)


def _shared_state(version: Version | None, thread_id: str) -> SharedState:
    """The state in a version of a document."""
    if version is None:
        return SharedState({}, {})
    state, origins = version.fields.get(_STATE), version.fields.get(_ORIGINS)
    if not isinstance(state, dict) or not isinstance(origins, dict) or not all(map(_is_origin, origins.values())):
        raise CorruptCheckpointError(f"{shown_thread(thread_id)} does not hold the state of an app or a user of ADK")
    return SharedState(state, origins)


def _is_origin(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], int | float)
        and not isinstance(value[1], bool)
    )
