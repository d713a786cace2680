"""Sessions of the Claude Agent SDK, which brings no store that outlives the process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from claude_agent_sdk import InMemorySessionStore, SessionStore
from claude_agent_sdk.types import SessionKey

from benchmarks.frameworks.subject import FrameworkSubject, Side
from benchmarks.turns import turn
from locus.integrations.claude_agent_sdk import LocusSessionStore
from locus.memory.backends import sqlite_checkpointer

_BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


def turn_entries(number: int) -> list[Any]:
    """A turn as Claude Code writes it: a question, a thought with a call, its result and an answer."""
    texts = turn(number)
    call = {"type": "tool_use", "id": texts.call_id, "name": "look_up", "input": {"place": texts.place, "limit": 5}}
    result = {"type": "tool_result", "tool_use_id": texts.call_id, "content": texts.result}
    messages: list[tuple[str, Any]] = [
        ("user", texts.question),
        ("assistant", [{"type": "text", "text": texts.thought}, call]),
        ("user", [result]),
        ("assistant", [{"type": "text", "text": texts.answer}]),
    ]
    return [_entry(4 * number + place, role, content) for place, (role, content) in enumerate(messages)]


def _entry(number: int, role: str, content: Any) -> dict[str, Any]:
    at = _BEGINNING + timedelta(seconds=number)
    return {
        "parentUuid": str(uuid5(NAMESPACE_OID, str(number - 1))) if number else None,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/srv/app",
        "sessionId": str(uuid5(NAMESPACE_OID, "session")),
        "version": "2.1.0",
        "gitBranch": "main",
        "type": role,
        "message": {"role": role, "content": content},
        "uuid": str(uuid5(NAMESPACE_OID, str(number))),
        "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }


class Entries(Side):
    """Transcripts in a store of the SDK's kind."""

    def __init__(self, folder: Path, sessions: SessionStore) -> None:
        super().__init__(folder)
        self._sessions = sessions

    def _key(self, session_id: str) -> SessionKey:
        return {"project_key": "-srv-app", "session_id": session_id}

    async def save(self, session_id: str, turn: list[Any]) -> None:
        await self._sessions.append(self._key(session_id), turn)

    async def save_many(self, session_id: str, turns: Sequence[list[Any]]) -> None:
        await self.save(session_id, [entry for turn in turns for entry in turn])

    async def newest(self, session_id: str, count: int) -> list[Any]:
        return [*(await self._sessions.load(self._key(session_id)) or ())][-count:]


class InMemory(Entries):
    """The SDK's own, for tests."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, InMemorySessionStore())

    def stored_bytes(self) -> int | None:
        return None


class Ours(Entries):
    def __init__(self, folder: Path) -> None:
        self._store = sqlite_checkpointer(folder / "ours.db", durability="full")
        self._kept = LocusSessionStore(self._store)
        super().__init__(folder, self._kept)

    async def newest(self, session_id: str, count: int) -> list[Any]:
        return [*(await self._kept.load(self._key(session_id), last=count) or ())]

    async def close(self) -> None:
        await self._store.close()


class ClaudeSubject(FrameworkSubject):
    name = "Claude Agent SDK"
    call = "`append`"
    in_memory = "`InMemorySessionStore`"
    one_by_one = 1_000
    libraries = ("claude-agent-sdk",)

    def turn(self, number: int) -> list[Any]:
        return turn_entries(number)

    def content(self, turn: list[Any]) -> int:
        return len(json.dumps(turn, ensure_ascii=False, separators=(",", ":")).encode())

    def ours(self, folder: Path) -> Side:
        return Ours(folder)

    def floor(self, folder: Path) -> Side:
        return InMemory(folder)


SUBJECTS = [ClaudeSubject()]
