"""The SDK's own contracts of a session store, on every store."""

from __future__ import annotations

from claude_agent_sdk import SessionStore
from claude_agent_sdk.testing import run_session_store_conformance

from locus.integrations.claude_agent_sdk import LocusSessionStore
from locus.memory.checkpointer import Checkpointer
from locus.testing.stores import TestStore

CONTRACTS = 14


async def _check(handle: Checkpointer) -> None:
    made = 0

    def empty() -> SessionStore:
        nonlocal made
        made += 1
        return LocusSessionStore(handle, prefix=f"tenant {made}/")

    await run_session_store_conformance(empty)
    assert made == 1 + CONTRACTS  # one to see what it can do, and one for each contract: none was left out


async def test_the_contracts(handle: Checkpointer) -> None:
    await _check(handle)


async def test_the_contracts_on_a_server(server_store: TestStore) -> None:
    async with server_store.open() as handle:
        await _check(handle)
