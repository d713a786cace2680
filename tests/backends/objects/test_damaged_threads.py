"""A thread whose log cannot be read stops no call about all threads: it is left out, with a warning."""

from __future__ import annotations

import pytest

from locus.core.state import AgentState
from locus.errors import CorruptCheckpointError, DamagedThreadsWarning
from locus.memory.backends.objects.schema import thread_folder, thread_name
from tests.backends.objects.test_contract import ObjectsInMemory


async def test_lists_of_all_threads_go_on() -> None:
    store = ObjectsInMemory()
    async with store.open() as handle:
        for thread_id in ("a", "damaged", "z"):
            await handle.save(AgentState(), thread_id, metadata={"k": 1})
    folder = thread_folder(thread_name("damaged"))
    for key, (_body, moment) in list(store.objects.objects.items()):
        if key.startswith(folder):
            store.objects.objects[key] = (b"{broken\n", moment)
    async with store.open() as handle:
        with pytest.raises(CorruptCheckpointError):
            await handle.load("damaged")
        with pytest.warns(DamagedThreadsWarning, match="1 damaged thread was left out"):
            assert [one.thread_id for one in (await handle.recent_threads()).threads] == ["z", "a"]
        with pytest.warns(DamagedThreadsWarning):
            assert [one["thread_id"] for one in await handle.list_with_metadata()] == ["z", "a"]
        with pytest.warns(DamagedThreadsWarning):
            assert [one["thread_id"] for one in await handle.query_by_metadata("k", 1)] == ["z", "a"]
        assert await handle.list_threads() == ["a", "damaged", "z"]
