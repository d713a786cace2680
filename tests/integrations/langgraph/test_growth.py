"""A graph's thread grows by what is new: in bytes, in what is encoded, in every process."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import Checkpoint, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from benchmarks.turns import turn
from locus.errors import SerializationError
from locus.integrations.langgraph import cache
from locus.integrations.langgraph.items import ListEncoder
from locus.integrations.langgraph.saver import LocusSaver
from locus.memory.model.codec import encode
from tests.integrations.langgraph.graphs import chat, texts, thread


def turn_messages(number: int) -> list[AnyMessage]:
    """About 3.1 KB."""
    said = turn(number)
    call = {"id": said.call_id, "name": "look_up", "args": {"place": said.place, "limit": 5}}
    return [
        HumanMessage(said.question, id=f"h{number}"),
        AIMessage(said.thought, tool_calls=[call], id=f"a{number}"),
        ToolMessage(said.result, tool_call_id=said.call_id, name="look_up", id=f"t{number}"),
        AIMessage(said.answer, id=f"b{number}"),
    ]


def checkpoint(messages: list[AnyMessage], version: int) -> Checkpoint:
    made = empty_checkpoint()
    made["id"] = str(uuid6(clock_seq=version))
    made["channel_values"] = {"messages": list(messages)}
    made["channel_versions"] = {"messages": version}
    return made


class Converser:
    """Puts a checkpoint for every turn, as LangGraph's loop does."""

    def __init__(self, saver: LocusSaver) -> None:
        self.saver = saver
        self.latest = thread(checkpoint_ns="")
        self.messages: list[AnyMessage] = []

    def load(self) -> None:
        found = self.saver.get_tuple(thread())
        assert found is not None
        self.latest = found.config
        self.messages = found.checkpoint["channel_values"]["messages"]

    def put(self, *messages: AnyMessage) -> None:
        self.messages = [*self.messages, *messages]
        made = checkpoint(self.messages, len(self.messages))
        self.latest = self.saver.put(self.latest, made, {"source": "loop", "step": 1}, {})

    @property
    def content(self) -> int:
        """Bytes of the messages, as JSON."""
        return sum(len(encode(self.saver._codec.encode(message)).encode()) for message in self.messages)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "growth.db"


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The indexes of items that are encoded."""
    found: list[int] = []
    text = ListEncoder._text

    def counted(self: ListEncoder, items: Any, index: int, path: Any) -> str:
        found.append(index)
        return text(self, items, index, path)

    monkeypatch.setattr(ListEncoder, "_text", counted)
    return found


def stored(path: Path) -> int:
    """Bytes of the database, once nothing waits in its log."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size


def items_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        ((count,),) = connection.execute("SELECT sum(count) FROM locus_runs").fetchall()
    return int(count)


def test_a_thread_of_checkpoints_takes_at_most_three_times_its_content(path: Path) -> None:
    sizes: dict[int, int] = {}
    with LocusSaver(f"sqlite:{path}", durability="normal") as saver:
        converser = Converser(saver)
        for number in range(300):
            converser.put(*turn_messages(number))
            if number in (99, 199, 299):
                sizes[number] = stored(path)
        content = converser.content
    assert items_of(path) == 1_200
    assert sizes[299] < 3 * content
    assert sizes[299] - sizes[199] < 1.2 * (sizes[199] - sizes[99])


def test_a_graph_with_its_pending_writes_grows_linearly(path: Path) -> None:
    """What a task returns is kept twice, as a pending write and in the state, and what comes in once more.

    Each write is packed; all together takes less than three times the content.
    """
    number = 0
    sizes: dict[int, int] = {}
    with LocusSaver(f"sqlite:{path}", durability="normal") as saver:
        graph = chat(saver, lambda _state: {"messages": turn_messages(number)[1:]})
        for number in range(120):
            graph.invoke({"messages": turn_messages(number)[:1]}, thread(), durability="sync")
            if number in (39, 79, 119):
                sizes[number] = stored(path)
        converser = Converser(saver)
        converser.load()
        content = converser.content
    assert len(converser.messages) == 480
    assert sizes[119] - sizes[79] < 1.2 * (sizes[79] - sizes[39])
    assert sizes[119] < 3 * content


@pytest.mark.parametrize("warm", [True, False])
def test_a_put_encodes_only_what_is_new(path: Path, encoded: list[int], warm: bool) -> None:
    with LocusSaver(f"sqlite:{path}") as saver:
        converser = Converser(saver)
        converser.put(*(message for number in range(150) for message in turn_messages(number)))
        assert len(encoded) == 600
        for number in range(150, 155):
            encoded.clear()
            if not warm:
                converser.load()
            converser.put(*turn_messages(number))
            assert encoded == list(range(number * 4, number * 4 + 4))
    assert items_of(path) == 620


