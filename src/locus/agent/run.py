"""One run of an agent: a loop that may be killed at any instant.

    the user's message is saved              before the model is asked
    the assistant's message is saved         before its calls are made
    each result is recorded                  before anything depends on it
    the results, the answer, an interrupt    are saved as they come

The last checkpoint, and the records after it, tell the next process where to go on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from locus.agent import approvals
from locus.agent.calls import Started, is_repeatable, make_calls
from locus.agent.config import AgentConfig
from locus.agent.middleware import Middleware, Summarization, summarizes_in_window
from locus.agent.recall import with_recall, with_recalled
from locus.agent.recovery import (
    CUT_OFF,
    NOT_APPROVED,
    UNKNOWN,
    append_queued_messages,
    failed,
    in_order,
    is_answered,
    pending_calls,
    queue_messages,
    repaired,
    unknown,
)
from locus.agent.reflexion import LOOP, reflect, repeats
from locus.agent.results import AgentMetrics, AgentResult, StopReason
from locus.agent.sessions import Records, Session
from locus.agent.window import omitted_messages, seen_by_model
from locus.core.events import (
    CheckpointSavedEvent,
    Event,
    Interrupt,
    InterruptEvent,
    ModelChunkEvent,
    ModelCompleteEvent,
    TerminateEvent,
    ThinkingEvent,
    ToolCompleteEvent,
    ToolStartEvent,
)
from locus.core.frozen import Items
from locus.core.messages import Message, Role, ToolCall, ToolResult
from locus.core.state import AgentState, ToolExecution
from locus.memory.long_term.facts import Facts
from locus.models import ModelError
from locus.models.base import Model, ModelResponse, StreamingModel, ToolSpec, tokens_of
from locus.tools import ToolRegistry

Emit = Callable[[Event], Awaitable[None]]

RECENT = 50
"""How many of the last calls a new call's id must differ from."""

MAX_CALL_ID = 200
"""How long a call's id may be: a longer one could name neither a record nor the thread of a sub-agent."""


