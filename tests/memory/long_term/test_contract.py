"""Long-term memory keeps its laws on every store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from locus.testing import LongTermLaws, LongTermProcessLaws
from locus.testing.data import HOSTILE_IDS
from locus.testing.stores import DurableTestStore, TestStore
from tests.backends.embedded import FileStore, SQLiteStore
from tests.backends.every_store import SERVERS, MemoryStore, durable_store


class TestMemoryInMemory(LongTermLaws):
    item_ids = HOSTILE_IDS

    @pytest.fixture
    def store(self) -> TestStore:
        return MemoryStore()


class TestMemoryInFiles(LongTermProcessLaws):
    @pytest.fixture
    def store(self, tmp_path: Path) -> DurableTestStore:
        return FileStore(tmp_path)


class TestMemoryInSQLite(LongTermProcessLaws):
    @pytest.fixture
    def store(self, tmp_path: Path) -> DurableTestStore:
        return SQLiteStore(tmp_path)


MADE_UNREACHABLE = (
    "test_no_memory_answers_what_it_could_not_find_out",
    "test_a_process_that_is_killed_loses_nothing_it_has_acknowledged",
)


class TestMemoryOnServers(LongTermProcessLaws):
    item_ids = ("'", "%", "a_b", "*", "\\", "a:b", "a/b", "..", "a", "a ", "\0", "Alice", "alice", "ß", "ss", "x" * 255)
    memory_kills = 2
    counted_at_once = 5

    @pytest.fixture(params=SERVERS)
    def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DurableTestStore]:
        is_unreachable = request.node.originalname in MADE_UNREACHABLE
        with durable_store(request.param, request, tmp_path, behind_proxy=is_unreachable) as store:
            yield store
