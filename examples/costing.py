"""The last part of the demo: a thousand turns, and what they cost."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from examples.trip import TURNS
from locus.core.messages import Message, ToolCall, ToolResult
from locus.core.state import AgentState
from locus.memory.backends import sqlite_checkpointer
from locus.memory.checkpointer import BaseCheckpointer

EARLY = 10
"""The turn that the last one is compared with."""
FRESH = 4
"""How many fresh threads there are for that; each is saved ten times around that turn."""
_WORDS = " ".join(f"{turn.question} {turn.answer}" for turn in TURNS).split()


@dataclass(frozen=True)
class Cost:
    """What was measured, and `whole_states_bytes`, which is calculated."""

    turns: int
    early_ms: float
    late_ms: float
    content_bytes: int
    disk_bytes: int
    whole_states_bytes: int
    """What a saver that writes the whole state at every turn has to write."""
    load_ms: float


def turn_messages(number: int) -> list[Message]:
    """Four messages, about 3.1 KB."""
    words = random.Random(number)

    def text(count: int) -> str:
        return " ".join(words.choices(_WORDS, k=count))

    call_id = f"call_{number}"
    return [
        Message.user(text(70)),
        Message.assistant(text(40), tool_calls=[ToolCall(id=call_id, name="look_up", arguments={"for": text(4)})]),
        Message.tool(ToolResult(tool_call_id=call_id, name="look_up", content=text(225))),
        Message.assistant(text(195)),
    ]


class Talk:
    """A conversation that is saved turn by turn."""

    def __init__(self, checkpointer: BaseCheckpointer, thread_id: str) -> None:
        self._checkpointer = checkpointer
        self._thread_id = thread_id
        self.state = AgentState(agent_id="long-talk")
        self.turns = self.content_bytes = self.whole_states_bytes = 0

    async def turn(self) -> float:
        """Say and save one turn; return the milliseconds that the save took."""
        self.turns += 1
        messages = turn_messages(self.turns)
        self.state = self.state.with_messages(messages)
        self.content_bytes += sum(len(one.model_dump_json(exclude_defaults=True).encode()) for one in messages)
        self.whole_states_bytes += self.content_bytes
        started = time.perf_counter()
        await self._checkpointer.save(self.state, self._thread_id)
        return (time.perf_counter() - started) * 1e3

    async def load(self) -> float:
        started = time.perf_counter()
        loaded = await self._checkpointer.load(self._thread_id)
        took = (time.perf_counter() - started) * 1e3
        if loaded != self.state:
            raise RuntimeError("what was loaded is not what was saved")
        return took


async def run(path: Path, turns: int, advance: Callable[[], None]) -> Cost:
    """Save a long thread and look at the size of its file; then compare its next saves with those of fresh ones."""
    async with sqlite_checkpointer(path) as checkpointer:
        long = Talk(checkpointer, "long")
        for _ in range(turns):
            await long.turn()
            advance()
        load_ms = await long.load()
    content, whole = long.content_bytes, long.whole_states_bytes
    disk = sum(part.stat().st_size for part in path.parent.glob(f"{path.name}*"))
    async with sqlite_checkpointer(path) as checkpointer:
        early, late = await compare(long, [Talk(checkpointer, f"fresh-{number}") for number in range(FRESH)])
    return Cost(turns, early, late, content, disk, whole, load_ms)


async def compare(long: Talk, fresh: list[Talk]) -> tuple[float, float]:
    """The median save of fresh threads around turn 10, and of the long one; in turn, so that noise meets both."""
    early: list[float] = []
    late: list[float] = []
    for talk in fresh:
        for _ in range(EARLY - 5):
            await talk.turn()
        for number in range(10):
            for one, times in ((talk, early), (long, late))[:: -1 if number % 2 else 1]:
                times.append(await one.turn())
    return median(early), median(late)
