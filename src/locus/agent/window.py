"""Windows: of a long conversation the model sees the last messages, and a summary of those before.

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
"""How many items of each list are loaded at least, so that a new call's id can be compared with recent ones."""

MARGIN = 25
"""How many items before the window are loaded at least, in the hope that a user's turn begins among them."""

MOST_FOR_SUMMARY = 16
"""How many times the usual number of items may be loaded, to reach back to the end of the summary."""

MARKED = 4
"""How many messages, the last ones it covers, identify a summary. One is too few: many answers are just "ok"."""


class Summary(NamedTuple):
    """A summary of the messages before the position `covers`."""

    text: str
    covers: int
    last: str
    """The mark of the last messages that it covers. If it does not fit the thread, the summary is of other messages."""

    @property
    def marked_from(self) -> int:
        """The position of the first message that the mark identifies."""
        return max(0, self.covers - MARKED)


NOTHING = Summary("", 0, "")


def mark_of(messages: Iterable[Message]) -> str:
    """A fingerprint of messages, over the parts that a model sees. Saving and loading does not change it."""
    return fingerprint("".join(item_text(_plain(message), (), sort_keys=True) for message in messages)).hex()


def _plain(message: Message) -> Message:
    """A message without its metadata, and without fields that a user's subclass adds."""
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
    """The summary in a state; `NOTHING` if there is none, or it is malformed or of other messages.

    If the messages that its mark identifies were not loaded, it may be of others: `is_verified` says whether they were.
    """
    stored = state.metadata.get(SUMMARY)
    if not isinstance(stored, dict):
        return NOTHING
    text, covers, last = stored.get("text"), stored.get("covers"), stored.get("last")
    omitted = omitted_messages(state)
    if not isinstance(text, str) or not isinstance(last, str) or type(covers) is not int:
        return NOTHING
    summary = Summary(text, covers, last)
    if not 0 < covers <= omitted + len(state.messages):
        return NOTHING
    marked = state.messages[summary.marked_from - omitted : covers - omitted] if is_verified(state, summary) else None
    return summary if marked is None or mark_of(marked) == last else NOTHING


def is_verified(state: AgentState, summary: Summary) -> bool:
    """Whether the messages that the summary's mark identifies are loaded, so that `summary_of` has compared them."""
    return summary.marked_from >= omitted_messages(state)


def with_summary(state: AgentState, summary: Summary) -> AgentState:
    return state.with_metadata(SUMMARY, summary._asdict())


def without_metadata(state: AgentState, *keys: str) -> AgentState:
    """The state without these entries of its metadata."""
    if not any(key in state.metadata for key in keys):
        return state
    left = {key: value for key, value in state.metadata.items() if key not in keys}
    return state.model_copy(update={"metadata": freeze(left)})


def summary_message(text: str) -> Message:
    """The message in which the model gets a summary."""
    return Message.system(f"Summary of the conversation so far:\n{text}")


def turn_start(messages: Sequence[Message], at: int) -> int:
    """The index of the last user message up to `at`; 0 if there is none."""
    for index in range(min(at, len(messages) - 1), 0, -1):
        if messages[index].role is Role.USER:
            return index
    return 0


def step_start(messages: Sequence[Message], at: int) -> int:
    """The last index up to `at` at which the messages can be cut without separating a call from its results."""
    for index in range(min(at, len(messages) - 1), 0, -1):
        if messages[index].role is not Role.TOOL:
            return index
    return 0


def to_load(window: int) -> int:
    """How many items of each list to load at first."""
    return max(window + MARGIN, LEAST_LOADED)


def needed(state: AgentState, window: int, *, back_to_summary: bool) -> int | None:
    """How many items of each list to load, because those of this state are too few; None if they are enough.

    The messages that the model sees begin with a user's turn; the loaded ones may begin anywhere before that.
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
    """Whether a user's turn begins at the index `at` or before it."""
    return bool(messages) and messages[turn_start(messages, at)].role is Role.USER


def seen_by_model(state: AgentState, window: int, *, back_to_summary: bool) -> list[Message]:
    """The messages to send to the model: at least the last `window`, from the start of a turn.

    `back_to_summary`: all messages that the summary does not cover. The summary must be verified.
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
    if start and seen and seen[0].role is not Role.USER:  # the summary covers the beginning of this turn
        opening = turn_start(messages, start)
        if messages[opening].role is Role.USER:
            seen.insert(0, messages[opening])
    return [summary_message(summary.text), *seen] if summary.covers else seen
