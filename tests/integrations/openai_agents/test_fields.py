"""Items come back equal, whichever of their fields are missing or empty, and whatever newer versions add."""

from __future__ import annotations

import asyncio
from typing import Any

from agents import TResponseInputItem
from hypothesis import given
from hypothesis import strategies as st

from locus.integrations.openai_agents import LocusSession
from tests.integrations.every_field import FEW, JSON, values

NEWER = st.dictionaries(st.sampled_from(["", "newer"]), JSON, max_size=1)


@FEW
@given(st.lists(st.tuples(values(TResponseInputItem), NEWER), min_size=1, max_size=3))
def test_items_come_back_equal(parts: list[tuple[Any, dict[str, Any]]]) -> None:
    items: list[Any] = [{**newer, **item} for item, newer in parts]

    async def stored() -> list[Any]:
        session = LocusSession("s", "memory")
        await session.add_items(items)
        return await session.get_items()

    assert asyncio.run(stored()) == items
