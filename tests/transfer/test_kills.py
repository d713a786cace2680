"""Moves that are killed, and run again: they end as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from locus.integrations.langgraph.saver import LocusSaver
from locus.memory.backends import FileCheckpointer, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.testing.processes.workers import Crew
from locus.transfer import copy_store, import_store
from tests.transfer.graphs import everything, talk
from tests.transfer.kill_jobs import copy_and_die, import_and_die
from tests.transfer.support import contents, fill

pytestmark = pytest.mark.crash


def _target(kind: str, folder: Path) -> tuple[str, Checkpointer]:
    if kind == "file":
        return f"file:{folder / 'files'}", FileCheckpointer(folder / "files")
    return f"sqlite:{folder / 'b.db'}", sqlite_checkpointer(folder / "b.db")


@pytest.mark.parametrize("kind", ["sqlite", "file"])
async def test_a_copy_that_is_killed_again_and_again_gets_there(tmp_path: Path, kind: str) -> None:
    source = f"sqlite:{tmp_path / 'a.db'}"
    async with sqlite_checkpointer(tmp_path / "a.db", durability="normal") as handle:
        await fill(handle, small=True)
        expected = await contents(handle)
    total = sum(map(len, expected.values()))
    url, target = _target(kind, tmp_path)
    kills = 0
    with Crew(url, ["tests.transfer.kill_jobs"]) as crew:
        # Before and after the first saves, and then ever later ones: each run gets some further.
        for step in (1, 2, 3, 4, 5, 9, 14, 15):
            worker = crew.start(copy_and_die, source=source, destination=url, step=step)
            worker.hear_out()
            assert worker.killed
            kills += 1
    async with target:
        partly = await contents(target)
        assert 0 < sum(map(len, partly.values())) < total
        assert all(rows == expected[name][: len(rows)] for name, rows in partly.items())
        report = await copy_store(source, url)
        assert report.ok, report.problems
        assert (report.checkpoints, report.verified) == (total, total)
        assert 0 < report.present < total
        assert await contents(target) == expected
    assert kills == 8


async def test_an_import_that_is_killed_again_and_again_gets_there(tmp_path: Path) -> None:
    path, url = tmp_path / "graph.db", f"sqlite:{tmp_path / 'b.db'}"
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        await talk(saver)
        expected = await everything(saver)
    modules = ["kill_jobs", "graphs"]
    used = ["locus.integrations.langgraph", "locus.transfer.sources.langgraph"]
    with Crew(url, [*(f"tests.transfer.{name}" for name in modules), *used]) as crew:
        for step in (2, 5, 13):
            worker = crew.start(import_and_die, kind="langgraph", source=str(path), destination=url, step=step)
            worker.hear_out()
            assert worker.killed
    report = await import_store("langgraph", str(path), url)
    assert report.ok, report.problems
    assert report.present > 0
    async with LocusSaver(url) as ours:
        assert await everything(ours) == expected


def _killed_after(command: list[str], begun: Path, seconds: float) -> None:
    """Run a command, and kill it so long after it has begun to write."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None and not begun.exists():
        time.sleep(0.001)
    time.sleep(seconds)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() in (0, -signal.SIGKILL)


def _finished(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


async def test_the_command_can_be_killed_at_any_moment(tmp_path: Path) -> None:
    source, url = f"sqlite:{tmp_path / 'a.db'}", f"sqlite:{tmp_path / 'b.db'}"
    async with sqlite_checkpointer(tmp_path / "a.db", durability="normal") as handle:
        await fill(handle, small=True)
        expected = await contents(handle)
    rng = random.Random(7)
    command = [sys.executable, "-m", "locus", "copy", source, url]
    for _ in range(3):
        _killed_after(command, tmp_path / "b.db", rng.uniform(0, 0.05))
    _finished(command)
    async with sqlite_checkpointer(tmp_path / "b.db") as target:
        assert await contents(target) == expected
