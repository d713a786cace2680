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

from locus.errors import ConflictError, CorruptCheckpointError
from locus.memory.model.ids import shown_thread
from locus.memory.model.payloads import dict_from, dict_payload
from locus.memory.runtime.retry import Backoff
from locus.memory.store import CheckpointStore

_STATE, _ORIGINS = "state", "origins"
_ATTEMPTS = 200
_BETWEEN_ATTEMPTS = Backoff(0.001, 0.05, random_part=1.0)


class SharedState(NamedTuple):
    """A document as it is stored, and the id of its checkpoint; None if there is none yet."""

    checkpoint_id: str | None
    state: dict[str, Any]
    origins: dict[str, list[Any]]

    def lacks(self, key: str, checkpoint_id: str, at: float) -> bool:
        """Whether a change of a key is not there: neither the change itself, nor one that was made later."""
        found = self.origins.get(key)
        return found is None or (found[0] != checkpoint_id and found[1] < at)


class SharedStates:
    """The documents of a store."""

    def __init__(self, store: CheckpointStore, namespace: str) -> None:
        self._store = store
        self._namespace = namespace

    async def read(self, thread_id: str) -> SharedState:
        stored = await self._store.read(thread_id, None, self._namespace)
        if stored is None:
            return SharedState(None, {}, {})
        data = dict_from(stored)
        state, origins = data.get(_STATE), data.get(_ORIGINS)
        if not isinstance(state, dict) or not isinstance(origins, dict) or not all(map(_is_origin, origins.values())):
            raise CorruptCheckpointError(
                f"{shown_thread(thread_id)} does not hold the state of an app or a user of ADK"
            )
        return SharedState(stored.entry.checkpoint_id, state, origins)

    async def change(self, thread_id: str, delta: Mapping[str, Any], checkpoint_id: str) -> None:
        """Set these keys, because a checkpoint of a session says so that was made just now."""
        if delta:
            await self._update(thread_id, delta, checkpoint_id, time.time(), {*delta})

    async def complete(
        self, thread_id: str, delta: Mapping[str, Any], checkpoint_id: str, at: float, known: SharedState
    ) -> SharedState:
        """Set the keys that a checkpoint of a session has asked for, as far as that was not done; the state then."""
        missing = {key for key in delta if known.lacks(key, checkpoint_id, at)}
        return await self._update(thread_id, delta, checkpoint_id, at, None) if missing else known

    async def _update(
        self, thread_id: str, delta: Mapping[str, Any], checkpoint_id: str, at: float, keys: set[str] | None
    ) -> SharedState:
        """Set the keys, or those that the document lacks, together with what others set at the same time."""
        for attempt in range(_ATTEMPTS):
            known = await self.read(thread_id)
            chosen = {key for key in delta if known.lacks(key, checkpoint_id, at)} if keys is None else keys
            if not chosen:
                return known
            state = known.state | {key: delta[key] for key in chosen}
            origins = known.origins | {key: [checkpoint_id, at] for key in chosen}
            payload = dict_payload({_STATE: state, _ORIGINS: origins})
            try:
                saved = await self._store.save(
                    thread_id, payload, namespace=self._namespace, if_latest=known.checkpoint_id
                )
                return SharedState(saved.checkpoint_id, state, origins)
            except ConflictError:
                await _BETWEEN_ATTEMPTS.pause(attempt)
        raise ConflictError("the state of an app or a user is changed by others faster than this can follow; try again")


def _is_origin(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], int | float)
        and not isinstance(value[1], bool)
    )
