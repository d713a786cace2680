"""The tables: who may create them, several at once, interrupted, too new; and what is in them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError, ConfigurationError, CorruptCheckpointError, UnsupportedFormatError
from locus.memory.backends import MySQLBackend, mysql_checkpointer
from locus.memory.backends.mysql import schema as mysql_schema
from locus.memory.backends.mysql.schema import MySQLFlavour
from locus.testing.laws.base import exact
from locus.testing.processes import jobs
from locus.testing.processes.workers import Crew
from tests.backends.mysql.stores import run_sql
from tests.servers.mysql import MySQLServer

pytestmark = pytest.mark.mysql


async def _assert_works(url: str, **options: Any) -> None:
    async with mysql_checkpointer(dsn=url, **options) as checkpointer:
        state = AgentState().with_message(Message.user("a wombat"))
        saved = await checkpointer.save(state, "works", metadata={"k": "v"})
        assert await checkpointer.load("works") == state
        await checkpointer.put_writes("works", saved, "task", [("channel", 1)])
        assert len(await checkpointer.get_writes("works", saved)) == 1
        assert len(await checkpointer.query_by_metadata("k", "v")) == 1
        assert len(await checkpointer.search("wombat")) == 1
        assert await checkpointer.delete("works")


def test_twenty_processes_may_come_first(url: str, mysql_server: MySQLServer, table_name: str) -> None:
    with Crew(url) as crew:
        workers = [
            crew.start(
                jobs.save_many, url=url, thread_ids=["first"], count=1, name=f"process {number}", from_latest=False
            )
            for number in range(20)
        ]
        crew.together(workers)
        saved = [known for worker in workers for _, known, _ in worker.finish()]
    assert len(set(saved)) == 20
    assert run_sql(mysql_server.url, f"SELECT last_seq FROM {table_name}_threads") == [(20,)]
    assert run_sql(mysql_server.url, f"SELECT version FROM {table_name}_format") == [(mysql_schema.FORMAT,)]


STEPS = len(mysql_schema.statements(MySQLFlavour(), 0))


@pytest.mark.parametrize("done", range(STEPS + 1))
async def test_a_migration_that_was_interrupted_is_finished(
    url: str, mysql_server: MySQLServer, table_name: str, done: int
) -> None:
    """DDL commits by itself, so this is what a process leaves behind that dies after so many statements."""
    for statement in mysql_schema.statements(MySQLFlavour(table_name), 0)[:done]:
        run_sql(mysql_server.url, statement)
    await _assert_works(url)


@pytest.mark.crash
def test_a_process_killed_while_it_creates_the_tables_leaves_nobody_waiting(url: str) -> None:
    script = (
        "import asyncio, sys\n"
        "from locus.core.state import AgentState\n"
        "from locus.memory.backends import mysql_checkpointer\n"
        "async def main():\n"
        "    async with mysql_checkpointer(dsn=sys.argv[1]) as checkpointer:\n"
        "        print('ready', flush=True)\n"
        "        await checkpointer.save(AgentState(), 'thread')\n"
        "    print('saved', flush=True)\n"
        "asyncio.run(main())\n"
    )
    ends = []
    for milliseconds in (20, 40, 60, 80, 120):
        process = subprocess.Popen([sys.executable, "-c", script, url], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(milliseconds / 1_000)
        os.kill(process.pid, signal.SIGKILL)
        ends.append(process.stdout.read())
        process.wait()
        process.stdout.close()
    assert "" in ends, "nobody was killed before the end"
    done = subprocess.run([sys.executable, "-c", script, url], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "ready\nsaved\n"


async def test_a_newer_format_is_refused_and_left_alone(url: str, mysql_server: MySQLServer, table_name: str) -> None:
    await _assert_works(url)
    run_sql(mysql_server.url, f"UPDATE {table_name}_format SET version = 99")
    async with mysql_checkpointer(dsn=url) as checkpointer:
        with pytest.raises(UnsupportedFormatError, match="99"):
            await checkpointer.load("thread")
        with pytest.raises(UnsupportedFormatError):
            await checkpointer.save(AgentState(), "thread")
    assert run_sql(mysql_server.url, f"SELECT count(*) FROM {table_name}_threads") == [(0,)]


@pytest.mark.parametrize("table", ["threads", "writes"])
async def test_a_table_of_somebody_else_is_not_taken_for_ours(
    url: str, mysql_server: MySQLServer, table_name: str, table: str
) -> None:
    run_sql(mysql_server.url, f"CREATE TABLE {table_name}_{table} (colour varchar(20))")
    async with mysql_checkpointer(dsn=url) as checkpointer:
        with pytest.raises(ConfigurationError, match="in the way"):
            await checkpointer.load("thread")


async def test_older_tables_are_brought_to_the_newest_format(
    url: str, mysql_server: MySQLServer, table_name: str
) -> None:
    large = ["said over and over"] * 50
    for statement in mysql_schema.statements(MySQLFlavour(table_name), 0):
        run_sql(mysql_server.url, statement)
        if statement.endswith("(1, 1)"):
            break
    threads = f"INSERT INTO {table_name}_threads (id, thread_id, last_seq) VALUES (1, 'thread', 0)"
    columns = "thread, namespace, checkpoint_id, task_id, idx, task_path, channel, value"
    rows = f"(1, 'default', 'c', 'task', 0, '', 'old', '{json.dumps(large)}')"
    run_sql(mysql_server.url, f"{threads}; INSERT INTO {table_name}_writes ({columns}) VALUES {rows}")
    with pytest.raises(ConfigurationError, match=r"have format 1, not 3.*ddl\(from_format=1\)"):
        await _assert_works(url, auto_create_table=False)
    run_sql(mysql_server.url, MySQLBackend.ddl(table_name, from_format=1))
    async with mysql_checkpointer(dsn=url, auto_create_table=False) as checkpointer:
        await checkpointer.put_writes("thread", "c", "task", [("large", large), ("small", 1)], task_path="new")
        await checkpointer.put_writes("thread", "c", "another", [("large", large)])
        await checkpointer.save(AgentState(), "thread", checkpoint_id="c")
        await checkpointer.copy_thread("thread", "copy")
        for thread in ("thread", "copy"):
            assert [write.value for write in await checkpointer.get_writes(thread, "c")] == [large, large, 1]
    query = f"SELECT channel, value IS NULL, packed FROM {table_name}_writes ORDER BY channel"
    found = run_sql(mysql_server.url, query)
    assert [row[:2] for row in found] == [("large", 1)] * 4 + [("small", 0)] * 2
    assert json.loads(zlib.decompress(found[0][2])) == large


async def test_without_auto_create_the_tables_have_to_be_there(
    url: str, mysql_server: MySQLServer, table_name: str
) -> None:
    with pytest.raises(ConfigurationError, match=r"ddl\(\)"):
        await _assert_works(url, auto_create_table=False)
    assert run_sql(mysql_server.url, f"SHOW TABLES LIKE '{table_name}\\_%'") == []
    run_sql(mysql_server.url, MySQLBackend.ddl(table_name))
    await _assert_works(url, auto_create_table=False)


@pytest.fixture
def plain_user(mysql_server: MySQLServer) -> Iterator[str]:
    """A user who may read and write, and nothing else."""
    run_sql(
        mysql_server.url,
        "CREATE USER 'plain'@'%' IDENTIFIED BY 'p@ss/wörd';"
        " GRANT SELECT, INSERT, UPDATE, DELETE ON locus.* TO 'plain'@'%'",
    )
    yield "plain:p%40ss%2Fw%C3%B6rd"
    run_sql(mysql_server.url, "DROP USER 'plain'@'%'")


async def test_reading_and_writing_is_all_that_a_user_must_be_allowed(
    url: str, mysql_server: MySQLServer, table_name: str, plain_user: str
) -> None:
    parts = urlsplit(url)
    plain = parts._replace(netloc=f"{plain_user}@{parts.netloc.rpartition('@')[2]}").geturl()
    with pytest.raises(ConfigurationError, match="may not create"):
        await _assert_works(plain)
    run_sql(mysql_server.url, MySQLBackend.ddl(table_name))
    await _assert_works(plain, auto_create_table=False)
    await _assert_works(plain)


async def test_a_read_only_server_says_so(
    url: str, mysql_server: MySQLServer, table_name: str, plain_user: str
) -> None:
    run_sql(mysql_server.url, MySQLBackend.ddl(table_name))
    parts = urlsplit(url)
    plain = parts._replace(netloc=f"{plain_user}@{parts.netloc.rpartition('@')[2]}").geturl()
    async with mysql_checkpointer(dsn=plain) as checkpointer:
        saved = await checkpointer.save(AgentState(), "thread")
        run_sql(mysql_server.url, "SET GLOBAL super_read_only = ON")
        try:
            with pytest.raises(BackendUnavailableError, match="read-only"):
                await checkpointer.save(AgentState(), "thread")
            assert await checkpointer.load("thread") is not None
        finally:
            run_sql(mysql_server.url, "SET GLOBAL super_read_only = OFF; SET GLOBAL read_only = OFF")
        again = await checkpointer.save(AgentState(), "thread")
        assert await checkpointer.list_checkpoints("thread") == [again, saved]


async def test_every_text_is_compared_byte_by_byte(url: str, mysql_server: MySQLServer, table_name: str) -> None:
    await _assert_works(url)
    rows = run_sql(
        mysql_server.url,
        "SELECT DISTINCT collation_name FROM information_schema.columns"
        " WHERE table_name LIKE %s AND collation_name IS NOT NULL",
        f"{table_name}\\_%",
    )
    assert {name for (name,) in rows} <= {"utf8mb4_0900_bin", "ascii_bin"}


async def test_ids_that_other_collations_confuse_are_kept_apart(url: str) -> None:
    names = [
        "Alice",
        "alice",
        "alice ",
        "alicé",
        "jose",
        "josé",
        "jose\u0301",
        "STRASSE",
        "straße",
        "ﬁ",
        "fi",
        "a\0",
        "a",
    ]
    async with mysql_checkpointer(dsn=url) as checkpointer:
        for name in names:
            assert await checkpointer.load(name) is None
            await checkpointer.save(AgentState(agent_id=f"of {name}"), name)
        for name in names:
            loaded = await checkpointer.load(name)
            assert loaded is not None
            assert loaded.agent_id == f"of {name}"
        assert await checkpointer.list_threads(None) == sorted(names)


async def test_only_what_mysql_would_change_is_tagged(url: str, mysql_server: MySQLServer, table_name: str) -> None:
    kept = {"floats": {"a": -0.0, "b": 1e22, "c": 5e-324, "d": 1.7976931348623157e308}, "nul": "\0", "int": 2**63 - 1}
    lost = {"large": 2**63, "small": -(2**63), "huge": 10**40}
    async with mysql_checkpointer(dsn=url) as checkpointer:
        await checkpointer.backend.save("kept", kept)
        await checkpointer.backend.save("lost", lost)
        assert exact(await checkpointer.backend.load("kept")) == exact(kept)
        assert await checkpointer.backend.load("lost") == lost
    joined = f"{table_name}_checkpoints c JOIN {table_name}_threads t ON t.id = c.thread"
    heads = dict(run_sql(mysql_server.url, f"SELECT t.thread_id, c.head FROM {joined}"))
    assert json.loads(heads["kept"]) == kept
    assert "$locus" not in heads["kept"]
    assert heads["lost"].count("$locus:int") == 3


async def test_metadata_are_found_by_the_index(url: str, mysql_server: MySQLServer, table_name: str) -> None:
    async with mysql_checkpointer(dsn=url) as checkpointer:
        for number in range(50):
            await checkpointer.save(AgentState(), f"t{number}", metadata={"n": number, "user": "eve"})
        assert len(await checkpointer.query_by_metadata("n", 7)) == 1
    plan = run_sql(
        mysql_server.url,
        f"EXPLAIN FORMAT=TRADITIONAL SELECT id FROM {table_name}_checkpoints"
        " WHERE JSON_OVERLAPS(metadata_keys, CAST(%s AS JSON))",
        json.dumps(["0" * 32, "*"]),
    )
    assert plan[0][6] == "by_metadata"


async def test_metadata_may_have_very_many_keys(url: str) -> None:
    metadata = {f"key {number}": number for number in range(1_000)}
    async with mysql_checkpointer(dsn=url) as checkpointer:
        await checkpointer.save(AgentState(), "t", metadata=metadata)
        assert await checkpointer.get_metadata("t") == metadata
        assert len(await checkpointer.query_by_metadata("key 999", 999)) == 1


async def test_payloads_are_searched_by_path_and_checkpoints_are_counted(url: str) -> None:
    async with mysql_checkpointer(dsn=url) as checkpointer:
        backend = checkpointer.backend
        values = [
            "plain",
            'a "quote"',
            "back\\slash",
            "it's",
            "é 😀",
            "line\nbreak",
            "\0",
            "%",
            5,
            -7,
            2**70,
            1e22,
            0.1,
            True,
            None,
        ]
        for index, value in enumerate(values):
            await backend.save(f"t{index:02}", {"head": {"x": value}, "list": [{"y": value}, {"y": "other"}]})
        for index, value in enumerate(values):
            for path in ("head.x", "list.y"):
                found = await backend.search_data(path, value)
                assert [hit["thread_id"] for hit in found] == [f"t{index:02}"], (path, value)
        assert len(await backend.search_data("list.y", "other", 3)) == 3
        assert await backend.search_data("head.x", "nothing has this") == []
        assert await backend.count() == len(values)
        assert await backend.count("t0?") == 10
        assert await backend.count("T*") == 0


async def test_a_lost_newest_edit_does_not_bring_back_what_it_replaced(
    url: str, mysql_server: MySQLServer, table_name: str
) -> None:
    async with mysql_checkpointer(dsn=url) as cp:
        one = AgentState(agent_id="agent").with_messages([Message.user("said")])
        await cp.save(one, "t", "c1")
        two = one.with_message(Message.user("wrong"))
        await cp.save(two, "t", "c2")
        await cp.save(two.with_messages_replaced((*one.messages, Message.user("right"))), "t", "c3")
    run_sql(mysql_server.url, f"DELETE FROM {table_name}_runs WHERE number = 2")
    async with mysql_checkpointer(dsn=url) as cp:
        with pytest.raises(CorruptCheckpointError, match="run 2"):
            await cp.load("t")
        assert await cp.load("t", "c2") == two
