"""Refusals: a value that JSON cannot hold is refused with its path, and nothing is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from locus.core.messages import Message, ToolCall
from locus.core.state import AgentState
from locus.errors import LocusError, SerializationError
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import conversation
from locus.testing.laws.base import Laws, assert_same_state, dicts, raised, snapshot


def _too_deep(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"d": value}
    return value


def _circular() -> Any:
    value: dict[str, Any] = {}
    value["self"] = [value]
    return value


_BOTTOMLESS: dict[str, Callable[[], Any]] = {
    "too deep": lambda: _too_deep(200),
    "far too deep": lambda: _too_deep(20_000),
    "circular": _circular,
}

UNSTORABLE: dict[str, Any] = {
    "nan": float("nan"),
    "infinity": float("inf"),
    "minus infinity": float("-inf"),
    "an integer that Python would not read back": 10**5_000,
    "bytes": b"abc",
    "set": {1, 2},
    "frozenset": frozenset({1}),
    "object": object(),
    "class": AgentState,
    "function": _too_deep,
    "datetime": datetime(2024, 1, 1, tzinfo=UTC),
    "decimal": Decimal("1.5"),
    "uuid": UUID(int=5),
    "complex": 1j,
    "surrogate": "a\ud800b",
    "model": Message.user("a model is no JSON"),
}
"""Values that JSON cannot hold, in whatever place they stand."""

UNSTORABLE_DICTS: dict[str, dict[Any, Any]] = {
    "int key": {1: "a"},
    "none key": {None: "a"},
    "bool key": {True: "a"},
    "tuple key": {("a", "b"): 1},
    "surrogate key": {"\ud800": 1},
    "mixed keys": {"a": 1, 2: "b"},
}

_PLACES: dict[str, tuple[Callable[[Any], dict[str, Any]], str]] = {
    "a field": (lambda bad: {"ok": 1, "field": bad}, "field"),
    "deep in dicts": (lambda bad: {"a": {"b": {"c": bad}}}, "a.b.c"),
    "an item": (lambda bad: {"items": [1, 2, bad]}, "items[2]"),
    "in an item": (lambda bad: {"items": [{"x": 1}, {"x": {"y": bad}}]}, "items[1].x.y"),
    "a list in a list": (lambda bad: {"items": [[1], [0, bad]]}, "items[1][1]"),
    "a list in a dict": (lambda bad: {"a": {"list": [{}, bad]}}, "a.list[1]"),
    "an odd key": (lambda bad: {"a b": {"c": bad}}, "['a b'].c"),
}


UNKEEPABLE: dict[str, Any] = {**UNSTORABLE, **UNSTORABLE_DICTS}


async def _refusal(save: Awaitable[object], what: str) -> SerializationError:
    return await raised(SerializationError, save, what)


class RefusalLaws(Laws):
    """A value that cannot be kept exactly is refused, and nothing is written."""

    @pytest.mark.parametrize("place", _PLACES)
    async def test_a_dict_with_what_json_cannot_hold_is_refused(self, checkpointer: Checkpointer, place: str) -> None:
        backend = dicts(checkpointer)
        build, path = _PLACES[place]
        await backend.save("there", {"ok": 1})
        before = await snapshot(checkpointer)
        for what, bad in UNKEEPABLE.items():
            for thread_id in ("there", "new"):
                refusal = await _refusal(backend.save(thread_id, build(bad)), what)
                assert refusal.path == path, what
                assert path in str(refusal), what
        assert await snapshot(checkpointer) == before
        assert await backend.load("there") == {"ok": 1}
        assert not await checkpointer.exists("new")

    async def test_a_state_with_what_json_cannot_hold_is_refused(self, checkpointer: Checkpointer) -> None:
        good = AgentState().with_messages(conversation(3))
        await checkpointer.save(good, "t")
        before = await snapshot(checkpointer)
        for what, bad in UNKEEPABLE.items():
            for path, state in _broken_states(good, bad).items():
                refusal = await _refusal(checkpointer.save(state, "t"), f"{what} at {path}")
                assert refusal.path == path, what
        assert await snapshot(checkpointer) == before
        assert_same_state(await checkpointer.load("t"), good)

    async def test_a_number_field_that_is_no_number_is_refused(self, checkpointer: Checkpointer) -> None:
        refusal = await _refusal(checkpointer.save(AgentState(confidence=float("nan")), "t"), "NaN")
        assert refusal.path == "confidence"
        assert not await checkpointer.exists("t")

    @pytest.mark.parametrize("kind", _BOTTOMLESS)
    async def test_a_value_without_a_bottom_is_refused(self, checkpointer: Checkpointer, kind: str) -> None:
        value = _BOTTOMLESS[kind]()
        for data, path in (({"field": value}, "field"), ({"items": [1, value]}, "items[1]")):
            refusal = await _refusal(dicts(checkpointer).save("t", data), kind)
            assert refusal.path.startswith(path)
            await _refusal(checkpointer.save(AgentState(), "t", metadata=data), f"{kind} in metadata")
            await _refusal(checkpointer.put_writes("t", "c", "task", [("channel", value)]), f"{kind} in a write")
        assert await checkpointer.list_threads() == []
        assert await checkpointer.get_writes("t", "c") == []

    async def test_metadata_and_writes_that_json_cannot_hold_are_refused(self, checkpointer: Checkpointer) -> None:
        for what, bad in UNKEEPABLE.items():
            refusal = await _refusal(checkpointer.save(AgentState(), "t", metadata={"m": [1, bad]}), what)
            assert refusal.path == "metadata.m[1]", what
            writes = [("good", 1), ("bad", {"v": bad})]
            refusal = await _refusal(checkpointer.put_writes("t", "c", "task", writes), what)
            assert refusal.path == "writes[1].bad.v", what
        assert await checkpointer.list_threads() == []
        assert await checkpointer.get_writes("t", "c") == []

    async def test_a_model_in_a_list_is_refused_and_not_turned_into_a_dict(self, checkpointer: Checkpointer) -> None:
        refusal = await _refusal(dicts(checkpointer).save("t", {"messages": conversation(2)}), "a model")
        assert refusal.path == "messages[0]"
        assert not await checkpointer.exists("t")

    async def test_the_two_shapes_are_told_apart_by_type(self, checkpointer: Checkpointer) -> None:
        wrong: Any
        for wrong in ({"messages": []}, None, "state", [], 5):
            assert "AgentState" in str(await _refusal(checkpointer.save(wrong, "t"), repr(wrong)))
        for wrong in (AgentState(), None, "text", [], 5):
            assert "dict" in str(await _refusal(dicts(checkpointer).save("t", wrong), repr(wrong)))
        for wrong in ("text", 5, ["a"], [("a", 1)]):
            with pytest.raises(LocusError):
                await checkpointer.save(AgentState(), "t", metadata=wrong)
        assert await checkpointer.list_threads() == []


def _broken_states(good: AgentState, bad: Any) -> dict[str, AgentState]:
    """States with a value that cannot be kept, by the path of that value."""
    call = ToolCall(id="c", name="n", arguments={"x": [bad]})
    noted = Message.user("hi").model_copy(update={"metadata": {"x": bad}})
    return {
        "metadata.k": good.with_metadata("k", bad),
        "metadata.k[1].x": good.with_metadata("k", [0, {"x": bad}]),
        "future[0]": good.model_copy(update={"future": [bad]}),
        "messages[3].metadata.x": good.with_message(noted),
        "messages[4].tool_calls[0].arguments.x[0]": good.with_messages(
            [*conversation(1), Message.assistant("", [call])]
        ),
    }
