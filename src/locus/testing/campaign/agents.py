"""Agents among the clients. Their tools append lines to a file outside the store, so that effects can be counted.

The promise of docs/agents.md, with `unknown_outcome="skip"`: a call that is not idempotent has its effect at most once,
even if workers are killed, cancelled or taken over. An idempotent call may be made again until its result is recorded,
but not by a run that begins after that.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from locus.agent import Agent
from locus.agent.calls import current_call
from locus.core.messages import Message, Role, ToolCall
from locus.errors import ConfigurationError
from locus.models.base import ModelResponse, ToolSpec
from locus.testing.campaign.recorded import RecordedCheckpointer
from locus.tools import Tool, tool

AGENTS: Final = 4
"""How many threads the agents of all clients share."""
PACE: Final = 0.003
"""The most seconds that a tool works before its effect, and again after it."""
LEASE: Final = 1.0
"""How many seconds a worker may be silent."""

ROUNDS: Final = (("pay",), ("look", "pay", "write"), ("look",))
"""The tools that the model calls in each round, before it answers."""


class Errands:
    """A model that calls tools in rounds. It counts the rounds in the conversation, so that any worker can continue."""

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None = None, **_options: Any
    ) -> ModelResponse:
        last_request = max(at for at, message in enumerate(messages) if message.role is Role.USER)
        rounds = sum(message.role is Role.ASSISTANT for message in messages[last_request:])
        if rounds >= len(ROUNDS):
            return ModelResponse(message=Message.assistant(f"done: {messages[last_request].text}"))
        calls = [
            ToolCall(name=name, arguments={}, id=f"{messages[last_request].text} {rounds}.{at} {name}")
            for at, name in enumerate(ROUNDS[rounds])
        ]
        return ModelResponse(message=Message.assistant(None, calls))


def _tools(effects: Path, rng: random.Random, client: str, begun: int) -> list[Tool[..., Any]]:
    """Make the tools of one run."""

    def leave_a_line(*, repeatable: bool) -> None:
        context = current_call.get()
        made = {"thread": context.thread_id, "call": context.call.id, "repeatable": repeatable}
        line = {**made, "client": client, "begun": begun, "at": time.monotonic_ns()}
        descriptor = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
        finally:
            os.close(descriptor)

    async def work(*, repeatable: bool) -> None:
        await asyncio.sleep(rng.uniform(0, PACE))
        leave_a_line(repeatable=repeatable)
        await asyncio.sleep(rng.uniform(0, PACE))

    @tool
    async def pay() -> str:
        """Must not be repeated."""
        await work(repeatable=False)
        return "paid"

    @tool
    def write() -> str:
        """Must not be repeated; it blocks its thread."""
        time.sleep(rng.uniform(0, PACE))
        leave_a_line(repeatable=False)
        return "written"

    @tool(idempotent=True)
    async def look() -> str:
        """May be repeated."""
        await work(repeatable=True)
        return "seen"

    return [pay, write, look]


class AgentWorker:
    """Begins runs, and continues those that other workers left."""

    def __init__(self, checkpointer: RecordedCheckpointer, rng: random.Random, prefix: str, effects: Path) -> None:
        self._checkpointer = checkpointer
        self._rng = rng
        self._prefix = prefix
        self._effects = effects

    async def step(self) -> None:
        thread_id = f"{self._prefix}agent-{self._rng.randrange(AGENTS)}"
        agent = Agent(
            model=Errands(),
            tools=_tools(self._effects, self._rng, self._checkpointer.log.client, time.monotonic_ns()),
            checkpointer=self._checkpointer,
            # Most of them take the thread over; the others wait for the end of the lease, or are refused.
            on_conflict="take_over" if self._rng.random() < 0.7 else "reject",
            lease_seconds=LEASE,
            unknown_outcome="skip",
        )
        if self._rng.random() < 0.6 and await self._checkpointer.exists(thread_id):
            # The thread may have been vacuumed meanwhile, or its first worker was killed before its first save.
            with suppress(ConfigurationError):
                await agent.resume_invoke(thread_id)
        else:
            await agent.invoke(f"errand {self._checkpointer.new_name()}", thread_id)
