"""A real agent of ADK, whose model is a function, on a session of ours."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

from locus.integrations.google_adk import LocusArtifactService, LocusSessionService
from locus.memory.backends import sqlite_checkpointer
from tests.integrations.google_adk.agents import runner, say
from tests.integrations.google_adk.events import ALICE

ROOT = Path(__file__).resolve().parents[3]


async def test_a_conversation_goes_on_where_another_process_left_it(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    async with LocusSessionService(url) as sessions:
        await sessions.create_session(**ALICE, session_id="s")
        assert await say(runner(sessions), "To Oslo") == ["1 booked."]
    async with LocusSessionService(url) as sessions:
        assert await say(runner(sessions), "To Rome") == ["2 booked."]
        found = await sessions.get_session(**ALICE, session_id="s")
        assert found is not None
        assert found.state == {"cities": ["Oslo", "Rome"], "user:trips": 2}
        assert [event.author for event in found.events] == ["user", "clerk", "clerk", "clerk"] * 2
        few = await sessions.get_session(**ALICE, session_id="s", config=GetSessionConfig(num_recent_events=1))
        assert few is not None
        assert len(few.events) == 1

        points = await sessions.history(**ALICE, session_id="s", limit=None)
        after_oslo = next(point for point in points if point.items == 4)
        await sessions.fork_session(**ALICE, session_id="s", new_session_id="t", at=after_oslo.checkpoint_id)
        assert await say(runner(sessions), "To Bern", "t") == ["2 booked."]
        forked = await sessions.get_session(**ALICE, session_id="t")
        assert forked is not None
        assert forked.state == {"cities": ["Oslo", "Bern"], "user:trips": 3}


async def test_a_rewind_of_adk_works_on_top(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db") as store:
        sessions, artifacts = LocusSessionService(store), LocusArtifactService(store)
        await sessions.create_session(**ALICE, session_id="s")
        run = runner(sessions, artifacts)
        await say(run, "To Oslo")
        await say(run, "To Rome")
        found = await sessions.get_session(**ALICE, session_id="s")
        assert found is not None
        second = found.events[4].invocation_id
        await run.rewind_async(user_id="alice", session_id="s", rewind_before_invocation_id=second)
        found = await sessions.get_session(**ALICE, session_id="s")
        assert found is not None
        assert found.state["cities"] == ["Oslo"]
        assert await say(run, "To Bern") == ["2 booked."]


@pytest.mark.crash
async def test_a_killed_agent_goes_on(tmp_path: Path) -> None:
    """It is killed between the result of a tool and the answer of the model: what was done is kept, and not redone."""
    url = f"sqlite:{tmp_path / 'a.db'}"
    async with LocusSessionService(url) as sessions:
        await sessions.create_session(**ALICE, session_id="s")
    command = [sys.executable, "-W", "ignore", "-m", "tests.integrations.google_adk.agents", url]
    killed = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, timeout=100)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    async with LocusSessionService(url) as sessions:
        found = await sessions.get_session(**ALICE, session_id="s")
        assert found is not None
        assert found.state == {"cities": ["Oslo"], "user:trips": 1}
        parts = [part for event in found.events for part in (event.content.parts if event.content else None) or []]
        assert [bool(part.text) for part in parts] == [True, False, False]
        assert isinstance(parts[2].function_response, types.FunctionResponse)
        assert await say(runner(sessions), "To Rome") == ["2 booked."]
