"""One run of an agent: a loop that may be killed at any instant.

    the user's message is saved              before the model is asked
    the assistant's message is saved         before its calls are made
    each result is recorded                  before anything depends on it
    the results, the answer, an interrupt    are saved as they come

So whatever the last checkpoint and the records after it say is where the next process goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from locus.agent import approvals
from locus.agent.asking import ask, is_empty, usage_of, with_unique_ids
from locus.agent.calling import Calling
from locus.agent.config import AgentConfig
from locus.agent.inbox import received, taken
from locus.agent.progress import Emit
from locus.agent.recovery import is_answered, pending_calls, repaired
from locus.agent.reflexion import LOOP
from locus.agent.results import StopReason
from locus.agent.sessions import Session
from locus.core.events import Interrupt, ModelChunkEvent, ModelCompleteEvent, ThinkingEvent
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.models.base import Model
from locus.tools import ToolRegistry

RECENT = 50
"""So many ids of earlier calls a new one must differ from."""


class Run(Calling):
    """A run under way, from its first message or from where a process was stopped. Then `result` is there."""

    def __init__(
        self,
        config: AgentConfig,
        model: Model,
        tools: ToolRegistry,
        session: Session,
        state: AgentState,
        emit: Emit,
    ) -> None:
        super().__init__(config, tools, session, state, emit)
        self._model = model

    async def begin(self, messages: Sequence[Message]) -> None:
        """A new run: what an earlier one left is settled, the messages are accepted, and the loop begins."""
        if pending_calls(self.state.messages):
            self.state, messages = received(self.state, messages), ()
        await self._settle(None, new_input=True)
        self.state = taken(self.state).with_messages(messages)
        await self._save("input")
        await self._loop()

    async def go_on(self, decision: Any) -> None:
        """A run that was interrupted, by a person's doubt or by a kill."""
        await self._settle(decision, new_input=False)
        if self.result is not None:
            return
        self.state = taken(self.state)
        if is_answered(self.state.messages) or not self.state.messages:
            await self._end("complete")
            return
        await self._loop()

    async def _settle(self, decision: Any, *, new_input: bool) -> None:
        """Give every call of the past its result, or stop for a decision on it."""
        if not self._session.is_ours:
            self._mend()
        waiting = self._waiting(decision)
        if waiting is not None and decision is None and not new_input:
            await self._wait_for(waiting)
            return
        if waiting is not None and new_input:
            self.state = approvals.decide(self.state, {"action": "reject", "reason": "the conversation went on"})
        elif decision is not None:
            self.state = approvals.decide(self.state, decision)  # raises if there is nothing to decide
            await self._save("decision")
        self._tidy()
        owed = pending_calls(self.state.messages)
        if owed:
            # Whoever stopped to ask had begun none of those that are still open.
            await self._call_again(owed, ask=not new_input, begun=waiting is None)

    def _waiting(self, decision: Any) -> Interrupt | None:
        """What this thread waits for. A place that keeps messages only has lost that, and it is found anew."""
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
            await self._emit(ThinkingEvent(*self._tag, self.state.iteration))
            await self._answer()

    async def _through_middleware(self) -> None:
        before = self.state.messages
        for layer in self._config.middleware:
            self.state = await layer.before_model(self.state, self._model)
        if self.state.messages is not before:
            self._mend(to_the_end=True)

    def _mend(self, *, to_the_end: bool = False) -> None:
        """Repair a history that others have had their hands on. It looks at every message."""
        mended = repaired(self.state.messages, to_the_end=to_the_end)
        if mended is not None:
            self.state = self.state.with_messages_replaced(mended)

    async def _answer(self) -> None:
        """One answer of the model, and what it asks for."""
        try:
            async with asyncio.timeout(self._seconds_left()) as limit:
                message = await self._ask_model()
        except TimeoutError:
            if not limit.expired():
                raise
            await self._end("time_limit")
            return
        if is_empty(message):
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
        left = self._seconds_left()
        if left is not None and left <= 0:
            return "time_limit"
        if self._repeats(2 * LOOP):
            return "tool_loop"
        return None

    def _seconds_left(self) -> float | None:
        limit = self._config.max_seconds
        return None if limit is None else self._started + limit - time.perf_counter()

    async def _ask_model(self) -> Message:
        messages = list(self.state.messages)
        if self._config.system_prompt:
            messages.insert(0, Message.system(self._config.system_prompt))

        async def on_text(text: str) -> None:
            await self._emit(ModelChunkEvent(*self._tag, text))

        response = await ask(self._model, messages, list(self._tools) or None, on_text)
        usage = usage_of(response)
        prompt, completion = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
        self._count(model_calls=1, prompt_tokens=prompt, completion_tokens=completion)
        self.state = self.state.with_token_usage(prompt, completion)
        used = (execution.tool_call_id for execution in self.state.tool_executions[-RECENT:])
        message = with_unique_ids(response.message, used)
        await self._emit(ModelCompleteEvent(*self._tag, message, usage))
        return message
