"""Sessions that Google ADK has stored in SQL tables, moved in and gone on with."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from google.adk.events.event import Event
from google.adk.sessions.session import Session
from google.adk.sessions.sqlite_session_service import SqliteSessionService

from locus.errors import ConfigurationError, LocusError
from locus.integrations.google_adk import LocusSessionService
from locus.memory.backends import sqlite_checkpointer
from locus.testing.processes.workers import Crew
from locus.transfer import import_store
from locus.transfer.sources.google_adk import EventRow, GoogleADKSource
from tests.backends.mysql.stores import new_name, run_sql
from tests.integrations.google_adk.events import ALICE, event, texts
from tests.servers.mysql import MySQLServer
from tests.servers.postgresql import PostgreSQLServer
from tests.transfer.kill_jobs import import_and_die

LARGE = "x" * 3_000


async def _filled(path: Path) -> SqliteSessionService:
    """A file of ADK's own service: two sessions of one user, one of another, and a session without events."""
    service = SqliteSessionService(str(path))
    session = await service.create_session(
        **ALICE, session_id="s/1", state={"first": 1, "n": 0, "big": LARGE, "user:u": {"a": [1]}, "app:p": 1.5}
    )
    for number in range(1, 5):
        delta = {"n": number, "big": LARGE + str(number % 2), "user:last": number}
        await service.append_event(session, event(f"{number} ä😀", at=session.last_update_time + 1, state=delta))
    await service.append_event(session, event("no state", at=session.last_update_time))
    await service.create_session(**ALICE, session_id="empty", state={"e": True})
    bob = await service.create_session(app_name="shop", user_id="bob", session_id="s/1")
    await service.append_event(bob, event("of bob"))
    return service


async def _all(service: Any) -> list[Session]:
    listed = (await service.list_sessions(app_name="shop")).sessions
    found = [
        await service.get_session(app_name="shop", user_id=one.user_id, session_id=one.id)
        for one in sorted(listed, key=lambda one: (one.user_id, one.id))
    ]
    return [session for session in found if session is not None]


def _dumped(sessions: list[Session]) -> list[dict[str, Any]]:
    """Without the revision, which each service has in its own way."""
    return [session.model_dump() for session in sessions]


async def test_sessions_are_moved_and_gone_on_with(tmp_path: Path) -> None:
    path, url = tmp_path / "session.db", f"sqlite:{tmp_path / 'agents.db'}"
    own = await _filled(path)
    expected = await _all(own)
    before = hashlib.sha256(path.read_bytes()).digest()
    report = await import_store("google-adk", str(path), url)
    assert report.ok, report.problems
    assert (report.threads, report.checkpoints, report.verified) == (5, 6 + 1 + 2 + 2, 11)
    assert hashlib.sha256(path.read_bytes()).digest() == before
    async with LocusSessionService(url) as moved:
        assert _dumped(await _all(moved)) == _dumped(expected)
        assert await moved.get_user_state(**ALICE) == {"u": {"a": [1]}, "last": 4}
        points = await moved.history(**ALICE, session_id="s/1", limit=None)
        assert [(point.items, point.change) for point in points] == [(n, "import") for n in (5, 4, 3, 2, 1, 0)]
        then = await moved.get_session(**ALICE, session_id="s/1", at=points[3].checkpoint_id)
        assert then is not None
        assert {key: then.state[key] for key in ("first", "n", "big")} == {"first": 1, "n": 2, "big": f"{LARGE}0"}
        beginning = await moved.get_session(**ALICE, session_id="s/1", at=points[5].checkpoint_id)
        assert beginning is not None
        assert (beginning.events, beginning.state["first"]) == ([], 1)

        session = await moved.get_session(**ALICE, session_id="s/1")
        assert session is not None
        await moved.append_event(session, event("on", state={"n": 99, "user:last": 99}))
        session = await moved.get_session(**ALICE, session_id="s/1")
        assert session is not None
        assert (len(session.events), session.state["n"], session.state["user:last"]) == (6, 99, 99)
    again = await import_store("google-adk", f"sqlite:{path}", url)
    assert (again.ok, again.moved, again.present) == (True, 0, 11), "what has gone on at the destination stays as it is"
    with closing(sqlite3.connect(tmp_path / "agents.db")) as database:
        (runs,) = database.execute("SELECT count(*) FROM locus_runs WHERE items LIKE '%xxxxx%'").fetchone()
    assert runs == 4 + 2, "in the events that set it, and once for each value that the state has had"


