"""Long threads and many of them: nothing is cut off at ten, a thousand or ten thousand."""

from __future__ import annotations

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends import OpenSearchBackend
from locus.memory.backends.opensearch import client as opensearch_client
from locus.memory.store import CheckpointStore
from tests.backends.opensearch.store import OpenSearchStore


async def test_a_thread_of_four_thousand_messages_loads_whole(store: OpenSearchStore) -> None:
    state, saved = AgentState(), list[tuple[str, AgentState]]()
    async with store.open() as checkpointer:
        for turn in range(1_100):
            new = [Message.user(f"message {turn}.{part}") for part in range(4)]
            state = state.with_messages(new)
            saved.append((await checkpointer.save(state, "t"), state))
    async with store.open() as cold:
        assert await cold.load("t") == state
        for name, known in saved[::250]:
            assert await cold.load("t", name) == known
        assert await cold.list_checkpoints("t", 5_000) == [name for name, _ in reversed(saved)]
        longer = state.with_message(Message.user("and on"))
        await cold.save(longer, "t")
        assert await cold.load("t") == longer
        assert await cold.delete("t")
        assert await cold.list_checkpoints("t") == []
    # Marks of the deletion stay; nothing that was saved does.
    assert {hit["_source"]["kind"] for hit in store.documents("t")} <= {"thread", "end", "gone"}


async def test_the_last_of_a_long_window_is_read_without_the_rest(store: OpenSearchStore) -> None:
    """A window of twenty over hundreds of runs: a load fetches few records."""
    state = AgentState()
    async with store.open() as checkpointer:
        for turn in range(200):
            kept = state.messages[-16:]
            state = state.with_messages_replaced((*kept, *(Message.user(f"{turn}.{part}") for part in range(4))))
            await checkpointer.save(state, "t")
    fetched = 0
    original = opensearch_client.Client.get_many

    def counted(self: opensearch_client.Client, *args: object, **options: object) -> object:
        nonlocal fetched
        found = original(self, *args, **options)  # type: ignore[arg-type]
        fetched += len(found)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opensearch_client.Client, "get_many", counted)
        async with store.open() as cold:
            assert await cold.load("t") == state
    assert fetched < 60


@pytest.mark.parametrize("page", [1, 7])
async def test_answers_of_several_pages_are_whole(
    store: OpenSearchStore, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    pages = opensearch_client.Client.pages
    monkeypatch.setattr(
        opensearch_client.Client, "pages", lambda self, body, routing=None, size=0: pages(self, body, routing, page)
    )
    async with OpenSearchBackend([store.host], store.index, replicas=0) as backend:
        for number in range(24):
            await backend.save(f"t{number % 12:02}", {"m": [f"word {number}"]}, f"c{number}", {"k": number % 2})
            await backend.put_writes("t00", "c0", f"task {number}", [("x", number)])
        assert await backend.list_threads(None) == [f"t{number:02}" for number in range(12)]
        assert len(await backend.search("word", 100)) == 24
        assert len(await backend.query_by_metadata("k", 1)) == 12
        assert [hit["checkpoint_id"] for hit in await backend.list_with_metadata(20)] == [
            f"c{number}" for number in range(23, 3, -1)
        ]
        assert len(await backend.get_writes("t00", "c0")) == 24
        assert await backend.copy_thread("t00", "copy")
        assert len(await backend.get_writes("copy", "c0")) == 24
        assert await backend.delete("t00")
        assert await backend.vacuum(0) == 24
    assert isinstance(backend.store, CheckpointStore)


async def test_no_pending_writes_are_skipped_between_two_pages(
    store: OpenSearchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a task writes after a copy stands beside what was copied of it: both have the same names and position."""
    monkeypatch.setattr(opensearch_client.Client, "page_size", 1)
    async with store.open() as checkpointer:
        await checkpointer.save(AgentState(), "t", "c")
        for task in ("one", "two", "three"):
            await checkpointer.put_writes("t", "c", task, [("x", "old")])
        assert await checkpointer.copy_thread("t", "copy")
        for task in ("one", "two"):
            await checkpointer.put_writes("copy", "c", task, [("x", "new")])
        found = {write.task_id: write.value for write in await checkpointer.get_writes("copy", "c")}
        assert found == {"one": "new", "two": "new", "three": "old"}
