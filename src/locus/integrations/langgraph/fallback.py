"""Moving from another saver while it is in use: a thread is brought over when it is first touched.

Before a thread is loaded, listed or saved, the other saver is asked for its latest checkpoint. If that is not here, all
checkpoints of the thread that are not here are saved, oldest first, each after its pending writes. So there are three
cases, and none of them loses anything:

- It was killed in between. The latest is not here yet, so the next touch goes on where it was.
- Two workers do it at once. Both save the same checkpoints under the same ids, in the same order, which changes nothing
  the second time.
- The other saver goes on writing, because some workers have not been replaced yet. What it has written since is brought
  over at the next touch. If the thread has gone on here too, both lines are in its history. It continues from the later
  one, as it would if both had used one saver, and a warning is logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from json import JSONDecodeError
from typing import Any, NamedTuple, Protocol, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from ormsgpack import MsgpackDecodeError

from locus.errors import (
    BackendUnavailableError,
    CapabilityError,
    ConfigurationError,
    ConflictError,
    CorruptCheckpointError,
    LocusError,
)
from locus.integrations.langgraph.payloads import stored_namespace
from locus.integrations.langgraph.read import config_of
from locus.threads import ANY, SPECIAL_CHANNELS, ThreadStore, Unset

T = TypeVar("T")

FORK = "fallback_fork"
"""The key in the metadata of a checkpoint that stays the latest although the other saver has gone on from an earlier
one. The value is the id of the other saver's latest."""

_DAMAGE = (
    TypeError, LookupError, AttributeError, ImportError, UnicodeError, JSONDecodeError, MsgpackDecodeError,
)  # fmt: skip
"""What a serializer raises for a row that it cannot read. Drivers have errors of their own."""

_log = logging.getLogger(__name__)


class GraphKey(NamedTuple):
    """Names a checkpoint of a thread."""

    checkpoint_id: str
    namespace: str

    @property
    def here(self) -> tuple[str, str]:
        """The stored namespace and id of this checkpoint."""
        return stored_namespace(self.namespace), self.checkpoint_id


class Receiver(Protocol):
    """The destination of threads that are brought over: a `LocusSaver`."""

    async def loaded(self, thread_id: str, namespace: str, checkpoint_id: str) -> CheckpointTuple | None:
        """A checkpoint of the destination. The namespace is the stored one."""

    async def receive(
        self,
        found: CheckpointTuple,
        *,
        created_at: datetime | None = None,
        more: Mapping[str, Any] = {},
        if_latest: str | Unset = ANY,
    ) -> None:
        """Save a checkpoint as it is, with the time when it was made and more metadata."""

    async def receive_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        """Save what a task wrote."""


