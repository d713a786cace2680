"""The agent: a model, tools, and a memory that outlives the process."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any
from uuid import uuid4

from locus.agent.config import AgentConfig
from locus.agent.recovery import repaired
from locus.agent.results import AgentResult
from locus.agent.run import Emit, Run
from locus.agent.sessions import ConversationSession, NoSession, PlainSession, Session, ThreadSession
from locus.core.events import Event
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConfigurationError, ConflictError
from locus.memory.checkpointer import BaseCheckpointer, Checkpointer, StoreVerbs
from locus.memory.conversation import AgentCheckpointer
from locus.memory.model.records import DEFAULT_NAMESPACE
from locus.memory.registry import as_checkpointer
from locus.memory.runtime.portal import PORTAL
from locus.memory.runtime.retry import Backoff
from locus.models import get_model
from locus.models.base import Model
from locus.tools import ToolRegistry

Prompt = str | Message | Sequence[Message]
OnEvent = Callable[[Event], Any]

_BETWEEN_LOOKS = Backoff(0.01, 0.5, factor=1.5, random_part=0.0)


class Agent:
    """An agent. Settings come by keyword, or as an `AgentConfig`, or both, and then keywords win.

    With a checkpointer and a `thread_id` every step is kept; without a `thread_id` a run is stateless.
    """

    def __init__(self, config: AgentConfig | None = None, **settings: Any) -> None:
        try:
            self.config = replace(config or AgentConfig(), **settings)
        except TypeError as error:
            known = ", ".join(sorted(AgentConfig.__dataclass_fields__))
            raise ConfigurationError(f"{error}; the settings are: {known}") from error
        model = self.config.model
        self.model: Model = get_model(model) if model is None or isinstance(model, str) else model
        if not isinstance(self.model, Model):
            raise ConfigurationError(f"a model has the method complete, and {type(model).__name__} has not")
        self.tools = ToolRegistry(self.config.tools)
        self._kept = self._memory()

    def _memory(self) -> BaseCheckpointer | AgentCheckpointer | None:
        if self.config.checkpointer is not None:
            return as_checkpointer(self.config.checkpointer)
        memory = self.config.memory
        if memory is None:
            return None
        # First, because a checkpointer also has methods named like those of a conversation memory.
        if isinstance(memory, str | BaseCheckpointer | StoreVerbs):
            return as_checkpointer(memory)
        if isinstance(memory, AgentCheckpointer):
            return memory
        raise ConfigurationError(f"memory needs the methods load and save, got {type(memory).__name__}")

    @property
    def checkpointer(self) -> BaseCheckpointer | AgentCheckpointer | None:
        return self._kept

    def _session(self, thread_id: str | None) -> Session:
        kept = self._kept
        if thread_id is None or kept is None:
            return NoSession()
        if isinstance(kept, Checkpointer):
            return ThreadSession(kept, thread_id, self.config.on_conflict)
        if isinstance(kept, BaseCheckpointer):
            return PlainSession(kept, thread_id)
        return ConversationSession(kept, thread_id)

    async def run(self, prompt: Prompt, thread_id: str | None = None) -> AsyncGenerator[Event, None]:
        """Run, and tell what happens. The last event is a `TerminateEvent` or an `InterruptEvent`.

        Leaving the loop before the end cancels the run; the thread can go on from where it was.
        """
        async with aclosing(_streamed(lambda tell: self.invoke(prompt, thread_id, on_event=tell))) as events:
            async for event in events:
                yield event

    async def invoke(
        self, prompt: Prompt, thread_id: str | None = None, *, on_event: OnEvent | None = None
    ) -> AgentResult:
        """Run to the end, and return the result."""
        messages = _messages(prompt)
        session = self._session(thread_id)
        waits = self.config.on_conflict == "wait"
        while True:
            state = await (self._wait(session) if waits else session.load())
            run = self._begin(session, state, _emitter(on_event))
            try:
                await run.begin(messages)
            except ConflictError:
                # Another worker was faster with its message. This one is not lost: it comes after that run.
                if run.accepted or not waits:
                    raise
            else:
                return _result(run)

    def run_sync(self, prompt: Prompt, thread_id: str | None = None, *, on_event: OnEvent | None = None) -> AgentResult:
        """`invoke` for code that is not async; works inside a running event loop, too."""
        return PORTAL.run(self.invoke(prompt, thread_id, on_event=on_event))

    async def resume(self, thread_id: str, decision: Any = None) -> AsyncGenerator[Event, None]:
        """Go on where the thread stopped: after a kill, a limit, or, with a decision, an interrupt."""
        async with aclosing(_streamed(lambda tell: self.resume_invoke(thread_id, decision, on_event=tell))) as events:
            async for event in events:
                yield event

    async def resume_invoke(
        self, thread_id: str, decision: Any = None, *, on_event: OnEvent | None = None
    ) -> AgentResult:
        """Go on to the end, and return the result."""
        session = self._session(thread_id)
        state = await session.load()
        while True:
            if state is None:
                raise await self._not_begun(thread_id)
            run = Run(self.config, self.model, self.tools, session, state, _emitter(on_event))
            try:
                await run.go_on(decision)
            except ConflictError:
                if decision is not None or self.config.on_conflict != "wait":
                    raise
                state = await self._wait(session)
            else:
                return _result(run)

    async def _not_begun(self, thread_id: str) -> ConfigurationError:
        there = ""
        if isinstance(self._kept, Checkpointer):
            there = await self._kept.store.other_namespaces(thread_id, DEFAULT_NAMESPACE)
        if there:
            return ConfigurationError(f"no agent has begun thread {thread_id!r}, so it cannot be resumed: {there}")
        return ConfigurationError(f"there is no thread {thread_id!r} to resume; begin it with run()")

    def resume_sync(self, thread_id: str, decision: Any = None, *, on_event: OnEvent | None = None) -> AgentResult:
        """`resume_invoke` for code that is not async."""
        return PORTAL.run(self.resume_invoke(thread_id, decision, on_event=on_event))

    def _begin(self, session: Session, state: AgentState | None, emit: Emit) -> Run:
        """A run with a new id, on what the thread has."""
        fresh = {"run_id": uuid4().hex, "iteration": 0, "max_iterations": self.config.max_iterations}
        if self.config.agent_id is not None or state is None:
            fresh["agent_id"] = self.config.agent_id
        state = (state or AgentState()).model_copy(update=fresh)
        return Run(self.config, self.model, self.tools, session, state, emit)

    async def _wait(self, session: Session) -> AgentState | None:
        """What the thread has once no other worker's run is under way in it.

        A run that saves nothing for `wait_seconds` is taken for dead.
        """
        while True:
            dead = await self._no_run(session)
            state = await session.load()
            # Yet another worker may have begun a run before the load.
            if not session.is_running or session.latest == dead:
                return state

    async def _no_run(self, session: Session) -> str | None:
        """Wait for the end of a run; return the last checkpoint of one that is taken for dead."""
        deadline = time.monotonic() + self.config.wait_seconds
        seen: str | None = None
        attempt = 0
        while (running := await session.running()) is not None:
            if running != seen:
                seen, deadline = running, time.monotonic() + self.config.wait_seconds
            elif time.monotonic() > deadline:
                return running
            await _BETWEEN_LOOKS.pause(attempt)
            attempt += 1
        return None


def _emitter(on_event: OnEvent | None) -> Emit:
    async def emit(event: Event) -> None:
        if on_event is not None:
            answer = on_event(event)
            if inspect.isawaitable(answer):
                await answer

    return emit


async def _streamed(start: Callable[[OnEvent], Coroutine[Any, Any, AgentResult]]) -> AsyncGenerator[Event, None]:
    """The events of a run as a stream."""
    events: asyncio.Queue[Event | None] = asyncio.Queue()
    task = asyncio.create_task(start(events.put_nowait))
    task.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            yield event
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _result(run: Run) -> AgentResult:
    assert run.result is not None, "a run ends with a result, or raises"
    return run.result


def _messages(prompt: Prompt) -> list[Message]:
    if isinstance(prompt, str):
        return [Message.user(prompt)]
    given = list(prompt) if isinstance(prompt, Sequence) else [prompt]
    found = [message for message in given if isinstance(message, Message)]
    if len(found) < len(given):
        raise ConfigurationError(f"a prompt is text or messages, got {prompt!r:.80}")
    mended = repaired(found, to_the_end=True)
    found = found if mended is None else mended
    if not found:
        raise ConfigurationError("the prompt is empty: give text, or at least one message")
    return found
