"""Saves that wait for replicas: on a primary with one, and in a cluster where each master has one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from locus.core.state import AgentState
from locus.errors import BackendUnavailableError
from locus.integrations.langgraph import LocusSaver
from locus.memory.backends import redis_checkpointer
from locus.memory.backends.redis.engine import RedisEngine
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.records import DEFAULT_NAMESPACE, Outcome, Verdict
from locus.memory.saver import CheckpointSaver
from locus.testing.data import conversation, message
from locus.testing.laws.base import assert_all_load
from tests.backends.redis.test_together import ADDED, first_save
from tests.backends.under_load import UnderLoad
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer, ReplicatedRedisCluster, ReplicatedRedisServer

pytestmark = pytest.mark.redis("redis-replicas")

STATE = AgentState().with_messages(conversation(3))
LATER = STATE.with_message(message(8))
numbers = count()


class Pair:
    def __init__(self, folder: Path) -> None:
        self.primary = ReplicatedRedisServer(folder / "primary")
        self.replica = ReplicatedRedisServer(folder / "replica")

    def open(self, **options: Any) -> Checkpointer:
        """A handle on the same store as the last one, if that is not over; it waits for the replica."""
        return redis_checkpointer(self.primary.url, self.prefix, **{"wait_replicas": 1, "wait_timeout": 0.2, **options})

    def new_store(self) -> None:
        self.prefix = f"test{next(numbers)}:"

    @contextmanager
    def silent_replica(self) -> Iterator[None]:
        """It is connected, and confirms nothing."""
        self.replica.pause()
        try:
            yield
        finally:
            self.replica.resume()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pair = Pair(tmp_path_factory.mktemp("replicas"))
    with pair.primary, pair.replica:
        pair.replica.follow(pair.primary)
        yield pair
        pair.replica.kill()  # asked to end, it may wait for the rewriting of its log
        pair.primary.kill()


@pytest.fixture
def pair(servers: Pair) -> Pair:
    servers.new_store()
    return servers


@asynccontextmanager
async def engine_of(handle: Checkpointer) -> AsyncIterator[RedisEngine]:
    async with handle:
        engine = handle.store.engine
        assert isinstance(engine, RedisEngine)
        await engine.setup()
        yield engine


WRITES: dict[str, Callable[[Checkpointer], Awaitable[Any]]] = {
    "a save": lambda handle: handle.save(LATER, "t", "c"),
    "a save that replaces one": lambda handle: handle.save(LATER, "t", "b"),
    "saves together": lambda handle: asyncio.gather(*(handle.save(LATER, f"s{number}", "c") for number in range(6))),
    "pending writes": lambda handle: handle.put_writes("t", "a", "task", [("x", 1)]),
    "pending writes together": lambda handle: asyncio.gather(
        *(handle.put_writes(f"w{number}", "a", "task", [("x", number)]) for number in range(6))
    ),
    "a copy": lambda handle: handle.copy_thread("t", "copy"),
    "a deletion": lambda handle: handle.delete("t", "a"),
    "the deletion of a thread": lambda handle: handle.delete("t"),
    "a vacuum": lambda handle: handle.vacuum(keep_last=1),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_whatever_changes_a_thread_waits_for_replicas(
    pair: Pair, write: Callable[[Checkpointer], Awaitable[Any]]
) -> None:
    async with pair.open(wait_timeout=5) as patient:
        await patient.save(STATE, "t", "a")
        await patient.save(LATER, "t", "b")
    async with pair.open() as handle:
        with (
            pair.silent_replica(),
            pytest.raises(BackendUnavailableError, match=r"outcome is unknown.*0 of 1 replicas"),
        ):
            await write(handle)
        async with redis_checkpointer(pair.primary.url, pair.prefix) as other, pair.open(wait_timeout=5) as patient:
            await patient.save(STATE, "later")  # everything before it is on the replica
            stored = {name: await other.list_checkpoints(name) for name in await other.list_threads()}
    async with redis_checkpointer(pair.replica.url, pair.prefix) as reader:
        assert {name: await reader.list_checkpoints(name) for name in await reader.list_threads()} == stored


async def test_a_save_that_was_not_confirmed_can_be_repeated(pair: Pair) -> None:
    async with pair.open(wait_timeout=5, timeout=20) as patient, pair.open() as handle:
        await patient.save(STATE, "t", "a")
        with pair.silent_replica():
            for _ in range(2):
                with pytest.raises(BackendUnavailableError, match="outcome is unknown"):
                    await handle.save(LATER, "t", "b")
        assert await patient.save(LATER, "t", "b") == "b"
        await assert_all_load(patient, "t", {"a": STATE, "b": LATER})
        assert await patient.list_checkpoints("t") == ["b", "a"]


async def test_a_save_that_is_found_stored_is_not_acknowledged_before_replicas_have_it(pair: Pair) -> None:
    """The connection that finds it has written nothing, and WAIT answers for what its connection has written."""
    async with pair.open(wait_timeout=5) as patient:
        await patient.save(STATE, "before")
    commit = first_save("t")
    with pair.silent_replica():
        for _ in range(2):
            async with engine_of(pair.open()) as engine:
                with pytest.raises(Exception, match="outcome is unknown"):
                    await engine.commit(commit)
        async with engine_of(pair.open()) as engine:
            assert await engine.commit_together([commit, first_save("other")]) == [None, None]
    async with engine_of(pair.open(wait_timeout=5)) as engine:
        assert await engine.commit(commit) == Outcome(Verdict.COMMITTED, 1, repeated=True)
        assert (await engine.commit_together([first_save("other"), first_save("new")]))[1] == ADDED


async def _delete_orphans(handle: Checkpointer) -> int:
    engine = handle.store.engine
    assert isinstance(engine, RedisEngine)
    async with handle.store.using():
        return await engine.delete_orphans("t", [(DEFAULT_NAMESPACE, "orphan")])


DELETIONS: dict[str, Callable[[Checkpointer], Awaitable[Any]]] = {
    "a checkpoint": lambda handle: handle.delete("t", "a"),
    "several checkpoints": lambda handle: CheckpointSaver(handle).delete_checkpoints(
        thread_id="t", checkpoint_ids=["a", "b"]
    ),
    "a namespace": lambda handle: handle.delete("t", namespace=DEFAULT_NAMESPACE),
    "a thread": lambda handle: handle.delete("t"),
    "what is old": lambda handle: handle.vacuum(keep_last=1),
    "orphaned writes": _delete_orphans,
    "all but the latest": lambda handle: LocusSaver(handle).aprune(["t"]),
    "the checkpoints of a run": lambda handle: LocusSaver(handle).adelete_for_runs(["r"]),
}


@pytest.mark.parametrize("delete", DELETIONS.values(), ids=DELETIONS)
async def test_a_deletion_that_finds_nothing_is_not_acknowledged_before_replicas_know(
    pair: Pair, delete: Callable[[Checkpointer], Awaitable[Any]]
) -> None:
    async with pair.open(wait_timeout=5) as handle:
        await handle.save(STATE, "t", "a", {"run_id": "r"})
        await handle.save(LATER, "t", "b", {"run_id": "r"})
        await handle.save(LATER, "t", "c", namespace="other")
        await handle.put_writes("t", "orphan", "task", [("x", 1)])
        await handle.put_writes("t", "a", "task", [("x", 1)])
    before = await _stored(pair.replica, pair.prefix)
    with pair.silent_replica():
        for _ in range(3):
            async with pair.open() as handle:
                with pytest.raises(BackendUnavailableError, match="outcome is unknown"):
                    await delete(handle)
    async with pair.open(wait_timeout=5) as handle:
        await delete(handle)
        assert before != await _stored(pair.replica, pair.prefix) == await _stored(pair.primary, pair.prefix)


async def _stored(server: RedisServer, prefix: str) -> dict[str, Any]:
    """The checkpoints and pending writes of all threads."""
    async with redis_checkpointer(server.url, prefix) as reader:
        return {
            name: (
                await reader.store.history(name, None, None, None),
                [await reader.get_writes(name, checkpoint_id) for checkpoint_id in ("a", "b", "orphan")],
            )
            for name in await reader.list_threads()
        }


async def test_a_vacuum_in_portions_is_acknowledged_when_replicas_have_all_of_them(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("locus.memory.backends.redis.engine.MOST_ROWS", 2)
    async with pair.open(wait_timeout=5) as handle:
        for number in range(7):
            await handle.save(STATE, "t", f"c{number}")
    left = []
    with pair.silent_replica():
        for _ in range(6):
            async with pair.open() as handle:
                with pytest.raises(BackendUnavailableError, match="outcome is unknown"):
                    await handle.vacuum(keep_last=1)
                left.append(len(await handle.list_checkpoints("t")))
    assert left[0] == 5, "the first portion is gone, and no other"
    assert left[-2:] == [1, 1], "and at the end there was nothing left to remove"
    async with pair.open(wait_timeout=5) as handle:
        assert await handle.vacuum(keep_last=1) == 0
    async with redis_checkpointer(pair.replica.url, pair.prefix) as reader:
        assert await reader.list_checkpoints("t") == ["c6"]


async def test_a_vacuum_that_only_looks_waits_for_nobody(pair: Pair) -> None:
    async with pair.open(wait_timeout=5) as handle:
        await handle.save(STATE, "t", "a")
        await handle.save(LATER, "t", "b")
    with pair.silent_replica():
        async with pair.open() as handle:
            assert await handle.vacuum(keep_last=1, dry_run=True) == 1


async def test_a_primary_that_is_demoted_while_a_save_waits_leaves_the_outcome_unknown(pair: Pair) -> None:
    async with pair.open(wait_timeout=60, timeout=120, retries=0) as handle:
        await handle.save(STATE, "t", "a")
        with Redis(port=pair.primary.port) as client:
            try:
                with pair.silent_replica():
                    saving = asyncio.ensure_future(handle.save(LATER, "t", "b"))
                    for _ in range(3_000):
                        if client.info("clients")["blocked_clients"]:
                            break
                        await asyncio.sleep(0.01)
                    client.replicaof("127.0.0.1", pair.replica.port)
                    with pytest.raises(BackendUnavailableError, match=r"outcome is unknown.*has become a replica"):
                        await saving
            finally:
                client.replicaof("NO", "ONE")
                pair.replica.follow(pair.primary)


async def test_a_name_that_leads_to_another_primary_is_looked_up_again(tmp_path: Path) -> None:
    """As behind an address that moves with the primary: a connection that is open leads to the one before."""
    primary, replica = (ReplicatedRedisServer(tmp_path / name) for name in ("primary", "replica"))
    with primary, replica, Proxy(primary.port) as proxy:
        replica.follow(primary)
        async with redis_checkpointer(f"redis://127.0.0.1:{proxy.port}") as handle:
            await asyncio.gather(*(handle.save(STATE, f"t{number}", "a") for number in range(4)))
            replica.ask("REPLICAOF NO ONE")
            primary.follow(replica)
            proxy.target = ("127.0.0.1", replica.port)
            assert await handle.save(LATER, "t0", "b") == "b"
            await handle.put_writes("t1", "a", "task", [("x", 1)])
            assert await handle.delete("t2")
        async with redis_checkpointer(replica.url) as reader:
            await assert_all_load(reader, "t0", {"a": STATE, "b": LATER})
            assert await reader.list_threads() == ["t0", "t1", "t3"]
        replica.kill()
        primary.kill()


async def test_what_waits_leaves_no_key_behind(pair: Pair) -> None:
    async with pair.open(wait_timeout=5) as handle:
        await handle.save(STATE, "t", "a")
        await handle.delete("t")
    with Redis(port=pair.primary.port) as client:
        assert list(client.scan_iter(f"{pair.prefix}*")) == [f"{pair.prefix}format".encode()]
        assert client.hkeys(f"{pair.prefix}format") == [b"version", b"buckets", b"check"]


async def test_a_server_without_replicas_is_asked_for_none(redis_server: RedisServer) -> None:
    prefix = f"test{next(numbers)}:"
    with Redis(port=redis_server.port) as client:
        client.config_resetstat()
        async with redis_checkpointer(redis_server.url, prefix) as handle:
            await asyncio.gather(*(handle.save(STATE, f"t{number}") for number in range(6)))
            await asyncio.gather(*(handle.delete(f"t{number}") for number in range(6)))
        used = client.info("commandstats")
        assert not {"cmdstat_wait", "cmdstat_waitaof"} & used.keys()
        client.unlink(f"{prefix}format")


async def test_a_save_may_wait_for_the_disk(pair: Pair) -> None:
    with Redis(port=pair.primary.port) as primary, Redis(port=pair.replica.port) as replica:
        for server in (primary, replica):
            server.config_set("appendfsync", "always")
        try:
            async with pair.open(wait_aof=True, wait_timeout=5) as handle:
                await handle.save(STATE, "t", "a")
            replica.config_set("appendfsync", "no")
            async with pair.open(wait_aof=True) as handle:
                with pytest.raises(BackendUnavailableError, match=r"outcome is unknown.*0 of 1"):
                    await handle.save(LATER, "t", "b")
            async with pair.open(wait_aof=True, wait_replicas=0) as handle:
                await handle.save(LATER, "t", "c")
            primary.config_set("appendfsync", "no")
            async with pair.open(wait_aof=True, wait_replicas=0) as handle:
                with pytest.raises(BackendUnavailableError, match=r"outcome is unknown.*not written it to its disk"):
                    await handle.save(LATER, "t", "d")
            primary.config_set("appendonly", "no")
            async with pair.open(wait_aof=True) as handle:
                with pytest.raises(BackendUnavailableError, match="appendonly yes"):
                    await handle.save(LATER, "t", "e")
        finally:
            for server in (primary, replica):
                server.config_set("appendonly", "yes")
                server.config_set("appendfsync", "no")


@pytest.mark.crash
async def test_what_a_failover_loses_was_acknowledged_to_nobody_who_waits(tmp_path: Path) -> None:
    """A replica behind a slow network takes over. What had not arrived there is gone."""
    primary, replica = (ReplicatedRedisServer(tmp_path / name) for name in ("primary", "replica"))
    with primary, replica, Proxy(primary.port) as proxy:
        replica.follow(proxy)
        async with (
            redis_checkpointer(primary.url, wait_replicas=1, wait_timeout=5) as waiting,
            redis_checkpointer(primary.url, wait_replicas=1, wait_timeout=0.2) as impatient,
            redis_checkpointer(primary.url) as careless,
        ):
            await waiting.save(STATE, "t", "a")
            await impatient.list_threads()
            await careless.list_threads()
            proxy.stall()
            with pytest.raises(BackendUnavailableError, match="outcome is unknown"):
                await impatient.save(LATER, "t", "b")
            assert await careless.save(LATER, "careless", "c") == "c"
            primary.kill()
        proxy.cut()
        replica.ask("REPLICAOF NO ONE")
        async with redis_checkpointer(replica.url, wait_replicas=0) as reader:
            await assert_all_load(reader, "t", {"a": STATE})
            assert await reader.list_checkpoints("t") == ["a"]
            assert await reader.load("careless") is None
        replica.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedRedisCluster]:
    cluster = ReplicatedRedisCluster(tmp_path_factory.mktemp("cluster"))
    cluster.start()
    yield cluster
    cluster.kill()


def in_cluster(cluster: ReplicatedRedisCluster, prefix: str, **options: Any) -> Checkpointer:
    given = {"wait_replicas": 1, "buckets": 32, "timeout": 5, "cluster": True, **options}
    return redis_checkpointer(cluster.nodes[-1].url, prefix, **given)


async def test_in_a_cluster_each_save_waits_for_the_replicas_of_its_own_node(cluster: ReplicatedRedisCluster) -> None:
    names = [f"t{number}" for number in range(12)]
    async with in_cluster(cluster, "own:", wait_timeout=0.5, retries=0) as handle:
        await asyncio.gather(*(handle.save(STATE, name, "a") for name in names))
        watched = cluster.primaries()[1]
        silent = cluster.replica_of(watched)
        silent.pause()
        try:
            answers = await asyncio.gather(*(handle.save(LATER, name, "b") for name in names), return_exceptions=True)
        finally:
            silent.resume()
        failed = [name for name, answer in zip(names, answers, strict=True) if isinstance(answer, BaseException)]
        assert 0 < len(failed) < len(names)
        assert all(isinstance(answer, BackendUnavailableError) for answer in answers if answer != "b")
        with Redis(port=watched.port) as client:
            keys = {key.decode().rpartition(":")[2] for key in client.scan_iter("own:*:h:*", count=10_000)}
            assert set(failed) == keys
    async with in_cluster(cluster, "own:") as handle:
        for name in failed:
            assert await handle.save(LATER, name, "b") == "b"
        for name in names:
            await assert_all_load(handle, name, {"a": STATE, "b": LATER})
        await asyncio.gather(*(handle.delete(name) for name in names))
        assert await handle.list_threads() == []


async def test_in_a_cluster_no_save_is_acknowledged_before_replicas_know_the_number_of_buckets(
    cluster: ReplicatedRedisCluster,
) -> None:
    """It decides where a thread is, and it may be on another node."""
    names = [f"t{number}" for number in range(12)]
    keeper = next(node for node in cluster.primaries() if not node.ask("EXISTS first:format").startswith(b"MOVED"))
    silent = cluster.replica_of(keeper)
    silent.pause()
    try:
        for _ in range(2):
            async with in_cluster(cluster, "first:", buckets=8, wait_timeout=0.5, retries=0) as handle:
                saves = await asyncio.gather(*(handle.save(STATE, name) for name in names), return_exceptions=True)
                assert all(isinstance(answer, BackendUnavailableError) for answer in saves)
                assert await handle.load("t0") is None
    finally:
        silent.resume()
    async with in_cluster(cluster, "first:") as handle:
        await asyncio.gather(*(handle.save(STATE, name) for name in names))
        await asyncio.gather(*(handle.delete(name) for name in names))


async def test_in_a_cluster_a_deletion_that_finds_nothing_waits_for_the_node_that_had_it(
    cluster: ReplicatedRedisCluster,
) -> None:
    names = [f"t{number}" for number in range(12)]
    async with in_cluster(cluster, "gone:", wait_timeout=0.5, retries=0) as handle:
        for name in names:
            await handle.save(STATE, name, "a")
            await handle.save(LATER, name, "b")
        silent = cluster.replica_of(cluster.primaries()[1])
        silent.pause()
        try:
            for _ in range(2):
                answers = await asyncio.gather(*(handle.delete(name, "a") for name in names), return_exceptions=True)
                failed = [name for name, answer in zip(names, answers, strict=True) if not isinstance(answer, bool)]
                assert 0 < len(failed) < len(names)
                assert all(isinstance(answer, BackendUnavailableError | bool) for answer in answers)
            with pytest.raises(BackendUnavailableError, match="outcome is unknown"):
                await handle.vacuum(keep_last=1)
        finally:
            silent.resume()
    async with in_cluster(cluster, "gone:") as handle:
        assert await handle.vacuum(keep_last=1) == 0
        for name in names:
            assert not await handle.delete(name, "a")
            assert await handle.delete(name)


async def test_in_a_cluster_a_save_finds_the_node_that_took_its_slot(cluster: ReplicatedRedisCluster) -> None:
    names = [f"t{number}" for number in range(12)]
    async with in_cluster(cluster, "moved:") as handle, in_cluster(cluster, "moved:") as other:
        for name in names:
            await handle.save(STATE, name, "a")
            await other.load(name)
        new = cluster.replica_of(cluster.primaries()[0])
        assert new.ask("CLUSTER FAILOVER") == b"OK"
        await asyncio.to_thread(cluster.until_promoted, new)
        await asyncio.to_thread(cluster.start)  # wait until it has a replica again
        for name in names:
            assert await handle.save(LATER, name, "b") == "b"
        await asyncio.gather(*(other.save(LATER, name, "c") for name in names))
        for name in names:
            assert await handle.list_checkpoints(name) == ["c", "b", "a"]
            assert await other.delete(name)


def _has(node: RedisServer, pattern: str) -> bool:
    with Redis(port=node.port) as client:
        return any(client.scan_iter(pattern, count=10_000))


@pytest.mark.crash
async def test_a_master_of_a_cluster_killed_under_load_loses_nothing_that_its_replica_has_confirmed(
    cluster: ReplicatedRedisCluster, record_property: Callable[[str, object], None]
) -> None:
    async with (
        in_cluster(cluster, "killed:", timeout=4, wait_timeout=1) as handle,
        UnderLoad(handle, writers=8) as load,
    ):
        await load.saved.more_of_each(5)
        doomed = next(node for node in cluster.primaries() if _has(node, "killed:*:h:t0"))
        replica = cluster.replica_of(doomed)
        load.count_from_now()
        await asyncio.to_thread(doomed.kill)
        await asyncio.to_thread(cluster.until_promoted, replica)
        await asyncio.to_thread(cluster.start)  # the one that was killed is its replica now
        await load.saved.more_of_each(5)
    record_property("outage", f"{load.outage:.1f} s")
    async with in_cluster(cluster, "killed:") as reader:
        await load.check(reader)
