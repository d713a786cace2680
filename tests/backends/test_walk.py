"""How many modules a reader passes who follows one save from the public call to the driver.

An ordinary save: one message is appended to a thread that this handle has saved to before. What counts is every module
of the package that is entered on the way, on whichever thread.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def entered() -> Iterator[set[str]]:
    """The modules of the package whose functions are called; threads are seen that start later."""
    modules: set[str] = set()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            file = Path(frame.f_code.co_filename)
            if file.is_relative_to(PACKAGE):
                modules.add(str(file.relative_to(PACKAGE)))

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield modules
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


async def walk(url: str) -> set[str]:
    with entered() as modules:
        async with get_checkpointer(url) as checkpointer:
            state = AgentState(agent_id="a")
            for word in ("one", "two"):
                state = state.with_message(Message.user(word))
                await checkpointer.save(state, "walk")
            state = state.with_message(Message.user("three"))
            modules.clear()
            await checkpointer.save(state, "walk")
            return set(modules)


def check(modules: set[str], backend: str, most: int) -> None:
    assert {
        "memory/store.py",
        f"memory/backends/{backend}/engine.py",
        f"memory/backends/{backend}/commit.py",
    } <= modules
    assert len(modules) <= most, sorted(modules)


async def test_a_save_on_sqlite_passes_few_modules(tmp_path: Path) -> None:
    check(await walk(f"sqlite:{tmp_path / 'walk.db'}"), "sqlite", 16)


@pytest.mark.postgresql
async def test_a_save_on_postgresql_passes_few_modules(postgresql_server: PostgreSQLServer) -> None:
    check(await walk(f"{postgresql_server.url}?schema_name=walk"), "postgresql", 16)


@pytest.mark.opensearch
async def test_a_save_on_opensearch_passes_few_modules(opensearch_server: OpenSearchServer) -> None:
    check(await walk(f"{opensearch_server.url.replace('http:', 'opensearch:')}/walk"), "opensearch", 18)
