"""Connections: refused, killed, too slow, given up, closed and opened again."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import oracledb
import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError
from locus.memory.backends import OracleBackend, oracle_checkpointer
from locus.memory.backends.oracle.engine import OracleEngine
from tests.backends.oracle.stores import OracleStore, drop_tables, new_name, place_of, raw_cursor
from tests.servers.oracle.fixtures import OracleDatabase, end_sessions
from tests.servers.oracle.server import ADMIN, OracleServer

pytestmark = pytest.mark.oracle

STAND_IN_ONLY = pytest.mark.usefixtures("oracle_server")
"""For what is not done to a database that somebody else runs: guessing passwords, cutting it off."""


@STAND_IN_ONLY
async def test_a_wrong_password_is_told_and_not_repeated(oracle_place: OracleDatabase) -> None:
    wrong = replace(oracle_place, password="not-the-password")
    async with oracle_checkpointer(**place_of(wrong)) as checkpointer:
        with pytest.raises(BackendUnavailableError, match="user and password") as caught:
            await checkpointer.load("thread")
    assert "ORA-01017" in str(caught.value)
    assert "not-the-password" not in str(caught.value)
    assert isinstance(caught.value.__cause__, oracledb.DatabaseError)


@STAND_IN_ONLY
async def test_a_service_that_is_not_there_is_told(oracle_place: OracleDatabase) -> None:
    elsewhere = replace(oracle_place, dsn=oracle_place.dsn.replace("FREEPDB1", "NO_SUCH_SERVICE"))
    async with oracle_checkpointer(**place_of(elsewhere), retry_seconds=0) as checkpointer:
        with pytest.raises(BackendUnavailableError, match="service_name"):
            await checkpointer.load("thread")


async def test_a_session_that_was_killed_is_replaced(oracle_store: OracleStore, oracle_server: OracleServer) -> None:
    admin = OracleDatabase(oracle_server.dsn, ADMIN, oracle_server.password, "")
    async with oracle_store.open() as checkpointer:
        state = AgentState(agent_id="a")
        await checkpointer.save(state, "thread")
        for turn in range(2):
            await asyncio.to_thread(end_sessions, admin, oracle_store.direct.user)
            state = state.with_message(Message.user(str(turn)))
            await checkpointer.save(state, "thread")
        assert await checkpointer.load("thread") == state
        assert len(await checkpointer.history("thread")) == 3


async def test_a_statement_that_takes_too_long_is_given_up(oracle_store: OracleStore) -> None:
    async with oracle_store.open() as checkpointer:
        await checkpointer.save(AgentState(), "thread")
    options = {**oracle_store.options, "command_timeout": 1.0}
    async with oracle_checkpointer(**place_of(oracle_store.database), **options) as checkpointer:
        await checkpointer.load("thread")
        with raw_cursor(oracle_store.direct) as cursor:
            cursor.execute(f"SELECT id FROM {oracle_store.table_name}_threads FOR UPDATE")
            with pytest.raises(BackendUnavailableError, match="command_timeout"):
                await checkpointer.save(AgentState(), "thread")
        await checkpointer.save(AgentState(), "thread")
        assert len(await checkpointer.history("thread")) == 2


@STAND_IN_ONLY
async def test_a_server_that_falls_silent_is_given_up(oracle_store: OracleStore) -> None:
    """Nobody answers to the driver's request to stop, either."""
    assert oracle_store.proxy is not None
    options = {**oracle_store.options, "command_timeout": 1.0}
    async with oracle_checkpointer(**place_of(oracle_store.database), **options) as checkpointer:
        state = AgentState()
        await checkpointer.save(state, "thread")
        oracle_store.proxy.stall()
        with pytest.raises(BackendUnavailableError):
            await checkpointer.load("thread")
        oracle_store.proxy.accept()
        assert await checkpointer.load("thread") == state


