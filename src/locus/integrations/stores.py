"""The store that an integration works on: in any of the forms in which a user may name it, and who closes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from locus.hints import options_of_open_store, with_own_options
from locus.memory.registry import get_checkpointer
from locus.memory.runtime.portal import PORTAL
from locus.memory.saver import store_of
from locus.memory.store import CheckpointStore


def opened_store(store: Any, options: Mapping[str, Any], owner: str, own: Sequence[str]) -> CheckpointStore:
    """The store behind a checkpointer or a storage backend, or one that is opened by a name or URL with its options.

    `owner` is the class that the user has called, and `own` are the options that this class takes itself; both are for
    errors. Whoever passes a name has to close what is returned.
    """
    if isinstance(store, str):
        with with_own_options(owner, own):
            return store_of(get_checkpointer(store, **options))
    if options:
        raise options_of_open_store(options, own)
    return store_of(store)


class StoreHandle:
    """A store in the hands of one user of it: `close` closes a store that was opened for it, and leaves others open."""

    def __init__(self, store: CheckpointStore, *, is_owner: bool, lender: StoreHandle | None = None) -> None:
        self.store = store
        self._is_owner = is_owner
        self._lender = lender
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        return self._is_closed or (self._lender is not None and self._lender._is_closed)

    def lent(self) -> StoreHandle:
        """The same store for another user. If it was opened here, the other one ends with this one."""
        return StoreHandle(self.store, is_owner=False, lender=self if self._is_owner else self._lender)

    async def close(self) -> None:
        self._is_closed = True
        if self._is_owner:
            await self.store.close()


class StoreUser:
    """What all classes of integrations have in common that work on a store: whoever opens it closes it.

    Most refuse every call after their end, because it would open the store again, and nobody would close it. They say
    with which error.
    """

    _handle: StoreHandle

    def _open(self, store: Any, options: Mapping[str, Any], own: Sequence[str]) -> None:
        """Open a store by its name or URL with its options, or take one that is open. `own` is for errors."""
        opened = opened_store(store, options, type(self).__name__, own)
        self._handle = StoreHandle(opened, is_owner=isinstance(store, str))

    @property
    def _store(self) -> CheckpointStore:
        self._check_open()
        return self._handle.store

    def _check_open(self) -> None:
        if self._handle.is_closed:
            error = self._closed_error(type(self).__name__)
            if error is not None:
                raise error

    def _closed_error(self, name: str) -> Exception | None:
        """What every call after the end raises. None: it opens the store again."""
        return None

    async def _end(self) -> None:
        """What `close` does, whether somebody waits for it or is blocked."""
        await self._handle.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self._handle.store.engine).__name__})"


class AsyncStoreUser(StoreUser):
    """One that is closed by `await user.close()`, or at the end of an `async with`."""

    async def close(self) -> None:
        """End the use, and close the store if it was opened here by name."""
        await self._end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()


class BlockingStoreUser(StoreUser):
    """One that is closed by `user.close()`, which blocks, or at the end of a `with`."""

    def close(self) -> None:
        """End the use, and close the store if it was opened here by name."""
        PORTAL.run(self._end())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class BothWaysStoreUser(BlockingStoreUser):
    """One for blocking and for async programs: `aclose` and `async with` beside `close` and `with`."""

    async def aclose(self) -> None:
        """End the use, and close the store if it was opened here by name."""
        await self._end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()
