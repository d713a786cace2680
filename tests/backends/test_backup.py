"""docs/backup.md: the commands of each section make a backup and restore it, and every checkpoint is there again."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pytest
from markdown_it import MarkdownIt

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory import get_checkpointer
from locus.memory.checkpointer import Checkpointer, StoreVerbs
from locus.testing.data import conversation
from tests.backends.mysql.stores import run_sql
from tests.backends.opensearch.store import OpenSearchStore
from tests.backends.s3.store import set_credentials
from tests.servers import mysql, redis
from tests.servers.mysql import MySQLServer
from tests.servers.opensearch import OpenSearchServer
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.redis import RedisServer
from tests.servers.seaweedfs import SeaweedServer
from tests.transfer.support import contents, fill

pytestmark = pytest.mark.timeout(900)  # the first run downloads programs that it needs

PAGE = Path(__file__).resolve().parents[2] / "docs" / "backup.md"
SECONDS = 120


def blocks_by_section() -> dict[str, list[tuple[str, str]]]:
    """The language and the text of every block, by the heading it stands under."""
    found: dict[str, list[tuple[str, str]]] = {}
    heading, tokens = "", MarkdownIt().parse(PAGE.read_text(encoding="utf-8"))
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            heading = tokens[number + 1].content
        elif token.type in ("fence", "code_block"):
            found.setdefault(heading, []).append((token.info, token.content))
    return found


SECTIONS = blocks_by_section()
RUN = {
    "Any store": 2,
    "Files": 2,
    "SQLite": 2,
    "PostgreSQL": 2,
    "MySQL": 2,
    "Redis and Valkey": 4,
    "OpenSearch": 2,
    "S3": 1,
}
"""How many blocks of each section the tests below run."""


def test_every_block_of_the_page_is_run_by_a_test() -> None:
    assert {section: len(blocks) for section, blocks in SECTIONS.items()} == RUN


def run(section: str, number: int, folder: Path, variables: Mapping[str, str]) -> None:
    """Run a block of the page as it stands there, with the variables that it names."""
    language, text = SECTIONS[section][number]
    command = {"bash": ["bash", "-euo", "pipefail", "-c", text], "python": [sys.executable, "-c", text]}[language]
    path = os.pathsep.join([variables.get("PATH", ""), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **variables, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"


def opened(url: str) -> Checkpointer:
    handle = get_checkpointer(url)
    assert isinstance(handle, StoreVerbs)
    return Checkpointer(handle.store)


Contents = dict[str, list[tuple[Any, ...]]]


async def filled(url: str, *, few: bool = False) -> Contents:
    """Threads of every kind; or few of them, in a store where each save takes its time."""
    async with opened(url) as handle:
        state = AgentState(agent_id="a").with_message(Message.user("a word to be found"))
        await handle.save(state, "words", "c1")
        if few:
            await _save_few(handle)
        else:
            await fill(handle, small=True)
        return await contents(handle)


async def _save_few(handle: Checkpointer) -> None:
    """History, a fork, metadata, a namespace, pending writes, and an id that is no name of a file."""
    state = AgentState(agent_id="a")
    for number in range(3):
        state = state.with_messages(conversation(3, number * 3))
        await handle.save(state, "tenant/ä: 'x'", f"c{number}", {"n": number})
    first = await handle.load("tenant/ä: 'x'", "c0")
    assert first is not None
    await handle.save(first.with_error("another way"), "tenant/ä: 'x'", "fork")
    await handle.save(first, "tenant/ä: 'x'", "elsewhere", namespace="a|b")
    await handle.put_writes("tenant/ä: 'x'", "c2", "task", [("channel", {"deep": [1]})])
    assert await handle.delete("tenant/ä: 'x'", "c1")


async def assert_restored(url: str, expected: Contents) -> None:
    """All of it, and it can be gone on with."""
    async with opened(url) as handle:
        assert await contents(handle) == expected
        if handle.capabilities.search:
            assert [hit["thread_id"] for hit in await handle.search("found")] == ["words"]
        state = await handle.load("words")
        assert state is not None
        later = state.with_message(Message.assistant("so be it"))
        await handle.save(later, "words", "c2", if_latest="c1")
        assert await handle.load("words") == later
        assert await handle.load("words", "c1") == state


async def test_any_store(tmp_path: Path) -> None:
    source, restored = f"file:{tmp_path / 'threads'}", f"file:{tmp_path / 'restored'}"
    expected = await filled(source)
    for number in range(2):
        run("Any store", number, tmp_path, {"STORE_URL": source, "RESTORED_URL": restored})
    await assert_restored(restored, expected)


async def test_files(tmp_path: Path) -> None:
    expected = await filled(f"file:{tmp_path / 'threads'}")
    run("Files", 0, tmp_path, {})
    shutil.rmtree(tmp_path / "threads")
    run("Files", 1, tmp_path, {})
    await assert_restored(f"file:{tmp_path / 'restored'}", expected)


async def test_sqlite(tmp_path: Path) -> None:
    """While a handle has it open, and has not brought everything into the main file."""
    async with opened(f"sqlite:{tmp_path / 'agents.db'}") as handle:
        expected = await filled(f"sqlite:{tmp_path / 'agents.db'}")
        assert await handle.exists("words")
        for number in range(2):
            run("SQLite", number, tmp_path, {})
    await assert_restored(f"sqlite:{tmp_path / 'restored.db'}", expected)


@pytest.fixture
def databases(postgresql_server: PostgreSQLServer) -> Iterator[tuple[str, str]]:
    """The names of two databases, of which the first is there."""
    names = (f"backup_{secrets.token_hex(4)}", f"backup_{secrets.token_hex(4)}")
    with psycopg.connect(postgresql_server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {names[0]}")
        yield names
        for name in names:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def with_database(url: str, name: str) -> str:
    return urlsplit(url)._replace(path=f"/{name}").geturl()


async def test_postgresql(postgresql_server: PostgreSQLServer, databases: tuple[str, str], tmp_path: Path) -> None:
    source, restored = (with_database(postgresql_server.url, name) for name in databases)
    expected = await filled(source)
    variables = {
        "POSTGRESQL_URL": source,
        "RESTORED_URL": restored,
        "RESTORED_DATABASE": databases[1],
        "PATH": str(PostgreSQLServer.tools()),
    }
    for number in range(2):
        run("PostgreSQL", number, tmp_path, variables)
    await assert_restored(restored, expected)


async def test_mysql(mysql_server: MySQLServer, tmp_path: Path) -> None:
    names = (f"backup_{secrets.token_hex(4)}", f"backup_{secrets.token_hex(4)}")
    source, restored = (with_database(mysql_server.url, name) for name in names)
    parts = urlsplit(mysql_server.url)
    settings = {
        "host": parts.hostname,
        "port": parts.port,
        "user": parts.username,
        "password": unquote(parts.password or ""),
    }
    lines = ["[client]", *(f"{name}={value}" for name, value in settings.items())]
    (tmp_path / "client.cnf").write_text("\n".join(lines) + "\n")
    variables = {
        "MYSQL_DATABASE": names[0],
        "RESTORED_DATABASE": names[1],
        "PATH": str(mysql.client_tools(tmp_path / "bin")),
    }
    run_sql(mysql_server.url, f"CREATE DATABASE {names[0]}")
    try:
        expected = await filled(source)
        for number in range(2):
            run("MySQL", number, tmp_path, variables)
        await assert_restored(restored, expected)
    finally:
        for name in names:
            run_sql(mysql_server.url, f"DROP DATABASE IF EXISTS {name}")


class FromSnapshot(RedisServer):
    """The first start of a server that is to find an RDB file."""

    extra_options = ("--appendonly", "no")


def wait_for_rewrite(server: RedisServer) -> None:
    until = time.monotonic() + 60
    while True:
        told = server.ask("INFO persistence").decode()
        if "aof_rewrite_in_progress:0" in told and "aof_rewrite_scheduled:0" in told:
            assert "aof_last_bgrewrite_status:ok" in told
            return
        assert time.monotonic() < until, told
        time.sleep(0.02)


class Prompt(RedisServer):
    """It waits for no other replica before it sends a snapshot."""

    extra_options = ("--repl-diskless-sync-delay", "0")


@pytest.mark.redis
async def test_redis_from_a_snapshot(tmp_path: Path) -> None:
    tools = str(redis.client_tools(tmp_path / "bin"))
    with Prompt(tmp_path / "source") as source:
        expected = await filled(source.url)
        run("Redis and Valkey", 0, tmp_path, {"REDIS_URL": source.url, "PATH": tools})

    trap = RedisServer(tmp_path / "trap")  # which the page warns of: the threads would seem to be lost
    trap.data.mkdir(parents=True)
    shutil.copy(tmp_path / "threads.rdb", trap.data / "dump.rdb")
    with trap:
        async with opened(trap.url) as handle:
            assert await handle.list_threads() == []

    first = FromSnapshot(tmp_path / "restored")
    first.data.mkdir(parents=True)
    variables = {"REDIS_FOLDER": str(first.data), "RESTORED_URL": first.url, "PATH": tools}
    run("Redis and Valkey", 1, tmp_path, variables)
    with first:
        run("Redis and Valkey", 2, tmp_path, variables)
        wait_for_rewrite(first)
    with RedisServer(tmp_path / "restored") as restored:
        await assert_restored(restored.url, expected)


@pytest.mark.redis
async def test_redis_from_append_only_files(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "source") as source:
        expected = await filled(source.url)
        variables = {
            "REDIS_URL": source.url,
            "REDIS_FOLDER": str(source.data),
            "PATH": str(redis.client_tools(tmp_path / "bin")),
        }
        run("Redis and Valkey", 3, tmp_path, variables)
    restored = RedisServer(tmp_path / "restored")
    restored.data.mkdir(parents=True)
    shutil.copytree(tmp_path / "appendonlydir-backup", restored.data / "appendonlydir")
    with restored:
        await assert_restored(restored.url, expected)


async def test_opensearch(opensearch_server: OpenSearchServer, tmp_path: Path) -> None:
    store = OpenSearchStore(opensearch_server.url)
    name = store.index
    variables = {
        "OPENSEARCH_URL": opensearch_server.url,
        "SNAPSHOT_FOLDER": str(opensearch_server.snapshots),
        "SNAPSHOT": name,
        "INDEX": name,
    }
    try:
        expected = await filled(store.url, few=True)
        run("OpenSearch", 0, tmp_path, variables)
        store.remove()
        run("OpenSearch", 1, tmp_path, variables)
        await assert_restored(store.url, expected)
    finally:
        store.remove()
        store.ask("DELETE", f"_snapshot/backups/{name}")


async def test_s3(s3_server: SeaweedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_credentials(s3_server, monkeypatch)
    source, backup = f"backup-{secrets.token_hex(6)}", f"backup-{secrets.token_hex(6)}"
    expected = await filled(f"s3://{s3_server.bucket}/{source}?endpoint_url={s3_server.url}", few=True)
    variables = {
        "S3_ENDPOINT_URL": s3_server.url,
        "S3_BUCKET": s3_server.bucket,
        "S3_PREFIX": source,
        "BACKUP_PREFIX": backup,
        "AWS_DEFAULT_REGION": s3_server.region,
    }
    run("S3", 0, tmp_path, variables)
    await assert_restored(f"s3://{s3_server.bucket}/{backup}?endpoint_url={s3_server.url}", expected)


def test_the_commands_name_no_password() -> None:
    """A list of processes would show it."""
    for blocks in SECTIONS.values():
        for _, text in blocks:
            assert not [word for word in shlex.split(text, comments=True) if word.startswith(("--password", "-p"))]
