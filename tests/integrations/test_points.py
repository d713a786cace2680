"""Lists of sessions, whatever the framework: what cannot be read is left out, and told of."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from locus.errors import DamagedThreadsWarning
from locus.memory.item_log import ItemLog
from locus.threads import ThreadStore, session_ids
from tests.backends.embedded import SQLiteStore

NAMESPACE = "sessions"


async def test_a_damaged_session_does_not_hide_the_others(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    async with store.open() as handle:
        for session_id in ("a", "b", "c"):
            await ItemLog(handle.store, session_id, NAMESPACE).append(["secret"])
    with closing(sqlite3.connect(store.path)) as connection, connection:
        damaged = "SELECT id FROM locus_threads WHERE thread_id = 'b'"
        connection.execute(f"UPDATE locus_checkpoints SET created_at = 'secret' WHERE thread = ({damaged})")
    async with store.open() as handle:
        with pytest.warns(DamagedThreadsWarning, match="^1 damaged thread was left out") as told:
            assert await session_ids(ThreadStore(handle.store), NAMESPACE, None, "*") == ["a", "c"]
        assert "secret" not in str(told[0].message)
