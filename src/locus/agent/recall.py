"""What an agent knows about its user: recalled before the model is asked, and learnt and forgotten by tools.

What was recalled for a user's message is kept in the state, under "recall" of its metadata, as the text that the model
gets. So a resumed run shows the model just that, whatever has changed in the memory since. It becomes no message of the
conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from locus.agent.calls import current_call
from locus.agent.window import mark_of
from locus.core.messages import Message, Role
from locus.core.state import AgentState
from locus.errors import LocusError
from locus.memory.long_term.facts import Facts, fenced
from locus.tools import Tool, tool

RECALL = "recall"
"""The metadata key of what was recalled for the last message of the user."""


def tools_for(facts: Facts) -> list[Tool[..., Any]]:
    """Make the tools for what is known about a user. All may be repeated safely."""

    @tool(idempotent=True)
    async def remember(fact: str) -> str:
        """Remember a fact about the user for later conversations.

        Args:
            fact: One sentence that can be understood alone, of at most 2,000 characters.
        """
        key = await facts.remember(fact, source=current_call.get().thread_id)
        return f"Remembered, with the key {key}."

    @tool(idempotent=True)
    async def recall(question: str) -> str:
        """Look up what is known about the user from earlier conversations, with the key of each fact."""
        return fenced(await facts.recall(question)) or "Nothing is known about that."

    @tool(idempotent=True)
    async def forget(key: str) -> str:
        """Forget a fact about the user.

        Args:
            key: The key of the fact, as recalled facts show it.
        """
        return "Forgotten." if await facts.forget(key) else "There is no fact with this key."

    return [remember, recall, forget]


async def with_recall(state: AgentState, facts: Facts, *, anew: bool) -> AgentState:
    """The state with what is known that fits its last user message.

    What was recalled for that message stays, unless `anew` says that the message has just come.
    """
    asked = next((message for message in reversed(state.messages) if message.role is Role.USER), None)
    if asked is None:
        return state
    mark = mark_of([asked])
    if not anew and _kept(state).get("message") == mark:
        return state
    try:
        found = await facts.recall(asked.text)
    except LocusError as error:
        error.add_note("This came from the agent's long-term memory. The model was not asked: try the run again.")
        raise
    return state.with_metadata(RECALL, {"message": mark, "text": fenced(found)})


def with_recalled(messages: Sequence[Message], state: AgentState) -> list[Message]:
    """The messages for the model, with what was recalled before the last one of the user."""
    text = _kept(state).get("text")
    if not isinstance(text, str) or not text:
        return list(messages)
    at = max((index for index, message in enumerate(messages) if message.role is Role.USER), default=0)
    return [*messages[:at], Message.user(text), *messages[at:]]


def _kept(state: AgentState) -> dict[str, Any]:
    kept = state.metadata.get(RECALL)
    return kept if isinstance(kept, dict) else {}
