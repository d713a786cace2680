"""Reads the folder of a `FileHistoryProvider` of the Microsoft Agent Framework.

    <session>.jsonl      one message a line, as JSON
    <session>.msgpack    one MessagePack record a message, after its length in four bytes

If an id is no safe name for a file, the file is called `~session-` and the id in base32, or, if the id is very long,
`~session-sha256-` and a digest. A digest does not reveal the id, so the name of the file becomes the id.

Each session becomes a thread that `LocusHistoryProvider` continues. Messages have no times, so each turn becomes a
checkpoint with the time of the file. A turn begins with a message of the user.
"""

from __future__ import annotations

import asyncio
from base64 import b32decode
from collections.abc import AsyncGenerator, Iterable, Iterator
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

from locus.errors import BackendUnavailableError, ConfigurationError, CorruptCheckpointError, SerializationError
from locus.extras import require
from locus.memory.model.codec import decode, encode
from locus.transfer.content import MovedCheckpoint, log_checkpoints
from locus.transfer.items import ThreadItems
from locus.transfer.sources.folder import FolderStore

NAMESPACE = "agent-framework"

_ENCODED = "~session-"
_DIGEST = "~session-sha256-"
_LENGTH_BYTES = 4
_LONGEST = 64 * 1024 * 1024
"""The most bytes that the framework writes for a message as MessagePack."""


class AgentFrameworkSource(FolderStore):
    """The sessions in the folder of a `FileHistoryProvider`."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._files: dict[str, Path] = {}

    def _ids(self) -> Iterable[str]:
        self._files = self._by_session()
        return self._files

    def _by_session(self) -> dict[str, Path]:
        files: dict[str, Path] = {}
        for path in sorted(self._path.iterdir()):
            if path.suffix not in _READERS or not path.is_file() or not path.stat().st_size:
                continue
            session_id = session_of(path.stem)
            if session_id in files:
                raise ConfigurationError(
                    f"session {session_id!r:.80} is in two files of {str(self._path)!r}, as JSON Lines and as "
                    "MessagePack: move one of them to another folder"
                )
            files[session_id] = path
        return files

    async def checkpoints(self, thread_id: str) -> AsyncGenerator[MovedCheckpoint, None]:
        path = self._files[thread_id]
        created_at, turns = await asyncio.to_thread(_read_turns, thread_id, path)
        counts = accumulate(map(len, turns))
        steps = ((f"import-{count}", created_at, texts) for count, texts in zip(counts, turns, strict=True))
        for checkpoint in log_checkpoints(NAMESPACE, "main", steps, ThreadItems()):
            yield checkpoint


def session_of(stem: str) -> str:
    """The id of a session, from the name of its file."""
    if not stem.startswith(_ENCODED) or stem.startswith(_DIGEST):
        return stem
    text = stem.removeprefix(_ENCODED).upper()
    try:
        return b32decode(text + "=" * (-len(text) % 8)).decode()
    except ValueError:
        return stem  # not a name that the framework gives


def _read_turns(session_id: str, path: Path) -> tuple[datetime, list[list[str]]]:
    """The time at which a file was last written, and its messages as JSON, grouped by turn."""
    turns: list[list[str]] = []
    try:
        with path.open("rb") as file:
            created_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            for number, message in enumerate(_READERS[path.suffix](file, session_id), 1):
                if not isinstance(message, dict) or message.get("type", "message") != "message" or not _role(message):
                    raise _damaged(session_id, number, "is no message of the Agent Framework 1")
                if not turns or _role(message) == "user":
                    turns.append([])
                try:
                    turns[-1].append(encode(message))
                except SerializationError as error:
                    raise _damaged(session_id, number, f"cannot be kept: {error}") from error
    except OSError as error:
        raise BackendUnavailableError(f"{str(path)!r} cannot be read now: {error.strerror}") from error
    return created_at, turns


def _role(message: dict[str, Any]) -> str | None:
    role = message.get("role")
    return role if isinstance(role, str) else None


def _lines(file: IO[bytes], session_id: str) -> Iterator[Any]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            yield decode(line)
        except CorruptCheckpointError as error:
            raise _damaged(session_id, number, "is no JSON") from error


def _records(file: IO[bytes], session_id: str) -> Iterator[Any]:
    msgspec = require("msgspec", "agent-framework")
    number = 0
    while length := file.read(_LENGTH_BYTES):
        number += 1
        size = int.from_bytes(length, "big")
        record = file.read(size) if 0 < size <= _LONGEST else b""
        if len(length) != _LENGTH_BYTES or len(record) != size or not size:
            raise _damaged(session_id, number, "is cut off")
        try:
            yield msgspec.msgpack.decode(record)
        except msgspec.DecodeError as error:
            raise _damaged(session_id, number, "is no MessagePack") from error


_READERS = {".jsonl": _lines, ".msgpack": _records}


def _damaged(session_id: str, number: int, what: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"message {number} of session {session_id!r} {what}. The framework cannot read this file either; repair or "
        "remove the message, if it is not needed, and try again"
    )
