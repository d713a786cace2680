"""Sessions of the OpenAI Agents SDK."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from agents import SQLiteSession

from benchmarks.frameworks.subject import FrameworkSubject, Side
from benchmarks.openai_bench import Items, turn_items
from locus.integrations.openai_agents import LocusSession
from locus.memory.backends import sqlite_checkpointer


class Ours(Side):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._store = sqlite_checkpointer(folder / "ours.db", durability="full")
        self._sessions: dict[str, LocusSession] = {}

    async def begin(self, session_id: str) -> None:
        self._sessions[session_id] = LocusSession(session_id, self._store)

    async def save(self, session_id: str, turn: Items) -> None:
        await self._sessions[session_id].add_items(turn)

    async def newest(self, session_id: str, count: int) -> list[Any]:
        return await self._sessions[session_id].get_items(count)

    async def close(self) -> None:
        await self._store.close()


class Theirs(Side):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._sessions: dict[str, SQLiteSession] = {}

    async def begin(self, session_id: str) -> None:
        self._sessions[session_id] = SQLiteSession(session_id, self.folder / "theirs.db")

    async def save(self, session_id: str, turn: Items) -> None:
        await self._sessions[session_id].add_items(turn)

    async def newest(self, session_id: str, count: int) -> list[Any]:
        return await self._sessions[session_id].get_items(count)

    async def close(self) -> None:
        for session in self._sessions.values():
            session.close()


class OpenAISubject(FrameworkSubject):
    name = "OpenAI Agents"
    own: ClassVar[str | None] = "`SQLiteSession`"

    def turn(self, number: int) -> Items:
        return turn_items(number)

    def content(self, turn: Items) -> int:
        return len(json.dumps(turn, ensure_ascii=False, separators=(",", ":")).encode())

    def ours(self, folder: Path) -> Side:
        return Ours(folder)

    def theirs(self, folder: Path) -> Side:
        return Theirs(folder)


SUBJECTS = [OpenAISubject()]
