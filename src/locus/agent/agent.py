"""The class `Agent`: a model, tools, and a memory that outlives the process."""

from __future__ import annotations

import asyncio
import inspect
import time
import warnings
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NoReturn, Unpack
from uuid import uuid4

from locus.agent.config import REJECT_BY_DEFAULT, AgentConfig, AllSettings, callers_level
from locus.agent.leases import End
from locus.agent.middleware import summarizes_in_window
from locus.agent.recall import tools_for
from locus.agent.recovery import repaired
from locus.agent.results import AgentResult
from locus.agent.run import AgentRun, Emit
from locus.agent.sessions import (
    ConversationSession,
    OtherRun,
    PlainSession,
    Session,
    ThreadSession,
)
from locus.core.events import Event, WaitingEvent
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.core.tasks import ended
from locus.errors import (
    CapabilityError,
    ConfigurationError,
    ConflictError,
    ThreadBusyError,
    ThreadTakenOverError,
)
from locus.hints import did_you_mean
from locus.memory.checkpointer import BaseCheckpointer, Checkpointer, StoreVerbs
from locus.memory.conversation import AgentCheckpointer
from locus.memory.long_term.facts import facts_of
from locus.memory.model.records import DEFAULT_NAMESPACE
from locus.memory.registry import as_checkpointer
from locus.memory.runtime.portal import PORTAL
from locus.memory.runtime.retry import Backoff
from locus.models import get_model
from locus.models.base import Model
from locus.tools import ToolRegistry

Prompt = str | Message | Sequence[Message]
OnEvent = Callable[[Event], Any]

_GIVE_ONE = 'give it one, such as Agent(…, checkpointer="sqlite:agents.db")'

_BETWEEN_LOOKS = Backoff(0.01, 0.5, factor=1.5, random_part=0.0)


