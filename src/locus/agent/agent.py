"""The agent: a model, tools, and a memory that outlives the process."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Never, NoReturn
from uuid import uuid4

from locus.agent.config import AgentConfig, Store, Tools, UnknownOutcome
from locus.agent.middleware import Middleware
from locus.agent.recovery import repaired
from locus.agent.results import AgentResult
from locus.agent.run import Emit, Run
from locus.agent.sessions import ConversationSession, NoSession, OnConflict, PlainSession, Session, ThreadSession
from locus.core.events import Event
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConfigurationError, ConflictError
from locus.hints import did_you_mean
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


class _FromConfig:
    """Stands for a setting that was not given by keyword."""

    def __repr__(self) -> str:
        return "the config's"


_FROM_CONFIG: Any = _FromConfig()


class Agent:
    """An agent. Settings come by keyword, or as an `AgentConfig`, or both, and then keywords win.

    With a checkpointer and a `thread_id` every step is kept; without a `thread_id` a run is stateless.

    - `model`: a model, or its name: `"openai:gpt-4.1"`. Without one, `LOCUS_MODEL_PROVIDER` or an OCI configuration
      has to say which.
    - `tools`: tools, or plain functions.
    - `system_prompt`: put before the conversation at every model call; not stored.
    - `checkpointer`: where threads are kept: a checkpointer, a storage backend, or a URL such as `"sqlite:agents.db"`.
    - `memory`: the same, or an object that keeps only messages. Give one of the two.
    - `agent_id`: noted in the state, and in the metadata of each checkpoint.
    - `checkpoint_every_n_iterations`: how often a round of tool results becomes a checkpoint.
    - `reflexion`: whether to keep a confidence score, and to point out repeated calls to the model.
    - `middleware`: what acts on the conversation before the model sees it, and on calls before they are made.
    - `max_iterations`, `max_tokens`, `max_seconds`: the limits of one run: model calls, tokens, time.
    - `tool_timeout`: seconds for a tool that has no timeout of its own; `None` for no limit.
    - `on_conflict`: what to do when another worker was faster in the same thread: "raise", "fork" or "wait".
    - `wait_seconds`: with "wait", a run that saves nothing for this long is taken for dead.
    - `unknown_outcome`: what to do with a call that was under way when a process was killed: "skip", "ask" or "retry".
    """

    def __init__(
        self,
        config: AgentConfig | None = None,
        *,
        model: Model | str | None = _FROM_CONFIG,
        tools: Tools = _FROM_CONFIG,
        system_prompt: str | None = _FROM_CONFIG,
        checkpointer: Store | None = _FROM_CONFIG,
        memory: Store | AgentCheckpointer | None = _FROM_CONFIG,
        agent_id: str | None = _FROM_CONFIG,
        checkpoint_every_n_iterations: int = _FROM_CONFIG,
        reflexion: bool = _FROM_CONFIG,
        middleware: Sequence[Middleware] = _FROM_CONFIG,
        max_iterations: int = _FROM_CONFIG,
        max_tokens: int | None = _FROM_CONFIG,
        max_seconds: float | None = _FROM_CONFIG,
        tool_timeout: float | None = _FROM_CONFIG,
        on_conflict: OnConflict = _FROM_CONFIG,
        wait_seconds: float = _FROM_CONFIG,
        unknown_outcome: UnknownOutcome = _FROM_CONFIG,
        **unknown: Never,
    ) -> None:
        given = locals()
        if unknown:
            name = next(iter(unknown))
            known = sorted(AgentConfig.__dataclass_fields__)
            raise ConfigurationError(
                f"Agent has no setting {name!r:.80}{did_you_mean(name, known)}; the settings are: {', '.join(known)}"
            )
        settings = {name: given[name] for name in AgentConfig.__dataclass_fields__}
        self.config = replace(
            config or AgentConfig(), **{name: value for name, value in settings.items() if value is not _FROM_CONFIG}
        )
        chosen = self.config.model
        self.model: Model = get_model(chosen) if chosen is None or isinstance(chosen, str) else chosen
        if not isinstance(self.model, Model):
            raise ConfigurationError(f"a model has the method complete, and {type(chosen).__name__} has not")
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

    def run(self, prompt: Prompt, thread_id: str | None = None) -> AsyncGenerator[Event, None]:
        """Run, and tell what happens. The last event is a `TerminateEvent` or an `InterruptEvent`.

        Leaving the loop before the end cancels the run; the thread can go on from where it was.
        """
        return EventStream(_streamed(lambda tell: self.invoke(prompt, thread_id, on_event=tell)), "run", "invoke")

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

    def resume(self, thread_id: str, decision: Any = None) -> AsyncGenerator[Event, None]:
        """Go on where the thread stopped: after a kill, a limit, or, with a decision, an interrupt."""
        return EventStream(
            _streamed(lambda tell: self.resume_invoke(thread_id, decision, on_event=tell)), "resume", "resume_invoke"
        )

    async def resume_invoke(
        self, thread_id: str, decision: Any = None, *, on_event: OnEvent | None = None
    ) -> AgentResult:
        """Go on to the end, and return the result. `result.nothing_to_resume` tells that the thread had its answer."""
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


class EventStream(AsyncGenerator[Event, None]):
    """The events of a run. It is read with `async for`; `await` says so, and names the method that returns a result."""

    def __init__(self, events: AsyncGenerator[Event, None], method: str, other: str) -> None:
        self._events = events
        self._method = method
        self._other = other

    def __aiter__(self) -> AsyncGenerator[Event, None]:
        return self

    async def __anext__(self) -> Event:
        return await anext(self._events)

    async def asend(self, value: None) -> Event:
        return await self._events.asend(value)

    async def athrow(self, *error: Any) -> Event:
        return await self._events.athrow(*error)

    async def aclose(self) -> None:
        await self._events.aclose()

    def __await__(self) -> NoReturn:
        raise TypeError(
            f"{self._method}() is a stream of events: write `async for event in agent.{self._method}(…)`, "
            f"or `await agent.{self._other}(…)` for the result alone"
        )


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
