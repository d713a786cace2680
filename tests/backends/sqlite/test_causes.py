"""What is said when a file cannot be used: its name, and the cause."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from locus.core.state import AgentState
from locus.errors import BackendUnavailableError, CorruptCheckpointError
from locus.memory import get_checkpointer
from locus.memory.backends.sqlite.client import cause_of, processes_with_locks
from tests.backends.as_nobody import as_nobody, open_folder

__all__ = ["open_folder"]

HOLD = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("This is no database. " * 100)
    with pytest.raises(CorruptCheckpointError) as told:
        await get_checkpointer(f"sqlite:{path}").load("t")
    assert str(told.value) == (
        f"sqlite:{path} cannot be read: it is no SQLite database, or an encrypted one (file is not a database)"
    )


async def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "data" / "a.db"
    path.parent.mkdir()
    handle = get_checkpointer(f"sqlite:{path}")
    await handle.save(AgentState(), "t")
    shutil.rmtree(path.parent)
    with pytest.raises(BackendUnavailableError) as told:
        await handle.save(AgentState(), "t")
    assert f"sqlite:{path} cannot be used now: there is no folder {str(path.parent)!r}" in str(told.value)
    path.parent.mkdir()
    with pytest.raises(BackendUnavailableError, match="the file is gone"):
        await handle.load("t")
    await handle.close()


def test_a_lock_names_the_process_that_has_it(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    handle = get_checkpointer(f"sqlite:{path}?timeout=0.05").sync
    handle.save(AgentState(), "t")
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(
            BackendUnavailableError, match=f"sqlite:{path} cannot be used now: it is locked by "
        ) as told:
            handle.save(AgentState(), "t2")
        holder.communicate()
    if Path("/proc/locks").exists():
        assert f"it is locked by process {holder.pid} (" in str(told.value)
    handle.save(AgentState(), "t2")
    handle.close()
    assert processes_with_locks(str(path)) == []


def test_a_right_that_is_missing(open_folder: Path) -> None:
    path = open_folder / "a.db"
    with get_checkpointer(f"sqlite:{path}").sync as handle:
        handle.save(AgentState(), "t")
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)

    async def told() -> str:
        try:
            await get_checkpointer(f"sqlite:{path}").load("t")
        except BackendUnavailableError as error:
            return str(error)
        return ""

    expected = f"sqlite:{path} cannot be used now: this user may not read and write {str(path)!r} ("
    assert as_nobody(lambda: int(asyncio.run(told()).startswith(expected))) == 1


def test_what_cannot_be_found_out_is_told_as_sqlite_says_it(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.touch()
    strange = sqlite3.OperationalError("something else")
    assert cause_of(strange, str(path)) == cause_of(strange, ":memory:") == "something else"
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    assert cause_of(full, str(path)) == "its disk is full (database or disk is full)"
    assert os.getpid() not in processes_with_locks(str(path))