class Agent:
    """An agent. Give settings by keyword, as an `AgentConfig`, or both: then keywords win.

    With a checkpointer and a `thread_id` every step is saved; without a `thread_id` a run is stateless.

    - `model`: a model, or its name: `"openai:gpt-4.1"`. Without one, `LOCUS_MODEL_PROVIDER` or an OCI configuration
      has to say which.
    - `tools`: tools, or plain functions.
    - `system_prompt`: a message before the conversation in every call of the model; not stored.
    - `checkpointer`: where threads are kept: a checkpointer, a storage backend, or a URL such as `"sqlite:agents.db"`.
    - `memory`: anything that `checkpointer` takes, or an object that keeps only messages. Give one of the two.
    - `agent_id`: stored in the state, and in the metadata of each checkpoint.
    - `checkpoint_every_n_iterations`: how often a round of tool results becomes a checkpoint.
    - `reflexion`: whether to keep a confidence score, and to point out repeated calls to the model.
    - `middleware`: layers that may change the conversation before the model sees it, and hold calls for approval.
    - `max_iterations`, `max_tokens`, `max_seconds`: the limits of one run: model calls, tokens, time.
    - `tool_timeout`: seconds for a tool that has no timeout of its own; `None` for no limit.
    - `on_conflict`: what happens to a run that finds another one under way in the same thread: "reject" it, let it
      "wait" (or "queue"), "take_over" the thread, or go on in a "fork".
    - `wait_seconds`: how long "wait" waits at most.
    - `lease_seconds`: a worker that is silent for this long is taken for dead.
    - `unknown_outcome`: what to do with a call that was under way when a process was killed: "skip", "ask" or "retry".
    - `window`: how many of the last messages are loaded and shown to the model, at least; the thread keeps all.
    - `long_term`: a `LongTermMemory`, or a checkpointer or URL, with what is known about users across threads.
    - `user_id`: the user about whom this agent recalls facts, and learns them.
    """

    def __init__(self, config: AgentConfig | None = None, **settings: Unpack[AllSettings]) -> None:
        known = AgentConfig.__dataclass_fields__
        for name in settings.keys() - known.keys():
            if name == "thread_id":
                raise ConfigurationError(
                    "thread_id is no setting of an agent, which serves any number of threads: pass it to run(), "
                    "as in agent.run(prompt, thread_id=…)"
                )
            raise ConfigurationError(
                f"Agent has no setting {name!r:.80}{did_you_mean(name, known)}; "
                f"the settings are: {', '.join(sorted(known))}"
            )
        self.config = replace(config or AgentConfig(), **settings)
        chosen = self.config.model
        self.model: Model = get_model(chosen) if chosen is None or isinstance(chosen, str) else chosen
        if not isinstance(self.model, Model):
            raise ConfigurationError(f"a model has the method complete, and {type(chosen).__name__} has not")
        self.facts = None if self.config.user_id is None else facts_of(self.config.long_term, self.config.user_id)
        own_tools = tools_for(self.facts) if self.facts is not None else []
        self.tools = ToolRegistry([*self.config.tools, *own_tools])
        self._kept = self._memory()
        self._told_of_no_memory = False

    def _memory(self) -> BaseCheckpointer | AgentCheckpointer | None:
        if self.config.checkpointer is not None:
            return as_checkpointer(self.config.checkpointer)
        memory = self.config.memory
        if memory is None:
            return None
        # This check comes first, because a checkpointer also has the methods of a conversation memory.
        if isinstance(memory, str | BaseCheckpointer | StoreVerbs):
            return as_checkpointer(memory)
        if isinstance(memory, AgentCheckpointer):
            return memory
        raise ConfigurationError(f"memory needs the methods load and save, got {type(memory).__name__}")

    @property
    def checkpointer(self) -> BaseCheckpointer | AgentCheckpointer | None:
        return self._kept

    def _session(self, thread_id: str | None) -> Session:
        memory = self._kept
        if thread_id is None or memory is None:
            return Session()
        if isinstance(memory, Checkpointer):
            config = self.config
            patience = config.wait_seconds if config.on_conflict == "wait" else None
            return ThreadSession(
                memory,
                thread_id,
                config.on_conflict,
                config.lease_seconds,
                patience,
                config.window,
                back_to_summary=any(map(summarizes_in_window, config.middleware)),
            )
        if isinstance(memory, BaseCheckpointer):
            return PlainSession(memory, thread_id)
        return ConversationSession(memory, thread_id)

    def _expect_memory(self, thread_id: str | None) -> None:
        """Warn once if a run names a thread, and the agent has nowhere to keep it."""
        if thread_id is not None and self._kept is None and not self._told_of_no_memory:
            self._told_of_no_memory = True
            warnings.warn(
                f"this agent has no checkpointer: thread_id has no effect, and nothing is remembered; {_GIVE_ONE}",
                UserWarning,
                stacklevel=callers_level(),
            )

    def run(self, prompt: Prompt, thread_id: str | None = None) -> AsyncGenerator[Event, None]:
        """Run, and yield an event for all that happens. The last is a `TerminateEvent` or an `InterruptEvent`.

        Leaving the loop before the end cancels the run; the thread can go on from where it was.
        """
        self._expect_memory(thread_id)
        return EventStream(_streamed(lambda tell: self.invoke(prompt, thread_id, on_event=tell)), "run", "invoke")

    async def invoke(
        self, prompt: Prompt, thread_id: str | None = None, *, on_event: OnEvent | None = None
    ) -> AgentResult:
        """Run to the end, and return the result."""
        self._expect_memory(thread_id)
        messages = _messages(prompt)
        session = self._session(thread_id)
        deadline = time.monotonic() + self.config.wait_seconds
        while True:
            emit = _emitter(on_event)
            state = await self._load_to_run(session, deadline, emit)
            run = self._begin(session, state, emit)
            result = await self._carry_out(run, session, run.begin(messages), deadline)
            if result is not None:
                return result

    def run_sync(self, prompt: Prompt, thread_id: str | None = None, *, on_event: OnEvent | None = None) -> AgentResult:
        """`invoke` for code that is not async; works inside a running event loop, too."""
        self._expect_memory(thread_id)
        return PORTAL.run(self.invoke(prompt, thread_id, on_event=on_event))

    def resume(self, thread_id: str, decision: Any = None) -> AsyncGenerator[Event, None]:
        """Go on where the thread stopped: after a kill, a limit, or, with a decision, an interrupt."""
        return EventStream(
            _streamed(lambda tell: self.resume_invoke(thread_id, decision, on_event=tell)), "resume", "resume_invoke"
        )

    async def resume_invoke(
        self, thread_id: str, decision: Any = None, *, on_event: OnEvent | None = None
    ) -> AgentResult:
        """Go on where the thread stopped, to the end, and return the result.

        `result.nothing_to_resume` says that the thread had its answer already.
        """
        session = self._session(thread_id)
        deadline = time.monotonic() + self.config.wait_seconds
        while True:
            emit = _emitter(on_event)
            state = await self._load_to_resume(session, deadline, decision, emit)
            if state is None:
                raise await self._not_begun(thread_id)
            run = AgentRun(self.config, self.model, self.tools, session, state, emit, self.facts)
            again = None if decision is not None else deadline
            result = await self._carry_out(run, session, run.go_on(decision), again)
            if result is not None:
                return result

    async def _not_begun(self, thread_id: str) -> ConfigurationError:
        if self._kept is None:
            return ConfigurationError(f"this agent has no checkpointer, so there is no thread to resume: {_GIVE_ONE}")
        elsewhere = ""
        if isinstance(self._kept, Checkpointer):
            elsewhere = await self._kept.store.other_namespaces(thread_id, DEFAULT_NAMESPACE)
        if elsewhere:
            return ConfigurationError(f"no agent has begun thread {thread_id!r}, so it cannot be resumed: {elsewhere}")
        return ConfigurationError(f"there is no thread {thread_id!r} to resume; begin it with run()")

    def resume_sync(self, thread_id: str, decision: Any = None, *, on_event: OnEvent | None = None) -> AgentResult:
        """`resume_invoke` for code that is not async."""
        return PORTAL.run(self.resume_invoke(thread_id, decision, on_event=on_event))

    def _begin(self, session: Session, state: AgentState | None, emit: Emit) -> AgentRun:
        """A run with a new id that goes on from the state of the thread."""
        fresh = {"run_id": uuid4().hex, "iteration": 0, "max_iterations": self.config.max_iterations}
        if self.config.agent_id is not None or state is None:
            fresh["agent_id"] = self.config.agent_id
        state = (state or AgentState()).model_copy(update=fresh)
        return AgentRun(self.config, self.model, self.tools, session, state, emit, self.facts)

    async def _carry_out(
        self, run: AgentRun, session: Session, steps: Coroutine[Any, Any, None], deadline: float | None
    ) -> AgentResult | None:
        """Let a run go to its end, and release the thread however it ends.

        None means that the run has to begin anew, because another worker was faster with its first save, and nothing of
        this run is saved. Without a deadline that is an error.
        """
        try:
            await steps
        except (Exception, asyncio.CancelledError) as error:
            await session.let_go(_end(error, run))
            if not isinstance(error, ConflictError):
                raise
            if run.accepted:
                raise _taken_over(error) from error
            if deadline is not None and self._begins_again(session, deadline):
                return None
            if self.config.on_conflict in ("raise", "fork") or not session.keeps_lease:
                raise
            raise _busy(await session.look(), error) from error
        await session.let_go("complete")
        return _result(run)

    def _begins_again(self, session: Session, deadline: float) -> bool:
        """Whether a run tries again after another one was faster. In stores without leases it may wait for ever."""
        mode = self.config.on_conflict
        in_time = time.monotonic() < deadline
        return in_time if mode == "take_over" else mode == "wait" and (in_time or not session.keeps_lease)

    async def _load_to_run(self, session: Session, deadline: float, emit: Emit) -> AgentState | None:
        """Wait until a new run may begin in the thread, and return the state that it begins from."""
        while True:
            state = await session.load()
            self._check_lease(session)
            if session.other_run is None or self.config.on_conflict in ("take_over", "raise"):
                return state
            if self.config.on_conflict == "fork":
                return await session.load_before()
            if self.config.on_conflict == "reject":
                raise _busy(session.other_run)
            await self._wait(session, session.other_run, deadline, emit)

    async def _load_to_resume(self, session: Session, deadline: float, decision: Any, emit: Emit) -> AgentState | None:
        """Wait until no other worker's run is under way in the thread, and return the state to resume from."""
        while True:
            state = await session.load()
            self._check_lease(session)
            if session.other_run is None or self.config.on_conflict in ("take_over", "raise"):
                return state
            if decision is not None:  # the decision is not for calls of the other run
                raise _busy(session.other_run)
            only_for_the_dead = self.config.on_conflict != "wait"
            await self._wait(session, session.other_run, deadline, emit, only_for_the_dead=only_for_the_dead)

    def _check_lease(self, session: Session) -> None:
        """Raise CapabilityError if the caller has asked for "reject", and the store cannot keep the lease it needs."""
        mode = self.config.on_conflict
        if mode == "reject" and mode is not REJECT_BY_DEFAULT and session.thread_id and not session.keeps_lease:
            raise CapabilityError(
                f'on_conflict="reject" needs a store that keeps pending writes, and {type(self._kept).__name__} does '
                'not: a run that is under way cannot be told there from one that was killed. Choose "take_over"'
            )

    async def _wait(
        self, session: Session, other: OtherRun, deadline: float, emit: Emit, *, only_for_the_dead: bool = False
    ) -> None:
        """Wait until another worker's run is over, or its lease has run out, and say that this one waits.

        `only_for_the_dead`: raise ThreadBusyError as soon as that worker gives a sign of life.
        """
        await emit(WaitingEvent("", session.thread_id, other.seconds_left))
        current: OtherRun | None = other
        attempt = 0
        while current is not None:
            now = time.monotonic()
            if only_for_the_dead and current.last_sign != other.last_sign:
                raise _busy(current)
            # A run without a lease is waited for as long as it saves something every now and then.
            if current.has_lease and now >= deadline:
                raise _busy(current, waited=self.config.wait_seconds)
            pause = _BETWEEN_LOOKS.seconds(attempt)
            await asyncio.sleep(min(pause, max(deadline - now, 0.0)) if current.has_lease else pause)
            attempt += 1
            current = await session.look()