async def test_what_was_said_since_is_added(tmp_path: Path) -> None:
    path, url = tmp_path / "session.db", f"sqlite:{tmp_path / 'agents.db'}"
    service = await _filled(path)
    assert (await import_store("google-adk", str(path), url)).ok
    session = await service.get_session(**ALICE, session_id="s/1")
    assert session is not None
    await service.append_event(session, event("since", at=session.last_update_time + 1, state={"n": 7}))
    report = await import_store("google-adk", str(path), url)
    assert (report.ok, report.moved) == (True, 1), report.problems
    async with LocusSessionService(url) as moved:
        assert _dumped(await _all(moved)) == _dumped(await _all(service))


async def test_a_session_that_goes_on_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest checkpoint has the state of the newest event, and not of the one before it."""
    path, url = tmp_path / "session.db", f"sqlite:{tmp_path / 'agents.db'}"
    service = await _filled(path)
    read, left = GoogleADKSource.events, [1, 2]

    async def read_late(tables: GoogleADKSource, names: tuple[str, ...]) -> list[EventRow]:
        if names[1:] == ("alice", "s/1") and left:
            session = await service.get_session(**ALICE, session_id="s/1")
            assert session is not None
            at = session.last_update_time + 1
            await service.append_event(session, event("meanwhile", at=at, state={"n": f"new {left.pop()}"}))
        return await read(tables, names)

    monkeypatch.setattr(GoogleADKSource, "events", read_late)
    assert (await import_store("google-adk", str(path), url)).ok
    async with LocusSessionService(url) as moved:
        found = await moved.get_session(**ALICE, session_id="s/1")
        assert found is not None
        assert (len(found.events), found.state["n"]) == (7, "new 1")
        assert _dumped(await _all(moved)) == _dumped(await _all(service))
    assert not left


async def test_only_some_and_only_for_a_try(tmp_path: Path) -> None:
    path, url = tmp_path / "session.db", f"sqlite:{tmp_path / 'agents.db'}"
    await _filled(path)
    tried = await import_store("google-adk", str(path), url, dry_run=True)
    assert (tried.ok, tried.threads) == (True, 5)
    assert not (tmp_path / "agents.db").exists()
    report = await import_store("google-adk", str(path), url, pattern="shop/bob/*")
    assert (report.ok, report.threads) == (True, 1)
    async with sqlite_checkpointer(tmp_path / "agents.db") as store:
        assert await store.list_threads() == ["shop/bob/s%2F1"]


async def test_a_damaged_row_is_named_and_other_sessions_are_moved(tmp_path: Path) -> None:
    path, url = tmp_path / "session.db", f"sqlite:{tmp_path / 'agents.db'}"
    await _filled(path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE events SET event_data = '[]', id = 'e' WHERE user_id = 'bob'")
        database.execute("UPDATE sessions SET state = '{' WHERE id = 'empty'")
        database.execute("INSERT INTO sessions VALUES (?, ?, ?, '{}', 1.0, 1.0)", ("a" * 120, "b" * 120, "c" * 120))
    report = await import_store("google-adk", str(path), url)
    problems = {problem.thread: problem.message for problem in report.problems}
    assert len(problems) == 3
    assert "event 'e' of session 'shop/bob/s%2F1' is no JSON object" in problems["shop/bob/s%2F1"]
    assert "the state of session 'shop/alice/empty' is no JSON" in problems["shop/alice/empty"]
    async with LocusSessionService(url) as moved:
        found = await moved.get_session(**ALICE, session_id="s/1")
        assert found is not None
        assert len(found.events) == 5


@pytest.mark.parametrize("source", ["none.db", "redis://u:s3cret@h/0", "other.db", "old.db"])
async def test_what_are_no_such_tables_is_told(tmp_path: Path, source: str) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as database, database:
        database.execute("CREATE TABLE sessions (id TEXT)")
    with closing(sqlite3.connect(tmp_path / "old.db")) as database, database:
        database.execute("CREATE TABLE events (id TEXT, actions BLOB, content TEXT)")
    place = source if ":" in source else str(tmp_path / source)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(LocusError, match=r"no file|is read from|has no table app_states|pickles are not read") as told:
        await import_store("google-adk", place, f"sqlite:{tmp_path / 'agents.db'}")
    assert "s3cret" not in str(told.value)
    assert sorted(tmp_path.rglob("*")) == before


# The tables of `DatabaseSessionService`, as its schema declares them in each database. It needs SQLAlchemy, which ADK
# brings as an extra.
_KEY = "VARCHAR(128) NOT NULL"
_TABLES = (
    f"CREATE TABLE adk_internal_metadata ({{key}} {_KEY} PRIMARY KEY, value VARCHAR(256) NOT NULL)",
    f"CREATE TABLE app_states (app_name {_KEY} PRIMARY KEY, state {{json}} NOT NULL, update_time {{time}} NOT NULL)",
    f"CREATE TABLE user_states (app_name {_KEY}, user_id {_KEY}, state {{json}} NOT NULL,"
    " update_time {time} NOT NULL, PRIMARY KEY (app_name, user_id))",
    f"CREATE TABLE sessions (app_name {_KEY}, user_id {_KEY}, id {_KEY}, state {{json}} NOT NULL,"
    " create_time {time} NOT NULL, update_time {time} NOT NULL, PRIMARY KEY (app_name, user_id, id))",
    f"CREATE TABLE events (id {_KEY}, app_name {_KEY}, user_id {_KEY}, session_id {_KEY}, invocation_id VARCHAR(256)"
    " NOT NULL, timestamp {time} NOT NULL, event_data {json}, PRIMARY KEY (id, app_name, user_id, session_id))",
)
_BEGAN = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def _database_events() -> list[Event]:
    """Four, of which two have the same time: ADK orders those by their ids."""
    at = _BEGAN.timestamp()
    return [
        event("one", at=at + 1, id="d", state={"n": 1}),
        event("two", at=at + 2, id="b", state={"n": 2.5, "user:u": 2}),
        event("three", at=at + 2, id="c"),
        event("four", at=at + 3, id="a", state={"n": None}),
    ]


def _rows(as_time: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The rows that the service has written for a session, as it writes them: with times in UTC, without a zone."""
    then = as_time(_BEGAN)
    yield "INSERT INTO adk_internal_metadata VALUES (?, ?)", ("schema_version", "1")
    yield "INSERT INTO app_states VALUES (?, ?, ?)", ("shop", "{}", then)
    yield "INSERT INTO user_states VALUES (?, ?, ?, ?)", ("shop", "alice", json.dumps({"u": 2}), then)
    state = json.dumps({"n": None, "kept": [1, 1.0, "ä"]})
    yield "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?)", ("shop", "alice", "s", state, then, then)
    for one in reversed(_database_events()):
        data = json.dumps(one.model_dump(exclude_none=True, mode="json"))
        at = as_time(datetime.fromtimestamp(one.timestamp, UTC))
        row = (one.id, "shop", "alice", "s", one.invocation_id, at, data)
        yield "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", row


