"""The part of a run that makes calls: those that the model just asked for, and those that a stopped process left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing

from locus.agent import approvals
from locus.agent.calls import Started, is_repeatable, make_calls
from locus.agent.config import AgentConfig
from locus.agent.progress import Emit, Progress
from locus.agent.recovery import NOT_APPROVED, UNKNOWN, failed, in_order, pending_calls
from locus.agent.reflexion import LOOP, reflect, repeats
from locus.agent.sessions import Records, Session
from locus.core.events import Interrupt, ToolCompleteEvent, ToolStartEvent
from locus.core.messages import Message, ToolCall, ToolResult
from locus.core.state import AgentState, ToolExecution
from locus.tools import ToolRegistry


class Calling(Progress):
    """Makes calls, and takes over those of others."""

    def __init__(
        self, config: AgentConfig, tools: ToolRegistry, session: Session, state: AgentState, emit: Emit
    ) -> None:
        super().__init__(config, session, state, emit)
        self._tools = tools
        self._executed_before = len(state.tool_executions)

    async def _call(self, calls: Sequence[ToolCall]) -> None:
        """Make the calls that the model just asked for, unless a person has to decide on them first."""
        gated = self._gated(calls)
        if gated:
            await self._interrupt(Interrupt("approval", tuple(gated)))
            return
        await self._save("calls")
        await self._make(calls, save=self.state.iteration % self._config.checkpoint_every_n_iterations == 0)

    async def _call_again(self, calls: Sequence[ToolCall], *, ask: bool, begun: bool) -> None:
        """Go on with calls that an earlier process left. `ask`: a person may be asked about them.

        `begun` is False if it is known that none of them was begun.
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
                    save = True  # which is refused, or opens a fork
        self._append(calls, results)
        if save:
            await self._save("results")

    async def _take_over(self, calls: Sequence[ToolCall], *, ask: bool, begun: bool) -> list[ToolCall] | None:
        """The calls that are left to make; None if a person has to decide first.

        What is known of the others is appended. Only one worker gets past the save, and it looks at the records
        once more after it: the one that was passed may have begun a call in between, but begins none any more.
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
        """Give results to those calls that will not be made; or return what a person has to be asked.

        A call that was begun, is not known to be done and must not be repeated has an unknown outcome. So has,
        in a store that keeps no records, every such call, unless a person is about to be asked anyway.
        """
        repeat = self._config.unknown_outcome == "retry"
        doubtful = [
            call for call in calls if not is_repeatable(self._tools, call.name) and (known is None or call.id in known)
        ]
        gated = [call for call in self._gated(calls) if known is None or repeat or call not in doubtful]
        doubtful = [call for call in doubtful if call not in gated and not repeat]
        if ask and doubtful and self._config.unknown_outcome == "ask":
            return Interrupt("unknown_outcome", tuple(doubtful))
        results |= {call.id: failed(call, UNKNOWN) for call in doubtful}
        if ask and gated:
            return Interrupt("approval", tuple(gated))
        results |= {call.id: failed(call, NOT_APPROVED) for call in gated}
        return None

    async def _claim(self, calls: list[ToolCall]) -> list[ToolCall]:
        """Save, so that these calls are ours to make; those that are, after all."""
        thread_id = self._session.thread_id
        await self._save("resumed")
        if self._session.thread_id == thread_id:
            return calls
        # We are in a fork: whoever was faster makes the calls, in the thread that we left.
        theirs = [call for call in calls if not is_repeatable(self._tools, call.name)]
        self._append(theirs, {call.id: failed(call, UNKNOWN) for call in theirs})
        await self._save("resumed")
        return [call for call in calls if call not in theirs]

    def _gated(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """The calls that a person has not decided on yet, and has to."""
        decided = approvals.decided_ids(self.state)
        return [
            call
            for call in calls
            if call.id not in decided
            and any(layer.needs_approval(call, self.state) for layer in self._config.middleware)
        ]

    def _repeats(self, times: int) -> bool:
        """Whether the last calls of this run did the same thing this many times."""
        executions = self.state.tool_executions[self._executed_before :]
        return repeats(executions[-times:]) >= times

    def _append(self, calls: Sequence[ToolCall], results: Mapping[str, ToolResult]) -> None:
        """Append results to the conversation, and what was done to the record of executions."""
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
        """Once no call is open, the results stand in the order of the calls, and decisions are forgotten."""
        if not pending_calls(self.state.messages):
            ordered = in_order(self.state.messages)
            if ordered is not self.state.messages:
                self.state = self.state.with_messages_replaced(ordered)
            self.state = approvals.cleared(self.state)


def _execution(call: ToolCall, result: ToolResult) -> ToolExecution:
    return ToolExecution(
        tool_name=call.name,
        tool_call_id=call.id,
        arguments=call.arguments,
        result=None if result.error else result.content,
        error=result.error,
        duration_ms=result.duration_ms,
    )