@STAND_IN_ONLY
async def test_a_save_that_is_cancelled_ends_at_once(oracle_store: OracleStore) -> None:
    """The driver would wait for the server to confirm that it has stopped."""
    assert oracle_store.proxy is not None
    async with oracle_store.open() as checkpointer:
        state = AgentState()
        await checkpointer.save(state, "thread")
        oracle_store.proxy.stall()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await checkpointer.load("thread")
        oracle_store.proxy.accept()
        assert await checkpointer.load("thread") == state


def test_one_event_loop_after_another_leaves_nothing_open(oracle_store: OracleStore) -> None:
    """Nobody closes the connections of the first one: they are let go when the next is made."""
    checkpointer = oracle_store.open()
    for turn in range(3):
        asyncio.run(checkpointer.save(AgentState(agent_id=str(turn)), "thread"))
    assert len(asyncio.run(checkpointer.history("thread"))) == 3
    asyncio.run(checkpointer.close())
    gc.collect()


async def test_it_can_be_used_again_after_it_was_closed(oracle_store: OracleStore) -> None:
    backend = oracle_store.backend()
    await backend.save("thread", {"n": 1})
    await backend.close()
    await backend.close()
    assert await backend.load("thread") == {"n": 1}
    await backend.close()


@STAND_IN_ONLY
async def test_closing_neither_raises_nor_hangs_without_a_server(oracle_store: OracleStore) -> None:
    assert oracle_store.proxy is not None
    backend = oracle_store.backend()
    await backend.save("thread", {"n": 1})
    oracle_store.proxy.stall()
    async with asyncio.timeout(10):
        await backend.close()
    oracle_store.proxy.accept()
    assert await backend.load("thread") == {"n": 1}
    async with oracle_store.outage():
        await backend.close()
    assert await backend.load("thread") == {"n": 1}
    await backend.close()


async def test_the_pool_keeps_to_its_size(oracle_store: OracleStore) -> None:
    backend = oracle_store.backend(max_pool_size=2)
    engine = backend.store.engine
    assert isinstance(engine, OracleEngine)
    opened = []
    connect = engine._pools._connect

    async def counted() -> object:
        opened.append(1)
        return await connect()

    engine._pools._connect = counted  # type: ignore[assignment]
    await asyncio.gather(*(backend.save(f"thread {number}", {"n": number}) for number in range(6)))
    assert 1 <= len(opened) <= 2
    assert await backend.count() == 6
    await backend.close()


@STAND_IN_ONLY
async def test_an_alias_of_a_tnsnames_file_is_found(oracle_store: OracleStore, tmp_path: Path) -> None:
    host, _, rest = oracle_store.direct.dsn.partition(":")
    port, _, service = rest.partition("/")
    (tmp_path / "tnsnames.ora").write_text(
        f"mydb_low = (DESCRIPTION=(ADDRESS=(PROTOCOL=tcp)(HOST={host})(PORT={port}))"
        f"(CONNECT_DATA=(SERVICE_NAME={service})))\n"
    )
    direct = oracle_store.direct
    for option in ("wallet_location", "config_dir"):
        place: dict[str, Any] = {option: str(tmp_path), "wallet_password": "", "table_name": oracle_store.table_name}
        backend = OracleBackend("mydb_low", direct.user, direct.password, **place)
        await backend.save("thread", {"n": 1})
        assert await backend.load("thread") == {"n": 1}
        await backend.close()


async def test_a_dsn_with_user_and_password_connects(oracle_place: OracleDatabase) -> None:
    place = {name: value for name, value in place_of(oracle_place).items() if name not in ("dsn", "user", "password")}
    dsn = f"{oracle_place.user}/{oracle_place.password}@{oracle_place.dsn}"
    table_name = f"{oracle_place.prefix}{new_name()}"
    async with OracleBackend(dsn, table_name=table_name, **place) as backend:
        await backend.save("t", {"n": 1})
        assert await backend.load("t") == {"n": 1}
    drop_tables(oracle_place, table_name)
