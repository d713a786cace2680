"""What a client sees of an outage: the codes of a real one, because the driver is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import oracledb
import pytest

from tests.servers.oracle.fixtures import OracleDatabase, end_sessions, run
from tests.servers.oracle.server import ADMIN, ALIAS, OracleServer
from tests.servers.proxy import Proxy


@pytest.fixture
def proxy(oracle_server: OracleServer) -> Iterator[Proxy]:
    with Proxy(oracle_server.port) as made:
        yield made


@pytest.fixture
def behind(database: OracleDatabase, oracle_server: OracleServer, proxy: Proxy) -> dict[str, Any]:
    """How to connect through the proxy."""
    return replace(database, dsn=oracle_server.dsn_at(proxy.port)).parameters


def code_of(caught: pytest.ExceptionInfo[oracledb.Error]) -> str:
    return str(caught.value.args[0].full_code)


async def test_a_connection_that_is_cut(behind: dict[str, Any], proxy: Proxy) -> None:
    connection = await oracledb.connect_async(**behind)
    proxy.cut()
    with pytest.raises(oracledb.DatabaseError) as caught:
        await connection.fetchone("SELECT 1 FROM dual")
    assert code_of(caught) == "DPY-4011"
    assert caught.value.args[0].isrecoverable
    assert not connection.is_healthy()


async def test_nobody_listens(behind: dict[str, Any], proxy: Proxy) -> None:
    proxy.refuse()
    with pytest.raises(oracledb.OperationalError) as caught:
        await oracledb.connect_async(**behind)
    assert code_of(caught) == "DPY-6005"


async def test_an_answer_that_does_not_come(behind: dict[str, Any], proxy: Proxy) -> None:
    async with oracledb.connect_async(**behind) as connection:
        proxy.stall()
        connection.call_timeout = 100
        with pytest.raises(oracledb.DatabaseError) as caught:
            await connection.fetchone("SELECT 1 FROM dual")
        assert code_of(caught) in ("DPY-4011", "DPY-4024")
        proxy.accept()
        proxy.cut()


async def test_what_was_not_committed_when_the_client_vanished_is_undone(
    behind: dict[str, Any], proxy: Proxy, cursor: oracledb.Cursor, things: str
) -> None:
    connection = await oracledb.connect_async(**behind)
    await connection.execute(f"INSERT INTO {things} (id) VALUES (1)")
    proxy.cut()
    # Waits for the lock that the lost session still has, if it has.
    cursor.execute(f"INSERT INTO {things} (id) VALUES (1)")
    assert cursor.rowcount == 1


async def test_what_a_client_has_sent_before_it_vanished_is_done_before_its_connection_ends(
    behind: dict[str, Any], proxy: Proxy, cursor: oracledb.Cursor, things: str
) -> None:
    """So that whoever waits for the end can look at what has become of it."""
    async with oracledb.connect_async(**behind) as connection:
        connection.autocommit = True
        rows = [[number] for number in range(2_000)]
        doing = asyncio.create_task(connection.executemany(f"INSERT INTO {things} (id) VALUES (:1)", rows))
        await asyncio.sleep(0.03)
        connection.terminate()
        doing.cancel()
        await asyncio.gather(doing, return_exceptions=True)
        await asyncio.to_thread(proxy.wait_for_the_dead)
        (found,) = cursor.execute(f"SELECT COUNT(*) FROM {things}").fetchone()
        assert found in (0, 2_000)


async def test_a_session_that_is_killed(database: OracleDatabase, oracle_server: OracleServer) -> None:
    connection = await oracledb.connect_async(**database.parameters)
    admin = OracleDatabase(oracle_server.dsn, ADMIN, oracle_server.password, "")
    end_sessions(admin, database.user)
    with pytest.raises(oracledb.DatabaseError) as caught:
        await connection.fetchone("SELECT 1 FROM dual")
    assert code_of(caught) == "DPY-4011"
    assert "ORA-00028" in str(caught.value)


async def test_what_a_killed_session_had_not_committed(database: OracleDatabase, oracle_server: OracleServer) -> None:
    """Its commit fails as any other call does: there is nothing left to commit."""
    run(database, "CREATE TABLE unfinished (number_of NUMBER)")
    connection = await oracledb.connect_async(**database.parameters)
    await connection.execute("INSERT INTO unfinished VALUES (1)")
    end_sessions(OracleDatabase(oracle_server.dsn, ADMIN, oracle_server.password, ""), database.user)
    with pytest.raises(oracledb.DatabaseError) as caught:
        await connection.commit()
    assert "ORA-00028" in str(caught.value)
    assert run(database, "SELECT * FROM unfinished") == []


async def test_a_server_that_dies_and_comes_back(database: OracleDatabase, oracle_server: OracleServer) -> None:
    connection = await oracledb.connect_async(**database.parameters)
    oracle_server.kill()
    with pytest.raises(oracledb.DatabaseError) as caught:
        await connection.fetchone("SELECT 1 FROM dual")
    assert code_of(caught) == "DPY-4011"
    with pytest.raises(oracledb.OperationalError) as caught_again:
        await oracledb.connect_async(**database.parameters)
    assert code_of(caught_again) == "DPY-6005"
    oracle_server.restart()
    assert run(database, "SELECT 1 FROM dual") == [(1,)]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"password": "wrong"}, "ORA-01017"),
        ({"user": "nobody_at_all"}, "ORA-01017"),
        ({"dsn": "no_such_alias"}, "DPY-4027"),
        ({"dsn": "no_such_alias", "config_dir": "/nowhere"}, "DPY-4026"),
    ],
)
def test_who_is_not_let_in(database: OracleDatabase, change: dict[str, str], code: str) -> None:
    with pytest.raises(oracledb.DatabaseError) as caught:
        oracledb.connect(**{**database.parameters, **change})
    assert code_of(caught) == code
    assert database.password not in str(caught.value)


def test_a_service_that_is_not_there(database: OracleDatabase) -> None:
    with pytest.raises(oracledb.OperationalError, match="DPY-6001"):
        oracledb.connect(**{**database.parameters, "dsn": database.dsn.replace("FREEPDB1", "NOTHERE")})


def test_a_wallet(oracle_server: OracleServer, database: OracleDatabase) -> None:
    wallet = str(oracle_server.wallet)
    found = replace(
        database, dsn=ALIAS, wallet_location=wallet, wallet_password=oracle_server.wallet_password
    ).parameters
    with oracledb.connect(**found) as connection, connection.cursor() as cursor:
        assert cursor.execute("SELECT user FROM dual").fetchone() == (database.user,)
    with pytest.raises(oracledb.OperationalError, match="DPY-6005"):
        oracledb.connect(**{**found, "wallet_password": "wrong"})


async def test_tls_without_a_wallet(oracle_server: OracleServer, database: OracleDatabase) -> None:
    place = f"tcps://127.0.0.1:{oracle_server.tls_port}/FREEPDB1"
    with pytest.raises(oracledb.OperationalError, match="CERTIFICATE_VERIFY_FAILED"):
        async with asyncio.timeout(10):
            await oracledb.connect_async(**{**database.parameters, "dsn": place})


def test_a_session_that_is_over_is_not_another_s_that_came_to_its_place(
    database: OracleDatabase, oracle_server: OracleServer
) -> None:
    ((sid, serial),) = run(database, "SELECT sid, serial# FROM v$session WHERE username = USER")
    admin = OracleDatabase(oracle_server.dsn, ADMIN, oracle_server.password, "")
    while run(admin, "SELECT 1 FROM v$session WHERE username = :1", database.user):
        time.sleep(0.01)
    with pytest.raises(oracledb.DatabaseError) as caught:
        run(admin, f"ALTER SYSTEM KILL SESSION '{sid},{serial}' IMMEDIATE")
    assert code_of(caught) == "ORA-00030"
