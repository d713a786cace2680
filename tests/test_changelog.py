"""The changelog says what is true of this version, in few words."""

from __future__ import annotations

import re
from pathlib import Path

from locus._moved import HOMES
from locus.memory.backends.file import schema as file
from locus.memory.backends.mysql import schema as mysql
from locus.memory.backends.objects import schema as objects
from locus.memory.backends.opensearch import schema as opensearch
from locus.memory.backends.oracle import schema as oracle
from locus.memory.backends.postgresql import schema as postgresql
from locus.memory.backends.redis import schema as redis
from locus.memory.backends.sqlite import schema as sqlite

CHANGELOG = (Path(__file__).resolve().parent.parent / "CHANGELOG.md").read_text(encoding="utf-8")
FORMATS = {
    "SQLite": len(sqlite.MIGRATIONS),
    "PostgreSQL": postgresql.FORMAT,
    "MySQL": mysql.FORMAT,
    "Oracle Database": oracle.FORMAT,
    "Redis": redis.FORMAT,
    "Valkey": redis.FORMAT,
    "OpenSearch": opensearch.FORMAT,
    "S3": objects.VERSION,
    "OCI Object Storage": objects.VERSION,
    "files": file.FORMAT,
}


def test_an_entry_is_short() -> None:
    entries = re.split(r"^(?=## \[)", CHANGELOG, flags=re.MULTILINE)[1:]
    assert [entry[:20] for entry in entries if len(entry.encode()) > 12_000] == []


def test_it_names_the_formats_that_are_written() -> None:
    rows = re.findall(r"^\| ([\w, ]+?) \| \d \| (\d) \|", CHANGELOG, flags=re.MULTILINE)
    assert {store: int(newest) for stores, newest in rows for store in stores.split(", ")} == FORMATS


def test_it_names_every_module_that_has_moved() -> None:
    assert [module for module in HOMES if not re.search(rf"\.{module.rpartition('.')[2]}\b", CHANGELOG)] == []
