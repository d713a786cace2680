"""A neighbour really holds the lock, and lets it go."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing

import pytest

from tests.soak.faults.conversing import conversing
from tests.soak.faults.during import During
from tests.soak.faults.locks import WriterLockHeld
from tests.soak.sites.base import Strike
from tests.soak.sites.embedded import SQLiteSite


async def test_nobody_else_can_write(sqlite_site: SQLiteSite, rng: random.Random) -> None:
    def try_to_write() -> None:
        neighbour = closing(sqlite3.connect(sqlite_site.file, timeout=0, isolation_level=None))
        with neighbour as connection, pytest.raises(sqlite3.OperationalError, match="locked"):
            connection.execute("BEGIN IMMEDIATE")

    held = During(try_to_write)
    async with conversing(sqlite_site.url()) as client:
        assert await Strike(sqlite_site, WriterLockHeld(sqlite_site.file, held)).strike(rng) == 1
    assert held.seen == [None]
    await client.check(sqlite_site.direct_url())
