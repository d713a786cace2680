"""Turns as messages and states of ours, and as the bytes that a raw driver is given."""

from __future__ import annotations

import json
from collections.abc import Iterable

from benchmarks.turns import turn
from locus.core.messages import Message, ToolCall, ToolResult
from locus.core.state import AgentState


def turn_messages(number: int, conversation: int = 0) -> tuple[Message, ...]:
    """The messages of a turn: new objects at every call, so that nobody profits from another's encoding."""
    texts = turn(number, conversation)
    call = ToolCall(id=texts.call_id, name="look_up", arguments={"place": texts.place, "limit": 5})
    return (
        Message.user(texts.question),
        Message.assistant(texts.thought, tool_calls=[call]),
        Message.tool(ToolResult(tool_call_id=texts.call_id, name="look_up", content=texts.result)),
        Message.assistant(texts.answer),
    )


def edited(message: Message, number: int) -> Message:
    """The message with a few words changed, as by a user who corrects an answer."""
    return message.model_copy(update={"content": f"{message.text[:-20]} edited before turn {number}."})


def encoded(messages: Iterable[Message]) -> str:
    """The messages as compact JSON: the new content of a save, and what the floor writes."""
    plain = [message.model_dump(exclude_defaults=True) for message in messages]
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def without_lineage(state: AgentState) -> AgentState:
    """An equal state that knows nothing of where it was kept, as one that came over the wire."""
    return AgentState.model_validate_json(state.model_dump_json())
