"""Redis behind sentinels: a primary that is killed, one that was demoted, and sentinels that hang or know nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from locus.cli import main
from locus.core.state import AgentState
from locus.doctor import examine
from locus.errors import BackendUnavailableError
from locus.integrations.langgraph import LocusSaver
from locus.memory import get_checkpointer
from locus.memory.backends import RedisBackend
from locus.memory.backends.redis.client import new_client
from locus.testing.data import conversation, message
from locus.testing.laws.base import assert_all_load, assert_same_state
from tests.backends.under_load import UnderLoad
from tests.servers.redis import ReplicatedRedisServer, SentinelServer, WatchedRedis

pytestmark = pytest.mark.redis("redis-sentinel")

STATE = AgentState().with_messages(conversation(3))
TIMEOUT = 4


class Pair:
    """A primary, a replica, and a sentinel that is in no hurry to replace anything."""

    def __init__(self, folder: Path) -> None:
        self.primary = ReplicatedRedisServer(folder / "primary")
        self.replica = ReplicatedRedisServer(folder / "replica")
        self.sentinel = SentinelServer(folder / "sentinel", self.primary, down_after=60_000)

    def url(self, *others: SentinelServer) -> str:
        addresses = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in (*others, self.sentinel))
        return f"redis+sentinel://{addresses}/mymaster/0"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pair = Pair(tmp_path_factory.mktemp("sentinels"))
    with pair.primary, pair.replica, pair.sentinel:
        pair.replica.follow(pair.primary)
        yield pair
        pair.replica.kill()  # asked to end, it may wait for the rewriting of its log
        pair.primary.kill()


async def test_a_store_is_found_by_its_sentinels(pair: Pair) -> None:
    async with get_checkpointer(f"{pair.url()}?prefix=found:") as handle:
        await handle.save(STATE, "t", "a")
        assert "redis+sentinel" not in handle.store.engine.identity  # it is the store, not the way to it
        backend: Any = handle.backend  # type: ignore[attr-defined]
        assert str(pair.sentinel.port) in repr(backend)
    async with LocusSaver(f"{pair.url()}?prefix=found:") as saver:
        assert saver is not None
    with Redis(port=pair.primary.port) as client:
        assert client.exists("found:format")
        assert not client.scan(match="locus:state:*")[1]


def test_the_command_line_takes_the_url_of_sentinels(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"{pair.url()}?prefix=cli:"
    with get_checkpointer(url).sync as blocking:
        blocking.save(STATE, "t", "a")
    assert main(("log", "t", "-s", url)) == 0
    assert "a" in capsys.readouterr().out
    assert main(("doctor", "--quick", "-s", f"{url}&wait_replicas=1")) in (0, 1)
    wrong = url.replace("mymaster", "other").replace("://", "://eve:s3cret@")
    assert main(("doctor", "--quick", "-s", f"{wrong}&sentinel_password=hush&retries=0")) == 2
    said = capsys.readouterr()
    assert "sentinels name no primary" in said.out + said.err
    assert not [secret for secret in ("s3cret", "hush") if secret in said.out + said.err]


async def test_a_demoted_primary_is_an_outage_and_the_sentinels_are_asked_again(pair: Pair) -> None:
    later = STATE.with_message(message(8))
    async with get_checkpointer(f"{pair.url()}?prefix=demoted:") as handle:
        await handle.save(STATE, "t", "a")
        pair.replica.ask("REPLICAOF NO ONE")
        pair.primary.ask(f"REPLICAOF 127.0.0.1 {pair.replica.port}")
        try:
            for call in (
                handle.save(later, "t", "b"),
                handle.delete("t"),
                handle.put_writes("t", "a", "k", [("x", 1)]),
            ):
                with pytest.raises(BackendUnavailableError, match=r"no sentinel names a primary.*is a replica"):
                    await call
            pair.sentinel.watch(pair.replica)
            assert await handle.save(later, "t", "b") == "b"
            await assert_all_load(handle, "t", {"a": STATE, "b": later})
        finally:
            pair.primary.ask("REPLICAOF NO ONE")
            pair.replica.follow(pair.primary)
            pair.sentinel.watch(pair.primary)


async def test_a_connection_that_was_in_use_does_not_stay_with_the_server_before(pair: Pair) -> None:
    client: Any = new_client(RedisBackend(pair.url()).config)
    pool = client.connection_pool
    try:
        in_use = await pool.get_connection()
        assert in_use.port == pair.primary.port
        pair.replica.ask("REPLICAOF NO ONE")
        pair.sentinel.watch(pair.replica)
        other = await pool.get_connection()
        assert other.port == pair.replica.port
        await pool.release(in_use)
        again = await pool.get_connection()
        assert (again is in_use, again.port) == (True, pair.replica.port)
    finally:
        pair.replica.follow(pair.primary)
        pair.sentinel.watch(pair.primary)
        for opened in (client, *pool.sentinel_manager.sentinels):
            await opened.aclose()


@pytest.mark.parametrize("turns", range(4))
async def test_a_connection_that_is_taken_while_idle_ones_are_closed_is_open(pair: Pair, turns: int) -> None:
    """In a failover requests take connections out of the pool while other requests have the idle ones closed."""
    client: Any = new_client(RedisBackend(pair.url()).config)
    pool = client.connection_pool
    try:
        await pool.release(await pool.get_connection())
        closing = asyncio.create_task(pool.disconnect(inuse_connections=False))
        for _ in range(turns):
            await asyncio.sleep(0)
        taken = await pool.get_connection()
        await closing
        assert taken.is_connected
        await taken.send_command("PING")
        assert await taken.read_response() == b"PONG"
    finally:
        for opened in (client, *pool.sentinel_manager.sentinels):
            await opened.aclose()


async def test_a_sentinel_that_hangs_leaves_the_others_time(pair: Pair, tmp_path: Path) -> None:
    with SentinelServer(tmp_path / "hanging", pair.primary) as hanging:
        hanging.pause()
        async with get_checkpointer(f"{pair.url(hanging)}?prefix=hangs:&timeout=3&connect_timeout=5") as handle:
            await handle.save(STATE, "t", "a")
            assert_same_state(await handle.load("t"), STATE)


async def test_silent_sentinels_at_the_front_cost_no_time(pair: Pair, tmp_path: Path) -> None:
    """If one of them had its time before the next is asked, this would take half an hour."""
    silent = [SentinelServer(tmp_path / f"silent-{number}", pair.primary) for number in range(3)]
    with ExitStack() as running:
        for sentinel in silent:
            running.enter_context(sentinel)
            sentinel.pause()
        for options in ("&timeout=7200&connect_timeout=3600", "&timeout=2&connect_timeout=5&retries=1"):
            async with get_checkpointer(f"{pair.url(*silent)}?prefix=silent:{options}") as handle:
                await asyncio.gather(*(handle.save(STATE, f"t{number}", "a") for number in range(8)))
                pair.primary.ask("CLIENT KILL TYPE normal")
                assert_same_state(await handle.load("t7"), STATE)
                assert await handle.delete("t7")


async def test_whoever_has_answered_is_asked_first_from_then_on(pair: Pair, tmp_path: Path) -> None:
    with SentinelServer(tmp_path / "silent", pair.primary) as silent:
        silent.pause()
        client: Any = new_client(RedisBackend(pair.url(silent)).config)
        known = client.connection_pool.sentinel_manager.sentinels
        try:
            before = list(known)
            await client.ping()
            assert known == before[::-1]
        finally:
            for opened in (client, *known):
                await opened.aclose()


async def test_a_sentinel_that_still_names_the_primary_of_before_is_not_believed(pair: Pair, tmp_path: Path) -> None:
    later = STATE.with_message(message(8))
    with SentinelServer(tmp_path / "late", pair.primary, down_after=60_000) as late:
        url = f"{pair.url(late)}?prefix=late:&retries=0"
        async with get_checkpointer(url) as handle:
            await handle.save(STATE, "t", "a")
        pair.replica.ask("REPLICAOF NO ONE")
        pair.primary.follow(pair.replica)
        pair.sentinel.watch(pair.replica)
        try:
            async with get_checkpointer(url) as handle:
                await handle.save(later, "t", "b")
                await assert_all_load(handle, "t", {"a": STATE, "b": later})
            pair.primary.pause()  # and one whose primary of before says nothing at all
            try:
                async with get_checkpointer(f"{url}&timeout=7200&connect_timeout=3600") as handle:
                    await assert_all_load(handle, "t", {"a": STATE, "b": later})
            finally:
                pair.primary.resume()
        finally:
            pair.primary.ask("REPLICAOF NO ONE")
            pair.replica.follow(pair.primary)
            pair.sentinel.watch(pair.primary)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(("min-replicas-to-write 1",), id="without replicas (NOREPLICAS)"),
        pytest.param(("replica-serve-stale-data no", "REPLICAOF"), id="without its primary (MASTERDOWN)"),
    ],
)
async def test_a_server_that_may_have_been_replaced_is_asked_for_no_longer(
    pair: Pair, settings: tuple[str, ...]
) -> None:
    later = STATE.with_message(message(8))
    async with get_checkpointer(f"{pair.url()}?prefix=replaced:{len(settings)}:") as handle:
        await handle.save(STATE, "t", "a")
        pair.replica.ask("REPLICAOF NO ONE")
        pair.sentinel.watch(pair.replica)
        with Redis(port=pair.primary.port) as client:
            for _ in range(500):
                if not client.info("replication")["connected_slaves"]:
                    break
                await asyncio.sleep(0.02)
            name, value = settings[0].split()
            before = client.config_get(name)[name]
            client.config_set(name, value)
            if len(settings) > 1:
                client.replicaof("127.0.0.1", 1)
            try:
                assert_same_state(await handle.load("t"), STATE)
                assert await handle.save(later, "t", "b") == "b"
                await assert_all_load(handle, "t", {"a": STATE, "b": later})
            finally:
                client.replicaof("NO", "ONE")
                client.config_set(name, before)
                pair.replica.follow(pair.primary)
                pair.sentinel.watch(pair.primary)


@contextmanager
def silent_address() -> Iterator[int]:
    """A port where nothing answers, as of a machine that is gone: neither a connection nor a refusal."""
    with ExitStack() as held:
        door = held.enter_context(socket.socket())
        door.bind(("127.0.0.1", 0))
        door.listen(0)
        for _ in range(8):  # nobody takes them in, and then the system lets no more in
            caller = held.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(door.getsockname())
        yield door.getsockname()[1]


async def test_sentinels_whose_machines_are_gone_leave_the_others_time(pair: Pair) -> None:
    with silent_address() as one, silent_address() as other:
        url = pair.url().replace("://", f"://127.0.0.1:{one},127.0.0.1:{other},")
        async with get_checkpointer(f"{url}?prefix=gone:&timeout=4&connect_timeout=5") as handle:
            await handle.save(STATE, "t", "a")
            assert_same_state(await handle.load("t"), STATE)


async def test_sentinels_that_know_no_primary_say_so_and_show_no_secret(pair: Pair) -> None:
    url = pair.url().replace("mymaster", "other").replace("://", "://eve:s3cret@")
    for handle in (get_checkpointer(f"{url}?sentinel_password=hush&retries=0"), get_checkpointer(f"{url}?retries=0")):
        async with handle:
            with pytest.raises(BackendUnavailableError, match="sentinels name no primary") as caught:
                await handle.load("t")
            shown = [repr(handle), *_told(caught.value)]
            assert not [text for text in shown if "s3cret" in text or "hush" in text or "eve" in text]


def _told(error: BaseException | None) -> list[str]:
    found: list[str] = []
    while error is not None:
        found.append(f"{error} {error!r}")
        error = error.__cause__ or error.__context__
    return found


async def test_the_sentinels_have_a_password_of_their_own(pair: Pair, tmp_path: Path) -> None:
    with SentinelServer(tmp_path / "locked", pair.primary, password="hush") as locked:
        url = f"redis+sentinel://127.0.0.1:{locked.port}/mymaster?prefix=locked:&retries=0"
        async with get_checkpointer(url) as handle:
            with pytest.raises(BackendUnavailableError, match="sentinel_password"):
                await handle.save(STATE, "t")
        async with get_checkpointer(f"{url}&sentinel_password=hush") as handle:
            await handle.save(STATE, "t")


async def test_doctor_says_what_a_failover_may_lose(pair: Pair) -> None:
    async def told(options: str) -> list[tuple[str, str]]:
        async with get_checkpointer(f"{pair.url()}?prefix=doctor:{options}") as handle:
            found = await examine(handle.store, read_all=False)
            assert found.reached
            return [(finding.severity, finding.what) for finding in found.findings if "appendfsync" not in finding.what]

    async with get_checkpointer(f"{pair.url()}?prefix=doctor:") as handle:
        await handle.save(STATE, "t")
    without = await told("")
    assert [severity for severity, _ in without] == ["warning", "warning"]
    assert "before its replicas have it" in without[0][1]
    assert "min-replicas-to-write is 0" in without[1][1]
    assert await told("&wait_replicas=1") == []
    ((severity, what),) = await told("&wait_replicas=2")
    assert (severity, "wait_replicas is 2" in what) == ("error", True)


async def test_no_sentinel_is_forgotten_when_many_connections_ask_at_once(pair: Pair, tmp_path: Path) -> None:
    with SentinelServer(tmp_path / "other", pair.primary) as other:
        async with get_checkpointer(f"{pair.url(other)}?prefix=many:") as handle:
            await handle.save(STATE, "t")
            for gone, there in ((other, pair.sentinel), (pair.sentinel, other)):
                gone.kill()
                if not there.is_running:
                    there.start()
                pair.primary.ask("CLIENT KILL TYPE normal")
                await asyncio.gather(*(handle.load("t") for _ in range(8)))
            pair.sentinel.start()


@pytest.mark.crash
@pytest.mark.parametrize(
    "silent",
    [
        pytest.param(0, id="all sentinels awake"),
        # One run in eight left a socket to be closed by the garbage collector. Nobody saw which; the race that the
        # test about idle connections shows is mended since.
        pytest.param(1, id="the first sentinel silent", marks=pytest.mark.soak),
    ],
)
async def test_a_primary_killed_under_load_loses_nothing_that_a_replica_has_confirmed(
    tmp_path: Path, record_property: Callable[[str, object], None], silent: int
) -> None:
    with WatchedRedis(tmp_path) as watched:
        for sentinel in watched.sentinels[:silent]:
            sentinel.pause()
        async with (
            get_checkpointer(f"{watched.url}?wait_replicas=1&timeout={TIMEOUT}&wait_timeout=1") as handle,
            UnderLoad(handle) as load,
        ):
            await load.saved.more_of_each(10)
            killed = watched.primary()
            load.count_from_now()
            await asyncio.to_thread(killed.kill)
            await load.saved.more_of_each(10)
        record_property("outage", f"{load.outage:.1f} s")
        # A save that is tried again may outlast the failover. None waits for longer without being told.
        assert load.errors or load.outage < 3 * TIMEOUT
        assert watched.primary() is not killed
        async with get_checkpointer(watched.url) as reader:
            await load.check(reader)
