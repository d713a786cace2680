"""`make suites` runs tests of a clone with our stores, and leaves the clone as it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.suites.__main__ import command, main
from tests.suites.catalogue import SUITES

SESSIONS = """
from agents import SQLiteSession
from agents.memory import SQLiteSession as Other
from locus.integrations.openai_agents import LocusSession


async def test_ours_is_in_the_place_of_theirs(tmp_path):
    for kind in (SQLiteSession, Other):
        session = kind("s", tmp_path / "a.db")
        assert isinstance(session, LocusSession)
        await session.add_items([{"role": "user", "content": "Hello"}])
        session.close()
    again = SQLiteSession("s", tmp_path / "a.db")
    assert len(await again.get_items()) == 2
    again.close()
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What of a clone of the OpenAI Agents SDK is needed."""
    folder = tmp_path / "clone"
    (folder / "tests" / "memory").mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[tool.pytest.ini_options]\nasyncio_mode = "auto"\n')
    (folder / "tests" / "memory" / "test_session.py").write_text(SESSIONS)
    for name in SUITES["openai-agents"].tests:
        path = folder / name
        if path.suffix:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("def test_nothing_of_a_session(): pass\n")
    return folder


def test_tests_of_a_clone_run_on_our_store(clone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = sorted(clone.rglob("*"))
    assert main(["openai-agents", "--checkout", str(clone), "-p", "no:cacheprovider"]) == 0
    said = capfd.readouterr().out
    assert f"{len(SUITES['openai-agents'].tests)} passed" in said  # one in each, and this one
    assert "openai-agents" in said.splitlines()[0]
    assert sorted(clone.rglob("*")) == before
    (clone / "tests" / "test_max_turns.py").write_text("def test_a_session(): assert False\n")
    assert main(["openai-agents", "--checkout", str(clone), "-p", "no:cacheprovider"]) == 1


def test_a_folder_that_is_no_clone_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["langgraph", "--checkout", str(tmp_path)])
    assert ended.value.code == 2
    assert "is it a clone of langgraph's repository?" in capsys.readouterr().err


@pytest.mark.parametrize(("suite", "what"), [("google-adk", "--checkout"), ("langgraph-store-postgres", "--server")])
def test_what_a_suite_needs_is_said(suite: str, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([suite])
    assert ended.value.code == 2
    assert what in capsys.readouterr().err.splitlines()[-1]


def test_what_is_left_out_has_a_reason_and_a_choice_of_ones_own_is_kept() -> None:
    for suite in SUITES.values():
        names = [name for some in suite.left_out.values() for name in some]
        assert len(names) == len(set(names))
        assert all(any(name.startswith(tests) for tests in suite.tests) for name in names)
        words = command(suite, ["-k", "mine"])
        assert [word for word in words if word == "-k"] == ["-k"]
        assert [word for word in words if word.startswith("--deselect=")] == [f"--deselect={name}" for name in names]
    assert os.environ.get("LOCUS_SUITE_STORE") is None
