"""Conversations that are trimmed, edited and summarised as they go: every checkpoint stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import conversation, message
from locus.testing.laws.base import Laws, OpenHandle, assert_all_load, assert_same, dicts

WINDOW = 24

Messages = tuple[Message, ...]


def _sliding_window(old: Messages, turn: int) -> Messages:
    kept = old[4:] if len(old) >= WINDOW else old
    return kept + tuple(conversation(4, turn * 4))


def _system_and_window(old: Messages, turn: int) -> Messages:
    first = old[:1] or (Message.system("be brief"),)
    rest = old[1:]
    return first + (rest[4:] if len(rest) >= WINDOW else rest) + tuple(conversation(4, turn * 4))


def _edited_last(old: Messages, turn: int) -> Messages:
    return old[:-1] + (message(turn + 1_000), message(turn))


def _edited_only(old: Messages, turn: int) -> Messages:
    return (old[:-1] or tuple(conversation(9))) + (message(turn),)


def _edited_in_the_middle(old: Messages, turn: int) -> Messages:
    place = turn * 7 % (len(old) or 1)
    return old[:place] + (message(turn + 1_000),) + old[place + 1 :] + tuple(conversation(2, turn * 2))


def _summarised_prefix(old: Messages, turn: int) -> Messages:
    if turn % 8 == 7:
        old = (Message.system(f"summary {turn}"),) + old[-6:]
    return old + tuple(conversation(3, turn * 3))


def _reordered(old: Messages, turn: int) -> Messages:
    turned = old[3:] + old[:3] if turn % 2 else tuple(reversed(old))
    return turned + (message(turn),)


def _growing_and_shrinking(old: Messages, turn: int) -> Messages:
    return old + tuple(conversation(6, turn * 6)) if turn % 3 else old[: len(old) // 2]


def _repeated(old: Messages, turn: int) -> Messages:
    """The same message again and again: content alone does not say where an item stands."""
    return old + (message(turn % 2),) * 3 if turn % 5 else old[:: 2 + turn % 3]


def _inserted_in_front(old: Messages, turn: int) -> Messages:
    return (message(turn),) + old


def _emptied(old: Messages, turn: int) -> Messages:
    return () if turn % 6 == 5 else old + (message(turn),)


EVOLUTIONS: dict[str, Callable[[Messages, int], Messages]] = {
    "sliding window": _sliding_window,
    "system message and window": _system_and_window,
    "edited last message": _edited_last,
    "edited and not grown": _edited_only,
    "edited in the middle": _edited_in_the_middle,
    "summarised prefix": _summarised_prefix,
    "reordered": _reordered,
    "growing and shrinking": _growing_and_shrinking,
    "repeated messages": _repeated,
    "inserted in front": _inserted_in_front,
    "emptied": _emptied,
}


class EvolutionLaws(Laws):
    """Law 3, over many turns of each way in which a conversation changes."""

    evolution_turns: ClassVar[int] = 50

    @pytest.mark.parametrize("evolution", EVOLUTIONS)
    async def test_every_state_of_a_changing_conversation_loads_equal(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, evolution: str
    ) -> None:
        state, saved = AgentState(), dict[str, AgentState]()
        for turn in range(self.evolution_turns):
            state = state.with_messages_replaced(EVOLUTIONS[evolution](state.messages, turn))
            saved[await checkpointer.save(state, "t")] = state
        await assert_all_load(open_handle(), "t", saved)

    @pytest.mark.parametrize("evolution", EVOLUTIONS)
    async def test_every_dict_of_a_changing_conversation_loads_equal(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, evolution: str
    ) -> None:
        """Plain dicts through two handles in turn: each time one is a turn behind."""
        backends = [dicts(checkpointer), dicts(open_handle())]
        messages: Messages = ()
        saved: dict[str, dict[str, Any]] = {}
        for turn in range(self.evolution_turns):
            messages = EVOLUTIONS[evolution](messages, turn)
            data = {"turn": turn, "values": {"messages": [said.model_dump(mode="json") for said in messages]}}
            saved[await backends[turn % 2].save("t", data)] = data
        for checkpoint_id, data in saved.items():
            assert_same(await backends[0].load("t", checkpoint_id), data)

    @pytest.mark.parametrize("evolution", EVOLUTIONS)
    async def test_every_state_loads_equal_when_two_handles_take_turns(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, evolution: str
    ) -> None:
        """Each turn is loaded by the other handle, and some are rebuilt from nothing but data."""
        handles = [checkpointer, open_handle()]
        state, saved = AgentState(), dict[str, AgentState]()
        for turn in range(self.evolution_turns // 2):
            handle = handles[turn % 2]
            loaded = await handle.load("t") or state
            assert loaded == state
            state = loaded.with_messages_replaced(EVOLUTIONS[evolution](loaded.messages, turn))
            if turn % 5 == 4:
                state = AgentState.from_checkpoint(state.to_checkpoint())
            saved[await handle.save(state, "t")] = state
        await assert_all_load(handles[0], "t", saved)

    async def test_all_lists_of_a_state_evolve_on_their_own(self, checkpointer: Checkpointer) -> None:
        state, saved = AgentState(), dict[str, AgentState]()
        for turn in range(30):
            state = state.with_confidence(turn / 40).with_error(f"error {turn}")
            state = state.model_copy(
                update={"tool_history": state.tool_history[turn % 2 :] + (f"tool {turn}",) * (turn % 4)}
            )
            if turn % 7 == 6:
                state = state.model_copy(update={"errors": state.errors[3:], "confidence_history": ()})
                state = AgentState.from_checkpoint(state.to_checkpoint())
            saved[await checkpointer.save(state, "t")] = state
        await assert_all_load(checkpointer, "t", saved)
