"""LangGraph's savers, called as its loop calls them: `put` with the whole list of messages."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from benchmarks.peers.running import DATABASE_SIZE, InMemory, Peer, main
from benchmarks.turns import Turn


class _Saver(Peer):
    async def open(self) -> None:
        await super().open()
        self._base = import_module("langgraph.checkpoint.base")
        self._made = import_module("langchain_core.messages")
        self._new_id = import_module("langgraph.checkpoint.base.id").uuid6
        self._messages: list[Any] = []
        self._version: Any = None
        self._step = -1
        self._config: Any = {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}}
        self._latest = self._config
        self._saver = await self._opened()
        self.list_ten = self._list

    async def _opened(self) -> Any:
        raise NotImplementedError

    def add(self, texts: Turn) -> None:
        made = self._made
        call = {"id": texts.call_id, "name": "look_up", "args": {"place": texts.place, "limit": 5}}
        self._messages += [
            made.HumanMessage(texts.question),
            made.AIMessage(texts.thought, tool_calls=[call]),
            made.ToolMessage(texts.result, tool_call_id=texts.call_id, name="look_up"),
            made.AIMessage(texts.answer),
        ]
        self._step += 1
        self._version = self._saver.get_next_version(self._version, None)

    def _arguments(self) -> tuple[Any, ...]:
        checkpoint = self._base.empty_checkpoint()
        checkpoint["id"] = str(self._new_id(clock_seq=self._step))
        checkpoint["channel_values"] = {"messages": list(self._messages)}
        checkpoint["channel_versions"] = {"messages": self._version}
        metadata = {"source": "loop", "step": self._step, "parents": {}}
        return self._latest, checkpoint, metadata, {"messages": self._version}

    async def save(self) -> None:
        self._latest = self._saver.put(*self._arguments())

    async def load(self) -> None:
        found = self._saver.get_tuple(self._config)
        assert len(found.checkpoint["channel_values"]["messages"]) == len(self._messages)

    async def _list(self) -> None:
        assert list(self._saver.list(self._config, limit=10))


class Memory(_Saver, InMemory):
    async def _opened(self) -> Any:
        return import_module("langgraph.checkpoint.memory").InMemorySaver()


class SQLite(_Saver):
    async def _opened(self) -> Any:
        manager = import_module("langgraph.checkpoint.sqlite").SqliteSaver.from_conn_string(
            str(self.folder / "saver.db")
        )
        self._manager = manager
        return manager.__enter__()

    async def close(self) -> None:
        self._manager.__exit__(None, None, None)


class AsyncSQLite(_Saver):
    async def _opened(self) -> Any:
        manager = import_module("langgraph.checkpoint.sqlite.aio").AsyncSqliteSaver.from_conn_string(
            str(self.folder / "saver.db")
        )
        self._manager = manager
        return await manager.__aenter__()

    async def close(self) -> None:
        await self._manager.__aexit__(None, None, None)

    async def save(self) -> None:
        self._latest = await self._saver.aput(*self._arguments())

    async def load(self) -> None:
        found = await self._saver.aget_tuple(self._config)
        assert len(found.checkpoint["channel_values"]["messages"]) == len(self._messages)

    async def _list(self) -> None:
        assert [found async for found in self._saver.alist(self._config, limit=10)]


class PostgreSQL(_Saver):
    async def _opened(self) -> Any:
        self._manager = import_module("langgraph.checkpoint.postgres").PostgresSaver.from_conn_string(self.url)
        saver = self._manager.__enter__()
        saver.setup()
        return saver

    async def begin(self) -> None:
        self._before = self._size()

    async def stored_bytes(self) -> int:
        return self._size() - self._before

    def _size(self) -> int:
        with import_module("psycopg").connect(self.url) as connection:
            return int(connection.execute(DATABASE_SIZE).fetchone()[0])

    async def close(self) -> None:
        self._manager.__exit__(None, None, None)


class AsyncPostgreSQL(PostgreSQL, AsyncSQLite):
    async def _opened(self) -> Any:
        self._manager = import_module("langgraph.checkpoint.postgres.aio").AsyncPostgresSaver.from_conn_string(self.url)
        saver = await self._manager.__aenter__()
        await saver.setup()
        return saver

    async def close(self) -> None:
        await self._manager.__aexit__(None, None, None)


if __name__ == "__main__":
    main(
        {
            "SqliteSaver": SQLite,
            "AsyncSqliteSaver": AsyncSQLite,
            "InMemorySaver": Memory,
            "PostgresSaver": PostgreSQL,
            "AsyncPostgresSaver": AsyncPostgreSQL,
        }
    )
