"""What the agent's loop itself costs: an iteration, without the model, the tools and the store.

`python -m benchmarks.agent_loop`. A turn is two iterations: the model asks for a tool, and then answers. The time
that is spent inside the model, the tool and the checkpointer is taken off the time of the whole run; what is left,
divided by two, is the loop: states, events, tasks, and what every run begins with. Nothing here ever waits, so the
time is that of the processor, and other programs on the machine don't count.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any

from benchmarks.content import turn_messages
from benchmarks.costs import Figure, LoopCost, Section
from benchmarks.settings import Settings
from locus.agent import Agent
from locus.core.messages import Message, ToolCall
from locus.core.state import AgentState
from locus.memory.backends import MemoryCheckpointer
from locus.models.base import ModelResponse, ToolSpec
from locus.tools import Tool, tool

LENGTHS = (10, 1_000)
ROUNDS = 60
LIMIT_MS = 1.0
ITERATIONS_OF_A_TURN = 2


class Clock:
    """Adds up the time that is not the loop's."""

    def __init__(self) -> None:
        self.spent = {"model": 0.0, "tool": 0.0, "store": 0.0}
        self._started = 0.0

    def start(self) -> None:
        self._started = time.thread_time()

    def stop(self, what: str) -> None:
        self.spent[what] += time.thread_time() - self._started


class TimedStore(MemoryCheckpointer):
    """The memory store, which never waits: so the time between two lines is the time of that work alone."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    async def save(self, *args: Any, **options: Any) -> str:
        self._clock.start()
        saved = await super().save(*args, **options)
        self._clock.stop("store")
        return saved

    async def load(self, *args: Any, **options: Any) -> AgentState | None:
        self._clock.start()
        state = await super().load(*args, **options)
        self._clock.stop("store")
        return state

    async def history(self, *args: Any, **options: Any) -> list[Any]:
        self._clock.start()
        entries = await super().history(*args, **options)
        self._clock.stop("store")
        return entries

    async def put_writes(self, *args: Any, **options: Any) -> None:
        self._clock.start()
        await super().put_writes(*args, **options)
        self._clock.stop("store")


class TimedModel:
    """Asks for the tool once, and then answers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._number = 0

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None = None, **_options: Any
    ) -> ModelResponse:
        self._clock.start()
        self._number += 1
        if self._number % ITERATIONS_OF_A_TURN:
            message = Message.assistant("I look it up.", [ToolCall(name="look_up", arguments={"place": self._number})])
        else:
            message = Message.assistant(f"Answer {self._number}.")
        response = ModelResponse(message=message, usage={"prompt_tokens": 100, "completion_tokens": 10})
        self._clock.stop("model")
        return response


def timed_tool(clock: Clock) -> Tool[..., Any]:
    @tool
    async def look_up(place: int) -> str:
        """Look something up."""
        clock.start()
        result = f"Result {place}."
        clock.stop("tool")
        return result

    return look_up


async def measure_length(length: int, rounds: int) -> LoopCost:
    """The cost in a thread of so many turns, of four messages each."""
    clock = Clock()
    store = TimedStore(clock)
    messages = [message for number in range(length) for message in turn_messages(number)]
    await store.save(AgentState().with_messages(messages), "thread", metadata={"step": "answer", "status": "done"})
    agent = Agent(model=TimedModel(clock), tools=[timed_tool(clock)], checkpointer=store, reflexion=True)
    loop_ms: list[float] = []
    store_ms: list[float] = []
    for number in range(rounds):
        clock.spent = dict.fromkeys(clock.spent, 0.0)
        result = None  # a state of thousands of messages takes its time to go, and that is no part of the next run
        started = time.thread_time()
        result = await agent.invoke(f"Question {number}", "thread")
        elapsed = time.thread_time() - started
        assert result.metrics.iterations == ITERATIONS_OF_A_TURN
        loop_ms.append((elapsed - sum(clock.spent.values())) * 1_000 / ITERATIONS_OF_A_TURN)
        store_ms.append(clock.spent["store"] * 1_000 / ITERATIONS_OF_A_TURN)
    return LoopCost(length, median(loop_ms), quantiles(loop_ms, n=10)[-1], median(store_ms))


async def measure_loop(lengths: Sequence[int] = LENGTHS, rounds: int = ROUNDS) -> list[LoopCost]:
    await measure_length(lengths[0], min(rounds, 10))  # the first run pays for imports and caches
    return [await measure_length(length, rounds) for length in lengths]


def loop_figures(costs: Sequence[LoopCost]) -> list[Figure]:
    """What was promised: at most a millisecond, however long the thread is."""
    if not costs:
        return []
    shown = ", ".join(f"{cost.length:,} turns {cost.iteration_ms:.2f} ms" for cost in costs)
    reached = all(cost.iteration_ms <= LIMIT_MS for cost in costs)
    return [Figure("the agent's loop, per iteration", "agent", f"≤ {LIMIT_MS:g} ms", shown, reached)]


def loop_table(costs: Sequence[LoopCost]) -> str:
    """The costs as a table in Markdown."""
    rows = [
        f"| {cost.length:,} | {cost.iteration_ms:.3f} | {cost.slow_ms:.3f} | {cost.store_ms:.3f} |" for cost in costs
    ]
    heading = "| turns in the thread | loop, ms per iteration | 90th percentile | the store beside it |"
    return "\n".join([heading, "|---|---|---|---|", *rows])


async def loop_section(settings: Settings) -> Section:
    costs = await measure_loop(settings.loop_lengths, settings.loop_rounds)
    meant = "Processor time of one iteration beyond the model, the tools and the store, on the memory store."
    return Section("The agent's loop", loop_figures(costs), f"{loop_table(costs)}\n\n{meant}")


def main() -> None:
    costs = asyncio.run(measure_loop())
    print(loop_table(costs))
    (figure,) = loop_figures(costs)
    print(f"\n{figure.what}: {figure.measured}; target {figure.target}: {'reached' if figure.ok else 'missed'}")


if __name__ == "__main__":
    main()
