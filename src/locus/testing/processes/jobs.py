"""Jobs for worker processes. Each opens the store by its URL, like any program.

A job is an async function of an importable module. Its first argument is the channel to the test; the others and the
result are JSON.
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
"""Thread id, checkpoint id, and digest of the state."""


def opened(url: str) -> Checkpointer:
    checkpointer = get_checkpointer(url)
    assert isinstance(checkpointer, Checkpointer), f"{url} opens a {type(checkpointer).__name__}"
    return checkpointer


def digest(state: AgentState | None) -> str | None:
    """The digest of a state; None for None. It distinguishes `1` from `True`, and `0.0` from `-0.0`."""
    return None if state is None else payload_digest(state.to_checkpoint())


def payload_digest(payload: Any) -> str:
    """The digest of a JSON value. It distinguishes `1` from `true`, and `0.0` from `-0.0`."""
    text = json.dumps(payload, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def known_digest(state: AgentState) -> str:
    known = digest(state)
    assert known is not None
    return known


async def wait_for_the_others(talk: Channel) -> None:
    """Report that this worker is ready, and wait for the instant that `Crew.together` sets."""
    talk.send(ready=True)
    signal = talk.receive()
    assert signal is not None, "the test has ended"
    await asyncio.sleep(signal["at"] - time.time())


async def answer_in_turn(talk: Channel, url: str, thread_id: str) -> None:
    """For each word that is received, add it to the thread's latest state, and report what was read and saved."""
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
    """Save to threads in turn while other workers do so, from the latest state or on a line of its own."""
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
    """For each checkpoint id that is received, save if it is still the latest, and report the outcome."""
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
    """Add 1 to a counter `times` times while other workers do so. Returns the number of conflicts."""
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
    """Remove checkpoints until told to stop. Returns the ids of those that it deleted one by one."""
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
    """Read with new handles until told to stop. Returns how often there was a state."""
    loaded = 0
    await wait_for_the_others(talk)
    while not _told_to_stop(talk):
        async with opened(url) as checkpointer:
            for _ in range(3):
                loaded += await checkpointer.load(thread_id) is not None
                await checkpointer.history(thread_id, limit=None)
                await checkpointer.list_threads()
    return loaded


def _told_to_stop(talk: Channel) -> bool:
    try:
        talk.receive(0)
    except TimeoutError:
        return False
    return True


async def try_to_read(talk: Channel, url: str, thread_id: str) -> dict[str, Any]:
    """Read a thread in this process. Returns its ids and latest digest, or the classes of the error."""
    try:
        async with opened(url) as checkpointer:
            ids = await checkpointer.list_checkpoints(thread_id)
            return {"raised": None, "ids": ids, "loaded": digest(await checkpointer.load(thread_id))}
    except LocusError as error:
        return {"raised": [kind.__name__ for kind in type(error).__mro__], "text": str(error)}


async def read_versions(talk: Channel, url: str, thread_id: str) -> dict[str, Any]:
    """Read all namespaces of a thread with a saver: checkpoints, newest first, with their parents and writes."""
    versions: dict[str, Any] = {}
    async with CheckpointSaver(url) as saver:
        for namespace in await saver.list_namespaces(thread_id=thread_id):
            place: dict[str, Any] = {"thread_id": thread_id, "checkpoint_ns": namespace}
            versions[namespace] = [
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
    return versions
