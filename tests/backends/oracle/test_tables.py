"""The tables: who may create them, several at once, interrupted, too new; and what is in them."""

from __future__ import annotations

from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConfigurationError, CorruptCheckpointError, UnsupportedFormatError
from locus.memory.backends import OracleBackend, oracle_checkpointer
from locus.memory.backends.oracle import schema as oracle_schema
from locus.memory.backends.oracle.schema import OracleFlavour
from locus.testing.processes import jobs
from locus.testing.processes.workers import Crew
from tests.backends.oracle.stores import place_of, run_script, run_sql, tables_of, url_of
from tests.servers.oracle.fixtures import OracleDatabase

pytestmark = pytest.mark.oracle


async def _assert_works(database: OracleDatabase, table_name: str, **options: Any) -> None:
    async with oracle_checkpointer(**place_of(database), table_name=table_name, **options) as checkpointer:
        state = AgentState().with_message(Message.user("a wombat"))
        saved = await checkpointer.save(state, "works", metadata={"k": "v"})
        assert await checkpointer.load("works") == state
        await checkpointer.put_writes("works", saved, "task", [("channel", 1)])
        assert len(await checkpointer.get_writes("works", saved)) == 1
        assert len(await checkpointer.query_by_metadata("k", "v")) == 1
        assert len(await checkpointer.search("wombat")) == 1
        assert await checkpointer.delete("works")


def test_twenty_processes_may_come_first(oracle_place: OracleDatabase, table_name: str) -> None:
    url = url_of(oracle_place, table_name=table_name)
    with Crew(url) as crew:
        workers = [
            crew.start(
                jobs.save_many, url=url, thread_ids=["first"], count=1, name=f"process {number}", from_latest=False
            )
            for number in range(20)
        ]
        crew.together(workers)
        saved = [known for worker in workers for _, known, _ in worker.finish()]
    assert len(set(saved)) == 20
    assert run_sql(oracle_place, f"SELECT last_seq FROM {table_name}_threads") == [(20,)]
    assert run_sql(oracle_place, f"SELECT version FROM {table_name}_format") == [(oracle_schema.FORMAT,)]


def _statements(table_name: str) -> list[str]:
    sql = OracleFlavour(table_name)
    return [*oracle_schema.format_statements(sql), *oracle_schema.statements(sql, 0)]


@pytest.mark.parametrize("done", [1, 2, 5, len(_statements("x")) - 1, len(_statements("x"))])
async def test_a_migration_that_was_interrupted_is_finished(
    oracle_place: OracleDatabase, table_name: str, done: int
) -> None:
    """DDL commits by itself, so this is what a process leaves behind that dies after so many statements."""
    for statement in _statements(table_name)[:done]:
        run_sql(oracle_place, statement)
    await _assert_works(oracle_place, table_name)


async def test_a_newer_format_is_refused_and_left_alone(oracle_place: OracleDatabase, table_name: str) -> None:
    await _assert_works(oracle_place, table_name)
    run_sql(oracle_place, f"UPDATE {table_name}_format SET version = 99")
    async with oracle_checkpointer(**place_of(oracle_place), table_name=table_name) as checkpointer:
        with pytest.raises(UnsupportedFormatError, match="99"):
            await checkpointer.load("thread")
        with pytest.raises(UnsupportedFormatError):
            await checkpointer.save(AgentState(), "thread")
    assert run_sql(oracle_place, f"SELECT count(*) FROM {table_name}_threads") == [(0,)]


async def test_a_table_of_somebody_else_is_not_taken_for_ours(oracle_place: OracleDatabase, table_name: str) -> None:
    run_sql(oracle_place, f"CREATE TABLE {table_name}_writes (colour VARCHAR2(20))")
    async with oracle_checkpointer(**place_of(oracle_place), table_name=table_name) as checkpointer:
        with pytest.raises(ConfigurationError, match="in the way"):
            await checkpointer.load("thread")


async def test_without_auto_create_the_tables_have_to_be_there(oracle_place: OracleDatabase, table_name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"OracleBackend\.ddl\(table_name='{table_name}'\)"):
        await _assert_works(oracle_place, table_name, auto_create_table=False)
    assert tables_of(oracle_place, table_name) == []
    run_script(oracle_place, OracleBackend.ddl(table_name))
    await _assert_works(oracle_place, table_name, auto_create_table=False)


async def test_reading_and_writing_is_all_that_a_user_must_be_allowed(
    oracle_place: OracleDatabase, oracle_database: OracleDatabase, table_name: str
) -> None:
    """The tables belong to one user, and another works with them."""
    if oracle_database.user == oracle_place.user:
        pytest.skip("needs a second user, which a real database's user may not be able to create")
    options = {"schema_name": oracle_place.user, "auto_create_table": False}
    with pytest.raises(ConfigurationError, match="are not there"):
        await _assert_works(oracle_database, table_name, **options)
    run_script(oracle_place, OracleBackend.ddl(table_name, grantee=oracle_database.user))
    await _assert_works(oracle_database, table_name, **options)


async def test_what_is_in_the_tables(oracle_place: OracleDatabase, table_name: str) -> None:
    """As a database administrator sees it."""
    async with oracle_checkpointer(**place_of(oracle_place), table_name=table_name) as checkpointer:
        state = AgentState(agent_id="a")
        for turn in range(3):
            state = state.with_message(Message.user(f"turn {turn}"))
            await checkpointer.save(state, "thread", f"c{turn}", {"k": "v"})
    rows = run_sql(oracle_place, f"SELECT checkpoint_id, parent_id, seq FROM {table_name}_checkpoints ORDER BY seq")
    assert rows == [("c0", None, 1), ("c1", "c0", 2), ("c2", "c1", 3)]
    runs = run_sql(oracle_place, f"SELECT num, begins, count FROM {table_name}_runs ORDER BY seq")
    assert runs == [(0, 0, 1), (1, 1, 1), (2, 2, 1)]
    found = run_sql(
        oracle_place,
        "SELECT t.thread_id, JSON_VALUE(c.metadata, '$.k'), JSON_VALUE(c.head, '$.agent_id')"
        f" FROM {table_name}_threads t JOIN {table_name}_checkpoints c ON c.thread = t.id WHERE c.seq = 3",
    )
    assert found == [("thread", "v", "a")]


async def test_a_lost_newest_edit_does_not_bring_back_what_it_replaced(
    oracle_place: OracleDatabase, table_name: str
) -> None:
    async with oracle_checkpointer(**place_of(oracle_place), table_name=table_name) as cp:
        one = AgentState(agent_id="agent").with_messages([Message.user("said")])
        await cp.save(one, "t", "c1")
        two = one.with_message(Message.user("wrong"))
        await cp.save(two, "t", "c2")
        await cp.save(two.with_messages_replaced((*one.messages, Message.user("right"))), "t", "c3")
    run_sql(oracle_place, f"DELETE FROM {table_name}_runs WHERE num = 2")
    async with oracle_checkpointer(**place_of(oracle_place), table_name=table_name) as cp:
        with pytest.raises(CorruptCheckpointError, match="run 2"):
            await cp.load("t")
        assert await cp.load("t", "c2") == two
