"""Threads that LangGraph's own savers have written, moved in and gone on with."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sqlite3
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, date, time, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import ormsgpack
import psycopg
import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command, Interrupt, Send

from locus.errors import ConfigurationError, LocusError
from locus.integrations.langgraph.saver import LocusSaver
from locus.transfer import Report, import_store
from locus.transfer.sources.langgraph_values import ValueReader
from tests.servers.postgresql import PostgreSQLServer
from tests.transfer.graphs import Colour, State, Ticket, config, everything, go_on, make_graph, talk, talk_blocking


@asynccontextmanager
async def sqlite_saver(path: Path) -> AsyncIterator[AsyncSqliteSaver]:
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        yield saver


def place(found: CheckpointTuple) -> tuple[str, ...]:
    named = found.config["configurable"]
    return named["thread_id"], named["checkpoint_ns"], named["checkpoint_id"]


async def moved(path: Path, url: str, **options: Any) -> Report:
    return await import_store("langgraph", str(path), url, **options)


async def test_a_graphs_threads_are_moved_and_gone_on_with(tmp_path: Path) -> None:
    path, url = tmp_path / "graph.db", f"sqlite:{tmp_path / 'agents.db'}"
    async with sqlite_saver(path) as saver:
        await talk(saver)
        expected = await everything(saver)
    before = hashlib.sha256(path.read_bytes()).digest()
    report = await moved(path, url)
    assert report.ok, report.problems
    assert report.threads == 2
    assert report.moved == report.verified == len(expected) - 2
    assert hashlib.sha256(path.read_bytes()).digest() == before
    again = await moved(path, url)
    assert (again.ok, again.moved, again.present) == (True, 0, report.moved)
    async with LocusSaver(url) as ours:
        found = await everything(ours)
        assert found.keys() == expected.keys()
        for name in expected:
            assert found[name] == expected[name], name
        result = await go_on(ours)
    async with sqlite_saver(path) as saver:
        assert await go_on(saver) == result
    assert "approved: yes" in result["notes"]


def test_what_the_blocking_saver_wrote_is_moved(tmp_path: Path) -> None:
    path, url = tmp_path / "graph.db", f"sqlite:{tmp_path / 'agents.db'}"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        talk_blocking(saver)
        expected = sorted(saver.list(None), key=place)
    assert asyncio.run(moved(path, url)).ok
    with LocusSaver(url) as ours:
        assert sorted(ours.list(None), key=place) == expected
        assert make_graph(ours).invoke({"messages": []}, config("talk"))["notes"][-1].startswith("worked on")


async def test_what_has_been_added_since_is_added(tmp_path: Path) -> None:
    path, url = tmp_path / "graph.db", f"sqlite:{tmp_path / 'agents.db'}"
    async with sqlite_saver(path) as saver:
        await talk(saver)
        first = await moved(path, url)
        await go_on(saver)
        second = await moved(path, url)
        expected = await everything(saver)
    assert first.ok
    assert second.ok, second.problems
    assert 0 < second.moved < first.moved
    async with LocusSaver(url) as ours:
        assert await everything(ours) == expected


def _stored(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        (size,) = database.execute("SELECT sum(length(items)) FROM locus_runs").fetchone()
    return int(size)


async def test_what_is_moved_takes_the_room_that_it_would_have_taken_from_the_start(tmp_path: Path) -> None:
    path, url = tmp_path / "graph.db", f"sqlite:{tmp_path / 'agents.db'}"
    async with sqlite_saver(path) as theirs, LocusSaver(f"sqlite:{tmp_path / 'ours.db'}") as ours:
        for saver in (theirs, ours):
            graph = make_graph(saver)
            for turn in range(8):
                await graph.ainvoke({"messages": [HumanMessage(f"{turn} " + "x" * 2_000)]}, config("talk"))
    assert (await moved(path, url)).ok
    assert _stored(tmp_path / "agents.db") < _stored(tmp_path / "ours.db") * 1.1
    with closing(sqlite3.connect(path)) as database:
        (before,) = database.execute("SELECT sum(length(checkpoint)) FROM checkpoints").fetchone()
    assert before > _stored(tmp_path / "agents.db") * 2


async def test_a_class_that_is_not_allowed_is_named(tmp_path: Path) -> None:
    path, url = tmp_path / "graph.db", f"sqlite:{tmp_path / 'agents.db'}"
    async with sqlite_saver(path) as saver:
        await make_graph(saver).aupdate_state(config("t"), {"ticket": Ticket(7), "notes": ["x"]}, as_node="answer")
        await make_graph(saver).aupdate_state(config("u"), {"notes": ["x"]}, as_node="answer")
    report = await moved(path, url)
    (problem,) = report.problems
    assert problem.thread == "t"
    names = ["tests.transfer.graphs:Colour", "tests.transfer.graphs:Ticket"]
    assert f"not allowed: allow them with --allow {names[0]} --allow {names[1]}" in problem.message
    assert report.done == 1
    assert (await moved(path, url, allowed_types=names)).ok
    async with LocusSaver(url, allowed_types=[Ticket, Colour]) as ours:
        assert (await make_graph(ours).aget_state(config("t"))).values["ticket"] == Ticket(7, Colour.RED)


async def test_a_thread_is_not_begun_before_all_of_its_classes_are_allowed(tmp_path: Path) -> None:
    path, url = tmp_path / "graph.db", f"sqlite:{tmp_path / 'agents.db'}"
    async with sqlite_saver(path) as saver:
        graph = make_graph(saver)
        for thread, later in (("t", {"ticket": Ticket(7)}), ("u", {"notes": ["z"]})):
            for values in ({"notes": ["x"]}, {"notes": ["y"]}, later):
                await graph.aupdate_state(config(thread), values, as_node="answer")
        expected = sorted([found async for found in saver.alist(None)], key=place)
    report = await moved(path, url)
    assert [problem.thread for problem in report.problems] == ["t"]
    assert (report.done, report.moved) == (1, 3)
    async with LocusSaver(url) as ours:
        assert {place(found)[0] async for found in ours.alist(None)} == {"u"}
    assert (await moved(path, url, allowed_types=[State])).ok
    async with LocusSaver(url, allowed_types=[State]) as ours:
        assert sorted([found async for found in ours.alist(None)], key=place) == expected


def _hostile(tmp_path: Path, kind: str, data: bytes) -> Path:
    """A file in which somebody has put something else in the place of a checkpoint."""
    path = tmp_path / "graph.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        make_graph(saver).update_state(config("t"), {"notes": ["x"]}, as_node="answer")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE checkpoints SET type = ?, checkpoint = ?", (kind, data))
    return path


def _packed(code: int, *parts: Any) -> bytes:
    return ormsgpack.packb({"v": 4, "ts": ormsgpack.Ext(code, ormsgpack.packb(parts))})


def _ext(code: int, *parts: Any) -> ormsgpack.Ext:
    return ormsgpack.Ext(code, ormsgpack.packb(parts))


HOSTILE = {
    "a constructor": ("msgpack", _packed(0, "os", "system", "touch {}")),
    "positional": ("msgpack", _packed(1, "subprocess", "Popen", [["touch", "{}"]])),
    "keywords": ("msgpack", _packed(2, "subprocess", "Popen", {"args": ["touch", "{}"]})),
    "a method": ("msgpack", _packed(3, "pathlib", "Path", "{}", "touch")),
    "a model": ("msgpack", _packed(5, "os", "system", {"command": "touch {}"}, "x")),
    "unknown": ("msgpack", _packed(99, "x")),
    "pickle": ("pickle", b"cos\nsystem\n(S'touch {}'\ntR."),
    "old json": ("json", b'{"lc": 2, "type": "constructor", "id": ["os", "system"], "args": ["touch {}"]}'),
    "older json": (
        "json",
        b'{"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "touch {}"}}',
    ),
    "in the middle": ("json", b'{"v": 1, "x": [{"lc": 2, "type": "constructor", "id": ["os", "x"], "args": ["{}"]}]}'),
    "a program": (
        "json",
        b'{"lc": 1, "type": "constructor", "id": ["langchain", "prompts", "prompt", "PromptTemplate"],'
        b' "kwargs": {"template": "{{x}}", "input_variables": ["x"]}}',
    ),
    "a program in a message": (
        "json",
        b'{"v": 1, "x": {"lc": 1, "type": "constructor", "id": ["langchain_core", "messages", "HumanMessage"],'
        b' "kwargs": {"content": {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "runnable",'
        b' "RunnablePassthrough"], "kwargs": {}}}}}',
    ),
    "colliding": (
        "msgpack",
        _packed(
            0, "builtins", "set", [_ext(0, "uuid", "UUID", f"{number * (2**61 - 1):032x}") for number in range(5_000)]
        ),
    ),
    "no json": ("json", b"{"),
    "damaged": ("msgpack", b"\xff\xff"),
    "nothing": ("msgpack", ormsgpack.packb([1])),
    "encrypted": ("msgpack+aes", b"xx"),
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_nothing_that_is_stored_is_executed(tmp_path: Path, what: str) -> None:
    proof = tmp_path / "proof"
    kind, data = HOSTILE[what]
    path = _hostile(tmp_path, kind, data.replace(b"{}", str(proof).encode()) if kind != "msgpack" else data)
    report = await moved(path, f"sqlite:{tmp_path / 'agents.db'}")
    (problem,) = report.problems
    assert problem.thread == "t"
    assert problem.kind in ("SerializationError", "CorruptCheckpointError")
    assert not proof.exists()
    assert not Path("{}").exists()


async def test_the_format_before_msgpack_is_read(tmp_path: Path) -> None:
    path, url = tmp_path / "graph.db", f"sqlite:{tmp_path / 'agents.db'}"
    message = (
        '{"lc": 2, "type": "constructor", "id": ["langchain_core", "messages", "human", "HumanMessage"],'
        ' "kwargs": {"content": "hi", "id": "h"}}'
    )
    text = (
        '{"v": 1, "id": "1ef00000-0000-6000-8000-000000000001", "ts": "2024-06-01T10:00:00+00:00",'
        f' "channel_values": {{"messages": [{message}]}}, "channel_versions": {{"messages": 2}},'
        ' "versions_seen": {}}'
    )
    with SqliteSaver.from_conn_string(str(path)) as saver:
        saver.setup()
    with closing(sqlite3.connect(path)) as database, database:
        row = ("t", "", "1ef00000-0000-6000-8000-000000000001", None, "json", text, '{"step": 1}')
        database.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    assert (await moved(path, url)).ok
    async with LocusSaver(url) as ours:
        found = await ours.aget_tuple(config("t"))
    assert found is not None
    assert found.checkpoint["channel_values"]["messages"][0].content == "hi"
    assert found.metadata == {"step": 1}


@pytest.mark.parametrize("module", [["langchain", "schema", "messages"], ["langchain_core", "messages", "ai"]])
def test_messages_in_langchains_own_format_are_data(monkeypatch: pytest.MonkeyPatch, module: list[str]) -> None:
    """Neither LangChain's reviver nor a constructor or validator of a message is called."""

    def called(*_args: object, **_fields: object) -> None:
        raise AssertionError("called")

    calls = [{"name": "f", "args": {"x": 1}, "id": "c", "type": "tool_call"}]
    expected = AIMessage("hi", id="a", tool_calls=calls, mood="good")
    kwargs = {"content": "hi", "id": "a", "tool_calls": calls, "mood": "good", "type": "ai"}
    texts = [
        json.dumps({"lc": lc, "type": "constructor", "id": [*module, "AIMessage"], "kwargs": kwargs})
        for lc in ((1, 2) if module[0] == "langchain_core" else (1,))
    ]
    packed = JsonPlusSerializer().dumps_typed(expected)
    monkeypatch.setattr(jsonplus, "LC_REVIVER", called)
    monkeypatch.setattr(AIMessage, "__init__", called)
    for text in texts:
        assert ValueReader().read("json", text, "x") == expected
    assert ValueReader().read(*packed, "x") == expected
    assert ValueReader().read("json", texts[0], "x").usage_metadata is None


