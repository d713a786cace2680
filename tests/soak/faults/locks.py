"""Harm by a neighbour: another program holds SQLite's lock for writing for a while."""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from tests.soak.faults.harm import Duration, Harm, Seconds

HELD = Seconds(0.2, 3.0)


class WriterLockHeld(Harm):
    """Nobody else can write into the file as long as it lasts; readers go on."""

    name = "file locked by another program"

    def __init__(self, file: Path, held: Duration = HELD) -> None:
        self._file = file
        self._held = held

    def do(self, rng: random.Random) -> int:
        if not self._file.exists():
            return 0
        with closing(sqlite3.connect(self._file, timeout=30, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(self._held.choose(rng))
            connection.execute("ROLLBACK")
        return 1
