"""Agents of Strands in a process of their own, which is killed: `python -m tests.integrations.strands.jobs URL URL`."""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from strands import Agent, tool
from strands.session import RepositorySessionManager, SnapshotSessionManager
from strands.types.content import Messages

from locus.integrations.strands import LocusSessionRepository, LocusStorage
from tests.integrations.strands.models import FakeModel, Reply

KINDS = ("repository", "snapshots")


def manager(kind: str, url: str) -> Any:
    if kind == "repository":
        return RepositorySessionManager("alice", LocusSessionRepository(url))
    return SnapshotSessionManager("alice", storage=LocusStorage(url), save_latest_on="message")


def agent(kind: str, url: str, dying: threading.Barrier | None = None) -> Agent:
    """An agent that looks something up. If it is to die, it does so when others are at the same point."""

    @tool
    def look_up(city: str) -> str:
        """Look a fare up."""
        if dying is not None:
            dying.wait()
            os.kill(os.getpid(), signal.SIGKILL)
        return f"90 euros to {city}"

    def answer(messages: Messages) -> Reply:
        last = messages[-1]["content"]
        if any("toolResult" in block for block in last):
            return "That is 90 euros."
        asked = next((block["text"] for block in last if "text" in block), "")
        return ("look_up", {"city": "Oslo"}) if "ticket" in asked else f"I see {len(messages)} messages."

    return Agent(
        model=FakeModel(answer),
        tools=[look_up],
        session_manager=manager(kind, url),
        callback_handler=None,
        load_tools_from_directory=False,
    )


def die(urls: list[str]) -> None:
    """Both kinds of sessions in one process, because importing Strands takes seconds."""
    dying = threading.Barrier(len(KINDS))
    agents = [agent(kind, url, dying) for kind, url in zip(KINDS, urls, strict=True)]
    for one in agents:
        one("Hello")
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda one: one("A ticket to Oslo, please."), agents))


if __name__ == "__main__":
    die(sys.argv[1:])
