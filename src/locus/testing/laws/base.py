"""The base of all laws: handles and worker processes that close by themselves, a clock, and exact comparisons."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Any, ClassVar, Protocol, TypeVar

import pytest
import pytest_asyncio

from locus.core.state import AgentState
from locus.memory import store as store_module
from locus.memory.checkpointer import Checkpointer, HistoryEntry
from locus.memory.engine import CheckpointerCapabilities
from locus.memory.storage import StorageBackend
from locus.testing.data import HOSTILE_IDS
from locus.testing.processes.workers import Crew
from locus.testing.stores import DurableTestStore, TestStore

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


class OpenHandle(Protocol):
    """Opens one more handle on the store of the test."""

    def __call__(self, *, ttl_seconds: float | None = None) -> Checkpointer: ...


class Laws:
    """The base class of all laws. A test class provides the fixture `store`, and declares the capabilities it needs."""

    required: ClassVar[CheckpointerCapabilities]

    other_ids: ClassVar[Sequence[str]] = HOSTILE_IDS
    """Hostile ids for laws that try each id in several places. A slow store may do with fewer."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Mark each async test, so that the suite works in pytest-asyncio's strict mode, too.

        Two mixins with a test of the same name are refused, because one would hide the other.
        """
        super().__init_subclass__(**kwargs)
        for name, test in list(vars(cls).items()):
            inner = getattr(getattr(test, "hypothesis", None), "inner_test", test)
            if name.startswith("test") and inspect.iscoroutinefunction(inner):
                setattr(cls, name, pytest.mark.asyncio(test))
        homes: dict[str, type] = {}
        for home in cls.__mro__:
            for name in vars(home):
                if name.startswith("test") and not issubclass(homes.setdefault(name, home), home):
                    raise TypeError(f"{name} is defined by {homes[name].__name__} and by {home.__name__}")

    @pytest.fixture
    def store(self) -> TestStore:
        """A fresh and empty store. Each test class provides its own."""
        raise NotImplementedError(f"{type(self).__name__} has to give a fixture `store`")

    @pytest_asyncio.fixture
    async def open_handle(self, store: TestStore) -> AsyncIterator[OpenHandle]:
        """A function that opens handles on the store. They are closed at the end of the test."""
        opened: list[Checkpointer] = []

        def open_one(*, ttl_seconds: float | None = None) -> Checkpointer:
            opened.append(store.open(ttl_seconds=ttl_seconds))
            return opened[-1]

        yield open_one
        for handle in opened:
            await handle.close()

    @pytest_asyncio.fixture
    async def checkpointer(self, open_handle: OpenHandle) -> Checkpointer:
        return open_handle()

    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> Clock:
        return Clock(monkeypatch)


class Clock:
    """Sets the clock that saves are dated by: `shift` moves it, `stop` lets it stand still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.offset = timedelta(0)
        self.standing: datetime | None = None

    def _install(self) -> None:
        clock = self

        class Shifted(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Any:
                return clock.standing or datetime.now(tz) + clock.offset

        self._monkeypatch.setattr(store_module, "datetime", Shifted)

    def shift(self, **amount: float) -> None:
        """Set the clock ahead of the real time, or behind it: `shift(days=-40)`. `shift()` sets it right."""
        self.offset, self.standing = timedelta(**amount), None
        self._install()

    def stop(self, moment: datetime) -> None:
        self.standing = moment
        self._install()


def present(value: T | None) -> T:
    """The value that a call has returned, after asserting that there is one."""
    assert value is not None
    return value


def exact(value: Any) -> str:
    """A text that differs wherever two JSON values do: 1, 1.0 and True, 0.0 and -0.0."""
    return json.dumps(value, sort_keys=True)


async def raised(kinds: type[E] | tuple[type[E], ...], call: Awaitable[object], what: str) -> E:
    """The error of a call, after asserting that it raises one of these. `what` names the call."""
    try:
        answer = await call
    except kinds as error:
        return error
    pytest.fail(f"{what} answered {answer!r:.500}")


def assert_same(loaded: object, saved: object) -> None:
    assert loaded == saved
    assert exact(loaded) == exact(saved)


def assert_same_state(loaded: AgentState | None, saved: AgentState) -> None:
    assert loaded is not None
    assert loaded == saved
    assert exact(loaded.to_checkpoint()) == exact(saved.to_checkpoint())


async def assert_all_load(handle: Checkpointer, thread_id: str, expected: dict[str, AgentState]) -> None:
    """Assert that the thread has exactly these checkpoints, and that each loads as it was saved."""
    assert set(await handle.list_checkpoints(thread_id, limit=100_000)) == set(expected)
    for checkpoint_id, state in expected.items():
        assert_same_state(await handle.load(thread_id, checkpoint_id), state)


async def ids(handle: Checkpointer | StorageBackend, thread_id: str, **options: Any) -> list[str]:
    """All checkpoint ids of a thread, newest first."""
    return [entry.checkpoint_id for entry in await handle.history(thread_id, None, **options)]


async def entry_of(handle: Checkpointer, thread_id: str, checkpoint_id: str) -> HistoryEntry:
    return next(entry for entry in await handle.history(thread_id, None) if entry.checkpoint_id == checkpoint_id)


async def parent_of(handle: Checkpointer, thread_id: str, checkpoint_id: str) -> str | None:
    return (await entry_of(handle, thread_id, checkpoint_id)).parent_id


async def snapshot(handle: Checkpointer) -> dict[str, list[HistoryEntry]]:
    """The history of every thread of a store, to compare before and after something that must change nothing."""
    return {thread_id: await handle.history(thread_id, None) for thread_id in await handle.list_threads(None)}


def dicts(handle: Checkpointer) -> StorageBackend:
    """A backend for plain dicts on the store of a handle."""
    return StorageBackend(handle.store)


async def save_each(
    handle: Checkpointer, names: Iterable[str], data: dict[str, Any] | None = None, **more: Any
) -> None:
    """Save a dict, empty by default, in each of these threads, one after the other."""
    for name in names:
        await dicts(handle).save(name, data or {}, **more)


class WorkerLaws(Laws):
    """The base class of laws that start processes. Their fixture `store` provides a `DurableTestStore`."""

    worker_modules: ClassVar[Sequence[str]] = ()
    """Modules that a process has to import before `get_checkpointer(store.url)` works there."""

    @pytest.fixture
    def crew(self, store: DurableTestStore) -> Iterator[Crew]:
        """Worker processes. Those that a test leaves running are killed."""
        with Crew(store.url, self.worker_modules) as crew:
            yield crew
