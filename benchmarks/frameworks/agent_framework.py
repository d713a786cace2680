"""Histories of the Microsoft Agent Framework.

Its file history writes without an fsync, so what it has written survives the process, and not the machine. Ours is on
SQLite at the same durability.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_framework import Content, FileHistoryProvider, HistoryProvider, InMemoryHistoryProvider, Message
from agent_framework._feature_stage import ExperimentalWarning

from benchmarks.frameworks.subject import FrameworkSubject, Side
from benchmarks.turns import turn
from locus.integrations.agent_framework import LocusHistoryProvider
from locus.memory.backends import sqlite_checkpointer

Messages = list[Message]


class Ours(Side):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._store = sqlite_checkpointer(folder / "ours.db", durability="normal")
        self._provider = LocusHistoryProvider(self._store)

    async def save(self, session_id: str, turn: Messages) -> None:
        await self._provider.save_messages(session_id, turn)

    async def save_many(self, session_id: str, turns: Sequence[Messages]) -> None:
        await self.save(session_id, [message for turn in turns for message in turn])

    async def newest(self, session_id: str, count: int) -> list[Any]:
        return [message.to_dict() for message in await self._provider.get_messages(session_id, limit=count)]

    async def close(self) -> None:
        await self._store.close()


class Theirs(Side):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)  # it is what the framework has
            self._provider: HistoryProvider = FileHistoryProvider(folder / "theirs")

    async def save(self, session_id: str, turn: Messages) -> None:
        await self._provider.save_messages(session_id, turn)

    async def save_many(self, session_id: str, turns: Sequence[Messages]) -> None:
        await self.save(session_id, [message for turn in turns for message in turn])

    async def newest(self, session_id: str, count: int) -> list[Any]:
        return [message.to_dict() for message in (await self._provider.get_messages(session_id))[-count:]]


class InMemory(Side):
    """The framework's own, which keeps the messages in the state of the session."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._provider = InMemoryHistoryProvider()
        self._states: dict[str, dict[str, Any]] = {}

    async def begin(self, session_id: str) -> None:
        self._states[session_id] = {}

    async def save(self, session_id: str, turn: Messages) -> None:
        await self._provider.save_messages(session_id, turn, state=self._states[session_id])

    async def save_many(self, session_id: str, turns: Sequence[Messages]) -> None:
        await self.save(session_id, [message for turn in turns for message in turn])

    async def newest(self, session_id: str, count: int) -> list[Any]:
        found = await self._provider.get_messages(session_id, state=self._states[session_id])
        return [message.to_dict() for message in found[-count:]]

    def stored_bytes(self) -> int | None:
        return None


class AgentFrameworkSubject(FrameworkSubject):
    name = "Microsoft Agent Framework"
    call = "`save_messages`"
    store = "files; SQLite, NORMAL"
    own = "`FileHistoryProvider`"
    in_memory = "`InMemoryHistoryProvider`"
    one_by_one = 1_000
    libraries = ("agent-framework-core",)

    def turn(self, number: int) -> Messages:
        """A turn as a run hands it over: the input, and what came of it."""
        said = turn(number)
        call = Content.from_function_call(said.call_id, "look_up", arguments={"place": said.place, "limit": 5})
        return [
            Message("user", [said.question]),
            Message("assistant", [said.thought, call], author_name="clerk", message_id=f"msg-{number}-1"),
            Message("tool", [Content.from_function_result(said.call_id, result=said.result)]),
            Message("assistant", [said.answer], author_name="clerk", message_id=f"msg-{number}-2"),
        ]

    def content(self, turn: Messages) -> int:
        payloads = [message.to_dict() for message in turn]
        return len(json.dumps(payloads, ensure_ascii=False, separators=(",", ":")).encode())

    def ours(self, folder: Path) -> Side:
        return Ours(folder)

    def theirs(self, folder: Path) -> Side:
        return Theirs(folder)

    def floor(self, folder: Path) -> Side:
        return InMemory(folder)


SUBJECTS = [AgentFrameworkSubject()]
