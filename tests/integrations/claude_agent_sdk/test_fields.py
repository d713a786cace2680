"""Entries of a transcript come back equal, whatever fields they have."""

from __future__ import annotations

import asyncio
from typing import Any

from claude_agent_sdk.types import SessionKey, SessionStoreEntry
from hypothesis import given
from hypothesis import strategies as st

from locus.integrations.claude_agent_sdk import LocusSessionStore
from tests.integrations.every_field import FEW, JSON, objects

KEY: SessionKey = {"project_key": "p", "session_id": "s"}
FOREIGN = st.dictionaries(st.sampled_from(["", "message", "isMeta", "toolUseResult", "newer"]), JSON, max_size=3)


@FEW
@given(
    st.lists(
        st.tuples(objects(SessionStoreEntry), FOREIGN), min_size=1, max_size=3, unique_by=lambda two: two[0].get("uuid")
    )
)
def test_entries_come_back_equal(parts: list[tuple[Any, dict[str, Any]]]) -> None:
    entries: list[Any] = [{**foreign, **entry} for entry, foreign in parts]

    async def stored() -> list[Any]:
        sessions = LocusSessionStore("memory")
        for entry in entries:
            await sessions.append(KEY, [entry])
        return await sessions.load(KEY) or []

    assert asyncio.run(stored()) == entries