class AgentRun:
    """A run of an agent, from its first message or from where an earlier process stopped. At its end, `result` is set.

    `accepted`: something of this run is saved, so it cannot simply be started again. `asks_model`: the model has been
    asked, and has not answered.
    """

    def __init__(
        self,
        config: AgentConfig,
        model: Model,
        tools: ToolRegistry,
        session: Session,
        state: AgentState,
        emit: Emit,
        facts: Facts | None = None,
    ) -> None:
        self._config = config
        self._model = model
        self._tools = tools
        self._session = session
        self._emit = emit
        self._facts = facts
        self.state = state
        self.result: AgentResult | None = None
        self.accepted = False
        self._nothing_to_resume = False
        self.asks_model = False
        self._executed_before = len(state.tool_executions)
        self._metrics = AgentMetrics()
        self._started = time.perf_counter()

    async def begin(self, messages: Sequence[Message]) -> None:
        """Start a new run: settle what an earlier one left, accept the messages, and begin the loop."""
        if pending_calls(self.state.messages):
            self.state, messages = queue_messages(self.state, messages), ()
        await self._settle(None, new_input=True)
        self.state = append_queued_messages(self.state).with_messages(messages)
        await self._recall(anew=any(message.role is Role.USER for message in messages))
        await self._save("input")
        await self._loop()

    async def go_on(self, decision: Any) -> None:
        """Continue a run that stopped for a decision, or was killed."""
        await self._settle(decision, new_input=False)
        if self.result is not None:
            return
        self.state = append_queued_messages(self.state)
        if is_answered(self.state.messages) or not self.state.messages:
            self._nothing_to_resume = not self.accepted and not self._metrics.tool_calls
            await self._end("complete")
            return
        await self._recall(anew=False)
        if self._session.keeps_lease and not self.accepted:
            await self._save("resumed")  # if two workers resume, only one of them gets to ask the model
        await self._loop()

    async def _recall(self, *, anew: bool) -> None:
        if self._facts is not None:
            self.state = await with_recall(self.state, self._facts, anew=anew)

    async def _settle(self, decision: Any, *, new_input: bool) -> None:
        """Give every open call of earlier runs its result, or stop for a decision on it."""
        if not self._session.saved_by_run:
            self._mend()
        waiting = self._waiting(decision)
        if waiting is not None and decision is None and not new_input:
            await self._wait_for(waiting)
            return
        if waiting is not None and new_input:
            self.state = approvals.apply_decision(
                self.state, {"action": "reject", "reason": "the conversation went on"}
            )
        elif decision is not None:
            self.state = approvals.apply_decision(self.state, decision)  # raises if there is nothing to decide
            await self._save("decision")
        self._tidy()
        owed = pending_calls(self.state.messages)
        if owed:
            # A run that stopped to ask a person had begun none of the calls that are still open.
            await self._call_again(owed, ask=not new_input, begun=waiting is None)

    def _waiting(self, decision: Any) -> Interrupt | None:
        """The interrupt that this thread waits for. If the session keeps only messages, it is worked out again."""
        waiting = approvals.interrupt_of(self.state)
        if waiting is None and decision is not None:
            gated = self._gated(pending_calls(self.state.messages))
            if gated:
                waiting = Interrupt("approval", tuple(gated))
                self.state = approvals.interrupted(self.state, waiting)
        return waiting

    async def _loop(self) -> None:
        while self.result is None:
            reason = self._limit()
            if reason is not None:
                await self._end(reason)
                return
            self.state = self.state.next_iteration()
            self._count(iterations=1)
            await self._through_middleware()
            if self._is_out_of_time():
                await self._end("time_limit")
                return
            await self._emit(ThinkingEvent(*self._tag, self.state.iteration))
            await self._answer()

    async def _through_middleware(self) -> None:
        before, window = self.state, self._config.window
        for layer in self._config.middleware:
            if window is not None and isinstance(layer, Summarization) and self._summarizes_in_window(layer):
                self.state = await layer.before_model_in_window(
                    self.state, self._model, window, self._session.read_messages, self._keep_summary
                )
            else:
                self.state = await layer.before_model(self.state, self._model)
        if self.state.messages is not before.messages:
            self._mend(to_the_end=True)
        self._count(
            prompt_tokens=max(0, self.state.prompt_tokens_used - before.prompt_tokens_used),
            completion_tokens=max(0, self.state.completion_tokens_used - before.completion_tokens_used),
        )

    def _summarizes_in_window(self, layer: Middleware) -> bool:
        return self._session.keeps_state and summarizes_in_window(layer)

    async def _keep_summary(self, state: AgentState) -> bool:
        """Save a summary that is not complete, so that it goes on from here. False if no time is left for that."""
        self.state = state
        await self._save("summary")
        return not self._is_out_of_time()

    def _mend(self, *, to_the_end: bool = False) -> None:
        """Repair a history that a caller or a middleware may have left inconsistent. It reads every message."""
        mended = repaired(self.state.messages, to_the_end=to_the_end, from_the_start=not omitted_messages(self.state))
        if mended is not None:
            self.state = self.state.with_messages_replaced(mended)

    async def _answer(self) -> None:
        """Get one answer of the model, and make the calls that it asks for."""
        try:
            async with asyncio.timeout(self._seconds_left()) as limit:
                message = await self._ask_model()
        except TimeoutError:
            if not limit.expired():
                raise
            self.asks_model = False
            await self._end("time_limit")
            return
        if _is_empty(message):
            await self._end("no_answer")
            return
        self.state = self.state.with_message(message)
        if message.tool_calls:
            await self._call(message.tool_calls)
        else:
            await self._save("answer", status="done")
            await self._end("complete")

    def _limit(self) -> StopReason | None:
        config, metrics = self._config, self._metrics
        if metrics.iterations >= config.max_iterations:
            return "max_iterations"
        if config.max_tokens is not None and metrics.total_tokens >= config.max_tokens:
            return "token_budget"
        if self._is_out_of_time():
            return "time_limit"
        if self._repeats(2 * LOOP):
            return "tool_loop"
        return None

    def _repeats(self, times: int) -> bool:
        """Whether the last `times` calls of this run are identical, with identical results."""
        executions = self.state.tool_executions[self._executed_before :]
        return repeats(executions[-times:]) >= times

    def _seconds_left(self) -> float | None:
        limit = self._config.max_seconds
        return None if limit is None else self._started + limit - time.perf_counter()

    def _is_out_of_time(self) -> bool:
        left = self._seconds_left()
        return left is not None and left <= 0

    async def _ask_model(self) -> Message:
        messages = self._seen_by_model()
        if self._facts is not None:
            messages = with_recalled(messages, self.state)
        if self._config.system_prompt:
            messages.insert(0, Message.system(self._config.system_prompt))

        async def on_text(text: str) -> None:
            self.asks_model = False  # an error of the caller's event handler is not one of the model
            await self._emit(ModelChunkEvent(*self._tag, text))
            self.asks_model = True

        self.asks_model = True
        response = await _ask(self._model, messages, list(self._tools) or None, on_text)
        self.asks_model = False
        usage = tokens_of(response)
        prompt, completion = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
        self._count(model_calls=1, prompt_tokens=prompt, completion_tokens=completion)
        self.state = self.state.with_token_usage(prompt, completion)
        used = (execution.tool_call_id for execution in self.state.tool_executions[-RECENT:])
        message = _with_unique_ids(response.message, used)
        await self._emit(ModelCompleteEvent(*self._tag, message, usage))
        return message

    def _seen_by_model(self) -> list[Message]:
        window = self._config.window
        if window is None:
            return list(self.state.messages)
        summarizes = any(map(self._summarizes_in_window, self._config.middleware))
        return seen_by_model(self.state, window, back_to_summary=summarizes)

    async def _call(self, calls: Sequence[ToolCall]) -> None:
        """Make the calls that the model just asked for, unless a person has to approve them first."""
        gated = self._gated(calls)
        if gated:
            await self._interrupt(Interrupt("approval", tuple(gated)))
            return
        await self._save("calls")
        await self._make(calls, save=self.state.iteration % self._config.checkpoint_every_n_iterations == 0)

    async def _call_again(self, calls: Sequence[ToolCall], *, ask: bool, begun: bool) -> None:
        """Make the calls that an earlier process left open.

        `ask`: a person may be asked about them. `begun`: some of them may have been begun.
        """
        left = await self._take_over(calls, ask=ask, begun=begun)
        if left:
            await self._make(left, save=True)

    async def _make(self, calls: Sequence[ToolCall], *, save: bool) -> None:
        results: dict[str, ToolResult] = {}
        async with aclosing(make_calls(calls, self._tools, self._session, self._config.tool_timeout)) as progress:
            async for told in progress:
                if isinstance(told, Started):
                    await self._emit(ToolStartEvent(*self._tag, told.call))
                    continue
                results[told.call.id] = told.result
                if told.made:
                    self._count(tool_calls=1)
                    await self._emit(ToolCompleteEvent(*self._tag, told.call, told.result))
                else:
                    save = True  # another worker has the thread: the save fails, or opens a fork
        self._append(calls, results)
        if save:
            await self._save("results")

    async def _take_over(self, calls: Sequence[ToolCall], *, ask: bool, begun: bool) -> list[ToolCall] | None:
        """Claim open calls for this worker. Returns those left to make; None if a person has to decide first.

        The recorded results of the others are appended. Of several workers, only one succeeds with the save that claims
        the calls. It then reads the records once more: the worker that lost may have begun a call before that save, but
        begins none after it.
        """
        left = list(calls)
        seen: object = self
        while (records := await self._session.recorded()) != seen:
            seen = records
            known = {} if records is None and not begun else records
            results = {call.id: done for call in left if (done := (known or {}).get(call.id)) is not None}
            for call in left:
                if call.id in results:
                    await self._emit(ToolCompleteEvent(*self._tag, call, results[call.id], recovered=True))
            question = self._judge([call for call in left if call.id not in results], known, results, ask=ask)
            self._append([call for call in left if call.id in results], results)
            left = [call for call in left if call.id not in results]
            if question is not None:
                await self._interrupt(question)
                return None
            left = await self._claim(left)
        return left

    def _judge(
        self, calls: Sequence[ToolCall], known: Records | None, results: dict[str, ToolResult], *, ask: bool
    ) -> Interrupt | None:
        """Give results to the calls that will not be made, or return the question that a person has to answer first.

        The outcome of a call is unknown if it was begun, has no recorded result and must not be repeated. In a store
        that keeps no records, any call may have been begun, unless it still needs an approval.
        """
        repeat = self._config.unknown_outcome == "retry"
        doubtful = [
            call for call in calls if not is_repeatable(self._tools, call.name) and (known is None or call.id in known)
        ]
        gated = [call for call in self._gated(calls) if known is None or repeat or call not in doubtful]
        doubtful = [call for call in doubtful if call not in gated and not repeat]
        if ask and doubtful and self._config.unknown_outcome == "ask":
            if self._session.cut_off != "stopped":
                self.state = self.state.with_metadata(CUT_OFF, self._session.cut_off)
            return Interrupt("unknown_outcome", tuple(doubtful))
        results |= {call.id: failed(call, unknown(self._session.cut_off)) for call in doubtful}
        if ask and gated:
            return Interrupt("approval", tuple(gated))
        results |= {call.id: failed(call, NOT_APPROVED) for call in gated}
        return None

    async def _claim(self, calls: list[ToolCall]) -> list[ToolCall]:
        """Save, so that these calls belong to this worker, and return those that it may make."""
        thread_id = self._session.thread_id
        await self._save("resumed")
        if self._session.thread_id == thread_id:
            return calls
        # This is a fork now: the faster worker makes the calls, in the thread that this one left.
        theirs = [call for call in calls if not is_repeatable(self._tools, call.name)]
        self._append(theirs, {call.id: failed(call, UNKNOWN) for call in theirs})
        await self._save("resumed")
        return [call for call in calls if call not in theirs]

    def _gated(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """The calls that still need a person's approval."""
        decided = approvals.decided_ids(self.state)
        return [
            call
            for call in calls
            if call.id not in decided
            and any(layer.needs_approval(call, self.state) for layer in self._config.middleware)
        ]

    def _append(self, calls: Sequence[ToolCall], results: Mapping[str, ToolResult]) -> None:
        """Append results to the conversation, and the calls to the tool executions."""
        executions = [_execution(call, results[call.id]) for call in calls]
        self.state = self.state.with_messages(Message.tool(results[call.id]) for call in calls)
        for execution in executions:
            self.state = self.state.with_tool_execution(execution)
        looping = bool(executions) and self._repeats(LOOP)
        if self._config.reflexion:
            self.state = reflect(self.state, executions, looping=looping)
        if looping:
            note = f"the same call of {executions[-1].tool_name!r} was made {LOOP} times with the same result"
            self.state = self.state.with_error(note)
        self._tidy()

    def _tidy(self) -> None:
        """Once no call is open, put the results into the order of the calls, and forget decisions on them."""
        if not pending_calls(self.state.messages):
            ordered = in_order(self.state.messages)
            if ordered is not self.state.messages:
                self.state = self.state.with_messages_replaced(ordered)
            self.state = approvals.cleared(self.state)

    @property
    def _tag(self) -> tuple[str, str | None]:
        return self.state.run_id, self._session.thread_id

    def _count(self, **more: int) -> None:
        self._metrics = replace(
            self._metrics, **{name: getattr(self._metrics, name) + count for name, count in more.items()}
        )

    async def _save(self, step: str, status: str = "running") -> None:
        facts = {"agent_id": self.state.agent_id, "run_id": self.state.run_id, "step": step, "status": status}
        saved = await self._session.save(self.state, facts)
        if saved is not None:
            self.accepted = True
            self._count(checkpoints=1)
            total = omitted_messages(self.state) + len(self.state.messages)
            await self._emit(CheckpointSavedEvent(*self._tag, saved, total))

    async def _interrupt(self, interrupt: Interrupt) -> None:
        """Stop for a person's decision, and save the question."""
        self.state = approvals.interrupted(self.state, interrupt)
        await self._save("interrupt", "interrupted")
        await self._wait_for(interrupt)

    async def _wait_for(self, interrupt: Interrupt) -> None:
        await self._close("interrupt", interrupt)
        await self._emit(InterruptEvent(*self._tag, interrupt))

    async def _end(self, reason: StopReason) -> None:
        """End the run. If it stopped without an answer, save its state; an answer was saved when it came."""
        if reason != "complete":
            await self._save("stopped", "done")
        result = await self._close(reason, None)
        await self._emit(TerminateEvent(*self._tag, reason, result.message, result.nothing_to_resume))

    async def _close(self, reason: StopReason, interrupt: Interrupt | None) -> AgentResult:
        await self._session.finish(self.state)
        duration = round((time.perf_counter() - self._started) * 1000, 3)
        self.result = AgentResult(
            message=_last_words(self.state.messages),
            state=self.state,
            stop_reason=reason,
            metrics=replace(self._metrics, duration_ms=duration),
            thread_id=self._session.thread_id,
            checkpoint_id=self._session.latest,
            interrupt=interrupt,
            nothing_to_resume=self._nothing_to_resume,
        )
        return self.result


async def _ask(
    model: Model,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec] | None,
    on_text: Callable[[str], Awaitable[None]],
) -> ModelResponse:
    """Ask the model, streaming if it can. `on_text` gets each piece of text as it comes."""
    response: ModelResponse | None = None
    if isinstance(model, StreamingModel):
        async for chunk in model.stream(messages, tools=tools):
            if chunk.text:
                await on_text(chunk.text)
            response = chunk.response or response
    if response is None:
        response = await model.complete(messages, tools=tools)
    message = getattr(response, "message", None)
    if not isinstance(message, Message) or message.role is not Role.ASSISTANT:
        raise ModelError(f"{type(model).__name__} gave no message of an assistant, but {response!r:.80}")
    return response


