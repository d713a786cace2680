"""What a turn costs a worker that knows nothing yet, and what a load costs one that knows all but the last turn.

Every list of a state grows here, not only its messages: with one tool call in a turn, most runs belong to the others.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter

from benchmarks.content import turn_messages, without_lineage
from benchmarks.costs import TurnCost
from benchmarks.settings import Settings
from benchmarks.subjects.base import Subject
from locus.core.state import AgentState, ToolExecution
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.plan import item_text
from locus.memory.storage import StorageBackend
from locus.memory.store import CheckpointStore

WINDOW = 50
THREAD = "thread"


def next_turn(state: AgentState, number: int) -> AgentState:
    """The state after one more turn: its messages, the execution of its tool, and the agent's confidence."""
    messages = turn_messages(number)
    call, result = messages[1].tool_calls[0], messages[2].text
    execution = ToolExecution(tool_name=call.name, tool_call_id=call.id, arguments=call.arguments, result=result[:200])
    return state.with_messages(messages).with_tool_execution(execution).with_confidence(0.5 + number % 50 / 100)


class TurnLane:
    """One thread of one length, and the handle that has grown it. Each measurement makes it a turn longer."""

    def __init__(self, kind: type[Subject], length: int, folder: Path) -> None:
        self.length = length
        self.subject = kind(folder)
        self.handle = self.subject.open()
        self.state = AgentState(agent_id="bench")
        self.turns = 0
        self.times: dict[str, list[float]] = {}

    async def grow(self) -> None:
        await self.handle.exists("nothing-yet")
        self.subject.warm_up()
        while self.turns < self.length:
            await self.append()

    async def append(self) -> None:
        """Another worker's turn, which is not timed."""
        self.turns += 1
        self.state = next_turn(self.state, self.turns)
        await self.handle.save(self.state, THREAD)

    def fresh(self) -> Checkpointer:
        """A new handle on the open pool or file. It remembers nothing."""
        return Checkpointer(CheckpointStore(self.handle.store.engine))

    async def time(self, name: str, call: Callable[[], Awaitable[object]]) -> None:
        started = perf_counter()
        await call()
        self.times.setdefault(name, []).append((perf_counter() - started) * 1e3)

    async def stateless_turn(self) -> None:
        number = self.turns + 1

        async def turn() -> None:
            worker = self.fresh()
            state = await worker.load(THREAD, last=WINDOW)
            if state is None:
                raise RuntimeError("the thread is gone")
            await worker.save(next_turn(state, number), THREAD)

        await self.time("turn_ms", turn)
        self.turns = number
        await self._catch_up()

    async def _catch_up(self) -> None:
        loaded = await self.handle.load(THREAD)
        if loaded is None or len(loaded.messages) != 4 * self.turns:
            raise RuntimeError(f"{self.subject.name}: a turn of a window has lost something")
        self.state = loaded

    async def warm_load(self) -> None:
        reader = self.fresh()
        await reader.load(THREAD)
        await self.append()
        await self.time("warm_load_ms", lambda: reader.load(THREAD))

    async def warm_dict_load(self) -> None:
        reader = StorageBackend(CheckpointStore(self.handle.store.engine))
        found = await reader.load(THREAD)
        text = json.dumps(found)
        await self.append()
        await self.time("warm_dict_load_ms", lambda: reader.load(THREAD))
        await self.time("parse_ms", _async(lambda: json.loads(text)))

    async def cold_load(self) -> None:
        text = self.state.model_dump_json()
        await self.time("cold_load_ms", lambda: self.fresh().load(THREAD))
        await self.time("validate_ms", _async(lambda: AgentState.model_validate_json(text)))

    async def cold_save(self) -> None:
        self.turns += 1
        state = without_lineage(next_turn(self.state, self.turns))
        await self.time("cold_save_ms", lambda: self.fresh().save(state, THREAD))
        await self.time("encode_ms", _async(lambda: _encoded_one_by_one(state)))
        await self._catch_up()

    def cost(self) -> TurnCost:
        return TurnCost(self.subject.name, self.length, **{name: median(found) for name, found in self.times.items()})

    async def close(self) -> None:
        await self.handle.close()
        await self.subject.remove()


def _async(call: Callable[[], object]) -> Callable[[], Awaitable[object]]:
    async def run() -> object:
        return call()

    return run


def _encoded_one_by_one(state: AgentState) -> int:
    """What a save of a state that nobody knows cannot do without."""
    lists = (state.messages, state.tool_executions, state.tool_history, state.confidence_history)
    return sum(len(item_text(item, ())) for items in lists for item in items)


async def measure_turns(kind: type[Subject], settings: Settings, folder: Path) -> list[TurnCost]:
    """All lengths in turn, each kind of call in ever another order."""
    lengths = [length for length in settings.turn_lengths if length <= kind.longest_thread]
    lanes = [TurnLane(kind, length, folder / str(length)) for length in lengths]
    try:
        for lane in lanes:
            await lane.grow()
        steps = [
            step
            for lane in lanes
            for step in (
                *[lane.stateless_turn, lane.warm_load] * settings.quick_calls,
                *(lane.warm_dict_load, lane.cold_load, lane.cold_save),
            )
        ]
        order = Random(1)
        for _ in range(settings.turn_rounds):
            for step in order.sample(steps, len(steps)):
                await step()
        return [lane.cost() for lane in lanes]
    finally:
        for lane in lanes:
            await lane.close()
        shutil.rmtree(folder, ignore_errors=True)
