"""The contract, kept by stores with keys."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.encryption.keyring import VARIABLE
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.codec import encode
from locus.memory.sealed.engine import SealedEngine
from locus.testing import OutageLaws
from locus.testing.contract import EVERYTHING, CoreContract, DurableLaws
from locus.testing.laws.base import Clock
from locus.testing.laws.removal.expiry import ExpiryLaws
from locus.testing.laws.saving.copies import CopyLaws
from locus.testing.laws.search.metadata import MetadataLaws
from locus.testing.sqlite import SQLiteTestStore
from locus.testing.stores import DurableTestStore
from tests.backends.effort import FewestRepetitions
from tests.backends.embedded import FileStore
from tests.encryption.stores import KEYS, in_seals

S = TypeVar("S", bound=DurableTestStore)
SEALED = replace(EVERYTHING, search=False)


@pytest.fixture(autouse=True)
def _keys_for_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys"
    file.write_text(KEYS)
    file.chmod(0o600)
    monkeypatch.setenv(VARIABLE, str(file))


class SealedSQLiteStore(SQLiteTestStore):
    def open(self, *, ttl_seconds: float | None = None) -> Checkpointer:
        return in_seals(super().open(ttl_seconds=ttl_seconds))


class SealedFileStore(FileStore):
    def open(self, *, ttl_seconds: float | None = None) -> Checkpointer:
        return in_seals(super().open(ttl_seconds=ttl_seconds))


def with_index_key(store: S) -> S:
    """Make the key that marks metadata, so that the first of the processes does no more than the others."""

    async def save() -> None:
        async with store.open() as handle:
            engine = handle.store.engine
            assert isinstance(engine, SealedEngine)
            await engine.keys.index_key("append 0")

    thread = threading.Thread(target=lambda: asyncio.run(save()))
    thread.start()
    thread.join()
    return store


class SealedLaws(CoreContract, MetadataLaws, CopyLaws, ExpiryLaws, OutageLaws, DurableLaws):
    """The contract without search, which a store with keys refuses."""

    required = SEALED

    async def test_sizes_are_those_of_the_texts(self, checkpointer: Checkpointer, clock: Clock) -> None:
        """They are those of the sealed texts, which are longer, and of which there are as many."""
        state = AgentState().with_message(Message.user("x" * 1_000))
        await checkpointer.save(state, "t")
        sizes = await checkpointer.sizes("t")
        assert sizes is not None
        assert sizes.run_bytes > 1_000
        assert sizes.head_bytes > len(encode(state.to_checkpoint() | {"messages": []}))


class TestSealedSQLite(FewestRepetitions, SealedLaws):
    commits_together = True

    @pytest.fixture
    def store(self, tmp_path: Path) -> SealedSQLiteStore:
        return with_index_key(SealedSQLiteStore(tmp_path))


@pytest.mark.soak
class TestSealedFiles(FewestRepetitions, SealedLaws):
    @pytest.fixture
    def store(self, tmp_path: Path) -> SealedFileStore:
        return with_index_key(SealedFileStore(tmp_path))
