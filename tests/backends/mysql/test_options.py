"""What MySQL's options, URLs and errors mean, without a server."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from pydantic import SecretStr

from locus.errors import (
    BackendUnavailableError,
    CheckpointError,
    ConfigurationError,
    CorruptCheckpointError,
    SerializationError,
)
from locus.memory import get_checkpointer
from locus.memory.backends import MySQLBackend, MySQLConfig, StorageBackendAdapter, mysql_checkpointer
from locus.memory.backends.mysql.client import MySQLError, check_server, check_version, translated, trouble_of
from locus.memory.backends.sql.engine import Trouble
from locus.memory.engine import NotAllowedError

SECRET = "s3cr%t/p@ss:word?"


def backend_of(checkpointer: Any) -> MySQLBackend:
    assert isinstance(checkpointer, StorageBackendAdapter)
    assert isinstance(checkpointer.backend, MySQLBackend)
    return checkpointer.backend


def test_the_defaults_are_those_of_a_local_server() -> None:
    config = backend_of(get_checkpointer("mysql")).config
    assert (config.host, config.port, config.database, config.user) == ("localhost", 3306, "locus", "root")
    assert (config.table_name, config.auto_create_table, config.ttl_seconds) == ("locus", True, None)
    assert config == MySQLConfig()


def test_a_url_says_everything_and_its_parts_are_decoded() -> None:
    url = "mysql://us%40er:s3cr%25t%2Fp%40ss%3Aword%3F@db.example:3307/my%20base?table_name=agents&max_pool_size=3&ssl=true"
    config = backend_of(get_checkpointer(url, ttl_seconds=60)).config
    assert (config.host, config.port, config.database, config.user) == ("db.example", 3307, "my base", "us@er")
    assert config.password.get_secret_value() == SECRET
    assert (config.table_name, config.max_pool_size, config.ssl, config.ttl_seconds) == ("agents", 3, True, 60)
    assert config.tls() is not None


def test_a_url_may_leave_everything_out() -> None:
    assert MySQLConfig.options_in("mysql://") == {}
    assert MySQLConfig.options_in("mysql://[::1]/threads") == {"host": "::1", "database": "threads"}


def test_a_dsn_goes_before_the_parts_and_options_before_the_dsn() -> None:
    config = MySQLBackend("elsewhere", dsn=SecretStr("mysql://u@h/d?table_name=a"), table_name="b").config
    assert (config.host, config.user, config.database, config.table_name) == ("h", "u", "d", "b")


def test_a_config_makes_the_same_backend() -> None:
    config = MySQLConfig(host="h", password=SecretStr(SECRET), table_name="agents")
    assert MySQLBackend.from_config(config).config == config


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://u:{SECRET}@h:port/d",
        "mysql://u:hunter2@h:99999999/d",
        "mysql://u:hunter2@h/d/e",
        "mysql://u:hunter2@h/d#x",
        "mysql:u:hunter2@h/d",
        "mysql://u:hunter2@h/d?password=hunter2",
        "mysql://u:hunter2@h/d?colour=hunter2",
        "mysql://u:hunter2@h/d?max_pool_size=hunter2",
        "mysql://u:hunter2@h/d?ssl_ca=/no/such/file",
    ],
)
def test_a_url_that_cannot_work_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        get_checkpointer(url)
    assert "hunter2" not in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None or "hunter2" not in str(caught.value.__cause__)


@pytest.mark.parametrize(
    "options",
    [
        {"table_name": "a-b"},
        {"table_name": "1a"},
        {"table_name": "x" * 41},
        {"table_name": "a`; DROP TABLE x"},
        {"max_pool_size": 0},
        {"min_pool_size": 5, "max_pool_size": 2},
        {"connect_timeout": 0},
        {"command_timeout": -1},
        {"ttl_seconds": 0},
        {"port": "x"},
        {"colour": "blue"},
        {"pool": object()},
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        mysql_checkpointer(password=SECRET, **options)


def test_the_password_is_in_no_text() -> None:
    backend = MySQLBackend(password=SECRET)
    engine = backend.store.engine
    for text in (repr(backend), repr(backend.config), str(backend.config), engine.identity, repr(vars(engine))):
        assert SECRET not in text


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (1040, BackendUnavailableError, "max_connections"),
        (1045, BackendUnavailableError, "user and password"),
        (1049, BackendUnavailableError, "create it"),
        (1290, BackendUnavailableError, "read-only"),
        (1021, BackendUnavailableError, "disk is full"),
        (1114, BackendUnavailableError, "full"),
        (2003, BackendUnavailableError, "cannot be reached"),
        (2006, BackendUnavailableError, "cannot be reached"),
        (2013, BackendUnavailableError, "cannot be reached"),
        (1205, BackendUnavailableError, "lock"),
        (1213, BackendUnavailableError, "each other's way"),
        (1142, NotAllowedError, "granted"),
        (1153, SerializationError, "max_allowed_packet"),
        (3151, SerializationError, "key"),
        (3157, SerializationError, "nested"),
        (1146, CorruptCheckpointError, "damaged"),
        (9999, BackendUnavailableError, "failed"),
    ],
)
def test_errors_say_what_to_do(code: int, kind: type[CheckpointError], words: str) -> None:
    error = translated(MySQLError(code, "as the server put it"), "h:1/d")
    assert type(error) is kind
    assert words in str(error)
    assert "as the server put it" in str(error)


def test_what_is_tried_again() -> None:
    assert trouble_of(MySQLError(1213, "")) is Trouble.ROLLED_BACK
    for lost in (MySQLError(2013, ""), MySQLError(1205, ""), MySQLError(1040, ""), ConnectionResetError()):
        assert trouble_of(lost) is Trouble.LOST
    for final in (MySQLError(1045, ""), MySQLError(1290, ""), MySQLError(1153, ""), TimeoutError()):
        assert trouble_of(final) is Trouble.FINAL


@pytest.mark.parametrize("version", ["8.0.17", "8.0.36-28 (Percona)", "8.4.0", "9.7.4-2", "10.0.0"])
def test_mysql_from_8_0_17_on_will_do(version: str) -> None:
    check_server(version, "h")
    check_version(version, "h")


@pytest.mark.parametrize("version", ["5.7.44-log", "8.0.16", "nonsense"])
def test_an_older_server_is_refused(version: str) -> None:
    with pytest.raises(ConfigurationError, match=r"8\.0\.17"):
        check_version(version, "h")


async def _pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The beginning of MariaDB's side of a conversation: it greets, and lets anybody in."""
    greeting = b"\x0a5.5.5-10.11.6-MariaDB-1\0" + struct.pack("<I", 7) + b"saltsalt\0"
    greeting += struct.pack("<HBHHB", 0xA208, 45, 2, 0x0008, 21) + bytes(10) + b"saltsaltsalt\0mysql_native_password\0"
    writer.write(len(greeting).to_bytes(3, "little") + b"\0" + greeting)
    header = await reader.readexactly(4)
    await reader.readexactly(int.from_bytes(header[:3], "little"))
    fine = b"\0\0\0\x02\0\0\0"
    writer.write(len(fine).to_bytes(3, "little") + b"\x02" + fine)
    await reader.read()
    writer.close()
    await writer.wait_closed()


async def test_mariadb_is_told_from_mysql_and_refused() -> None:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _pretend(reader, writer)
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, mysql_checkpointer("127.0.0.1", port, password=SECRET) as checkpointer:
        with pytest.raises(ConfigurationError, match="MariaDB") as caught:
            await checkpointer.load("thread")
        await asyncio.wait_for(ended.wait(), 10)
    assert "10.11.6" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_the_ddl_can_be_printed() -> None:
    text = MySQLBackend.ddl("agents")
    assert text.count("CREATE TABLE IF NOT EXISTS") == 6
    assert "`agents_threads`" in text
    assert "md5" not in text.lower()
    with pytest.raises(ConfigurationError):
        MySQLBackend.ddl("a b")
