"""The contract, kept by the object layout over objects in memory: every law, without a network."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from locus.core.state import AgentState
from locus.errors import CheckpointError
from locus.memory.backends.objects.backend import ObjectCheckpointStore
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.objects.schema import thread_folder, thread_name
from locus.memory.checkpointer import Checkpointer
from locus.memory.engine import CheckpointerCapabilities
from locus.testing.contract import CoreContract
from locus.testing.data import message
from locus.testing.laws.durability.outage import OutageLaws
from locus.testing.laws.saving.copies import CopyLaws
from locus.testing.laws.search.metadata import MetadataLaws
from locus.testing.stores import OutageTestStore
from tests.backends.effort import EmbeddedRepetitions
from tests.backends.objects.in_memory import MemoryObjectStore, StoreFault

ABLE = CheckpointerCapabilities(
    metadata_query=True,
    vacuum=True,
    branching=True,
    list_threads=True,
    list_with_metadata=True,
    persistent_checkpoint_ids=True,
    windows=True,
)


class ObjectsInMemory(OutageTestStore):
    """Objects in a dict, which several handles share."""

    def __init__(self) -> None:
        self.objects = MemoryObjectStore()
        self._reachable = True

    async def _reach(self, _kind: str, _key: str) -> None:
        if not self._reachable:
            raise StoreFault("out of reach")

    def open(self, *, ttl_seconds: float | None = None) -> Checkpointer:
        engine = ObjectEngine(MemoryObjectStore(before=self._reach, shared=self.objects))
        return Checkpointer(ObjectCheckpointStore(engine, ttl_seconds=ttl_seconds))

    async def corrupt(self, thread_id: str) -> None:
        """Cut off the end of every text."""
        folder = thread_folder(thread_name(thread_id))
        found = [key for key in self.objects.objects if key.startswith(folder)]
        assert found
        for key in found:
            body, moment = self.objects.objects[key]
            record, *texts = body.split(b"\n")
            self.objects.objects[key] = (b"\n".join([record, *(text[:-2] for text in texts)]), moment)

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        self._reachable = False
        try:
            yield
        finally:
            self._reachable = True


class TestObjects(EmbeddedRepetitions, CoreContract, MetadataLaws, CopyLaws, OutageLaws):
    required = ABLE

    @pytest.fixture
    def store(self) -> ObjectsInMemory:
        return ObjectsInMemory()


async def test_no_key_and_no_id_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Neither if a marker cannot be put, nor if events cannot be merged: the error's text has the key."""
    failed: set[str] = set()

    async def fail(kind: str, key: str) -> None:
        if failing and kind == "put" and "/s/" not in key:
            failed.add(key)
            raise StoreFault(f"no access to {key}")

    failing = False
    objects = MemoryObjectStore(before=fail)
    handle = Checkpointer(ObjectCheckpointStore(ObjectEngine(objects)))
    state = AgentState()
    await handle.save(state, "secret-thread")
    failing = True
    with caplog.at_level(logging.WARNING):
        for number in range(60):
            state = state.with_message(message(number))
            with suppress(CheckpointError):
                await handle.save(state, "secret-thread")
    assert "could not be put" in caplog.text
    assert "could not be merged" in caplog.text
    assert "StoreFault" in caplog.text
    assert "secret" not in caplog.text
    assert not any(key in caplog.text for key in failed)
