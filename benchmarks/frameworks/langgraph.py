"""Turns of a graph with one node: `invoke` with a question, to which the node adds a call, its result and an answer.

A thread is measured with the two ways in which a graph may keep its messages: `add_messages`, which every checkpoint
has whole, and the `DeltaChannel` of Deep Agents, which is told by what was written since the last snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any, TypedDict
from urllib.parse import quote
from uuid import uuid4

from deepagents._messages_reducer import _messages_delta_reducer
from langchain_core.messages import AnyMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

from benchmarks.frameworks.subject import FrameworkSubject, Side
from benchmarks.langgraph_bench import as_json, turn_messages
from benchmarks.subjects.postgresql import run_sql, schema_bytes, server_version, shared_server
from locus.integrations.langgraph import LocusSaver

FULL = 2
"""What SQLite calls `synchronous=FULL`."""
BEFORE_BULK = 24
"""Turns, which are 48 updates of a channel: the bulk is the 49th, and what follows it makes Deep Agents' snapshot."""


class WholeList(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Deltas(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer, snapshot_frequency=50)]


class GraphSide(Side):
    """A graph and its saver, called as a blocking program does or from an event loop."""

    def __init__(self, folder: Path, state: type, *, blocking: bool) -> None:
        super().__init__(folder)
        self._blocking = blocking
        self._state = state
        self._opened = AsyncExitStack()
        self._answer: Sequence[AnyMessage] = ()
        self._graph: Any = None

    async def saver(self) -> Any:
        """The saver, opened within `_opened`."""
        return InMemorySaver()

    async def open(self) -> None:
        reply: Any = self._reply if self._blocking else self._areply
        builder: Any = StateGraph(self._state).add_node("agent", reply)
        self._graph = builder.add_edge(START, "agent").compile(checkpointer=await self.saver())

    async def _enter(self, manager: Any) -> Any:
        if self._blocking:
            return self._opened.enter_context(manager)
        return await self._opened.enter_async_context(manager)

    def _reply(self, _state: Any) -> Any:
        return {"messages": self._answer}

    async def _areply(self, _state: Any) -> Any:
        return {"messages": self._answer}

    async def save(self, session_id: str, turn: Sequence[AnyMessage]) -> None:
        asked, self._answer = {"messages": [turn[0]]}, turn[1:]
        if self._blocking:
            self._graph.invoke(asked, _thread(session_id), durability="sync")
        else:
            await self._graph.ainvoke(asked, _thread(session_id), durability="sync")

    async def save_many(self, session_id: str, turns: Sequence[Any]) -> None:
        for turn in turns[:BEFORE_BULK]:
            await self.save(session_id, turn)
        update = {"messages": [message for turn in turns[BEFORE_BULK:-1] for message in turn]}
        if self._blocking:
            self._graph.update_state(_thread(session_id), update, as_node="agent")
        else:
            await self._graph.aupdate_state(_thread(session_id), update, as_node="agent")
        await self.save(session_id, turns[-1])

    async def newest(self, session_id: str, count: int) -> list[Any]:
        if self._blocking:
            found = self._graph.get_state(_thread(session_id))
        else:
            found = await self._graph.aget_state(_thread(session_id))
        newest: list[Any] = found.values["messages"][-count:]
        return newest

    def stored_bytes(self) -> int | None:
        return None

    async def close(self) -> None:
        await self._opened.aclose()


def _thread(session_id: str) -> Any:
    return {"configurable": {"thread_id": session_id}}


class SQLiteSide(GraphSide):
    """One file, with `synchronous=FULL`."""

    def __init__(self, folder: Path, state: type, *, blocking: bool, locus: bool) -> None:
        super().__init__(folder, state, blocking=blocking)
        self._locus = locus

    async def saver(self) -> Any:
        path = self.folder / "threads.db"
        if self._locus:
            return await self._enter(LocusSaver(f"sqlite:{path}", durability="full"))
        kind = SqliteSaver if self._blocking else AsyncSqliteSaver
        saver: Any = await self._enter(kind.from_conn_string(str(path)))
        asked = saver.conn.execute("PRAGMA synchronous")
        ((synchronous,),) = asked.fetchall() if self._blocking else await (await asked).fetchall()
        if synchronous != FULL:
            raise RuntimeError(f"LangGraph's connection has synchronous={synchronous}, and ours has FULL")
        return saver

    def stored_bytes(self) -> int | None:
        return Side.stored_bytes(self)


