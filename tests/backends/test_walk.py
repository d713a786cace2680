"""How far a reader goes who follows one save, or one load, from the public call to the driver.

The save appends one message to a thread that this handle has saved to before. The load is the first one of a thread,
through a handle that has read another thread. What counts is every module of the package that is entered on the way,
and every frame in it, on whichever OS thread: each call of a function, and each comprehension and generator, once. One
that goes on after it was suspended is the same frame.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import locus
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory import get_checkpointer
from tests.servers.opensearch import OpenSearchServer
from tests.servers.postgresql import PostgreSQLServer

PACKAGE = Path(locus.__file__).parent
MODULES = {"sqlite": 18, "postgresql": 17, "opensearch": 16}
"""Some 16, as a sign: rows of SQLite have seals, and PostgreSQL asks the rule itself which runs are contested."""
LOAD_FRAMES = {"sqlite": 160}
SAVE_FRAMES = {"postgresql": 130}
BLOCKING_SAVE_FRAMES = 110


@dataclass
class Walk:
    """What was entered. The frames themselves are kept, so that none is taken for another one."""

    frames: dict[int, FrameType] = field(default_factory=dict)

    def begin(self) -> None:
        self.frames.clear()

    @property
    def modules(self) -> set[str]:
        return {str(Path(frame.f_code.co_filename).relative_to(PACKAGE)) for frame in self.frames.values()}

    def calls(self, name: str) -> int:
        return sum(frame.f_code.co_name == name for frame in self.frames.values())


@contextmanager
def walking() -> Iterator[Walk]:
    """Notes the calls of this OS thread, and of those that start later."""
    walk, package = Walk(), f"{PACKAGE}/"

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(package):
            walk.frames[id(frame)] = frame

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield walk
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
        walk.begin()


def check(walk: Walk, backend: str, modules: set[str], frames: int | None) -> None:
    passed = walk.modules
    assert {"memory/store.py", *(f"memory/backends/{backend}/{name}.py" for name in modules)} <= passed
    assert len(passed) <= MODULES[backend], sorted(passed)
    assert frames is None or len(walk.frames) <= frames, sorted(
        frame.f_code.co_qualname for frame in walk.frames.values()
    )
    assert walk.calls("check_ids") == 1


async def check_both(url: str, backend: str) -> None:
    with walking() as walk:
        async with get_checkpointer(url) as writer, get_checkpointer(url) as reader:
            state = AgentState(agent_id="a")
            for word in ("one", "two"):
                state = state.with_message(Message.user(word))
                await writer.save(state, "walk")
            state = state.with_message(Message.user("three"))
            walk.begin()
            await writer.save(state, "walk")
            check(walk, backend, {"engine", "commit"}, SAVE_FRAMES.get(backend))
            assert await reader.load("another thread") is None
            walk.begin()
            assert await reader.load("walk") == state
            check(walk, backend, {"engine"}, LOAD_FRAMES.get(backend))


async def test_saves_and_loads_on_sqlite_pass_few_modules(tmp_path: Path) -> None:
    await check_both(f"sqlite:{tmp_path / 'walk.db'}", "sqlite")


def test_a_blocking_save_on_sqlite_stays_in_its_thread_and_passes_few_frames(tmp_path: Path) -> None:
    with walking() as walk, get_checkpointer(f"sqlite:{tmp_path / 'walk.db'}").sync as writer:
        state = AgentState(agent_id="a")
        for word in ("one", "two", "three"):
            state = state.with_message(Message.user(word))
            walk.begin()
            writer.save(state, "walk")
        assert {"memory/runtime/direct.py", "memory/backends/sqlite/commit.py"} <= walk.modules
        assert "memory/together.py" not in walk.modules
        assert [walk.calls(hop) for hop in ("_serve", "_submit", "_running", "_turn")] == [0, 0, 0, 0]
        assert len(walk.frames) <= BLOCKING_SAVE_FRAMES


@pytest.mark.postgresql
async def test_saves_and_loads_on_postgresql_pass_few_modules(postgresql_server: PostgreSQLServer) -> None:
    await check_both(f"{postgresql_server.url}?schema_name=walk", "postgresql")


@pytest.mark.opensearch
async def test_saves_and_loads_on_opensearch_pass_few_modules(opensearch_server: OpenSearchServer) -> None:
    await check_both(f"{opensearch_server.url.replace('http:', 'opensearch:')}/walk", "opensearch")
