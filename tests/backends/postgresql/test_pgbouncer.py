"""Behind PgBouncer in transaction mode, where the next statement may reach another session of the server."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory import get_checkpointer
from locus.memory.backends import PostgreSQLBackend, postgresql_checkpointer
from locus.memory.backends.postgresql.engine import PostgreSQLEngine
from locus.memory.model.records import Commit, TaskWrites
from locus.testing.laws.base import assert_all_load
from tests.backends.postgresql.store import PostgreSQLStore
from tests.backends.sql.grouped import first, wrote
from tests.servers.pgbouncer import PgBouncerServer
from tests.servers.postgresql import PostgreSQLServer

pytestmark = pytest.mark.postgresql


@pytest.fixture(scope="module")
def pgbouncer(postgresql_server: PostgreSQLServer) -> Iterator[PgBouncerServer]:
    with tempfile.TemporaryDirectory(prefix="locus-pgbouncer-") as folder:
        Path(folder).chmod(0o711)
        with PgBouncerServer(Path(folder) / "pgbouncer", postgresql_server) as server:
            yield server


async def test_everything_works_without_prepared_statements(pgbouncer: PgBouncerServer, store: PostgreSQLStore) -> None:
    options: dict[str, Any] = {"dsn": pgbouncer.url, "schema_name": store.schema, "prepared_statements": False}
    async with PostgreSQLBackend(**options) as backend:
        for number in range(12):
            await asyncio.gather(
                *(backend.save(f"t{n}", {"turn": number, "list": ["a word"] * number}) for n in range(6))
            )
            assert await backend.load("t0") == {"turn": number, "list": ["a word"] * number}
        latest = (await backend.list_checkpoints("t1", 1))[0]
        await backend.save("t1", {"turn": 99}, if_latest=latest, metadata={"k": "v"})
        assert await backend.copy_thread("t1", "copy")
        assert await backend.delete("t1", latest)
        assert len(await backend.query_by_metadata("k", "v")) == 2
        assert await backend.search("word")
        assert await backend.search_data("turn", 99)
        assert await backend.delete("t0")
        assert await backend.count() == 6 * 12 + 1 + 13 - 1 - 12


async def test_saves_and_pending_writes_go_together(pgbouncer: PgBouncerServer, store: PostgreSQLStore) -> None:
    options: dict[str, Any] = {"dsn": pgbouncer.url, "schema_name": store.schema, "prepared_statements": False}
    async with PostgreSQLBackend(**options) as backend:
        engine = backend.store.engine
        assert isinstance(engine, PostgreSQLEngine)
        await engine.setup()
        for number in range(8):
            saves = [first(f"t{n}", f"{number}") for n in range(4)]
            written = [TaskWrites(f"w{n}", "default", "a", f"task {number}", wrote("1", "2")) for n in range(2)]
            if not number:
                await engine.commit_together([first("w0"), first("w1")])
            groups: list[list[Commit | TaskWrites]] = [[*saves], [*written, first(f"n{number}")]]
            answers = await asyncio.gather(*(engine.commit_together(group) for group in groups))
            assert None not in [answer for group in answers for answer in group]
        assert len(await engine.get_writes("w1", "default", "a", None)) == 16
        timeouts = await engine.ask(("SELECT current_setting('lock_timeout')", ()))
        assert timeouts == [("0",)], "what a group sets ends with it"


async def test_the_option_can_stand_in_the_url(pgbouncer: PgBouncerServer, store: PostgreSQLStore) -> None:
    url = f"{pgbouncer.url}?schema_name={store.schema}&prepared_statements=off&max_pool_size=4"
    async with get_checkpointer(url) as handle:
        states, state = {}, AgentState()
        for number in range(15):
            state = state.with_message(Message.user(f"message {number}"))
            states[await handle.save(state, "t")] = state
    async with postgresql_checkpointer(dsn=store.server_url, schema_name=store.schema) as direct:
        await assert_all_load(direct, "t", states)
