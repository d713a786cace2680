"""Connections: those that die, those that are given, those of loops that ended; and how few round trips are made."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError, ConfigurationError, SerializationError
from locus.extras import require
from locus.memory.backends import MySQLBackend, mysql_checkpointer
from locus.memory.backends.mysql.client import MySQLConnection, Result
from locus.memory.backends.mysql.engine import MySQLEngine
from locus.memory.backends.sql.flavour import Steps
from tests.backends.mysql.stores import raw_connection, run_sql, with_port
from tests.servers.mysql import MySQLServer
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.mysql


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many statements went along in each round trip."""
    made: list[int] = []
    send = MySQLConnection.send

    async def counted(self: MySQLConnection, statements: Sequence[tuple[str, Sequence[Any]]]) -> list[Result]:
        made.append(len(statements))
        return await send(self, statements)

    monkeypatch.setattr(MySQLConnection, "send", counted)
    return made


def said(state: AgentState, text: str) -> AgentState:
    return state.with_message(Message.user(text))


async def test_a_save_and_a_load_are_one_round_trip_each_and_two_where_others_save(url: str, trips: list[int]) -> None:
    async with mysql_checkpointer(dsn=url) as checkpointer, mysql_checkpointer(dsn=url) as other:
        await checkpointer.list_threads()
        await other.list_threads()
        trips.clear()
        state = said(AgentState(), "hello")
        await checkpointer.save(state, "t")
        assert len(trips) == 2, "the first save, which looks for a thread first"
        trips.clear()
        for number in range(5):
            state = said(state, f"message {number}")
            await checkpointer.save(state, "t")
        latest = await checkpointer.save(state.with_metadata({"edited": True}), "t")
        await checkpointer.save(said(state, "on"), "t", if_latest=latest)
        assert trips[:6] == [5, 5, 5, 5, 5, 4], "statements that went along with each save that follows"
        assert len(trips) == 8, "the last one builds on an older state"
        trips.clear()
        loaded = await other.load("t")
        assert loaded is not None
        assert len(trips) == 1, "a load"
        trips.clear()
        await other.save(said(loaded, "from elsewhere"), "t")
        assert len(trips) == 2, "a save of one who was not here before"
        trips.clear()
        await checkpointer.save(said(state, "a fork"), "t")
        assert len(trips) <= 4, "a save of one who was overtaken: tried, rolled back, asked, written"


async def test_a_save_from_an_older_checkpoint_is_one_round_trip(url: str, trips: list[int]) -> None:
    async with mysql_checkpointer(dsn=url) as checkpointer:
        state, states = AgentState(), {}
        for number in range(6):
            state = said(state, f"message {number}")
            states[await checkpointer.save(state, "t")] = state
        for old, before in list(states.items())[1:4]:
            loaded = await checkpointer.load("t", old)
            assert loaded is not None
            trips.clear()
            forked = said(loaded, f"from {old}")
            saved = await checkpointer.save(forked, "t")
            assert len(trips) == 1
            assert await checkpointer.load("t", saved) == forked
            assert await checkpointer.load("t", old) == before
            entry = await checkpointer.store.engine.entry("t", "default", saved)
            assert entry is not None
            assert entry.parent_id == old


async def test_connections_that_the_server_closes_are_replaced_without_an_error(
    url: str, mysql_server: MySQLServer
) -> None:
    run_sql(mysql_server.url, "CREATE USER 'idle'@'%' IDENTIFIED BY 'idle'; GRANT ALL ON locus.* TO 'idle'@'%'")
    parts = urlsplit(url)
    try:
        async with mysql_checkpointer(dsn=parts._replace(netloc=f"idle:idle@127.0.0.1:{parts.port}").geturl()) as store:
            await asyncio.gather(*(store.save(AgentState(), f"t{number}") for number in range(8)))
            sessions = "SELECT id FROM information_schema.processlist WHERE user = 'idle'"
            killed = run_sql(mysql_server.url, sessions)
            assert len(killed) > 1
            for (session,) in killed:
                run_sql(mysql_server.url, f"KILL CONNECTION {session}")
            saved = await asyncio.gather(*(store.save(AgentState(), f"t{number}") for number in range(8)))
            assert len(saved) == 8
            assert [await store.list_checkpoints("t3")] != [[]]
        for _ in range(100):
            if run_sql(mysql_server.url, sessions) == []:
                break
            await asyncio.sleep(0.05)
        assert run_sql(mysql_server.url, sessions) == [], "a closed handle has left connections"
    finally:
        run_sql(mysql_server.url, "DROP USER 'idle'@'%'")


