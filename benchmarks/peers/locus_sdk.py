"""The checkpointers of Oracle's `locus-sdk`. Here `locus` is theirs, so it is imported by name only."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from benchmarks.peers.running import DATABASE_SIZE, InMemory, Peer, main
from benchmarks.turns import Turn


class _Checkpointer(Peer):
    async def open(self) -> None:
        await super().open()
        self._messages = import_module("locus.core.messages")
        self._state = import_module("locus.core.state").AgentState(agent_id="bench")
        self._checkpointer = self._opened(import_module("locus.memory.backends"))
        self.list_ten = self._list

    def _opened(self, backends: Any) -> Any:
        raise NotImplementedError

    def add(self, texts: Turn) -> None:
        made = self._messages
        call = made.ToolCall(id=texts.call_id, name="look_up", arguments={"place": texts.place, "limit": 5})
        result = made.ToolResult(tool_call_id=texts.call_id, name="look_up", content=texts.result)
        self._state = self._state.with_messages(
            [
                made.Message.user(texts.question),
                made.Message.assistant(texts.thought, tool_calls=[call]),
                made.Message.tool(result),
                made.Message.assistant(texts.answer),
            ]
        )

    async def save(self) -> None:
        await self._checkpointer.save(self._state, "thread")

    async def load(self) -> None:
        loaded = await self._checkpointer.load("thread")
        assert len(loaded.messages) == len(self._state.messages)

    async def _list(self) -> None:
        assert await self._checkpointer.list_checkpoints("thread", limit=10)


class File(_Checkpointer):
    def _opened(self, backends: Any) -> Any:
        return backends.FileCheckpointer(base_dir=str(self.folder))


class Memory(_Checkpointer, InMemory):
    def _opened(self, backends: Any) -> Any:
        return backends.MemoryCheckpointer()


class PostgreSQL(_Checkpointer):
    def _opened(self, backends: Any) -> Any:
        return backends.postgresql_checkpointer(dsn=self.url)

    async def begin(self) -> None:
        self._before = await self._size()

    async def stored_bytes(self) -> int:
        return await self._size() - self._before

    async def _size(self) -> int:
        connection = await import_module("asyncpg").connect(self.url)
        try:
            return int(await connection.fetchval(DATABASE_SIZE))
        finally:
            await connection.close()


class Redis(_Checkpointer):
    def _opened(self, backends: Any) -> Any:
        return backends.redis_checkpointer(self.url)

    async def begin(self) -> None:
        self._before = await self._size()

    async def stored_bytes(self) -> int:
        return await self._size() - self._before

    async def _size(self) -> int:
        client = import_module("redis.asyncio").from_url(self.url)
        try:
            return int((await client.info("memory"))["used_memory"])
        finally:
            await client.aclose()


if __name__ == "__main__":
    main(
        {
            "FileCheckpointer": File,
            "MemoryCheckpointer": Memory,
            "postgresql_checkpointer": PostgreSQL,
            "redis_checkpointer": Redis,
        }
    )