async def test_what_was_to_be_sent_before_version_4_is_sent(tmp_path: Path) -> None:
    """It stood among the writes of the checkpoint before; and older files know no task paths."""
    path, url = tmp_path / "graph.db", f"sqlite:{tmp_path / 'agents.db'}"
    names = [f"1ef00000-0000-6000-8000-00000000000{number}" for number in (1, 2)]
    serde = JsonPlusSerializer()
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(
            """CREATE TABLE checkpoints (thread_id TEXT, checkpoint_ns TEXT DEFAULT '', checkpoint_id TEXT,
                parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB);
            CREATE TABLE writes (thread_id TEXT, checkpoint_ns TEXT DEFAULT '', checkpoint_id TEXT, task_id TEXT,
                idx INTEGER, channel TEXT, type TEXT, value BLOB);"""
        )
        for name, parent in zip(names, (None, names[0]), strict=True):
            checkpoint = {
                "v": 1,
                "id": name,
                "ts": "2024-06-01T10:00:00",
                "channel_versions": {"n": 3},
                "versions_seen": {},
            }
            row = ("t", "", name, parent, *serde.dumps_typed({**checkpoint, "channel_values": {"n": 1}}), None)
            database.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        for idx, node in enumerate("ab"):
            sent = serde.dumps_typed(Send(node, {"x": idx}))
            database.execute(
                "INSERT INTO writes VALUES ('t', '', ?, 'task', ?, '__pregel_tasks', ?, ?)", (names[0], idx, *sent)
            )
    report = await moved(path, url)
    assert report.ok, report.problems
    async with LocusSaver(url) as ours:
        found = await ours.aget_tuple(config("t"))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"n": 1, "__pregel_tasks": [Send("a", {"x": 0}), Send("b", {"x": 1})]}
    assert found.checkpoint["channel_versions"] == {"n": 3, "__pregel_tasks": 3}
    assert found.metadata == {}


