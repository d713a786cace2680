"""Middleware: layers that act on the conversation before the model sees it, and on calls before they are made."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

from locus.agent.window import (
    MARKED,
    NOTHING,
    SUMMARY,
    Summary,
    mark_of,
    omitted_messages,
    step_start,
    summary_message,
    summary_of,
    turn_start,
    with_summary,
    without_metadata,
)
from locus.core.messages import Message, ToolCall
from locus.core.state import AgentState
from locus.errors import ConfigurationError
from locus.models.base import Model, tokens_of

Summarizer = Callable[[Sequence[Message]], str]


class Middleware:
    """The base class of middleware. Its hooks change nothing; a subclass overrides those it needs."""

    async def before_model(self, state: AgentState, model: Model) -> AgentState:
        """Return the state to send to the model. The run goes on with that state, and saves it."""
        return state

    def needs_approval(self, call: ToolCall, state: AgentState) -> bool:
        """Whether a person has to decide on this call before it is made."""
        return False


class HumanInTheLoop(Middleware):
    """Stops the run before calls of certain tools, until a person decides: `agent.resume(thread_id, decision=…)`.

    `tools` are names, or a function that says of each call whether to ask. A call that an earlier process began and
    did not finish is asked about, too.
    """

    def __init__(self, tools: Collection[str] | Callable[[ToolCall], bool]) -> None:
        self._tools = tools

    def needs_approval(self, call: ToolCall, state: AgentState) -> bool:
        return self._tools(call) if callable(self._tools) else call.name in self._tools


class Summarization(Middleware):
    """Replaces older turns by a summary when the conversation grows beyond a budget.

    `max_characters` is the budget. The last `keep_last` messages stay, or a few more, so that calls are not separated
    from their results. The model writes the summary, unless `summarize` is given. Earlier checkpoints of the thread
    still have the messages that were replaced.
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
        return without_metadata(state.with_messages_replaced((summary_message(text), *messages[cut:])), SUMMARY)

    async def before_model_in_window(
        self,
        state: AgentState,
        model: Model,
        window: int,
        read: Callable[[int, int], AsyncIterator[Message]],
        keep: Callable[[AgentState], Awaitable[bool]],
    ) -> AgentState:
        """The state with a summary, in its metadata, of the messages before the window. All messages stay.

        `read` gives the messages between two positions that were not loaded. There may be many, so the summary grows
        in portions of the budget. `keep` saves it after each of them but the last, and says whether there is time for
        the next.
        """
        messages, omitted, summary = state.messages, omitted_messages(state), summary_of(state)
        covered = [message async for message in _between(state, summary.marked_from, summary.covers, read)]
        if mark_of(covered) != summary.last:  # there is no summary, or its messages are no longer in the thread
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
        """The index of the first message that the summary should not cover; `covered` if it should stay as it is.

        `covered` is how many of the messages it covers now. Below zero, it does not even cover all messages before
        these. Summarising costs a call of the model, so the summary only grows if that gains half of the budget: by
        whole turns before the window, or else by steps of the turn that the window begins in.
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
        """Write a summary of messages. Returns the state with the tokens that it cost, and the text."""
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
    """Whether a layer can keep its summary beside the messages. A subclass with its own `before_model` cannot."""
    return isinstance(layer, Summarization) and type(layer).before_model is Summarization.before_model


async def _between(
    state: AgentState, start: int, end: int, read: Callable[[int, int], AsyncIterator[Message]]
) -> AsyncIterator[Message]:
    """The messages of a thread from `start` to `end`. Those that were not loaded come from `read`."""
    omitted = omitted_messages(state)
    if start < omitted:
        async for message in read(start, min(end, omitted)):
            yield message
    for message in state.messages[max(0, start - omitted) : max(0, end - omitted)]:
        yield message


def _characters(messages: Sequence[Message]) -> int:
    return sum(len(message.text) for message in messages)


SummarizationMiddleware = Summarization
"""Another name of `Summarization`, which agent frameworks use."""
