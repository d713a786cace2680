"""On a disk without a byte left, something can be deleted, and then something can be saved.

Each test runs in a process that has a small disk of its own: a tmpfs, in a namespace that ends with the process.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError
from locus.memory import get_checkpointer
from locus.memory.checkpointer import Checkpointer

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
MOUNT = 'mount -t tmpfs -o size=4m none "$1" && cd "$1" && shift && exec "$@"'


@pytest.mark.parametrize("by", ["the same handle", "another handle"])
@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_a_full_disk_lets_delete(kind: str, by: str, tmp_path: Path) -> None:
    job = [sys.executable, "-m", "tests.backends.test_full_disk", kind, by]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [*NAMESPACE, "sh", "-c", MOUNT, "sh", str(tmp_path), *job]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    if "unshare failed" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"a disk of its own is not allowed here: {done.stderr:.200}")
    assert done.returncode == 0, done.stderr


def opened_in(folder: Path, kind: str) -> Checkpointer:
    checkpointer = get_checkpointer(f"{kind}:{folder / 'store'}")
    assert isinstance(checkpointer, Checkpointer)
    return checkpointer


async def save_until_full(checkpointer: Checkpointer) -> None:
    state = AgentState().with_message(Message.user("a short one"))
    for number in range(4):
        await checkpointer.save(state, f"short-{number}")
    try:
        while True:
            state = state.with_message(Message.user("x" * 30_000))
            await checkpointer.save(state, "long")
    except BackendUnavailableError:
        pass


def fill(folder: Path) -> None:
    """Others use the disk as well."""
    with (folder / "of others").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"0" * 512)
        except OSError:
            pass


async def check(folder: Path, kind: str, by: str) -> None:
    async with opened_in(folder, kind) as first, opened_in(folder, kind) as another:
        await save_until_full(first)
        fill(folder)
        checkpointer = first if by == "the same handle" else another
        assert await checkpointer.load("short-1") is not None
        for thread_id in ("short-0", "long", "short-1"):
            assert await checkpointer.delete(thread_id)
            assert not await checkpointer.exists(thread_id)
        state = AgentState().with_message(Message.user("again"))
        await checkpointer.save(state, "again")
        assert await checkpointer.load("again") == state
        assert await checkpointer.load("short-2") is not None


if __name__ == "__main__":
    asyncio.run(check(Path.cwd(), sys.argv[1], sys.argv[2]))
