"""What the memory backend gives of a checkpoint for a part of it, and to a reader that holds one."""

from __future__ import annotations

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends import MemoryCheckpointer
from locus.memory.model.parts import Range
from locus.memory.model.records import DEFAULT_NAMESPACE, Base, Stored


async def _edited() -> tuple[MemoryCheckpointer, dict[str, Stored]]:
    """Three checkpoints on one branch: each edits the last of three messages."""
    checkpointer, stored = MemoryCheckpointer(), dict[str, Stored]()
    state = AgentState().with_messages([Message.user("a"), Message.user("b"), Message.user("c")])
    for number in range(3):
        state = state.with_messages_replaced(state.messages[:2] + (Message.user(f"edit {number}"),))
        await checkpointer.save(state, "t", f"c{number}")
        found = await checkpointer.store.read("t", f"c{number}", DEFAULT_NAMESPACE)
        assert found is not None
        stored[f"c{number}"] = found
    return checkpointer, stored


async def test_a_range_has_the_runs_that_hold_it() -> None:
    checkpointer, _ = await _edited()
    for checkpoint_id, start, numbers in (("c2", 2, [2]), ("c2", 0, [0, 1, 2]), ("c1", 2, [1]), ("c0", 2, [0])):
        part = Range(("messages",), start, 1)
        found = await checkpointer.store.read_part("t", checkpoint_id, DEFAULT_NAMESPACE, part)
        assert found is not None
        assert [run.number for runs in found.runs.values() for run in runs] == numbers


async def test_a_reader_gets_what_is_above_the_runs_that_it_holds() -> None:
    """As of an older run it gets all: what newer ones hide it need not have kept."""
    checkpointer, stored = await _edited()
    for held, checkpoint_id, numbers in (("c0", "c2", [1, 2]), ("c2", "c2", []), ("c2", "c1", [0, 1, 2])):
        base = Base(held, stored[held].entry.rev)
        async with checkpointer.store.using() as engine:
            found = await engine.read_since("t", DEFAULT_NAMESPACE, checkpoint_id, base)
        assert found is not None
        assert found.since == base
        assert [run.number for runs in found.runs.values() for run in runs] == numbers
