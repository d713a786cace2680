"""Middleware: what acts on the whole conversation, before the model sees it and before tools run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from locus.core.messages import Message, Role, ToolCall
from locus.core.state import AgentState
from locus.errors import ConfigurationError
from locus.models.base import Model

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
        if sum(len(message.text) for message in messages) <= self._max_characters:
            return state
        cut = turn_start(messages, len(messages) - self._keep_last)
        if cut <= 1:
            return state
        older = messages[:cut]
        text = self._summarize(older) if self._summarize else await self._ask(older, model)
        summary = Message.system(f"Summary of the conversation so far:\n{text}")
        return state.with_messages_replaced((summary, *messages[cut:]))

    @staticmethod
    async def _ask(older: Sequence[Message], model: Model) -> str:
        told = "\n".join(f"{message.role.value}: {message.text}" for message in older if message.text)
        request = Message.user(
            "Summarise this conversation so that it can go on from your summary alone. Keep names, numbers, "
            f"decisions and open questions.\n\n{told}"
        )
        return (await model.complete([request])).message.text


SummarizationMiddleware = Summarization
"""The same under the name that agent frameworks use."""


def turn_start(messages: Sequence[Message], at: int) -> int:
    """The last place not after `at` where a user's turn begins: nothing is torn apart there."""
    for index in range(min(at, len(messages) - 1), 0, -1):
        if messages[index].role is Role.USER:
            return index
    return 0
