"""Large pending writes are packed; the table of an older version becomes the new one, with everything in it."""

from __future__ import annotations

import json
import random
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from locus.errors import CorruptCheckpointError
from locus.memory.backends import SQLiteBackend
from locus.memory.backends.sql.flavour import LARGEST, packed, unpacked
from locus.memory.backends.sqlite.schema import MIGRATIONS

LARGE = [{"role": "user", "content": "said over and over, ü, \0 " * 40}, 1e22, -0.0, None]
NOISE = "".join(map(chr, random.Random(1).choices(range(0x4E00, 0x9FFF), k=400)))


@contextmanager
def database(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def old(path: Path) -> Path:
    """What the first version would have: a thread with pending writes."""
    with database(path) as connection:
        connection.execute("CREATE TABLE locus_format (version INTEGER NOT NULL)")
        connection.execute("INSERT INTO locus_format VALUES (1)")
        for statement in MIGRATIONS[0]:
            connection.execute(statement)
        connection.execute("INSERT INTO locus_threads VALUES (1, 't', 0, NULL)")
        for task in ("b", "a"):
            for idx, value in ((0, LARGE), (-1, "small")):
                row = (1, "default", "c", task, idx, "path", "channel", json.dumps(value))
                connection.execute("INSERT INTO locus_writes VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        connection.execute("CREATE VIEW written AS SELECT count(*) AS number FROM locus_writes")
    return path


def rows(path: Path, query: str) -> list[Any]:
    with database(path) as connection:
        return connection.execute(query).fetchall()


def test_an_old_table_becomes_the_new_one_with_everything_in_it(old: Path) -> None:
    with SQLiteBackend(old).sync as backend:
        found = [(write.task_id, write.idx, write.value) for write in backend.get_writes("t", "c")]
        assert found == [("a", -1, "small"), ("a", 0, LARGE), ("b", -1, "small"), ("b", 0, LARGE)]
        backend.put_writes("t", "c", "a", [("channel", LARGE), ("__error__", "again")])
        backend.save("t", {"n": 1}, "c")
        backend.copy_thread("t", "copy")
        for thread in ("t", "copy"):
            assert [write.value for write in backend.get_writes(thread, "c", "a")] == ["again", LARGE]
    assert rows(old, "SELECT max(version) FROM locus_format") == [(len(MIGRATIONS),)]
    assert rows(old, "SELECT number FROM written") == [(8,)]
    (definition,) = rows(old, "SELECT sql FROM sqlite_master WHERE name = 'locus_writes'")[0]
    assert "WITHOUT ROWID" not in definition
    kinds = "SELECT thread, task_id, typeof(value) FROM locus_writes WHERE idx = 0 ORDER BY 1, 2"
    assert rows(old, kinds) == [(1, "a", "blob"), (1, "b", "text"), (2, "a", "blob"), (2, "b", "text")]


def test_an_old_database_that_may_only_be_read_is_read(old: Path) -> None:
    backend = SQLiteBackend(old)
    backend.store.engine.reading_only = True
    with backend.sync as reader:
        assert [write.value for write in reader.get_writes("t", "c", "a")] == ["small", LARGE]
    assert rows(old, "SELECT version FROM locus_format") == [(1,)]


def test_a_person_can_read_what_is_packed(path: Path) -> None:
    with SQLiteBackend(path).sync as backend:
        backend.put_writes("t", "c", "task", [("large", LARGE), ("small", {"n": 1}), ("noise", NOISE)])
        assert [write.value for write in backend.get_writes("t", "c")] == [LARGE, {"n": 1}, NOISE]
    found = dict(rows(path, "SELECT channel, value FROM locus_writes"))
    assert json.loads(zlib.decompress(found["large"])) == LARGE
    assert len(found["large"]) < len(json.dumps(LARGE)) / 4
    assert found["small"] == '{"n":1}'
    assert json.loads(found["noise"]) == NOISE


@pytest.mark.parametrize("damage", ["x''", "x'00'", "substr(value, 1, 30)", "12"])
def test_damage_is_told(path: Path, damage: str) -> None:
    with SQLiteBackend(path).sync as backend:
        backend.put_writes("t", "c", "task", [("large", LARGE)])
        with database(path) as connection:
            connection.execute(f"UPDATE locus_writes SET value = {damage}")
        with pytest.raises(CorruptCheckpointError):
            backend.get_writes("t", "c")


def test_what_was_packed_once_stays_readable() -> None:
    data = bytes.fromhex("789cab562a4ecc4c51b252ca2f4b2d5248cc4b51c0ce50aa050035c60ea5")
    assert unpacked(data) == '{"said":"over and over and over and over"}'


@pytest.mark.parametrize("text", ['"x"', f'"{"x" * 100}"', f'"{"x" * LARGEST}"', json.dumps(NOISE, ensure_ascii=False)])
def test_what_is_small_or_huge_or_hardly_shrinks_is_not_packed(text: str) -> None:
    assert packed(text) is None
