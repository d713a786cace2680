"""What a window reads does not grow, however long the thread is."""

from __future__ import annotations

from locus.core.messages import Message
from locus.core.state import AgentState, ToolExecution
from locus.memory.backends.memory import MemoryEngine
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.parts import Part, Window
from locus.memory.model.records import Stored
from locus.memory.store import CheckpointStore


class CountingEngine(MemoryEngine):
    """Counts the runs that it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[int] = []

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        raise AssertionError("all of a thread was read")

    async def read_part(self, thread_id: str, namespace: str, checkpoint_id: str | None, part: Part) -> Stored | None:
        stored = await super().read_part(thread_id, namespace, checkpoint_id, part)
        if stored is not None and isinstance(part, Window):
            self.given.append(sum(map(len, stored.runs.values())))
        return stored


async def test_a_window_reads_the_same_runs_at_100_and_at_10_000_turns() -> None:
    engine = CountingEngine()
    grower, state = Checkpointer(CheckpointStore(engine)), AgentState()
    for turn in range(1, 10_001):
        execution = ToolExecution(tool_name="look", tool_call_id=f"call-{turn}", result="found")
        state = state.with_messages([Message.user(f"q{turn}"), Message.assistant(f"a{turn}")])
        state = state.with_tool_execution(execution)
        await grower.save(state, "t")
        if turn in (100, 10_000):
            window = await Checkpointer(CheckpointStore(engine)).load("t", last=50)
            assert window is not None
            assert (len(window.messages), window.omitted["messages"]) == (50, 2 * turn - 50)
            assert window.messages == state.messages[-50:]
    early, late = engine.given
    assert early == late
