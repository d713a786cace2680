"""Reads the folder of `FileCheckpointer` of locus-sdk 3.

A file `<thread>/<checkpoint>.json` holds checkpoint_id, thread_id, created_at, state and metadata. In the name of the
folder, characters of the thread id other than letters, digits, `-` and `_` are replaced by `_`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any

from locus.errors import CorruptCheckpointError
from locus.memory.model.codec import decode
from locus.transfer.sources.folder import FolderStore
from locus.transfer.sources.locus_sdk.source import OldCheckpoint, OldStore, moment

_TEXT = rb'("(?:[^"\\]|\\.)*")'
_HEAD = re.compile(
    rb'\{\s*"checkpoint_id":\s*' + _TEXT + rb',\s*"thread_id":\s*' + _TEXT + rb',\s*"created_at":\s*' + _TEXT
)


class OldFolder(FolderStore, OldStore):
    """A folder with one file per checkpoint.

    Threads with different ids may share a folder (`tenant/a` and `tenant_a`); each file names its thread.
    """

    def _ids(self) -> set[str]:
        """The ids of all threads. A damaged file counts under its folder's name, so that reading that reports it."""
        ids: set[str] = set()
        for folder in self._path.iterdir():
            heads = [_head(path) for path in folder.glob("*.json")] if folder.is_dir() else []
            ids |= {head[1] for head in heads if head} or ({folder.name} if heads else set())
        return ids

    async def old_checkpoints(self, thread_id: str) -> AsyncGenerator[OldCheckpoint, None]:
        for path in await asyncio.to_thread(self._in_order, thread_id):
            data = await asyncio.to_thread(_read, path)
            yield OldCheckpoint(
                str(data["checkpoint_id"]), moment(data["created_at"]), data.get("metadata") or {}, data["state"]
            )

    def _in_order(self, thread_id: str) -> list[Path]:
        folder = "".join(char if char.isalnum() or char in "-_" else "_" for char in thread_id)
        heads = [(_head(path) or _whole_head(path), path) for path in (self._path / folder).glob("*.json")]
        mine = [(moment(head[2]), head[0], path) for head, path in heads if head[1] == thread_id]
        return [path for _, _, path in sorted(mine)]


def _head(path: Path) -> tuple[str, str, str] | None:
    """The checkpoint id, thread id and time at the beginning of a file; None if it does not begin with them."""
    with path.open("rb") as file:
        match = _HEAD.match(file.read(4096))
    if match is not None:
        with suppress(CorruptCheckpointError):
            return str(decode(match[1])), str(decode(match[2])), str(decode(match[3]))
    return None


def _whole_head(path: Path) -> tuple[str, str, str]:
    data = _read(path)
    return str(data["checkpoint_id"]), str(data["thread_id"]), str(data["created_at"])


def _read(path: Path) -> dict[str, Any]:
    try:
        data = decode(path.read_bytes())
    except (CorruptCheckpointError, OSError) as error:
        raise CorruptCheckpointError(f"{str(path)!r} cannot be read: {error}") from error
    if not isinstance(data, dict) or not {"checkpoint_id", "thread_id", "created_at", "state"} <= data.keys():
        raise CorruptCheckpointError(f"{str(path)!r} is no checkpoint of locus-sdk 3")
    return data
