"""No number that was sent or stored lets a script of Redis run on: every tenant waits for it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from locus.core.state import AgentState
from locus.errors import CorruptCheckpointError
from locus.memory.backends import redis_checkpointer
from locus.memory.backends.redis.engine import RedisEngine
from locus.memory.backends.redis.load import is_many, which_arguments
from locus.memory.backends.redis.scripts import READ
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.records import ANY, Base, Commit, Run, Verdict
from locus.server import Token, create_app
from locus.testing.data import message
from tests.server.running import asking
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.redis("redis")

MOST = 2**53 - 1


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One of its own: a script that runs on would hold up all tests."""
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
async def store(server: RedisServer, tmp_path: Path) -> AsyncIterator[Checkpointer]:
    async with redis_checkpointer(server.url, prefix=f"{tmp_path.name}:", timeout=5, retries=0) as store:
        yield store


def _commit(extents: list[tuple[str, int, int, int]], *runs: Run) -> Commit:
    return Commit(
        thread_id="t",
        namespace="default",
        checkpoint_id="c",
        rev="revision",
        created_at=datetime.now(UTC),
        metadata="{}",
        head='{"messages":[]}',
        manifest=json.dumps([[["messages"], extents]]),
        runs=runs,
        parent_id=ANY,
    )


@pytest.mark.parametrize(
    "commit",
    [
        _commit([("revision0", MOST, 0, 2)], Run("revision0", 0, 0, 1, "[1]")),
        _commit([("revision0", MOST, 0, 2)], Run("revision0", MOST, 1, 1, "[1]")),
        _commit([("revision0", MOST - 1, 0, 2)], Run("revision0", MOST, 1, 1, "[1]")),
        _commit([("nowhere", MOST, 0, MOST)]),
        _commit([("nowhere", MOST, 0, MOST)] * 60, Run("revision0", MOST, 1, 1, "[1]")),
    ],
)
async def test_a_run_with_a_huge_number_is_not_searched_for(store: Checkpointer, commit: Commit) -> None:
    async with store.store.using() as engine:
        assert (await engine.commit(commit)).verdict is Verdict.COMMITTED
    with pytest.raises(CorruptCheckpointError, match="are missing"):
        await store.load("t")
    await store.save(AgentState().with_message(message(1)), "another")
    assert await store.load("another") is not None


async def test_runs_with_large_gaps_between_their_numbers_are_found(store: Checkpointer) -> None:
    items = [f'[{{"role":"user","content":"{at}"}}]' for at in range(3)]
    runs = [Run("revision0", number, at, 1, items[at]) for at, number in enumerate([0, 7, MOST])]
    for newest, count in ((MOST, 3), (7, 2)):
        async with store.store.using() as engine:
            await engine.delete("t")
            outcome = await engine.commit(_commit([("revision0", newest, 0, count)], *runs))
            assert outcome.verdict is Verdict.COMMITTED
        found = await store.load("t")
        assert found is not None
        assert [one.content for one in found.messages] == ["0", "1", "2"][:count]


async def test_a_tenant_cannot_hold_up_the_others(store: Checkpointer, server: RedisServer) -> None:
    tokens = {"m/": "mallory-mallory-mallory", "a/": "alice-alice-alice-alice"}
    app = create_app(store, [Token(token, prefix=prefix) for prefix, token in tokens.items()])
    body = {
        "checkpoint_id": "c", "rev": "revision", "created_at": "2026-01-01T00:00:00+00:00", "metadata": {},
        "head": {"m": []}, "manifest": [[["m"], [["revision0", MOST, 0, 2]]]],
        "runs": [["revision0", 0, 0, [1]]],
    }  # fmt: skip
    async with asking(app, tokens["m/"]) as mallory, asking(app, tokens["a/"]) as alice:
        assert (await mallory.post("/threads/m%2Ft/commits", json=body)).status_code == 422
        assert (await mallory.get("/threads/m%2Ft/latest")).status_code == 404
        assert (await alice.post("/threads/a%2Ft/checkpoints", json={"state": {"x": 1}})).status_code == 201
    assert server.ask("PING") == b"PONG"


