"""A primary and its standby: what a handle that names both does when the one takes over from the other."""

from __future__ import annotations

import asyncio
import json
import tempfile
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg_pool import AsyncConnectionPool

from locus.cli import main
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError
from locus.integrations.langgraph import LocusSaver
from locus.memory import get_checkpointer
from locus.memory.backends import PostgreSQLBackend, PostgreSQLConfig, StorageBackendAdapter, postgresql_checkpointer
from locus.memory.backends.postgresql.engine import PostgreSQLEngine
from locus.memory.model.records import Commit, Outcome, TaskWrites
from locus.testing.laws.base import dicts
from tests.backends.failover import Writers, until
from tests.servers.postgresql import PostgreSQLServer, PostgreSQLStandby
from tests.servers.proxy import Proxy

pytestmark = [pytest.mark.postgresql, pytest.mark.timeout(240)]

Record = Callable[[str, object], None]


def ask(server: PostgreSQLServer, *statements: str) -> list[tuple[Any, ...]]:
    """Behind the back of all handles; the rows of the last statement."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        for statement in statements:
            found = connection.execute(statement.encode())
        return list(found.fetchall()) if found.description else []


class Cluster:
    """A primary, and at times a standby, which is a new copy for each test that wants one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._copies = 0
        self.primary: PostgreSQLServer = PostgreSQLServer(folder / "first")
        self.standby: PostgreSQLStandby | None = None

    def set(self, **settings: str) -> None:
        for name, value in settings.items():
            ask(self.primary, f"ALTER SYSTEM SET {name} = '{value}'", "SELECT pg_reload_conf()")

    def add_standby(self) -> PostgreSQLStandby:
        self._copies += 1
        self.standby = PostgreSQLStandby(self._folder / f"copy-{self._copies}", self.primary)
        self.standby.start()
        return self.standby

    async def states(self, *wanted: str) -> None:
        """Wait until these are the states of the primary's standbys."""
        query = "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'"
        await until(lambda: [state for (state,) in ask(self.primary, query)] == list(wanted))

    def url(self, *servers: PostgreSQLServer) -> str:
        """The database of these servers, or of the standby and the primary, in this order."""
        assert servers or self.standby is not None
        named = servers or (self.standby, self.primary)
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in named if server is not None)
        return f"postgresql://locus:{self.primary.secret('password')}@{hosts}/locus"

    def promote(self) -> None:
        """The standby takes over. The one before is not used again."""
        assert self.standby is not None
        self.standby.promote()
        self.promoted()

    def promoted(self) -> None:
        assert self.standby is not None
        old, self.primary, self.standby = self.primary, self.standby, None
        old.kill()

    def end(self) -> None:
        """Leave the primary alone, with nobody to wait for."""
        if self.standby is not None:
            self.standby.kill()
            self.standby = None
        self.set(synchronous_standby_names="", default_transaction_read_only="off")


@pytest.fixture(scope="module")
def servers() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="locus-postgresql-") as folder:
        Path(folder).chmod(0o711)
        cluster = Cluster(Path(folder))
        cluster.primary.start()
        try:
            yield cluster
        finally:
            cluster.primary.kill()


@pytest.fixture
def cluster(servers: Cluster) -> Iterator[Cluster]:
    try:
        yield servers
    finally:
        servers.end()


@pytest_asyncio.fixture
async def ready(cluster: Cluster) -> AsyncIterator[Cluster]:
    """With the tables."""
    async with get_checkpointer(cluster.primary.url) as handle:
        await handle.list_threads()
    yield cluster


async def test_the_standby_takes_over_and_nothing_acknowledged_is_lost(
    ready: Cluster, record_testsuite_property: Record
) -> None:
    """The primary waits for the standby at each commit, is killed under load, and is not started again."""
    standby = ready.add_standby()
    ready.set(synchronous_standby_names=standby.application)
    await ready.states("sync")
    url = ready.url(ready.primary, standby)
    async with (
        get_checkpointer(f"{url}?retry_seconds=0.1") as hasty,
        get_checkpointer(f"{url}?target_session_attrs=read-write&retry_seconds=60") as patient,
    ):
        told, not_told = Writers(hasty, "hasty"), Writers(patient, "patient")
        for writers in (told, not_told):
            writers.start()
            await writers.written.more_of_each(5)
        await asyncio.to_thread(ready.primary.kill)
        await told.all_refused()
        await asyncio.to_thread(ready.promote)
        for writers in (told, not_told):
            await writers.written.more_of_each(5)
            await writers.stop()
        assert not_told.refusals == []
        assert all("takes writes" in text or "cannot be" in text for text in told.refusals)
        assert standby.secret("password") not in "".join(told.refusals)
    async with get_checkpointer(standby.url) as reader:
        assert [await told.lost_in(reader), await not_told.lost_in(reader)] == [0, 0]
    for writers, name in ((told, "hasty"), (not_told, "patient")):
        record_testsuite_property(f"PostgreSQL: seconds without a save, {name}", round(writers.longest, 2))


