"""Sessions of the OpenAI Agents SDK."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

from agents import SQLiteSession
from agents.extensions.memory import AsyncSQLiteSession, RedisSession

from benchmarks.frameworks.postgresql_side import PostgreSQLSide, PostgreSQLSubject
from benchmarks.frameworks.subject import FrameworkSubject, Side
from benchmarks.subjects.postgresql import asyncpg_url
from benchmarks.subjects.redis import memory_of, server_version, shared_server
from benchmarks.turns import turn
from locus.integrations.openai_agents import LocusSession
from locus.memory.backends import postgresql_checkpointer, redis_checkpointer, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer

Items = list[Any]


def turn_items(number: int) -> Items:
    """A turn as the SDK's runner saves it."""
    texts = turn(number)
    arguments = json.dumps({"place": texts.place, "limit": 5})
    return [
        {"role": "user", "content": texts.question},
        {"role": "assistant", "content": texts.thought},
        {"type": "function_call", "call_id": texts.call_id, "name": "look_up", "arguments": arguments},
        {"type": "function_call_output", "call_id": texts.call_id, "output": texts.result},
        {"role": "assistant", "content": texts.answer},
    ]


class Sessions(Side):
    """Session objects, which are kept from turn to turn. A subclass makes them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._sessions: dict[str, Any] = {}

    def session(self, session_id: str) -> Any:
        return SQLiteSession(session_id)

    async def begin(self, session_id: str) -> None:
        self._sessions[session_id] = self.session(session_id)

    async def save(self, session_id: str, turn: Items) -> None:
        await self._sessions[session_id].add_items(turn)

    async def save_many(self, session_id: str, turns: Sequence[Items]) -> None:
        await self.save(session_id, [item for turn in turns for item in turn])

    async def newest(self, session_id: str, count: int) -> list[Any]:
        found: list[Any] = await self._sessions[session_id].get_items(count)
        return found

    async def close(self) -> None:
        for session in self._sessions.values():
            closed = session.close()
            if closed is not None:
                await closed


class InMemory(Sessions):
    """The SDK's own session without a file."""

    def stored_bytes(self) -> int | None:
        return None


class Ours(Sessions):
    def __init__(self, folder: Path, store: Checkpointer) -> None:
        super().__init__(folder)
        self._store = store

    def session(self, session_id: str) -> Any:
        return LocusSession(session_id, self._store)

    async def close(self) -> None:
        await self._store.close()


class InSQLite(Sessions):
    def session(self, session_id: str) -> Any:
        return SQLiteSession(session_id, self.folder / "theirs.db")


class InAsyncSQLite(Sessions):
    def session(self, session_id: str) -> Any:
        return AsyncSQLiteSession(session_id, self.folder / "theirs.db")


class OursInRedis(Ours):
    def __init__(self, folder: Path, durable: bool) -> None:
        self._server, self._prefix = shared_server(durable), f"{uuid4().hex}:"
        super().__init__(folder, redis_checkpointer(self._server.url, self._prefix))

    def stored_bytes(self) -> int | None:
        return memory_of(self._server, self._prefix)


class InRedis(Sessions):
    def __init__(self, folder: Path, durable: bool) -> None:
        super().__init__(folder)
        self._server, self._prefix = shared_server(durable), uuid4().hex

    def session(self, session_id: str) -> Any:
        return RedisSession.from_url(session_id, url=self._server.url, key_prefix=self._prefix)

    def stored_bytes(self) -> int | None:
        return memory_of(self._server, self._prefix)


class OursInPostgreSQL(PostgreSQLSide, Ours):
    """Sessions in a database of their own."""


class InSQLAlchemy(Sessions):
    """All sessions share an engine, as in a server."""

    def __init__(self, folder: Path, engine: Any) -> None:
        super().__init__(folder)
        self._engine = engine

    def session(self, session_id: str) -> Any:
        from agents.extensions.memory import SQLAlchemySession

        return SQLAlchemySession(session_id, engine=self._engine, create_tables=True)

    async def close(self) -> None:
        await self._engine.dispose()


class TheirsInPostgreSQL(PostgreSQLSide, InSQLAlchemy):
    """Sessions in a database of their own."""


class OpenAISubject(FrameworkSubject):
    name = "OpenAI Agents"
    call = "`add_items`"
    own: str | None = "`SQLiteSession`"
    in_memory: str | None = "`SQLiteSession` in memory"
    one_by_one = 1_000
    libraries: tuple[str, ...] = ("openai-agents",)

    def turn(self, number: int) -> Items:
        return turn_items(number)

    def content(self, turn: Items) -> int:
        return len(json.dumps(turn, ensure_ascii=False, separators=(",", ":")).encode())

    def ours(self, folder: Path) -> Side:
        return Ours(folder, sqlite_checkpointer(folder / "ours.db", durability="full"))

    def theirs(self, folder: Path) -> Side:
        return InSQLite(folder)

    def floor(self, folder: Path) -> Side:
        return InMemory(folder)


class AsyncSubject(OpenAISubject):
    own = "`AsyncSQLiteSession`"
    libraries = ("openai-agents", "aiosqlite")

    def theirs(self, folder: Path) -> Side:
        return InAsyncSQLite(folder)


class RedisSubject(OpenAISubject):
    own = "`RedisSession`"
    libraries = ("openai-agents", "redis")

    def __init__(self, *, durable: bool) -> None:
        self._durable = durable
        self.store = "Redis, always" if durable else "Redis, unsynced"

    def ours(self, folder: Path) -> Side:
        return OursInRedis(folder, self._durable)

    def theirs(self, folder: Path) -> Side:
        return InRedis(folder, self._durable)

    def servers(self) -> dict[str, str]:
        return {"Redis": server_version(shared_server(self._durable))}


class InPostgreSQLSubject(PostgreSQLSubject, OpenAISubject):
    own = "`SQLAlchemySession`"
    libraries = ("openai-agents", "sqlalchemy", "asyncpg")
    peers = True

    def ours(self, folder: Path) -> Side:
        return OursInPostgreSQL(folder, lambda url: postgresql_checkpointer(dsn=url))

    def theirs(self, folder: Path) -> Side:
        make: Any = import_module("sqlalchemy.ext.asyncio").create_async_engine
        return TheirsInPostgreSQL(folder, lambda url: make(asyncpg_url(url)))


SUBJECTS = [
    OpenAISubject(),
    AsyncSubject(),
    InPostgreSQLSubject(),
    RedisSubject(durable=True),
    RedisSubject(durable=False),
]
