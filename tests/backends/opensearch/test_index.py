"""The index: made once, never by accident, and never changed by what users store."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError, ConfigurationError, UnsupportedFormatError
from locus.memory.backends import OpenSearchBackend
from locus.memory.backends.opensearch.schema import MAPPING
from locus.testing.data import HOSTILE_IDS, HOSTILE_QUERIES
from locus.testing.processes import jobs
from locus.testing.processes.workers import Crew
from tests.backends.opensearch.store import OpenSearchStore

ODD_KEYS: dict[str, list[Any]] = {
    "plain": [1, "text", {"a": 1}, [1, 2], None, True, 1.5],
    "a.b.c": [1, {"d": 2}],
    "a": ["text", {"b": 1}],
    "_id": ["x"],
    "_source": [{"x": 1}],
    "": ["empty"],
    " ": ["space"],
    "x" * 3_000: ["long"],
    "date": ["2024-01-01", "no date"],
    "big": [10**30, -(2**63) - 1],
}


def _backend(store: OpenSearchStore, **options: Any) -> OpenSearchBackend:
    return OpenSearchBackend([store.host], store.index, replicas=0, **options)


def _mapping(store: OpenSearchStore) -> Any:
    ((_, found),) = store.ask("GET", f"{store.index}/_mapping").items()
    return found["mappings"]


async def test_no_metadata_changes_the_mapping(store: OpenSearchStore) -> None:
    async with _backend(store) as backend:
        await backend.save("first", {})
        before = _mapping(store)
        for key, values in ODD_KEYS.items():
            for value in values:
                saved = await backend.save("t", {key: value}, metadata={key: value})
                assert saved in [hit["checkpoint_id"] for hit in await backend.get_by_metadata(key, value)]
        await backend.save("t", {"n": 1}, metadata={f"key {number}": number for number in range(3_000)})
        assert _mapping(store) == before
        assert before["dynamic"] == "strict"
        assert set(before["properties"]) == set(MAPPING["properties"])


async def test_texts_that_are_queries_elsewhere_are_texts(store: OpenSearchStore) -> None:
    texts = [*HOSTILE_QUERIES, *HOSTILE_IDS, '{"match_all":{}}', "kind:checkpoint", "*", "thread-?"]
    async with _backend(store) as backend:
        await backend.save("the one thread", {"m": ["ordinary"]}, metadata={"user": "eve"})
        for text in texts:
            assert await backend.get_by_metadata(text, text) == []
            assert await backend.get_by_metadata("user", {"$ne": text}) == []
            assert await backend.get_by_metadata("user", {"match_all": {}}) == []
            assert not await backend.exists(text[:255] or "x")
        assert await backend.list_threads() == ["the one thread"]


async def test_twenty_processes_may_begin_at_once(store: OpenSearchStore) -> None:
    with Crew(store.url) as crew:
        workers = [
            crew.start(jobs.save_many, url=store.url, thread_ids=[f"t{n % 5}"], count=1, name=f"{n}", from_latest=False)
            for n in range(20)
        ]
        crew.together(workers)
        saved = {(thread, checkpoint) for worker in workers for thread, checkpoint, _ in worker.finish()}
    found = set()
    async with store.open() as checkpointer:
        for thread_id in await checkpointer.list_threads():
            entries = await checkpointer.history(thread_id, None)
            found |= {(thread_id, entry.checkpoint_id) for entry in entries}
            assert [entry.seq for entry in entries] == [4, 3, 2, 1]
    assert found == saved


async def test_an_index_that_vanished_is_an_error_and_is_not_made_anew(store: OpenSearchStore) -> None:
    state = AgentState().with_message(Message.user("hi"))
    async with store.open() as checkpointer:
        await checkpointer.save(state, "t")
        store.remove()
        for attempt in (
            checkpointer.load("t"),
            checkpointer.save(state.next_iteration(), "t"),
            checkpointer.save(AgentState(), "new"),
            checkpointer.list_threads(),
            checkpointer.history("t"),
            checkpointer.search("hi"),
            checkpointer.put_writes("t", "c", "task", [("x", 1)]),
            checkpointer.delete("t"),
        ):
            with pytest.raises(BackendUnavailableError):
                await attempt
    assert store.ask("GET", "_alias").keys().isdisjoint({store.index, f"{store.index}-v1"})


async def test_a_stranger_s_index_is_refused_and_left_alone(store: OpenSearchStore) -> None:
    store.ask("PUT", f"{store.index}/_doc/1", {"hello": "world"})
    async with store.open() as checkpointer:
        with pytest.raises(ConfigurationError, match="not made by Locus"):
            await checkpointer.save(AgentState(), "t")
    assert set(_mapping(store)["properties"]) == {"hello"}


async def test_a_newer_format_is_refused(store: OpenSearchStore) -> None:
    store.ask("PUT", store.index, {"mappings": {**MAPPING, "_meta": {"locus_format": 99}}})
    async with store.open() as checkpointer:
        with pytest.raises(UnsupportedFormatError):
            await checkpointer.load("t")


async def test_an_index_that_somebody_else_made_under_the_name_is_used(store: OpenSearchStore) -> None:
    store.ask("PUT", store.index, {"mappings": MAPPING, "settings": {"number_of_replicas": 0}})
    state = AgentState().with_message(Message.user("hi"))
    async with store.open() as checkpointer:
        await checkpointer.save(state, "t")
        assert await checkpointer.load("t") == state


async def test_several_shards_keep_a_thread_together(store: OpenSearchStore) -> None:
    async with _backend(store, shards=3) as backend:
        for number in range(12):
            await backend.save(f"t{number:02}", {"m": ["word"], "n": number}, metadata={"n": number % 2})
        assert await backend.list_threads() == [f"t{number:02}" for number in range(12)]
        assert len(await backend.search("word", 100)) == 12
        assert len(await backend.get_by_metadata("n", 1)) == 6
        assert [entry["metadata"]["n"] for entry in await backend.list_with_metadata(3)] == [1, 0, 1]
        assert await backend.vacuum(0) == 12


async def test_a_deleted_thread_leaves_no_word_of_it(store: OpenSearchStore) -> None:
    async with store.open() as checkpointer:
        state = AgentState().with_messages([Message.user("confidential"), Message.user("secret " * 300)])
        for turn in range(20):
            state = state.with_message(Message.user(f"confidential {turn}"))
            saved = await checkpointer.save(state, "private-id", metadata={"who": "confidential"})
            await checkpointer.put_writes("private-id", saved, "task", [("x", "confidential")])
        await checkpointer.copy_thread("private-id", "copied-id")
        for thread_id in ("private-id", "copied-id"):
            assert await checkpointer.delete(thread_id)
    left = store.documents()
    assert {hit["_source"]["kind"] for hit in left} <= {"thread", "gone", "end"}
    for word in ("confidential", "secret", "private-id", "copied-id"):
        assert word not in json.dumps(left)


async def test_what_is_kept_for_a_day_goes_with_a_later_vacuum(
    store: OpenSearchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store.open() as checkpointer:
        for number in range(5):
            await checkpointer.save(AgentState(iteration=number), "t")
            await checkpointer.save(AgentState(iteration=number), "gone")
        await checkpointer.delete("gone")
        await checkpointer.vacuum(keep_last=2)
        assert store.documents("gone")
        monkeypatch.setattr("locus.memory.backends.opensearch.remove.STUB_LIFETIME", -3_600_000_000)
        await checkpointer.vacuum(keep_last=2)
        assert store.documents("gone") == []
        kinds = [hit["_source"]["kind"] for hit in store.documents("t")]
        assert sorted(kinds) == ["checkpoint", "checkpoint", "name", "name", "thread"]
        assert len(await checkpointer.list_checkpoints("t")) == 2
        await checkpointer.close()
        await checkpointer.save(AgentState(), "gone", "again")
        assert await checkpointer.list_threads() == ["gone", "t"]
        assert await checkpointer.list_checkpoints("gone") == ["again"]


async def test_a_client_that_was_given_is_used_and_stays_open(store: OpenSearchStore) -> None:
    from opensearchpy import OpenSearch

    client = OpenSearch([store.server_url])
    backend = OpenSearchBackend(index_name=store.index, client=client, replicas=0)
    await backend.save("t", {"n": 1})
    await asyncio.gather(*(backend.load("t") for _ in range(8)))
    await backend.close()
    assert client.ping()
    assert await backend.load("t") == {"n": 1}
    await backend.close()
    client.close()
