"""A checkpoint comes back equal, whichever of its fields are empty."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from llmfy.flow_engine.checkpointer.base_checkpointer import Checkpoint, CheckpointMetadata

from locus.integrations.llmfy import LlmfyCheckpointer
from tests.integrations.every_field import FEW, JSON, objects

METADATA = objects(CheckpointMetadata, checkpoint_id=st.just("c"), session_id=st.just("s"))


@FEW
@given(METADATA, st.dictionaries(st.sampled_from(["", "messages"]), JSON))
def test_a_checkpoint_comes_back_equal(metadata: CheckpointMetadata, state: dict[str, Any]) -> None:
    async def stored() -> Any:
        checkpointer = LlmfyCheckpointer("memory")
        await checkpointer.save(Checkpoint(metadata=metadata, state=state))
        return await checkpointer.load("s")

    assert asyncio.run(stored()) == Checkpoint(metadata=metadata, state=state)
