"""A plugin of pytest: the tests of the OpenAI Agents SDK with `LocusSession` in the place of `SQLiteSession`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any
from uuid import uuid4

import agents
import agents.extensions.memory.encrypt_session  # it knows SQLiteSession, and treats that in its own way
import agents.memory
import agents.memory.sqlite_session

from locus.integrations.openai_agents import LocusSession

_FOLDER = tempfile.TemporaryDirectory(prefix="locus-suites-")


def _url(db_path: str | Path) -> str:
    store = os.environ.get("LOCUS_SUITE_STORE", "sqlite")
    if store != "sqlite":
        return store.format(name=f"t{uuid4().hex[:12]}")
    path = Path(_FOLDER.name, f"{uuid4().hex}.db") if str(db_path) == ":memory:" else Path(f"{db_path}.locus")
    return f"sqlite:{path}"


class Session(LocusSession):
    """`LocusSession` with the arguments of `SQLiteSession`, whose `close` blocks.

    Ours waits for the event loops that use the store, and the tests call it inside of one. So they stay open.
    """

    def __init__(
        self,
        session_id: str,
        db_path: str | Path = ":memory:",
        sessions_table: str = "agent_sessions",
        messages_table: str = "agent_messages",
        session_settings: Any = None,
    ) -> None:
        super().__init__(session_id, _url(db_path), session_settings=session_settings)

    def close(self) -> None:  # type: ignore[override]
        pass


for module in (agents, agents.memory, agents.memory.sqlite_session):
    module.SQLiteSession = Session  # type: ignore[attr-defined]
