"""The contract, kept by the memory backend."""

from __future__ import annotations

import pytest

from locus.memory.backends.memory import MemoryEngine
from locus.memory.checkpointer import Checkpointer
from locus.memory.store import CheckpointStore
from locus.testing import REQUIRED, CheckpointerContract, TestStore
from locus.testing.roads import blocking


class MemoryStore(TestStore):
    """Handles that share the memory of one engine."""

    def __init__(self) -> None:
        self.engine = MemoryEngine()

    def open(self, *, ttl_seconds: float | None = None) -> Checkpointer:
        return Checkpointer(CheckpointStore(self.engine, ttl_seconds=ttl_seconds))

    async def corrupt(self, thread_id: str) -> None:
        table = self.engine._tables[thread_id]
        assert table.runs, "there is nothing to damage"
        table.runs = {
            branch: [run._replace(items=run.items[: len(run.items) // 2]) for run in runs]
            for branch, runs in table.runs.items()
        }


class TestMemory(CheckpointerContract):
    required = REQUIRED["memory"]

    @pytest.fixture
    def store(self) -> TestStore:
        return MemoryStore()


class BlockingMemoryStore(MemoryStore):
    def open(self, *, ttl_seconds: float | None = None) -> Checkpointer:
        return blocking(super().open(ttl_seconds=ttl_seconds))


class TestMemoryBlocking(CheckpointerContract):
    required = REQUIRED["memory"]

    @pytest.fixture
    def store(self) -> TestStore:
        return BlockingMemoryStore()
