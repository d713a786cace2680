"""A record that is lost is damage. It is never read over, and no save takes its place."""

from __future__ import annotations

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import CorruptCheckpointError
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
