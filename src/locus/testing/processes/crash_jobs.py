"""Jobs that a test kills. They send a message before each step, and another when it is done.

A message holds only what the test cannot know otherwise: ids and digests. A step is one of

    {"op": "save", "thread": "t", "id": "c1" or null, "digest": "…", "word": "w17"}
    {"op": "delete", "thread": "t", "id": "c1"}
    {"op": "writes", "thread": "t", "id": "c1", "task": "t0", "writes": [["channel", "value"]]}
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.checkpointer import Checkpointer
from locus.testing.processes.jobs import digest, opened
from locus.testing.processes.lines import LineTrace, Position
from locus.testing.processes.workers import Channel

LONGEST = 40
"""The most messages in a state. Beyond that the oldest are dropped, so that each step stays short."""


class Saver:
    """Does steps on one thread, and sends messages about them for a `Ledger`."""

    def __init__(self, talk: Channel, checkpointer: Checkpointer, thread_id: str, seed: int) -> None:
        self._talk = talk
        self._checkpointer = checkpointer
        self._thread_id = thread_id
        self._random = random.Random(seed)
        self._seed = seed
        self._steps = 0
        self._ids: list[str] = []
        self._state = AgentState()

    async def resume(self) -> None:
        """Load the thread, to continue from its present state."""
        self._ids = [entry.checkpoint_id for entry in await self._checkpointer.history(self._thread_id, limit=None)]
        self._state = await self._checkpointer.load(self._thread_id) or AgentState()

    async def step(self, name: str) -> None:
        steps = {
            "first": self.append,
            "append": self.append,
            "edit": self.edit,
            "trim": self.trim,
            "fork": self.fork,
            "replace": self.replace,
            "delete": self.delete,
            "write": self.write,
        }
        await steps[name]()

    async def any_step(self, appends: int) -> None:
        """Do a random step. An append is `appends` times as likely as each other kind."""
        name = self._random.choice(["append"] * appends + ["edit", "trim", "fork", "replace", "delete", "write"])
        await self.step(name if self._ids else "first")

    async def append(self) -> None:
        word = self._word()
        state = self._state.with_message(Message.user(f"{word} {'and so on ' * self._random.randrange(20)}"))
        await self._save(state.with_metadata("plan", word * self._random.choice([1, 300])), word)

    async def edit(self) -> None:
        """Change a message, the last one or any."""
        word = self._word()
        messages = self._state.messages
        at = self._random.choice([len(messages) - 1, self._random.randrange(len(messages))]) if messages else 0
        changed = (*messages[:at], Message.assistant(f"{word} edited"), *messages[at + 1 :])
        await self._save(self._state.with_messages_replaced(changed), word)

    async def trim(self) -> None:
        """Drop the first half of the messages."""
        word = self._word()
        remaining = self._state.messages[len(self._state.messages) // 2 :]
        await self._save(self._state.with_messages_replaced(remaining).with_error(word), word)

    async def fork(self) -> None:
        """Load an older checkpoint, and continue from it."""
        older = await self._checkpointer.load(self._thread_id, self._random.choice(self._ids))
        assert older is not None
        self._state = older
        await self.append()

    async def replace(self) -> None:
        """Save another state under an existing id."""
        word = self._word()
        checkpoint_id = self._random.choice(self._ids)
        await self._save(self._state.with_message(Message.user(f"{word} instead")), word, checkpoint_id)

    async def delete(self) -> None:
        checkpoint_id = self._random.choice(self._ids)
        self._begin(op="delete", id=checkpoint_id)
        await self._checkpointer.delete(self._thread_id, checkpoint_id)
        self._done(checkpoint_id)
        self._ids.remove(checkpoint_id)

    async def write(self) -> None:
        checkpoint_id, task = self._random.choice(self._ids), f"t{self._random.randrange(2)}"
        writes = [(f"channel {number}", self._word()) for number in range(self._random.randrange(1, 4))]
        self._begin(op="writes", id=checkpoint_id, task=task, writes=writes)
        await self._checkpointer.put_writes(self._thread_id, checkpoint_id, task, writes)
        self._done(checkpoint_id)

    async def _save(self, state: AgentState, word: str, checkpoint_id: str | None = None) -> None:
        if len(state.messages) > LONGEST:
            state = state.with_messages_replaced(state.messages[LONGEST // 2 :])
        if checkpoint_id is None and self._random.random() < 0.3:
            checkpoint_id = f"named {word}"
        self._begin(op="save", id=checkpoint_id, digest=digest(state), word=word)
        saved = await self._checkpointer.save(state, self._thread_id, checkpoint_id, {"word": word})
        self._done(saved)
        self._state = state
        self._ids = [known for known in self._ids if known != saved] + [saved]

    def _word(self) -> str:
        self._steps += 1
        return f"w{self._seed}x{self._steps}"

    def _begin(self, **step: Any) -> None:
        self._talk.send(begin={"thread": self._thread_id, **step})

    def _done(self, checkpoint_id: str) -> None:
        self._talk.send(done_with=checkpoint_id, thread=self._thread_id)


async def save_until_killed(talk: Channel, url: str, thread_id: str, seed: int) -> None:
    """Do random steps on a thread until the process is killed."""
    async with opened(url) as checkpointer:
        saver = Saver(talk, checkpointer, thread_id, seed)
        await saver.resume()
        while True:
            await saver.any_step(appends=6)


async def save_many_until_killed(talk: Channel, url: str, thread_ids: Sequence[str], seed: int) -> None:
    """Do random steps on many threads at the same time, through one handle, which may commit saves together."""
    async with opened(url) as checkpointer:
        await checkpointer.list_threads(1)

        async def save(number: int, thread_id: str) -> None:
            saver = Saver(talk, checkpointer, thread_id, seed + number)
            while True:
                await saver.any_step(appends=12)

        await asyncio.gather(*(save(number, thread_id) for number, thread_id in enumerate(thread_ids)))


async def some_steps(talk: Channel, url: str, thread_id: str, seed: int, count: int) -> None:
    """Do `count` random steps on a thread, continuing from its present state."""
    async with opened(url) as checkpointer:
        saver = Saver(talk, checkpointer, thread_id, seed)
        await saver.resume()
        for _ in range(count):
            await saver.any_step(appends=1)


async def step_under_trace(
    talk: Channel, url: str, thread_id: str, step: str, target: Position | None
) -> dict[str, Any]:
    """Do one step under a trace. At the target, if there is one, the process kills itself. Returns the lines passed."""
    checkpointer = opened(url)
    trace = LineTrace(type(checkpointer.store.engine), target)
    trace.install()
    saver = Saver(talk, checkpointer, thread_id, seed=7)
    if step != "first":
        await saver.resume()
    trace.active = True
    await saver.step(step)
    trace.active = False
    await checkpointer.close()
    return {"positions": trace.positions, "engine": trace.engine_folders}
