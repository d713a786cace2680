"""Middleware: what acts on the whole conversation, before the model sees it and before tools run."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

from locus.agent.window import (
    MARKED,
    NOTHING,
    Summary,
    mark_of,
    omitted_messages,
    step_start,
    summary_message,
    summary_of,
    turn_start,
    with_summary,
    without_summary,
)
from locus.core.messages import Message, ToolCall
from locus.core.state import AgentState
from locus.errors import ConfigurationError
from locus.models.base import Model, tokens_of

Summarizer = Callable[[Sequence[Message]], str]


class Middleware:
    """The hooks; each does nothing unless a subclass says otherwise."""

    async def before_model(self, state: AgentState, model: Model) -> AgentState:
        """The state that the model is asked about. What is returned here is what is kept."""
        return state

    def needs_approval(self, call: ToolCall, state: AgentState) -> bool:
        """Whether a person has to decide on this call before it is made."""
        return False


class HumanInTheLoop(Middleware):
    """Stops the run before these tools, until a person has decided: `agent.resume(thread_id, decision=…)`.

    `tools` are names, or a function that is asked about each call. Calls that an earlier process had made
    and not finished are asked about, too.
    """

    def __init__(self, tools: Collection[str] | Callable[[ToolCall], bool]) -> None:
        self._tools = tools

    def needs_approval(self, call: ToolCall, state: AgentState) -> bool:
        return self._tools(call) if callable(self._tools) else call.name in self._tools


class Summarization(Middleware):
    """Replaces the older turns by a summary when the conversation passes a budget.

    `max_characters` is the budget, and the last `keep_last` messages (or a few more: a call and its results
    are never torn apart) stay as they are. The model writes the summary, unless `summarize` is given. What
    was replaced stays in the earlier checkpoints of the thread.
    """

    def __init__(
        self, *, max_characters: int = 60_000, keep_last: int = 20, summarize: Summarizer | None = None
    ) -> None:
        if max_characters < 1 or keep_last < 1:
            raise ConfigurationError("max_characters and keep_last must be at least 1")
        self._max_characters = max_characters
        self._keep_last = keep_last
        self._summarize = summarize

    async def before_model(self, state: AgentState, model: Model) -> AgentState:
        messages = state.messages
        if _characters(messages) <= self._max_characters:
            return state
        cut = turn_start(messages, len(messages) - self._keep_last)
        if cut <= 1:
            return state
        state, text = await self._summarized(state, messages[:cut], model)
        return without_summary(state.with_messages_replaced((summary_message(text), *messages[cut:])))

    async def before_model_in_window(
        self,
        state: AgentState,
        model: Model,
        window: int,
        read: Callable[[int, int], AsyncIterator[Message]],
        keep: Callable[[AgentState], Awaitable[bool]],
    ) -> AgentState:
        """The state with a summary that covers what the model no longer sees; every message stays.

        `read` gives the messages between two positions that were not loaded. There may be many, so the summary grows
        in portions of the budget. `keep` saves it after each of them but the last, and says whether there is time for
        the next.
        """
        messages, omitted, summary = state.messages, omitted_messages(state), summary_of(state)
        covered = [message async for message in _between(state, summary.marked_from, summary.covers, read)]
        if mark_of(covered) != summary.last:  # there is none, or it is of messages that have gone
            summary, covered = NOTHING, []
        end = omitted + self._cut(messages, summary.covers - omitted, window)
        if end <= summary.covers:
            return state
        text, position, recent = summary.text, summary.covers, deque(covered, MARKED)
        portion, size = list[Message](), 0
        async for message in _between(state, position, end, read):
            length = len(message.text)
            if portion and size + length > self._max_characters:
                state, text = await self._continued(state, text, portion, model)
                state = with_summary(state, Summary(text, position, mark_of(recent)))
                if not await keep(state):
                    return state
                portion, size = [], 0
            portion.append(message)
            recent.append(message)
            position, size = position + 1, size + length
        state, text = await self._continued(state, text, portion, model)
        return with_summary(state, Summary(text, position, mark_of(recent)))

    def _cut(self, messages: Sequence[Message], covered: int, window: int) -> int:
        """Up to where the summary should go on; up to where it goes already, if that is to stay.

        `covered`: how many of the messages it covers; below zero, others before these are not covered either. A summary
        is a call of the model, so it goes on only where it gains half of the budget: by whole turns before the window,
        or else by steps of the turn that the window begins in.
        """
        if covered < 0:
            return turn_start(messages, len(messages) - window)
        if _characters(messages[covered:]) > self._max_characters:
            turn, step = (find(messages, len(messages) - window) for find in (turn_start, step_start))
            for start, cut in ((covered, turn), (max(covered, turn), step)):
                if 2 * _characters(messages[start:cut]) >= self._max_characters:
                    return cut
        return covered

    async def _continued(
        self, state: AgentState, text: str, portion: Sequence[Message], model: Model
    ) -> tuple[AgentState, str]:
        before = (summary_message(text),) if text else ()
        return await self._summarized(state, (*before, *portion), model)

    async def _summarized(self, state: AgentState, older: Sequence[Message], model: Model) -> tuple[AgentState, str]:
        """The text, and the state with the tokens that it has cost."""
        if self._summarize:
            return state, self._summarize(older)
        told = "\n".join(f"{message.role.value}: {message.text}" for message in older if message.text)
        request = Message.user(
            "Summarise this conversation so that it can go on from your summary alone. Keep names, numbers, "
            f"decisions and open questions.\n\n{told}"
        )
        response = await model.complete([request])
        usage = tokens_of(response)
        state = state.with_token_usage(usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0))
        return state, response.message.text


def summarizes_in_window(layer: Middleware) -> bool:
    """Whether a layer keeps a summary beside the messages of a window: not if it has a `before_model` of its own."""
    return isinstance(layer, Summarization) and type(layer).before_model is Summarization.before_model


async def _between(
    state: AgentState, start: int, end: int, read: Callable[[int, int], AsyncIterator[Message]]
) -> AsyncIterator[Message]:
    """The messages of a thread from one position to another, loaded or not."""
    omitted = omitted_messages(state)
    if start < omitted:
        async for message in read(start, min(end, omitted)):
            yield message
    for message in state.messages[max(0, start - omitted) : max(0, end - omitted)]:
        yield message


def _characters(messages: Sequence[Message]) -> int:
    return sum(len(message.text) for message in messages)


SummarizationMiddleware = Summarization
"""The same under the name that agent frameworks use."""