def test_a_process_that_knows_nothing_yet_writes_only_what_is_new(path: Path, encoded: list[int]) -> None:
    with LocusSaver(f"sqlite:{path}") as saver:
        converser = Converser(saver)
        for number in range(100):
            converser.put(*turn_messages(number))
    for number in range(100, 104):
        with LocusSaver(f"sqlite:{path}") as saver:
            converser = Converser(saver)
            converser.load()
            encoded.clear()
            converser.put(*turn_messages(number))
            assert encoded == list(range(number * 4, number * 4 + 4))
    assert items_of(path) == 416


def test_processes_that_take_turns_write_only_what_is_new(path: Path, encoded: list[int]) -> None:
    with LocusSaver(f"sqlite:{path}") as one, LocusSaver(f"sqlite:{path}") as other:
        savers = [Converser(one), Converser(other)]
        savers[0].put(*turn_messages(0))
        for number in range(1, 40):
            converser = savers[number % 2]
            converser.load()
            encoded.clear()
            converser.put(*turn_messages(number))
            assert len(encoded) == 4
    assert items_of(path) == 160


def test_a_fork_shares_what_was_before_it(path: Path) -> None:
    with LocusSaver(f"sqlite:{path}") as saver:
        converser = Converser(saver)
        for number in range(50):
            converser.put(*turn_messages(number))
        past = list(saver.list(thread(), limit=10))[-1]
        for number in range(2):
            converser.latest = past.config
            converser.messages = past.checkpoint["channel_values"]["messages"]
            converser.put(HumanMessage(f"fork {number}"))
        found = saver.get_tuple(thread())
    assert items_of(path) == 202
    assert found is not None
    assert found.checkpoint["channel_values"]["messages"][-1].content == "fork 1"


def test_a_message_that_a_task_has_changed_is_stored_anew_however_old(path: Path) -> None:
    with LocusSaver(f"sqlite:{path}") as saver:
        graph = chat(saver, _redact)
        first = [HumanMessage(f"secret {number}", id=str(number)) for number in range(600)]
        graph.invoke({"messages": first}, thread())
        for _ in range(2):
            found = texts(graph.get_state(thread()))
            assert found[:3] == ["secret 0", "redacted", "secret 2"]
            saver._cache = cache.SaverCache()


def _redact(state: Any) -> dict[str, Any]:
    message = state["messages"][1]
    message.content = "redacted"
    return {"messages": [message]}


def test_a_change_is_not_forgotten_because_a_save_failed(path: Path) -> None:
    with LocusSaver(f"sqlite:{path}") as saver:
        first = [HumanMessage(f"secret {number}", id=str(number)) for number in range(400)]
        latest = saver.put(thread(checkpoint_ns=""), checkpoint([*first], 1), {}, {})
        first[1].content = "redacted"
        saver.put_writes(latest, [("messages", [first[1]])], "task")
        broken: Any = checkpoint([*first], 2)
        broken["channel_values"]["other"] = object()
        with pytest.raises(SerializationError):
            saver.put(latest, broken, {}, {})
        for number in range(2):  # two runs that went on from the same checkpoint
            saver.put(latest, checkpoint([*first, HumanMessage(f"run {number}")], 3), {}, {})
            found = saver.get_tuple(thread())
            assert found is not None
            assert [one.content for one in found.checkpoint["channel_values"]["messages"][:2]] == [
                "secret 0",
                "redacted",
            ]


def test_what_is_remembered_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache.SaverCache, "MAX_ITEMS", 100)
    monkeypatch.setattr(cache.SaverCache, "MAX_NAMESPACES", 5)
    with LocusSaver(f"sqlite:{path}") as saver:
        for number in range(12):
            saver.put(thread(f"t{number}", checkpoint_ns=""), checkpoint(turn_messages(number) * 10, 1), {}, {})
            saver.get_tuple(thread(f"t{number // 2}"))
            saver.put_writes(thread(f"w{number}", checkpoint_ns="", checkpoint_id="x"), [("a", [{}])], "task")
            saved = saver._cache
            assert len(saved._checkpoints) <= 5
            assert saved._weight == sum(one.weight for one in saved._checkpoints.values())
            assert saved._weight <= 100 or len(saved._checkpoints) == 1
            assert len(saved._touched) <= 5
            saver.put_writes(thread("w", checkpoint_ns="", checkpoint_id=f"c{number}"), [("a", [{}])], "task")
            assert len(saved._touched["w", ""]) <= saved.MAX_STEPS
        for number in range(12):
            found = saver.get_tuple(thread(f"t{number}"))
            assert found is not None
            assert len(found.checkpoint["channel_values"]["messages"]) == 40
