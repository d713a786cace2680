"""What of a long conversation the model sees: its last messages, and a summary of what precedes them.

The thread keeps everything. Positions count from the first message of the thread, whether it was loaded or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from locus.core.messages import Message, Role
from locus.core.state import AgentState

SUMMARY = "locus:summary"
"""The metadata key of the summary."""

LEAST_LOADED = 50
"""How many items of each list are loaded at least: calls are told from earlier ones by their last executions."""


class Summary(NamedTuple):
    """What the messages before a position have said."""

    text: str
    covers: int


NOTHING = Summary("", 0)


def omitted_messages(state: AgentState) -> int:
    """How many messages of the thread were not loaded."""
    count: int = state.locus_omitted.get("messages", 0)
    return count


def summary_of(state: AgentState) -> Summary:
    """The summary that a state has. One that somebody else has written, and that makes no sense, counts for nothing."""
    found = state.metadata.get(SUMMARY)
    if not isinstance(found, dict):
        return NOTHING
    text, covers = found.get("text"), found.get("covers")
    total = omitted_messages(state) + len(state.messages)
    if not isinstance(text, str) or type(covers) is not int or not 0 < covers <= total:
        return NOTHING
    return Summary(text, covers)


def with_summary(state: AgentState, summary: Summary) -> AgentState:
    return state.with_metadata(SUMMARY, summary._asdict())


def summary_message(text: str) -> Message:
    """A summary as the model sees it."""
    return Message.system(f"Summary of the conversation so far:\n{text}")


def turn_start(messages: Sequence[Message], at: int) -> int:
    """The last place not after `at` where a user's turn begins: nothing is torn apart there."""
    for index in range(min(at, len(messages) - 1), 0, -1):
        if messages[index].role is Role.USER:
            return index
    return 0


def step_start(messages: Sequence[Message], at: int) -> int:
    """The last place not after `at`, inside of a turn, where no call is separated from its results."""
    for index in range(min(at, len(messages) - 1), 0, -1):
        if messages[index].role is not Role.TOOL:
            return index
    return 0


def begins_at_a_turn(state: AgentState) -> bool:
    """Whether a window can be understood by itself: it begins with a user's turn, or with the thread."""
    return not omitted_messages(state) or (bool(state.messages) and state.messages[0].role is Role.USER)


def seen_by_model(state: AgentState, window: int, *, back_to_summary: bool) -> list[Message]:
    """The messages that the model is asked with: at least the last `window`, from the start of a turn.

    `back_to_summary`: all that the summary does not cover.
    """
    messages, summary = state.messages, summary_of(state)
    start = turn_start(messages, len(messages) - window)
    if back_to_summary:
        start = max(0, summary.covers - omitted_messages(state))
    seen = list(messages[start:])
    if start and seen and seen[0].role is not Role.USER:  # the summary covers a part of this turn
        opening = turn_start(messages, start)
        if messages[opening].role is Role.USER:
            seen.insert(0, messages[opening])
    return [summary_message(summary.text), *seen] if summary.covers else seen
