"""Turns as messages and states of ours, and as the bytes that a raw driver is given."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from pydantic import BaseModel

from benchmarks.turns import turn
from locus.core.messages import Message, ToolCall, ToolResult
from locus.core.state import AgentState, ToolExecution

Content = Message | ToolExecution | str | float
"""What a turn adds to one of the lists of a state."""


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


def turn_content(number: int, conversation: int = 0) -> tuple[Content, ...]:
    """All that a turn adds: its messages, the execution of its tool, the tool's name, and the agent's confidence."""
    messages = turn_messages(number, conversation)
    call, result = messages[1].tool_calls[0], messages[2].text
    execution = ToolExecution(tool_name=call.name, tool_call_id=call.id, arguments=call.arguments, result=result[:200])
    return (*messages, execution, call.name, 0.5 + number % 50 / 100)


def after(state: AgentState, content: Sequence[Content]) -> AgentState:
    """The state after one more turn. Every list grows, not only the messages."""
    *messages, execution, _, confidence = content
    assert isinstance(execution, ToolExecution)
    assert isinstance(confidence, float)
    grown = state.with_messages([message for message in messages if isinstance(message, Message)])
    return grown.with_tool_execution(execution).with_confidence(confidence)


def edited(message: Message, number: int) -> Message:
    """The message with a few words changed, as by a user who corrects an answer."""
    return message.model_copy(update={"content": f"{message.text[:-20]} edited before turn {number}."})


def encoded(content: Iterable[Content]) -> str:
    """The content as compact JSON: what is new in a save, and what the floor writes."""
    plain = [
        item.model_dump(mode="json", exclude_defaults=True) if isinstance(item, BaseModel) else item for item in content
    ]
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def without_lineage(state: AgentState) -> AgentState:
    """An equal state that knows nothing of where it was kept, as one that came over the wire."""
    return AgentState.model_validate_json(state.model_dump_json())