MANY = 12_000
"""Runs, which is more than a script goes through."""


def _item(at: int) -> str:
    return f'{{"role":"user","content":"{at}"}}'


async def _many(store: Checkpointer) -> RedisEngine:
    """A thread whose list was never put together: every item of it is a run. Other runs are beside it."""
    engine = store.store.engine
    assert isinstance(engine, RedisEngine)
    await engine.setup()
    runs = [Run("revision0", at, at, 1, f"[{_item(at)}]") for at in range(MANY)]
    await engine.commit(_commit([("revision0", MANY - 1, 0, MANY)], *runs))
    later = Run("revision0", MANY, MANY - 1, 1, f"[{_item(MANY)}]")
    other = replace(_commit([("revision0", MANY, 0, MANY)], later), checkpoint_id="d", rev="revision-2")
    assert (await engine.commit(replace(other, base=Base("c", "revision")))).verdict is Verdict.COMMITTED
    return engine


class TestManyRuns:
    """They are read in portions, so that nobody waits for a script that goes through all of them."""

    async def test_all_of_a_list(self, store: Checkpointer, server: RedisServer) -> None:
        engine = await _many(store)
        answer = await engine._run(READ, "t", *which_arguments("default", "c"))
        assert is_many(answer)
        for name, last in (("c", MANY - 1), ("d", MANY)):
            found = await store.load("t", name)
            assert found is not None
            assert [one.content for one in found.messages] == [*map(str, range(MANY - 1)), str(last)]
        assert found is not None
        await store.save(found.with_message(message(1)), "t")
        latest = await store.load("t")
        assert latest is not None
        assert len(latest.messages) == MANY + 1

    async def test_a_part_of_a_list(self, store: Checkpointer) -> None:
        await _many(store)
        page = await store.read_items("t", "d", start=1, count=3)
        assert page is not None
        assert [one["content"] for one in page.items] == ["1", "2", "3"]
        window = await store.load("t", last=2)
        assert window is not None
        assert [one.content for one in window.messages] == [str(MANY - 2), str(MANY)]

    async def test_a_checkpoint_that_goes_while_it_is_read(
        self, store: Checkpointer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        engine = await _many(store)
        command, cursors, sizes = engine._clients.command, list[int](), list[int]()

        async def interrupted(*words: object) -> Any:
            if words[0] != "HSCAN":
                return await command(*words)
            if len(cursors) == 1:
                assert await store.delete("t", "c")
            cursor, fields = await command(*words)
            cursors.append(int(cursor))
            sizes.append(len(fields))
            return cursor, fields

        monkeypatch.setattr(engine._clients, "command", interrupted)
        assert await store.load("t", "c") is None
        # Some portions were read before the removal, and some after it. How many there are depends on the server.
        first, *others, last = cursors
        assert first
        assert others
        assert all(others)
        assert last == 0
        assert max(sizes) < MANY // 3

    async def test_a_run_that_is_gone_is_missed(self, store: Checkpointer) -> None:
        engine = await _many(store)
        await engine._clients.command("HDEL", engine._keys("t")[3], "revision0 77")
        with pytest.raises(CorruptCheckpointError, match="missing"):
            await store.load("t", "c")


@pytest.mark.parametrize("buckets", ["0", "-1", "1000000000000", "many"])
async def test_a_number_of_buckets_that_cannot_be_is_damage(server: RedisServer, tmp_path: Path, buckets: str) -> None:
    with Redis(port=server.port) as client:
        client.hset(f"{tmp_path.name}:format", mapping={"version": "1", "buckets": buckets})
    async with redis_checkpointer(server.url, prefix=f"{tmp_path.name}:") as store:
        with pytest.raises(CorruptCheckpointError, match="does not say which format"):
            await store.load("t")
