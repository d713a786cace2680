"""Where a run is saved: a thread of a checkpointer, a conversation memory, or nowhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

from locus.core.messages import Message, ToolResult
from locus.core.state import AgentState
from locus.core.tasks import finished
from locus.errors import ConflictError
from locus.memory.checkpointer import BaseCheckpointer, Checkpointer, HistoryEntry
from locus.memory.conversation import AgentCheckpointer
from locus.memory.model.ids import MAX_ID_LENGTH, new_id

OnConflict = Literal["raise", "fork", "wait"]

STARTED = "locus:started"
RESULT = "locus:result"
CARRIED_ON = ("resumed", "interrupt")
"""Steps whose checkpoints leave calls open that an earlier checkpoint has records of."""

Records = dict[str, ToolResult | None]


class Session(ABC):
    """Where one run is saved. The base class saves nothing."""

    def __init__(self, thread_id: str | None) -> None:
        self.thread_id = thread_id
        self.latest: str | None = None
        self.saved_by_run = False
        """Whether the state that was loaded was saved by a run: then every call in it has a result, or is the last."""
        self.is_running = False
        """Whether the state that was loaded is one of a run that is under way, or was killed."""

    @abstractmethod
    async def load(self) -> AgentState | None:
        """The state that the run goes on from."""

    @abstractmethod
    async def save(self, state: AgentState, facts: dict[str, Any]) -> str | None:
        """Keep the state; return the checkpoint's id, or None if there are none here."""

    async def finish(self, state: AgentState) -> None:
        """The run is over."""

    async def running(self) -> str | None:
        """The latest checkpoint, if it says that a run is under way."""
        return None

    async def record_start(self, call_id: str) -> bool:
        """A call that must not be repeated is about to be made. False: another worker has taken it over."""
        return True

    async def record_result(self, result: ToolResult) -> None:
        """A call is done. Once this returns, it is never made again."""

    async def recorded(self) -> Records | None:
        """The open calls that were begun, with their results; None: begun, but not known to be done.

        None in all if this place keeps no records.
        """
        return None


class NoSession(Session):
    """A run that is not kept."""

    def __init__(self) -> None:
        super().__init__(None)

    async def load(self) -> AgentState | None:
        return None

    async def save(self, state: AgentState, facts: dict[str, Any]) -> str | None:
        return None


class ThreadSession(Session):
    """A thread of a Locus checkpointer. Every save names the checkpoint that it expects to be the latest."""

    def __init__(self, checkpointer: Checkpointer, thread_id: str, on_conflict: OnConflict) -> None:
        super().__init__(thread_id)
        self._checkpointer = checkpointer
        self._on_conflict = on_conflict
        self._thread = thread_id
        self._step: str | None = None

    @property
    def _keeps_records(self) -> bool:
        return self._checkpointer.store.keeps_writes

    async def _newest(self) -> HistoryEntry | None:
        return next(iter(await self._checkpointer.history(self._thread, limit=1)), None)

    async def load(self) -> AgentState | None:
        while (entry := await self._newest()) is not None:
            state = await self._checkpointer.load(self._thread, entry.checkpoint_id)
            if state is not None:  # else it was deleted in between
                self.latest, self._step = entry.checkpoint_id, entry.metadata.get("step")
                self.saved_by_run = "run_id" in entry.metadata and self._step is not None
                self.is_running = _is_running(entry)
                return state
        self.latest = self._step = None
        self.is_running = False
        return None

    async def save(self, state: AgentState, facts: dict[str, Any]) -> str | None:
        return await finished(self._save(state, facts))

    async def _save(self, state: AgentState, facts: dict[str, Any]) -> str:
        try:
            saved = await self._checkpointer.save(state, self._thread, metadata=facts, if_latest=self.latest)
        except ConflictError:
            # Two who decide on the same calls must not both go on: the calls would be made twice.
            if self._on_conflict != "fork" or facts["step"] == "decision":
                raise
            await self._fork()
            saved = await self._checkpointer.save(state, self._thread, metadata=facts, if_latest=self.latest)
        self.latest, self._step = saved, facts["step"]
        return saved

    async def _fork(self) -> None:
        """Continue in a new thread, a copy of this one up to where another writer got ahead."""
        suffix = f"~{new_id()[:8]}"
        fork = self._thread[: MAX_ID_LENGTH - len(suffix)] + suffix
        if self.latest is not None and not await self._checkpointer.copy_thread(self._thread, fork, self.latest):
            self.latest = None  # it was deleted meanwhile, and the state is saved whole
        self._thread = self.thread_id = fork

    async def running(self) -> str | None:
        entry = await self._newest()
        return entry.checkpoint_id if entry is not None and _is_running(entry) else None

    async def record_start(self, call_id: str) -> bool:
        # First the record, then the check. A worker that takes the thread over does it the other way round (a save,
        # then `recorded`), so one of the two always sees the other.
        await self._write(call_id, [(STARTED, True)])
        entry = await self._newest()
        return entry is not None and entry.checkpoint_id == self.latest

    async def record_result(self, result: ToolResult) -> None:
        await self._write(result.tool_call_id, [(RESULT, result.model_dump())])

    async def _write(self, call_id: str, writes: list[tuple[str, Any]]) -> None:
        if self._keeps_records and self.latest is not None:
            await self._checkpointer.put_writes(self._thread, self.latest, call_id, writes)

    async def recorded(self) -> Records | None:
        if not self._keeps_records:
            return None
        found: Records = {}
        at, step = self.latest, self._step
        while at is not None:
            for write in await self._checkpointer.get_writes(self._thread, at):
                if write.channel == STARTED:
                    found.setdefault(write.task_id, None)
                elif write.channel == RESULT:
                    found[write.task_id] = found.get(write.task_id) or ToolResult.model_validate(write.value)
            before = await self._checkpointer.history(self._thread, 1, at) if step in CARRIED_ON else []
            at, step = (before[0].checkpoint_id, before[0].metadata.get("step")) if before else (None, None)
        return found


def _is_running(entry: HistoryEntry) -> bool:
    return entry.metadata.get("status") == "running"


class PlainSession(Session):
    """A third-party `BaseCheckpointer`: states are saved, results of single tools are not."""

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
    """A conversation memory with two methods: the messages are loaded before a run, and saved after it."""

    def __init__(self, memory: AgentCheckpointer, thread_id: str) -> None:
        super().__init__(thread_id)
        self._memory = memory
        self._thread = thread_id

    async def load(self) -> AgentState | None:
        messages: list[Message] = list(await self._memory.load(self._thread))
        return AgentState(messages=tuple(messages)) if messages else None

    async def save(self, state: AgentState, facts: dict[str, Any]) -> str | None:
        return None

    async def finish(self, state: AgentState) -> None:
        await self._memory.save(self._thread, list(state.messages))
