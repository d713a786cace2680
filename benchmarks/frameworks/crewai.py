"""States of CrewAI's flows. A turn is a save of the whole state, as `@persist` makes it after each method."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crewai.flow.persistence.sqlite import SQLiteFlowPersistence

from benchmarks.frameworks.subject import FrameworkSubject, Side
from benchmarks.turns import turn
from locus.integrations.crewai import LocusFlowPersistence

Messages = list[dict[str, Any]]


class Flows(Side):
    """The states of flows, each of which is kept from turn to turn, as a flow keeps it."""

    def __init__(self, folder: Path, flows: Any) -> None:
        super().__init__(folder)
        self._flows = flows
        self._messages: dict[str, Messages] = {}

    async def begin(self, session_id: str) -> None:
        self._messages[session_id] = []

    async def save(self, session_id: str, turn: Messages) -> None:
        messages = self._messages[session_id]
        messages += turn
        self._flows.save_state(session_id, "answer", {"id": session_id, "messages": messages})

    async def save_many(self, session_id: str, turns: Sequence[Messages]) -> None:
        await self.save(session_id, [message for turn in turns for message in turn])

    async def newest(self, session_id: str, count: int) -> list[Any]:
        state = self._flows.load_state(session_id)
        return [] if state is None else state["messages"][-count:]

    async def close(self) -> None:
        if isinstance(self._flows, LocusFlowPersistence):
            self._flows.close()


class FlowSubject(FrameworkSubject):
    name = "CrewAI, flows"
    call = "`save_state`"
    own = "`SQLiteFlowPersistence`"
    blocking = True
    one_by_one = 100
    libraries = ("crewai",)

    def turn(self, number: int) -> Messages:
        texts = turn(number)
        call = {"id": texts.call_id, "name": "look_up", "arguments": json.dumps({"place": texts.place, "limit": 5})}
        return [
            {"role": "user", "content": texts.question},
            {"role": "assistant", "content": texts.thought, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": texts.call_id, "content": texts.result},
            {"role": "assistant", "content": texts.answer},
        ]

    def content(self, turn: Messages) -> int:
        return len(json.dumps(turn, ensure_ascii=False, separators=(",", ":")).encode())

    def ours(self, folder: Path) -> Side:
        return Flows(folder, LocusFlowPersistence(f"sqlite:{folder / 'ours.db'}"))

    def theirs(self, folder: Path) -> Side:
        return Flows(folder, SQLiteFlowPersistence(str(folder / "theirs.db")))


SUBJECTS = [FlowSubject()]