class Fallback:
    """The other saver, called in the way that it can be called: on its event loop, or in a worker thread.

    Its errors become `CorruptCheckpointError` or `BackendUnavailableError`: what it has is not known then, and nothing
    older is given out.
    """

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        if not isinstance(saver, BaseCheckpointSaver):
            raise ConfigurationError(f"fallback is a checkpointer of LangGraph, got {type(saver).__name__}")
        self.saver = saver
        loop = getattr(saver, "loop", None)
        self._loop = loop if isinstance(loop, asyncio.AbstractEventLoop) else None
        self._blocking = self._loop is None and type(saver).get_tuple is not BaseCheckpointSaver.get_tuple

    def check_blocking_call(self) -> None:
        """Refuse a blocking call on the event loop that the other saver needs: both would wait forever."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return
        if running is self._loop:
            raise ConfigurationError(
                f"the fallback, {type(self.saver).__name__}, belongs to this event loop, which a blocking call would "
                "stop: use the async methods of the graph"
            )

    def allow(self, names: Collection[tuple[str, ...]]) -> None:
        """Tell the other saver which classes a graph declares, as LangGraph would."""
        self.saver = self.saver.with_allowlist(names)

    async def latest(self, thread_id: str, namespace: str) -> CheckpointTuple | None:
        return await self._tuple({"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace}})

    async def one(self, thread_id: str, key: GraphKey) -> CheckpointTuple | None:
        return await self._tuple(config_of(thread_id, key.namespace, key.checkpoint_id))

    async def _tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self._call(lambda: self.saver.get_tuple(config), lambda: self.saver.aget_tuple(config))

    async def keys(self, thread_id: str) -> list[GraphKey]:
        """The keys of all checkpoints of a thread, oldest first. Ids begin with a time, and LangGraph sorts by them."""
        return sorted(await self._each({"configurable": {"thread_id": thread_id}}, key_of))

    async def threads(self) -> list[str]:
        return sorted(set(await self._each(None, lambda found: str(found.config["configurable"]["thread_id"]))))

    async def _each(self, config: RunnableConfig | None, read: Callable[[CheckpointTuple], T]) -> list[T]:
        """The result of `read` for each checkpoint. The checkpoints are large, so none is kept."""

        async def read_all() -> list[T]:
            return [read(found) async for found in self.saver.alist(config)]

        return await self._call(lambda: [read(found) for found in self.saver.list(config)], read_all)

    async def delete_thread(self, thread_id: str) -> None:
        with self._capability("delete threads"):
            await self._call(lambda: self.saver.delete_thread(thread_id), lambda: self.saver.adelete_thread(thread_id))

    async def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        with self._capability("delete runs"):
            await self._call(lambda: self.saver.delete_for_runs(run_ids), lambda: self.saver.adelete_for_runs(run_ids))

    async def prune(self, thread_ids: Sequence[str], strategy: str) -> None:
        with self._capability("prune threads"):
            await self._call(
                lambda: self.saver.prune(thread_ids, strategy=strategy),
                lambda: self.saver.aprune(thread_ids, strategy=strategy),
            )

    @contextmanager
    def _capability(self, what: str) -> Iterator[None]:
        """A context that raises CapabilityError if the other saver cannot do something.

        Nothing was done here yet: what the other saver keeps would be brought over again.
        """
        try:
            yield
        except NotImplementedError as error:
            raise CapabilityError(
                f"the fallback, {type(self.saver).__name__}, cannot {what}, and what it keeps would be brought over "
                "again: do it after the move, without the fallback"
            ) from error

    async def _call(self, blocking: Callable[[], T], call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        try:
            if self._blocking:
                return await asyncio.to_thread(blocking)
            if self._loop is None or self._loop is asyncio.get_running_loop():
                return await call()
            if not self._loop.is_running():
                raise ConfigurationError(
                    f"the event loop of the fallback, {type(self.saver).__name__}, has ended: make a new one here"
                )
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call(), self._loop))
        except (LocusError, NotImplementedError):
            raise
        except _DAMAGE as error:
            raise CorruptCheckpointError(
                f"the fallback, {type(self.saver).__name__}, cannot read what it has stored ({type(error).__name__})"
            ) from error
        except Exception as error:
            raise BackendUnavailableError(
                f"the fallback, {type(self.saver).__name__}, cannot be read now ({type(error).__name__}), so what it "
                "has of this thread is not known"
            ) from error


def key_of(found: CheckpointTuple) -> GraphKey:
    named = found.config["configurable"]
    return GraphKey(str(named["checkpoint_id"]), str(named.get("checkpoint_ns") or ""))


class BringOver:
    """Brings threads from a fallback to a receiver, which keeps them in a store."""

    def __init__(self, fallback: Fallback, receiver: Receiver, store: ThreadStore) -> None:
        self.fallback = fallback
        self._receiver = receiver
        self._store = store

    async def at_touch(self, thread_id: str, namespace: str) -> None:
        """Bring a thread over unless the fallback's latest checkpoint in the namespace is here."""
        latest = await self.fallback.latest(thread_id, namespace)
        if latest is None:
            return
        key = key_of(latest)
        if await self._store.entry(thread_id, *key.here) is None:
            await self.whole(thread_id)
        else:
            await self._mend_order(thread_id, *key.here)
            await self._add_writes(thread_id, latest)

    async def _mend_order(self, thread_id: str, namespace: str, checkpoint_id: str) -> None:
        """Restore the latest checkpoint of a thread, if a worker was killed before it could do so."""
        entry = await self._store.entry(thread_id, namespace)
        if entry is None or entry.checkpoint_id != checkpoint_id:
            return
        entries = await self._store.history(thread_id, namespace)
        later = max(entry.checkpoint_id for entry in entries)
        if later > checkpoint_id:
            await self._keep_latest(thread_id, namespace, later, checkpoint_id)

    async def whole(self, thread_id: str) -> int:
        """Bring over all checkpoints of a thread that are not here, and return how many."""
        keys = await self.fallback.keys(thread_id)
        entries = await self._store.history(thread_id, None)
        present = {(entry.namespace, entry.checkpoint_id) for entry in entries}
        latest = {entry.namespace: entry.checkpoint_id for entry in reversed(entries)}
        missing = [key for key in keys if key.here not in present]
        self._warn_of_forks(keys, missing, latest)
        brought: dict[str, str] = {}
        count = 0
        for key in missing:
            checkpoint = await self.fallback.one(thread_id, key)
            if checkpoint is None:  # deleted in the meantime
                continue
            await self._put_writes(checkpoint)
            await self._receiver.receive(checkpoint, created_at=_moment(checkpoint))
            brought[key.here[0]] = key.checkpoint_id
            count += 1
        for namespace, newest in brought.items():
            if namespace in latest and latest[namespace] > newest:
                await self._keep_latest(thread_id, namespace, latest[namespace], newest)
        for key in {key.namespace: key for key in keys}.values():
            if key.here in present and (checkpoint := await self.fallback.one(thread_id, key)) is not None:
                await self._add_writes(thread_id, checkpoint)
        return count

    @staticmethod
    def _warn_of_forks(keys: Collection[GraphKey], missing: Collection[GraphKey], latest: Mapping[str, str]) -> None:
        """Warn, before anything is saved, if a thread was continued both in this saver and in the fallback."""
        there = {key.here for key in keys}
        namespaces = {key.here[0] for key in missing} & latest.keys()
        if any((namespace, latest[namespace]) not in there for namespace in namespaces):
            _log.warning(
                "a thread has gone on in the fallback and here: both lines are in its history, and it continues from "
                "the later one"
            )

    async def _keep_latest(self, thread_id: str, namespace: str, checkpoint_id: str, newest: str) -> None:
        """Make a checkpoint the latest again, after older ones have been added to the history.

        It gets new metadata for that, because saving the same again changes nothing.
        """
        found = await self._receiver.loaded(thread_id, namespace, checkpoint_id)
        if found is None:
            return
        with suppress(ConflictError):  # the thread has gone on meanwhile, and so it has another latest
            await self._receiver.receive(found, created_at=_moment(found), more={FORK: newest}, if_latest=newest)

    async def _put_writes(self, found: CheckpointTuple) -> None:
        """Save pending writes, before the checkpoint itself, so that it never exists without them."""
        for task in _tasks(found):
            await self._receiver.receive_writes(found.config, task.writes, task.task_id, task.path)

    async def _add_writes(self, thread_id: str, checkpoint: CheckpointTuple) -> None:
        """Bring over what tasks have written since the latest checkpoint was brought over."""
        tasks = _tasks(checkpoint)
        if not tasks:
            return
        there = await self._store.get_writes(thread_id, *key_of(checkpoint).here)
        known = {(write.task_id, write.channel) for write in there}
        for task in tasks:
            if any((task.task_id, channel) not in known for channel, _ in task.writes):
                await self._receiver.receive_writes(checkpoint.config, task.writes, task.task_id, task.path)


class _Task(NamedTuple):
    """A task, and its pending writes."""

    task_id: str
    path: str
    writes: list[tuple[str, Any]]


def _tasks(found: CheckpointTuple) -> list[_Task]:
    """The pending writes of each task.

    A saver gives them out in the order of their tasks' paths, but not the paths. So a number stands for the path, and
    the order stays. Writes to special channels have places of their own, and come last.
    """
    tasks: dict[str, list[tuple[str, Any]]] = {}
    for task_id, channel, value in found.pending_writes or ():
        tasks.setdefault(task_id, []).append((channel, value))
    return [
        _Task(task_id, f"{number:06}", sorted(writes, key=lambda one: one[0] in SPECIAL_CHANNELS))
        for number, (task_id, writes) in enumerate(tasks.items())
    ]


def _moment(found: CheckpointTuple) -> datetime | None:
    """The time in a checkpoint; None if it has none."""
    try:
        moment = datetime.fromisoformat(found.checkpoint["ts"])
    except (KeyError, TypeError, ValueError):
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
