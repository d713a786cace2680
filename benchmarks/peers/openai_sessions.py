"""The session of the OpenAI Agents SDK: it appends items, and keeps no checkpoints and no history."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

from benchmarks.peers.running import Peer, main
from benchmarks.turns import Turn


class SQLite(Peer):
    async def open(self) -> None:
        await super().open()
        memory = import_module("agents.memory")
        self._session = memory.SQLiteSession("thread", str(self.folder / "session.db"))
        self._items: list[dict[str, Any]] = []
        self._count = 0

    def add(self, texts: Turn) -> None:
        arguments = json.dumps({"place": texts.place, "limit": 5})
        self._items = [
            {"role": "user", "content": texts.question},
            {"role": "assistant", "content": texts.thought},
            {"type": "function_call", "call_id": texts.call_id, "name": "look_up", "arguments": arguments},
            {"type": "function_call_output", "call_id": texts.call_id, "output": texts.result},
            {"role": "assistant", "content": texts.answer},
        ]
        self._count += len(self._items)

    async def save(self) -> None:
        await self._session.add_items(self._items)

    async def load(self) -> None:
        assert len(await self._session.get_items()) == self._count


if __name__ == "__main__":
    main({"SQLiteSession": SQLite})
