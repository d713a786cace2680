"""Stores that can be changed in one place, and put back."""

from __future__ import annotations

import random
import shutil
import sqlite3
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from redis import Redis

from locus.memory.backends import FileCheckpointer, redis_checkpointer, sqlite_checkpointer
from locus.memory.backends.objects.backend import ObjectCheckpointStore
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.checkpointer import Checkpointer
from tests.backends.objects.in_memory import MemoryObjectStore


class ChangedStore(ABC):
    """A store that is changed behind its back."""

    def opened(self) -> AbstractAsyncContextManager[Checkpointer]:
        """A new handle, which knows nothing."""
        return self.open()

    @abstractmethod
    def open(self) -> Checkpointer: ...

    @abstractmethod
    def keep(self) -> None:
        """Remember what is stored now."""

    @abstractmethod
    def change(self, chance: random.Random) -> str:
        """Change one thing; say what, for people."""

    @abstractmethod
    def restore(self) -> None:
        """Undo the change."""


def flipped(data: bytes, chance: random.Random) -> tuple[bytes, int]:
    """The data with one bit flipped, and where."""
    bit = chance.randrange(len(data) * 8)
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed), bit // 8


class ChangedFiles(ChangedStore):
    """A folder of logs: one bit of any file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "threads"
        self._files: dict[Path, bytes] = {}

    def open(self) -> Checkpointer:
        return FileCheckpointer(self._folder)

    def keep(self) -> None:
        self._files = {path: path.read_bytes() for path in sorted(self._folder.rglob("*")) if path.is_file()}

    def change(self, chance: random.Random) -> str:
        bodies = [(path, body) for path, body in self._files.items() if body]
        ((path, body),) = chance.choices(bodies, [len(body) for _, body in bodies])
        changed, at = flipped(body, chance)
        path.write_bytes(changed)
        return f"byte {at} of {path.name}"

    def restore(self) -> None:
        shutil.rmtree(self._folder)
        for path, body in self._files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)


class ChangedSQLite(ChangedStore):
    """A database: one bit of its file, whose journal was brought into it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "a.db"
        self._body = b""

    def open(self) -> Checkpointer:
        return sqlite_checkpointer(self._path)

    def keep(self) -> None:
        with closing(sqlite3.connect(self._path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._body = self._path.read_bytes()

    def change(self, chance: random.Random) -> str:
        changed, at = flipped(self._body, chance)
        self._put(changed)
        return f"byte {at}"

    def restore(self) -> None:
        self._put(self._body)

    def _put(self, body: bytes) -> None:
        for end in ("-wal", "-shm", "-journal"):
            self._path.with_name(self._path.name + end).unlink(missing_ok=True)
        self._path.write_bytes(body)


class ChangedRedis(ChangedStore):
    """A prefix of a server: one bit of a value or of the name of a field, a score, a member, or a value over another.

    Its own note of the format is part of it.
    """

    KINDS: ClassVar = ("value", "value", "name", "score", "member", "over another", "lost")

    def __init__(self, port: int) -> None:
        self._port = port
        self._client = Redis(port=port, socket_timeout=5)
        self._prefix = f"flips:{uuid4().hex[:12]}:"
        self._hashes: dict[bytes, dict[bytes, bytes]] = {}
        self._sets: dict[bytes, list[tuple[bytes, float]]] = {}

    def open(self) -> Checkpointer:
        return redis_checkpointer(f"redis://127.0.0.1:{self._port}/0?prefix={self._prefix}&search=False")

    def keep(self) -> None:
        for key in sorted(self._client.scan_iter(f"{self._prefix}*", count=1_000)):
            if self._client.type(key) == b"hash":
                found: Any = self._client.hgetall(key)
                self._hashes[key] = dict(sorted(found.items()))
            else:
                members: Any = self._client.zrange(key, 0, -1, withscores=True)
                self._sets[key] = members

    def change(self, chance: random.Random) -> str:
        kind = chance.choice(self.KINDS)
        if kind in ("score", "member"):
            return f"{kind} in {self._change_set(kind, chance)}"
        return f"{kind} in {self._change_hash(kind, chance)}"

    def _change_set(self, kind: str, chance: random.Random) -> str:
        key = chance.choice([*self._sets])
        member, score = chance.choice(self._sets[key])
        new, at = (member, score)
        if kind == "member":
            new, _ = flipped(member, chance)
        else:
            at = float(int(score) ^ 1 << chance.randrange(max(1, int(score).bit_length())))
        self._client.zrem(key, member)
        self._client.zadd(key, {new: at})
        return f"{self._short(key)}: {member!r:.60}"

    def _change_hash(self, kind: str, chance: random.Random) -> str:
        key = chance.choice([*self._hashes])
        fields = self._hashes[key]
        field, value = chance.choice([*fields.items()])
        if kind == "value":
            self._client.hset(key, field, flipped(value, chance)[0] if value else b"1")
        elif kind == "name":
            self._client.hdel(key, field)
            self._client.hset(key, flipped(field, chance)[0], value)
        elif kind == "lost":
            self._client.hdel(key, field)
        else:
            self._client.hset(key, field, chance.choice([*fields.values()]))
        return f"{self._short(key)}: {field!r:.60}"

    def _short(self, key: bytes) -> str:
        return key.decode().removeprefix(self._prefix)

    def restore(self) -> None:
        # All of it, because reads clean the index of what seems to be gone.
        pipeline = self._client.pipeline()
        pipeline.delete(*self._client.scan_iter(f"{self._prefix}*", count=1_000))
        for key, fields in self._hashes.items():
            pipeline.hset(key, mapping=fields)  # type: ignore[arg-type]
        for key, members in self._sets.items():
            pipeline.zadd(key, dict(members))
        pipeline.execute()

    def close(self) -> None:
        for key in self._client.scan_iter(f"{self._prefix}*", count=1_000):
            self._client.unlink(key)
        self._client.close()


class ChangedObjects(ChangedStore):
    """Objects: one bit of a body, another one's body, one that is gone, or half of one."""

    KINDS: ClassVar = ("bit", "bit", "bit", "another's body", "lost", "cut")

    def __init__(self) -> None:
        self._objects = MemoryObjectStore()
        self._kept: dict[str, Any] = {}

    def open(self) -> Checkpointer:
        return Checkpointer(ObjectCheckpointStore(ObjectEngine(MemoryObjectStore(shared=self._objects))))

    def keep(self) -> None:
        self._kept = dict(self._objects.objects)

    def change(self, chance: random.Random) -> str:
        key = chance.choice([name for name, (body, _) in sorted(self._kept.items()) if body])
        (body, at), kind = self._kept[key], chance.choice(self.KINDS)
        if kind == "lost":
            del self._objects.objects[key]
        else:
            other = self._kept[chance.choice(sorted(self._kept))][0]
            new = {"bit": flipped(body, chance)[0], "another's body": other, "cut": body[: chance.randrange(len(body))]}
            self._objects.objects[key] = (new[kind], at)
        return f"{kind}: {key}"

    def restore(self) -> None:
        self._objects.objects.clear()
        self._objects.objects.update(self._kept)
