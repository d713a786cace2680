"""Harm to the disk below a store: it is full, or it takes no change, for a while."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.soak.disk import Disk, set_immutable
from tests.soak.faults.harm import Duration, Harm, Seconds

LASTING = Seconds(0.2, 2.0)


class DiskFull(Harm):
    """Others take the last block of the disk, and give it back."""

    name = "disk full"

    def __init__(self, disk: Disk, lasting: Duration = LASTING) -> None:
        self._disk = disk
        self._lasting = lasting

    def do(self, rng: random.Random) -> int:
        try:
            self._disk.fill()
            time.sleep(self._lasting.choose(rng))
        finally:
            self._disk.empty()
        return 1


class DiskReadOnly(Harm):
    """The disk is mounted read-only, in a moment when no file is open for writing, and then writable again."""

    name = "disk remounted read-only"

    def __init__(self, disk: Disk, lasting: Duration = LASTING) -> None:
        self._disk = disk
        self._lasting = lasting

    def do(self, rng: random.Random) -> int:
        if not self._disk.make_read_only():
            return 0
        try:
            time.sleep(self._lasting.choose(rng))
        finally:
            self._disk.make_writable()
        return 1


class FilesImmutable(Harm):
    """The system refuses to change the files, open ones too, where a remount would be refused because they are open."""

    name = "files immutable for a while"

    def __init__(self, files: Callable[[], Sequence[Path]], lasting: Duration = LASTING) -> None:
        self._files = files
        self._lasting = lasting

    def do(self, rng: random.Random) -> int:
        struck: list[Path] = []
        try:
            for file in self._files():
                set_immutable([file], True)
                struck.append(file)
            time.sleep(self._lasting.choose(rng))
        finally:
            set_immutable(struck, False)
        return 1 if struck else 0
