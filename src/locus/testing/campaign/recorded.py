"""A checkpointer that records its operations and their answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

from locus.core.state import LISTS, AgentState
from locus.errors import BackendUnavailableError, CheckpointNotFoundError, ConflictError, WindowError
from locus.memory.checkpointer import THIRTY_DAYS, Checkpointer, HistoryEntry, PendingWrite
from locus.memory.model.records import ANY, DEFAULT_NAMESPACE, Unset
from locus.memory.store import CheckpointStore
from locus.testing.campaign.history import ClientLog, Told
from locus.testing.processes.jobs import digest, known_digest, payload_digest

T = TypeVar("T")

REFUSALS = (ConflictError, CheckpointNotFoundError, WindowError)
"""The errors after which certainly nothing was written."""

UNKNOWN = (BackendUnavailableError, asyncio.CancelledError)
"""The errors that leave open whether an operation has happened."""

TAIL = 3
"""How many messages a recorded window has. The checks compare them with the last messages of saves."""

whole_digest: ContextVar[str | None] = ContextVar("whole_digest", default=None)
"""The digest of the whole state that a window stands for, while the window is being saved."""


class RecordedCheckpointer(Checkpointer):
    """A handle on a store that records its operations. Each save has a name, stored in its metadata as `op`."""

    def __init__(self, store: CheckpointStore, log: ClientLog) -> None:
        super().__init__(store)
        self.log = log
        self.clock_jumps = False
        """Whether the clock jumps, so that the time at which a save begins is not that of its checkpoint."""
        self._names = 0
        self._clocks: dict[int, float] = {}
        """The earliest time that the clock has shown during each save under way."""
        self._written_down: BaseException | None = None

    def new_name(self) -> str:
        self._names += 1
        return f"{self.log.client}.{self._names}"

    def look_at_clock(self) -> None:
        """Note the time of a clock that has jumped, for the saves under way."""
        now = time.time()
        for number, earliest in self._clocks.items():
            self._clocks[number] = min(earliest, now)

    def note_failure(self, error: Exception) -> None:
        """Record an error of a step, unless it is recorded already or one that clients may get."""
        if error is not self._written_down and not isinstance(error, (*REFUSALS, *UNKNOWN)):
            self.log.note(error=_full_name(error), text=str(error)[:300])

    async def save(
        self,
        state: AgentState,
        thread_id: str,
        checkpoint_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        *,
        parent: str | None | Unset = ANY,
        if_latest: str | None | Unset = ANY,
        **where: Any,
    ) -> str:
        """Save, and record it. If the metadata has an `op` already, this is another attempt at that save."""
        told = {"op": self.new_name(), **(metadata or {})}
        now = time.time()
        facts: dict[str, Any] = {"op": told["op"], "id": checkpoint_id, "clock": None if self.clock_jumps else now}
        facts |= {"digest": whole_digest.get() or known_digest(state), "tail": tail_digest(state)}
        if not isinstance(if_latest, Unset):
            facts["if_latest"] = if_latest
        known = self.origin(state, thread_id, **where) if isinstance(parent, Unset) else parent
        if known is not None:
            facts |= {"parent": known, "needs_parent": not isinstance(parent, Unset)}
        number = self.log.begin("save", thread_id, **facts)
        self._clocks[number] = now
        try:
            saved = super().save(state, thread_id, checkpoint_id, told, parent=parent, if_latest=if_latest, **where)
            return await self._told(number, saved)
        finally:
            self._clocks.pop(number, None)

    async def load(
        self, thread_id: str, checkpoint_id: str | None = None, *, last: int | None = None, **where: Any
    ) -> AgentState | None:
        call = super().load(thread_id, checkpoint_id, last=last, **where)
        kind, shown = ("load", digest) if last is None else ("tail", tail_digest)
        is_checked = _is_default(where) and last in (None, TAIL)
        return await self._read(kind, thread_id, call, is_checked, shown, id=checkpoint_id)

    async def list_checkpoints(self, thread_id: str, limit: int = 10, **where: Any) -> list[str]:
        call = super().list_checkpoints(thread_id, limit, **where)
        return await self._read("list", thread_id, call, _is_default(where), limit=limit)

    async def history(
        self, thread_id: str, limit: int | None = 10, before: str | None = None, **where: Any
    ) -> list[HistoryEntry]:
        call = super().history(thread_id, limit, before, **where)
        facts = {"limit": limit, "before": before}
        return await self._read("history", thread_id, call, _is_default(where), _named_saves, **facts)

    async def exists(self, thread_id: str, checkpoint_id: str | None = None, **where: Any) -> bool:
        call = super().exists(thread_id, checkpoint_id, **where)
        return await self._read("exists", thread_id, call, where.get("namespace") is None, id=checkpoint_id)

    async def get_writes(
        self, thread_id: str, checkpoint_id: str, task_id: str | None = None, **where: Any
    ) -> list[PendingWrite]:
        call = super().get_writes(thread_id, checkpoint_id, task_id, **where)
        facts = {"id": checkpoint_id, "task": task_id}
        return await self._read("get", thread_id, call, _is_default(where), _digests_by_task, **facts)

    async def _read(
        self,
        kind: str,
        thread_id: str,
        call: Awaitable[T],
        is_checked: bool,
        shown: Callable[[T], Any] = lambda answer: answer,
        **facts: Any,
    ) -> T:
        """Record a read with its answer, or only its outcome if the answer is not checked."""
        if is_checked:
            return await self._told(self.log.begin(kind, thread_id, **facts), call, shown)
        return await self._told(self.log.begin("read", thread_id), call, lambda _: None)

    async def delete(self, thread_id: str, checkpoint_id: str | None = None, **where: Any) -> bool:
        number = self.log.begin("delete", thread_id, id=checkpoint_id)
        return await self._told(number, super().delete(thread_id, checkpoint_id, **where))

    async def copy_thread(
        self, source_thread_id: str, dest_thread_id: str, checkpoint_id: str | None = None, **options: Any
    ) -> bool:
        number = self.log.begin("copy", dest_thread_id, source=source_thread_id, of=checkpoint_id)
        copied = super().copy_thread(source_thread_id, dest_thread_id, checkpoint_id, **options)
        return await self._told(number, copied)

    async def vacuum(
        self, older_than_days: float = THIRTY_DAYS, *, keep_last: int | None = None, **options: Any
    ) -> int:
        by_number_only = keep_last is not None and older_than_days is THIRTY_DAYS
        before = None if by_number_only else time.time() - older_than_days * 86_400
        number = self.log.begin("vacuum", "", before=before, keep_last=keep_last)
        return await self._told(number, super().vacuum(older_than_days, keep_last=keep_last, **options))

    async def put_writes(
        self, thread_id: str, checkpoint_id: str, task_id: str, writes: Sequence[tuple[str, Any]], **options: Any
    ) -> None:
        facts = {"id": checkpoint_id, "task": task_id, "namespace": options.get("namespace", DEFAULT_NAMESPACE)}
        facts |= {"digest": writes_digest(writes), "channels": [channel for channel, _ in writes]}
        number = self.log.begin("writes", thread_id, **facts)
        await self._told(number, super().put_writes(thread_id, checkpoint_id, task_id, writes, **options))

    async def _told(self, number: int, call: Awaitable[T], shown: Callable[[T], Any] = lambda answer: answer) -> T:
        try:
            answer = await call
        except REFUSALS as error:
            latest = error.latest if isinstance(error, ConflictError) else None
            self._end(number, "refused", latest, _kind(error, REFUSALS))
            raise
        except UNKNOWN as error:
            self._end(number, "unknown", None, _kind(error, UNKNOWN))
            raise
        except BaseException as error:
            self._end(number, "unknown", str(error)[:300], _full_name(error))
            self._written_down = error
            raise
        self._end(number, "acknowledged", shown(answer))
        return answer

    def _end(self, number: int, told: Told, answer: Any = None, error: str = "") -> None:
        if number in self._clocks:
            self.look_at_clock()
            self.log.end(number, told, answer, error, clock=self._clocks[number])
        else:
            self.log.end(number, told, answer, error)


def _full_name(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _kind(error: BaseException, kinds: Sequence[type[BaseException]]) -> str:
    """The name of the class in `kinds` that an error belongs to. Stores may raise more precise subclasses."""
    return next(kind.__name__ for kind in kinds if isinstance(error, kind))


def _is_default(where: Mapping[str, Any]) -> bool:
    """Whether a call is about the namespace whose reads are checked."""
    return bool(where.get("namespace", DEFAULT_NAMESPACE) == DEFAULT_NAMESPACE)


def _named_saves(entries: Sequence[HistoryEntry]) -> list[tuple[str, Any]]:
    return [(entry.checkpoint_id, entry.metadata.get("op")) for entry in entries]


def _digests_by_task(writes: Sequence[PendingWrite]) -> dict[str, str]:
    tasks: dict[str, list[tuple[str, Any]]] = {}
    for write in writes:
        tasks.setdefault(write.task_id, []).append((write.channel, write.value))
    return {task: writes_digest(task_writes) for task, task_writes in tasks.items()}


def tail_digest(state: AgentState | None) -> str | None:
    """The digest of the last messages' texts, which a window shows as well."""
    return None if state is None else payload_digest([message.text for message in state.messages[-TAIL:]])


def writes_digest(writes: Sequence[tuple[str, Any]]) -> str:
    """The digest of a task's writes, in their order."""
    return payload_digest([[channel, value] for channel, value in writes])


def digest_with_omitted(whole: AgentState, window: AgentState) -> str:
    """The digest of the whole state that a window stands for. `whole` is the state that the window was loaded from."""
    payload: dict[str, Any] = dict(window.to_checkpoint())
    payload.pop("locus_omitted", None)
    omitted: Mapping[str, Any] = window.omitted
    before = whole.to_checkpoint()
    for name in LISTS:
        payload[name] = [*before.get(name, ())[: omitted.get(name, 0)], *payload.get(name, ())]
    return payload_digest(payload)
