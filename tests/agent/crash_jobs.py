"""An agent in a process of its own, with slow tools that leave lines in a file. It says what it begins and ends:

{"begin": "save", "of": "calls"}    {"end": "save", "of": "calls"}       a checkpoint
{"begin": "record", "of": "c1"}     {"end": "record", "of": "c1"}        that a call was begun, or its result
{"begin": "tool", "of": "c1"}       {"end": "tool", "of": "c1"}          a tool at work
{"complete": "c1", "recovered": false}                                   the agent's own word for it
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from locus.agent import Agent
from locus.agent.calls import current_call
from locus.agent.config import UnknownOutcome
from locus.agent.sessions import STARTED
from locus.core.events import Event, ToolCompleteEvent
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.checkpointer import Checkpointer
from locus.models.base import ModelResponse
from locus.testing.processes.jobs import opened
from locus.testing.processes.workers import Channel
from locus.tools import Tool, tool
from tests.agent.support import Following, a_call, asks, results_told, shape

PACE = 0.002
"""Seconds that a tool works before its effect, and again after it."""

STEPS = (
    asks(a_call("pay", "c1", amount=1)),
    asks(a_call("look", "c2", at="x"), a_call("pay", "c3", amount=3), a_call("write", "c4", line="y")),
    asks(a_call("look", "c5", at="z"), a_call("look", "c6", at="w")),
    asks(a_call("write", "c7", line="u"), a_call("pay", "c8", amount=8)),
    results_told,
)
REPEATABLE = frozenset({"c2", "c5", "c6"})


class Talk:
    """Says things in whole lines, from any thread."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lock = threading.Lock()

    def __call__(self, **facts: Any) -> None:
        with self._lock:
            self._channel.send(**facts)


class Told(Checkpointer):
    """A handle that says when it begins and ends to write."""

    def __init__(self, store: Checkpointer, say: Talk) -> None:
        super().__init__(store.store)
        self._say = say

    async def save(self, state: AgentState, thread_id: str, *args: Any, **options: Any) -> str:
        step = options["metadata"]["step"]
        self._say(begin="save", of=step)
        saved = await super().save(state, thread_id, *args, **options)
        self._say(end="save", of=step)
        return saved

    async def put_writes(
        self, thread_id: str, checkpoint_id: str, task_id: str, writes: Sequence[tuple[str, Any]], **options: Any
    ) -> None:
        self._say(begin="record", of=task_id, started=writes[0][0] == STARTED)
        await super().put_writes(thread_id, checkpoint_id, task_id, writes, **options)
        self._say(end="record", of=task_id)


class Thoughtful(Following):
    """A model that takes its time."""

    async def complete(self, *args: Any, **options: Any) -> ModelResponse:
        await asyncio.sleep(PACE)
        return await super().complete(*args, **options)


def slow_tools(path: Path, attempt: int, say: Talk) -> list[Tool[..., Any]]:
    """Tools whose effect is a line in a file, on the disk before they go on."""

    def begin() -> str:
        call_id = current_call.get().call.id
        say(begin="tool", of=call_id)
        return call_id

    def leave_a_line(call_id: str) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, f"{call_id} {attempt}\n".encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    async def work_slowly() -> None:
        call_id = begin()
        await asyncio.sleep(PACE)
        leave_a_line(call_id)
        await asyncio.sleep(PACE)
        say(end="tool", of=call_id)

    @tool
    async def pay(amount: int) -> str:
        """Pay. Must not be repeated."""
        await work_slowly()
        return f"paid {amount}"

    @tool(idempotent=True)
    async def look(at: str) -> str:
        """Look at something."""
        await work_slowly()
        return f"saw {at}"

    @tool
    def write(line: str) -> str:
        """Write a line. Must not be repeated; it blocks its thread."""
        call_id = begin()
        time.sleep(PACE)
        leave_a_line(call_id)
        time.sleep(PACE)
        say(end="tool", of=call_id)
        return f"wrote {line}"

    return [pay, look, write]


async def work(
    channel: Channel, url: str, thread_id: str, path: str, attempt: int, policy: UnknownOutcome, decision: str | None
) -> dict[str, Any]:
    """Begin the run, or go on with it, to its end. Returns how it ended."""
    say = Talk(channel)

    def listen(event: Event) -> None:
        if isinstance(event, ToolCompleteEvent):
            say(complete=event.call.id, recovered=event.recovered)

    say(up=True)
    async with opened(url) as store:
        agent = Agent(
            model=Thoughtful(*STEPS),
            tools=slow_tools(Path(path), attempt, say),
            checkpointer=Told(store, say),
            unknown_outcome=policy,
            on_conflict="take_over",  # the test knows that the process before this one is gone
            lease_seconds=600,
        )
        if await store.exists(thread_id):
            result = await agent.resume_invoke(thread_id, decision, on_event=listen)
        else:
            result = await agent.invoke("Do it all.", thread_id, on_event=listen)
    asked = [call.id for call in result.interrupt.calls] if result.interrupt is not None else []
    return {"answer": result.message, "asked": asked, "messages": as_told(result.state.messages)}


def as_told(messages: Sequence[Message]) -> list[list[Any]]:
    """The conversation as JSON, without what differs from run to run."""
    return [[who, text, call_id, list(ids)] for who, text, call_id, ids in shape(messages)]
