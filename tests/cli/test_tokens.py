"""Commands on a store that is on a server, with a token that no process list shows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from locus.cli import main, parser, serve, tokens
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConfigurationError
from locus.memory.backends import HTTPCheckpointer, sqlite_checkpointer
from tests.server.running import READER, WRITER, Serving, serving

STATE = AgentState(agent_id="a").with_message(Message.user("hello"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("server")
    with serving(folder, "sqlite:///t.db", LOCUS_SERVER_TOKENS=f"{WRITER}\n{READER} read") as server:
        with HTTPCheckpointer(server.url, token=WRITER).sync as handle:
            handle.save(STATE, "kept", "c1")
        yield server


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (tokens.TOKEN_VARIABLE, tokens.FILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"# for the tests\n\n{WRITER}\n")
    return path


def loaded(path: Path) -> AgentState | None:
    with sqlite_checkpointer(path).sync as handle:
        return handle.load("kept")


@pytest.mark.parametrize("way", ["variable", "file variable", "option"])
def test_a_command_reads_from_a_server_with_a_token(
    server: Serving, tmp_path: Path, token_file: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: list[str] = []
    if way == "variable":
        monkeypatch.setenv("LOCUS_TOKEN", READER)  # which reads, and that is all that a source needs
        monkeypatch.setenv("LOCUS_TOKEN_FILE", str(tmp_path / "not read"))
    elif way == "file variable":
        monkeypatch.setenv("LOCUS_TOKEN_FILE", str(token_file))
    else:
        monkeypatch.setenv("LOCUS_TOKEN", "the option counts, and not this")
        options = ["--token-file", str(token_file)]
    assert main(["copy", *options, server.url, f"sqlite:{tmp_path / 'b.db'}"]) == 0
    assert loaded(tmp_path / "b.db") == STATE


def test_a_command_writes_to_a_server_with_a_token(
    server: Serving, tmp_path: Path, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sqlite_checkpointer(tmp_path / "a.db").sync as handle:
        handle.save(STATE, "brought", "c1")
    monkeypatch.setenv("HERE", server.url)
    command = ["copy", "--token-file", str(token_file), f"sqlite:{tmp_path / 'a.db'}", "env:HERE"]
    assert main([*command, "--dry-run"]) == 0
    assert main(command) == 0
    with HTTPCheckpointer(server.url, token=READER).sync as handle:
        assert handle.load("brought") == STATE


def test_an_import_writes_to_a_server_with_a_token(
    server: Serving, tmp_path: Path, token_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(__file__).parents[1] / "transfer" / "samples" / "locus_sdk_3" / "folder"
    command = ["import", "locus-sdk", f"file:{folder}", server.url]
    assert main(command) == 2
    assert "the server answered 401" in capsys.readouterr().err
    assert main([*command, "--token-file", str(token_file)]) == 0


def test_a_server_serves_the_store_of_another_one(server: Serving, tmp_path: Path) -> None:
    with serving(tmp_path, server.url, LOCUS_TOKEN=WRITER) as second:
        with HTTPCheckpointer(second.url).sync as handle:
            assert handle.load("kept") == STATE
        assert WRITER not in second.log.read_text()


def test_the_token_of_a_store_is_in_a_file_or_a_variable_that_workers_do_not_inherit(
    token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = parser().parse_args(["serve", "--store", "https://locus.example", "--store-token-file", str(token_file)])
    monkeypatch.setenv("LOCUS_TOKEN", READER)
    config = serve._config(options)
    assert config.store_token == WRITER
    assert WRITER not in repr(config)
    assert "LOCUS_TOKEN" not in os.environ


def test_who_has_no_token_is_told_where_it_comes_from(
    server: Serving, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["copy", server.url, f"sqlite:{tmp_path / 'b.db'}"]) == 2
    assert "LOCUS_TOKEN, LOCUS_TOKEN_FILE or a token file" in capsys.readouterr().err


def test_neither_of_two_servers_gets_the_token_of_the_other(
    server: Serving,
    tmp_path: Path,
    token_file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other_token = "a-token-of-the-other-one"
    other_file = tmp_path / "other"
    other_file.write_text(other_token)
    with serving(tmp_path, "memory", LOCUS_SERVER_TOKENS=other_token) as other:
        both = ["copy", server.url, other.url, "--threads", "kept"]
        assert main([*both, "--token-file", str(token_file)]) == 2
        monkeypatch.setenv("LOCUS_TOKEN", WRITER)
        assert main(both) == 2
        said = capsys.readouterr().err
        assert said.count("--source-token-file and --destination-token-file") == 2
        own = ["--source-token-file", str(token_file), "--destination-token-file", str(other_file)]
        assert main([*both, *own]) == 0
        with HTTPCheckpointer(other.url, token=other_token).sync as handle:
            assert handle.load("kept") == STATE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has 0"),
        ("# nothing\n", "has 0"),
        ("one-token\ntwo-token\n", "has 2"),
        ("some token\n", "no spaces"),
        ("ü", "no"),
    ],
)
def test_a_file_that_holds_no_token_is_refused_without_being_shown(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=said) as caught:
        tokens.token_for("http://127.0.0.1:1", str(path))
    assert text == "" or text.strip() not in str(caught.value)


def test_a_token_file_is_for_a_server_and_the_environment_is_for_whom_it_concerns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token_file: Path
) -> None:
    monkeypatch.setenv("LOCUS_TOKEN", WRITER)
    assert tokens.token_for("sqlite:///a.db", None) is None
    assert tokens.token_for("https://user:secret@locus.example", None) is None
    assert tokens.token_for("https://locus.example/path@2", None) == WRITER
    with pytest.raises(ConfigurationError, match="is for a store at http"):
        tokens.token_for("sqlite:///a.db", str(token_file))
    with pytest.raises(ConfigurationError, match="cannot be used"):
        tokens.token_for("http://127.0.0.1:1", str(tmp_path / "none"))


def test_no_process_list_shows_the_token(server: Serving, tmp_path: Path, token_file: Path) -> None:
    """There is no option for the token itself: argparse would take a beginning of one for the option."""
    command = [sys.executable, "-m", "locus", "copy", "--token", WRITER, server.url, f"sqlite:{tmp_path / 'b.db'}"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LOCUS_TOKEN": ""})
    assert done.returncode == 2
    assert WRITER not in done.stdout + done.stderr
    assert not (tmp_path / "b.db").exists()
