"""Interrupts: the calls of a state that wait for a person, and how the person's decision changes the state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from locus.agent.recovery import CUT_OFF, cut_off_of, failed, pending_calls, unknown
from locus.agent.window import without_metadata
from locus.core.events import Interrupt
from locus.core.messages import Message, ToolCall, ToolResult
from locus.core.state import AgentState
from locus.errors import ConfigurationError

INTERRUPT = "locus:interrupt"
DECIDED = "locus:decided"
OF_INTERRUPT = (INTERRUPT, DECIDED, CUT_OFF)
REJECTED = "A person rejected this call; it was not made."
ACTIONS = ("approve", "retry", "reject", "skip", "edit", "result")


def interrupt_of(state: AgentState) -> Interrupt | None:
    """The interrupt that the state waits for; None if it waits for nothing."""
    stored = state.metadata.get(INTERRUPT)
    return None if stored is None else Interrupt.from_dict(stored)


def interrupted(state: AgentState, interrupt: Interrupt) -> AgentState:
    return state.with_metadata(INTERRUPT, interrupt.to_dict())


def decided_ids(state: AgentState) -> frozenset[str]:
    """The ids of the calls that a person has approved."""
    return frozenset(state.metadata.get(DECIDED, ()))


def cleared(state: AgentState) -> AgentState:
    """The state without the metadata of an interrupt that is over."""
    return without_metadata(state, *OF_INTERRUPT)


def apply_decision(state: AgentState, decision: Any) -> AgentState:
    """Apply a decision: one for all calls that wait, or a mapping of call ids to decisions.

    A decision is "approve" (or "retry"), "reject" (or "skip"), or a dict: {"action": "edit", "arguments": …},
    {"action": "reject", "reason": …}, {"action": "result", "content": …} with the call's result.
    """
    interrupt = interrupt_of(state)
    if interrupt is None:
        raise ConfigurationError("there is nothing to decide: this thread does not wait for a decision")
    by_call = _by_call(interrupt, decision)
    approved: list[str] = []
    edits: dict[str, Any] = {}
    results: list[Message] = []
    for call in interrupt.calls:
        action = by_call[call.id]
        kind = action["action"]
        if kind in ("approve", "retry", "edit"):
            approved.append(call.id)
            if kind == "edit":
                edits[call.id] = action["arguments"]
        else:
            default = unknown(cut_off_of(state)) if interrupt.kind == "unknown_outcome" else REJECTED
            results.append(_answer(call, action, default))
    before = [call_id for call_id in decided_ids(state) if call_id not in by_call]
    state = _edited(cleared(state), edits).with_messages(results)
    return state.with_metadata(DECIDED, sorted({*before, *approved})) if before or approved else state


def _by_call(interrupt: Interrupt, decision: Any) -> dict[str, dict[str, Any]]:
    ids = [call.id for call in interrupt.calls]
    for_each = isinstance(decision, Mapping) and "action" not in decision
    if for_each and set(decision) != set(ids):
        raise ConfigurationError(f"decide on every call that waits: {', '.join(ids)}")
    return {call_id: _checked(decision[call_id] if for_each else decision) for call_id in ids}


def _checked(decision: Any) -> dict[str, Any]:
    action = {"action": decision} if isinstance(decision, str) else decision
    if not isinstance(action, Mapping) or action.get("action") not in ACTIONS:
        raise ConfigurationError(f"a decision is one of {', '.join(ACTIONS)}, got {decision!r:.80}")
    if action["action"] == "edit" and not isinstance(action.get("arguments"), Mapping):
        raise ConfigurationError('the decision "edit" needs the new "arguments"')
    if action["action"] == "result" and not isinstance(action.get("content"), str):
        raise ConfigurationError('the decision "result" needs a "content": what the call gave, as text')
    return dict(action)


def _answer(call: ToolCall, action: Mapping[str, Any], default: str) -> Message:
    if action["action"] == "result":
        return Message.tool(ToolResult(tool_call_id=call.id, name=call.name, content=action["content"]))
    text = f"{default} Reason: {action['reason']}" if action.get("reason") else default
    return Message.tool(failed(call, text))


def _edited(state: AgentState, edits: Mapping[str, Any]) -> AgentState:
    """The state after a person has edited the arguments of open calls."""
    if not edits:
        return state
    owed = {call.id for call in pending_calls(state.messages)}
    for index in range(len(state.messages) - 1, -1, -1):
        message = state.messages[index]
        if owed & {call.id for call in message.tool_calls}:
            calls = tuple(
                ToolCall(id=call.id, name=call.name, arguments=dict(edits[call.id])) if call.id in edits else call
                for call in message.tool_calls
            )
            changed = Message.model_validate({**dict(message), "tool_calls": calls})
            return state.with_messages_replaced(state.messages[:index] + (changed,) + state.messages[index + 1 :])
    return state
