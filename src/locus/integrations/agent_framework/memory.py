"""`LocusMemoryProvider`: what is known about a user, as a context provider of the Agent Framework."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from agent_framework import AgentSession, ContextProvider, FunctionTool, Message, SessionContext, SupportsAgentRun

from locus.errors import ConfigurationError
from locus.memory.long_term import Facts, LongTermMemory, fenced


class LocusMemoryProvider(ContextProvider):
    """Shows an agent what is known about its user before each run, and gives it tools to remember and to forget.

    `user_id` is the user, or a function that names the user of a session. What was recalled is shown to the model as
    data, at most five facts, and is no part of the history.
    """

    DEFAULT_SOURCE_ID: ClassVar[str] = "locus_memory"

    def __init__(
        self,
        memory: LongTermMemory,
        user_id: str | Callable[[AgentSession], str],
        *,
        source_id: str = DEFAULT_SOURCE_ID,
        with_tools: bool = True,
    ) -> None:
        super().__init__(source_id)
        self._memory = memory
        self._user_id = user_id
        self._with_tools = with_tools

    async def before_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        user_id = self._user_id(session) if callable(self._user_id) else self._user_id
        facts = Facts(self._memory, user_id)
        question = "\n".join(message.text for message in context.input_messages if message.role == "user")
        if question.strip() and (shown := fenced(await facts.recall(question))):
            context.extend_messages(self, [Message("user", [shown])])
        if self._with_tools:
            context.extend_tools(self.source_id, _tools(facts, session.session_id))


def _tools(facts: Facts, session_id: str) -> list[FunctionTool]:
    async def remember(fact: str) -> str:
        """Keep a fact about the user for later conversations, in one sentence."""
        try:
            return await facts.remember(fact, source=session_id)
        except ConfigurationError as error:
            return str(error)

    async def forget(key: str) -> str:
        """Forget a fact about the user, by its key."""
        return "forgotten" if await facts.forget(key) else "there is no such fact"

    return [FunctionTool(name=tool.__name__, description=tool.__doc__ or "", func=tool) for tool in (remember, forget)]
