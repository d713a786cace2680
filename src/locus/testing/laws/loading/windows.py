"""Windows: the end of a state, loaded without the rest, stands for the whole state when it is saved."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import LISTS, AgentState, ToolExecution
from locus.errors import ConfigurationError, ConflictError, CorruptCheckpointError, WindowError
from locus.memory.checkpointer import Checkpointer
from locus.memory.diffs import diff
from locus.testing.data import conversation, message
from locus.testing.laws.base import Laws, OpenHandle, assert_same_state, dicts, exact, ids, present
from locus.testing.stores import TestStore


def _turn(state: AgentState, turn: int) -> AgentState:
    execution = ToolExecution(tool_name=f"tool-{turn}", tool_call_id=f"call-{turn}", result="found")
    grown = state.with_messages(conversation(2, turn * 2)).with_tool_execution(execution)
    return grown.with_confidence(turn / 100).with_error(f"error {turn}")


async def _grown(handle: Checkpointer, turns: int, thread_id: str = "t") -> AgentState:
    state = AgentState(agent_id="a")
    for turn in range(turns):
        state = _turn(state, turn)
        await handle.save(state, thread_id)
    return state


async def _window(
    handle: Checkpointer, last: int, checkpoint_id: str | None = None, thread_id: str = "t"
) -> AgentState:
    return present(await handle.load(thread_id, checkpoint_id, last=last))


async def _whole(handle: Checkpointer, checkpoint_id: str | None = None, thread_id: str = "t") -> AgentState:
    state = present(await handle.load(thread_id, checkpoint_id))
    assert not state.omitted
    return state


def _assert_window_of(window: AgentState, whole: AgentState, last: int) -> None:
    """Assert that a window has the end of every list, says how much is left out, and has all the rest."""
    for name in LISTS:
        shown, items = getattr(window, name), getattr(whole, name)
        assert shown == items[max(0, len(items) - last) :], name
        assert window.omitted.get(name, 0) == shown.omitted == len(items) - len(shown), name
    plain, expected = (state.model_dump(exclude={*LISTS, "locus_omitted"}) for state in (window, whole))
    assert exact(plain) == exact(expected)


class WindowLaws(Laws):
    """`load(thread_id, last=n)` gives a window that can be saved like the whole state."""

    async def test_a_window_is_the_end_of_a_whole_load(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        await _grown(checkpointer, 5)
        for handle in (checkpointer, open_handle()):
            for checkpoint_id in [None, *(await ids(handle, "t"))[::2]]:
                whole = await _whole(handle, checkpoint_id)
                for last in (1, 2, 3, 50):
                    _assert_window_of(await _window(handle, last, checkpoint_id), whole, last)
        assert await checkpointer.load("none", last=3) is None
        assert await checkpointer.load("t", "none", last=3) is None

    async def test_saving_a_window_keeps_what_it_left_out(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """The changes are those of a whole state: append, edit at the end and in the middle, trim the end."""
        await _grown(checkpointer, 6)
        for change in range(5):
            whole, window = await _whole(open_handle()), await _window(open_handle(), 3)
            before = whole.messages[: window.omitted["messages"]]
            changed = self._changed(window, change)
            handle = open_handle()
            with pytest.raises(WindowError):
                await handle.save(pickle.loads(pickle.dumps(changed)), "t")
            saved = await handle.save(changed, "t")
            reloaded = await _whole(open_handle(), saved)
            assert reloaded.messages == before + tuple(changed.messages)
            for name in LISTS[1:]:
                omitted = getattr(whole, name)[: window.omitted.get(name, 0)]
                assert getattr(reloaded, name) == omitted + tuple(getattr(changed, name)), name
            again = _turn(changed, 90 + change)  # the state that was saved goes on being a window
            await handle.save(again, "t")
            assert (await _whole(open_handle())).messages == before + tuple(again.messages)

    def _changed(self, window: AgentState, change: int) -> AgentState:
        messages = window.messages
        match change:
            case 0:
                return _turn(window, 77)
            case 1:
                return window.with_messages_replaced(messages[:-1] + (message(900),))
            case 2:
                return window.with_messages_replaced(messages[:1] + (message(901),) + messages[2:])
            case 3:
                return window.with_messages_replaced(messages[:-1])
            case _:
                return window.with_messages_replaced([message(902)])

    async def test_a_window_that_is_saved_many_times_stays_whole(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """New handles save it on several lines of history, until the pieces of its list have to be gathered."""
        state = await _grown(checkpointer, 4)
        messages = tuple(state.messages)
        for turn in range(24):
            handle = open_handle()
            window = await _window(handle, 2)
            aside = window.with_message(message(700 + turn))
            await handle.save(aside, "t", f"left-{turn}")  # the branch is continued by another line
            continued = window.with_message(message(800 + turn))
            messages = (*messages, message(800 + turn))
            await handle.save(continued, "t", f"line-{turn}")
            await handle.close()
        assert (await _whole(open_handle())).messages == messages
        assert (await _whole(open_handle(), "line-3")).messages == messages[: len(messages) - 20]

    async def test_short_lists_are_windows_too(self, checkpointer: Checkpointer, open_handle: OpenHandle) -> None:
        state = AgentState()
        for number in range(4):
            state = state.with_confidence(number / 10).with_error(str(number))
        await checkpointer.save(state, "t")
        for turn in range(30):
            handle = open_handle()
            window = await _window(handle, 1)
            _assert_window_of(window, await _whole(handle), 1)
            state = state.with_confidence(0.5).with_error(f"e{turn}")
            await handle.save(window.with_confidence(0.5).with_error(f"e{turn}"), "t")
            await handle.close()
        whole = await _whole(checkpointer)
        assert (whole.confidence_history, whole.errors) == (state.confidence_history, state.errors)

    async def test_what_was_omitted_can_be_let_go(self, checkpointer: Checkpointer, open_handle: OpenHandle) -> None:
        await _grown(checkpointer, 4)
        window = (await _window(checkpointer, 3)).without_omitted()
        assert not window.omitted
        assert not window.messages.omitted  # type: ignore[attr-defined]
        trimmed = window.with_messages_replaced(window.messages[1:])
        await checkpointer.save(trimmed, "t", "short")
        assert_same_state(await open_handle().load("t", "short"), trimmed)
        assert_same_state(await open_handle().load("t", "short", last=50), trimmed)

    async def test_a_hole_between_omitted_and_visible_is_refused(self, checkpointer: Checkpointer) -> None:
        state = await _grown(checkpointer, 4)
        window = await _window(checkpointer, 3)
        for fewer in (window.messages[1:], list(window.messages[2:]), ()):
            with pytest.raises(ConfigurationError, match="without_omitted"):
                window.with_messages_replaced(fewer)
        meant = window.with_messages_replaced(window.messages[2:], omitted="keep")
        await checkpointer.save(meant, "t")
        assert (await _whole(checkpointer)).messages == state.messages[:-3] + tuple(state.messages[-1:])
        nothing = meant.with_messages_replaced((), omitted="keep")
        await checkpointer.save(nothing, "t")
        assert (await _whole(checkpointer)).messages == state.messages[:-3]
        # A summary stands for what it replaces.
        await checkpointer.save(window.with_messages_replaced([message(1), *window.messages[2:]]), "t")

    async def test_a_window_that_does_not_know_what_it_left_out_is_refused(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        state = await _grown(checkpointer, 4)
        window = await _window(checkpointer, 3)
        strangers = (
            pickle.loads(pickle.dumps(window)),
            AgentState.from_checkpoint(window.to_checkpoint()),
            AgentState.model_validate_json(window.model_dump_json()),
        )
        before = await ids(checkpointer, "t")
        for stranger in strangers:
            assert stranger == window
            assert stranger.omitted == window.omitted
            with pytest.raises(WindowError, match="Load the thread whole"):
                await checkpointer.save(stranger, "t")
            with pytest.raises(WindowError):
                await checkpointer.save(stranger.with_message(message(1)), "t", before[0])
        with pytest.raises(WindowError):
            await checkpointer.save(window, "another thread")
        with pytest.raises(WindowError):
            await checkpointer.save(window, "t", namespace="another")
        lying = window.model_copy(update={"locus_omitted": {"messages": 2, "errors": 1}})
        with pytest.raises(WindowError):
            await checkpointer.save(lying.with_message(message(1)), "t")
        assert await ids(checkpointer, "t") == before
        assert await checkpointer.list_threads() == ["t"]
        assert_same_state(await checkpointer.load("t"), state)
        for copied in (copy.copy(window), copy.deepcopy(window), window.model_copy(update={"iteration": 7})):
            await open_handle().save(copied.with_message(message(5)), "t")
            assert (await _whole(checkpointer)).messages == state.messages + (message(5),)

    async def test_a_window_whose_checkpoint_is_gone_is_refused(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """The checkpoint was deleted, replaced under its id, or its thread was begun anew."""
        state = await _grown(checkpointer, 4)
        for step in range(3):
            latest = (await ids(checkpointer, "t"))[0]
            window = await _window(checkpointer, 3)
            other = open_handle()
            if step == 0:
                await other.delete("t", latest)
            elif step == 1:
                await other.save(_turn(AgentState(), 1), "t", latest)
            else:
                await other.delete("t")
                await other.save(_turn(AgentState(), 2), "t", latest)
            before = await ids(other, "t")
            with pytest.raises(WindowError, match="is gone"):
                await checkpointer.save(window.with_message(message(3)), "t")
            assert await ids(other, "t") == before
            if step < 2:
                await other.save(state, "t")

    async def test_a_window_is_saved_under_an_id_that_exists(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """Saving an equal window changes nothing. Another replaces the checkpoint; items outside of it stay."""
        state = await _grown(checkpointer, 4)
        window = (await _window(checkpointer, 3)).with_message(message(60))
        await checkpointer.save(window, "t", "c")
        listed = await checkpointer.history("t", None)
        await checkpointer.save(window, "t", "c")
        again = (await _window(open_handle(), 3, (await ids(checkpointer, "t"))[1])).with_message(message(60))
        again = again.model_copy(update={"updated_at": window.updated_at})
        await checkpointer.save(again, "t", "c")
        assert await checkpointer.history("t", None) == listed
        await checkpointer.save(again.with_message(message(61)), "t", "c")
        assert (await _whole(open_handle(), "c")).messages == state.messages + (message(60), message(61))
        own = await _window(open_handle(), 2, "c")
        await checkpointer.save(own.with_message(message(62)), "t", "c")
        assert (await _whole(open_handle(), "c")).messages == state.messages + (message(60), message(61), message(62))

    async def test_two_windows_meet(self, checkpointer: Checkpointer, open_handle: OpenHandle) -> None:
        state = await _grown(checkpointer, 4)
        other = open_handle()
        mine, theirs = await _window(checkpointer, 3), await _window(other, 2)
        latest = checkpointer.origin(mine, "t")
        await other.save(theirs.with_message(message(1)), "t", "theirs", if_latest=latest)
        with pytest.raises(ConflictError):
            await checkpointer.save(mine.with_message(message(2)), "t", "mine", if_latest=latest)
        await checkpointer.save(mine.with_message(message(2)), "t", "mine")
        for checkpoint_id, number in (("theirs", 1), ("mine", 2)):
            assert (await _whole(open_handle(), checkpoint_id)).messages == state.messages + (message(number),)

    async def test_windows_are_compared_where_they_left_out_the_same(self, checkpointer: Checkpointer) -> None:
        state = await _grown(checkpointer, 4)
        window = await _window(checkpointer, 3)
        grown = window.with_message(message(5))
        await checkpointer.save(grown, "t")
        assert diff(window, grown).added == (message(5),)
        assert not diff(window, await _window(checkpointer, 3, checkpointer.origin(window, "t")))
        for other in (state, await _window(checkpointer, 2), pickle.loads(pickle.dumps(window))):
            with pytest.raises(WindowError, match=r"checkpointer\.diff"):
                diff(window, other)

    async def test_bad_windows_are_refused(self, checkpointer: Checkpointer) -> None:
        await checkpointer.save(AgentState(), "t")
        bad: Any
        for bad in (0, -1, 1.0, "5", True, 2**60):
            with pytest.raises(ConfigurationError, match="last is how many"):
                await checkpointer.load("t", last=bad)

    async def test_the_dump_of_a_window_is_not_kept_as_a_dict(self, checkpointer: Checkpointer) -> None:
        """The dict would be a shorter thread, and nobody could tell."""
        await _grown(checkpointer, 3)
        window = await _window(checkpointer, 1)
        with pytest.raises(WindowError, match="without_omitted"):
            await dicts(checkpointer).save("t", window.to_checkpoint())
        await dicts(checkpointer).save("t", {**window.without_omitted().to_checkpoint(), "locus_omitted": {}})
        loaded = await _whole(checkpointer)
        assert loaded.messages == window.messages
        await checkpointer.save(loaded, "t")
        assert "locus_omitted" not in (await dicts(checkpointer).load("t") or {})

    async def test_damage_inside_of_a_window_is_an_error(self, checkpointer: Checkpointer, store: TestStore) -> None:
        await checkpointer.save(AgentState().with_message(Message.user("hi")), "t")
        await store.corrupt("t")
        with pytest.raises(CorruptCheckpointError):
            await checkpointer.load("t", last=1)

    def test_the_sync_face_loads_windows(self, checkpointer: Checkpointer) -> None:
        checkpointer.sync.save(AgentState().with_messages(conversation(4)), "t")
        window = present(checkpointer.sync.load("t", last=1))
        assert window.omitted == {"messages": 3}
        checkpointer.sync.save(window.with_message(message(9)), "t")
        whole = present(checkpointer.sync.load("t"))
        assert len(whole.messages) == 5