async def test_a_session_that_times_out_is_replaced(url: str, mysql_server: MySQLServer) -> None:
    """The server says why before it hangs up, which must not be taken for an answer."""
    async with mysql_checkpointer(dsn=url) as checkpointer:
        run_sql(mysql_server.url, "SET GLOBAL wait_timeout = 1")
        try:
            await checkpointer.save(AgentState(), "t")
        finally:
            run_sql(mysql_server.url, "SET GLOBAL wait_timeout = 28800")
        await asyncio.sleep(2.5)
        await checkpointer.save(AgentState(), "t")
        assert len(await checkpointer.list_checkpoints("t")) == 2


def test_loops_that_end_without_a_close_leave_no_connection(url: str, mysql_server: MySQLServer) -> None:
    checkpointer = mysql_checkpointer(dsn=url)
    count = f"SELECT count(*) FROM information_schema.processlist WHERE id > {_newest(mysql_server)}"
    for number in range(5):
        asyncio.run(checkpointer.save(AgentState(), f"t{number}"))
        gc.collect()
    assert asyncio.run(checkpointer.list_threads()) == [f"t{number}" for number in range(5)]
    asyncio.run(checkpointer.close())
    gc.collect()
    # The one that asks is itself among them.
    assert run_sql(mysql_server.url, count)[0][0] <= 2


def _newest(server: MySQLServer) -> int:
    return int(run_sql(server.url, "SELECT connection_id()")[0][0])


def test_the_sync_face(url: str) -> None:
    with mysql_checkpointer(dsn=url).sync as checkpointer:
        state = said(AgentState(), "hello")
        saved = checkpointer.save(state, "t")
        assert checkpointer.load("t") == state
        assert checkpointer.list_checkpoints("t") == [saved]


def _place(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "host": parts.hostname,
        "port": parts.port,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "db": parts.path.strip("/"),
    }


async def test_a_pool_that_is_given_is_used_and_not_closed(mysql_server: MySQLServer, table_name: str) -> None:
    aiomysql = require("aiomysql", "mysql")
    async with aiomysql.create_pool(**_place(mysql_server.url), minsize=1, maxsize=2) as pool:
        async with MySQLBackend(pool=pool, table_name=table_name) as backend:
            await asyncio.gather(*(backend.save(f"t{number}", {"n": number}) for number in range(6)))
            assert await backend.load("t3") == {"n": 3}
        assert not pool.closed
        assert await backend.list_threads() == [f"t{number}" for number in range(6)]
        settings = "SELECT @@autocommit, @@transaction_isolation, @@time_zone"
        async with pool.acquire() as connection, connection.cursor() as cursor:
            await cursor.execute(settings)
            assert await cursor.fetchone() == (0, "REPEATABLE-READ", "SYSTEM"), "they are not as they were"
        with pytest.raises(ConfigurationError, match="another event loop"):
            await asyncio.to_thread(lambda: backend.sync.load("t3"))


async def test_a_wrong_password_and_an_unknown_database_are_told_without_secrets(mysql_server: MySQLServer) -> None:
    place = _place(mysql_server.url)
    place["database"] = place.pop("db")
    for wrong, words in (({"password": "hunter2"}, "user and password"), ({"database": "nowhere"}, "nowhere")):
        async with mysql_checkpointer(**(place | wrong), retry_seconds=0) as checkpointer:
            with pytest.raises(BackendUnavailableError, match=words) as caught:
                await checkpointer.load("t")
            assert "hunter2" not in f"{caught.value!r} {caught.value.__cause__!r}"
            assert caught.value.__cause__ is not None


async def test_a_server_that_is_not_there_is_an_outage(table_name: str) -> None:
    async with mysql_checkpointer("127.0.0.1", 1, retry_seconds=0.1) as checkpointer:
        with pytest.raises(BackendUnavailableError, match=r"127\.0\.0\.1"):
            await checkpointer.load("t")


async def test_a_server_that_does_not_answer_is_an_outage(url: str, proxy: Proxy) -> None:
    slow = f"{with_port(url, proxy.port)}&command_timeout=2&connect_timeout=2&retry_seconds=0"
    async with mysql_checkpointer(dsn=url) as checkpointer:
        await checkpointer.save(AgentState(), "t")
    async with mysql_checkpointer(dsn=slow) as checkpointer:
        assert await checkpointer.exists("t")
        proxy.stall()
        for _ in range(2):
            with pytest.raises(BackendUnavailableError, match="timeout"):
                await checkpointer.load("t")
        proxy.accept()
        assert await checkpointer.exists("t")


