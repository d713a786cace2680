"""Saves of many threads in one round trip: each is answered as if it had come alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio.connection import Connection
from redis.exceptions import RedisError

from locus.memory.backends import redis_checkpointer
from locus.memory.backends.redis.engine import RedisEngine
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.records import Base, Commit, Outcome, Run, TaskWrites, Verdict, Write
from tests.backends.groups import compare_groups
from tests.backends.redis.stores import ClusterStore, RedisStore
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisCluster, RedisServer

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ADDED = Outcome(Verdict.COMMITTED, 1)


def first_save(thread_id: str, size: int = 1) -> Commit:
    run = Run(f"b-{thread_id}", 0, 0, 1, f'["{"x" * size}"]')
    manifest = f'[[["m"],[["b-{thread_id}",0,0,1]]]]'
    return Commit(thread_id, "", "c", f"rev-{thread_id}", NOW, "{}", '{"m":[]}', manifest, (run,))


@asynccontextmanager
async def engine_of(handle: Checkpointer) -> AsyncIterator[RedisEngine]:
    async with handle:
        engine = handle.store.engine
        assert isinstance(engine, RedisEngine)
        await engine.setup()
        yield engine


async def seqs(engine: RedisEngine, *thread_ids: str) -> list[list[int]]:
    return [[entry.seq for entry in await engine.history(name, None, None, None)] for name in thread_ids]


async def test_groups_are_answered_as_saves_one_by_one(store: RedisStore) -> None:
    answers = Counter[str]()
    async with engine_of(store.open()) as engine:
        for seed in range(3):
            answers += await compare_groups(engine, 40, seed)
    assert answers.keys() == {verdict.name for verdict in Verdict} | {"COMMITTED again", "alone"}
    assert answers["COMMITTED"] > answers["alone"], answers


@pytest.mark.redis("redis-cluster")
async def test_groups_of_a_cluster_are_answered_as_saves_one_by_one(redis_cluster: RedisCluster) -> None:
    store = ClusterStore(redis_cluster)
    async with engine_of(store.open()) as engine:
        answers = await compare_groups(engine, 20, 7)
        assert answers["COMMITTED"] > answers["alone"], answers
    store.remove()


async def test_a_group_is_one_round_trip(store: RedisStore) -> None:
    async with engine_of(store.open()) as engine:
        await engine.commit_together([first_save("warm")])
        sent: list[object] = []
        send: Any = Connection.send_packed_command

        async def counted(connection: Connection, command: object, *args: Any, **options: Any) -> None:
            sent.append(command)
            await send(connection, command, *args, **options)

        group = [first_save(f"t{number}") for number in range(16)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Connection, "send_packed_command", counted)
            assert await engine.commit_together(group) == [ADDED] * 16
        assert len(sent) == 1


async def test_whoever_is_refused_leaves_the_others_alone(store: RedisStore) -> None:
    async with engine_of(store.open()) as engine:
        await engine.commit(first_save("b"))
        other = Commit("b", "", "c", "another", NOW, "{}", "{}", "[]")
        stale = Commit("c", "", "c", "rev", NOW, "{}", "{}", "[]", base=Base("nobody", "none"))
        replacing = Commit("b", "", "c", "again", NOW, "{}", "{}", "[]", replaces="rev-b")
        group = [first_save("a"), other, stale, first_save("d")]
        found = await engine.commit_together(group)
        assert found == [ADDED, Outcome(Verdict.EXISTS), Outcome(Verdict.STALE_BASE), ADDED]
        assert await seqs(engine, "a", "b", "c", "d") == [[1], [1], [], [1]]
        assert await engine.commit_together([replacing]) == [None], "the thread has to be read first"
        assert await engine.commit_together([]) == []


async def test_whoever_fails_goes_alone_and_leaves_the_others_alone(store: RedisStore) -> None:
    async with engine_of(store.open()) as engine:
        await engine.commit(first_save("lost"))
        with store.client() as client:
            (main,) = [key for key in store.stored_keys() if key.endswith(":h:lost")]
            client.delete(main)
        writes = TaskWrites("lost", "", "c", "task", (Write("task", "", 0, "channel", "1"),))
        found = await engine.commit_together([first_save("a"), first_save("lost"), first_save("b")])
        assert found == [ADDED, None, ADDED]
        assert await engine.commit_together([writes, first_save("c")]) == [None, ADDED]


async def test_a_server_that_forgot_the_scripts_is_sent_them(store: RedisStore) -> None:
    async with engine_of(store.open()) as engine:
        await engine.commit(first_save("a"))
        with store.client() as client:
            client.script_flush()
        writes = TaskWrites("w", "", "c", "task", (Write("task", "", 0, "channel", "1"),))
        await engine.put_writes(replace(writes, thread_id="v"))
        found = await engine.commit_together([first_save("b"), writes, first_save("c")])
        assert found == [ADDED, Outcome(Verdict.COMMITTED), ADDED]
        assert await engine.get_writes("w", "", "c", None) == list(writes.writes)


async def test_a_full_server_refuses_each_and_says_so_when_it_is_sent_alone(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "server") as server:
        async with engine_of(redis_checkpointer(server.url)) as engine:
            await engine.commit(first_save("a"))
            client = engine._clients
            await client.command("CONFIG", "SET", "maxmemory", 1)
            group = [first_save("b"), first_save("c")]
            assert await engine.commit_together(group) == [None, None]
            with pytest.raises(RedisError, match="maxmemory"):
                await engine.commit(group[0])
            await client.command("CONFIG", "SET", "maxmemory", 0)
            assert await engine.commit_together(group) == [ADDED, ADDED]


@pytest.mark.parametrize("direction", ["to_server", "from_server"])
async def test_a_group_whose_answer_is_lost_raises_and_counts_once(
    store: RedisStore, proxy: Proxy, direction: str
) -> None:
    """Nobody knows which of them were written: each is sent again by itself, and is recognised."""
    async with engine_of(store.open()) as engine:
        await engine.commit_together([first_save("warm")])
        group = [first_save(f"t{number}", 400) for number in range(8)]
        proxy.cut_after(**{direction: 6_000 if direction == "to_server" else 60})
        with pytest.raises((RedisError, OSError)):
            await engine.commit_together(group)
        proxy.accept()
        again = [await engine.commit(commit) for commit in group]
        assert {outcome.repeated for outcome in again} == {True, False} or direction == "from_server"
        assert [outcome.seq for outcome in again] == [1] * 8
        assert await seqs(engine, *(commit.thread_id for commit in group)) == [[1]] * 8


async def test_groups_do_not_wait_for_each_other(store: RedisStore) -> None:
    async with engine_of(store.open()) as engine:
        groups = [[first_save(f"{group}-{number}") for number in range(8)] for group in range(12)]
        found = await asyncio.gather(*map(engine.commit_together, groups))
        assert found == [[ADDED] * 8] * 12
