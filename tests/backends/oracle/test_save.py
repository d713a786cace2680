"""What a save costs, what is written, and what an empty text, a long one and a taken key do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConflictError
from locus.memory.backends.oracle.client import OracleConnection
from locus.memory.backends.oracle.engine import OracleEngine
from tests.backends.oracle.stores import OracleStore, run_sql
from tests.backends.sql.lost_saves import LostSaveLaws

pytestmark = pytest.mark.oracle


class Spy:
    """Counts the statements that are sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[str] = []
        real = OracleConnection._execute

        async def execute(connection: OracleConnection, text: str, values: Sequence[Any], commit: bool) -> Any:
            self.sent.append(f"{text.split()[0]} COMMIT" if commit else text.split()[0])
            return await real(connection, text, values, commit)

        monkeypatch.setattr(OracleConnection, "_execute", execute)

    def take(self) -> list[str]:
        taken, self.sent = self.sent, []
        return taken


async def test_a_save_is_three_statements_and_the_last_one_commits(
    oracle_store: OracleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with oracle_store.open() as checkpointer:
        await checkpointer.list_threads()
        spy = Spy(monkeypatch)
        state = AgentState(agent_id="a").with_message(Message.user("0"))
        await checkpointer.save(state, "thread")
        assert spy.take() == ["SELECT", "INSERT", "INSERT", "INSERT COMMIT"]  # it looks for what is there first
        for turn in range(1, 4):
            state = state.with_message(Message.user(str(turn)))
            await checkpointer.save(state, "thread")
            assert spy.take() == ["UPDATE", "INSERT", "INSERT COMMIT"]
        await checkpointer.save(state, "thread", "named", {"k": "v"})
        assert spy.take() == ["UPDATE", "INSERT", "INSERT COMMIT"]
        await checkpointer.load("thread")
        assert spy.take() == ["SELECT"]  # what it has just saved is held
        checkpointer.cache_clear()
        await checkpointer.load("thread")
        assert spy.take() == ["SELECT", "SELECT"]


async def test_a_second_writer_is_noticed(oracle_store: OracleStore) -> None:
    async with oracle_store.open() as one, oracle_store.open() as other:
        state = AgentState(agent_id="a")
        first = await one.save(state, "thread")
        second = await other.save(state.with_message(Message.user("other")), "thread")
        with pytest.raises(ConflictError):
            await one.save(state.with_message(Message.user("one")), "thread", if_latest=first)
        third = await one.save(state.with_message(Message.user("one")), "thread")
        assert await one.list_checkpoints("thread") == [third, second, first]


async def test_an_id_that_is_taken_is_a_repetition_or_a_replacement(oracle_store: OracleStore) -> None:
    backend = oracle_store.backend()
    await backend.save("thread", {"n": 1}, "a")
    await backend.save("thread", {"n": 2}, "b")
    await backend.save("thread", {"n": 2}, "b")
    assert await backend.list_checkpoints("thread") == ["b", "a"]
    await backend.save("thread", {"n": 3}, "a")
    assert await backend.list_checkpoints("thread") == ["a", "b"]
    assert await backend.load("thread", "a") == {"n": 3}
    await backend.close()


async def test_saves_at_once_by_many_tasks_all_survive(oracle_store: OracleStore) -> None:
    async with oracle_store.open() as one, oracle_store.open() as other:
        states = [AgentState(agent_id=str(number)) for number in range(8)]
        saved = await asyncio.gather(
            *((one if number % 2 else other).save(state, "thread") for number, state in enumerate(states))
        )
        assert set(await one.list_checkpoints("thread")) == set(saved)


async def test_both_calls_of_a_save_keep_the_same_state(oracle_store: OracleStore) -> None:
    backend = oracle_store.backend()
    state = AgentState(agent_id="a").with_message(Message.user("hello"))
    first = await backend.save(state, "thread")
    second = await backend.save("thread", state.model_dump(mode="json"))
    third = await backend.save(state=state, thread_id="thread", checkpoint_id="third")
    assert await backend.list_checkpoints("thread") == [third, second, first]
    loaded = [await backend.load("thread", known) for known in (first, second, third)]
    assert loaded[0] == loaded[2]
    async with oracle_store.open() as checkpointer:
        for known in (first, second, third):
            assert await checkpointer.load("thread", known) == state
    await backend.close()


async def test_empty_and_odd_texts_are_not_lost(oracle_store: OracleStore) -> None:
    """An empty text is NULL in Oracle."""
    backend = oracle_store.backend()
    data = {"": "", "empty": [""], "nul": "\0", "one": "\x01", "long key" * 50: 1.0}
    longest = "\0" * 255
    await backend.save(longest, data, "é" * 255, {"": "", "k": ""}, namespace="")
    assert await backend.load(longest, namespace="") == data
    assert await backend.load(longest, "é" * 255, namespace="") == data
    assert await backend.load(longest) is None
    assert await backend.get_metadata(longest, namespace="") == {"": "", "k": ""}
    assert len(await backend.query_by_metadata("", "")) == 1
    assert await backend.query_by_metadata("k", None) == []
    await backend.put_writes(longest, "é" * 255, "task", [("", "")], namespace="")
    (found,) = await backend.get_writes(longest, "é" * 255, namespace="")
    assert (found.channel, found.value, found.task_path) == ("", "", "")
    assert await backend.list_threads(pattern="\0*") == [longest]
    await backend.close()


async def test_long_texts_are_no_locators(oracle_store: OracleStore) -> None:
    """Past the 4,000 bytes of a VARCHAR2, and the 32,767 that a bind takes without being a LOB."""
    backend = oracle_store.backend()
    data = {"text": "é" * 40_000, "messages": ["x" * 3_999, "y" * 4_001, "z" * 300_000]}
    await backend.save("thread", data, metadata={"note": "n" * 5_000})
    assert await backend.load("thread") == data
    assert len(await backend.query_by_metadata("note", "n" * 5_000)) == 1
    await backend.close()


async def test_deleting_a_thread_leaves_no_row_of_it(oracle_store: OracleStore) -> None:
    backend = oracle_store.backend()
    saved = await backend.save("thread", {"messages": ["a wombat"]}, metadata={"k": "v"})
    await backend.put_writes("thread", saved, "task", [("channel", 1)])
    assert len(await backend.search("wombat")) == 1
    assert await backend.delete("thread")
    for table in ("threads", "checkpoints", "runs", "writes", "pairs", "search"):
        counted = await asyncio.to_thread(
            run_sql, oracle_store.direct, f"SELECT count(*) FROM {oracle_store.table_name}_{table}"
        )
        assert counted == [(0,)], table
    await backend.close()


async def test_a_checkpoint_deleted_while_it_is_read_is_not_damaged(
    oracle_store: OracleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two statements of a load."""
    backend, other = oracle_store.backend(), oracle_store.backend()
    one, two = ({"messages": [text * 2_000]} for text in ("one", "two"))
    await backend.save("thread", one, "a")
    await backend.save("thread", two, "b")
    real = OracleConnection._execute
    waiting = ["b"]

    async def execute(connection: OracleConnection, text: str, values: Sequence[Any], commit: bool) -> Any:
        if waiting and text.startswith("SELECT branch"):
            await other.delete("thread", waiting.pop())
        return await real(connection, text, values, commit)

    monkeypatch.setattr(OracleConnection, "_execute", execute)
    backend.cache_clear()
    assert await backend.load("thread") == one
    assert not waiting
    await backend.close()
    await other.close()


@pytest_asyncio.fixture
async def engine(oracle_store: OracleStore) -> AsyncIterator[OracleEngine]:
    async with oracle_store.backend() as backend:
        engine = backend.store.engine
        assert isinstance(engine, OracleEngine)
        await engine.setup()
        yield engine


@pytest_asyncio.fixture
async def other(oracle_store: OracleStore) -> AsyncIterator[OracleEngine]:
    async with oracle_store.backend() as backend:
        engine = backend.store.engine
        assert isinstance(engine, OracleEngine)
        yield engine


class TestLostSaves(LostSaveLaws):
    pass
