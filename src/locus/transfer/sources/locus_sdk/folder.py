"""The folder of `FileCheckpointer` of locus-sdk 3. Nothing is written to it.

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
    """One file per checkpoint.

    Threads with different ids may share a folder (`tenant/a` and `tenant_a`); each file names its thread.
    """

    def _ids(self) -> set[str]:
        """A damaged file belongs to some thread of its folder; reading that thread reports it."""
        found: set[str] = set()
        for folder in self._path.iterdir():
            heads = [_head(path) for path in folder.glob("*.json")] if folder.is_dir() else []
            found |= {head[1] for head in heads if head} or ({folder.name} if heads else set())
        return found

    async def checkpoints(self, thread_id: str) -> AsyncGenerator[OldCheckpoint, None]:
        for path in await asyncio.to_thread(self._in_order, thread_id):
            data = await asyncio.to_thread(_read, path)
            yield OldCheckpoint(
                str(data["checkpoint_id"]), moment(data["created_at"]), data.get("metadata") or {}, data["state"]
            )

    def _in_order(self, thread_id: str) -> list[Path]:
        folder = "".join(char if char.isalnum() or char in "-_" else "_" for char in thread_id)
        found = [(_head(path) or _whole_head(path), path) for path in (self._path / folder).glob("*.json")]
        mine = [(moment(head[2]), head[0], path) for head, path in found if head[1] == thread_id]
        return [path for _, _, path in sorted(mine)]


def _head(path: Path) -> tuple[str, str, str] | None:
    """The checkpoint id, thread id and time, which come first in the file, without reading the state after them."""
    with path.open("rb") as file:
        found = _HEAD.match(file.read(4096))
    if found is not None:
        with suppress(CorruptCheckpointError):
            return str(decode(found[1])), str(decode(found[2])), str(decode(found[3]))
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
