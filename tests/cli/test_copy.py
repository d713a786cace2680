"""`locus copy`: what it prints, what it ends with, and what it never shows."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from locus.cli import main
from locus.cli.transfer import ProgressBar
from locus.core.state import AgentState
from locus.memory.backends import sqlite_checkpointer
from locus.transfer import Report


@pytest.fixture
def source(tmp_path: Path) -> str:
    with sqlite_checkpointer(tmp_path / "a.db").sync as handle:
        for name in ("t", "u"):
            handle.save(AgentState(), name, "a")
            handle.save(AgentState(), name, "b")
    return f"sqlite:{tmp_path / 'a.db'}"


def test_it_says_what_it_did(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["copy", source, f"file:{tmp_path / 'b'}"]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0] == f"sqlite:{tmp_path / 'a.db'} -> file:{tmp_path / 'b'}"
    assert lines[1] == "2 of 2 threads, 4 checkpoints: 4 moved, 0 were there already"
    assert lines[2].startswith("4 checkpoints verified, in ")
    assert said.err == "", "nobody is watching, so there is no progress to be shown"


def test_the_result_as_json(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["copy", "--json", "--threads", "t", "--jobs", "1", source, f"file:{tmp_path / 'b'}"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told.pop("seconds") >= 0
    assert told == {
        "ok": True,
        "source": f"sqlite:{tmp_path / 'a.db'}",
        "destination": f"file:{tmp_path / 'b'}",
        "dry_run": False,
        "threads": 1,
        "done": 1,
        "checkpoints": 2,
        "moved": 2,
        "present": 0,
        "verified": 2,
        "problems": [],
    }


def test_a_thread_that_cannot_be_moved_is_named_and_counts(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sqlite_checkpointer(tmp_path / "b.db").sync as handle:
        handle.save(AgentState(), "u", "a")
    assert main(["copy", source, f"sqlite:{tmp_path / 'b.db'}"]) == 1
    said = capsys.readouterr()
    assert "1 of 2 threads" in said.out
    assert said.err.startswith("locus: thread 'u': thread 'u' is at the destination with other content")
    assert main(["copy", "--json", source, f"sqlite:{tmp_path / 'b.db'}"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], [problem["thread"] for problem in told["problems"]]) == (False, ["u"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sqlite:{}/none.db", "file:{}/b"], "no threads were ever kept in sqlite:"),
        (["{source}", "{source}"], "the same store"),
        (["memory", "file:{}/b"], "a store in memory ends with this command"),
        (["{source}", "memory"], "a store in memory ends with this command"),
        (["{source}", "nonsense:x"], "unknown checkpointer 'nonsense'"),
        (["--threads", "z", "{source}", "file:{}/b"], "no thread that matches 'z'"),
        (["env:LOCUS_NOT_SET", "file:{}/b"], "the variable 'LOCUS_NOT_SET' is not set"),
    ],
)
def test_what_cannot_work_is_told(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["copy", *(text.format(tmp_path, source=source) for text in arguments)]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("jobs", ["0", "65", "-1", "x"])
def test_jobs_are_a_sensible_number(source: str, capsys: pytest.CaptureFixture[str], jobs: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["copy", "--jobs", jobs, source, "file:b"])
    assert ended.value.code == 2
    assert "a number from 1 to 64" in capsys.readouterr().err


def test_urls_can_stand_in_variables(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLD_STORE", source)
    monkeypatch.setenv("NEW_STORE", f"file:{tmp_path / 'b'}")
    assert main(["copy", "env:OLD_STORE", "env:NEW_STORE"]) == 0
    assert (tmp_path / "b" / "t.jsonl").exists()


@pytest.mark.parametrize("way", ["from", "to"])
@pytest.mark.parametrize("place", ["postgresql:d?retry_seconds=0.1", "mysql:d?retry_seconds=0.1", "redis:0", "http:"])
def test_passwords_are_never_shown(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str, way: str
) -> None:
    """There is no such server, so something has to be said about it."""
    scheme, _, rest = place.partition(":")
    url = f"{scheme}://user:s3cret@127.0.0.1:1/{rest}"
    assert main(["copy", *((url, f"file:{tmp_path / 'b'}") if way == "from" else (source, url))]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("locus: ")
    assert "s3cret" not in said.out + said.err


def test_who_is_watching_sees_a_bar(source: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "locus", "copy", source, f"file:{tmp_path / 'b'}"]
    with os.fdopen(ours, "rb", buffering=0) as screen:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, text=True)
        os.close(theirs)
        shown = screen.read(4096).decode()
    assert done.returncode == 0
    assert "] 0/2 threads, " in shown
    assert shown.endswith("\r\x1b[K"), "it is gone at the end"
    assert "\r" not in done.stdout


def test_the_bar_says_how_far_it_is() -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Screen()
    with ProgressBar(screen) as bar:
        bar.report(Report("a", "b", threads=4, done=2, checkpoints=1234))
        bar.report(Report("a", "b", threads=4, done=3))  # too soon to be shown
    assert screen.getvalue() == f"\r[{'#' * 15}{'.' * 15}] 2/4 threads, 1,234 checkpoints\x1b[K\r\x1b[K"
