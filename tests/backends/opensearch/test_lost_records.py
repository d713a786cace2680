"""A record that is lost is damage. It is never read over, and no save takes its place."""

from __future__ import annotations

import json

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import CorruptCheckpointError, UnsupportedFormatError
from locus.memory.backends.opensearch.schema import FORMAT
from locus.memory.model.ids import digest
from tests.backends.opensearch.store import OpenSearchStore


async def three_saved(store: OpenSearchStore, lost: int) -> None:
    """Three checkpoints of thread "t", and then one of their records is deleted."""
    async with store.open() as writer:
        state = AgentState(agent_id="a")
        for number in (1, 2, 3):
            state = state.with_message(Message.user(f"message {number}"))
            await writer.save(state, "t", f"c{number}")
    thread = digest("t")
    store.ask("DELETE", f"{store.index}/_doc/{thread}.{lost}?routing={thread}&refresh=true")


@pytest.mark.parametrize("lost", [1, 2])
async def test_a_lost_record_is_damage(store: OpenSearchStore, lost: int) -> None:
    await three_saved(store, lost)
    async with store.open() as cp:
        with pytest.raises(CorruptCheckpointError):
            await cp.load("t")


async def test_no_save_takes_the_place_of_a_lost_record(store: OpenSearchStore) -> None:
    await three_saved(store, lost=2)
    async with store.open() as cp:
        with pytest.raises(CorruptCheckpointError):
            await cp.save(AgentState(agent_id="b"), "t")
    assert not [hit for hit in store.documents("t") if hit["_id"].endswith(".2")]


async def test_another_record_cannot_take_the_place_of_a_lost_one(store: OpenSearchStore) -> None:
    """A handle that knows the log up to record 1 may add record 2 without reading first."""
    async with store.open() as late:
        state = AgentState(agent_id="a").with_message(Message.user("message 1"))
        await late.save(state, "t", "c1")
        async with store.open() as busy:
            for number in (2, 3):
                await busy.save(state.with_message(Message.user(f"message {number}")), "t", f"c{number}")
        thread = digest("t")
        store.ask("DELETE", f"{store.index}/_doc/{thread}.2?routing={thread}&refresh=true")
        await late.save(state.next_iteration(), "t")
    async with store.open() as cp:
        with pytest.raises(CorruptCheckpointError, match="lost"):
            await cp.load("t")


async def test_every_change_is_found(store: OpenSearchStore) -> None:
    async with store.open() as cp:
        await cp.save(AgentState(agent_id="agent").with_message(Message.user("said")), "t", "c1", {"user": "eve"})
        (document,) = store.documents("t", "checkpoint")
        for old, new in (("said", "sold"), ("agent", "urgent"), ("eve", "bob"), ('"number": 0', '"number": 1')):
            body = json.dumps(document["_source"])
            assert old in body
            store.ask(
                "PUT",
                f"{store.index}/_doc/{document['_id']}?routing={document['_routing']}&refresh=true",
                json.loads(body.replace(old, new)),
            )
            async with store.open() as fresh:
                with pytest.raises(CorruptCheckpointError):
                    await fresh.load("t")


async def test_documents_of_format_1_are_read_and_carried_on(store: OpenSearchStore) -> None:
    async with store.open() as cp:
        state = AgentState(agent_id="agent").with_message(Message.user("said"))
        await cp.save(state, "t", "c1")
    lines = ""
    for document in store.documents("t"):
        body = document["_source"].get("body", {})
        for part in (body, *body.get("runs", ())):
            for name in ("sum", "before", "after"):
                part.pop(name, None)
        body.get("state", {}).pop("rev", None)
        if "format" in body:
            body["format"] = 1
        about = {"_index": document["_index"], "_id": document["_id"], "routing": document["_routing"]}
        lines += f"{json.dumps({'index': about})}\n{json.dumps(document['_source'])}\n"
    assert not store.ask("POST", "_bulk?refresh=true", lines)["errors"]
    store.ask("PUT", f"{store.index}/_mapping", {"_meta": {"locus_format": 1}})
    async with store.open() as cp:
        assert await cp.load("t") == state
        longer = state.with_message(Message.user("more"))
        await cp.save(longer, "t")
    async with store.open() as cp:
        assert await cp.load("t") == longer
        assert await cp.load("t", "c1") == state
    ((_, found),) = store.ask("GET", f"{store.index}/_mapping").items()
    assert found["mappings"]["_meta"] == {"locus_format": FORMAT}


async def test_a_newer_format_is_used_if_it_allows_that(store: OpenSearchStore) -> None:
    async with store.open() as cp:
        await cp.save(AgentState(), "t")
    store.ask("PUT", f"{store.index}/_mapping", {"_meta": {"locus_format": FORMAT + 1, "min_writer": FORMAT}})
    async with store.open() as cp:
        assert await cp.load("t") is not None
    store.ask("PUT", f"{store.index}/_mapping", {"_meta": {"locus_format": FORMAT + 1}})
    async with store.open() as cp:
        with pytest.raises(UnsupportedFormatError, match="upgrade"):
            await cp.load("t")
