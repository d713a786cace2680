"""An agent of the SDK, with a script in the place of Claude Code: its sessions outlive the machine that it runs on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    SystemMessage,
    list_sessions_from_store,
    project_key_for_directory,
    query,
)

from locus.integrations.claude_agent_sdk import LocusSessionStore
from tests.backends.embedded import SQLiteStore

HERE = Path(__file__).parent


@pytest.fixture
def claude(tmp_path: Path) -> str:
    """A program that plays Claude Code."""
    path = tmp_path / "claude"
    path.write_text(f"#!{sys.executable}\n{(HERE / 'scripted_claude.py').read_text()}")
    path.chmod(0o755)
    return str(path)


def machine(path: Path) -> Path:
    """A machine of its own: its folder of transcripts is empty."""
    path.mkdir()
    return path


def options(store: Any, claude: str, folder: Path, config: Path, **more: Any) -> ClaudeAgentOptions:
    environment = {"CLAUDE_CONFIG_DIR": str(config)}
    return ClaudeAgentOptions(cli_path=claude, cwd=folder, env=environment, session_store=store, **more)


async def ask(question: str, asked: ClaudeAgentOptions) -> ResultMessage:
    (found,) = [each async for each in query(prompt=question, options=asked) if isinstance(each, ResultMessage)]
    return found


async def test_a_session_goes_on_on_another_machine(claude: str, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'agents.db'}"
    folder = machine(tmp_path / "work")
    async with LocusSessionStore(url) as store:
        first = await ask("One?", options(store, claude, folder, machine(tmp_path / "here")))
    async with LocusSessionStore(url) as store:
        there = machine(tmp_path / "there")
        second = await ask("Two?", options(store, claude, folder, there, resume=first.session_id))
        assert second.result == "You asked: One? Two?"
        third = await ask("Three?", options(store, claude, folder, there, continue_conversation=True))
        assert (third.result, third.session_id) == ("You asked: One? Two? Three?", first.session_id)
        project = project_key_for_directory(folder)
        key: Any = {"project_key": project, "session_id": first.session_id}
        kept: Any = await store.load(key)
        assert [each["type"] for each in kept] == ["user", "assistant"] * 3
        assert [point.items for point in await store.history(key)] == [6, 4, 2]
        (listed,) = await list_sessions_from_store(store, str(folder))
        assert (listed.session_id, listed.first_prompt) == (first.session_id, "One?")

        await store.rewind(key, (await store.history(key))[-1].checkpoint_id)
        again = await ask("Another?", options(store, claude, folder, there, resume=first.session_id))
        assert again.result == "You asked: One? Another?"
        forked = await store.fork(key)
        beside = await ask("Beside?", options(store, claude, folder, there, resume=forked["session_id"]))
        assert beside.result == "You asked: One? Another? Beside?"
        assert len(await store.load(key) or ()) == 4


async def test_an_agent_that_was_killed_goes_on(claude: str, tmp_path: Path) -> None:
    url, folder = f"sqlite:{tmp_path / 'agents.db'}", machine(tmp_path / "work")
    (folder / "config").mkdir()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(HERE / "agent_job.py"),
        *(url, str(folder), claude, "One?", "Wait"),
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(machine(tmp_path / "tmp"))},
    )
    assert process.stdout is not None
    heard = [(await process.stdout.readline()).decode().split() for _ in range(3)]
    process.send_signal(signal.SIGKILL)
    assert await process.wait() == -signal.SIGKILL
    assert [words[0] for words in heard] == ["heard", "session", "heard"]
    session_id = heard[1][1]
    async with LocusSessionStore(url) as store:
        key: Any = {"project_key": project_key_for_directory(folder), "session_id": session_id}
        kept: Any = await store.load(key)
        assert [each["message"]["role"] for each in kept] == ["user", "assistant"]  # the whole turn, and no more
        went_on = await ask("Two?", options(store, claude, folder, machine(tmp_path / "there"), resume=session_id))
        assert went_on.result == "You asked: One? Two?"
        assert len(await store.load(key) or ()) == 4


async def test_an_outage_is_told_and_ends_no_run(claude: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claude Code has the transcript on its disk, so the SDK goes on, and says what the store has missed."""
    from claude_agent_sdk._internal import transcript_mirror_batcher

    monkeypatch.setattr(transcript_mirror_batcher, "MIRROR_APPEND_BACKOFF_S", (0.0, 0.0))
    folder, config = machine(tmp_path / "work"), machine(tmp_path / "config")
    kept = SQLiteStore(machine(tmp_path / "store"))
    async with kept.open() as handle:
        store = LocusSessionStore(handle)
        first = await ask("One?", options(store, claude, folder, config))
        async with kept.outage():
            found = [each async for each in query(prompt="Two?", options=options(store, claude, folder, config))]
        assert isinstance(found[-1], ResultMessage)
        assert "mirror_error" in [each.subtype for each in found if isinstance(each, SystemMessage)]
        key: Any = {"project_key": project_key_for_directory(folder), "session_id": first.session_id}
        assert len(await store.load(key) or ()) == 2


async def test_a_client_writes_each_turn(claude: str, tmp_path: Path) -> None:
    folder, config = machine(tmp_path / "work"), machine(tmp_path / "config")

    async def questions() -> AsyncIterator[dict[str, Any]]:
        yield {"type": "user", "message": {"role": "user", "content": "One?"}}

    async with LocusSessionStore(f"sqlite:{tmp_path / 'agents.db'}") as store:
        async with ClaudeSDKClient(options(store, claude, folder, config, session_store_flush="eager")) as client:
            for question in (questions(), "Two?"):
                await client.query(question)
                *_, result = [each async for each in client.receive_response()]
        assert isinstance(result, ResultMessage)
        (listed,) = await store.list_sessions(project_key_for_directory(folder))
        key: Any = {"project_key": project_key_for_directory(folder), "session_id": listed["session_id"]}
        assert [each["type"] for each in await store.load(key) or ()] == ["user", "assistant"] * 2