# `help` and editors show the settings one by one.
_own, _settings = inspect.signature(Agent.__init__), inspect.signature(AgentConfig)
Agent.__init__.__signature__ = _own.replace(  # type: ignore[attr-defined]
    parameters=[*list(_own.parameters.values())[:2], *_settings.parameters.values()]
)


def _end(error: BaseException, run: AgentRun) -> End:
    """The way in which an error ended a run, for its lease."""
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return "model_error" if run.asks_model else "stopped"


def _taken_over(error: ConflictError) -> ThreadTakenOverError:
    """The error for a run that has saved something, and lost its thread to another worker."""
    deleted = error.expected is not None and error.latest is None
    what = "this thread was deleted" if deleted else "another worker has taken this thread over"
    return ThreadTakenOverError(
        f"{what}, and this run ends here: {error}", expected=error.expected, latest=error.latest
    )


def _busy(
    other: OtherRun | None, error: ConflictError | None = None, *, waited: float | None = None
) -> ThreadBusyError:
    """The error for a run that was not begun. It names nobody, because its reader may be another user."""
    about = ""
    if other is not None:
        silent = max(0.0, (datetime.now(UTC) - other.last_saved).total_seconds())
        about = f", which saved its last step {silent:.0f} s ago"
    elif error is not None:
        about = ", which began at the same moment"
    under_way = "under way" if waited is None else f"still under way after {waited:g} s of waiting"
    return ThreadBusyError(
        f"another run is {under_way} in this thread{about}: this one was not begun, and nothing was saved. Try "
        'again when that run is over; on_conflict="wait" does so, and "take_over" does not wait for its end',
        expected=error.expected if error else None,
        latest=error.latest if error else None,
        retry_after=other.retry_after if other is not None else None,
    )


