"""What a diff reads, and what a stranger's checkpointer gives."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import CheckpointNotFoundError
from locus.memory.backends import MemoryCheckpointer, sqlite_checkpointer
from locus.memory.backends.memory import MemoryEngine
from locus.memory.checkpointer import BaseCheckpointer, Checkpointer
from locus.memory.storage import StorageBackend
from locus.testing.data import conversation
from locus.testing.laws.loading.diffs import Reads, check_diff


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_the_same_runs_are_read_of_100_messages_and_of_10000(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle: Checkpointer = MemoryCheckpointer() if kind == "memory" else sqlite_checkpointer(tmp_path / "a.db")
    async with handle:
        pairs: dict[int, tuple[str, str]] = {}
        for count in (100, 10_000):
            state = AgentState().with_messages(Message.user(f"{n:05}") for n in range(count))
            state = state.with_messages(conversation(4))
            a = await handle.save(state, f"t{count}")
            pairs[count] = a, await handle.save(state.with_messages(conversation(2, 9)), f"t{count}")
        reads = Reads(type(handle.store.engine), monkeypatch)
        found = {}
        for count, pair in pairs.items():
            assert (await handle.diff(f"t{count}", *pair)).added == tuple(conversation(2, 9))
            found[count] = reads.take()
        assert found[10_000][0] == found[100][0] == 2


async def test_a_checkpoint_that_is_replaced_meanwhile_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was written under the same number must not pass for the one that the manifest meant."""
    handle = MemoryCheckpointer()
    backend, later = StorageBackend(handle.store), StorageBackend(handle.store)
    items: list[Any] = [{"n": n} for n in range(9)]
    await backend.save("t", {"m": items}, "a")
    await backend.save("t", {"m": [*items, {"n": 10}]}, "b")
    await backend.save("t", {"m": [*items, {"n": 10}], "same": 1}, "c")
    read_part, times = MemoryEngine.read_part, 0

    async def replacing(engine: MemoryEngine, *asked: Any) -> Any:
        nonlocal times
        found = await read_part(engine, *asked)
        times += 1
        if times == 1:  # after the first side was read: its run goes, and another takes its number
            for name in ("b", "c"):
                await backend.delete("t", name)
            await later.save("t", {"m": [*items, {"n": 11}]}, "c")
            await later.save("t", {"m": [*items, {"n": 12}]}, "b", parent="a")
        return found

    monkeypatch.setattr(MemoryEngine, "read_part", replacing)
    found = await backend.diff("t", "b", "c")
    check_diff(found, {"m": [*items, {"n": 12}]}, {"m": [*items, {"n": 11}]})
    await asyncio.sleep(0)


class _Own(BaseCheckpointer):
    """The least that a checkpointer of a user has."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, str], AgentState] = {}

    async def save(
        self,
        state: AgentState,
        thread_id: str,
        checkpoint_id: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        name = checkpoint_id or str(len(self._states))
        self._states[thread_id, name] = state
        return name

    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> AgentState | None:
        return self._states.get((thread_id, checkpoint_id or ""))

    async def list_checkpoints(self, thread_id: str, limit: int = 10) -> list[str]:
        return [name for thread, name in self._states if thread == thread_id][:limit]


async def test_a_stranger_s_checkpointer_compares_whole_states() -> None:
    handle, state = _Own(), AgentState().with_messages(conversation(2))
    longer = state.with_messages(conversation(1, 5))
    await handle.save(state, "t", "a")
    await handle.save(longer, "u", "b")
    found = await handle.payload_diff("t", "a", "b", other_thread="u")
    check_diff(found, state.to_checkpoint() | {}, longer.to_checkpoint())
    with pytest.raises(CheckpointNotFoundError):
        await handle.payload_diff("t", "a", "b")