async def test_what_an_asynchronous_standby_lacks_is_lost(ready: Cluster, record_testsuite_property: Record) -> None:
    """It may lack nothing, too. What it has is whole, and the handle goes on from what is there."""
    standby = ready.add_standby()
    await ready.states("async")
    async with get_checkpointer(f"{ready.url(ready.primary, standby)}?retry_seconds=60") as handle:
        writers = Writers(handle, "asynchronous")
        writers.start()
        await writers.written.more_of_each(3)
        standby.pause()
        await writers.written.more_of_each(10)
        await asyncio.to_thread(ready.primary.kill)
        standby.resume()
        await asyncio.to_thread(ready.promote)
        await writers.written.more_of_each(3)
        await writers.stop()
    async with get_checkpointer(standby.url) as reader:
        lost = await writers.lost_in(reader)
        for number, saved in enumerate(writers.written.of_each):
            assert await reader.load(writers.thread_id(number)) == list(saved.values())[-1]
    record_testsuite_property("PostgreSQL: acknowledged saves that an asynchronous standby lacked", lost)


async def test_a_primary_that_becomes_read_only_is_left_for_the_new_one(ready: Cluster) -> None:
    """A switchover: the old primary runs on and answers on open connections, but takes no writes."""
    standby = ready.add_standby()
    await ready.states("async")
    old = ready.primary
    state = AgentState().with_message(Message.user("hi"))
    with Proxy(old.port) as proxy:
        moved = old.url.replace(str(old.port), str(proxy.port))
        async with (
            get_checkpointer(f"{ready.url(old, standby)}?retry_seconds=0.1&max_pool_size=4") as handle,
            get_checkpointer(f"{moved}?retry_seconds=0&max_pool_size=1") as one_host,
            AsyncConnectionPool(moved, min_size=1, max_size=1, open=False) as pool,
            postgresql_checkpointer(pool=pool, retry_seconds=0) as given_pool,
        ):
            await asyncio.gather(*(handle.save(state, f"t{number}") for number in range(8)))
            await one_host.save(state, "one host")
            await given_pool.save(state, "given pool")
            ready.set(default_transaction_read_only="on")
            for target in (handle, one_host, given_pool):
                await until(partial(refuses, target, state))
                with pytest.raises(BackendUnavailableError, match="read-only"):
                    await target.delete("t0")
            await asyncio.to_thread(standby.promote)
            proxy.target = ("127.0.0.1", standby.port)
            # A pool of psycopg's replaces a connection at once, here by one to the old server.
            await until(lambda: accepts(given_pool, state))
            for target in (handle, one_host, given_pool):
                # At once: no idle connection to the old one is left.
                saved = await asyncio.gather(*(target.save(state, f"after {number}") for number in range(8)))
                assert set(saved) <= {row[0] for row in ask(standby, "SELECT checkpoint_id FROM locus_checkpoints")}
    ready.promoted()


async def refuses(handle: Any, state: AgentState) -> bool:
    """Whether a save is refused now: a server takes a moment to follow new settings."""
    try:
        await handle.save(state, "probe")
    except BackendUnavailableError:
        return True
    return False


async def accepts(handle: Any, state: AgentState) -> bool:
    return not await refuses(handle, state)


def opened_by_every_class(url: str) -> list[Any]:
    password, place = url.removeprefix("postgresql://locus:").split("@")
    hosts, ports = zip(*(host.split(":") for host in place.removesuffix("/locus").split(",")), strict=True)
    pairs = f"host={','.join(hosts)} port={','.join(ports)} dbname=locus user=locus password={password}"
    by_query = f"postgresql:///locus?host={','.join(hosts)}&port={','.join(ports)}&user=locus&password={password}"
    return [
        get_checkpointer(url),
        get_checkpointer(f"{url}?target_session_attrs=primary"),
        get_checkpointer(by_query),
        postgresql_checkpointer(dsn=pairs),
        StorageBackendAdapter(PostgreSQLBackend.from_config(PostgreSQLConfig.from_url(url))),
    ]


