"""A source and its replica: what a handle that names both does when the one takes over from the other."""

from __future__ import annotations

import asyncio
import json
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from locus.cli import main
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError, ConfigurationError
from locus.memory import get_checkpointer
from locus.memory.backends import MySQLBackend, MySQLConfig, StorageBackendAdapter, mysql_checkpointer
from tests.backends.failover import Writers, until
from tests.servers.mysql import ReplicatedMySQLServer
from tests.servers.proxy import Proxy

pytestmark = [pytest.mark.mysql, pytest.mark.timeout(240)]

Record = Callable[[str, object], None]
LONG = 3_600_000
"""Milliseconds: as good as for ever."""


class Pair:
    """Two servers. One of them takes writes, and the other follows it."""

    def __init__(self, folder: Path) -> None:
        self.source, self.replica = ReplicatedMySQLServer.two(folder)

    async def follow(self, *, semisynchronous: bool) -> None:
        """Let the replica follow the source, and wait until it does."""
        self.replica.follow(self.source, semisynchronous=semisynchronous)
        self.source.ask(
            f"SET GLOBAL rpl_semi_sync_source_timeout = {LONG}",
            f"SET GLOBAL rpl_semi_sync_source_enabled = {'ON' if semisynchronous else 'OFF'}",
        )
        if semisynchronous:
            query = "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_source_clients'"
            await until(lambda: self.source.ask(query)[0]["Value"] == "1")
        await until(lambda: len(self.source.ask("SHOW REPLICAS")) == 1)

    def switch(self) -> None:
        """They have changed their places."""
        self.source, self.replica = self.replica, self.source

    def url(self, *servers: ReplicatedMySQLServer) -> str:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
        return f"mysql://locus:{self.source.secret('password')}@{hosts}/locus"

    def stop(self) -> None:
        for server in (self.source, self.replica):
            server.kill()


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with tempfile.TemporaryDirectory(prefix="locus-mysql-") as folder:
        pair = Pair(Path(folder))
        try:
            yield pair
        finally:
            pair.stop()


async def doctor(url: str) -> list[tuple[str, str]]:
    """What `locus doctor` says of replication: how severe it is, and what it is."""
    with redirect_stdout(StringIO()) as out:
        code = await asyncio.to_thread(main, ["doctor", "--json", "--quick", "-s", url])
    assert code in (0, 1)
    found = json.loads(out.getvalue())["findings"]
    words = ("replica", "read-only", "sync_binlog")
    return [(one["severity"], one["what"]) for one in found if any(word in one["what"] for word in words)]


async def test_a_source_that_becomes_read_only_is_left_for_the_new_one(pair: Pair) -> None:
    """A switchover: the old source runs on and answers on open connections, but takes no writes."""
    await pair.follow(semisynchronous=False)
    old, new = pair.source, pair.replica
    state = AgentState().with_message(Message.user("hi"))
    with Proxy(old.port) as proxy:
        # The replica first: it takes no writes, so it is passed over.
        several = f"{pair.url(new, old)}?retry_seconds=0.1&max_pool_size=4"
        moved = old.url.replace(str(old.port), str(proxy.port))
        async with (
            get_checkpointer(several) as handle,
            get_checkpointer(f"{moved}?retry_seconds=0&max_pool_size=1") as one_host,
        ):
            await asyncio.gather(*(handle.save(state, f"t{number}") for number in range(8)))
            await one_host.save(state, "one host")
            old.ask("SET GLOBAL super_read_only = ON")
            for target in (handle, one_host):
                for _ in range(2):
                    with pytest.raises(BackendUnavailableError, match="read-only"):
                        await target.save(state, "t0")
                with pytest.raises(BackendUnavailableError, match="read-only"):
                    await target.delete("t0")
            await asyncio.to_thread(new.promote)
            pair.switch()
            proxy.target = ("127.0.0.1", new.port)
            for target in (handle, one_host):
                # At once: no idle connection to the old one is left.
                saved = await asyncio.gather(*(target.save(state, f"after {number}") for number in range(8)))
                there = {row["checkpoint_id"] for row in new.ask("SELECT checkpoint_id FROM locus.locus_checkpoints")}
                assert set(saved) <= there


async def test_what_doctor_says_of_replicas(pair: Pair) -> None:
    url = pair.source.url
    async with get_checkpointer(url) as handle:
        await handle.list_threads()
    pair.source.ask("SET GLOBAL sync_binlog = 1", "SET GLOBAL rpl_semi_sync_source_enabled = OFF")
    await pair.follow(semisynchronous=True)
    assert await doctor(url) == []
    pair.source.ask("SET GLOBAL rpl_semi_sync_source_timeout = 10000")
    ((severity, text),) = await doctor(url)
    assert severity == "warning"
    assert "within 10 s is acknowledged all the same" in text
    pair.source.ask("SET GLOBAL rpl_semi_sync_source_enabled = OFF", "SET GLOBAL sync_binlog = 0")
    found = await doctor(url)
    assert [severity for severity, _ in found] == ["warning", "warning"]
    assert "sync_binlog is not 1" in found[0][1]
    assert "all replicas are asynchronous" in found[1][1]
    on_replica = await doctor(pair.replica.url)
    assert [severity for severity, text in on_replica if "this server is" in text] == ["error", "error"]
    assert await doctor(pair.url(pair.replica, pair.source)) == found


