"""Sessions: the places that a run is saved in. A thread of a checkpointer, a conversation memory, or nowhere."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from locus.agent.leases import (
    PLACE,
    Cause,
    End,
    found_lease,
    is_overdue,
    lease_facts,
    new_lease_id,
    release,
    renewal,
)
from locus.agent.window import needed, to_load
from locus.core.messages import Message, ToolResult
from locus.core.state import AgentState
from locus.core.tasks import ended, finished
from locus.errors import ConflictError, CorruptCheckpointError
from locus.memory.checkpointer import BaseCheckpointer, Checkpointer, HistoryEntry
from locus.memory.conversation import AgentCheckpointer
from locus.memory.model.ids import MAX_ID_LENGTH, new_id, shown_thread
from locus.memory.runtime.leases import Lease, Watch
from locus.memory.runtime.retry import Backoff

OnConflict = Literal["reject", "wait", "queue", "take_over", "fork", "raise"]

STARTED = "locus:started"
RESULT = "locus:result"
CARRIED_ON = ("resumed", "interrupt")
"""Steps whose checkpoints may have open calls with records at an earlier checkpoint."""

Records = dict[str, ToolResult | None]
Read = TypeVar("Read", bound=BaseModel)

_PAGE = 50
_log = logging.getLogger(__name__)


_SOON = 1.0


@dataclass(frozen=True)
class OtherRun:
    """A run of another worker that is under way in the thread."""

    last_sign: tuple[str, float]
    """A value that changes whenever the worker of that run saves or renews its lease."""
    last_saved: datetime
    seconds_left: float
    """How long that worker may still be silent before it is taken for dead."""
    has_lease: bool = True
    """Whether `seconds_left` comes from that worker's lease. If it has none, this worker has chosen the time."""
    is_overdue: bool = False
    """Whether that worker should have given a sign of life by now, and was killed, most likely."""

    @property
    def retry_after(self) -> float:
        """The seconds after which it makes sense to ask again: one that is alive may be done at any moment."""
        return self.seconds_left if self.is_overdue else min(self.seconds_left, _SOON)


class Session:
    """The place that one run is loaded from and saved to. The base class keeps nothing."""

    def __init__(self, thread_id: str | None = None) -> None:
        self.thread_id = thread_id
        self.latest: str | None = None
        self.saved_by_run = False
        """Whether the loaded state was saved by a run, so that only its last calls can be without results."""
        self.other_run: OtherRun | None = None
        """The run of another worker that was under way when the state was loaded."""
        self.cut_off: Cause = "stopped"
        """Why the run that saved the loaded state was cut off, if it was."""

    @property
    def keeps_lease(self) -> bool:
        """Whether leases are stored, so that a run under way can be told from one whose worker is gone."""
        return False

    @property
    def keeps_state(self) -> bool:
        """Whether the whole state is saved, rather than its messages alone."""
        return True

    async def load(self) -> AgentState | None:
        """Load the state that the run goes on from; None if there is none."""
        return None

    async def save(self, state: AgentState, facts: dict[str, Any]) -> str | None:
        """Save the state. Returns the id of the checkpoint, or None where there are no checkpoints."""
        return None

    async def finish(self, state: AgentState) -> None:
        """Take note that the run is over; `state` is its last state."""

    async def look(self) -> OtherRun | None:
        """The run of another worker that is under way in the thread now."""
        return None

    async def load_before(self) -> AgentState | None:
        """Load the state before the other worker's run."""
        return None

    async def let_go(self, end: End) -> None:
        """Release the thread for others. This run saves nothing more."""

    async def record_start(self, call_id: str) -> bool:
        """Record that a call which must not be repeated is about to be made. False if another worker has it now."""
        return True

    async def record_result(self, result: ToolResult) -> None:
        """Record the result of a call. Once this returns, the call is never made again."""

    async def read_messages(self, start: int, end: int) -> AsyncIterator[Message]:
        """Read messages of the thread that were not loaded, from position `start` to `end`."""
        nothing: tuple[Message, ...] = ()  # all messages are loaded here
        for message in nothing:
            yield message

    async def recorded(self) -> Records | None:
        """The open calls that were begun: their results by call id, or None for a result that is not known.

        Returns None if this place keeps no records of calls.
        """
        return None


