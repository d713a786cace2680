"""Checkpoints whose parents lead in a circle, as a client that plans its own commits can send them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from locus.memory.backends import MemoryCheckpointer
from locus.memory.model.ids import new_id
from locus.server import create_app
from tests.server.inspector.access import looking
from tests.server.running import asking


async def circle() -> MemoryCheckpointer:
    """`first`, then `a` and `b`, each of which names the other as its parent, and `last` after them."""
    checkpointer = MemoryCheckpointer()
    async with asking(create_app(checkpointer)) as client:
        for name, parent in (("first", None), ("a", "b"), ("b", "a"), ("last", "b")):
            await _commit(client, name, parent)
    return checkpointer


async def _commit(client: httpx.AsyncClient, name: str, parent: str | None) -> None:
    commit: dict[str, Any] = {
        "checkpoint_id": name,
        "rev": new_id(),
        "created_at": "2026-01-31T12:00:00+00:00",
        "metadata": {},
        "head": {"name": name},
        "manifest": [],
        "parent_id": parent,
        "parent_as_named": True,
    }
    answer = await client.post("/threads/t/commits", json=commit)
    assert answer.json()["verdict"] == "committed", answer.text


@pytest.mark.parametrize(
    "url",
    [
        "/t/t",
        "/t/t/c/last",
        "/t/t/diff/first/last?ns=default",
        "/t/t/diff/a/last?ns=default",
        "/t/t/diff/first/b",
        "/t/t/bisect?appears=last",
        "/t/t/stats?keep_last=1",
        "/t/t/export?format=md",
        "/t/t/fork?checkpoint=last",
    ],
)
async def test_pages_end(url: str) -> None:
    checkpointer = await circle()
    async with looking(checkpointer.store, writes=True) as client:
        assert (await client.get(url)).status_code == 200
