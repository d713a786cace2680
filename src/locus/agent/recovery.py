"""Completes conversations that were cut off: pure functions over messages and states.

A conversation that was cut off may have calls without results. New messages belong after those results, so they are
queued in the state until the results are there, and a kill does not lose them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from locus.agent.leases import Cause
from locus.agent.window import without_metadata
from locus.core.messages import Message, Role, ToolCall, ToolResult
from locus.core.state import AgentState

NO_RESULT = "No result was recorded for this call: the run was interrupted before it finished."
NOT_APPROVED = "This call was not made: it needed a person's approval, and the conversation went on without it."
TAKEN_OVER = "This call was not made here: another worker has taken the conversation over."


def unknown(cause: Cause) -> str:
    """The text that tells the model of a call that was under way when its run was cut off."""
    return (
        f"The outcome of this call is unknown: {_CAUSES[cause]}. It may or may not have taken effect, and it was not "
        "repeated."
    )


_CAUSES: Mapping[Cause, str] = {
    "cancelled": "the run was cancelled before the call was done",
    "model_error": "the run ended with a model error before the call was done",
    "stopped": "the run was stopped before the call was done",
    "taken_over": "another worker took the conversation over before the call was done",
}
UNKNOWN = unknown("stopped")
CUT_OFF = "locus:cut-off"
"""The metadata key of the `Cause` that cut a run off, while a person is asked about the calls that it had begun."""


def cut_off_of(state: AgentState) -> Cause:
    return next((cause for cause in _CAUSES if cause == state.metadata.get(CUT_OFF)), "stopped")


def pending_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """The calls of the last assistant message that have no result yet."""
    answered: set[str | None] = set()
    for message in reversed(messages):
        if message.role is Role.TOOL:
            answered.add(message.tool_call_id)
        elif message.role is Role.ASSISTANT:
            return [call for call in message.tool_calls if call.id not in answered]
        else:
            break
    return []


def is_answered(messages: Sequence[Message]) -> bool:
    """Whether the last message is the assistant's, and asks for no calls."""
    return bool(messages) and messages[-1].role is Role.ASSISTANT and not messages[-1].tool_calls


def in_order(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages, with the last results in the order of their calls. If a result is missing, nothing moves."""
    start = len(messages)
    while start and messages[start - 1].role is Role.TOOL:
        start -= 1
    calls = [call.id for call in messages[start - 1].tool_calls] if start else []
    results = messages[start:]
    answered = [message.tool_call_id for message in results]
    if answered == calls or set(answered) != set(calls):
        return messages
    return messages[:start] + tuple(sorted(results, key=lambda message: calls.index(message.tool_call_id or "")))


def repaired(
    messages: Sequence[Message], *, to_the_end: bool = False, from_the_start: bool = True
) -> list[Message] | None:
    """The messages with a result for every call and without results of no call, or None if nothing needs repair.

    Providers refuse any history in which a call has no result, or a result no call. Calls of the last assistant message
    may still get their results, and are left alone unless `to_the_end` says that nothing follows. Without
    `from_the_start`, results at the beginning belong to calls that were not loaded, and are left alone.
    """
    mended: list[Message] = []
    open_calls: dict[str, ToolCall] = {}
    changed = False
    known = from_the_start
    for message in messages:
        known = known or message.role is not Role.TOOL
        if message.role is Role.TOOL and known:
            if message.tool_call_id not in open_calls:
                changed = True
                continue
            del open_calls[message.tool_call_id]
        elif open_calls:
            mended += results_for(open_calls.values(), NO_RESULT)
            open_calls, changed = {}, True
        if message.role is Role.ASSISTANT:
            open_calls = {call.id: call for call in message.tool_calls}
        mended.append(message)
    if open_calls and to_the_end:
        mended += results_for(open_calls.values(), NO_RESULT)
        changed = True
    return mended if changed else None


def results_for(calls: Iterable[ToolCall], text: str) -> list[Message]:
    return [Message.tool(failed(call, text)) for call in calls]


def failed(call: ToolCall, text: str) -> ToolResult:
    """A result that says that a call was not made, or that its outcome is unknown."""
    return ToolResult(tool_call_id=call.id, name=call.name, content=text, error=text)


QUEUED = "locus:waiting"
"""The metadata key of the queued messages."""


def queue_messages(state: AgentState, messages: Sequence[Message]) -> AgentState:
    """The state with these messages queued until the open calls have their results."""
    return state.with_metadata(QUEUED, [*state.metadata.get(QUEUED, ()), *(m.model_dump() for m in messages)])


def append_queued_messages(state: AgentState) -> AgentState:
    """The state with its queued messages appended to the conversation."""
    if QUEUED not in state.metadata:
        return state
    queued = [Message.model_validate(message) for message in state.metadata[QUEUED]]
    return without_metadata(state, QUEUED).with_messages(queued)
