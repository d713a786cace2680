"""What the documentation shows passes type checkers as it stands: strict mypy, and basedpyright as editors run it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.pages import WITH_CREWAI
from tests.docs.shell import ROOT
from tests.docs.typed import write_modules

PAGES = ["README.md", *sorted({str(page.relative_to(ROOT)) for page in ROOT.glob("docs/**/*.md")} - {WITH_CREWAI})]
TIMEOUT = 280


def mypy(folder: Path) -> str:
    """With the settings and the cache of `make lint`, which has read the package and its dependencies already.

    In one process: for so few modules others take longer to start than to help.
    """
    return run("mypy", str(folder), MYPY_NUM_WORKERS="0")


def basedpyright(folder: Path) -> str:
    """In its mode "standard", which is what Pyright and Pylance's users see; strict typing is mypy's part."""
    settings = {
        "include": [str(folder)],
        "extraPaths": [str(ROOT / "src"), str(ROOT)],
        "typeCheckingMode": "standard",
        "pythonVersion": "3.11",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    told = run("basedpyright", "--project", str(folder), "--pythonpath", sys.executable)
    assert " errors, " in told or " error, " in told, told
    return told


def run(module: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


CHECKERS: list[Callable[[Path], str]] = [mypy, basedpyright]


def errors_of(told: str, pages: dict[str, str]) -> list[str]:
    """What a checker has found, each with its place in the documentation."""
    found = [re.search(r"(\w+)\.py:(\d+)(?::\d+)?(?: -|:) error: (.*)", line) for line in told.splitlines()]
    return [f"{pages.get(place[1], place[1])}:{place[2]}: {place[3]}" for place in found if place]


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda checker: checker.__name__)
def test_every_python_block_passes(checker: Callable[[Path], str], tmp_path: Path) -> None:
    pages = write_modules(ROOT, PAGES, tmp_path)
    # A checker that finds nothing here would find nothing anywhere.
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    found = errors_of(checker(tmp_path), pages)
    assert [error for error in found if not error.startswith("wrong:")] == []
    assert sorted(int(error.split(":")[1]) for error in found) == WRONG_LINES


WRONG = """from locus import Agent, AgentState, get_checkpointer
from locus.agent import create_agent
from locus.memory.backends import postgresql_checkpointer, redis_checkpointer, s3_checkpointer


async def wrong() -> None:
    Agent(modle="mock")
    Agent(max_iterations="3")
    create_agent("mock", max_iteration=3)
    checkpointer = get_checkpointer("memory")
    checkpointer.origin(AgentState())
    await checkpointer.save(AgentState(), "t", if_lastest=None)
    await checkpointer.vacuum(keep_last="2")
    checkpointer.sync.save(AgentState(), 7)
    await Agent(model="mock").run("hi")
    postgresql_checkpointer(tabel_name="agents")
    redis_checkpointer(ttl_seconds="soon")
    s3_checkpointer("bucket", endpoint="http://localhost")


async def right() -> None:
    checkpointer = get_checkpointer("memory")
    state = AgentState(agent_id="a")
    first = await checkpointer.save(state, "t", namespace="n", if_latest=None)
    await checkpointer.save(state, "t", if_latest=checkpointer.origin(state, "t"), parent=first)
    await checkpointer.vacuum(keep_last=2, dry_run=True)
    checkpointer.sync.save(state, "t", if_latest=None)
    Agent(model="mock", checkpointer=checkpointer, max_iterations=3)
    Agent(model="mock", checkpointer="sqlite:a.db", tools=[print])
"""
WRONG_LINES = [7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18]
