"""Sessions of llmfy's flows: `invoke` with a question, to which a node adds a call, its result and an answer."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict, cast
from uuid import uuid4

from llmfy import END, START, FlowEngine
from llmfy.flow_engine.checkpointer.in_memory_checkpointer import InMemoryCheckpointer
from llmfy.flow_engine.checkpointer.redis_checkpointer import RedisCheckpointer

from benchmarks.frameworks.openai_agents import turn_items
from benchmarks.frameworks.postgresql_side import PostgreSQLSide, PostgreSQLSubject
from benchmarks.frameworks.subject import FrameworkSubject, Side
from benchmarks.subjects import redis
from locus.integrations.llmfy import LlmfyCheckpointer
from locus.memory.backends import redis_checkpointer

Items = list[Any]


class State(TypedDict, total=False):
    messages: Annotated[list[Any], lambda old, new: operator.add(old or [], new)]


class Flows(Side):
    """A flow with one node, and its checkpointer."""

    def __init__(self, folder: Path, checkpointer: Any) -> None:
        super().__init__(folder)
        self._checkpointer = checkpointer
        self._answer: Items = []
        self._flow = cast("Any", FlowEngine(State, checkpointer=checkpointer))
        self._flow.add_node("agent", self._reply)
        self._flow.add_edge(START, "agent")
        self._flow.add_edge("agent", END)
        self._flow.build()

    async def _reply(self, _state: Any) -> Any:
        return {"messages": self._answer}

    async def save(self, session_id: str, turn: Items) -> None:
        self._answer = turn[1:]
        await self._flow.invoke({"messages": turn[:1]}, session_id=session_id)

    async def save_many(self, session_id: str, turns: Sequence[Items]) -> None:
        await self.save(session_id, [item for turn in turns for item in turn])

    async def newest(self, session_id: str, count: int) -> list[Any]:
        found = await self._flow.get_state(session_id)
        return [] if found is None else found["messages"][-count:]

    async def close(self) -> None:
        if isinstance(self._checkpointer, LlmfyCheckpointer):
            await self._checkpointer.close()
        elif isinstance(self._checkpointer, RedisCheckpointer):
            client: Any = await self._checkpointer._get_client()
            await client.aclose()  # its own `close` calls what redis-py has deprecated
        elif not isinstance(self._checkpointer, InMemoryCheckpointer):
            disposed = self._checkpointer.engine.dispose()
            if disposed is not None:
                await disposed


class InMemory(Flows):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, InMemoryCheckpointer())

    def stored_bytes(self) -> int | None:
        return None


class InRedis(Flows):
    def __init__(self, folder: Path, make: Callable[[str, str], Any]) -> None:
        self._server, self._prefix = redis.shared_server(durable=True), f"{uuid4().hex}:"
        super().__init__(folder, make(self._server.url, self._prefix))

    def stored_bytes(self) -> int | None:
        return redis.memory_of(self._server, self._prefix)


class InPostgreSQL(PostgreSQLSide, Flows):
    """Flows in a database of their own."""


class FlowSubject(FrameworkSubject):
    name = "llmfy"
    call = "`invoke`"
    in_memory = "`InMemoryCheckpointer`"
    one_by_one = 100
    libraries: tuple[str, ...] = ("llmfy",)

    def turn(self, number: int) -> Items:
        return turn_items(number)

    def content(self, turn: Items) -> int:
        return len(json.dumps(turn, ensure_ascii=False, separators=(",", ":")).encode())

    def floor(self, folder: Path) -> Side:
        return InMemory(folder)


class RedisSubject(FlowSubject):
    store = "Redis, always"
    own = "`RedisCheckpointer`"
    libraries = ("llmfy", "redis")

    def ours(self, folder: Path) -> Side:
        return InRedis(folder, lambda url, prefix: LlmfyCheckpointer(redis_checkpointer(url, prefix)))

    def theirs(self, folder: Path) -> Side:
        return InRedis(folder, lambda url, prefix: RedisCheckpointer(url, prefix, max_state_bytes=None))

    def servers(self) -> dict[str, str]:
        return {"Redis": redis.server_version(redis.shared_server(durable=True))}


class SQLiteSubject(FlowSubject):
    own = "`SQLCheckpointer`"
    libraries = ("llmfy", "sqlalchemy", "aiosqlite")
    peers = True

    def ours(self, folder: Path) -> Side:
        return Flows(folder, LlmfyCheckpointer(f"sqlite:{folder / 'ours.db'}"))

    def theirs(self, folder: Path) -> Side:
        return Flows(folder, sql_checkpointer(f"sqlite+aiosqlite:///{folder / 'theirs.db'}"))


class InPostgreSQLSubject(PostgreSQLSubject, FlowSubject):
    own = "`SQLCheckpointer`"
    libraries = ("llmfy", "sqlalchemy", "psycopg")
    peers = True

    def ours(self, folder: Path) -> Side:
        return InPostgreSQL(folder, LlmfyCheckpointer)

    def theirs(self, folder: Path) -> Side:
        """By the blocking driver, which it knows as well: it fails with asyncpg, for which its dates have a zone."""
        return InPostgreSQL(folder, lambda url: sql_checkpointer(url.replace("://", "+psycopg://", 1)))


def sql_checkpointer(url: str) -> Any:
    from llmfy.flow_engine.checkpointer.sql_checkpointer import SQLCheckpointer

    return SQLCheckpointer(url, max_state_bytes=None)


SUBJECTS = [SQLiteSubject(), InPostgreSQLSubject(), RedisSubject()]