async def _check_moved(url: str) -> None:
    async with LocusSessionService(url) as moved:
        found = await moved.get_session(**ALICE, session_id="s")
        assert found is not None
        assert found.events == _database_events()
        assert found.state == {"n": None, "kept": [1, 1.0, "ä"], "user:u": 2}
        assert found.last_update_time == _database_events()[-1].timestamp
        points = await moved.history(**ALICE, session_id="s", limit=None)
        assert [point.items for point in points] == [4, 3, 2, 1, 0]
        assert points[-1].created_at == _BEGAN
        then = await moved.get_session(**ALICE, session_id="s", at=points[1].checkpoint_id)
        assert then is not None
        assert then.state == {"n": 2.5, "kept": [1, 1.0, "ä"], "user:u": 2}
        await moved.append_event(found, event("on"))
        assert texts(await moved.get_session(**ALICE, session_id="s"))[-1] == "on"


def _naive(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None)


async def test_tables_of_the_database_service_in_sqlite(tmp_path: Path) -> None:
    path, url = tmp_path / "adk.db", f"sqlite:{tmp_path / 'agents.db'}"
    with closing(sqlite3.connect(path)) as database, database:
        for table in _TABLES:
            database.execute(table.format(key="key", json="TEXT", time="DATETIME"))
        for statement, values in _rows(lambda moment: _naive(moment).isoformat(" ", "microseconds")):
            database.execute(statement, values)
    report = await import_store("google-adk", f"sqlite:///{path}", url)
    assert (report.ok, report.threads, report.verified) == (True, 3, 7), report.problems
    await _check_moved(url)


