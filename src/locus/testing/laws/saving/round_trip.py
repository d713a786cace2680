"""Round trips: every JSON value comes back equal, from every place where one can stand."""

from __future__ import annotations

from itertools import count
from typing import Any

from hypothesis import given

from locus.core.messages import Message, Role, ToolCall
from locus.core.state import AgentState
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.manifest import decode_manifest
from locus.memory.model.records import DEFAULT_NAMESPACE
from locus.testing.data import (
    EXACT_VALUES,
    HOSTILE_KEYS,
    budget,
    conversation,
    histories,
    json_values,
    message,
    payloads,
    rich_state,
)
from locus.testing.laws.base import Laws, OpenHandle, assert_same, assert_same_state, dicts, present

_store = (f"thread-{number}" for number in count())


class _Rated(Message):
    stars: int = 3


class _Weighted(ToolCall):
    weight: int = 1


class RoundTripLaws(Laws):
    """Every value and every state comes back exactly as it was saved."""

    async def test_a_state_with_everything_in_it_comes_back_equal(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        state = rich_state()
        saved_as = await checkpointer.save(state, "t")
        for handle in (checkpointer, open_handle()):
            assert_same_state(await handle.load("t"), state)
            assert_same_state(await handle.load("t", saved_as), state)

    async def test_an_empty_state_comes_back_equal(self, checkpointer: Checkpointer) -> None:
        state = AgentState()
        await checkpointer.save(state, "t")
        assert_same_state(await checkpointer.load("t"), state)

    async def test_what_is_not_there_is_none(self, checkpointer: Checkpointer) -> None:
        assert await checkpointer.load("t") is None
        saved_as = await checkpointer.save(AgentState(), "t")
        assert await checkpointer.load("t", f"{saved_as}x") is None
        assert await checkpointer.load("u", saved_as) is None
        assert await checkpointer.load("T") is None
        assert await checkpointer.load("t", namespace="other") is None
        assert not await checkpointer.exists("u")
        assert not await checkpointer.exists("t", f"{saved_as}x")
        assert await checkpointer.exists("t")
        assert await checkpointer.exists("t", saved_as)
        assert await checkpointer.list_checkpoints("u") == []
        assert await checkpointer.history("u") == []

    async def test_every_value_is_kept_as_a_field_of_a_dict(self, checkpointer: Checkpointer) -> None:
        data = {f"field {index}": value for index, value in enumerate(EXACT_VALUES)}
        await dicts(checkpointer).save("t", data)
        assert_same(await dicts(checkpointer).load("t"), data)

    async def test_every_value_is_kept_alone(self, checkpointer: Checkpointer) -> None:
        backend = dicts(checkpointer)
        for index, value in enumerate(EXACT_VALUES):
            saved_as = await backend.save("t", {"value": value})
            assert_same(await backend.load("t", saved_as), {"value": value})
            await backend.save(f"t{index}", {"deeper": {"value": value}})
            assert_same(await backend.load(f"t{index}"), {"deeper": {"value": value}})

    async def test_every_value_is_kept_as_an_item_of_a_list(self, checkpointer: Checkpointer) -> None:
        data = {"items": list(EXACT_VALUES), "deep": {"er": [list(EXACT_VALUES)]}}
        await dicts(checkpointer).save("t", data)
        assert_same(await dicts(checkpointer).load("t"), data)

    async def test_every_value_is_kept_inside_a_state(self, checkpointer: Checkpointer) -> None:
        values = list(EXACT_VALUES)
        call = ToolCall(id="c", name="tool", arguments={"values": values})
        state = (
            AgentState(unknown_field=values)  # type: ignore[call-arg]
            .with_metadata({f"key {index}": value for index, value in enumerate(values)})
            .with_message(Message.assistant("x", [call]))
            .with_message(Message.user("y").model_copy(update={"metadata": {"values": values}}))
        )
        await checkpointer.save(state, "t")
        assert_same_state(await checkpointer.load("t"), state)

    async def test_every_key_is_kept(self, checkpointer: Checkpointer) -> None:
        flat: dict[str, Any] = dict.fromkeys(HOSTILE_KEYS, 1)
        data = {**flat, "inner": {**flat, "lists": {key: [{key: key}] * 30 for key in HOSTILE_KEYS}}}
        await dicts(checkpointer).save("t", data)
        assert_same(await dicts(checkpointer).load("t"), data)
        state = AgentState.model_validate({"more": data, "metadata": data})
        await checkpointer.save(state, "s")
        assert_same_state(await checkpointer.load("s"), state)

    async def test_every_value_is_kept_in_checkpoint_metadata(self, checkpointer: Checkpointer) -> None:
        metadata = {f"key {index}": value for index, value in enumerate(EXACT_VALUES)}
        metadata |= {key: key for key in HOSTILE_KEYS}
        saved_as = await checkpointer.save(AgentState(), "t", metadata=metadata)
        (entry,) = await checkpointer.history("t")
        assert_same(entry.metadata, metadata)
        assert_same(await checkpointer.get_metadata("t", saved_as), metadata)

    async def test_values_that_are_equal_but_not_the_same_replace_one_another(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """An engine that compares with `==` would keep the old value: 1 == True and 0.0 == -0.0."""
        twins: list[list[Any]] = [[1, 1.0, True], [0, 0.0, -0.0, False], ["é", "e\u0301"], [[], {}, "", None]]
        for values in twins:
            for value in (*values, *reversed(values)):
                for handle in (checkpointer, open_handle()):
                    data = {"v": value, "l": [value] * 40, "d": {"v": value, "l": [{"x": value}]}}
                    await dicts(handle).save("t", data)
                    assert_same(await dicts(handle).load("t"), data)
                state = await checkpointer.load("s") or AgentState()
                state = state.with_metadata({"v": value, "l": [value] * 40})
                await checkpointer.save(state, "s")
                assert_same_state(await checkpointer.load("s"), state)

    async def test_a_state_survives_being_saved_and_loaded_many_times(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        state = rich_state()
        for turn in range(12):
            await checkpointer.save(state, "t")
            loaded = await (checkpointer if turn % 2 else open_handle()).load("t")
            assert_same_state(loaded, state)
            assert loaded is not None
            state = loaded.with_message(message(turn))

    async def test_what_is_deep_but_not_too_deep_is_kept(self, checkpointer: Checkpointer) -> None:
        value: Any = 1
        for level in range(80):
            value = [value] if level % 2 else {"d": value}
        data = {"field": value, "items": [1, value], "inner": {"deeper": [value]}}
        await dicts(checkpointer).save("d", data, metadata={"m": value})
        assert_same(await dicts(checkpointer).load("d"), data)
        assert_same(await checkpointer.get_metadata("d"), {"m": value})
        noted = Message.user("hi").model_copy(update={"metadata": {"x": value}})
        state = AgentState(more=value).with_metadata("k", value).with_message(noted)  # type: ignore[call-arg]
        await checkpointer.save(state, "s")
        assert_same_state(await checkpointer.load("s"), state)

    async def test_what_subclasses_add_is_kept(self, checkpointer: Checkpointer) -> None:
        """Fields of a subclass come back as fields that the base class does not know."""
        call = _Weighted(id="c", name="tool", weight=7)
        said = [_Rated(role=Role.USER, content="x", stars=5), _Rated(role=Role.USER, content="y")]
        state = AgentState().with_messages([*said, Message.assistant("z", [call])])
        await checkpointer.save(state, "t")
        loaded = present(await checkpointer.load("t"))
        assert [found.model_dump().get("stars") for found in loaded.messages[:2]] == [5, 3]
        assert loaded.messages[2].tool_calls[0].model_dump().get("weight") == 7

    async def test_ten_thousand_messages_and_a_megabyte_come_back(self, checkpointer: Checkpointer) -> None:
        data = {"messages": [{"n": index} for index in range(10_000)], "blob": "ä" * 1_000_000}
        await dicts(checkpointer).save("t", data)
        await dicts(checkpointer).save("t", {**data, "messages": [*data["messages"], {"n": -1}]})
        assert_same(await dicts(checkpointer).load("t"), {**data, "messages": [*data["messages"], {"n": -1}]})

    async def test_a_manifest_is_read_without_its_runs(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """A server looks at the manifest of the base of every commit."""
        first = await dicts(checkpointer).save("t", {"messages": [{"n": 1}], "note": "é" * 3_000})
        second = await dicts(checkpointer).save("t", {"messages": [{"n": 1}, {"n": 2}]})
        for handle in (checkpointer, open_handle()):
            async with handle.store.using() as engine:
                for checkpoint_id in (first, second):
                    stored = present(await engine.read("t", DEFAULT_NAMESPACE, checkpoint_id))
                    rev, manifest = await engine.manifest("t", DEFAULT_NAMESPACE, checkpoint_id) or ("", "")
                    assert rev == stored.entry.rev
                    assert decode_manifest(manifest) == decode_manifest(stored.manifest)
                assert await engine.manifest("t", DEFAULT_NAMESPACE, "another") is None
                assert await engine.manifest("another", DEFAULT_NAMESPACE, first) is None

    @budget(24)
    @given(data=payloads)
    async def test_any_dict_comes_back_equal(self, checkpointer: Checkpointer, data: dict[str, Any]) -> None:
        thread_id = next(_store)
        await dicts(checkpointer).save(thread_id, data)
        assert_same(await dicts(checkpointer).load(thread_id), data)

    @budget(12)
    @given(versions=histories)
    async def test_any_history_of_dicts_comes_back_equal(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, versions: list[dict[str, Any]]
    ) -> None:
        thread_id = next(_store)
        cold = open_handle()
        saved = []
        for number, data in enumerate(versions):
            handle = cold if number == len(versions) - 1 else checkpointer
            saved.append((await dicts(handle).save(thread_id, data), data))
        for checkpoint_id, data in saved:
            assert_same(await dicts(checkpointer).load(thread_id, checkpoint_id), data)

    @budget(12)
    @given(value=json_values, other=json_values)
    async def test_any_value_in_a_state_comes_back_equal(
        self, checkpointer: Checkpointer, value: Any, other: Any
    ) -> None:
        thread_id = next(_store)
        state = AgentState(extra_field=value).with_metadata("v", other)  # type: ignore[call-arg]
        said = Message.user("hi").model_copy(update={"metadata": {"v": value}})
        await checkpointer.save(state.with_messages([*conversation(2), said]), thread_id)
        loaded = await checkpointer.load(thread_id)
        assert_same_state(
            loaded,
            state.with_messages([*conversation(2), said]).model_copy(
                update={"updated_at": loaded.updated_at if loaded else None}
            ),
        )
