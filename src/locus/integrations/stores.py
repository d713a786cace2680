"""The base classes of integrations that use more of a store than `locus.threads` shows."""

from __future__ import annotations

from locus import threads
from locus.memory.store import CheckpointStore


class AsyncStoreUser(threads.AsyncStoreUser):
    """A user of a store that is closed by `await user.close()`, or at the end of an `async with`."""

    @property
    def _store(self) -> CheckpointStore:  # type: ignore[override]
        self._check_open()
        return self._handle._store


class BothWaysStoreUser(threads.BothWaysStoreUser):
    """A user of a store for blocking and for async programs: `aclose` and `async with` beside `close` and `with`."""

    @property
    def _store(self) -> CheckpointStore:  # type: ignore[override]
        self._check_open()
        return self._handle._store
