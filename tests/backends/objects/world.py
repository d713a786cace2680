"""A world in which every request of every process waits for its turn, and chance decides what becomes of it.

Several handles work on the same objects. Whenever all of them wait, one request is chosen: it goes through, fails
before or after it took effect, or its process ends there. Time passes only when the world says so. Every event that
was ever put is noted, so that what the handles see at the end can be compared with what a plain reading of all
events gives.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from locus.errors import BackendUnavailableError, CheckpointNotFoundError, ConflictError
from locus.memory.backends.objects import engine as objects_engine
from locus.memory.backends.objects import index as objects_index
from locus.memory.backends.objects import merge, texts
from locus.memory.backends.objects import read as objects_read
from locus.memory.backends.objects.backend import ObjectCheckpointStore
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.objects.read import Recent
from locus.memory.backends.objects.remove import GRACE
from locus.memory.backends.objects.schema import parse_event, thread_name
from locus.memory.model.parts import Range, Window, page_of
from locus.memory.model.records import DEFAULT_NAMESPACE
from locus.memory.runtime.retry import Backoff
from locus.memory.storage import StorageBackend
from locus.testing.laws.base import exact
from locus.testing.stateful import ModelThread
from tests.backends.objects.in_memory import MemoryObjectStore, StoreFault

THREADS = ("a", "b/c")
PATIENCE = 120.0
"""How many seconds a request may be on its way; after that, a client has given up."""


class Clock:
    """The time of this world, in place of the module `time`."""

    def __init__(self) -> None:
        self.seconds = 1_000_000_000.0

    def monotonic(self) -> float:
        return self.seconds

    def time(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)


@dataclass
class Request:
    """A request that waits."""

    process: int
    kind: str
    key: str
    since: float
    turn: asyncio.Future[str]


@dataclass
class History:
    """Everything that was put, in the order in which it took effect."""

    events: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)

    def note(self, key: str, body: bytes) -> None:
        number = parse_event(key)
        if number is None:
            return
        thread = self.events.setdefault(key.split("/")[1], {})
        assert number not in thread, f"number {number} was given out twice"
        thread[number] = json.loads(body.split(b"\n")[0])

    def replayed(self, thread_id: str, payloads: dict[str, Any]) -> ModelThread:
        """The thread that all events make, read as plainly as possible."""
        model = ModelThread()
        names: dict[int, str] = {}
        for number, record in sorted(self.events.get(thread_name(thread_id), {}).items()):
            if record["kind"] == "commit":
                _, name, parent, *_ = record["row"]
                model.save(name, payloads[name], None, None)
                found = model.find(name)
                assert found is not None
                found.parent_id = None if parent is None else names[parent]
                names[number] = name
            elif record["kind"] == "delete":
                model.delete({names[seq] for seq in record["seqs"]})
            elif record["kind"] == "writes":
                _, name, task = record["of"]
                if model.find(name):
                    model.put_writes(name, task, [number])
        return model


class World:
    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.random = random.Random(seed)
        self.clock = Clock()
        self.objects = MemoryObjectStore()
        self.history = History()
        self.payloads: dict[str, Any] = {}
        self.saved: dict[str, set[str]] = {name: set() for name in THREADS}
        self.deleted: dict[str, set[str]] = {name: set() for name in THREADS}
        self._waiting: list[Request] = []
        self._asleep: list[asyncio.Future[None]] = []
        self._pausing: list[asyncio.Future[None]] = []
        self._after: dict[tuple[int, str, str], str] = {}
        self._processes = 0
        self._count = 0
        self._drafts: dict[int, Any] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        monkeypatch.setattr(objects_read, "time", self.clock)
        monkeypatch.setattr(merge, "FAN", 4)
        # So that a thread of some events is a long one, of which only the newest are read.
        monkeypatch.setattr(objects_read, "_SLACK", 0)
        monkeypatch.setattr(objects_engine, "_NEWEST", Recent(3))
        monkeypatch.setattr(objects_index, "RECENT", 2)
        monkeypatch.setattr(texts, "_GAP", 64)
        monkeypatch.setattr(Backoff, "pause", lambda _backoff, _attempt: self._pause())

    def handle(self, process: int | None = None) -> StorageBackend:
        """A handle of a process, or one whose requests need not wait."""
        if process is None:
            store = MemoryObjectStore(shared=self.objects)
        else:
            store = _Watched(self, process)
        store.now = self.clock.now
        return StorageBackend(ObjectCheckpointStore(ObjectEngine(store)))

    @property
    def grace(self) -> timedelta:
        """What the engine takes off the real time, to get an hour before the time of this world."""
        return datetime.now(UTC) - self.clock.now() + GRACE

    async def before(self, process: int, kind: str, key: str) -> None:
        request = Request(process, kind, key, self.clock.seconds, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        fate = await request.turn
        if fate == "fails":
            raise StoreFault(f"{kind} {key}")
        self._after[process, kind, key] = fate

    async def after(self, process: int, kind: str, key: str) -> None:
        fate = self._after.pop((process, kind, key), "")
        if fate == "answer lost":
            raise StoreFault(f"{kind} {key}: no answer")
        if fate == "ends after":
            self._tasks[process].cancel()
            await asyncio.sleep(0)

    async def run(self, processes: int, steps: int) -> None:
        for _ in range(processes):
            self._start(steps)
        while self._tasks:
            for _ in range(12):
                await asyncio.sleep(0)
            for process, task in list(self._tasks.items()):
                if task.done():
                    self._collect(process, steps)
            if self._pausing and (not self._waiting or self.random.random() < 0.5):
                self._end_one_pause()
            elif self._waiting:
                self._let_one_go()
            elif self._asleep:
                self._wake_one()
            else:
                await asyncio.sleep(0.0005)

    def _start(self, steps: int) -> None:
        self._processes += 1
        self._tasks[self._processes] = asyncio.ensure_future(self._work(self._processes, steps))

    def _collect(self, process: int, steps: int) -> None:
        task = self._tasks.pop(process)
        self._waiting = [request for request in self._waiting if request.process != process]
        if task.cancelled():
            self._start(steps // 2)  # the process that takes its place knows nothing
        else:
            task.result()

    def _let_one_go(self) -> None:
        late = [request for request in self._waiting if request.since + PATIENCE <= self.clock.seconds]
        request = self.random.choice(late or self._waiting)
        self._waiting.remove(request)
        if not late:
            self.clock.seconds += self.random.choice([0, 0, 0, 0, 1, 20])
        fate = self.random.choices(
            ["goes through", "fails", "answer lost", "ends before", "ends after"], [950, 20, 20, 5, 5]
        )[0]
        if fate == "ends before":
            self._tasks[request.process].cancel()
        elif not request.turn.done():
            request.turn.set_result(fate)

    async def _work(self, process: int, steps: int) -> None:
        backend = self.handle(process)
        for _ in range(steps):
            work: Callable[[StorageBackend, str], Awaitable[None]] = self.random.choices(
                [
                    self._save,
                    self._append,
                    self._load,
                    self._window,
                    self._delete,
                    self._clear,
                    self._write,
                    self._sweep,
                ],
                [35, 30, 6, 8, 8, 4, 8, 12],
            )[0]
            # After these it may not have happened, and what has happened is checked in the end.
            with suppress(BackendUnavailableError, ConflictError, CheckpointNotFoundError):
                await work(backend, self.random.choice(THREADS))
            if self.random.random() < 0.3:
                await self._nap()

    async def _nap(self) -> None:
        """Do nothing until all others do nothing either, or are waiting: then much time may pass."""
        self._asleep.append(asyncio.get_running_loop().create_future())
        await self._asleep[-1]

    async def _pause(self) -> None:
        """Between two attempts. In real time, hours of this world could go by meanwhile."""
        if not self._tasks:
            return
        self._pausing.append(asyncio.get_running_loop().create_future())
        await self._pausing[-1]

    def _end_one_pause(self) -> None:
        pausing = self._pausing.pop(self.random.randrange(len(self._pausing)))
        if not pausing.done():
            pausing.set_result(None)

    def _wake_one(self) -> None:
        self.clock.seconds += self.random.choice([10, 299, 301, 4_000])
        sleeper = self._asleep.pop(self.random.randrange(len(self._asleep)))
        if not sleeper.done():
            sleeper.set_result(None)

    async def _save(self, backend: StorageBackend, thread_id: str) -> None:
        self._count += 1
        count, name = self._count, f"c{self._count}"
        loaded = await backend.load(thread_id) if self.random.random() < 0.5 else None
        items = [*(loaded or {"items": []})["items"], {"n": count}]
        large = "x" * 1_100 * (count % 2)
        data = {"items": items[-self.random.choice([3, 50]) :], "large": large, "count": count}
        self.payloads[name] = data
        await backend.save(thread_id, data, name)
        self.saved[thread_id].add(name)

    async def _append(self, backend: StorageBackend, thread_id: str) -> None:
        """A save under a new id, on top of what is there, by a handle that has forgotten the thread's events."""
        self._count += 1
        count = self._count
        loaded = await backend.load(thread_id) or {"items": [], "fixed": [{"text": "f" * 90}]}
        data = {**loaded, "items": [*loaded["items"], {"n": count}], "count": count}
        self._drafts[count] = data
        self._forget(backend)
        self.saved[thread_id].add(await backend.save(thread_id, data))

    async def _window(self, backend: StorageBackend, thread_id: str) -> None:
        """The last items of the latest checkpoint, read by a handle that remembers nothing."""
        self._forget(backend)
        found = await backend.store.read_part(thread_id, None, DEFAULT_NAMESPACE, Window(2, frozenset({("items",)})))
        if found is not None:
            page = page_of(found, Range(("items",), -2, 2))
            assert exact(page.items) == exact(self.payloads[found.entry.checkpoint_id]["items"][-2:])

    def _forget(self, backend: StorageBackend) -> None:
        assert isinstance(backend.store.engine, ObjectEngine)
        backend.store.engine._logs.clear()

    def note(self, key: str, body: bytes) -> None:
        self.history.note(key, body)
        lines = body.split(b"\n")
        if parse_event(key) is not None and (record := json.loads(lines[0]))["kind"] == "commit":
            name, count = record["row"][1], json.loads(lines[1])["count"]
            if name not in self.payloads:
                self.payloads[name] = self._drafts[count]

    async def _load(self, backend: StorageBackend, thread_id: str) -> None:
        names = [entry.checkpoint_id for entry in await backend.history(thread_id, None)]
        if names:
            name = self.random.choice(names)
            loaded = await backend.load(thread_id, name)
            assert loaded is None or exact(loaded) == exact(self.payloads[name])

    async def _delete(self, backend: StorageBackend, thread_id: str) -> None:
        names = [entry.checkpoint_id for entry in await backend.history(thread_id, None)]
        if names:
            name = self.random.choice([names[0], self.random.choice(names)])
            self.deleted[thread_id].add(name)
            await backend.delete(thread_id, name)
            assert await backend.load(thread_id, name) is None

    async def _clear(self, backend: StorageBackend, thread_id: str) -> None:
        names = {entry.checkpoint_id for entry in await backend.history(thread_id, None)}
        await backend.delete(thread_id)
        self.deleted[thread_id] |= names

    async def _write(self, backend: StorageBackend, thread_id: str) -> None:
        names = [entry.checkpoint_id for entry in await backend.history(thread_id, 1)]
        if names:
            await backend.put_writes(thread_id, names[0], self.random.choice("xy"), [("channel", self._count)])

    async def _sweep(self, backend: StorageBackend, _thread_id: str) -> None:
        store = backend.store
        assert isinstance(store, ObjectCheckpointStore)
        await store.sweep(self.grace)

    async def check(self) -> None:
        """A handle that knows nothing sees exactly what all events make, and nothing that was acknowledged is lost."""
        backend = self.handle()
        for thread_id in THREADS:
            model = self.history.replayed(thread_id, self.payloads)
            history = await backend.history(thread_id, None)
            assert [(entry.checkpoint_id, entry.parent_id) for entry in history] == [
                (found.checkpoint_id, found.parent_id) for found in reversed(model.checkpoints)
            ]
            for found in model.checkpoints:
                loaded = await backend.load(thread_id, found.checkpoint_id)
                assert exact(loaded) == found.payload
                writes = await backend.get_writes(thread_id, found.checkpoint_id)
                assert {write.task_id for write in writes} == {task for task, _ in found.writes}
            put = {
                record["row"][1]
                for record in self.history.events.get(thread_name(thread_id), {}).values()
                if record["kind"] == "commit"
            }
            assert self.saved[thread_id] <= put
        alive = sorted(name for name in THREADS if self.history.replayed(name, self.payloads).checkpoints)
        assert await backend.list_threads() == alive


class _Watched(MemoryObjectStore):
    """The objects as one process reaches them."""

    def __init__(self, world: World, process: int) -> None:
        async def before(kind: str, key: str) -> None:
            await world.before(process, kind, key)

        async def after(kind: str, key: str) -> None:
            await world.after(process, kind, key)

        super().__init__(before=before, after=after, shared=world.objects)
        self._world = world

    def taken(self, key: str, body: bytes) -> None:
        self._world.note(key, body)