class PostgreSQLSide(GraphSide):
    """A schema of its own, on a server with an fsync for every commit."""

    def __init__(self, folder: Path, state: type, *, blocking: bool, locus: bool) -> None:
        super().__init__(folder, state, blocking=blocking)
        self._locus = locus
        self._schema = f"b{uuid4().hex[:10]}"

    async def saver(self) -> Any:
        run_sql(shared_server(), f"CREATE SCHEMA {self._schema}")
        self._opened.callback(run_sql, shared_server(), f"DROP SCHEMA {self._schema} CASCADE")
        url = shared_server().url
        if self._locus:
            return await self._enter(LocusSaver(url, schema_name=self._schema))
        kind = PostgresSaver if self._blocking else AsyncPostgresSaver
        options = quote(f"-c search_path={self._schema}")
        saver: Any = await self._enter(kind.from_conn_string(f"{url}?options={options}"))
        if self._blocking:
            saver.setup()
        else:
            await saver.setup()
        return saver

    def stored_bytes(self) -> int | None:
        return schema_bytes(shared_server(), self._schema)


class GraphSubject(FrameworkSubject):
    in_memory = "`InMemorySaver`"
    one_by_one = 100
    libraries: tuple[str, ...] = ("langgraph", "langgraph-checkpoint", "langchain-core", "deepagents")

    def __init__(self, state: type, *, blocking: bool) -> None:
        self._state = state
        self.name = "LangGraph, `add_messages`" if state is WholeList else "LangGraph, `DeltaChannel`"
        self.call = "`invoke`" if blocking else "`ainvoke`"
        self.blocking = blocking

    def turn(self, number: int) -> list[AnyMessage]:
        return turn_messages(number)

    def content(self, turn: Any) -> int:
        return len(as_json(turn).encode())

    def floor(self, folder: Path) -> Side:
        return GraphSide(folder, self._state, blocking=self.blocking)


class SQLiteGraph(GraphSubject):
    libraries = (*GraphSubject.libraries, "langgraph-checkpoint-sqlite", "aiosqlite")

    def __init__(self, state: type, *, blocking: bool) -> None:
        super().__init__(state, blocking=blocking)
        self.own = "`SqliteSaver`" if blocking else "`AsyncSqliteSaver`"

    def ours(self, folder: Path) -> Side:
        return SQLiteSide(folder, self._state, blocking=self.blocking, locus=True)

    def theirs(self, folder: Path) -> Side:
        return SQLiteSide(folder, self._state, blocking=self.blocking, locus=False)


class PostgreSQLGraph(GraphSubject):
    store = "PostgreSQL"
    libraries = (*GraphSubject.libraries, "langgraph-checkpoint-postgres", "psycopg")

    def __init__(self, state: type, *, blocking: bool) -> None:
        super().__init__(state, blocking=blocking)
        self.own = "`PostgresSaver`" if blocking else "`AsyncPostgresSaver`"

    def ours(self, folder: Path) -> Side:
        return PostgreSQLSide(folder, self._state, blocking=self.blocking, locus=True)

    def theirs(self, folder: Path) -> Side:
        return PostgreSQLSide(folder, self._state, blocking=self.blocking, locus=False)

    def servers(self) -> dict[str, str]:
        return {"PostgreSQL": server_version(shared_server())}


SUBJECTS = [
    kind(state, blocking=blocking)
    for kind in (SQLiteGraph, PostgreSQLGraph)
    for blocking in (True, False)
    for state in (WholeList, Deltas)
]
