"""`locus inspect` and `locus serve --inspector` as processes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from locus.cli import main
from locus.memory.backends import sqlite_checkpointer
from tests.server.inspector.access import OWN, two_tenants
from tests.server.running import ACME, serving


@pytest.fixture
def store(tmp_path: Path) -> Path:
    async def fill() -> None:
        async with sqlite_checkpointer(tmp_path / "agents.db") as checkpointer:
            await two_tenants(checkpointer)

    asyncio.run(fill())
    return tmp_path / "agents.db"


@contextmanager
def inspecting(*arguments: str, cwd: Path | None = None, **variables: str) -> Iterator[tuple[str, int]]:
    """A running `locus inspect`: the link that it printed, and its process."""
    command = [sys.executable, "-m", "locus", "inspect", *arguments]
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.fullmatch(r"open (http://127\.0\.0\.1:\d+/open\?code=\S+)\n", line)
        assert found is not None, line + (process.stderr.read() if process.stderr else "")
        yield found[1], process.pid
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")


def test_it_prints_a_link_that_works_once(store: Path) -> None:
    before = store.read_bytes()
    with inspecting(f"sqlite:{store}", "--port", "0", "--no-open") as (link, pid):
        base = link.partition("/open")[0]
        with httpx.Client(headers=OWN) as client:
            opened = client.get(link)
            assert opened.status_code == 303
            port = base.rpartition(":")[2]
            assert f"locus-inspector-{port}=" in opened.headers["set-cookie"]
            assert "acme/1" in client.get(f"{base}/threads").text
            assert "read-only" in client.get(f"{base}/threads").text
            assert client.get(f"{base}/vacuum").status_code == 404
            assert client.post(f"{base}/t/acme%2F1/fork", data={"new_thread": "x"}).status_code == 404
        assert httpx.get(link).status_code == 401
        listening = [one for one in psutil.Process(pid).net_connections("inet") if one.status == psutil.CONN_LISTEN]
        assert [one.laddr.ip for one in listening] == ["127.0.0.1"]
    assert store.read_bytes() == before


def test_the_store_is_named_as_for_all_commands_and_may_be_written_to(store: Path) -> None:
    with inspecting("--port", "0", "--write", cwd=store.parent, BROWSER="true") as (link, _):
        base = link.partition("/open")[0]
        with httpx.Client(headers=OWN) as client:
            client.get(link)
            assert "may change the store" in client.get(f"{base}/threads").text
            done = client.post(f"{base}/t/acme%2F1/fork", data={"new_thread": "acme/2"})
            assert done.status_code == 303
            assert "acme/2" in client.get(f"{base}/threads").text


def test_the_browser_is_opened_with_the_link(store: Path, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    os.mkfifo(opened)
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    with inspecting("--port", "0", LOCUS_STORE=f"sqlite:{store}", BROWSER=str(browser)) as (link, _):
        assert opened.read_text() == f"{link}\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["agents.db"], 2, "is no store"),
        (["sqlite:none.db"], 2, "no threads were ever kept"),
        (["memory"], 2, "no store"),
        (["-s", "memory"], 2, "ends with this command"),
        (["sqlite:none.db", "--write"], 2, "no threads were ever kept"),
    ],
)
def test_a_store_that_cannot_be_used_is_told_at_once(
    arguments: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCUS_STORE", raising=False)
    assert main(["inspect", *arguments]) == code
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_told(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["inspect", f"sqlite:{store}", "--no-open", "--port", str(taken.getsockname()[1])]) == 2
    assert "choose another one with --port" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["jinja2", "markdown_it", "pygments"])
def test_without_the_extra_it_says_what_to_install(
    module: str, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import importlib.util

    from locus import extras

    plain = importlib.util.find_spec
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == module else plain(name))
    assert main(["inspect", f"sqlite:{store}"]) == 2
    assert 'pip install "locus-state[inspect]"' in capsys.readouterr().err
    assert main(["serve", f"sqlite:{store}", "--inspector"]) == 2
    assert 'pip install "locus-state[inspect]"' in capsys.readouterr().err


def test_it_is_served_beside_the_api(store: Path) -> None:
    with serving(store.parent, f"sqlite:{store}", "--inspector", "--token", f"{ACME} read acme/") as server:
        with httpx.Client(headers=OWN) as client:
            assert client.get(f"{server.url}/ui").status_code == 401
            assert client.post(f"{server.url}/ui/login", data={"token": ACME}).status_code == 303
            page = client.get(f"{server.url}/ui/threads")
            assert "acme/1" in page.text
            assert "other/1" not in page.text
        log = server.log.read_text()
    assert ACME not in log
    assert "acme/1" not in log