class ThreadSession(Session):
    """A session in a thread of a Locus checkpointer. Every save names the checkpoint that it expects to be the latest.

    - `lease_seconds`: how long this worker may be silent.
    - `patience`: how many seconds a run without a lease may be silent before it is taken for dead; `None` ignores it.
    - `window`: how many messages are loaded, at least; `None` for all.
    - `back_to_summary`: load also the messages before the window that the summary does not cover.
    """

    def __init__(
        self,
        checkpointer: Checkpointer,
        thread_id: str,
        on_conflict: OnConflict,
        lease_seconds: float,
        patience: float | None = None,
        window: int | None = None,
        *,
        back_to_summary: bool = False,
    ) -> None:
        super().__init__(thread_id)
        self._checkpointer = checkpointer
        self._window = window
        self._back_to_summary = back_to_summary
        self._on_conflict = on_conflict
        self._thread = thread_id
        self._step: str | None = None
        self._run_id: str | None = None
        self._lease_seconds = lease_seconds
        self._patience = patience
        self._watch = Watch()
        self._lease_id: str | None = None
        """The id of this run's lease, which it has from its first checkpoint on."""
        self._told = 0.0
        """The time at which this worker last saved, or renewed its lease."""
        self._renewing: asyncio.Task[None] | None = None

    @property
    def _keeps_records(self) -> bool:
        return self._checkpointer.store.keeps_writes

    @property
    def keeps_lease(self) -> bool:
        return self._keeps_records

    async def _newest(self) -> HistoryEntry | None:
        return next(iter(await self._checkpointer.history(self._thread, limit=1)), None)

    async def load(self) -> AgentState | None:
        while (entry := await self._newest()) is not None:
            state = await self._load_at(entry)
            if state is not None:  # else it was deleted in between
                return state
        self._begin_at(None)
        return None

    async def _load_at(self, entry: HistoryEntry) -> AgentState | None:
        state = await self._load_state(entry.checkpoint_id)
        if state is not None:
            self._begin_at(entry)
            self.other_run = await self._other_run(entry)
        return state

    async def _load_state(self, checkpoint_id: str) -> AgentState | None:
        """Load a checkpoint, or a window of it that is long enough for the model to see whole turns."""
        window = self._window
        last = None if window is None else to_load(window)
        while True:
            state = await self._checkpointer.load(self._thread, checkpoint_id, last=last)
            if window is None or state is None:
                return state
            last = needed(state, window, back_to_summary=self._back_to_summary)
            if last is None:
                return state

    async def read_messages(self, start: int, end: int) -> AsyncIterator[Message]:
        while start < end:
            page = await self._checkpointer.read_items(
                self._thread, self.latest, start=start, count=min(_PAGE, end - start)
            )
            if page is None or not page.items:
                raise ConflictError(f"thread {self._thread!r}: a checkpoint was removed while it was read; try again")
            for position, item in enumerate(page.items, start):
                yield self._read(Message, item, f"message {position}")
            start += len(page.items)

    def _read(self, kind: type[Read], stored: Any, what: str) -> Read:
        try:
            return kind.model_validate(stored)
        except ValidationError as error:
            raise CorruptCheckpointError(
                f"{what} of {shown_thread(self._thread)} is damaged: {error.error_count()} fields do not fit"
            ) from None  # its text has the values

    def _begin_at(self, entry: HistoryEntry | None) -> None:
        facts: Mapping[str, Any] = entry.metadata if entry is not None else {}
        self.latest = entry.checkpoint_id if entry is not None else None
        self._step, self._run_id = facts.get("step"), facts.get("run_id")
        self.saved_by_run = "run_id" in facts and self._step is not None
        self.other_run, self.cut_off = None, "stopped"

    async def load_before(self) -> AgentState | None:
        run_id, before = self._run_id, self.latest
        while before is not None:
            page = await self._checkpointer.history(self._thread, _PAGE, before)
            for entry in page:
                if entry.metadata.get("run_id") != run_id:
                    state = await self._load_at(entry)
                    if state is not None:
                        return state
            before = page[-1].checkpoint_id if len(page) == _PAGE else None
        self._begin_at(None)
        return None

    async def look(self) -> OtherRun | None:
        entry = await self._newest()
        return None if entry is None else await self._other_run(entry)

    async def _other_run(self, entry: HistoryEntry) -> OtherRun | None:
        """The run that saved a checkpoint, if it is under way. Sets `cut_off`."""
        self.cut_off = "stopped"
        if not _is_running(entry.metadata):
            return None
        writes = (
            await self._checkpointer.get_writes(self._thread, PLACE, namespace=PLACE) if self._keeps_records else []
        )
        lease = found_lease(self._thread, entry, writes)
        has_lease = isinstance(lease, Lease)
        if not isinstance(lease, Lease):
            self.cut_off = lease
            if "lease" in entry.metadata or self._patience is None:
                return None
            lease = Lease(self._patience, math.inf)  # the version or the store that saved the run has no leases
        left = self._watch.seconds_left(entry.checkpoint_id, lease)
        if not left:
            return None
        self.cut_off = "taken_over"
        sign = (entry.checkpoint_id, lease.until)
        return OtherRun(sign, entry.created_at, left, has_lease, is_overdue(lease))

    async def save(self, state: AgentState, facts: dict[str, Any]) -> str | None:
        return await finished(self._save(state, facts))

    async def _save(self, state: AgentState, facts: dict[str, Any]) -> str:
        began = time.monotonic()
        try:
            saved = await self._save_here(state, facts)
        except ConflictError:
            # After two decisions on the same calls only one run may go on, or the calls would be made twice.
            if self._on_conflict != "fork" or facts["step"] == "decision":
                raise
            left = self._thread
            await self._fork()
            self._checkpointer.follow_copy(state, left, self._thread)
            saved = await self._save_here(state, facts)
        # The lease counts from the beginning of the save, however long that takes.
        self.latest, self._step, self._told = saved, facts["step"], began
        if self._lease_id is not None and self._renewing is None:
            self._renewing = asyncio.create_task(self._renew())
        return saved

    async def _save_here(self, state: AgentState, facts: dict[str, Any]) -> str:
        """Save in this thread. As long as the run is under way, the checkpoint holds its lease."""
        lease_id = self._lease_id
        if self.keeps_lease and _is_running(facts):
            lease_id = lease_id or new_lease_id(self._thread)
            facts = facts | {"lease": lease_facts(lease_id, self._lease_seconds)}
        saved = await self._checkpointer.save(state, self._thread, metadata=facts, if_latest=self.latest)
        self._lease_id = lease_id
        return saved

    async def _fork(self) -> None:
        """Continue in a new thread: a copy of this one, up to the last checkpoint before another writer's."""
        suffix = f"~{new_id()[:8]}"
        fork = self._thread[: MAX_ID_LENGTH - len(suffix)] + suffix
        if self.latest is not None and not await self._checkpointer.copy_thread(self._thread, fork, self.latest):
            self.latest = None  # that checkpoint was deleted meanwhile, so the next save writes the state whole
        self._thread = self.thread_id = fork
        self._lease_id = None

    async def _renew(self) -> None:
        """Renew the lease whenever this worker has saved nothing for a third of it."""
        third = self._lease_seconds / 3
        after_failure = Backoff(third / 8, third)
        failures = 0
        while True:
            await asyncio.sleep(max(0.0, self._told + third - time.monotonic()))
            if time.monotonic() < self._told + third:
                continue
            began = time.monotonic()
            try:
                await finished(self._say_alive())
                self._told, failures = max(self._told, began), 0
            except Exception:  # noqa: BLE001 (the next save fails in the same way, and tells the run)
                await after_failure.pause(failures)
                failures += 1

    async def _say_alive(self) -> None:
        if self._lease_id is not None and await self._is_latest():
            await self._say(renewal(self._lease_id, self._lease_seconds))

    async def _is_latest(self) -> bool:
        """Whether the thread still ends with this run's checkpoint: it was neither taken over nor deleted."""
        entry = await self._newest()
        return entry is not None and entry.checkpoint_id == self.latest

    async def _say(self, value: dict[str, Any]) -> None:
        await self._checkpointer.put_writes(self._thread, PLACE, PLACE, [(PLACE, value)], namespace=PLACE)

    async def let_go(self, end: End) -> None:
        await finished(self._let_go(end))

    async def _let_go(self, end: End) -> None:
        renewing, self._renewing = self._renewing, None
        if renewing is not None:  # first, so that no renewal comes after the release
            await ended(renewing)
        lease_id, self._lease_id = self._lease_id, None
        try:
            # The last checkpoint says that the run is over. It may be deleted, and the one before it does not say so.
            if lease_id is not None and await self._is_latest():
                await self._say(release(lease_id, end))
        except Exception as error:  # noqa: BLE001 (the run is over all the same, and the lease ends by itself)
            _log.warning("a thread was not given back (%s); it is free when its lease is over", type(error).__name__)

    async def record_start(self, call_id: str) -> bool:
        # First the record, then the check. A worker that takes the thread over does it the other way round (a save,
        # then `recorded`), so one of the two always sees the other.
        await self._write(call_id, [(STARTED, True)])
        return await self._is_latest()

    async def record_result(self, result: ToolResult) -> None:
        await self._write(result.tool_call_id, [(RESULT, result.model_dump())])

    async def _write(self, call_id: str, writes: list[tuple[str, Any]]) -> None:
        if self._keeps_records and self.latest is not None:
            await self._checkpointer.put_writes(self._thread, self.latest, call_id, writes)

    async def recorded(self) -> Records | None:
        if not self._keeps_records:
            return None
        records: Records = {}
        at, step = self.latest, self._step
        while at is not None:
            for write in await self._checkpointer.get_writes(self._thread, at):
                if write.channel == STARTED:
                    records.setdefault(write.task_id, None)
                elif write.channel == RESULT:
                    result = records.get(write.task_id) or self._read(ToolResult, write.value, "a result")
                    records[write.task_id] = result
            before = await self._checkpointer.history(self._thread, 1, at) if step in CARRIED_ON else []
            at, step = (before[0].checkpoint_id, before[0].metadata.get("step")) if before else (None, None)
        return records


