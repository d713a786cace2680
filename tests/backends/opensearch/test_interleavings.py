"""What writers of one thread do at the same time, in many orders; and deaths before each single write."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.checkpointer import Checkpointer
from locus.memory.runtime import retry
from tests.backends.opensearch.model import Died, ModelIndex, open_model

THREAD = "t"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "time", SimpleNamespace(sleep=lambda _seconds: None))


class Turns:
    """Lets one of several workers do its next request, chosen at random, while the others wait."""

    def __init__(self, seed: int, workers: int) -> None:
        self._random = random.Random(seed)
        self._changed = threading.Condition()
        self._left = workers
        self._waiting: list[int] = []
        self._turn: int | None = None

    def wait(self, worker: int) -> None:
        with self._changed:
            self._waiting.append(worker)
            self._give()
            assert self._changed.wait_for(lambda: self._turn == worker, timeout=60), "nobody moves"
            self._turn = None

    def leave(self) -> None:
        with self._changed:
            self._left -= 1
            self._give()

    def _give(self) -> None:
        """When all that are left wait, one of them goes on."""
        if self._waiting and len(self._waiting) == self._left:
            self._turn = self._waiting.pop(self._random.randrange(len(self._waiting)))
            self._changed.notify_all()


@dataclass
class Report:
    """What was acknowledged."""

    saved: dict[str, AgentState] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)


async def _some_steps(handle: Checkpointer, rng: random.Random, name: str, report: Report) -> None:
    state = AgentState().with_message(Message.user(name))
    for step in range(rng.randint(3, 6)):
        action = rng.choice(["append", "append", "append", "replace", "delete", "latest", "trim", "write"])
        listed = await handle.list_checkpoints(THREAD, 100)
        if action == "delete" and listed:
            doomed = rng.choice(listed)
            if await handle.delete(THREAD, doomed):
                report.deleted.add(doomed)
            continue
        if action == "write" and listed:
            await handle.put_writes(THREAD, rng.choice(listed), name, [("channel", step)])
            continue
        if action == "latest":
            state = await handle.load(THREAD) or state
        if action == "trim":
            state = state.with_messages_replaced(state.messages[1:])
        state = state.with_message(Message.user(f"{name} {step} {'long ' * 300}"))
        own = [saved for saved in report.saved if saved.startswith(name) and saved not in report.deleted]
        chosen = rng.choice(own) if action == "replace" and own else f"{name} {step}"
        report.saved[await handle.save(state, THREAD, chosen)] = state


def _worker(
    turns: Turns, number: int, index: ModelIndex, seed: int, report: Report, failed: list[BaseException]
) -> None:
    async def work() -> None:
        async with open_model(index, lambda: turns.wait(number)) as handle:
            await _some_steps(handle, random.Random(seed * 10 + number), f"w{number}", report)

    try:
        asyncio.run(work())
    except BaseException as error:  # noqa: BLE001 - told to the test
        failed.append(error)
    finally:
        turns.leave()


@pytest.mark.parametrize("seed", range(25))
def test_whatever_the_order_of_requests_nothing_is_lost_or_torn(seed: int) -> None:
    index, report, failed = ModelIndex(), Report(), list[BaseException]()
    turns = Turns(seed, workers=3)
    threads = [
        threading.Thread(target=_worker, args=(turns, number, index, seed, report, failed)) for number in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not failed, failed
    asyncio.run(_check(index, report))


async def _check(index: ModelIndex, report: Report) -> None:
    async with open_model(index) as handle:
        entries = await handle.history(THREAD, None)
        listed = {entry.checkpoint_id for entry in entries}
        # One that was deleted may have been saved again under its id, by somebody who had not heard of it.
        assert set(report.saved) - report.deleted <= listed <= set(report.saved)
        seqs = [entry.seq for entry in entries]
        assert seqs == sorted(set(seqs), reverse=True)
        for entry in entries:
            assert await handle.load(THREAD, entry.checkpoint_id) == report.saved[entry.checkpoint_id]
            assert entry.parent_id is None or entry.parent_id in listed
        latest = await handle.load(THREAD)
        assert latest == (report.saved[entries[0].checkpoint_id] if entries else None)
    _check_documents(index, len(entries))


def _check_documents(index: ModelIndex, live: int) -> None:
    """Nothing is left over: as many checkpoints as are listed, and no unfinished removal."""
    sources = [kept.source for kept in index.docs.values()]
    assert sum(source["kind"] == "checkpoint" for source in sources) == live
    assert not [source for source in sources if "removed" in source.get("body", {})]


Step = Callable[[Checkpointer], Awaitable[object]]


async def _append(handle: Checkpointer) -> object:
    state = await handle.load(THREAD)
    assert state is not None
    return await handle.save(state.with_message(Message.user("one more")), THREAD, "new")


async def _replace(handle: Checkpointer) -> object:
    return await handle.save(AgentState().with_message(Message.user("another")), THREAD, "c2")


async def _delete_thread(handle: Checkpointer) -> object:
    return await handle.delete(THREAD)


async def _copy(handle: Checkpointer) -> object:
    return await handle.exists("copy") or await handle.copy_thread(THREAD, "copy")


async def _delete_some(handle: Checkpointer) -> object:
    return await handle.vacuum(keep_last=2)


STEPS: dict[str, Step] = {
    "first": lambda handle: handle.save(AgentState().with_message(Message.user("first")), "first", "new"),
    "append": _append,
    "replace": _replace,
    "delete": lambda handle: handle.delete(THREAD, "c1"),
    "delete the thread": _delete_thread,
    "vacuum": _delete_some,
    "copy": _copy,
    "write": lambda handle: handle.put_writes(THREAD, "c1", "task", [("x", 1), ("z", 2)]),
}
Seen = dict[str, dict[str, tuple[list[str], str | None, int]]]


async def _prepared() -> ModelIndex:
    index = ModelIndex()
    async with open_model(index) as handle:
        state = AgentState().with_metadata("large", "x" * 3_000)
        for number in range(5):
            state = state.with_message(Message.user(f"message {number}"))
            await handle.save(state, THREAD, f"c{number}", {"n": number})
            await handle.put_writes(THREAD, f"c{number}", "task", [("y", number)])
    return index


def _said(state: AgentState | None) -> list[str]:
    assert state is not None, "what is listed can be loaded"
    return [message.text for message in state.messages]


async def _seen(index: ModelIndex) -> Seen:
    """Everything that a handle sees that knows nothing yet."""
    found: Seen = {}
    async with open_model(index) as handle:
        for thread_id in (THREAD, "first", "copy"):
            found[thread_id] = {
                entry.checkpoint_id: (
                    _said(await handle.load(thread_id, entry.checkpoint_id)),
                    entry.parent_id,
                    len(await handle.get_writes(thread_id, entry.checkpoint_id)),
                )
                for entry in await handle.history(thread_id, None)
            }
            latest = await handle.load(thread_id)
            assert (latest is None) == (not found[thread_id])
            assert latest is None or _said(latest) == next(iter(found[thread_id].values()))[0]
            removed = {f"c{number}" for number in range(5)} - found[thread_id].keys()
            assert not [name for name in removed if await handle.get_writes(thread_id, name)]
    return found


@pytest.mark.parametrize("step", STEPS)
async def test_a_death_before_any_write_leaves_all_of_a_step_or_nothing(step: str) -> None:
    before = await _seen(await _prepared())
    whole = await _prepared()
    writes = whole.operations
    async with open_model(whole) as handle:
        await STEPS[step](handle)
    done = await _seen(whole)
    assert done != before
    kinds = set()
    for die_at in range(writes + 1, whole.operations + 1):
        index = await _prepared()
        index.die_at = die_at
        handle = open_model(index)
        with pytest.raises(Died):
            await STEPS[step](handle)
        await handle.close()
        left = await _seen(index)
        assert left in (before, done), f"torn by a death before write {die_at - writes}"
        kinds.add(left == done)
        await _goes_on(index, done, step)
    assert False in kinds


async def _goes_on(index: ModelIndex, done: Seen, step: str) -> None:
    """Whoever comes next can do the same again, and anything else."""
    async with open_model(index) as handle:
        await STEPS[step](handle)
        for thread_id, checkpoints in (await _seen(index)).items():
            if step != "vacuum":
                assert checkpoints.keys() == done[thread_id].keys()
            await handle.save(AgentState(), thread_id, "after")
            assert await handle.delete(thread_id, "after")
        await handle.vacuum(keep_last=1)
        for thread_id in await handle.list_threads():
            assert len(await handle.list_checkpoints(thread_id)) == 1
            assert await handle.load(thread_id) is not None