async def test_what_is_larger_than_a_packet_is_refused_and_the_handle_goes_on(
    url: str, mysql_server: MySQLServer
) -> None:
    ((largest,),) = run_sql(mysql_server.url, "SELECT @@global.max_allowed_packet")
    run_sql(mysql_server.url, "SET GLOBAL max_allowed_packet = 1048576")
    try:
        async with mysql_checkpointer(dsn=url) as checkpointer:
            saved = await checkpointer.save(said(AgentState(), "small"), "t")
            with pytest.raises(SerializationError, match="max_allowed_packet"):
                await checkpointer.save(said(AgentState(), "x" * 2_000_000), "t")
            assert await checkpointer.list_checkpoints("t") == [saved]
    finally:
        run_sql(mysql_server.url, f"SET GLOBAL max_allowed_packet = {largest}")


async def test_a_value_of_many_megabytes_comes_back(url: str) -> None:
    """Larger than one packet of the protocol, which has 16 MB."""
    text = "0123456789abcdef" * (17 * 1024 * 1024 // 16)
    async with mysql_checkpointer(dsn=url) as checkpointer:
        await checkpointer.backend.save("t", {"text": text, "list": [text[:100]]})
        assert await checkpointer.backend.load("t") == {"text": text, "list": [text[:100]]}


async def test_a_thread_that_somebody_else_has_locked_is_waited_for(
    url: str, mysql_server: MySQLServer, table_name: str
) -> None:
    async with mysql_checkpointer(dsn=f"{url}&command_timeout=2") as checkpointer:
        state = said(AgentState(), "one")
        await checkpointer.save(state, "t")
        with raw_connection(mysql_server.url, autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table_name}_threads FOR UPDATE")
            saving = asyncio.ensure_future(checkpointer.save(said(state, "two"), "t"))
            done, _ = await asyncio.wait([saving], timeout=0.3)
            assert not done
            connection.commit()
            await saving
            cursor.execute(f"SELECT * FROM {table_name}_threads FOR UPDATE")
            with pytest.raises(BackendUnavailableError):
                await checkpointer.save(said(state, "three"), "t")
            assert await checkpointer.load("t") is not None, "reading waits for nobody"
        await checkpointer.save(said(state, "four"), "t")
        assert len(await checkpointer.list_checkpoints("t")) == 3


async def test_a_query_that_stalls_ends_on_the_server_and_holds_up_nobody(url: str, mysql_server: MySQLServer) -> None:
    """The server does not notice by itself that nobody waits for the answer."""

    def stalled() -> Steps[None]:
        yield "SELECT BENCHMARK(1000000000000, SHA2('stalled', 256))", ()

    async with mysql_checkpointer(dsn=f"{url}&command_timeout=2") as checkpointer, mysql_checkpointer(dsn=url) as other:
        state = said(AgentState(), "one")
        await checkpointer.save(state, "t")
        engine = checkpointer.store.engine
        assert isinstance(engine, MySQLEngine)
        query = asyncio.create_task(engine.carry_out(stalled, writing=False))
        await asyncio.sleep(0)
        assert await other.load("t") == await checkpointer.load("t") == state
        with pytest.raises(TimeoutError, match="command_timeout"):
            await query
        running = "SELECT count(*) FROM information_schema.processlist WHERE info LIKE '%BENCHMARK(1%stalled%)'"
        async with asyncio.timeout(20):
            while run_sql(mysql_server.url, running) != [(0,)]:  # noqa: ASYNC110 - only the server knows
                await asyncio.sleep(0.02)


async def test_encrypted_connections(url: str, mysql_server: MySQLServer) -> None:
    ((folder,),) = run_sql(mysql_server.url, "SELECT @@datadir")
    authority = f"{folder}ca.pem"
    encrypted = f"{url}&ssl_ca={authority}&ssl_check_hostname=false"
    async with mysql_checkpointer(dsn=encrypted) as checkpointer:
        await checkpointer.save(AgentState(), "t")
        engine: Any = checkpointer.store.engine
        async with engine._borrowed() as connection:
            ((_, cipher),) = await connection.execute("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        assert cipher
    async with mysql_checkpointer(dsn=f"{url}&ssl=true&retry_seconds=0") as checkpointer:
        with pytest.raises(BackendUnavailableError, match="certificate"):
            await checkpointer.load("t")