@pytest.mark.postgresql
async def test_tables_of_the_database_service_in_postgresql(
    postgresql_server: PostgreSQLServer, tmp_path: Path
) -> None:
    url, schema = f"sqlite:{tmp_path / 'agents.db'}", f"adk_{tmp_path.name}".lower().replace("-", "_")[:50]
    with psycopg.connect(postgresql_server.url, autocommit=True) as database:
        try:
            database.execute(f'CREATE SCHEMA "{schema}"')
            database.execute(f'SET search_path TO "{schema}"')
            for table in _TABLES:
                database.execute(table.format(key="key", json="JSONB", time="TIMESTAMP"))
            for statement, values in _rows(_naive):
                database.execute(statement.replace("?", "%s"), values)
            report = await import_store("google-adk", f"{postgresql_server.url}?schema_name={schema}", url)
            assert (report.ok, report.threads, report.verified) == (True, 3, 7), report.problems
            await _check_moved(url)
            with pytest.raises(ConfigurationError, match="has no table"):
                await import_store("google-adk", f"{postgresql_server.url}?schema_name=none", url)
        finally:
            database.execute(f'DROP SCHEMA "{schema}" CASCADE')


@pytest.mark.mysql
async def test_tables_of_the_database_service_in_mysql(mysql_server: MySQLServer, tmp_path: Path) -> None:
    url, name = f"sqlite:{tmp_path / 'agents.db'}", new_name()
    server, _, _ = mysql_server.url.rpartition("/")
    run_sql(mysql_server.url, f"CREATE DATABASE {name}")
    try:
        for table in _TABLES:
            run_sql(f"{server}/{name}", table.format(key="`key`", json="LONGTEXT", time="DATETIME(6)"))
        for statement, values in _rows(_naive):
            run_sql(f"{server}/{name}", statement.replace("?", "%s"), *values)
        report = await import_store("google-adk", f"{server}/{name}", url)
        assert (report.ok, report.threads, report.verified) == (True, 3, 7), report.problems
        await _check_moved(url)
    finally:
        run_sql(mysql_server.url, f"DROP DATABASE {name}")


@pytest.mark.crash
async def test_an_import_that_is_killed_again_and_again_gets_there(tmp_path: Path) -> None:
    path, url = tmp_path / "session.db", f"sqlite:{tmp_path / 'agents.db'}"
    own = await _filled(path)
    with Crew(url, ["tests.transfer.kill_jobs"]) as crew:
        for step in (1, 2, 5, 6):
            worker = crew.start(import_and_die, kind="google-adk", source=str(path), destination=url, step=step)
            worker.hear_out()
            assert worker.killed
    report = await import_store("google-adk", str(path), url)
    assert report.ok, report.problems
    assert 0 < report.present < report.verified == 11
    async with LocusSessionService(url) as moved:
        assert _dumped(await _all(moved)) == _dumped(await _all(own))
