"""What changed between two checkpoints of a thread."""

from __future__ import annotations

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import CheckpointNotFoundError
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import conversation, message
from locus.testing.laws.base import Laws


class DiffLaws(Laws):
    """`diff`."""

    async def test_what_was_added_removed_and_changed(self, checkpointer: Checkpointer) -> None:
        base = AgentState().with_messages(conversation(6))
        a = await checkpointer.save(base, "t")
        b = await checkpointer.save(base.with_messages(conversation(2, 10)), "t")
        c = await checkpointer.save(base.with_messages_replaced(base.messages[2:]), "t")
        edited = base.with_messages_replaced(base.messages[:-1] + (Message.assistant("edited"),))
        d = await checkpointer.save(edited, "t")
        added = await checkpointer.diff("t", a, b)
        assert (added.added, added.removed, added.changed) == (tuple(conversation(2, 10)), (), ())
        removed = await checkpointer.diff("t", a, c)
        assert (removed.added, removed.removed, removed.changed) == ((), tuple(conversation(2)), ())
        changed = await checkpointer.diff("t", a, d)
        assert changed.changed == ((message(5), Message.assistant("edited")),)
        assert (changed.added, changed.removed) == ((), ())
        back = await checkpointer.diff("t", b, a)
        assert (back.added, back.removed) == ((), tuple(conversation(2, 10)))

    async def test_fields_are_compared_by_what_is_stored(self, checkpointer: Checkpointer) -> None:
        base = AgentState().with_metadata({"n": 1, "same": [1]})
        a = await checkpointer.save(base, "t")
        b = await checkpointer.save(base.with_metadata("n", True).with_iteration(3), "t")
        found = (await checkpointer.diff("t", a, b)).fields
        assert set(found) == {"metadata", "iteration", "updated_at"}
        assert found["iteration"] == (0, 3)
        before, after = found["metadata"]
        assert (before["n"], after["n"] is True) == (1, True)

    async def test_a_checkpoint_does_not_differ_from_itself(self, checkpointer: Checkpointer) -> None:
        state = AgentState().with_messages(conversation(3))
        a = await checkpointer.save(state, "t")
        b = await checkpointer.save(state, "t")
        for pair in ((a, a), (a, b), (b, a)):
            found = await checkpointer.diff("t", *pair)
            assert not found
            assert (found.added, found.removed, found.changed, found.fields) == ((), (), (), {})

    async def test_a_side_that_is_not_there_is_an_error(self, checkpointer: Checkpointer) -> None:
        a = await checkpointer.save(AgentState(), "t")
        elsewhere = await checkpointer.save(AgentState(), "u")
        for pair in ((a, "nothing"), ("nothing", a), (a, elsewhere)):
            with pytest.raises(CheckpointNotFoundError):
                await checkpointer.diff("t", *pair)
        with pytest.raises(CheckpointNotFoundError):
            await checkpointer.diff("no thread", a, a)