async def test_without_a_writable_host_the_error_says_what_each_is(pair: Pair) -> None:
    old = pair.replica.ask("SELECT @@global.super_read_only AS kept")[0]["kept"]
    pair.replica.ask("SET GLOBAL super_read_only = ON")
    state = AgentState().with_message(Message.user("hi"))
    with Proxy(pair.source.port) as proxy:
        proxy.refuse()
        url = pair.url(pair.replica, pair.source).replace(str(pair.source.port), str(proxy.port))
        async with get_checkpointer(f"{url}?retry_seconds=0&connect_timeout=4") as handle:
            with pytest.raises(BackendUnavailableError) as failure:
                await handle.save(state, "t")
            told = str(failure.value)
            assert f"127.0.0.1:{pair.replica.port},127.0.0.1:{proxy.port}/locus takes writes" in told
            assert "read-only" in told
            assert pair.source.secret("password") not in "".join(traceback.format_exception(failure.value))
            proxy.accept()
            assert await handle.save(state, "t")
        wrong = url.replace(pair.source.secret("password"), "a-wrong-one")
        async with get_checkpointer(f"{wrong}?retry_seconds=60") as handle:
            with pytest.raises(BackendUnavailableError, match="check user and password"):
                await handle.save(state, "t")
        # One that neither refuses nor answers leaves time for the other.
        proxy.stall()
        silent = pair.url(pair.source).replace("@", f"@127.0.0.1:{proxy.port},")
        async with get_checkpointer(f"{silent}?connect_timeout=2&retry_seconds=0") as handle:
            assert await handle.save(state, "silent")
    pair.replica.ask(f"SET GLOBAL super_read_only = {old}")


async def test_the_replica_takes_over_and_nothing_acknowledged_is_lost(
    pair: Pair, record_testsuite_property: Record
) -> None:
    """The source waits for the replica at each commit, is killed under load, and is not started again."""
    async with get_checkpointer(pair.source.url) as handle:
        await handle.list_threads()
    await pair.follow(semisynchronous=True)
    old, new = pair.source, pair.replica
    url = pair.url(old, new)
    async with (
        get_checkpointer(f"{url}?retry_seconds=0.1") as hasty,
        get_checkpointer(f"{url}?retry_seconds=60") as patient,
    ):
        told, not_told = Writers(hasty, "hasty"), Writers(patient, "patient")
        for writers in (told, not_told):
            writers.start()
            await writers.written.more_of_each(5)
        await asyncio.to_thread(old.kill)
        await told.all_refused()
        await asyncio.to_thread(new.promote)
        pair.switch()
        for writers in (told, not_told):
            await writers.written.more_of_each(5)
            await writers.stop()
        assert not_told.refusals == []
        assert new.secret("password") not in "".join(told.refusals)
    async with get_checkpointer(new.url) as reader:
        assert [await told.lost_in(reader), await not_told.lost_in(reader)] == [0, 0]
    for writers, name in ((told, "hasty"), (not_told, "patient")):
        record_testsuite_property(f"MySQL: seconds without a save, {name}", round(writers.longest, 2))


def test_several_hosts_are_options_of_all_classes() -> None:
    url = "mysql://me:s3cret@[::1]:3308,one:3307,two/app?table_name=agents"
    places = [("::1", 3308), ("one", 3307), ("two", 3306)]
    for backend in (
        MySQLBackend(dsn=url),
        MySQLBackend.from_config(MySQLConfig.from_url(url)),
        MySQLBackend("[::1]:3308,one:3307,two", database="app", user="me", password="s3cret", table_name="agents"),
    ):
        assert backend.config.places == places
        assert (backend.database, backend.table_name) == ("app", "agents")
        assert backend.store.engine.identity.startswith("mysql:::1:3308,one:3307,two:3306/app/")
        assert "s3cret" not in repr(backend) + repr(backend.config)
    assert isinstance(mysql_checkpointer(dsn=url), StorageBackendAdapter)
    assert MySQLConfig(host="::1").places == [("::1", 3306)]
    for wrong in ("one,", "one:x,two", "one/a,two"):
        with pytest.raises(ConfigurationError, match="several hosts"):
            MySQLBackend(wrong)
    with pytest.raises(ConfigurationError, match="give user="):
        MySQLBackend("me@one,two")
