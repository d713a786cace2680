"""Sessions and snapshots of Strands.

Its own stores write files and do not sync them, so ours are told not to sync every commit either. The sessions are
measured once more where nothing is lost with the machine: its files synced, and every commit of ours.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from strands.session import FileSessionManager, SessionRepository
from strands.storage import InMemoryStorage, LocalFileStorage, Storage
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

from benchmarks.frameworks.subject import FrameworkSubject, Side
from benchmarks.turns import turn
from locus.integrations.strands import LocusSessionRepository, LocusStorage, snapshot_key

AGENT = "default"

Messages = list[Any]


def turn_messages(number: int) -> Messages:
    """A turn as Strands has it in memory."""
    texts = turn(number)
    call = {"toolUseId": texts.call_id, "name": "look_up", "input": {"place": texts.place, "limit": 5}}
    result = {"toolUseId": texts.call_id, "status": "success", "content": [{"text": texts.result}]}
    return [
        {"role": "user", "content": [{"text": texts.question}]},
        {"role": "assistant", "content": [{"text": texts.thought}, {"toolUse": call}]},
        {"role": "user", "content": [{"toolResult": result}]},
        {"role": "assistant", "content": [{"text": texts.answer}]},
    ]


class Sessions(Side):
    """A message after the other, as a `RepositorySessionManager` saves them."""

    def __init__(self, folder: Path, repository: SessionRepository) -> None:
        super().__init__(folder)
        self._repository = repository
        self._counts: dict[str, int] = {}

    async def begin(self, session_id: str) -> None:
        self._repository.create_session(Session(session_id, SessionType.AGENT))
        self._repository.create_agent(session_id, SessionAgent(AGENT, {}, {}))
        self._counts[session_id] = 0

    async def save(self, session_id: str, turn: Messages) -> None:
        for message in turn:
            kept = SessionMessage.from_message(message, self._counts[session_id])
            self._repository.create_message(session_id, AGENT, kept)
            self._counts[session_id] += 1

    async def newest(self, session_id: str, count: int) -> list[Any]:
        offset = self._counts[session_id] - count
        found = self._repository.list_messages(session_id, AGENT, offset=max(0, offset))
        return [message.to_message() for message in found]

    async def close(self) -> None:
        if isinstance(self._repository, LocusSessionRepository):
            self._repository.close()


class Snapshots(Side):
    """The whole agent after each turn, as a `SnapshotSessionManager` saves it."""

    def __init__(self, folder: Path, storage: Storage) -> None:
        super().__init__(folder)
        self._storage = storage
        self._messages: dict[str, Messages] = {}

    async def begin(self, session_id: str) -> None:
        self._messages[session_id] = []

    async def save(self, session_id: str, turn: Messages) -> None:
        messages = self._messages[session_id]
        messages += turn
        await self._write(session_id, messages)

    async def save_many(self, session_id: str, turns: Sequence[Messages]) -> None:
        await self.save(session_id, [message for turn in turns for message in turn])

    async def _write(self, session_id: str, messages: Messages) -> None:
        data = {"messages": messages, "state": {}, "conversation_manager_state": {}, "interrupt_state": {}}
        now = datetime.now(UTC).isoformat()
        snapshot = {"scope": "agent", "schema_version": "1.0", "created_at": now, "data": data, "app_data": {}}
        await self._storage.write(snapshot_key(session_id), json.dumps(snapshot, ensure_ascii=False).encode())

    async def newest(self, session_id: str, count: int) -> list[Any]:
        if isinstance(self._storage, LocusStorage):
            return await self._storage.messages(snapshot_key(session_id), count)
        data = await self._storage.read(snapshot_key(session_id))
        found: list[Any] = json.loads(data or b"")["data"]["messages"][-count:]
        return found

    async def close(self) -> None:
        if isinstance(self._storage, LocusStorage):
            await self._storage.close()


class SnapshotsInMemory(Snapshots):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, InMemoryStorage())

    def stored_bytes(self) -> int | None:
        return None


def _size(messages: list[Any]) -> int:
    return len(json.dumps(messages, ensure_ascii=False, separators=(",", ":")).encode())


class StrandsSubject(FrameworkSubject):
    name = "Strands, sessions"
    call = "4 × `create_message`"
    store = "files; SQLite, NORMAL"
    own = "`FileSessionManager`"
    blocking = True
    libraries = ("strands-agents",)

    def turn(self, number: int) -> Messages:
        return turn_messages(number)

    def content(self, turn: Messages) -> int:
        return _size([SessionMessage.from_message(message, number).to_dict() for number, message in enumerate(turn)])

    def ours(self, folder: Path) -> Side:
        return Sessions(folder, LocusSessionRepository(f"sqlite:{folder / 'ours.db'}", durability="normal"))

    def theirs(self, folder: Path) -> Side:
        return Sessions(folder, FileSessionManager("first", storage_dir=str(folder)))


class SyncedFiles(FileSessionManager):
    """Its files, each of them on the disk before a call returns."""

    def _write_file(self, path: str, data: dict[str, Any]) -> None:
        super()._write_file(path, data)
        for name in (path, Path(path).parent):  # the file, and its name
            descriptor = os.open(name, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)


class SyncedSubject(StrandsSubject):
    store = "files with an fsync; SQLite, FULL"
    own = "`FileSessionManager` with an fsync"

    def ours(self, folder: Path) -> Side:
        return Sessions(folder, LocusSessionRepository(f"sqlite:{folder / 'ours.db'}", durability="full"))

    def theirs(self, folder: Path) -> Side:
        return Sessions(folder, SyncedFiles("first", storage_dir=str(folder)))


class SnapshotSubject(StrandsSubject):
    name = "Strands, snapshots"
    call = "`write`"
    own = "`LocalFileStorage`"
    in_memory = "`InMemoryStorage`"
    blocking = False
    one_by_one = 1_000

    def content(self, turn: Messages) -> int:
        return _size(turn)

    def ours(self, folder: Path) -> Side:
        return Snapshots(folder, LocusStorage(f"sqlite:{folder / 'ours.db'}", durability="normal"))

    def theirs(self, folder: Path) -> Side:
        return Snapshots(folder, LocalFileStorage(str(folder)))

    def floor(self, folder: Path) -> Side:
        return SnapshotsInMemory(folder)


SUBJECTS = [StrandsSubject(), SyncedSubject(), SnapshotSubject()]
