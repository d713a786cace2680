"""`python -m benchmarks.langgraph_bench`: graphs on PostgreSQL, `LocusSaver` against LangGraph's `AsyncPostgresSaver`.

Both are given the same checkpoints, in turns, by the same calls that LangGraph's loop makes with
`durability="sync"`: what a task wrote, and the checkpoint with the whole list of messages. Both use one server, with an
fsync for every commit. A turn is four messages, about 3.1 KB. The floor is the raw driver, which inserts the new
messages and commits. Then a real graph has a short conversation on each.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import psycopg
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

from benchmarks.costs import Figure, Section
from benchmarks.settings import Settings
from benchmarks.subjects.postgresql import PostgreSQLFloor, run_sql, schema_bytes, shared_server
from benchmarks.turns import turn
from locus.integrations.langgraph.saver import LocusSaver

LENGTHS = (10, 1_000)
ROUNDS = 20
GRAPH_TURNS = 60
FASTER, SMALLER, LISTS, FLAT = 50, 100, 10, 1.5

Saver = BaseCheckpointSaver[Any]


@dataclass
class Costs:
    """Medians, in milliseconds, by the number of turns; bytes at the end."""

    name: str
    put: dict[int, float] = field(default_factory=dict)
    writes: dict[int, float] = field(default_factory=dict)
    list_ten: float = 0.0
    load: float = 0.0
    stored: int = 0
    graph_turn: float = 0.0
    graph_stored: int = 0


@dataclass
class Comparison:
    ours: Costs
    theirs: Costs
    floor: dict[int, float] = field(default_factory=dict)
    """Milliseconds that the raw driver takes for one commit of what is new."""
    content: int = 0
    """Bytes of the messages."""


def turn_messages(number: int) -> list[AnyMessage]:
    texts = turn(number)
    call = {"id": texts.call_id, "name": "look_up", "args": {"place": texts.place, "limit": 5}}
    return [
        HumanMessage(texts.question, id=f"h{number}"),
        AIMessage(texts.thought, tool_calls=[call], id=f"a{number}"),
        ToolMessage(texts.result, tool_call_id=texts.call_id, name="look_up", id=f"t{number}"),
        AIMessage(texts.answer, id=f"b{number}"),
    ]


class Subject:
    """A saver in a schema of its own, and a conversation in it."""

    def __init__(self, name: str, saver: Saver, schema: str) -> None:
        self.costs = Costs(name)
        self.saver = saver
        self.schema = schema
        self._config: Any = {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}}
        self._latest: Any = self._config
        self._version: Any = None
        self.times: tuple[list[float], list[float]] = ([], [])

    async def take_turn(self, number: int, messages: Sequence[AnyMessage], fresh: Sequence[AnyMessage]) -> None:
        """What the loop saves after a step: the task's writes, and the checkpoint that they lead to."""
        self._version = self.saver.get_next_version(self._version, None)
        checkpoint = empty_checkpoint()
        checkpoint["id"] = str(uuid6(clock_seq=number))
        checkpoint["channel_values"] = {"messages": [*messages]}
        checkpoint["channel_versions"] = {"messages": self._version}
        started = perf_counter()
        if number:
            await self.saver.aput_writes(self._latest, [("messages", [*fresh])], str(uuid4()), "~__pregel_pull, agent")
        written = perf_counter()
        about: Any = {"source": "loop", "step": number, "parents": {}}
        self._latest = await self.saver.aput(self._latest, checkpoint, about, {"messages": self._version})
        self.times[0].append((written - started) * 1e3)
        self.times[1].append((perf_counter() - written) * 1e3)

    def note(self, length: int, rounds: int) -> None:
        self.costs.writes[length] = median(self.times[0][-rounds:])
        self.costs.put[length] = median(self.times[1][-rounds:])

    async def measure_reads(self, messages: int, times: int) -> None:
        async def list_ten() -> None:
            found = [
                one.checkpoint["channel_values"]["messages"] async for one in self.saver.alist(self._config, limit=10)
            ]
            if not found or len(found[0]) != messages:
                raise RuntimeError(f"{self.costs.name} lists something else than was saved")

        async def load() -> None:
            found = await self.saver.aget_tuple(self._config)
            if found is None or len(found.checkpoint["channel_values"]["messages"]) != messages:
                raise RuntimeError(f"{self.costs.name} loads something else than was saved")

        self.costs.list_ten = await timed(list_ten, times)
        self.costs.load = await timed(load, times)

    def stored(self) -> int:
        return schema_bytes(shared_server(), self.schema)


async def timed(work: Callable[[], Awaitable[None]], times: int) -> float:
    found = []
    for _ in range(times):
        started = perf_counter()
        await work()
        found.append((perf_counter() - started) * 1e3)
    return median(found)


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


async def converse(subject: Subject, turns: int) -> None:
    """A real graph, each turn of which is one call: three checkpoints, and two sets of writes."""
    number = 0
    builder = StateGraph(State).add_node("agent", lambda state: {"messages": turn_messages(number)[1:]})
    graph = builder.add_edge(START, "agent").compile(checkpointer=subject.saver)
    config: Any = {"configurable": {"thread_id": "graph"}}
    before = subject.stored()
    times = []
    for number in range(turns):
        started = perf_counter()
        await graph.ainvoke({"messages": turn_messages(number)[:1]}, config, durability="sync")
        times.append((perf_counter() - started) * 1e3)
    subject.costs.graph_turn = median(times[-10:])
    subject.costs.graph_stored = subject.stored() - before


