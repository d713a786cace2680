"""What those see who run a server: probes, figures, logs, and its command."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from locus.cli import main
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import UnsupportedFormatError
from locus.memory.backends import HTTPCheckpointer, MemoryCheckpointer, sqlite_checkpointer
from locus.memory.backends.http import engine as http_engine
from locus.server import create_app
from locus.server.config import ServerConfig
from locus.server.logs import JSONLines
from tests.server.running import WRITER, asking, serving


async def test_a_server_says_what_it_can_do() -> None:
    async with asking(create_app(MemoryCheckpointer())) as client:
        about = (await client.get("/")).json()
    assert (about["service"], about["protocol"], about["deltas"]) == ("locus", 1, True)
    assert all(about["capabilities"].values())


async def test_a_store_that_is_gone_is_seen_by_the_probe_for_readiness(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    async with asking(create_app(sqlite_checkpointer(folder / "t.db"))) as client:
        assert (await client.get("/ready")).json() == {"status": "ready"}
        folder.rename(tmp_path / "elsewhere")
        folder.write_text("no folder")
        response = await client.get("/ready")
        assert (response.status_code, response.json()["code"]) == (503, "store_unavailable")
        assert str(tmp_path) not in response.text
        assert (await client.get("/health")).is_success
        assert (await client.get("/threads/t/latest")).status_code == 503
        folder.unlink()
        (tmp_path / "elsewhere").rename(folder)
        assert (await client.get("/ready")).is_success


async def test_figures_have_few_labels_whatever_is_asked_for() -> None:
    async with asking(create_app(MemoryCheckpointer())) as client:
        for number in range(30):
            await client.get(f"/threads/t{number}/latest")
            await client.get(f"/nothing/{number}")
            await client.request(f"M{number}", "/threads")
        text = (await client.get("/metrics")).text
    counted = {line.partition("}")[0] for line in text.splitlines() if line.startswith("locus_requests_total")}
    assert counted == {
        'locus_requests_total{method="GET",operation="load_latest",status="404"',
        'locus_requests_total{method="GET",operation="none",status="404"',
        'locus_requests_total{method="other",operation="list_threads",status="405"',
    }


@pytest.mark.parametrize("sent", ["", "a b", "x" * 65, "ä", 'a"b', "a\tb"])
async def test_a_request_id_that_could_harm_a_log_is_replaced(sent: str) -> None:
    async with asking(create_app(MemoryCheckpointer())) as client:
        answered = (await client.get("/health", headers={b"X-Request-ID": sent.encode()})).headers["x-request-id"]
        assert answered != sent
        assert len(answered) == 16
        kept = await client.get("/health", headers={"X-Request-ID": "job-7.a_b"})
        assert kept.headers["x-request-id"] == "job-7.a_b"


async def test_a_failure_of_our_own_tells_nothing_and_is_logged_without_the_data(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryCheckpointer()

    async def fail(*_: object) -> None:
        raise KeyError("somebody's secret")

    monkeypatch.setattr(store.store.engine, "threads", fail)
    async with asking(create_app(store)) as client:
        response = await client.get("/threads")
    assert (response.status_code, response.json()["code"]) == (500, "failed")
    assert "secret" not in response.text
    lines = [JSONLines().format(record) for record in caplog.records if record.name == "locus.server"]
    (line,) = [json.loads(line) for line in lines]
    assert (line["exception"], line["request_id"]) == ("KeyError", response.json()["request_id"])
    assert "secret" not in json.dumps(line)


def test_a_log_line_is_json() -> None:
    record = logging.LogRecord("locus.server", logging.INFO, __file__, 1, "re\nquest", (), None)
    record.facts = {"status": 200}
    line = JSONLines().format(record)
    assert "\n" not in line
    assert json.loads(line)["message"] == "re\nquest"
    assert json.loads(line)["status"] == 200


async def test_names_that_are_not_its_own_are_refused() -> None:
    """A page in a browser could reach a server on this machine under a name that leads here."""
    app = create_app(MemoryCheckpointer(), hosts={"localhost", "::1"})
    async with asking(app) as client:
        for host, status in (("localhost", 200), ("LOCALHOST:8700", 200), ("[::1]:8700", 200), ("evil.example", 421)):
            assert (await client.get("/health", headers={"Host": host})).status_code == status


async def test_a_server_of_another_protocol_is_not_guessed_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with serving(tmp_path, "memory") as server:
        monkeypatch.setattr(http_engine, "PROTOCOL", 99)
        async with HTTPCheckpointer(server.url) as checkpointer:
            with pytest.raises(UnsupportedFormatError, match="same version"):
                await checkpointer.load("t")


async def test_the_log_of_a_server_has_no_payloads_and_no_ids(tmp_path: Path) -> None:
    with serving(tmp_path, "memory", "--token", WRITER) as server:
        async with HTTPCheckpointer(server.url, token=WRITER) as checkpointer:
            state = AgentState().with_message(Message.user("a private kangaroo"))
            await checkpointer.save(state, "private-thread", metadata={"who": "private-user"})
            await checkpointer.search("kangaroo")
            await checkpointer.load("private-thread")
        headers = {"Authorization": f"Bearer {WRITER}", "Content-Type": "application/json"}
        async with httpx.AsyncClient(base_url=server.url, headers=headers) as client:
            await client.post("/threads/private-thread/checkpoints", content=b'{"private-key":')
        assert server.terminate() in (0, -15)
        log = server.log.read_text()
    lines = [json.loads(line) for line in log.splitlines()]
    assert {line.get("operation") for line in lines} >= {"commit", "search", "stored", "save"}
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    for word in ("kangaroo", "private", WRITER):
        assert word not in log


class TestTheCommand:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["serve"], "say where the threads are kept"),
            (["serve", "--store", "nosuch://x"], "unknown checkpointer 'nosuch'"),
            (["serve", "--store", "memory", "--host", "0.0.0.0"], "without a token"),
            (["serve", "--store", "memory", "--host", "::"], "without a token"),
            (["serve", "--store", "memory", "--host", "example.org"], "without a token"),
            (["serve", "--store", "memory", "--port", "70000"], "--port"),
            (["serve", "--store", "memory", "--workers", "0"], "--workers"),
            (["serve", "--store", "memory", "--workers", "2"], "cannot share a memory store"),
            (["serve", "--store", "memory", "--token", "short"], "at least 16"),
            (["serve", "--store", "memory", "--token-file", "/none"], "cannot be used"),
            (["serve", "--store", "memory", "--grace", "0"], "--grace"),
            (["serve", "--store", "memory", "--max-body", "0"], "--max-body"),
        ],
    )
    def test_what_cannot_work_is_told_in_one_line(
        self, words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("LOCUS_SERVER_STORE", raising=False)
        assert main(words) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.startswith("locus: ")
        assert len(error.splitlines()) == 1

    @pytest.mark.parametrize("content", ["", "\n \n", "# who needs tokens?\n"])
    def test_tokens_that_were_given_and_are_none_do_not_open_the_server(
        self, content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("locus.server.serving.serve", lambda config: pytest.fail("it was started"))
        file = tmp_path / "tokens"
        file.write_text(content)
        start = ["serve", "--store", "memory"]
        assert main([*start, "--token-file", str(file)]) == 2
        assert main([*start, "--token-file", str(file), "--token", WRITER]) == 2
        assert main([*start, "--token", content]) == 2
        monkeypatch.setenv("LOCUS_SERVER_TOKENS", content)
        assert main(start) == 2
        said = capsys.readouterr().err.splitlines()
        assert ["holds no token" in line for line in said] == [True] * 4
        assert "LOCUS_SERVER_TOKENS" in said[-1]

    def test_help_says_how_to_begin(self, capsys: pytest.CaptureFixture[str]) -> None:
        for words in (["--help"], ["serve", "--help"]):
            with pytest.raises(SystemExit) as ended:
                main(words)
            assert ended.value.code == 0
        said = capsys.readouterr().out
        assert "locus serve --store sqlite:///agents.db --port 8700" in said
        assert "LOCUS_SERVER_TOKENS" in said

    def test_it_is_a_module_too(self) -> None:
        done = subprocess.run([sys.executable, "-m", "locus", "--version"], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("locus ")

    @pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
    def test_this_machine_needs_no_token_but_its_own_name(self, host: str) -> None:
        options = ServerConfig("memory", host=host)
        assert options.auth is None
        assert options.hosts is not None
        assert {"localhost", host} <= {*options.hosts}

    def test_with_a_token_any_address_and_any_name_will_do(self) -> None:
        options = ServerConfig("memory", host="0.0.0.0", tokens=WRITER)
        assert options.hosts is None
        assert options.auth is not None

    def test_workers_get_what_the_command_was_given(self) -> None:
        options: Any = ServerConfig("sqlite:///t.db", workers=3, tokens=f"{WRITER} read acme/", body_seconds=1.5)
        assert pickle.loads(pickle.dumps(options)) == options