def _is_running(facts: Mapping[str, Any]) -> bool:
    return facts.get("status") == "running"


class PlainSession(Session):
    """A session in a third-party `BaseCheckpointer`: it saves states, but no records of single calls."""

    def __init__(self, checkpointer: BaseCheckpointer, thread_id: str) -> None:
        super().__init__(thread_id)
        self._checkpointer = checkpointer
        self._thread = thread_id

    async def load(self) -> AgentState | None:
        return await self._checkpointer.load(self._thread)

    async def save(self, state: AgentState, facts: dict[str, Any]) -> str | None:
        self.latest = await self._checkpointer.save(state, self._thread, metadata=facts)
        return self.latest


class ConversationSession(Session):
    """A session in a conversation memory: it loads the messages before a run, and saves them after it."""

    def __init__(self, memory: AgentCheckpointer, thread_id: str) -> None:
        super().__init__(thread_id)
        self._memory = memory
        self._thread = thread_id

    @property
    def keeps_state(self) -> bool:
        return False

    async def load(self) -> AgentState | None:
        messages: list[Message] = list(await self._memory.load(self._thread))
        return AgentState(messages=tuple(messages)) if messages else None

    async def finish(self, state: AgentState) -> None:
        await self._memory.save(self._thread, list(state.messages))
