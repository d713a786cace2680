"""Loaded data cannot be changed behind the store's back, and is never executed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import conversation, message, rich_state
from locus.testing.laws.base import Laws, OpenHandle, assert_same, assert_same_state, dicts, present

_fired: list[object] = []


def fire(*arguments: object, **options: object) -> None:
    """The function that the payloads below name. A call of it leaves a trace."""
    _fired.append((arguments, options))


_HERE = f"{__name__}.fire"

_ARMED: tuple[Any, ...] = (
    {"lc": 2, "type": "constructor", "id": _HERE.split("."), "kwargs": {"x": 1}, "args": [1]},
    {"lc": 1, "type": "constructor", "id": _HERE.split("."), "method": None, "kwargs": {}},
    {"py/object": _HERE, "py/reduce": [{"py/function": _HERE}, {"py/tuple": [1]}]},
    {"__type__": _HERE, "__class__": _HERE, "__module__": __name__, "__reduce__": [_HERE, []]},
    {"$type": _HERE, "$locus:object": _HERE, "!!python/object/apply": _HERE},
    {"$locus:call": _HERE, "args": []},
    {"$locus:float": _HERE},
    {"$ref": "#", "$where": f"{_HERE}()", "$function": _HERE},
    f"!!python/object/apply:{_HERE} [1]",
    f"{{{{ {_HERE}() }}}}",
    "gANjYnVpbHRpbnMKZXZhbApxAFg=",
)


class SafetyLaws(Laws):
    """Payloads that name code are data, and loaded states are immutable."""

    async def test_payloads_that_name_code_are_data(self, checkpointer: Checkpointer, open_handle: OpenHandle) -> None:
        _fired.clear()
        data = {"items": list(_ARMED), "deep": {"field": list(_ARMED)}, "one": _ARMED[0], **dict(_ARMED[0])}
        await dicts(checkpointer).save("d", data, metadata={"armed": list(_ARMED)})
        noted = Message.user("hi").model_copy(update={"metadata": {"armed": list(_ARMED)}})
        state = AgentState(armed=list(_ARMED)).with_message(noted)  # type: ignore[call-arg]
        await checkpointer.save(state, "s")
        await checkpointer.put_writes("s", "c", "task", [("x", armed) for armed in _ARMED])
        for handle in (checkpointer, open_handle()):
            assert_same(await dicts(handle).load("d"), data)
            assert_same(await handle.get_metadata("d"), {"armed": list(_ARMED)})
            assert_same_state(await handle.load("s"), state)
            assert_same([write.value for write in await handle.get_writes("s", "c")], list(_ARMED))
        assert _fired == []

    async def test_a_loaded_state_cannot_be_changed(self, checkpointer: Checkpointer) -> None:
        saved = rich_state()
        await checkpointer.save(saved, "t")
        state: Any = await checkpointer.load("t")
        attempts: tuple[Callable[[], object], ...] = (
            lambda: state.metadata.update(x=1),
            lambda: state.metadata.__setitem__("x", 1),
            lambda: state.metadata["nested"]["l"].append(1),
            lambda: state.metadata["nested"].clear(),
            lambda: state.metadata["a.b"].__setitem__(0, 9),
            lambda: state.messages[5].custom["a"].append(1),
            lambda: state.messages[3].tool_calls[0].arguments.__setitem__("q", 1),
            lambda: state.messages[4].metadata.pop("structured_content"),
            lambda: state.future_field["kept"].clear(),
            lambda: state.future_list.sort(),
            lambda: state.tool_executions[0].arguments.__delitem__("q"),
        )
        for attempt in attempts:
            with pytest.raises(TypeError):
                attempt()
        with pytest.raises(ValueError):
            state.iteration = 5
        assert_same_state(state, saved)
        assert_same_state(await checkpointer.load("t"), saved)

    async def test_changing_a_loaded_dict_does_not_change_what_is_stored(self, checkpointer: Checkpointer) -> None:
        backend = dicts(checkpointer)
        data = {"items": [{"n": [1]}], "deep": {"text": "x" * 2_000, "list": [1, 2]}}
        await backend.save("t", data)
        for _ in range(2):
            loaded = await backend.load("t")
            assert_same(loaded, data)
            assert loaded is not None
            loaded["items"][0]["n"].append(2)
            loaded["deep"]["list"].clear()
            loaded["more"] = 1
        history = await backend.history("t")
        history[0].metadata["x"] = 1
        assert (await backend.history("t"))[0].metadata == {}

    async def test_a_loaded_dict_that_was_changed_can_be_saved(self, checkpointer: Checkpointer) -> None:
        backend = dicts(checkpointer)
        first = await backend.save("t", {"items": [{"n": 1}, {"n": 2}], "deep": {"list": [{"n": [3]}]}})
        loaded = present(await backend.load("t"))
        loaded["items"][0]["n"] = "changed"
        loaded["deep"]["list"][0]["n"].append(4)
        await backend.save("t", loaded)
        assert_same(await backend.load("t"), {"items": [{"n": "changed"}, {"n": 2}], "deep": {"list": [{"n": [3, 4]}]}})
        assert_same(await backend.load("t", first), {"items": [{"n": 1}, {"n": 2}], "deep": {"list": [{"n": [3]}]}})

    async def test_what_is_changed_inside_a_message_is_saved(self, checkpointer: Checkpointer) -> None:
        """`model_copy` does not validate, so a dict that its owner goes on changing may stand in a message."""
        notes: dict[str, Any] = {"n": 1, "list": [1]}
        noted = message(5).model_copy(update={"metadata": notes})
        state = AgentState().with_messages([*conversation(3), noted])
        await checkpointer.save(state, "t")
        notes["n"] = 2
        notes["list"].append(2)
        for later in (state, state.with_message(message(6))):
            saved_as = await checkpointer.save(later, "t")
            assert_same_state(await checkpointer.load("t", saved_as), later)

    async def test_the_dict_given_for_metadata_can_go_on_changing(self, checkpointer: Checkpointer) -> None:
        given: dict[str, Any] = {"list": [1], "inner": {"n": 1}}
        state = AgentState(metadata=given)
        first = await checkpointer.save(state, "t")
        given["list"].append(2)
        given["inner"]["n"] = 2
        second = await checkpointer.save(state.next_iteration(), "t")
        for name in (first, second):
            loaded = present(await checkpointer.load("t", name))
            assert_same(loaded.to_checkpoint()["metadata"], {"list": [1], "inner": {"n": 1}})

    async def test_a_save_changes_nothing_in_what_it_saves(self, checkpointer: Checkpointer) -> None:
        state = rich_state()
        before = state.to_checkpoint()
        data = {"items": [{"n": 1}], "deep": {"l": [[1]]}, "large": "x" * 2_000}
        for _ in range(2):
            await checkpointer.save(state, "s")
            await dicts(checkpointer).save("d", data)
        assert_same(state.to_checkpoint(), before)
        assert_same(data, {"items": [{"n": 1}], "deep": {"l": [[1]]}, "large": "x" * 2_000})
