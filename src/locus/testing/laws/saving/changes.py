"""Payloads and conversations that change from save to save: every checkpoint stays as it was saved."""

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


def _repeated(old: Messages, turn: int) -> Messages:
    """A conversation that repeats a message, so that content alone does not tell where an item stands."""
    return old + (message(turn % 2),) * 3 if turn % 5 else old[:: 2 + turn % 3]


EVOLUTIONS: dict[str, Callable[[Messages, int], Messages]] = {
    "sliding window": _sliding_window,
    "system message and window": _system_and_window,
    "edited last message": lambda old, turn: old[:-1] + (message(turn + 1_000), message(turn)),
    "edited and not grown": lambda old, turn: (old[:-1] or tuple(conversation(9))) + (message(turn),),
    "edited in the middle": _edited_in_the_middle,
    "summarised prefix": _summarised_prefix,
    "reordered": _reordered,
    "growing and shrinking": lambda old, turn: (
        old + tuple(conversation(6, turn * 6)) if turn % 3 else old[: len(old) // 2]
    ),
    "repeated messages": _repeated,
    "inserted in front": lambda old, turn: (message(turn),) + old,
    "emptied": lambda old, turn: () if turn % 6 == 5 else old + (message(turn),),
}


class ChangingConversationLaws(Laws):
    """Every checkpoint of a conversation stays as it was, over many turns of each kind of change."""

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
        """Two handles save plain dicts in turn, so each is a turn behind when it saves."""
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
        """Two handles load and save in turn. Some states are rebuilt from plain data, and know no checkpoint."""
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


_ITEMS: list[Any] = [{"n": index, "text": "some text"} for index in range(30)]

_CHANGES: tuple[Any, ...] = (
    _ITEMS,
    {"now": "a dict", "list": _ITEMS},
    _ITEMS,
    "text",
    _ITEMS[:10],
    None,
    [],
    {},
    "x" * 3_000,
    [_ITEMS, _ITEMS[::-1]],
    {"list": _ITEMS[5:], "value": "x" * 3_000},
    {"list": {"list": _ITEMS}, "value": ["x" * 3_000]},
    {"list": "x" * 3_000, "value": _ITEMS},
    list(range(200)),
    list(range(-1, 200)),
    list(range(100)),
    [1],
    [1, [2, [3, _ITEMS]]],
    0,
    _ITEMS + _ITEMS,
    [_ITEMS[3]] * 70,
    [_ITEMS[3]] * 69,
    _ITEMS,
)


class ChangingPayloadLaws(Laws):
    """A path of a payload may change its size and its kind from save to save."""

    async def test_a_path_can_become_a_list_a_dict_a_text_and_a_list_again(self, checkpointer: Checkpointer) -> None:
        backend = dicts(checkpointer)
        saved = []
        for value in (*_CHANGES, *reversed(_CHANGES)):
            data = {"at": value, "deep": {"at": value, "beside": 1}}
            saved.append((await backend.save("t", data), data))
        for checkpoint_id, data in saved:
            assert_same(await backend.load("t", checkpoint_id), data)

    async def test_the_same_changes_through_cold_handles(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        saved = []
        for value in _CHANGES:
            data = {"at": value}
            saved.append((await dicts(open_handle()).save("t", data), data))
        for checkpoint_id, data in saved:
            assert_same(await dicts(checkpointer).load("t", checkpoint_id), data)

    async def test_the_same_changes_inside_a_state(self, checkpointer: Checkpointer) -> None:
        state = AgentState()
        expected: dict[str, AgentState] = {}
        for number, value in enumerate(_CHANGES):
            state = state.with_metadata("at", value).with_message(message(number))
            state = state.model_copy(update={"future": value})
            state = AgentState.from_checkpoint(state.to_checkpoint()) if number % 5 == 4 else state
            expected[await checkpointer.save(state, "t")] = state
        await assert_all_load(checkpointer, "t", expected)

    async def test_fields_come_and_go(self, checkpointer: Checkpointer) -> None:
        backend = dicts(checkpointer)
        versions: list[dict[str, Any]] = [
            {"a": _ITEMS, "b": _ITEMS},
            {"b": _ITEMS},
            {},
            {"c": _ITEMS, "a": _ITEMS[1:]},
            {"a": _ITEMS, "b": _ITEMS, "c": {"a": _ITEMS}},
        ]
        saved = [(await backend.save("t", data), data) for data in versions]
        for checkpoint_id, data in saved:
            assert_same(await backend.load("t", checkpoint_id), data)

    async def test_the_same_large_value_in_many_places(self, checkpointer: Checkpointer) -> None:
        backend = dicts(checkpointer)
        large = "large " * 400
        both = {"a": large, "b": {"c": large}, "l": [large, large], "d": {"text": large, "n": 1}}
        versions: list[dict[str, Any]] = [both, {"a": large}, {"a": "small"}, {"a": large}, both]
        saved = [(await backend.save("t", data), data) for data in versions]
        assert await backend.delete("t", saved[0][0])
        for checkpoint_id, data in saved[1:]:
            assert_same(await backend.load("t", checkpoint_id), data)

    async def test_keys_that_look_like_paths_do_not_meet(self, checkpointer: Checkpointer) -> None:
        backend = dicts(checkpointer)
        data = {"a.b": _ITEMS, "a": {"b": _ITEMS[:5], ".b": _ITEMS[5:]}, "a[0]": _ITEMS[2:], "": {"": _ITEMS[9:]}}
        await backend.save("t", data)
        await backend.save("t", {**data, "a": {"b": _ITEMS[:6], ".b": []}})
        assert_same(await backend.load("t"), {**data, "a": {"b": _ITEMS[:6], ".b": []}})
        assert_same(await backend.load("t", (await backend.list_checkpoints("t"))[-1]), data)

    async def test_a_caller_that_goes_on_changing_its_dict_changes_nothing_that_is_stored(
        self, checkpointer: Checkpointer
    ) -> None:
        backend = dicts(checkpointer)
        data: dict[str, Any] = {"items": [{"n": 1}, {"n": 2}], "deep": {"text": "a" * 2_000, "list": [[1]]}}
        first = await backend.save("t", data)
        data["items"][0]["n"] = "changed"
        data["deep"]["list"][0].append(2)
        second = await backend.save("t", data)
        data.clear()
        assert_same(
            await backend.load("t", first),
            {"items": [{"n": 1}, {"n": 2}], "deep": {"text": "a" * 2_000, "list": [[1]]}},
        )
        assert_same(
            await backend.load("t", second),
            {"items": [{"n": "changed"}, {"n": 2}], "deep": {"text": "a" * 2_000, "list": [[1, 2]]}},
        )
