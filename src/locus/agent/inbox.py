"""Messages that come while calls of an earlier run are still open.

They belong after the results of those calls. Until then they wait in the state, so that a kill does not lose them.
"""

from __future__ import annotations

from collections.abc import Sequence

from locus.core.frozen import freeze
from locus.core.messages import Message
from locus.core.state import AgentState

WAITING = "locus:waiting"


def received(state: AgentState, messages: Sequence[Message]) -> AgentState:
    """The state with messages that wait for their turn."""
    return state.with_metadata(WAITING, [*state.metadata.get(WAITING, ()), *(m.model_dump() for m in messages)])


def taken(state: AgentState) -> AgentState:
    """The state with all messages that waited in the conversation."""
    if WAITING not in state.metadata:
        return state
    waiting = [Message.model_validate(message) for message in state.metadata[WAITING]]
    left = {key: value for key, value in state.metadata.items() if key != WAITING}
    return state.model_copy(update={"metadata": freeze(left)}).with_messages(waiting)
