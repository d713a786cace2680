"""What a turn costs a worker that knows nothing yet, and what a load costs one that knows all but the last turn."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle
from random import Random
from statistics import median

from benchmarks.clock import freeze, timed
from benchmarks.content import after, turn_content, without_lineage
from benchmarks.costs import TurnCost
from benchmarks.sampling import Lane
from benchmarks.settings import Settings
from benchmarks.workloads import MESSAGES, Conversation
from locus.core.state import LISTS, AgentState
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.states import item_text
from locus.memory.storage import StorageBackend
from locus.memory.store import CheckpointStore

WINDOW = 50


class TurnThread:
    """One thread, its writer, and two readers that follow it: one of states, and one of dicts."""

    def __init__(self, talk: Conversation) -> None:
        self.talk = talk
        self.states = self.fresh()
        self.dicts = StorageBackend(CheckpointStore(talk.handle.store.engine))
        self.text = ""
        """What `dicts` loads, without the newest turns."""

    def fresh(self) -> Checkpointer:
        """A new handle on the open pool or file. It remembers nothing."""
        return Checkpointer(CheckpointStore(self.talk.handle.store.engine))

    async def open(self) -> None:
        await self.states.load(self.talk.thread_id)
        self.text = json.dumps(await self.dicts.load(self.talk.thread_id), ensure_ascii=False, separators=(",", ":"))

    async def append(self) -> None:
        """Another worker's turn, which is not timed."""
        talk = self.talk
        talk.state = after(talk.state, talk.next_turn())
        talk.ids.append(await talk.handle.save(talk.state, talk.thread_id))

    async def catch_up(self) -> None:
        """Let the writer have what a worker has saved."""
        talk = self.talk
        loaded = await talk.handle.load(talk.thread_id)
        if loaded is None or len(loaded.messages) != MESSAGES * talk.turns:
            raise RuntimeError(f"{talk.subject.name}: a turn of a window has lost something")
        talk.state = loaded


class TurnLane:
    """Threads of one length. Each measurement makes one of them a turn longer, so short ones take turns."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.threads = [TurnThread(talk) for talk in lane.talks]
        self._next = cycle(self.threads)
        self._times: dict[str, list[float]] = {}

    async def time(self, name: str, call: Callable[[], Awaitable[object]]) -> None:
        self._times.setdefault(name, []).append(await timed(call))

    async def stateless_turn(self) -> None:
        thread = next(self._next)
        talk = thread.talk
        content = talk.next_turn()

        async def turn() -> None:
            worker = thread.fresh()
            state = await worker.load(talk.thread_id, last=WINDOW)
            if state is None:
                raise RuntimeError("the thread is gone")
            await worker.save(after(state, content), talk.thread_id)

        await self.time("turn_ms", turn)
        await thread.catch_up()

    async def warm_load(self) -> None:
        thread = next(self._next)
        await thread.states.load(thread.talk.thread_id)
        await thread.append()
        await self.time("warm_load_ms", lambda: thread.states.load(thread.talk.thread_id))

    async def warm_dict_load(self) -> None:
        """The load and its floor, which parses a text that is at most some turns shorter, one after the other."""
        thread = next(self._next)
        await thread.dicts.load(thread.talk.thread_id)
        await thread.append()
        await self.time("warm_dict_load_ms", lambda: thread.dicts.load(thread.talk.thread_id))
        await self.time("parse_ms", _async(lambda: json.loads(thread.text)))

    async def cold_load(self) -> None:
        thread = next(self._next)
        text = thread.talk.state.model_dump_json()
        await self.time("cold_load_ms", lambda: thread.fresh().load(thread.talk.thread_id))
        await self.time("validate_ms", _async(lambda: AgentState.model_validate_json(text)))

    async def cold_save(self) -> None:
        thread = next(self._next)
        talk = thread.talk
        content = turn_content(talk.turns + 1, talk.number)
        state = after(without_lineage(talk.state), content)
        await self.time("cold_save_ms", lambda: thread.fresh().save(state, talk.thread_id))
        await self.time("encode_ms", _async(lambda: _encoded_one_by_one(state)))
        talk.turns += 1
        await thread.catch_up()

    def cost(self) -> TurnCost:
        medians = {name: median(found) for name, found in self._times.items()}
        return TurnCost(self._lane.subject.name, self._lane.length, **medians)


def _async(call: Callable[[], object]) -> Callable[[], Awaitable[object]]:
    async def run() -> object:
        return call()

    return run


def _encoded_one_by_one(state: AgentState) -> int:
    """What a save of a state that nobody knows cannot do without."""
    return sum(len(item_text(item, ())) for name in LISTS for item in getattr(state, name))


async def measure_turns(lanes: Sequence[Lane], settings: Settings) -> list[TurnCost]:
    """All lengths in turn, each kind of call in ever another order."""
    found = [TurnLane(lane) for lane in lanes]
    for lane in found:
        for thread in lane.threads:
            await thread.open()
    steps = [
        step
        for lane in found
        for step in (
            *[lane.stateless_turn, lane.warm_load] * settings.quick_calls,
            *[lane.warm_dict_load] * settings.dict_calls,
            *(lane.cold_load, lane.cold_save),
        )
    ]
    order = Random(1)
    freeze()
    for _ in range(settings.turn_rounds):
        for step in order.sample(steps, len(steps)):
            await step()
    return [lane.cost() for lane in found]