def _emitter(on_event: OnEvent | None) -> Emit:
    async def emit(event: Event) -> None:
        if on_event is not None:
            answer = on_event(event)
            if inspect.isawaitable(answer):
                await answer

    return emit


class EventStream(AsyncGenerator[Event, None]):
    """The events of a run, to be read with `async for`.

    `await` and `for` raise an error that says so, and that names the method which returns a result.
    """

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
        raise self._misread()

    def __iter__(self) -> NoReturn:
        raise self._misread()

    def _misread(self) -> TypeError:
        return TypeError(
            f"{self._method}() is a stream of events: write `async for event in agent.{self._method}(…)`, "
            f"or `await agent.{self._other}(…)` for the result alone"
        )


async def _streamed(start: Callable[[OnEvent], Coroutine[Any, Any, AgentResult]]) -> AsyncGenerator[Event, None]:
    """Start a run, and yield its events. Closing the generator early cancels the run."""
    events: asyncio.Queue[Event | None] = asyncio.Queue()
    task = asyncio.create_task(start(events.put_nowait))
    task.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            yield event
        await task
    finally:
        await ended(task)


def _result(run: AgentRun) -> AgentResult:
    assert run.result is not None, "a run ends with a result, or raises"
    return run.result


def _messages(prompt: Prompt) -> list[Message]:
    if isinstance(prompt, str):
        return [Message.user(prompt)]
    given = list(prompt) if isinstance(prompt, Sequence) else [prompt]
    messages = [message for message in given if isinstance(message, Message)]
    if len(messages) < len(given):
        wrong = next(item for item in given if not isinstance(item, Message))
        advice = "; make a message of a dict with Message.user(text)" if isinstance(wrong, dict) else ""
        raise ConfigurationError(
            f"a prompt is text, a Message or a list of Messages, got {type(wrong).__name__}"
            f"{' in a list' if wrong is not prompt else ''}{advice}"
        )
    mended = repaired(messages, to_the_end=True)
    messages = messages if mended is None else mended
    if not messages:
        raise ConfigurationError("the prompt is empty: give text, or at least one message")
    return messages
