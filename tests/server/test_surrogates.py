"""Halves of characters, which JSON can write and no database keeps: the sender is told, whatever the route."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from locus.memory.backends import redis_checkpointer, sqlite_checkpointer
from locus.server import create_app
from tests.server.running import asking
from tests.servers.redis import RedisServer

HALF = "\\ud800"
"""As it stands in the text of a JSON body."""


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.redis("redis"))])
async def client(request: pytest.FixtureRequest, tmp_path: Any) -> AsyncIterator[httpx.AsyncClient]:
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        store = redis_checkpointer(server.url, prefix=f"{tmp_path.name}:")
    else:
        store = sqlite_checkpointer(tmp_path / "agents.db")
    async with store, asking(create_app(store)) as client:
        made = await client.post("/threads/t/checkpoints", json={"state": {"x": 1}, "checkpoint_id": "c"})
        assert made.status_code == 201
        yield client


COMMIT = (
    '{"checkpoint_id": "c", "rev": "revision", "created_at": "2026-01-01T00:00:00+00:00", "metadata": {},'
    ' "head": {"x": []}, "manifest": [], %s}'
)


BODIES = [
    ("/threads/t/commits", COMMIT % '"replaces": "HALF"'),
    ("/threads/t/commits", COMMIT % '"parent_id": "HALF"'),
    ("/threads/t/commits", COMMIT % '"base": ["c", "HALF"]'),
    ("/threads/t/commits", COMMIT % '"HALF": 1'),
    ("/threads/t/commits", COMMIT.replace('"metadata": {}', '"metadata": {"HALF": 1}') % '"parent_id": null'),
    ("/threads/t/deletions", '{"seqs": [[1, "HALF"]]}'),
    ("/threads/t/records", '{"known": {"HALF": 1}}'),
    ("/threads/t/records", '{"known": {"HALF": "x"}}'),
    ("/threads/t/copy", '{"dest_thread_id": "u", "checkpoint_id": "HALF"}'),
    ("/threads/t/copy", '{"dest_thread_id": "u", "checkpoint_ids": ["HALF"]}'),
    ("/threads/t/copy", '{"dest_thread_id": "HALF"}'),
    ("/threads/t/copy", '{"dest_thread_id": "u", "namespace": "HALF"}'),
    ("/threads/t/checkpoints", '{"state": {"HALF": 1}}'),
    ("/threads/t/checkpoints", '{"state": {}, "metadata": {"a": "HALF"}}'),
    ("/threads/t/checkpoints", '{"state": {}, "parent_id": "HALF"}'),
    ("/threads/t/checkpoints/c/writes", '{"task_id": "HALF", "writes": []}'),
    ("/threads/t/checkpoints/c/writes", '{"task_id": "a", "task_path": "HALF", "writes": []}'),
    ("/threads/t/checkpoints/c/writes", '{"task_id": "a", "writes": [["HALF", 1]]}'),
    ("/threads/t/checkpoints/c/writes", '{"task_id": "a", "writes": [["a", {"b": "HALF"}]]}'),
    ("/find", '{"key": "HALF", "value": 1}'),
    ("/find", '{"key": "k", "value": "HALF"}'),
    ("/search", '{"query": "HALF"}'),
    ("/search", '{"terms": ["HALF"]}'),
    ("/vacuum", '{"keep_last": 1, "after": "HALF"}'),
]


async def test_half_a_character_is_refused(client: httpx.AsyncClient) -> None:
    for path, body in BODIES:
        method = "PUT" if path.endswith("writes") else "POST"
        headers = {"Content-Type": "application/json"}
        response = await client.request(method, path, content=body.replace("HALF", HALF), headers=headers)
        assert response.status_code in (400, 422), (path, body, response.text)
        assert response.headers["content-type"] == "application/problem+json"