def _is_empty(message: Message) -> bool:
    """Whether a model's answer has no call, no text and no other content."""
    blocks = message.content if not isinstance(message.content, str) else None
    return not (message.tool_calls or message.text.strip() or any(block.type != "text" for block in blocks or ()))


def _with_unique_ids(message: Message, used: Iterable[str]) -> Message:
    """The message with unique call ids, because some models give none, or repeat them."""
    if not message.tool_calls:
        return message
    seen = set(used)
    unique: list[ToolCall] = []
    for call in message.tool_calls:
        if not call.id or len(call.id) > MAX_CALL_ID or call.id in seen:
            call = call.model_copy(update={"id": ToolCall(name=call.name).id})
        seen.add(call.id)
        unique.append(call)
    return message.model_copy(update={"tool_calls": Items(unique)})


def _execution(call: ToolCall, result: ToolResult) -> ToolExecution:
    return ToolExecution(
        tool_name=call.name,
        tool_call_id=call.id,
        arguments=call.arguments,
        result=None if result.error else result.content,
        error=result.error,
        duration_ms=result.duration_ms,
    )


def _last_words(messages: Sequence[Message]) -> str:
    """The assistant's last text since the last user message; empty if there is none."""
    for message in reversed(messages):
        if message.role is Role.USER:
            break
        if message.role is Role.ASSISTANT and message.text:
            return message.text
    return ""
