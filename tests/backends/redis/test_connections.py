"""Connections and clients: given, shared, lost, idle, and refused."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis.asyncio
from redis import Redis

from locus.core.state import AgentState
from locus.errors import BackendUnavailableError, CapabilityError, ConfigurationError
from locus.memory.backends import RedisBackend, redis_checkpointer
from locus.memory.backends.adapters import StorageBackendAdapter
from locus.testing.data import conversation, message
from locus.testing.laws.base import assert_same_state
from tests.backends.redis.stores import ClusterStore, RedisStore
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisCluster, RedisServer

PASSWORD = "not-to-be-shown"


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_client_that_is_given_is_used_and_left_open(store: RedisStore, protocol: int) -> None:
    client = redis.asyncio.Redis(port=store.server.port, protocol=protocol)
    backend = RedisBackend(prefix=store.prefix, client=client)
    async with StorageBackendAdapter(backend) as handle:
        await handle.save(AgentState(), "t", metadata={"k": 1})
        assert await handle.list_threads() == ["t"]
        assert len(await handle.query_by_metadata("k", 1)) == 1
        assert len(await handle.list_with_metadata()) == 1
        assert await handle.copy_thread("t", "u")
    assert await client.ping()
    assert await backend.exists("t"), "a closed handle opens anew"
    await client.aclose()


async def test_a_cluster_client_that_is_given_is_used_and_left_open(redis_cluster: RedisCluster) -> None:
    store = ClusterStore(redis_cluster)
    client = redis.asyncio.RedisCluster(host="127.0.0.1", port=redis_cluster.port)
    async with RedisBackend(prefix=store.prefix, client=client) as backend:
        await backend.save("t", {"n": 1})
        assert await backend.list_threads() == ["t"]
    assert await client.ping()
    await client.aclose()
    store.remove()


async def test_many_first_requests_to_a_cluster_find_their_nodes(redis_cluster: RedisCluster) -> None:
    """None goes to a node by chance: the driver closes every connection after five that did."""
    store = ClusterStore(redis_cluster)
    for node in redis_cluster.nodes:
        assert node.ask("CONFIG RESETSTAT") == b"OK"
    async with redis_checkpointer(redis_cluster.url, store.prefix, cluster=True, retries=0) as handle:
        await asyncio.gather(*(handle.save(AgentState(), f"t{number}") for number in range(12)))
        assert len(await handle.list_threads()) == 12
    assert not [node.port for node in redis_cluster.nodes if b"errorstat_MOVED" in node.ask("INFO errorstats")]
    store.remove()


async def test_a_client_that_decodes_is_refused(store: RedisStore) -> None:
    client = redis.asyncio.Redis(port=store.server.port, decode_responses=True)
    with pytest.raises(ConfigurationError, match="decode_responses"):
        RedisBackend(client=client)
    await client.aclose()


async def test_scripts_that_the_server_forgot_are_sent_again(store: RedisStore) -> None:
    async with store.open() as handle:
        state = AgentState().with_messages(conversation(3))
        for turn in range(3):
            with store.client() as client:
                client.script_flush()
            state = state.with_message(message(turn))
            await handle.save(state, "t", metadata={"k": 1})
            with store.client() as client:
                client.script_flush()
            assert await handle.list_threads() == ["t"]
            assert len(await handle.query_by_metadata("k", 1)) == turn + 1
            assert_same_state(await handle.load("t"), state)


async def test_a_connection_closed_by_the_server_is_replaced_without_an_error(store: RedisStore) -> None:
    async with store.open() as handle:
        await handle.save(AgentState(), "t")
        for _ in range(3):
            with store.client() as client:
                client.client_kill_filter(_type="normal", skipme=True)
            await handle.save(AgentState(), "t")
            with store.client() as client:
                client.client_kill_filter(_type="normal", skipme=True)
            assert await handle.list_threads() == ["t"]
        assert len(await handle.list_checkpoints("t")) == 4


async def test_more_requests_than_connections_wait_for_each_other(store: RedisStore) -> None:
    async with redis_checkpointer(f"{store.url}&max_connections=2") as handle:
        await asyncio.gather(*(handle.save(AgentState(), f"t{number:02}") for number in range(50)))
        assert len(await handle.list_threads()) == 50
        with store.client() as client:
            mine = [known for known in client.client_list() if known["cmd"] in ("evalsha", "eval", "hmget")]
        assert len(mine) <= 2


async def test_loops_leave_no_connections_behind(store: RedisStore) -> None:
    handle = store.open()
    with store.client() as client:
        before = len(client.client_list())

    def save_in_a_loop_of_its_own(number: int) -> None:
        asyncio.run(handle.save(AgentState(), f"t{number}"))

    for number in range(5):
        await asyncio.to_thread(save_in_a_loop_of_its_own, number)
    handle.sync.save(AgentState(), "by the portal")
    await handle.close()
    with store.client() as client:
        async with asyncio.timeout(20):
            while len(client.client_list()) != before:  # noqa: ASYNC110 - the server takes a moment to notice
                await asyncio.sleep(0.01)


async def test_search_is_seen_on_first_use(store: RedisStore, redis_stack_server: RedisServer) -> None:
    address = f"redis://127.0.0.1:{redis_stack_server.port}?prefix={store.prefix}"
    async with redis_checkpointer(address) as handle:
        found = [handle.capabilities.search]
        await handle.save(AgentState().with_error("godwit"), "t")
        found.append(handle.capabilities.search)
        assert found == [False, True]
        assert len(await handle.search("godwit")) == 1
        await handle.delete("t")
    async with redis_checkpointer(f"redis://127.0.0.1:{store.server.port}?prefix={store.prefix}") as handle:
        with pytest.raises(CapabilityError, match="Search module"):
            await handle.search("word")
        assert not handle.capabilities.search
    with Redis(port=redis_stack_server.port) as client:
        client.execute_command("FT.DROPINDEX", f"{store.prefix}search")
        for key in client.scan_iter(f"{store.prefix}*"):
            client.unlink(key)


async def test_search_that_was_asked_for_and_is_not_there_says_so(store: RedisStore) -> None:
    async with redis_checkpointer(store.url.replace("search=False", "search=True")) as handle:
        with pytest.raises(CapabilityError, match="Search module"):
            await handle.search("word")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that asks for a password, and knows a user with few rights."""
    with RedisServer(tmp_path / "server") as server:
        with Redis(port=server.port) as client:
            client.acl_setuser("narrow", enabled=True, passwords=[f"+{PASSWORD}"], keys=["mine:*"], commands=["+@all"])
            client.config_set("requirepass", PASSWORD)
        yield server


