"""The first line of the log, probes that are not logged, and tokens that are read again on SIGHUP."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from locus import __version__
from locus.cli import main
from locus.errors import ConfigurationError
from locus.memory import get_checkpointer
from locus.memory.backends import MemoryCheckpointer
from locus.server import Token, create_app
from locus.server.auth import parse_tokens
from locus.server.config import ServerConfig
from locus.server.serving import store_name
from tests.server.running import ACME, READER, WRITER, Serving, asking, serving

OLD, NEW = "an-old-token-of-somebody", "a-new-token-of-somebody"


def log_of(server: Serving) -> list[dict[str, Any]]:
    return [json.loads(line) for line in server.log.read_text().splitlines(keepends=True) if line.endswith("\n")]


def wait_for(server: Serving, count: int, matches: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    until = time.monotonic() + 60
    while len(found := [line for line in log_of(server) if matches(line)]) < count:
        assert server.process.poll() is None, server.log.read_text()
        assert time.monotonic() < until, server.log.read_text()
        time.sleep(0.02)
    return found


def says(message: str) -> Callable[[dict[str, Any]], bool]:
    return lambda line: bool(line["message"] == message)


def status(server: Serving, token: str) -> int:
    """Of a request over a new connection: whichever worker takes it."""
    return httpx.get(f"{server.url}/threads", headers={"Authorization": f"Bearer {token}"}).status_code


READ = "the tokens were read again"
REASONS = {None: "holds no token", 1: "at least 16 characters", 2: "must end with / or :"}
UNREAD = "the token file cannot be used, and the tokens stay as they were"


def test_the_first_line_names_what_is_served_where_and_probes_have_none(tmp_path: Path) -> None:
    with serving(tmp_path, "sqlite:///a-name.db", "--token", WRITER) as server:
        assert httpx.get(f"{server.url}/ready").is_success
        assert status(server, WRITER) == 200
        wait_for(server, 1, lambda line: line.get("operation") == "list_threads")
        log = log_of(server)
    first = log[0]
    assert (first["message"], first["level"]) == ("serving", "info")
    assert first["store"] == "sqlite"
    assert first["version"] == __version__
    assert first["address"] == server.url
    assert (first["workers"], first["tokens"]) == (1, 1)
    assert {line.get("operation") for line in log} == {None, "list_threads"}
    assert "a-name" not in json.dumps(log)


async def test_probes_are_logged_for_those_who_want_to_know_everything(caplog: pytest.LogCaptureFixture) -> None:
    async with asking(create_app(MemoryCheckpointer())) as client:
        for level, count in ((logging.INFO, 0), (logging.DEBUG, 2)):
            caplog.clear()
            with caplog.at_level(level, "locus.server"):
                assert (await client.get("/health")).is_success
                assert (await client.get("/ready")).is_success
            assert [record.levelname for record in caplog.records] == ["DEBUG"] * count


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("memory", "memory"),
        ("file:./a-name", "file"),
        (
            "postgresql://who:s3cret@db.example:5433/agents?schema_name=bots",
            'postgresql:db.example:5433/agents/"bots".',
        ),
        ("mysql://who:s3cret@db.example:3307/agents", "mysql:db.example:3307/agents/locus_"),
        ("redis://who:s3cret@cache.example:6380/2", "redis:cache.example:6380/2"),
        ("opensearch://who:s3cret@one.example:9201/agents", "opensearch:one.example:9201/agents"),
        ("https://who:s3cret@locus.example/agents", "http:https://locus.example/agents"),
    ],
)
def test_a_store_is_named_without_its_secrets(url: str, name: str) -> None:
    found = store_name(get_checkpointer(url))
    assert found.startswith(name) or found == name
    for secret in ("s3cret", "a-name"):
        assert secret not in found


def test_tokens_are_read_again_and_a_broken_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{OLD}\n")
    file.chmod(0o600)
    with serving(tmp_path, "memory", "--token-file", "tokens", "--token", WRITER) as server:
        assert [status(server, token) for token in (OLD, NEW, WRITER)] == [200, 401, 200]
        file.write_text(f"# changed\n{NEW} read\n")
        os.kill(server.process.pid, signal.SIGHUP)
        assert wait_for(server, 1, says(READ))[0]["tokens"] == 2
        assert [status(server, token) for token in (OLD, NEW, WRITER)] == [401, 200, 200]

        for broken, line in ((f"{OLD}\n{NEW} write a-tenant\n", 2), ("", None), ("# none\n", None), ("short", 1)):
            file.write_text(broken)
            before = len([*filter(says(UNREAD), log_of(server))])
            os.kill(server.process.pid, signal.SIGHUP)
            told = wait_for(server, before + 1, says(UNREAD))[-1]
            assert (told["level"], told["line"]) == ("error", line)
            assert REASONS[line] in told["reason"]
            assert [status(server, token) for token in (OLD, NEW, WRITER)] == [401, 200, 200]
        file.unlink()
        os.kill(server.process.pid, signal.SIGHUP)
        assert "No such file" in wait_for(server, 5, says(UNREAD))[-1]["reason"]
        assert status(server, NEW) == 200
        assert server.terminate() in (0, -15)
        log = server.log.read_text()
    for secret in (OLD, NEW, WRITER, "a-tenant", str(tmp_path)):
        assert secret not in log


def test_every_worker_reads_them_again_and_those_that_come_later_have_them(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{OLD}\n")
    file.chmod(0o600)
    with serving(tmp_path, "sqlite:///t.db", "--token-file", "tokens", "--workers", "2") as server:
        started = wait_for(server, 2, lambda line: line["message"].startswith("Started server process"))
        wait_for(server, 2, says("Application startup complete."))
        assert log_of(server)[0]["message"] == "serving"
        assert [line["workers"] for line in log_of(server) if line["message"] == "serving"] == [2]
        file.write_text(f"{NEW}\n")
        os.kill(server.process.pid, signal.SIGHUP)
        wait_for(server, 2, says(READ))
        assert [status(server, token) for token in [OLD, NEW] * 6] == [401, 200] * 6

        file.write_text("broken\n")  # and a worker that is started now gets what was read before
        os.kill(server.process.pid, signal.SIGHUP)
        wait_for(server, 1, says(UNREAD))
        pid = int(started[0]["message"].partition("[")[2].partition("]")[0])
        os.kill(pid, signal.SIGKILL)
        wait_for(server, 3, says("Application startup complete."))
        assert [status(server, token) for token in [OLD, NEW] * 6] == [401, 200] * 6


async def test_an_app_takes_other_tokens_while_it_serves() -> None:
    app = create_app(MemoryCheckpointer(), [Token(WRITER), Token(ACME, prefix="acme/")], rate="0.001/2")
    async with asking(app, WRITER) as writer, asking(app, READER) as reader, asking(app, ACME) as acme:
        assert [(await writer.get("/threads")).status_code for _ in range(3)] == [200, 200, 429]
        assert (await acme.get("/threads")).status_code == 200
        app.use_tokens([Token(WRITER), Token(READER, "read")])
        assert (await writer.get("/threads")).status_code == 429, "it has used up what it had"
        assert (await reader.get("/threads")).status_code == 200
        assert (await acme.get("/threads")).status_code == 401
        with pytest.raises(ConfigurationError, match="no request would be accepted"):
            app.use_tokens([])
        assert (await reader.get("/threads")).status_code == 200


def test_the_line_that_is_wrong_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"read or write \(line 3 of the tokens\)"):
        parse_tokens(f"# a comment\n{WRITER}\n{READER} admin\n")


@pytest.mark.parametrize(("line", "reason"), [("a-token", "at least 16"), (f"{READER} read a-tenant", "must end with")])
def test_the_start_says_the_line_of_the_file_and_the_reason(
    line: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tokens"
    for before, number in (("", 1), ("# one\n", 2)):
        file.write_text(f"{before}{line}\n")
        assert main(["serve", "--store", "memory", "--token-file", str(file)]) == 2
        said = capsys.readouterr().err
        assert reason in said
        assert f"(line {number} of the token file)" in said
        for secret in ("a-token", "a-tenant", READER):
            assert secret not in said


def test_a_token_file_that_everybody_can_read_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{WRITER}\n")
    file.chmod(0o644)
    assert main(["serve", "--store", "memory", "--token-file", str(file)]) == 2
    assert "every user of this machine can read the token file" in capsys.readouterr().err
    file.chmod(0o640)  # of a group, as in Kubernetes and systemd
    assert ServerConfig("memory", token_file=str(file)).with_tokens_read_again().auth


def test_a_port_that_is_taken_is_said_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for more in ([], ["--workers", "2"]):
            assert main(["serve", "--store", "sqlite:a.db", "--port", str(port), *more]) == 2
            said = capsys.readouterr()
            assert said.err == f"locus: port {port} of 127.0.0.1 is in use: choose another with --port\n"
    assert main(["serve", "--store", "memory", "--host", "192.0.2.1", "--token", WRITER, "--port", str(port)]) == 2
    assert "cannot listen at port" in capsys.readouterr().err


def test_a_token_file_of_a_strange_kind_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    for content in (b"\xff\xfe" * 20, b"# too long\n" * 500_000):
        file.write_bytes(content)
        with pytest.raises(ConfigurationError, match="the token file"):
            ServerConfig("memory", token_file=str(file)).with_tokens_read_again()
