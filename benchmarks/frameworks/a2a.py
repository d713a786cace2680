"""Tasks of A2A agents. A turn is a save of the whole task, as an agent's executor makes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.tasks import InMemoryTaskStore
from a2a.types.a2a_pb2 import Message, Part, Role, Task
from google.protobuf.json_format import MessageToDict

from benchmarks.frameworks.postgresql_side import PostgreSQLSide, PostgreSQLSubject
from benchmarks.frameworks.subject import FrameworkSubject, Side
from benchmarks.subjects.postgresql import asyncpg_url
from benchmarks.turns import turn
from locus.integrations.a2a import LocusTaskStore

CALL = ServerCallContext()

Messages = list[Message]


class Tasks(Side):
    """Tasks in a store of the SDK's kind. A task object is kept from turn to turn, as the SDK keeps it."""

    def __init__(self, folder: Path, tasks: Any) -> None:
        super().__init__(folder)
        self._tasks = tasks
        self._kept: dict[str, Task] = {}

    async def begin(self, session_id: str) -> None:
        self._kept[session_id] = Task(id=session_id, context_id=session_id)

    async def save(self, session_id: str, turn: Messages) -> None:
        task = self._kept[session_id]
        task.history.extend(turn)
        await self._tasks.save(task, CALL)

    async def save_many(self, session_id: str, turns: Sequence[Messages]) -> None:
        await self.save(session_id, [message for turn in turns for message in turn])

    async def newest(self, session_id: str, count: int) -> list[Any]:
        task = await self._tasks.get(session_id, CALL)
        return [] if task is None else list(task.history[-count:])

    async def close(self) -> None:
        if isinstance(self._tasks, LocusTaskStore):
            await self._tasks.close()
        elif not isinstance(self._tasks, InMemoryTaskStore):
            await self._tasks.engine.dispose()


class InMemory(Tasks):
    """The SDK's own, for tests."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, InMemoryTaskStore())

    def stored_bytes(self) -> int | None:
        return None


class InPostgreSQL(PostgreSQLSide, Tasks):
    """Tasks in a database of their own."""


class TaskSubject(FrameworkSubject):
    name = "A2A, tasks"
    call = "`save`"
    own = "`DatabaseTaskStore`"
    in_memory = "`InMemoryTaskStore`"
    one_by_one = 100
    libraries: tuple[str, ...] = ("a2a-sdk", "sqlalchemy", "aiosqlite")
    peers = True

    def turn(self, number: int) -> Messages:
        texts = turn(number)
        said = (texts.question, texts.thought + texts.place, texts.result, texts.answer)
        roles = (Role.ROLE_USER, Role.ROLE_AGENT, Role.ROLE_AGENT, Role.ROLE_AGENT)
        return [
            Message(message_id=f"{number}-{place}", role=role, parts=[Part(text=text)])
            for place, (role, text) in enumerate(zip(roles, said, strict=True))
        ]

    def content(self, turn: Messages) -> int:
        payloads = [MessageToDict(message) for message in turn]
        return len(json.dumps(payloads, ensure_ascii=False, separators=(",", ":")).encode())

    def ours(self, folder: Path) -> Side:
        return Tasks(folder, LocusTaskStore(f"sqlite:{folder / 'ours.db'}"))

    def theirs(self, folder: Path) -> Side:
        return Tasks(folder, database_store(f"sqlite+aiosqlite:///{folder / 'theirs.db'}"))

    def floor(self, folder: Path) -> Side:
        return InMemory(folder)


class InPostgreSQLSubject(PostgreSQLSubject, TaskSubject):
    libraries = ("a2a-sdk", "sqlalchemy", "asyncpg")

    def ours(self, folder: Path) -> Side:
        return InPostgreSQL(folder, LocusTaskStore)

    def theirs(self, folder: Path) -> Side:
        return InPostgreSQL(folder, lambda url: database_store(asyncpg_url(url)))


def database_store(url: str) -> Any:
    """The SDK's own store, on an engine of SQLAlchemy."""
    engine = import_module("sqlalchemy.ext.asyncio").create_async_engine(url)
    return import_module("a2a.server.tasks").DatabaseTaskStore(engine)


SUBJECTS = [TaskSubject(), InPostgreSQLSubject()]
