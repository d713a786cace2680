"""Redis when it fails: killed, paused, full, read-only, and cut off in the middle of a request."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis import Redis

from locus.core.state import AgentState
from locus.errors import BackendUnavailableError, CheckpointError
from locus.memory.backends import redis_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import conversation, message
from locus.testing.laws.base import assert_all_load, assert_same_state
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisCluster, RedisServer

pytestmark = pytest.mark.redis("redis")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """One of its own, which waits for the disk before it answers."""
    with RedisServer(tmp_path / "server", durable=True) as server:
        yield server


@asynccontextmanager
async def _changed(server: RedisServer, **settings: object) -> AsyncIterator[None]:
    """The server with other settings."""
    with Redis(port=server.port) as client:
        before = {name: client.config_get(name)[name] for name in settings}
        for name, value in settings.items():
            client.config_set(name, str(value))
        yield
        for name, was in before.items():
            client.config_set(name, was)


@pytest.mark.crash
async def test_a_server_killed_under_load_loses_nothing_that_was_acknowledged(server: RedisServer) -> None:
    saved: dict[str, dict[str, AgentState]] = {f"t{number}": {} for number in range(4)}
    begun: dict[str, dict[str, AgentState]] = {name: {} for name in saved}
    stop = asyncio.Event()

    async def save_on(handle: Checkpointer, thread_id: str) -> None:
        state, turn = AgentState(), 0
        while not stop.is_set():
            turn += 1
            following = state.with_message(message(turn))
            begun[thread_id][f"c{turn}"] = following
            try:
                await handle.save(following, thread_id, f"c{turn}")
            except BackendUnavailableError:
                await asyncio.sleep(0.05)
                continue
            saved[thread_id][f"c{turn}"] = state = following

    async with redis_checkpointer(server.url, timeout=2) as handle:
        tasks = [asyncio.ensure_future(save_on(handle, thread_id)) for thread_id in saved]
        chance = random.Random(1)
        for _ in range(3):
            await asyncio.sleep(chance.uniform(0.1, 0.4))
            await asyncio.to_thread(server.kill)
            await asyncio.sleep(0.05)
            await asyncio.to_thread(server.start)
        await asyncio.sleep(0.3)
        stop.set()
        await asyncio.gather(*tasks)
    async with redis_checkpointer(server.url) as reader:
        assert await reader.list_threads() == sorted(saved)
        for thread_id, states in saved.items():
            assert len(states) > 3
            found = set(await reader.list_checkpoints(thread_id, None))  # type: ignore[arg-type]
            assert set(states) <= found <= set(begun[thread_id])
            for checkpoint_id in found:
                assert_same_state(await reader.load(thread_id, checkpoint_id), begun[thread_id][checkpoint_id])


async def test_a_full_server_says_so_and_can_be_relieved(server: RedisServer) -> None:
    async with redis_checkpointer(server.url) as handle:
        state = AgentState().with_messages(conversation(5))
        await handle.save(state, "t", "a", {"k": 1})
        await handle.save(state.with_message(message(9)), "t", "b")
        async with _changed(server, maxmemory=1, **{"maxmemory-policy": "noeviction"}):
            for call in (
                handle.save(state.with_message(message(7)), "t", "c"),
                handle.save(state, "new"),
                handle.put_writes("t", "a", "task", [("x", 1)]),
                handle.copy_thread("t", "copy"),
            ):
                with pytest.raises(BackendUnavailableError, match="out of memory"):
                    await call
            assert_same_state(await handle.load("t", "a"), state)
            assert await handle.list_threads() == ["t"]
            assert await handle.delete("t", "b")
            assert await handle.list_checkpoints("t") == ["a"]
            assert await handle.delete("t")
        await handle.save(state, "t", if_latest=None)


async def test_a_replica_answers_reads_and_refuses_to_write(server: RedisServer, tmp_path: Path) -> None:
    state = AgentState().with_messages(conversation(5))
    async with redis_checkpointer(server.url) as handle:
        await handle.save(state, "t", "a", {"k": 1})
    with Redis(port=server.port) as client:
        # It would wait five seconds for other replicas.
        client.config_set("repl-diskless-sync-delay", "0")
    with RedisServer(tmp_path / "replica") as replica, Redis(port=replica.port) as client:
        client.replicaof("127.0.0.1", server.port)
        for _ in range(500):
            if client.info("replication")["master_link_status"] == "up":
                break
            await asyncio.sleep(0.02)
        async with redis_checkpointer(replica.url, retries=1) as handle:
            assert_same_state(await handle.load("t"), state)
            assert await handle.list_threads() == ["t"]
            assert len(await handle.query_by_metadata("k", 1)) == 1
            for call in (handle.save(state, "t"), handle.delete("t"), handle.put_writes("t", "a", "k", [("x", 1)])):
                with pytest.raises(BackendUnavailableError, match="replica"):
                    await call
        # Asked to end it may wait for the rewriting of its log.
        replica.kill()


async def test_too_few_replicas_refuse_a_save_and_nothing_is_written(server: RedisServer) -> None:
    async with redis_checkpointer(server.url) as handle:
        await handle.save(AgentState(), "t", "a")
        async with _changed(server, **{"min-replicas-to-write": 1}):
            with pytest.raises(BackendUnavailableError, match="min-replicas-to-write"):
                await handle.save(AgentState(), "t", "b")
        assert await handle.list_checkpoints("t") == ["a"]


async def test_a_paused_server_is_a_time_out_and_the_save_is_there_once_afterwards(server: RedisServer) -> None:
    async with redis_checkpointer(server.url, timeout=1.0, retries=1) as handle:
        state = AgentState().with_messages(conversation(3))
        later = state.with_message(message(8))
        await handle.save(state, "t", "a")
        server.pause()
        try:
            for call in (handle.load("t"), handle.save(later, "t", "b"), handle.list_threads()):
                with pytest.raises(BackendUnavailableError, match="in time"):
                    await call
        finally:
            server.resume()
        assert await handle.save(later, "t", "b") == "b"
        await assert_all_load(handle, "t", {"a": state, "b": later})


@pytest.mark.parametrize("direction", ["to_server", "from_server"])
async def test_connections_cut_in_the_middle_of_a_request(server: RedisServer, direction: str) -> None:
    """The answer is lost, or only half of the request arrives: it is sent again, and counts once."""
    chance = random.Random(7)
    with Proxy(server.port) as proxy:
        async with redis_checkpointer(f"redis://127.0.0.1:{proxy.port}", timeout=5) as handle:
            state = AgentState()
            expected: dict[str, AgentState] = {}
            for turn in range(40):
                state = state.with_message(message(turn))
                budget = chance.randrange(1, 1_500 if direction == "to_server" else 40)
                proxy.cut_after(**{direction: budget})
                expected[await handle.save(state, "t", None if turn % 2 else f"c{turn}")] = state
                if turn % 8 == 7:
                    proxy.cut_after(**{direction: chance.randrange(1, 200 if direction == "to_server" else 20)})
                    doomed = next(iter(expected))
                    assert await handle.delete("t", doomed)
                    del expected[doomed]
            proxy.accept()
            await assert_all_load(handle, "t", expected)
            seqs = [entry.seq for entry in await handle.history("t", None)]
            assert len(seqs) == len(expected)
            proxy.cut_after(**{direction: 10})
            assert await handle.delete("t"), "it was there, and this call has removed it"


async def test_a_slow_network_is_only_slow(server: RedisServer) -> None:
    with Proxy(server.port) as proxy:
        async with redis_checkpointer(f"redis://127.0.0.1:{proxy.port}", timeout=5) as handle:
            await handle.save(AgentState(), "t")
            proxy.delay(0.1)
            await handle.save(AgentState(), "t")
            assert len(await handle.list_checkpoints("t")) == 2


async def test_a_stalled_network_is_a_time_out(server: RedisServer) -> None:
    with Proxy(server.port) as proxy:
        async with redis_checkpointer(f"redis://127.0.0.1:{proxy.port}", timeout=1.0, retries=0) as handle:
            state = AgentState().with_messages(conversation(2))
            await handle.save(state, "t")
            proxy.stall()
            for _ in range(2):
                with pytest.raises(BackendUnavailableError, match="in time"):
                    await handle.load("t")
            proxy.accept()
            assert_same_state(await handle.load("t"), state)


async def test_a_server_that_cannot_write_to_its_disk_says_so(server: RedisServer) -> None:
    """MISCONF: it refuses to change anything while its snapshots fail."""
    async with redis_checkpointer(server.url) as handle:
        await handle.save(AgentState(), "t", "a")
        with Redis(port=server.port) as client:
            client.config_set("save", "3600 1")
            shutil.rmtree(server.data)
            client.bgsave()
            for _ in range(500):
                if client.info("persistence")["rdb_last_bgsave_status"] == "err":
                    break
                await asyncio.sleep(0.02)
            with pytest.raises(CheckpointError, match="disk"):
                await handle.save(AgentState(), "t", "b")
            client.config_set("save", "")
        assert await handle.list_checkpoints("t") == ["a"]


@pytest.mark.redis("redis-cluster")
async def test_a_cluster_that_lost_a_node_says_so_and_goes_on_where_it_can(redis_cluster: RedisCluster) -> None:
    prefix = f"test:{random.randrange(10**9)}:"
    async with redis_checkpointer(f"{redis_cluster.url}?cluster=true&timeout=2", prefix, retries=0) as handle:
        names = [f"t{number}" for number in range(12)]
        state = AgentState().with_messages(conversation(2))
        for name in names:
            await handle.save(state, name)
        redis_cluster.nodes[1].kill()
        answers = await asyncio.gather(*(handle.load(name) for name in names), return_exceptions=True)
        lost = [answer for answer in answers if isinstance(answer, BaseException)]
        assert lost
        assert all(isinstance(answer, BackendUnavailableError) for answer in lost)
        assert None not in answers
        await asyncio.to_thread(redis_cluster.start)
        for name in names:
            assert_same_state(await handle.load(name), state)
            assert await handle.delete(name)