@pytest.mark.parametrize("name", ["x", "x:y", "locus.transfer:copy_store", "nowhere:X"])
async def test_what_is_no_class_is_not_allowed(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError):
        await moved(tmp_path / "graph.db", f"sqlite:{tmp_path / 'agents.db'}", allowed_types=[name])


async def test_what_are_no_such_tables_is_told(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as database:
        database.execute("CREATE TABLE checkpoints (x)")
    for name in ("other.db", "none.db"):
        with pytest.raises(LocusError, match=r"has no table checkpoints|there is no file"):
            await moved(tmp_path / name, f"sqlite:{tmp_path / 'agents.db'}")
    assert not (tmp_path / "agents.db").exists()
    assert not (tmp_path / "none.db").exists()


@pytest.mark.postgresql
async def test_postgresql(postgresql_server: PostgreSQLServer, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'agents.db'}"
    schema = "langgraph_import"
    with psycopg.connect(postgresql_server.url, autocommit=True) as database:
        database.execute(f"CREATE SCHEMA {schema}")
    inside = f"{postgresql_server.url}?options=-csearch_path%3D{schema}"
    try:
        async with AsyncPostgresSaver.from_conn_string(inside) as saver:
            await saver.setup()
            await talk(saver)
            expected = await everything(saver)
        with PostgresSaver.from_conn_string(inside) as blocking:
            make_graph(blocking).update_state(config("more"), {"notes": ["x"]}, as_node="answer")
        source = f"{postgresql_server.url}?schema_name={schema}"
        report = await import_store("langgraph", source, url)
        assert report.ok, report.problems
        assert report.threads == 3
        assert (await import_store("langgraph", inside, url)).present == report.moved
        async with LocusSaver(url) as ours:
            result = await go_on(ours)
            assert "approved: yes" in result["notes"]
        other = f"sqlite:{tmp_path / 'other.db'}"
        assert (await import_store("langgraph", source, other, dry_run=True)).moved == report.moved
        assert not (tmp_path / "other.db").exists()
        async with LocusSaver(other) as ours:
            assert (await import_store("langgraph", source, other)).ok
            found = await everything(ours)
        assert {name: found[name] for name in expected} == expected
        with pytest.raises(ConfigurationError, match=r"has no tables .*checkpoint_blobs.*schema_name"):
            await import_store("langgraph", f"{postgresql_server.url}?schema_name=none", url)
    finally:
        with psycopg.connect(postgresql_server.url, autocommit=True) as database:
            database.execute(f"DROP SCHEMA {schema} CASCADE")


def make_values() -> list[Any]:
    plain = [None, b"x", bytearray(b"y"), {"a": [1, 2.5, None, {"b": (1, 2)}]}, {1: "one"}, "text"]
    standard = [date(2026, 1, 2), time(1, 2), timedelta(1), UTC, deque([1]), ip_address("::1"), ZoneInfo("UTC")]
    graph = [Send("n", {"x": 1}), Interrupt(value="v", id="i"), Command(goto="x"), RemoveMessage(id="r")]
    rich = [Document(page_content="p"), ToolMessage("t", tool_call_id="c"), Ticket(1), Colour.RED, re.compile("x")]
    return [*plain, *standard, *graph, *rich, {"all": [*standard, *graph]}]


def test_what_is_read_here_is_what_langgraph_reads() -> None:
    """The same bytes, read by both."""
    serde, values = JsonPlusSerializer(), ValueReader([Ticket, Colour])
    for value in make_values():
        kind, data = serde.dumps_typed(value)
        assert repr(values.read(kind, data, "x")) == repr(serde.loads_typed((kind, data)))
