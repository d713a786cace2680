"""A session on every kind of server: what a server could get wrong."""

from __future__ import annotations

import asyncio
from typing import Any

from locus.integrations.openai_agents import LocusSession
from locus.testing.stores import TestStore
from tests.integrations.openai_agents.test_session import ODD, items


async def test_a_session_on_a_server(server_store: TestStore) -> None:
    async with server_store.open() as one, server_store.open() as another:
        sessions = [LocusSession("alice/ä", handle) for handle in (one, another, one, another)]
        await sessions[0].add_items(ODD)  # type: ignore[arg-type]
        batches = [[{"batch": batch, "n": n} for n in range(2)] for batch in range(8)]
        await asyncio.gather(
            *(sessions[number % 4].add_items(batch) for number, batch in enumerate(batches))  # type: ignore[arg-type]
        )
        kept: list[Any] = await sessions[1].get_items()
        assert kept[: len(ODD)] == ODD
        added = kept[len(ODD) :]
        assert [item["n"] for item in added] == [0, 1] * 8
        assert {item["batch"] for item in added} == set(range(8))
        assert [item["batch"] for item in added[::2]] == [item["batch"] for item in added[1::2]]
        assert await sessions[2].get_items(3) == kept[-3:]

        popped = await asyncio.gather(*(session.pop_item() for session in sessions))
        assert sorted(map(str, popped)) == sorted(map(str, kept[-4:]))
        assert await LocusSession("alice/ä", another).get_items() == kept[:-4]

        points = await sessions[0].history(None)
        assert [point.items for point in points] == [16, 17, 18, 19, *range(20, 4, -2), 4]
        assert await sessions[1].at(points[-1].checkpoint_id).get_items() == ODD
        forked = await sessions[1].fork("bob", points[-2].checkpoint_id)
        await forked.add_items(items(1))
        assert await forked.get_items() == [*kept[:6], *items(1)]
        await sessions[0].rewind(points[-1].checkpoint_id)
        await sessions[1].add_items(items(2))
        assert await sessions[0].get_items() == [*ODD, *items(2)]
        await sessions[1].clear_session()
        assert await sessions[0].get_items() == []
        assert await sessions[0].pop_item() is None
