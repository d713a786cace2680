"""What each operation on an object store costs in requests: `python -m benchmarks.object_requests [turns]`.

Counted on objects in memory, because requests are the same on every cloud.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field

from benchmarks.costs import Section
from benchmarks.settings import Settings
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends.objects.backend import ObjectCheckpointStore
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.checkpointer import Checkpointer
from tests.backends.objects.in_memory import MemoryObjectStore

KINDS = ("put", "get", "list", "delete", "kilobytes")


def turn_of(number: int) -> list[Message]:
    """Four messages, about 3.1 KB."""
    return [Message.user(f"{number}.{part} " + "word " * 150) for part in range(4)]


@dataclass
class Trips:
    """Counts requests, what objects they brought, and how many had to wait for another one: round trips."""

    stores: list[MemoryObjectStore] = field(default_factory=list)
    rounds: int = 0
    _under_way: int = 0

    async def before(self, _kind: str, _key: str) -> None:
        self.rounds += self._under_way == 0
        self._under_way += 1
        for _ in range(50):  # so that all that can be under way at the same time is
            await asyncio.sleep(0)

    async def after(self, _kind: str, _key: str) -> None:
        self._under_way -= 1

    def take(self) -> tuple[Counter[str], int]:
        counts = sum((store.requests for store in self.stores), Counter[str]())
        counts["kilobytes"] = sum(store.received for store in self.stores) // 1_000
        rounds, self.rounds = self.rounds, 0
        for store in self.stores:
            store.requests.clear()
            store.received = 0
        return counts, rounds


@dataclass
class Costs:
    """The requests and round trips of each operation, and the bytes."""

    operations: dict[str, tuple[Counter[str], int]] = field(default_factory=dict)
    content: int = 0
    stored: int = 0


async def measured(turns: int) -> Costs:
    """Save a growing conversation, and do everything else once."""
    objects, trips, costs = MemoryObjectStore(), Trips(), Costs()

    def opened() -> Checkpointer:
        store = MemoryObjectStore(before=trips.before, after=trips.after, shared=objects)
        trips.stores.append(store)
        return Checkpointer(ObjectCheckpointStore(ObjectEngine(store)))

    async def count(name: str, work: Awaitable[object]) -> None:
        trips.take()
        await work
        costs.operations[name] = trips.take()

    warm, state = opened(), AgentState()
    trips.take()
    for number in range(turns):
        state = state.with_messages(turn_of(number))
        await warm.save(state, "thread")
    costs.operations[f"{turns} saves"] = trips.take()
    costs.content = sum(len(message.model_dump_json()) for message in state.messages)
    costs.stored = sum(len(body) for body, _ in objects.objects.values())
    middle = (await warm.list_checkpoints("thread", limit=turns))[turns // 2]
    await count("load the latest, cold", opened().load("thread"))
    await count("load the latest, warm", warm.load("thread"))
    await count("load one from the middle, cold", opened().load("thread", middle))
    await count("the last 50 messages, cold", opened().read_items("thread", start=-50, count=50))
    await count("the last 50 messages, warm", warm.read_items("thread", start=-50, count=50))
    await count("50 messages from the middle, cold", opened().read_items("thread", start=turns, count=50))
    await count("history, cold", opened().history("thread", 10))
    await count("history, warm", warm.history("thread", 10))
    await count("list_threads", opened().list_threads())
    await count("put_writes, warm", warm.put_writes("thread", middle, "task", [("channel", 1)]))
    await count("delete a checkpoint, warm", warm.delete("thread", middle))
    await count("copy_thread, cold", opened().copy_thread("thread", "copy"))
    await count("delete a thread, warm", warm.delete("thread"))
    await count("the first save of a thread", opened().save(AgentState(), "new"))
    return costs


def as_table(costs: Costs) -> str:
    lines = ["| operation | PUT | GET | LIST | DELETE | KB received | round trips |", "|---|---|---|---|---|---|---|"]
    for name, (counts, rounds) in costs.operations.items():
        lines.append(f"| {name} | {' | '.join(str(counts[kind]) for kind in KINDS)} | {rounds} |")
    return "\n".join(lines)


async def request_section(settings: Settings) -> Section:
    costs = await measured(settings.object_turns)
    return Section(f"Requests to an object store, in a thread of {settings.object_turns:,} turns", [], as_table(costs))


def main() -> None:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    costs = asyncio.run(measured(turns))
    print(as_table(costs))
    print(f"\ncontent {costs.content} bytes, stored {costs.stored}: {costs.stored / costs.content:.2f} times as many")


if __name__ == "__main__":
    main()
