"""What must not leave the server: payloads, ids, names of files and tokens, in logs, answers and environments."""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from locus.errors import BackendUnavailableError, ConfigurationError, CorruptCheckpointError, LocusError
from locus.memory.backends import MemoryCheckpointer
from locus.server import create_app
from locus.server.config import ServerConfig
from locus.server.logs import JSONLines, error_facts
from locus.wire.problems import problem_of
from tests.server.running import WRITER, Serving, asking, serving

DAMAGES = [
    "UPDATE locus_checkpoints SET head = '{\"a-private-kangaroo\":'",
    'UPDATE locus_checkpoints SET head = \'{"messages":[],"a-private-kangaroo":01}\'',
    'UPDATE locus_checkpoints SET manifest = \'[[["messages"],[["a-private-kangaroo",0,0,7]]]]\'',
    "UPDATE locus_checkpoints SET manifest = '{\"a-private-kangaroo\":1}'",
    "UPDATE locus_checkpoints SET created_at = 'a-private-kangaroo'",
    "UPDATE locus_checkpoints SET metadata = '{\"a-private-kangaroo\":'",
    "UPDATE locus_checkpoints SET metadata = '[\"a-private-kangaroo\"]'",
    "UPDATE locus_runs SET items = '[\"a-private-kangaroo'",
    "UPDATE locus_runs SET start = 'a-private-kangaroo'",
    "DELETE FROM locus_runs",
    "ALTER TABLE locus_runs RENAME TO a_private_kangaroo",
]
WAYS = ["latest", "checkpoints", "checkpoints/a-private-checkpoint", "stored", "entry"]
SECRETS = ("kangaroo", "private")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("a-private-folder")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Serving]:
    variables = {"LOCUS_SERVER_STORE": f"sqlite:///{folder}/a-private.db", "LOCUS_SERVER_TOKENS": WRITER}
    with serving(folder, None, "--log-level", "debug", **variables) as server:
        yield server


@pytest.fixture
def client(server: Serving) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {WRITER}"}) as client:
        yield client


def _log_until(server: Serving, request_id: str) -> list[dict[str, Any]]:
    """The log, up to the line of a request: it is written after the answer was sent."""
    until = time.monotonic() + 30
    while f'"request_id": "{request_id}", "operation"' not in server.log.read_text():
        assert time.monotonic() < until, server.log.read_text()
        time.sleep(0.01)
    return [json.loads(line) for line in server.log.read_text().splitlines()]


def _change(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql)


@pytest.mark.parametrize("sql", DAMAGES)
def test_damage_is_told_without_what_is_stored(client: httpx.Client, server: Serving, folder: Path, sql: str) -> None:
    thread, path = f"a-private-thread-{DAMAGES.index(sql)}", folder / "a-private.db"
    body = {"checkpoint_id": "a-private-checkpoint", "state": {"messages": ["a private kangaroo"] * 9}}
    assert client.post(f"/threads/{thread}/checkpoints", json=body).is_success
    _change(path, sql)
    answers = [client.get(f"/threads/{thread}/{way}") for way in WAYS]
    answers.append(client.post("/search", json={"query": "kangaroo"}))
    answers.append(client.get("/recent", headers={"X-Request-ID": f"last-{DAMAGES.index(sql)}"}))
    if "RENAME" in sql:
        _change(path, "ALTER TABLE a_private_kangaroo RENAME TO locus_runs")
    _change(path, "DELETE FROM locus_checkpoints")
    _change(path, "DELETE FROM locus_runs")
    failed = [answer for answer in answers if answer.status_code >= 500]
    assert failed
    for answer in failed:
        assert not [word for word in SECRETS if word in answer.text], answer.text
        assert answer.json()["code"] in ("corrupt", "failed", "unsupported_format", "store_unavailable")
    lines = _log_until(server, f"last-{DAMAGES.index(sql)}")
    told = next(line for line in reversed(lines) if line["level"] == "error")
    assert {"request_id", "digest", "threads"} <= told.keys()
    assert "error" in told or "exception" in told
    log = server.log.read_text()
    assert not [word for word in (*SECRETS, WRITER) if word in log]


def test_an_export_that_fails_half_way_says_nothing_more(client: httpx.Client, server: Serving, folder: Path) -> None:
    for number in range(2):
        body = {"checkpoint_id": f"private-{number}", "state": {"number": number, "text": "a private kangaroo"}}
        assert client.post("/threads/private-export/checkpoints", json=body).is_success
    _change(
        folder / "a-private.db", "UPDATE locus_checkpoints SET head = '{\"kangaroo' WHERE checkpoint_id = 'private-1'"
    )
    with pytest.raises(httpx.RemoteProtocolError):
        client.get("/threads/private-export/export", headers={"X-Request-ID": "cut-short"})
    _log_until(server, "cut-short")
    assert not [word for word in SECRETS if word in server.log.read_text()]


