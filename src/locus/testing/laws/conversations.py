"""What stands at one path may change its size and its kind from save to save."""

from __future__ import annotations

from typing import Any

from locus.core.state import AgentState
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import message
from locus.testing.laws.base import Laws, OpenHandle, assert_all_load, assert_same, dicts

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


class ConversationLaws(Laws):
    """Law 2, for payloads that change."""

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
