"""A store of another framework is no empty store: the first use says so, and how to go on, and changes nothing."""

from __future__ import annotations

import asyncio
import pickle
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from agents import SQLiteSession
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from redis import Redis
from strands.session import FileSessionManager

from locus.cli import main
from locus.core.state import AgentState
from locus.errors import ConfigurationError
from locus.integrations.langgraph import LocusSaver
from locus.integrations.openai_agents import LocusSession
from locus.memory import get_checkpointer
from locus.memory.backends import SQLiteBackend
from locus.memory.engine import ForeignStoreError
from locus.transfer.imports import import_store
from tests.backends.mysql.stores import run_sql
from tests.servers.mysql import MySQLServer
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.redis import RedisServer
from tests.transfer.graphs import config, make_graph, talk

SDK = '{"checkpoint_id": "c1", "thread_id": "t", "created_at": "2026-01-02T10:00:00+00:00", "state": {}}'


async def _langgraph(path: Path) -> None:
    with SqliteSaver.from_conn_string(str(path)) as saver:
        make_graph(saver).update_state(config("t"), {"notes": ["x"]}, as_node="answer")


async def _openai(path: Path) -> None:
    session = SQLiteSession("t", path)
    await session.add_items([{"role": "user", "content": "Hello"}])
    session.close()


async def _adk(path: Path) -> None:
    await SqliteSessionService(str(path)).create_session(app_name="a", user_id="u", session_id="s")


def _strands(folder: Path) -> None:
    FileSessionManager("carol", storage_dir=str(folder))


def _agent_framework(folder: Path) -> None:
    folder.mkdir()
    (folder / "alice.jsonl").write_text('{"type": "message", "role": "user", "contents": []}\n')


def _sdk_folder(folder: Path) -> None:
    (folder / "t").mkdir(parents=True)
    (folder / "t" / "c1.json").write_text(SDK)


def refused(kind: str) -> Any:
    return pytest.raises(ForeignStoreError, match=rf"and none of Locus: `locus import {kind} .*fallback=\"none\"")


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and "-" not in path.name}


SQLITE = [(_langgraph, "langgraph"), (_openai, "openai-agents"), (_adk, "google-adk")]