@pytest.mark.parametrize(
    "content", [b"a private kangaroo, which is no database" * 50, b""], ids=["foreign", "a folder"]
)
async def test_a_store_that_is_something_else_is_not_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a-private.db"
    app = create_app(f"sqlite:///{path}")
    path.write_bytes(content) if content else path.mkdir()
    async with asking(app) as client:
        for way in ("/threads", "/threads/t/latest", "/ready", "/recent"):
            answer = await client.get(way)
            assert answer.status_code >= 500
            assert "private" not in answer.text
            assert str(tmp_path) not in answer.text


@pytest.mark.parametrize("kind", [CorruptCheckpointError, BackendUnavailableError, ConfigurationError, LocusError])
def test_the_text_of_an_error_of_the_server_is_no_answer(kind: type[LocusError]) -> None:
    problem = problem_of(kind("/var/lib/a-private.db has 'a private kangaroo'"))
    assert problem.status >= 500
    assert "private" not in json.dumps(problem.data("id"))
    try:
        raise kind("a private kangaroo") from ValueError("private")
    except LocusError as error:
        facts = error_facts(error)
    assert facts["error"] == [kind.__name__, "ValueError"]
    assert "private" not in json.dumps(facts)


@pytest.mark.parametrize("status", [500, 503])
async def test_an_unforeseen_error_says_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    store = MemoryCheckpointer()

    async def fail(*_: object) -> None:
        raise OSError(2, "No such file", "/var/a-private-file") if status == 500 else BackendUnavailableError("private")

    monkeypatch.setattr(store.store.engine, "threads", fail)
    async with asking(create_app(store)) as client:
        response = await client.get("/threads")
    assert response.status_code == status
    assert "private" not in response.text
    lines = [JSONLines().format(record) for record in caplog.records if record.name == "locus.server"]
    assert response.json()["request_id"] in lines[0]
    assert not [line for line in lines if "private" in line]


@pytest.mark.parametrize(
    ("name", "message", "arguments", "said"),
    [
        (
            "asyncio",
            "Task exception was never retrieved\nfuture: <KeyError('kangaroo')>",
            (),
            "logged by test_secrecy:1",
        ),
        ("opensearch", "POST %s [status:%s]", ("http://h/i/kangaroo", 400), "POST %s [status:%s]"),
        ("locus.memory.backends.objects.log", "could not be put: %s", ("kangaroo",), "could not be put: %s"),
        ("uvicorn.error", "Started server process [%d]", (7,), "Started server process [7]"),
        ("locus.server", "request", (), "request"),
    ],
)
def test_what_other_packages_log_is_kept_without_its_arguments(
    name: str, message: str, arguments: tuple[object, ...], said: str
) -> None:
    record = logging.LogRecord(name, logging.WARNING, __file__, 1, message, arguments, None)
    line = JSONLines().format(record)
    assert json.loads(line)["message"] == said
    assert "kangaroo" not in line


def _workers(server: Serving) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == server.process.pid:
                found.append(int(entry.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_workers_have_no_secrets_in_their_environment_and_log_as_little(tmp_path: Path) -> None:
    variables = {
        "LOCUS_SERVER_STORE": f"sqlite:///{tmp_path}/a-private.db",
        "LOCUS_SERVER_TOKENS": f"{WRITER} write",
        "LOCUS_SERVER_LOG_KEY": "a-private-key-of-digests",
    }
    extra = "another-private-token"
    with serving(tmp_path, None, "--workers", "2", "--token", extra, "--audit", "audit", **variables) as server:
        for token in (WRITER, extra):
            with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {token}"}) as client:
                assert client.post("/threads/private-thread/checkpoints", json={"state": {}}).is_success
                assert client.get("/threads/private-thread/latest").is_success
        workers = _workers(server)
        assert len(workers) >= 2
        for worker in workers:
            for file in ("environ", "cmdline"):
                text = Path(f"/proc/{worker}/{file}").read_bytes().replace(str(tmp_path).encode(), b"")
                for secret in (WRITER, extra, "a-private.db", "a-private-key"):
                    assert secret.encode() not in text, file
        assert server.terminate() in (0, -15)
        log, audit = server.log.read_text(), (tmp_path / "audit").read_text()
    assert {line.get("operation") for line in map(json.loads, log.splitlines())} >= {"save", "load_latest"}
    assert len({json.loads(line)["threads"][0] for line in audit.splitlines()}) == 1, "workers do not share the key"
    assert len({json.loads(line)["token"] for line in audit.splitlines()}) == 2
    for secret in (WRITER, extra, "private-thread", "private-key", "a-private.db"):
        assert secret not in log
        assert secret not in audit


def test_a_configuration_shows_no_secrets() -> None:
    shown = repr(ServerConfig("postgresql://user:secret@host/db", tokens=f"{WRITER} read", log_key="secret-key"))
    assert "secret" not in shown
    assert WRITER not in shown