@asynccontextmanager
async def subjects() -> AsyncIterator[list[Subject]]:
    url = shared_server().url
    names = [f"b{uuid4().hex[:10]}" for _ in range(2)]
    for name in names:
        run_sql(shared_server(), f"CREATE SCHEMA {name}")
    connection = await psycopg.AsyncConnection.connect(
        url,
        autocommit=True,
        prepare_threshold=0,
        row_factory=psycopg.rows.dict_row,
        options=f"-c search_path={names[1]}",
    )
    async with LocusSaver(url, schema_name=names[0]) as ours, connection:
        theirs = AsyncPostgresSaver(connection)
        await theirs.setup()
        yield [Subject("LocusSaver", ours, names[0]), Subject("AsyncPostgresSaver", theirs, names[1])]
    for name in names:
        run_sql(shared_server(), f"DROP SCHEMA {name} CASCADE")


async def compare(lengths: Sequence[int], rounds: int, graph_turns: int) -> Comparison:
    """In blocks, in turns: else each small save would wait for the flushes of the large one before it."""
    messages = [message for number in range(max(lengths)) for message in turn_messages(number)]
    floors: dict[int, float] = {}
    async with subjects() as both:
        for start in range(0, max(lengths), rounds):
            numbers = range(start, min(start + rounds, max(lengths)))
            for subject in both:
                for number in numbers:
                    so_far = 4 * (number + 1)
                    await subject.take_turn(number, messages[:so_far], messages[so_far - 4 : so_far])
                    if number + 1 in lengths:
                        subject.note(number + 1, min(rounds, (number + 1) // 2))
            for length in set(lengths) & {number + 1 for number in numbers}:
                floors[length] = await floor(messages[: 4 * rounds])
        for subject in both:
            await subject.measure_reads(len(messages), max(3, rounds // 4))
            subject.costs.stored = subject.stored()
            await converse(subject, graph_turns)
    return Comparison(both[0].costs, both[1].costs, floors, len(as_json(messages)))


def as_json(messages: Sequence[AnyMessage]) -> str:
    return f"[{','.join(message.model_dump_json(exclude_defaults=True) for message in messages)}]"


async def floor(messages: Sequence[AnyMessage]) -> float:
    table = f"f{uuid4().hex[:10]}"
    driver = PostgreSQLFloor(shared_server(), table)
    bodies = [as_json(messages[start : start + 4]) for start in range(0, len(messages), 4)]
    times = []
    for body in bodies:
        started = perf_counter()
        await driver.append("thread", body)
        times.append((perf_counter() - started) * 1e3)
    await driver.close()
    run_sql(shared_server(), f"DROP TABLE {table}")
    return median(times)


def langgraph_figures(found: Comparison) -> list[Figure]:
    ours, theirs = found.ours, found.theirs
    long, short = max(ours.put), min(ours.put)
    flat = ours.put[long] / ours.put[short]
    rows = [
        (f"a save, `AsyncPostgresSaver` ÷ ours, at {long:,} turns", theirs.put[long] / ours.put[long], FASTER),
        (f"stored bytes, `AsyncPostgresSaver` ÷ ours, at {long:,} turns", theirs.stored / ours.stored, SMALLER),
        (f"`list(limit=10)`, `AsyncPostgresSaver` ÷ ours, at {long:,} turns", theirs.list_ten / ours.list_ten, LISTS),
    ]
    return [
        *(Figure(what, "postgresql", f"≥ {limit}×", f"{ratio:.0f}×", ratio >= limit) for what, ratio, limit in rows),
        Figure(
            f"a save of ours, at {long:,} ÷ at {short:,} turns", "postgresql", f"≤ {FLAT}", f"{flat:.2f}", flat <= FLAT
        ),
    ]


def langgraph_table(found: Comparison) -> str:
    """The costs as a table in Markdown."""
    long, short = max(found.ours.put), min(found.ours.put)
    heading = (
        f"| saver | put at {short:,} → {long:,} turns, ms | put_writes, ms | stored, MB | list 10, ms | load, ms"
        " | a graph's turn, ms | its bytes, MB |"
    )
    rows = [
        f"| `{one.name}` | {one.put[short]:.2f} → {one.put[long]:.2f} | {one.writes[long]:.2f} | {one.stored / 1e6:.1f}"
        f" | {one.list_ten:.0f} | {one.load:.0f} | {one.graph_turn:.1f} | {one.graph_stored / 1e6:.1f} |"
        for one in (found.ours, found.theirs)
    ]
    notes = (
        f"The messages are {found.content / 1e6:.1f} MB. The raw driver takes {found.floor[short]:.2f} ms, and"
        f" {found.floor[long]:.2f} ms, for a commit of what is new."
    )
    return "\n".join([heading, "|---|---|---|---|---|---|---|---|", *rows, "", notes])


async def graph_section(settings: Settings) -> Section:
    found = await compare(settings.graph_lengths, settings.graph_rounds, settings.graph_turns)
    return Section("LangGraph on PostgreSQL", langgraph_figures(found), langgraph_table(found))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.langgraph_bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short threads: to see that it works, not to measure")
    quick = parser.parse_args().quick
    found = asyncio.run(compare((4, 12), 4, 3) if quick else compare(LENGTHS, ROUNDS, GRAPH_TURNS))
    print(langgraph_table(found))
    print()
    for figure in langgraph_figures(found):
        print(f"{'ok ' if figure.ok else 'NO '} {figure.what}: {figure.measured} (target {figure.target})")


if __name__ == "__main__":
    main()
