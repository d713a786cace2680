"""The agent's process in the demo: it says one message after another, and saves after each.

It reports on stdout, in JSON lines, and only after `save` has returned.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

from examples.trip import about, next_step
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends import sqlite_checkpointer

THINKING = 0.06
"""Seconds that stand for the model's answer."""


def say(event: str, **facts: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


def shown(message: Message) -> str:
    """A message in one line."""
    calls = [f"{call.name}({json.dumps(dict(call.arguments), ensure_ascii=False)})" for call in message.tool_calls]
    return message.text or " ".join(calls)


async def talk(path: str, thread_id: str) -> None:
    """Take the thread up wherever it is, and go on to the end."""
    async with sqlite_checkpointer(path) as checkpointer:
        state = await checkpointer.load(thread_id)
        newest = await checkpointer.list_checkpoints(thread_id, limit=1)
        last = shown(state.messages[-1]) if state and state.messages else None
        count = len(state.messages) if state else 0
        say("found", pid=os.getpid(), messages=count, checkpoint_id=newest[0] if newest else None, last=last)
        state = state or AgentState(agent_id="travel-agent")
        while (step := next_step(state)) is not None:
            await asyncio.sleep(THINKING)
            message = step()
            state = state.with_message(message)
            started = time.perf_counter()
            checkpoint_id = await checkpointer.save(state, thread_id, metadata=about(state))
            say(
                "saved",
                checkpoint_id=checkpoint_id,
                messages=len(state.messages),
                role=message.role.value,
                text=shown(message),
                ms=(time.perf_counter() - started) * 1e3,
            )
