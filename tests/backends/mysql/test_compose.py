"""The Compose example. There is no Docker here: the file is read, and its app is run as a plain process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from tests.backends.mysql.stores import drop_tables, run_sql
from tests.servers.mysql import MySQLServer
from tests.servers.ports import free_port
from tests.servers.proxy import Proxy

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "compose"
LINES = (FOLDER / "example.env").read_text().splitlines()
EXAMPLE = dict(line.split("=", 1) for line in LINES if line and not line.startswith("#"))


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    return found


def test_the_app_waits_for_a_healthy_database_whose_data_are_in_a_volume() -> None:
    parsed = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    app, db = parsed["services"]["app"], parsed["services"]["db"]
    assert app["depends_on"] == {"db": {"condition": "service_healthy"}}
    assert app["environment"]["MYSQL_HOST"] == "db"
    assert all(service["healthcheck"]["test"] for service in (app, db))
    assert re.fullmatch(r"mysql:\d+\.\d+", db["image"])
    (volume,) = db["volumes"]
    assert volume == "threads:/var/lib/mysql"
    assert "threads" in parsed["volumes"]


def test_every_variable_is_in_the_example_and_no_password_is_in_the_file() -> None:
    text = (FOLDER / "compose.yaml").read_text()
    used = set(re.findall(r"\$\{(\w+)", text))
    required = set(re.findall(r"\$\{(\w+):\?", text))
    assert required <= set(EXAMPLE) <= used
    for service in services().values():
        for name, value in service["environment"].items():
            assert "PASSWORD" not in name or value.startswith("${"), name


def test_the_image_has_what_the_app_imports() -> None:
    lines = (FOLDER / "Dockerfile").read_text()
    assert '"locus-state[mysql]"' in lines
    assert "COPY app.py ." in lines
    assert services()["app"]["build"] == "."


@contextmanager
def running_app(url: str, port: int) -> Iterator[str]:
    """The app with the environment that Compose gives it, and the address it answers on."""
    parts = urlsplit(url)
    environment = {
        "MYSQL_HOST": "127.0.0.1",
        "MYSQL_PORT": str(port),
        "MYSQL_DATABASE": parts.path.strip("/"),
        "MYSQL_USER": unquote(parts.username or ""),
        "MYSQL_PASSWORD": unquote(parts.password or ""),
        "LOCUS_MODEL_PROVIDER": "mock",
        "PORT": str(free_port()),
    }
    # Compose gives it nothing else of these.
    assert set(services()["app"]["environment"]) - set(environment) == {"LOCUS_MODEL_ID"}
    command = [sys.executable, "-u", "-W", "error", str(FOLDER / "app.py")]
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == f"answering on port {environment['PORT']}\n"
        yield f"http://127.0.0.1:{environment['PORT']}"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ask(address: str, data: bytes | None = None) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(address, data, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.mysql
def test_the_app_remembers_across_a_restart_and_tells_an_outage(mysql_server: MySQLServer) -> None:
    url = mysql_server.url
    drop_tables(url, "locus")
    with Proxy(mysql_server.port) as proxy:
        with running_app(url, proxy.port) as app:
            assert ask(f"{app}/health") == (200, "True\n")
            status, _ = ask(f"{app}/threads/alice", b"My name is Alice.")
            assert status == 200
        with running_app(url, proxy.port) as app:
            status, answer = ask(f"{app}/threads/alice", b"What's my name?")
            assert status == 200
            assert "Alice" in answer
            proxy.refuse()
            proxy.cut()
            status, told = ask(f"{app}/health")
            assert status == 503
            assert "MySQL" in told
            proxy.accept()
            assert ask(f"{app}/health")[0] == 200
    assert run_sql(url, "SELECT thread_id FROM locus_threads") == [("alice",)]
    drop_tables(url, "locus")
