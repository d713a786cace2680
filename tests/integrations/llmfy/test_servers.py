"""A flow's checkpoints on every kind of server."""

from __future__ import annotations

import asyncio

from locus.integrations.llmfy import LlmfyCheckpointer
from locus.testing.stores import TestStore
from tests.integrations.llmfy.test_checkpointer import STATE, checkpoint, ids
from tests.integrations.llmfy.test_flow import line


async def test_flows_on_a_server(server_store: TestStore) -> None:
    async with server_store.open() as one, server_store.open() as another:
        kept = [LlmfyCheckpointer(handle) for handle in (one, another)]
        await kept[0].save(checkpoint("first", state=STATE))
        assert await kept[1].load("s") == checkpoint("first", state=STATE)
        await asyncio.gather(*(kept[n % 2].save(checkpoint(f"c{n}", state={"n": n})) for n in range(6)))
        await kept[1].save(checkpoint("first", state=STATE))
        found = ids(await kept[0].list("s"))
        assert sorted(found) == ["c0", "c1", "c2", "c3", "c4", "c5", "first"]
        assert found[-1] == "first"
        await kept[1].delete("s", found[0])
        newest = await kept[0].load("s")
        assert newest is not None
        assert newest.metadata.checkpoint_id == found[1]

        final = await line(kept[0]).invoke({"topic": "soup"}, session_id="alice")
        assert await line(kept[1]).get_state("alice") == final
        assert [about.node for about in await kept[1].history("alice")] == ["eat", "buy", "plan"]
        await kept[0].clear_all()
        assert await kept[1].load("s") is None
        assert await kept[1].load("alice") is None
