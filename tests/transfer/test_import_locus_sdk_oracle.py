"""Threads of locus-sdk 3 in Oracle Database, moved in and gone on with."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

import oracledb
import pytest

from locus.errors import BackendUnavailableError, ConfigurationError
from locus.memory.backends.oracle.client import OracleConnection
from locus.memory.saver import CheckpointSaver
from locus.testing.laws.base import dicts
from tests.backends.oracle.stores import raw_cursor, run_sql, through, url_of
from tests.servers.oracle.fixtures import OracleDatabase
from tests.servers.ports import free_port
from tests.transfer.locus_sdk_samples import SAMPLES, by_key, check, moved, opened

pytestmark = pytest.mark.oracle

SAMPLE: dict[str, list[dict[str, Any]]] = json.loads((SAMPLES / "oracle.json").read_text())
_TEXT = "VARCHAR2(255)"
_JSON = "CLOB DEFAULT '{}' CHECK (metadata IS JSON)"
_TIME = "TIMESTAMP WITH TIME ZONE DEFAULT SYSTIMESTAMP"
_PLACE = f"thread_id {_TEXT} NOT NULL, checkpoint_ns {_TEXT} DEFAULT 'default' NOT NULL, checkpoint_id {_TEXT} NOT NULL"
TABLES = {
    "old": f"thread_id {_TEXT} PRIMARY KEY, checkpoint_id {_TEXT}, data CLOB CHECK (data IS JSON),"
    f" created_at {_TIME}, updated_at {_TIME}, metadata {_JSON}",
    "old_versions_checkpoints": f"{_PLACE}, parent_checkpoint_id {_TEXT},"
    f" checkpoint_data CLOB CHECK (checkpoint_data IS JSON), metadata {_JSON}, created_at {_TIME},"
    " PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)",
    "old_versions_writes": f"{_PLACE}, task_id {_TEXT} NOT NULL, idx NUMBER(10) NOT NULL, channel {_TEXT} NOT NULL,"
    " value CLOB, PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)",
}
"""As version 3 creates them."""


def make(database: OracleDatabase, table: str, ending: str = "") -> str:
    """The table with its samples, whose times are those of a server in another time zone; returns its name."""
    name = database.prefix + table + ending
    definition = TABLES[table]
    if ending:
        definition = definition.replace("CLOB CHECK (data IS JSON)", "JSON").replace(_JSON, "JSON")
    run_sql(database, f"CREATE TABLE {name} ({definition})")
    with raw_cursor(database) as cursor:
        for row in SAMPLE[table]:
            values = {key: value for key, value in row.items() if not key.endswith("_at")}
            times = {key: _elsewhere(value) for key, value in row.items() if key.endswith("_at")}
            columns = ", ".join((*values, *times))
            places = ", ".join((*(f":{at}" for at in range(1, len(values) + 1)), *times.values()))
            cursor.execute(f"INSERT INTO {name} ({columns}) VALUES ({places})", [*values.values()])
    return name


def _elsewhere(text: str) -> str:
    at = datetime.fromisoformat(f"{text}+00:00").astimezone(timezone(timedelta(hours=5, minutes=30)))
    return f"TIMESTAMP '{at:%Y-%m-%d %H:%M:%S.%f} +05:30'"


async def test_the_table_of_a_checkpointer(oracle_database: OracleDatabase, tmp_path: Path) -> None:
    table, url = make(oracle_database, "old"), f"sqlite:{tmp_path / 'agents.db'}"
    # As version 3 leaves it, if it cannot read the list of a thread back.
    run_sql(oracle_database, f"DELETE FROM {table} WHERE thread_id = 't-1:_checkpoints'")
    source = url_of(oracle_database, table_name=table)
    before = run_sql(oracle_database, f"SELECT thread_id, checkpoint_id, updated_at FROM {table} ORDER BY thread_id")
    report = await moved(source, url)
    assert report.ok, report.problems
    assert (report.threads, report.moved, report.verified) == (5, 7, 7)
    assert before == run_sql(
        oracle_database, f"SELECT thread_id, checkpoint_id, updated_at FROM {table} ORDER BY thread_id"
    )
    await check(url, by_key(keys={row["thread_id"]: json.loads(row["data"]) for row in SAMPLE["old"]}))
    async with opened(url) as handle:
        assert await handle.list_threads(None) == ["alone", "bare", "t-1", "tenant/a", "tenant_a"]
        assert await dicts(handle).load("bare") == {"plain": [1, 2]}
        # What a program gave an `OracleBackend` as a state can be loaded as one.
        alone, (entry,) = await handle.load("alone"), await handle.history("alone")
        (row,) = (row for row in SAMPLE["old"] if row["thread_id"] == "alone")
        assert alone is not None
        assert alone.messages[0].text == "Where is my order? 😀"
        assert (entry.checkpoint_id, entry.metadata) == ("c1", {"step": 1})
        assert entry.created_at.isoformat() == f"{row['updated_at']}+00:00"
    again = await moved(source, url)
    assert (again.ok, again.moved) == (True, 0)


async def test_columns_of_json(oracle_database: OracleDatabase, tmp_path: Path) -> None:
    """As somebody may have made them who makes the tables by hand. There 1 and 1.0 are the same."""
    table, url = make(oracle_database, "old", "_json"), f"sqlite:{tmp_path / 'agents.db'}"
    report = await moved(url_of(oracle_database, table_name=table), url)
    assert report.ok, report.problems
    old = by_key(keys={row["thread_id"]: json.loads(row["data"]) for row in SAMPLE["old"]})
    async with opened(url) as handle:
        for checkpoint_id, one in old.items():
            state = await handle.load("t-1", checkpoint_id)
            assert state is not None
            assert state.to_checkpoint() == type(state).from_checkpoint(one["state"]).to_checkpoint()
        assert [entry.metadata for entry in await handle.history("bare")] == [{"by": "hand"}]


async def test_large_states(oracle_database: OracleDatabase, tmp_path: Path) -> None:
    """Those do not come with their rows."""
    table, url = make(oracle_database, "old"), f"sqlite:{tmp_path / 'agents.db'}"
    data = {"text": "é😀" * 50_000}
    with raw_cursor(oracle_database) as cursor:
        cursor.setinputsizes(data=oracledb.DB_TYPE_CLOB)
        cursor.execute(f"INSERT INTO {table} (thread_id, data) VALUES ('large', :data)", {"data": json.dumps(data)})
    assert (await moved(url_of(oracle_database, table_name=table), url, pattern="large")).ok
    async with opened(url) as handle:
        assert await dicts(handle).load("large") == data


async def test_the_tables_of_a_saver(oracle_database: OracleDatabase, tmp_path: Path) -> None:
    tables = [make(oracle_database, name) for name in ("old_versions_checkpoints", "old_versions_writes")]
    url = f"sqlite:{tmp_path / 'agents.db'}"
    source = url_of(oracle_database, table_name=tables[0].removesuffix("_checkpoints"))
    for run in range(2):
        report = await moved(source, url)
        assert report.ok, report.problems
        assert (report.threads, report.moved, report.verified) == (2, 0 if run else 5, 5)
    async with opened(url) as handle:
        saver = CheckpointSaver(handle)
        for row in SAMPLE["old_versions_checkpoints"]:
            place = {name: row[name] for name in ("thread_id", "checkpoint_ns", "checkpoint_id")}
            found = await saver.get(**place)
            assert found is not None
            assert found["checkpoint"] == json.loads(row["checkpoint_data"])
            assert found["metadata"] == json.loads(row["metadata"])
            assert found["parent_checkpoint_id"] == row["parent_checkpoint_id"]
            assert found["created_at"].isoformat() == f"{row['created_at']}+00:00"
            writes = [
                (write["task_id"], write["idx"], write["channel"], write["value"])
                for write in await saver.get_writes(**place)
            ]
            assert writes == sorted(
                (write["task_id"], write["idx"], write["channel"], json.loads(write["value"]))
                for write in SAMPLE["old_versions_writes"]
                if place.items() <= write.items()
            )
        assert [found["checkpoint_id"] for found in await saver.list_checkpoints(thread_id="g-1")] == [
            "fork",
            "v2",
            "v1",
        ]


async def test_what_is_no_such_table_is_told(oracle_database: OracleDatabase, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'agents.db'}"
    for name in ("locus_checkpoints", f"{oracle_database.prefix}none"):
        options = {} if name == "locus_checkpoints" else {"table_name": name}
        with pytest.raises(ConfigurationError, match=f"there is no table {name} of locus-sdk 3"):
            await moved(url_of(oracle_database, **options), url)
    table = make(oracle_database, "old")
    with pytest.raises(ConfigurationError, match="there is no table"):
        await moved(url_of(oracle_database, table_name=table, schema_name="nobody"), url)
    report = await moved(url_of(oracle_database, table_name=table, schema_name=oracle_database.user), url)
    assert report.ok, report.problems


async def test_an_older_database_can_be_read(
    oracle_database: OracleDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only our own tables need the type JSON."""
    table = make(oracle_database, "old")
    monkeypatch.setattr(OracleConnection, "version", "19.3.0.0.0")
    source = url_of(oracle_database, table_name=table)
    assert (await moved(source, f"sqlite:{tmp_path / 'agents.db'}")).ok
    with pytest.raises(ConfigurationError, match="21c or later"):
        async with opened(source) as handle:
            await handle.list_threads()


async def test_an_outage_is_told(oracle_database: OracleDatabase, tmp_path: Path) -> None:
    nowhere = url_of(through(oracle_database, free_port()), retry_seconds=0.1)
    with pytest.raises(BackendUnavailableError, match="cannot be reached") as caught:
        await moved(nowhere, f"sqlite:{tmp_path / 'agents.db'}")
    assert quote(oracle_database.password) not in str(caught.value)