@pytest.mark.parametrize(("make", "kind"), SQLITE)
async def test_a_file_of_another_framework(
    make: Callable[[Path], Awaitable[None]], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.db"
    await make(path)
    before = files_in(tmp_path)
    for _ in range(2):
        async with get_checkpointer(f"sqlite:{path}") as handle:
            with refused(kind):
                await handle.load("t")
            with refused(kind):
                await handle.save(AgentState(), "t")
    with refused(kind):
        await SQLiteBackend(path).list_threads()
    with refused(kind):
        LocusSaver(f"sqlite:{path}").get(config("t"))
    with refused(kind):
        await LocusSession("t", f"sqlite:{path}").get_items()
    assert files_in(tmp_path) == before
    assert await asyncio.to_thread(main, ["doctor", "-s", f"sqlite:{path}"]) == 2
    shown = capsys.readouterr().out
    assert f"`locus import {kind} " in shown
    assert "import its threads" in shown
    for command in (["threads"], ["migrate"], ["migrate", "--apply"], ["delete", "t", "--apply"]):
        assert await asyncio.to_thread(main, [*command, "-s", f"sqlite:{path}"]) == 2
        assert f"`locus import {kind} " in capsys.readouterr().err
    assert files_in(tmp_path) == before

    beside = get_checkpointer(f"sqlite:{path}?fallback=none&timeout=5")
    await beside.save(AgentState(), "ours")
    await beside.close()
    async with get_checkpointer(f"sqlite:{path}") as handle:  # now there is something of ours
        assert await handle.list_threads() == ["ours"]


@pytest.mark.parametrize(("make", "kind"), SQLITE)
async def test_threads_may_be_imported_into_the_file_that_they_are_in(
    make: Callable[[Path], Awaitable[None]], kind: str, tmp_path: Path
) -> None:
    await make(tmp_path / "a.db")
    report = await import_store(kind, str(tmp_path / "a.db"), f"sqlite:{tmp_path / 'a.db'}")
    assert (report.ok, report.threads) == (True, 1), report.problems
    async with get_checkpointer(f"sqlite:{tmp_path / 'a.db'}") as handle:
        assert len(await handle.list_threads()) == 1


def test_with_a_fallback_a_saver_goes_on_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as old:
        make_graph(old).update_state(config("t"), {"notes": ["x"]}, as_node="answer")
        with LocusSaver(f"sqlite:{path}", fallback=old) as new:
            assert make_graph(new).get_state(config("t")).values["notes"] == ["x"]
    with LocusSaver(f"sqlite:{path}") as alone:
        assert make_graph(alone).get_state(config("t")).values["notes"] == ["x"]


async def test_a_saver_may_begin_anew_beside_another(tmp_path: Path) -> None:
    await _langgraph(tmp_path / "a.db")
    with LocusSaver(f"sqlite:{tmp_path / 'a.db'}", fallback="none") as new:
        assert new.get(config("t")) is None
    with pytest.raises(ConfigurationError, match='fallback of a store is "none"'):
        get_checkpointer("sqlite:a.db", fallback="some")


async def test_tables_of_the_same_name_are_not_enough(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        for table in ("checkpoints", "events", "agent_messages", "sessions"):
            database.execute(f"CREATE TABLE {table} (id INTEGER, thread_id TEXT, data TEXT)")
    async with get_checkpointer(f"sqlite:{tmp_path / 'a.db'}") as handle:
        assert await handle.load("t") is None


@pytest.mark.parametrize(
    ("make", "kind"), [(_strands, "strands"), (_agent_framework, "agent-framework"), (_sdk_folder, "locus-sdk")]
)
async def test_a_folder_of_another_framework(
    make: Callable[[Path], None], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "store"
    make(folder)
    before = files_in(folder)
    async with get_checkpointer(f"file:{folder}") as handle:
        with refused(kind):
            await handle.load("t")
    assert await asyncio.to_thread(main, ["doctor", "-s", f"file:{folder}"]) == 2
    assert f"`locus import {kind} " in capsys.readouterr().out
    assert files_in(folder) == before
    async with get_checkpointer(f"file:{folder}?fallback=none") as handle:
        await handle.save(AgentState(), "ours")
    async with get_checkpointer(f"file:{folder}") as handle:
        assert await handle.load("ours") is not None


async def test_a_folder_of_ours_that_has_lost_its_locks_is_ours(tmp_path: Path) -> None:
    async with get_checkpointer(f"file:{tmp_path / 'a'}") as handle:
        await handle.save(AgentState(), "t")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "t.jsonl").write_bytes((tmp_path / "a" / "t.jsonl").read_bytes())
    _sdk_folder(tmp_path / "b")
    async with get_checkpointer(f"file:{tmp_path / 'b'}") as handle:
        assert await handle.load("t") is not None


@pytest.mark.redis
async def test_keys_of_locus_sdk(redis_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"redis://127.0.0.1:{redis_server.port}/9"
    with Redis(port=redis_server.port, db=9) as client:
        client.set("locus:state:t:latest", "{}")
        async with get_checkpointer(url) as handle:
            with refused("locus-sdk"):
                await handle.load("t")
        assert await asyncio.to_thread(main, ["doctor", "-s", url]) == 2
        assert "`locus import locus-sdk " in capsys.readouterr().out
        assert client.keys("*") == [b"locus:state:t:latest"]
        for place in (f"{url}?prefix=mine:", f"{url}?fallback=none"):
            async with get_checkpointer(place) as handle:
                assert await handle.load("t") is None
        client.flushdb()


@pytest.mark.postgresql
async def test_tables_in_postgresql(postgresql_server: PostgreSQLServer, capsys: pytest.CaptureFixture[str]) -> None:
    schema = f"foreign_{uuid4().hex[:8]}"
    inside = f"{postgresql_server.url}?options=-csearch_path%3D{schema}"
    with psycopg.connect(postgresql_server.url, autocommit=True) as database:
        database.execute(f"CREATE SCHEMA {schema}")
        try:
            with PostgresSaver.from_conn_string(inside) as saver:
                saver.setup()
                make_graph(saver).update_state(config("t"), {"notes": ["x"]}, as_node="answer")
                for url in (inside, f"{postgresql_server.url}?schema_name={schema}"):
                    async with get_checkpointer(url) as handle:
                        with refused("langgraph"):
                            await handle.load("t")
                assert await asyncio.to_thread(main, ["doctor", "-s", inside]) == 2
                assert "`locus import langgraph " in capsys.readouterr().out
                with LocusSaver(inside, fallback=saver) as new:
                    assert make_graph(new).get_state(config("t")).values["notes"] == ["x"]
            async with LocusSaver(inside) as alone:
                await talk(alone)
        finally:
            database.execute(f"DROP SCHEMA {schema} CASCADE")


@pytest.mark.mysql
async def test_tables_in_mysql(mysql_server: MySQLServer) -> None:
    name = f"foreign_{uuid4().hex[:8]}"
    server, _, _ = mysql_server.url.rpartition("/")
    run_sql(mysql_server.url, f"CREATE DATABASE {name}")
    try:
        run_sql(
            f"{server}/{name}", "CREATE TABLE checkpoints (thread_id VARCHAR(9), data JSON, updated_at TIMESTAMP(6))"
        )
        async with get_checkpointer(f"{server}/{name}") as handle:
            with refused("locus-sdk"):
                await handle.load("t")
        async with get_checkpointer(f"{server}/{name}?fallback=none") as handle:
            assert await handle.load("t") is None
    finally:
        run_sql(mysql_server.url, f"DROP DATABASE {name}")


def test_the_error_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(ForeignStoreError("langgraph", "sqlite:a.db")))
    assert (error.kind, error.place) == ("langgraph", "sqlite:a.db")
    assert "LocusSaver(…, fallback=…)" in str(error)
