"""`python -m tests.servers`, as a developer calls it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from tests.servers import catalogue
from tests.servers.__main__ import main
from tests.servers.catalogue import Kind
from tests.servers.echo_server import EchoServer
from tests.servers.errors import ServerError

ROOT = Path(__file__).resolve().parents[2]


def test_a_server_runs_until_it_is_told_to_end() -> None:
    command = [sys.executable, "-m", "tests.servers", "run", "redis"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().removeprefix("» ").strip()
        log = Path(process.stdout.readline().removeprefix("» its log: ").strip())
        with redis.Redis.from_url(url, retry=None) as client:
            assert client.ping()
            assert log.is_file()
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(10) == 0
            with pytest.raises(redis.ConnectionError):
                client.ping()
        assert not log.exists()


def test_named_servers_are_installed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue.SERVERS, "echo", Kind(EchoServer, EchoServer.install))
    main(["install", "echo"])
    assert "» echo is there after 0 s" in capsys.readouterr().out
    with pytest.raises(ServerError, match=r"there is no nothing; known: postgresql, .*, echo"):
        main(["install", "nothing", "echo"])