async def doctor(url: str) -> list[tuple[str, str]]:
    """What `locus doctor` says of replication: how severe it is, and what it is."""
    with redirect_stdout(StringIO()) as out:
        code = await asyncio.to_thread(main, ["doctor", "--json", "--quick", "-s", url])
    assert code in (0, 1)
    found = json.loads(out.getvalue())["findings"]
    words = ("standby", "asynchronous", "synchronous_commit")
    return [(one["severity"], one["what"]) for one in found if any(word in one["what"] for word in words)]


async def test_of_several_hosts_the_one_is_used_that_takes_writes(
    ready: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if it is not the first, in all classes that open PostgreSQL, and without a word about it in the URL."""
    standby = ready.add_standby()
    url = ready.url()
    state = AgentState().with_message(Message.user("hi"))
    for number, handle in enumerate(opened_by_every_class(url)):
        async with handle:
            await handle.save(state, f"class {number}")
            assert await handle.load(f"class {number}") == state
    async with LocusSaver(url) as saver:
        assert await saver.aget_tuple({"configurable": {"thread_id": "nobody", "checkpoint_ns": ""}}) is None
    assert await asyncio.to_thread(main, ["threads", "-s", url, "--json"]) == 0
    assert "class 0" in capsys.readouterr().out
    assert not [text for _, text in await doctor(url) if "is a standby" in text]
    assert [severity for severity, text in await doctor(standby.url) if "is a standby" in text] == ["error"]
    # Whoever asks for any gets any: a reader.
    async with get_checkpointer(f"{url}?target_session_attrs=any") as reader:
        await until(lambda: there(reader, "class 4"))
        with pytest.raises(BackendUnavailableError, match="read-only"):
            await reader.save(state, "refused")
        with pytest.raises(BackendUnavailableError, match="read-only"):
            await reader.delete("class 0")
        assert await reader.load("class 0") == state


async def there(reader: Any, thread_id: str) -> bool:
    return bool(await reader.exists(thread_id))


async def test_without_a_writable_host_the_error_says_what_each_is(ready: Cluster) -> None:
    standby = ready.add_standby()
    await ready.states("async")
    with Proxy(ready.primary.port) as proxy:
        proxy.refuse()
        url = f"postgresql://locus:{standby.secret('password')}@127.0.0.1:{standby.port},127.0.0.1:{proxy.port}/locus"
        async with get_checkpointer(f"{url}?retry_seconds=0") as handle:
            with pytest.raises(BackendUnavailableError) as failure:
                await handle.save(AgentState(), "t")
            told = str(failure.value)
            assert f"127.0.0.1:{standby.port},127.0.0.1:{proxy.port}/locus takes writes" in told
            assert "read-only" in told
            assert "refused" in told
            assert standby.secret("password") not in "".join(traceback.format_exception(failure.value))
            proxy.accept()
            assert await handle.save(AgentState(), "t")
        wrong = url.replace(standby.secret("password"), "a-wrong-one")
        async with get_checkpointer(f"{wrong}?retry_seconds=60") as handle:
            with pytest.raises(BackendUnavailableError, match="check user, password") as failure:
                await handle.save(AgentState(), "t")
        assert "a-wrong-one" not in "".join(traceback.format_exception(failure.value))


async def test_a_silent_host_leaves_time_for_the_others(ready: Cluster) -> None:
    """As one whose machine is gone: it neither refuses nor answers."""
    with Proxy(ready.primary.port) as silent:
        silent.stall()
        url = ready.url(ready.primary).replace("@", f"@127.0.0.1:{silent.port},")
        async with get_checkpointer(f"{url}?connect_timeout=2&retry_seconds=0", max_pool_size=2) as handle:
            state = AgentState()
            # The second connection does not try the silent one first.
            await asyncio.gather(*(handle.save(state, f"silent {number}") for number in range(4)))
            assert await handle.load("silent 0") == state


@asynccontextmanager
async def impatient(cluster: Cluster) -> AsyncIterator[None]:
    """Somebody who ends every statement that waits for a standby. The first one has waited when this begins."""
    query = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"

    async def end_them() -> None:
        while True:
            await asyncio.to_thread(ask, cluster.primary, query)
            await asyncio.sleep(0.01)

    task = asyncio.create_task(end_them())
    try:
        async with get_checkpointer(cluster.primary.url) as handle:
            await until(lambda: refuses(handle, AgentState()))
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_save_that_no_standby_has_confirmed_is_not_acknowledged(ready: Cluster) -> None:
    """A server that is asked to end a statement stops waiting for its standby, and answers as if all were well."""
    url, told = f"{ready.primary.url}?retry_seconds=0", "no synchronous standby has confirmed"
    state = AgentState().with_message(Message.user("hi"))
    async with get_checkpointer(url) as handle, get_checkpointer(url) as reader:
        before = await handle.save(state, "t")
        ready.set(synchronous_standby_names="nobody")
        async with impatient(ready):
            with pytest.raises(BackendUnavailableError, match=told):
                await handle.save(state, "t", "unconfirmed")
            # It is there, and whoever sends it again is not told that all is well either.
            assert await reader.load("t", "unconfirmed") == state
            with pytest.raises(BackendUnavailableError, match=told):
                await handle.save(state, "t", "unconfirmed")
            saves = (handle.save(state, f"together {number}") for number in range(6))
            answers = await asyncio.gather(*saves, return_exceptions=True)
            assert [type(answer) for answer in answers] == [BackendUnavailableError] * 6
            with pytest.raises(BackendUnavailableError, match=told):
                await handle.delete("t", before)
        # The handle itself ends what takes too long.
        async with get_checkpointer(f"{url}&command_timeout=0.2") as short:
            with pytest.raises(BackendUnavailableError):
                await short.save(state, "t")
        ready.set(synchronous_standby_names="")
        assert await handle.save(state, "t", "unconfirmed") == "unconfirmed"
        assert "unconfirmed" in await handle.list_checkpoints("t")
        assert before not in await handle.list_checkpoints("t")


async def test_saves_that_share_a_commit_wait_for_a_missing_standby_once(
    ready: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are told when that commit is given up. None of them is sent alone then, to wait as long again."""
    standby = ready.add_standby()
    ready.set(synchronous_standby_names=standby.application)
    await ready.states("sync")
    alone: list[str] = []
    grouped: list[str] = []
    commit, commit_together = PostgreSQLEngine.commit, PostgreSQLEngine.commit_together

    async def sent_alone(engine: PostgreSQLEngine, member: Commit) -> Outcome:
        alone.append(member.thread_id)
        return await commit(engine, member)

    async def sent_together(engine: PostgreSQLEngine, group: Sequence[Commit | TaskWrites]) -> list[Outcome | None]:
        grouped.extend(member.thread_id for member in group)
        return await commit_together(engine, group)

    state = AgentState().with_message(Message.user("hi"))
    threads = [f"waits once {number}" for number in range(16)]
    async with postgresql_checkpointer(dsn=ready.primary.url, retry_seconds=0, command_timeout=2) as handle:
        await handle.save(state, "with writes", "c")
        standby.kill()
        await ready.states()
        monkeypatch.setattr(PostgreSQLEngine, "commit", sent_alone)
        monkeypatch.setattr(PostgreSQLEngine, "commit_together", sent_together)
        writes = dicts(handle).put_writes("with writes", "c", "task", [("channel", 1)])
        saves = [handle.save(state, thread_id, "c") for thread_id in threads]
        answers = await asyncio.gather(*saves, writes, return_exceptions=True)
        assert {type(answer) for answer in answers} == {BackendUnavailableError}
        assert all("no synchronous standby has confirmed" in str(answer) for answer in answers)
        assert len({id(answer) for answer in answers}) == len(answers)
        assert len(grouped) > 1
        assert set(alone).isdisjoint(grouped)
        assert {*alone, *grouped} >= {*threads}
        ready.set(synchronous_standby_names="")
        await until(lambda: accepts(handle, state))
        # Whoever tries again finds what is there.
        again = await asyncio.gather(*(handle.save(state, thread_id, "c") for thread_id in threads))
        assert again == ["c"] * len(threads)
        for thread_id in threads:
            assert await handle.list_checkpoints(thread_id) == ["c"]


async def test_what_doctor_says_of_standbys(ready: Cluster) -> None:
    url = ready.primary.url
    assert await doctor(url) == []
    standby = ready.add_standby()
    await ready.states("async")
    ((severity, text),) = await doctor(url)
    assert severity == "warning"
    assert "all standbys are asynchronous" in text
    ready.set(synchronous_standby_names=standby.application)
    await ready.states("sync")
    assert await doctor(url) == []
    ((severity, text),) = await doctor(f"{url}?options=-csynchronous_commit%3Dlocal")
    assert severity == "warning"
    assert "do not wait for the synchronous standby" in text
    standby.kill()
    await ready.states()
    ((severity, text),) = await doctor(url)
    assert severity == "error"
    assert "no synchronous standby is connected" in text
