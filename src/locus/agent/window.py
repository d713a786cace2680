"""What of a long conversation the model sees: its last messages, and a summary of what precedes them.

The thread keeps everything. Positions count from the first message of the thread, whether it was loaded or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from locus.core.frozen import freeze
from locus.core.messages import Message, Role
from locus.core.state import AgentState
from locus.memory.model.digests import fingerprint
from locus.memory.model.states import item_text

SUMMARY = "locus:summary"
"""The metadata key of the summary."""

LEAST_LOADED = 50
"""How many items of each list are loaded at least: calls are told from earlier ones by their last executions."""

MARGIN = 25
"""How many items before the window are loaded at least: a user's turn should begin among them."""

MOST_FOR_SUMMARY = 16
"""How many times as much may be loaded to reach back to where the summary ends."""

MARKED = 4
"""How many of the messages that a summary covers it is tied to. One alone says too little: many answers are "ok"."""


class Summary(NamedTuple):
    """What the messages before a position have said."""

    text: str
    covers: int
    last: str
    """The mark of the last messages that it covers. If others stand there, it is not a summary of this thread."""

    @property
    def marked_from(self) -> int:
        """The position of the first message that the mark is of."""
        return max(0, self.covers - MARKED)


NOTHING = Summary("", 0, "")


def mark_of(messages: Iterable[Message]) -> str:
    """Tells these messages from others, by what a model sees of them: a save and a load do not change that."""
    return fingerprint("".join(item_text(_plain(message), (), sort_keys=True) for message in messages)).hex()


def _plain(message: Message) -> Message:
    """A message without what its metadata, or a user's subclass, adds to it."""
    return Message(
        role=message.role,
        content=message.content,
        tool_calls=message.tool_calls,
        tool_call_id=message.tool_call_id,
        name=message.name,
    )


def omitted_messages(state: AgentState) -> int:
    """How many messages of the thread were not loaded."""
    count: int = state.locus_omitted.get("messages", 0)
    return count


def summary_of(state: AgentState) -> Summary:
    """The summary that a state has. One that makes no sense, or is of other messages, counts for nothing.

    Where the messages that would tell were not loaded, it stays open whether it is of others: see `is_verified`.
    """
    found = state.metadata.get(SUMMARY)
    if not isinstance(found, dict):
        return NOTHING
    text, covers, last = found.get("text"), found.get("covers"), found.get("last")
    omitted = omitted_messages(state)
    if not isinstance(text, str) or not isinstance(last, str) or type(covers) is not int:
        return NOTHING
    summary = Summary(text, covers, last)
    if not 0 < covers <= omitted + len(state.messages):
        return NOTHING
    marked = state.messages[summary.marked_from - omitted : covers - omitted] if is_verified(state, summary) else None
    return summary if marked is None or mark_of(marked) == last else NOTHING


def is_verified(state: AgentState, summary: Summary) -> bool:
    """Whether the messages that the mark of its summary is of are visible: `summary_of` has compared them."""
    return summary.marked_from >= omitted_messages(state)


def with_summary(state: AgentState, summary: Summary) -> AgentState:
    return state.with_metadata(SUMMARY, summary._asdict())


def without_summary(state: AgentState) -> AgentState:
    if SUMMARY not in state.metadata:
        return state
    left = {key: value for key, value in state.metadata.items() if key != SUMMARY}
    return state.model_copy(update={"metadata": freeze(left)})


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


def to_load(window: int) -> int:
    """How many items of each list are loaded at first."""
    return max(window + MARGIN, LEAST_LOADED)


def needed(state: AgentState, window: int, *, back_to_summary: bool) -> int | None:
    """How many items of each list have to be loaded, because these are too few; None if they are enough.

    What the model sees begins with a user's turn; what is loaded may begin anywhere before that.
    """
    messages, omitted = state.messages, omitted_messages(state)
    if not omitted:
        return None
    if not _has_turn(messages, len(messages) - window):
        return 4 * max(len(messages), to_load(window))
    summary = summary_of(state) if back_to_summary else NOTHING
    if not is_verified(state, summary) and summary.covers:
        more = omitted + len(messages) - summary.marked_from
    elif summary.covers and not _has_turn(messages, summary.covers - omitted):
        more = 4 * len(messages)
    else:
        return None
    return more if more <= MOST_FOR_SUMMARY * to_load(window) else None


def _has_turn(messages: Sequence[Message], at: int) -> bool:
    """Whether a user's turn begins at a place, or before it."""
    return bool(messages) and messages[turn_start(messages, at)].role is Role.USER


def seen_by_model(state: AgentState, window: int, *, back_to_summary: bool) -> list[Message]:
    """The messages that the model is asked with: at least the last `window`, from the start of a turn.

    `back_to_summary`: all that the summary does not cover, which somebody has verified.
    """
    messages, summary = state.messages, summary_of(state)
    if back_to_summary:
        start = step_start(messages, max(0, summary.covers - omitted_messages(state)))
    else:
        start = turn_start(messages, len(messages) - window)
        summary = summary if is_verified(state, summary) else NOTHING
    seen = list(messages[start:])
    while not start and omitted_messages(state) and seen and seen[0].role is Role.TOOL:
        del seen[0]  # its call was not loaded
    if start and seen and seen[0].role is not Role.USER:  # the summary covers a part of this turn
        opening = turn_start(messages, start)
        if messages[opening].role is Role.USER:
            seen.insert(0, messages[opening])
    return [summary_message(summary.text), *seen] if summary.covers else seen