async def test_passwords(guarded: RedisServer) -> None:
    address = f"127.0.0.1:{guarded.port}"
    async with redis_checkpointer(f"redis://:{PASSWORD}@{address}") as handle:
        await handle.save(AgentState(), "t")
    async with redis_checkpointer(f"redis://{address}", username="narrow", password=PASSWORD, prefix="mine:") as handle:
        await handle.save(AgentState(), "t")
        assert await handle.list_threads() == ["t"]
    for url, prefix, advice in (
        (f"redis://{address}", "p:", "password"),
        (f"redis://:wrong-{PASSWORD}@{address}", "p:", "password"),
        (f"redis://narrow:{PASSWORD}@{address}", "not-mine:", "rights"),
    ):
        async with redis_checkpointer(url, prefix) as handle:
            for call in (handle.load("t"), handle.save(AgentState(), "t")):
                with pytest.raises(BackendUnavailableError, match=advice) as caught:
                    await call
                assert caught.value.__cause__ is not None
                assert PASSWORD not in f"{caught.value} {caught.value.__cause__} {caught.value!r}"


async def test_the_rights_in_the_documentation_are_enough(guarded: RedisServer) -> None:
    page = (Path(__file__).parents[3] / "docs" / "backends" / "redis.md").read_text(encoding="utf-8")
    rights = re.search(r"ACL SETUSER locus on >password (.*?)```", page, re.DOTALL)
    assert rights is not None
    with Redis(port=guarded.port, password=PASSWORD) as client:
        client.execute_command("ACL", "SETUSER", "locus", "on", f">{PASSWORD}", *rights[1].split())
    address = f"redis://locus:{PASSWORD}@127.0.0.1:{guarded.port}"
    async with redis_checkpointer(address) as handle, redis_checkpointer(address, ttl_seconds=60) as passing:
        for turn in range(3):
            state = AgentState().with_messages(conversation(2, turn))
            for each in (handle, passing):
                await each.save(state, "t", f"c{turn}", {"k": turn})
                await each.save(state.with_error("x"), "t", f"c{turn}", {"k": turn})
        await passing.put_writes("t", "c1", "task", [("x", 1), ("__error__", 2)])
        await handle.put_writes("waiting", "c1", "task", [("x", 1)])
        await passing.put_writes("waiting", "c2", "task", [("x", 1)])
        await handle.save(AgentState(), "t", "c3", namespace="other")
        assert len(await handle.get_writes("t", "c1")) == 2
        assert await handle.copy_thread("t", "u")
        assert await handle.list_threads() == ["t", "u"]
        assert len(await handle.query_by_metadata("k", 1)) == 2
        assert len(await handle.list_with_metadata()) == 8
        assert len(await handle.history("t", before="c2")) == 2
        assert await handle.delete("t", "c0")
        assert await handle.vacuum(keep_last=1) > 0
        assert await handle.delete("u")
        assert not handle.capabilities.search


async def test_a_cluster_opened_as_a_single_server_says_so(redis_cluster: RedisCluster) -> None:
    async with redis_checkpointer(redis_cluster.url) as handle:
        with pytest.raises(BackendUnavailableError, match="cluster=True"):
            for number in range(50):
                await handle.save(AgentState(), f"t{number}")


async def test_nobody_listens(proxy: Proxy) -> None:
    proxy.refuse()
    async with redis_checkpointer(f"redis://127.0.0.1:{proxy.port}", retries=0) as handle:
        with pytest.raises(BackendUnavailableError) as caught:
            await handle.load("t")
    assert caught.value.__cause__ is not None
