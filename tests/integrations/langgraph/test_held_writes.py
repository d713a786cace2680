"""Writes that wait for the checkpoint that follows, so that both are one commit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from locus.errors import SerializationError
from locus.integrations.langgraph import held_writes
from locus.integrations.langgraph.saver import LocusSaver
from locus.memory.backends.sqlite.engine import SQLiteEngine
from locus.memory.model.records import Commit, Outcome
from tests.integrations.langgraph.graphs import chat, said, texts, thread


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[LocusSaver]:
    with LocusSaver(f"sqlite:{tmp_path / 'agents.db'}") as saver:
        yield saver


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[Commit]:
    """Every commit that reaches an SQLite file."""
    found: list[Commit] = []
    commit = SQLiteEngine.commit

    async def noted(self: SQLiteEngine, one: Commit) -> Outcome:
        found.append(one)
        return await commit(self, one)

    monkeypatch.setattr(SQLiteEngine, "commit", noted)
    return found


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the checkpoint that follows ends a wait, however slow the machine is."""
    monkeypatch.setattr(held_writes, "PATIENCE", 30.0)


def checkpoint(value: Any) -> Any:
    return {
        **empty_checkpoint(),
        "id": str(uuid6()),
        "channel_values": {"x": value},
        "channel_versions": {"x": 1},
    }


def config_of(checkpoint_id: str | None = None) -> RunnableConfig:
    named = {"thread_id": "t", "checkpoint_ns": ""}
    return {"configurable": named if checkpoint_id is None else {**named, "checkpoint_id": checkpoint_id}}


def found(saver: LocusSaver) -> list[Any]:
    loaded = saver.get_tuple(config_of())
    assert loaded is not None
    return [value for _, _, value in loaded.pending_writes or ()]


def test_a_save_takes_along_what_waits(saver: LocusSaver, commits: list[Commit], patient: None) -> None:
    first = saver.put(config_of(), checkpoint(1), {"step": 1}, {})
    with ThreadPoolExecutor(2) as pool:
        waits = pool.submit(saver.put_writes, first, [("x", "a")], "task")
        while not saver._waiting._held:
            pass
        saver.put(first, checkpoint(2), {"step": 2}, {})
        waits.result()
    assert [len(commit.writes) for commit in commits] == [0, 1]
    loaded = saver.get_tuple(first)
    assert loaded is not None
    assert loaded.pending_writes == [("task", "x", "a")]


async def test_a_save_takes_along_what_waits_on_an_event_loop(
    saver: LocusSaver, commits: list[Commit], patient: None
) -> None:
    first = await saver.aput(config_of(), checkpoint(1), {"step": 1}, {})
    waits = [asyncio.create_task(saver.aput_writes(first, [("x", n)], f"task {n}", f"{n}")) for n in range(3)]
    given_up = asyncio.create_task(saver.aput_writes(first, [("x", 3)], "task 3", "3"))
    await asyncio.sleep(0)
    given_up.cancel()
    await saver.aput(first, checkpoint(2), {"step": 2}, {})
    await asyncio.gather(*waits)
    assert len(commits) == 2
    loaded = await saver.aget_tuple(first)
    assert loaded is not None
    assert [value for _, _, value in loaded.pending_writes or ()][:3] == [0, 1, 2]


def test_writes_go_alone_if_no_checkpoint_follows(saver: LocusSaver, commits: list[Commit]) -> None:
    first = saver.put(config_of(), checkpoint(1), {"step": 1}, {})
    saver.put_writes(first, [("x", "a")], "task")
    assert found(saver) == ["a"]
    assert not saver._waiting._held
    assert len(commits) == 1


def test_writes_go_alone_if_the_save_fails(saver: LocusSaver, patient: None) -> None:
    first = saver.put(config_of(), checkpoint(1), {"step": 1}, {})
    refused = checkpoint(2)
    with ThreadPoolExecutor(2) as pool:
        waits = pool.submit(saver.put_writes, first, [("x", "a")], "task")
        while not saver._waiting._held:
            pass
        refused["channel_values"] = {"x": object()}
        with pytest.raises(SerializationError):
            saver.put(first, refused, {"step": 2}, {})
        with pytest.raises(SerializationError), saver._waiting.taken_along(("t", "", str(_id(first)))):
            raise SerializationError("the commit has failed")
        waits.result()
    assert found(saver) == ["a"]


def _id(config: RunnableConfig) -> Any:
    return config["configurable"]["checkpoint_id"]


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_turn_of_a_graph_is_three_commits(
    saver: LocusSaver, commits: list[Commit], patient: None, durability: Any
) -> None:
    graph = chat(saver)
    for number in range(3):
        graph.invoke(said(str(number)), thread(), durability=durability)
    assert len(texts(graph.get_state(thread()))) == 6
    assert [len(commit.writes) for commit in commits] == [0, 1, 1] * 3
