"""How commands end when somebody goes away: a pipe that closes, Ctrl-C, a server that does not answer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from locus.core.state import AgentState
from locus.memory.backends import sqlite_checkpointer
from tests.cli.terminals import Commands


@pytest.fixture
def store(tmp_path: Path) -> str:
    async def story() -> None:
        async with sqlite_checkpointer(tmp_path / "agents.db") as checkpointer:
            for turn in range(300):
                await checkpointer.save(AgentState(), "t", f"cp-{turn}", metadata={"text": "x" * 500})

    asyncio.run(story())
    return f"sqlite:{tmp_path / 'agents.db'}"


def begun(*words: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    # Whoever runs the tests in the background lets them ignore Ctrl-C, and a program would inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "locus", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_pipe_that_closes_is_no_error(store: str) -> None:
    process = begun("-s", store, "log", "t", "-n", "300", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(10) == b'{"thread_i'
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 0
    process.stderr.close()


def test_new_checkpoints_are_followed_until_it_is_stopped(store: str, tmp_path: Path) -> None:
    process = begun("-s", store, "log", "t", "-n", "1", "--json", "--follow")
    assert process.stdout is not None
    assert process.stderr is not None
    assert json.loads(process.stdout.readline())["checkpoint_id"] == "cp-299"

    async def more() -> None:
        async with sqlite_checkpointer(tmp_path / "agents.db") as checkpointer:
            for turn in range(30):
                await checkpointer.save(AgentState(), "t", f"new-{turn}")

    asyncio.run(more())
    assert [json.loads(process.stdout.readline())["checkpoint_id"] for _ in range(30)] == [
        f"new-{turn}" for turn in range(30)
    ]
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert process.stderr.read() == b""
    process.stdout.close()
    process.stderr.close()


def test_a_server_that_does_not_answer(locus: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    began = time.monotonic()
    for url in (f"http://127.0.0.1:{port}", f"postgresql://u@127.0.0.1:{port}/d", f"redis://127.0.0.1:{port}"):
        said = locus.piped("-s", url, "threads")
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith("locus: ")
        assert "Traceback" not in said.err
    assert time.monotonic() - began < 120


def test_a_vacuum_that_would_keep_nothing_is_a_mistake(locus: Commands, store: str) -> None:
    done = locus.piped("-s", store, "stats", "--if-vacuum", "keep-last=0")
    assert (done.code, done.out) == (2, "")


def test_a_destination_that_cannot_be_used_is_said_once(locus: Commands, store: str, tmp_path: Path) -> None:
    for number in range(3):
        assert locus.piped("-s", store, "fork", "t", f"u{number}").code == 0
    (tmp_path / "notes.db").write_text("not a database", encoding="ascii")
    done = locus.piped("copy", store, f"sqlite:{tmp_path / 'notes.db'}")
    assert (done.code, done.out) == (2, "")
    assert done.err.count("cannot be read") == 1


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:99999", "http://127.0.0.1:0", "http://xn--/", "http://xn--a.example"]
)
def test_a_server_that_cannot_be_is_a_mistake_in_the_url(locus: Commands, url: str) -> None:
    done = locus.piped("-s", url, "threads")
    assert (done.code, done.out) == (2, "")
    assert "base_url is no URL" in done.err
    assert "Traceback" not in done.err
