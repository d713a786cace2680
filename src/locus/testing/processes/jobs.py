"""What worker processes do. Each job opens the store by its URL, as a program of its own would.

A job is an async function of a module that can be imported; its first argument is the channel to the test,
and the others and the result are JSON.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Sequence
from typing import Any

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConflictError, LocusError
from locus.memory import CheckpointSaver, get_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.testing.processes.workers import Channel

Acknowledged = tuple[str, str, str]
"""(thread id, checkpoint id, digest of the state)"""


def opened(url: str) -> Checkpointer:
    checkpointer = get_checkpointer(url)
    assert isinstance(checkpointer, Checkpointer), f"{url} opens a {type(checkpointer).__name__}"
    return checkpointer


def digest(state: AgentState | None) -> str | None:
    """Equal for equal states only: `1` and `True`, or `0.0` and `-0.0`, differ here."""
    return None if state is None else payload_digest(state.to_checkpoint())


def payload_digest(payload: Any) -> str:
    """The same for any JSON value."""
    text = json.dumps(payload, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def known_digest(state: AgentState) -> str:
    found = digest(state)
    assert found is not None
    return found


async def wait_for_the_others(talk: Channel) -> None:
    """Say that this worker is ready, and go on at the instant that `Crew.together` names."""
    talk.send(ready=True)
    signal = talk.receive()
    assert signal is not None, "the test has ended"
    await asyncio.sleep(signal["at"] - time.time())


async def answer_in_turn(talk: Channel, url: str, thread_id: str) -> None:
    """For each word that comes: say what the thread's latest checkpoint is, and add the word to it."""
    async with opened(url) as checkpointer:
        while (turn := talk.receive()) is not None:
            latest = await checkpointer.load(thread_id)
            listed = await checkpointer.list_checkpoints(thread_id, limit=1)
            state = (latest or AgentState()).with_message(Message.user(turn["word"]))
            saved = await checkpointer.save(state, thread_id)
            talk.send(listed=listed, loaded=digest(latest), saved=saved, digest=digest(state))


async def save_many(
    talk: Channel, url: str, thread_ids: Sequence[str], count: int, name: str, from_latest: bool
) -> list[Acknowledged]:
    """Save to these threads in turn, together with others: on top of the latest, or on a line of its own."""
    acknowledged: list[Acknowledged] = []
    async with opened(url) as checkpointer:
        await wait_for_the_others(talk)
        lines: dict[str, AgentState] = {}
        for number in range(count):
            thread_id = thread_ids[number % len(thread_ids)]
            state = await checkpointer.load(thread_id) if from_latest else lines.get(thread_id)
            state = (state or AgentState()).with_message(Message.user(f"{name} says {number}"))
            lines[thread_id] = state
            saved = await checkpointer.save(state, thread_id, metadata={"by": name, "number": number})
            acknowledged.append((thread_id, saved, known_digest(state)))
    return acknowledged


async def try_to_be_next(talk: Channel, url: str, thread_id: str, name: str) -> None:
    """For each checkpoint that comes: save on condition that it is still the latest, and say how it went."""
    async with opened(url) as checkpointer:
        while (turn := talk.receive()) is not None:
            await asyncio.sleep(turn["at"] - time.time())
            state = AgentState().with_message(Message.user(f"{name} after {turn['latest']}"))
            try:
                saved = await checkpointer.save(state, thread_id, if_latest=turn["latest"])
            except ConflictError as conflict:
                talk.send(saved=None, latest=conflict.latest)
            else:
                talk.send(saved=saved, latest=None)


async def count_up(talk: Channel, url: str, thread_id: str, times: int) -> int:
    """Add 1 to a counter that others count up as well. Returns how often another one was faster."""
    conflicts = 0
    async with opened(url) as checkpointer:
        await wait_for_the_others(talk)
        for _ in range(times):
            while True:
                newest = next(iter(await checkpointer.list_checkpoints(thread_id, limit=1)), None)
                state = await checkpointer.load(thread_id, newest) if newest else AgentState()
                assert state is not None, f"{newest} is listed, and cannot be loaded"
                try:
                    await checkpointer.save(state.next_iteration(), thread_id, if_latest=newest)
                    break
                except ConflictError:
                    conflicts += 1
    return conflicts


async def remove_while_others_save(talk: Channel, url: str, thread_id: str, how: str) -> list[str]:
    """Take checkpoints away until told to stop. Returns the ids of those that it deleted one by one."""
    deleted: list[str] = []
    async with opened(url) as checkpointer:
        await wait_for_the_others(talk)
        while not _told_to_stop(talk):
            if how == "vacuum":
                await checkpointer.vacuum(keep_last=3)
            elif how == "thread":
                await checkpointer.delete(thread_id)
            else:
                ids = await checkpointer.list_checkpoints(thread_id, limit=6)
                for checkpoint_id in ids[::3]:
                    if await checkpointer.delete(thread_id, checkpoint_id):
                        deleted.append(checkpoint_id)
            await asyncio.sleep(0.002)
    return deleted


async def read_while_others_change(talk: Channel, url: str, thread_id: str) -> int:
    """Read with handles that know nothing yet, until told to stop. Returns how often there was something."""
    found = 0
    await wait_for_the_others(talk)
    while not _told_to_stop(talk):
        async with opened(url) as checkpointer:
            for _ in range(3):
                found += await checkpointer.load(thread_id) is not None
                await checkpointer.history(thread_id, limit=None)
                await checkpointer.list_threads()
    return found


def _told_to_stop(talk: Channel) -> bool:
    try:
        talk.receive(0)
    except TimeoutError:
        return False
    return True


async def try_to_read(talk: Channel, url: str, thread_id: str) -> dict[str, Any]:
    """What this process finds: the latest state's digest, or the name of the error that was raised."""
    try:
        async with opened(url) as checkpointer:
            ids = await checkpointer.list_checkpoints(thread_id)
            return {"raised": None, "ids": ids, "loaded": digest(await checkpointer.load(thread_id))}
    except LocusError as error:
        return {"raised": [kind.__name__ for kind in type(error).__mro__], "text": str(error)}


async def read_versions(talk: Channel, url: str, thread_id: str) -> dict[str, Any]:
    """What a saver finds here of each namespace: checkpoints, newest first, with their parents and writes."""
    found: dict[str, Any] = {}
    async with CheckpointSaver(url) as saver:
        for namespace in await saver.list_namespaces(thread_id=thread_id):
            place: dict[str, Any] = {"thread_id": thread_id, "checkpoint_ns": namespace}
            found[namespace] = [
                [
                    each["checkpoint_id"],
                    each["parent_checkpoint_id"],
                    each["checkpoint"],
                    [
                        [write["idx"], write["value"]]
                        for write in await saver.get_writes(checkpoint_id=each["checkpoint_id"], **place)
                    ],
                ]
                for each in await saver.list_checkpoints(**place)
            ]
    return found
