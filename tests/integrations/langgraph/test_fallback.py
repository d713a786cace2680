"""Moving from another saver while it is in use: `LocusSaver(store, fallback=old)`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command
from pydantic import BaseModel

from locus.errors import (
    BackendUnavailableError,
    CapabilityError,
    ConfigurationError,
    CorruptCheckpointError,
    SerializationError,
)
from locus.integrations.langgraph import LocusSaver
from locus.integrations.langgraph.fallback import FORK, BringOver
from locus.memory.backends import MemoryCheckpointer
from tests.integrations.langgraph.graphs import asking, chat, said, texts, thread
from tests.servers.postgresql import PostgreSQLServer
from tests.transfer.graphs import config as named
from tests.transfer.graphs import everything, go_on, make_graph, talk, talk_blocking

Saver = BaseCheckpointSaver[Any]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'agents.db'}"


@pytest.fixture
def old(tmp_path: Path) -> Iterator[SqliteSaver]:
    with SqliteSaver.from_conn_string(str(tmp_path / "old.db")) as saver:
        yield saver


def place(found: CheckpointTuple) -> tuple[str, ...]:
    name = found.config["configurable"]
    return name["thread_id"], name["checkpoint_ns"], name["checkpoint_id"]


def ids(saver: Saver, name: str = "t") -> list[str]:
    return [place(found)[2] for found in saver.list(thread(name))]


def test_a_thread_is_brought_over_whole_and_gone_on_with(url: str, old: SqliteSaver) -> None:
    """History, parents, forks, namespaces, metadata, times and pending writes."""
    talk_blocking(old)
    expected = sorted(old.list(None), key=place)
    waiting, rest = ([one for one in expected if (place(one)[0] == "waits/1") is chosen] for chosen in (True, False))
    with LocusSaver(url, fallback=old) as saver:
        assert make_graph(saver).get_state(named("waits/1")).next == ("ask",)
    with LocusSaver(url) as saver:  # only what was touched is here
        assert sorted(saver.list(None), key=place) == waiting
    with LocusSaver(url, fallback=old) as saver:
        assert make_graph(saver).invoke(Command(resume="yes"), named("waits/1"))["notes"][-1] == "approved: yes"
        assert saver.bring_over() == len(rest)
        assert saver.bring_over() == 0
    assert sorted(old.list(None), key=place) == expected  # it was never written to
    with LocusSaver(url) as saver:
        assert [one for one in sorted(saver.list(None), key=place) if place(one)[0] == "talk"] == rest


async def test_times_are_those_of_the_old_saver(url: str, old: SqliteSaver) -> None:
    chat(old).invoke(said("a"), thread())
    async with LocusSaver(url, fallback=old) as saver:
        await saver.aget_tuple(thread())
        times = {entry.checkpoint_id: entry.created_at for entry in await saver.store.history("t", None, None, "")}
    assert times == {place(one)[2]: datetime.fromisoformat(one.checkpoint["ts"]) for one in old.list(thread())}


@asynccontextmanager
async def async_sqlite(tmp_path: Path) -> AsyncIterator[Saver]:
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "old.db")) as saver:
        yield saver


async def test_an_async_saver_is_moved_from(tmp_path: Path, url: str) -> None:
    async with async_sqlite(tmp_path) as theirs:
        await talk(theirs)
        expected = await everything(theirs)
        async with LocusSaver(url, fallback=theirs) as ours:
            assert await everything(ours) == expected
        result = await go_on(theirs)
        async with LocusSaver(url, fallback=theirs) as ours:
            found = await make_graph(ours).aget_state(named("waits/1"))
            assert found.values == result


@pytest.mark.postgresql
async def test_langgraphs_savers_on_postgresql_are_moved_from(postgresql_server: PostgreSQLServer, url: str) -> None:
    schema = "langgraph_fallback"
    with psycopg.connect(postgresql_server.url, autocommit=True) as database:
        database.execute(f"CREATE SCHEMA {schema}")
    inside = f"{postgresql_server.url}?options=-csearch_path%3D{schema}"
    try:
        async with AsyncPostgresSaver.from_conn_string(inside) as theirs:
            await theirs.setup()
            await talk(theirs)
            expected = await everything(theirs)
            async with LocusSaver(url, fallback=theirs) as ours:
                assert await everything(ours) == expected
        with PostgresSaver.from_conn_string(inside) as blocking:
            ours = LocusSaver(MemoryCheckpointer(), fallback=blocking)
            assert await everything(ours) == expected
            assert "approved: yes" in (await go_on(ours))["notes"]
    finally:
        with psycopg.connect(postgresql_server.url, autocommit=True) as database:
            database.execute(f"DROP SCHEMA {schema} CASCADE")


def test_a_blocking_call_reaches_an_async_saver_on_another_thread(tmp_path: Path, url: str) -> None:
    async def main() -> None:
        async with async_sqlite(tmp_path) as theirs:
            await chat(theirs).ainvoke(said("a"), thread())
            with LocusSaver(url, fallback=theirs) as ours:
                with pytest.raises(ConfigurationError, match="use the async methods"):
                    ours.get_tuple(thread())
                state = await asyncio.to_thread(chat(ours).get_state, thread())
                assert texts(state) == ["a", "answer to a"]

    asyncio.run(main())


def test_an_async_saver_whose_event_loop_has_ended_is_refused(tmp_path: Path, url: str) -> None:
    async def main() -> AsyncSqliteSaver:
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "old.db")) as saver:
            return saver

    ended = "event loop of the fallback, AsyncSqliteSaver, has ended"
    with LocusSaver(url, fallback=asyncio.run(main())) as saver, pytest.raises(ConfigurationError, match=ended):
        saver.get_tuple(thread())


class Stops(SqliteSaver):
    """Ends in the middle of a move, as after a kill."""

    left = 1_000

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        if self.left <= 0:
            raise OSError("the connection is lost, and with it the secret host")
        self.left -= 1
        return super().get_tuple(config)


def test_a_move_that_ends_in_between_goes_on_at_the_next_touch(url: str, tmp_path: Path) -> None:
    with Stops.from_conn_string(str(tmp_path / "old.db")) as old:
        assert isinstance(old, Stops)
        graph = chat(old)
        for number in range(4):
            graph.invoke(said(str(number)), thread())
        expected = list(old.list(thread()))
        for stop in (3, 5, 0):
            old.left = stop
            with LocusSaver(url, fallback=old) as saver, pytest.raises(BackendUnavailableError) as caught:
                saver.get_tuple(thread())
            assert "secret" not in str(caught.value)
        with LocusSaver(url) as saver:
            assert 0 < len(ids(saver)) < len(expected)
        old.left = 1_000
        with LocusSaver(url, fallback=old) as saver:
            assert list(saver.list(thread())) == expected


async def test_workers_that_touch_a_thread_at_once_bring_it_over_once(url: str, old: SqliteSaver) -> None:
    graph = chat(old)
    for number in range(4):
        graph.invoke(said(str(number)), thread())
    expected = list(old.list(thread()))
    workers = [LocusSaver(url, fallback=old) for _ in range(4)]
    found = await asyncio.gather(*(worker.aget_tuple(thread()) for worker in workers for _ in range(2)))
    assert found == [expected[0]] * 8
    assert [one async for one in workers[0].alist(thread())] == expected
    for worker in workers:
        await worker.aclose()


def test_what_the_old_saver_writes_meanwhile_comes_too(url: str, old: SqliteSaver) -> None:
    chat(old).invoke(said("one"), thread())
    with LocusSaver(url, fallback=old) as saver:
        chat(saver).get_state(thread())
        chat(old).invoke(said("two"), thread())  # a worker that has not been replaced yet
        assert texts(chat(saver).get_state(thread())) == ["one", "answer to one", "two", "answer to two"]
        assert list(saver.list(thread())) == list(old.list(thread()))


def test_pending_writes_that_come_later_come_too(url: str, old: SqliteSaver) -> None:
    asking(old).invoke({"log": []}, thread())
    with LocusSaver(url, fallback=old) as saver:
        found = saver.get_tuple(thread())
        assert found is not None
        old.put_writes(found.config, [("log", ["late"])], "another task")
        again = saver.get_tuple(thread())
        assert again is not None
        assert ("another task", "log", ["late"]) in (again.pending_writes or [])
        assert set(map(str, found.pending_writes or [])) < set(map(str, again.pending_writes or []))


def test_the_last_step_brings_pending_writes_that_came_later(url: str, old: SqliteSaver) -> None:
    """An interrupt makes no checkpoint: it is only a pending write of one that may be here already."""
    asking(old).invoke({"log": []}, thread())
    with LocusSaver(url, fallback=old) as saver:
        found = saver.get_tuple(thread())
        assert found is not None
        old.put_writes(found.config, [("__interrupt__", "later")], "another task")
        assert saver.bring_over() == 0
    with LocusSaver(url) as saver:
        again = saver.get_tuple(thread())
        assert again is not None
        assert ("another task", "__interrupt__", "later") in (again.pending_writes or [])


@pytest.mark.parametrize("here_is_later", [True, False])
def test_of_two_lines_both_are_kept_and_the_later_one_goes_on(
    url: str, old: SqliteSaver, here_is_later: bool, caplog: pytest.LogCaptureFixture
) -> None:
    chat(old).invoke(said("start"), thread("who knows"))
    with LocusSaver(url, fallback=old) as saver:
        assert saver.get_tuple(thread("who knows")) is not None
    with LocusSaver(url) as blind:  # as if the run had begun before the other worker wrote
        for writer in (old, blind) if here_is_later else (blind, old):
            chat(writer).invoke(said("here" if writer is blind else "there"), thread("who knows"))
        mine = ids(blind, "who knows")
    with caplog.at_level(logging.WARNING, "locus"), LocusSaver(url, fallback=old) as saver:
        state = chat(saver).get_state(thread("who knows"))
        assert texts(state)[2] == ("here" if here_is_later else "there")
        assert {*mine, *ids(old, "who knows")} == set(ids(saver, "who knows"))
        assert (state.metadata or {}).get(FORK) == (ids(old, "who knows")[0] if here_is_later else None)
        assert chat(saver).get_state(thread("who knows")) == state
    (record,) = caplog.records
    assert "both lines are in its history" in record.getMessage()
    assert "who knows" not in caplog.text
    with LocusSaver(url, fallback=old) as saver:
        assert len(texts(chat(saver).invoke(said("on"), thread("who knows")))) == 6


def test_what_is_deleted_does_not_come_back(url: str, old: SqliteSaver) -> None:
    for name in ("t", "u"):
        chat(old).invoke(said("a"), thread(name))
    with LocusSaver(url, fallback=old) as saver:
        assert saver.get_tuple(thread()) is not None
        for name in ("t", "u"):
            saver.delete_thread(name)
            assert saver.get_tuple(thread(name)) is None
            assert old.get_tuple(thread(name)) is None
        with pytest.raises(CapabilityError, match="without the fallback"):
            saver.delete_for_runs(["r"])


def test_a_copy_has_the_whole_thread(url: str) -> None:
    old = InMemorySaver()
    chat(old).invoke(said("a"), thread())
    with LocusSaver(url, fallback=old) as saver:
        saver.copy_thread("t", "copy")
        assert ids(saver, "copy") == ids(saver, "t") == ids(old, "t")


def test_what_is_pruned_is_pruned_on_both_sides(url: str, tmp_path: Path, old: SqliteSaver) -> None:
    with LocusSaver(f"sqlite:{tmp_path / 'first.db'}") as first, LocusSaver(url, fallback=first) as saver:
        chat(first).invoke(said("a"), thread())
        newest = ids(first)[0]
        saver.prune(["t"])
        assert ids(saver) == ids(first) == [newest]
        assert saver.bring_over() == 0


def test_what_the_old_saver_cannot_read_is_damage(url: str, old: SqliteSaver) -> None:
    for name in ("t", "u"):
        chat(old).invoke(said("a"), thread(name))
    old.conn.execute("UPDATE checkpoints SET checkpoint = x'c1' WHERE thread_id = 't'")
    with LocusSaver(url, fallback=old) as saver:
        with pytest.raises(CorruptCheckpointError, match="cannot read what it has stored"):
            saver.get_tuple(thread())
        assert saver.get_tuple(thread("u")) is not None


class Hidden(BaseModel):
    n: int = 1


def test_a_class_that_is_not_allowed_stops_the_move_of_its_thread(url: str, old: SqliteSaver) -> None:
    chat(old).invoke(said("a"), thread())
    chat(old).update_state(thread(), {"messages": [("user", "x")]})
    found = old.get_tuple(thread())
    assert found is not None
    old.put_writes(found.config, [("messages", Hidden())], "task")
    with LocusSaver(url, fallback=old) as saver:
        for _ in range(2):
            with pytest.raises(SerializationError, match="Hidden, which is not allowed"):
                saver.get_tuple(thread())
    with LocusSaver(url, fallback=old, allowed_types=[Hidden]) as saver:
        assert list(saver.list(thread())) == list(old.list(thread()))


def test_there_must_be_a_saver_to_fall_back_on(url: str) -> None:
    with pytest.raises(ConfigurationError, match="fallback is a checkpointer of LangGraph"):
        LocusSaver(url, fallback="sqlite:old.db")  # type: ignore[arg-type]
    with LocusSaver(url) as saver, pytest.raises(ConfigurationError, match="there is no fallback"):
        saver.bring_over()


def test_a_locus_saver_can_be_moved_from_as_well(tmp_path: Path, url: str) -> None:
    with LocusSaver(f"sqlite:{tmp_path / 'first.db'}") as old, LocusSaver(url, fallback=old) as saver:
        talk_blocking(old)
        assert sorted(saver.list(None), key=place) == sorted(old.list(None), key=place)


async def test_a_worker_killed_before_it_put_the_lines_in_order_is_followed_by_one_that_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread has gone on at both savers, and continues from the later line, whoever brings it over."""
    old, store = InMemorySaver(), MemoryCheckpointer()
    new = LocusSaver(store, fallback=old)

    def put(saver: Saver, after: str | None, value: str) -> str:
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"], checkpoint["channel_versions"] = {"x": value}, {"x": 1}
        place = {"thread_id": "t", "checkpoint_ns": "", **({"checkpoint_id": after} if after else {})}
        saver.put({"configurable": place}, checkpoint, {"source": "loop", "step": 1}, {"x": 1})
        return checkpoint["id"]

    first = put(old, None, "first")
    assert new.get_tuple(thread("t")) is not None
    put(old, first, "of an old worker")
    put(new, first, "of a new worker, later")

    async def killed(*_arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as at_that_moment:
        at_that_moment.setattr(BringOver, "_keep_latest", killed)
        with pytest.raises(KeyboardInterrupt):
            await new.aget_tuple(thread("t"))
    found = await LocusSaver(store, fallback=old).aget_tuple(thread("t"))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"x": "of a new worker, later"}
