"""Messages and checkpoints come back equal, whichever of their fields are missing, empty, or set to their defaults."""

from __future__ import annotations

import asyncio

from agent_framework import InMemoryCheckpointStorage, Message, WorkflowCheckpoint
from hypothesis import given
from hypothesis import strategies as st

from locus.integrations.agent_framework import LocusCheckpointStorage, LocusHistoryProvider
from tests.integrations.every_field import FEW, JSON, objects


@FEW
@given(st.lists(objects(Message), min_size=1, max_size=2))
def test_messages_come_back_equal(messages: list[Message]) -> None:
    async def stored() -> list[Message]:
        provider = LocusHistoryProvider("memory")
        await provider.save_messages("s", messages)
        return await provider.get_messages("s")

    theirs = [Message.from_dict(message.to_dict()).to_dict() for message in messages]
    assert [message.to_dict() for message in asyncio.run(stored())] == theirs


@FEW
@given(
    st.builds(
        WorkflowCheckpoint,
        workflow_name=st.sampled_from(["", "w"]),
        graph_signature_hash=st.sampled_from(["", "h"]),
        checkpoint_id=st.just("c"),
        state=st.dictionaries(st.sampled_from(["", "a"]), JSON),
        messages=st.sampled_from([{}, {"a": []}]),
        iteration_count=st.integers(0, 1),
        metadata=st.dictionaries(st.sampled_from(["", "a"]), JSON),
    )
)
def test_a_checkpoint_comes_back_equal(checkpoint: WorkflowCheckpoint) -> None:
    async def stored() -> list[WorkflowCheckpoint]:
        found = []
        for storage in (LocusCheckpointStorage("memory"), InMemoryCheckpointStorage()):
            await storage.save(checkpoint)
            found.append(await storage.load("c"))
        return found

    ours, theirs = asyncio.run(stored())
    assert ours == theirs
