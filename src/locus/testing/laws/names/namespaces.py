"""Namespaces: separate histories inside one thread."""

from __future__ import annotations

import pytest

from locus.core.state import AgentState
from locus.errors import CheckpointNotFoundError
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import conversation, message
from locus.testing.laws.base import Laws, OpenHandle, assert_same_state, dicts, ids, present

_NAMES = ("default", "", "child", "child|1")


class NamespaceLaws(Laws):
    """Each namespace of a thread has a history of its own."""

    async def test_each_has_a_history_of_its_own(self, checkpointer: Checkpointer, open_handle: OpenHandle) -> None:
        states = dict.fromkeys(_NAMES, AgentState())
        saved: dict[str, list[str]] = {name: [] for name in _NAMES}
        for turn in range(4):
            for name in _NAMES:
                states[name] = states[name].with_messages(conversation(2, turn + 10 * _NAMES.index(name)))
                saved[name].append(await checkpointer.save(states[name], "t", namespace=name))
        for handle in (checkpointer, open_handle()):
            for name in _NAMES:
                assert_same_state(await handle.load("t", namespace=name), states[name])
                assert await ids(handle, "t", namespace=name) == saved[name][::-1]
                history = await handle.history("t", None, namespace=name)
                assert [entry.parent_id for entry in history] == [*saved[name][-2::-1], None]
                assert {entry.namespace for entry in history} == {name}
                foreign = next(iter(saved[_NAMES[_NAMES.index(name) - 1]]))
                assert await handle.load("t", foreign, namespace=name) is None

    async def test_the_sequence_is_shared(self, checkpointer: Checkpointer) -> None:
        for turn in range(6):
            await dicts(checkpointer).save("t", {"n": turn}, namespace=_NAMES[turn % 4])
        seqs = [entry.seq for name in _NAMES for entry in await checkpointer.history("t", namespace=name)]
        assert len(set(seqs)) == 6

    async def test_the_same_checkpoint_id_may_be_in_several(self, checkpointer: Checkpointer) -> None:
        for name in _NAMES:
            await dicts(checkpointer).save("t", {"in": name}, "c", namespace=name)
        for name in _NAMES:
            assert await dicts(checkpointer).load("t", "c", namespace=name) == {"in": name}
        assert await checkpointer.delete("t", "c")
        for name in _NAMES:
            assert await checkpointer.exists("t", "c", namespace=name) == (name != "default")

    async def test_one_can_be_deleted_and_the_others_stay(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        shared = {"items": [{"n": index} for index in range(30)], "large": "x" * 2_000}
        backend = dicts(checkpointer)
        for name in _NAMES:
            await backend.save("t", {**shared, "in": name}, "c", namespace=name)
            await backend.put_writes("t", "c", "task", [("x", 1)], namespace=name)
        left = list(_NAMES)
        for name in ("", "child", "default"):
            assert await backend.delete("t", namespace=name)
            assert not await backend.delete("t", namespace=name)
            left.remove(name)
            for other in _NAMES:
                is_left = other in left
                loaded = await dicts(open_handle()).load("t", namespace=other)
                assert loaded == ({**shared, "in": other} if is_left else None)
                assert len(await backend.get_writes("t", "c", namespace=other)) == is_left
        assert await backend.list_threads() == ["t"]

    async def test_a_thread_with_nothing_in_default_is_a_thread(self, checkpointer: Checkpointer) -> None:
        await checkpointer.save(AgentState(), "t", namespace="")
        assert await checkpointer.list_threads() == ["t"]
        assert await checkpointer.load("t") is None
        assert await checkpointer.exists("t")
        assert await checkpointer.exists("t", namespace="")
        assert not await checkpointer.exists("t", namespace="default")
        assert [found["namespace"] for found in await checkpointer.list_with_metadata()] == [""]
        assert await checkpointer.delete("t")
        assert await checkpointer.list_threads() == []

    async def test_those_of_a_thread_are_listed(self, checkpointer: Checkpointer, open_handle: OpenHandle) -> None:
        """The list has each namespace with a checkpoint once, in the order of code points."""
        names = ["", "Child", "child", "child|1", "default", "é", "\U0001f600"]
        assert await checkpointer.list_namespaces("t") == []
        for name in reversed(names):
            for turn in range(2):
                await dicts(checkpointer).save("t", {"n": turn}, namespace=name)
        await dicts(checkpointer).save("t2", {"n": 0}, namespace="other")
        await dicts(checkpointer).put_writes("t", "c", "task", [("x", 1)], namespace="only writes")
        for handle in (checkpointer, open_handle()):
            assert await handle.list_namespaces("t") == names
            assert await handle.list_namespaces("t2") == ["other"]
            assert await handle.list_namespaces("never") == []
        assert await checkpointer.delete("t", namespace="child")
        names.remove("child")
        assert await open_handle().list_namespaces("t") == names
        assert await checkpointer.delete("t")
        assert await open_handle().list_namespaces("t") == []

    async def test_an_error_says_which_others_there_are(self, checkpointer: Checkpointer) -> None:
        await dicts(checkpointer).save("t", {"n": 0}, "c", namespace="child")
        for call in (checkpointer.history("t", before="c"), checkpointer.diff("t", "c", "c")):
            with pytest.raises(CheckpointNotFoundError, match="other namespaces: 'child'"):
                await call
        with pytest.raises(CheckpointNotFoundError) as caught:
            await checkpointer.diff("t", "c2", "c2", namespace="child")
        assert "other namespaces" not in str(caught.value)

    async def test_forks_and_conflicts_stay_inside(self, checkpointer: Checkpointer) -> None:
        first = await checkpointer.save(AgentState(), "t", namespace="child")
        await checkpointer.save(AgentState(), "t")
        state = present(await checkpointer.load("t", namespace="child"))
        second = await checkpointer.save(state.with_message(message(1)), "t", namespace="child", if_latest=first)
        (newest, _) = await checkpointer.history("t", namespace="child")
        assert (newest.checkpoint_id, newest.parent_id) == (second, first)
        found = await checkpointer.diff("t", first, second, namespace="child")
        assert found.added == (message(1),)
