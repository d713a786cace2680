"""A server is started, stopped, killed, paused and brought back; and it does not outlive its owner."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.servers.echo_server import BrokenServer, EchoServer, SilentServer, StubbornServer, ask
from tests.servers.errors import ServerError
from tests.servers.ports import COMPANION, highest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EchoServer]:
    with EchoServer(tmp_path / "echo") as server:
        yield server


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_server_that_was_started_answers(server: EchoServer) -> None:
    assert server.is_running
    assert ask(server.port, b"yes") == b"YES"
    assert server.log.read_text(encoding="ascii") == "listening\n"


def test_a_server_is_started_once(server: EchoServer) -> None:
    with pytest.raises(ServerError, match="running already"):
        server.start()


def test_a_server_that_was_stopped_is_gone(server: EchoServer) -> None:
    pid = server.pid
    server.stop()
    assert not lives(pid)
    assert not server.is_running
    with pytest.raises(ServerError, match="not running"):
        _ = server.pid
    server.stop()


def test_a_server_that_does_not_stop_is_made_to(tmp_path: Path) -> None:
    with StubbornServer(tmp_path / "echo") as server:
        pid = server.pid
        server.stop()
        assert not lives(pid)


def test_a_server_comes_back_after_a_kill_with_its_port_and_data(server: EchoServer) -> None:
    port, before = server.port, server.said()
    server.kill()
    with pytest.raises(ConnectionRefusedError):
        ask(port, b"there?")
    server.restart()
    assert server.port == port
    assert server.said().startswith(before)
    assert server.log.read_text(encoding="ascii") == "listening\n" * 2


def test_a_server_restarts_out_of_its_work(server: EchoServer) -> None:
    pid = server.pid
    server.restart()
    assert server.pid != pid
    assert not lives(pid)


def test_a_server_that_died_by_itself_can_be_started(server: EchoServer) -> None:
    os.kill(server.pid, signal.SIGKILL)
    while server.is_running:
        time.sleep(0.01)
    server.start()
    assert server.answers()


def test_a_paused_server_is_silent_and_goes_on(server: EchoServer) -> None:
    server.pause()
    assert server.is_paused
    with pytest.raises(TimeoutError):
        ask(server.port, b"there?", seconds=0.1)
    server.resume()
    assert server.answers()


def test_a_paused_server_can_be_stopped(server: EchoServer) -> None:
    server.pause()
    server.stop()
    assert (server.is_running, server.is_paused) == (False, False)


def test_a_server_that_ends_at_once_shows_its_log(tmp_path: Path) -> None:
    server = BrokenServer(tmp_path / "echo")
    with pytest.raises(ServerError, match=r"echo ended with 1:\nthe disk is made of cheese"):
        server.start()
    assert not server.is_running


def test_a_server_that_never_answers_is_ended_and_shows_its_log(tmp_path: Path) -> None:
    server = SilentServer(tmp_path / "echo")
    with pytest.raises(ServerError, match=r"does not answer after 0.5 s:\nlistening"):
        server.start()
    assert not server.is_running
    with pytest.raises(ConnectionRefusedError):
        ask(server.port, b"there?")


def test_data_whose_creation_fails_are_not_taken_for_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = EchoServer(tmp_path / "echo")
    monkeypatch.setattr(EchoServer, "prepare", lambda self: self.run("false"))
    with pytest.raises(ServerError, match="false ended with 1"):
        server.start()
    assert not server.data.exists()


def test_a_secret_stays_with_its_data_and_is_closed_to_others(tmp_path: Path) -> None:
    first = EchoServer(tmp_path / "echo").secret("password")
    assert EchoServer(tmp_path / "echo").secret("password") == first
    assert EchoServer(tmp_path / "other").secret("password") != first
    assert (tmp_path / "echo" / "password").stat().st_mode & 0o077 == 0


def test_ports_are_no_ports_of_outgoing_connections(tmp_path: Path) -> None:
    ports = {EchoServer(tmp_path).port for _ in range(50)}
    assert len(ports) > 45
    assert max(ports) + COMPANION < highest() + COMPANION <= 60_999


OWNER = """
    import os, signal, sys
    from pathlib import Path
    from tests.servers.echo_server import EchoServer
    server = EchoServer(Path(sys.argv[1]))
    server.start()
    print(server.pid, flush=True)
    if sys.argv[2] == "fork" and os.fork() == 0:
        sys.exit()
    if sys.argv[2] == "fork":
        os.wait()
        print(server.answers(), flush=True)
    if sys.argv[2] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("end", ["exit", "kill", "fork"])
def test_a_server_does_not_outlive_its_owner(tmp_path: Path, end: str) -> None:
    command = [sys.executable, "-c", textwrap.dedent(OWNER), str(tmp_path / "echo"), end]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=30)
    pid, *told = done.stdout.splitlines()
    assert told == (["True"] if end == "fork" else []), "the end of a forked child is not the end of the owner"
    deadline = time.monotonic() + 5
    while lives(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not lives(int(pid))
