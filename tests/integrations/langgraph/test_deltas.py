"""LangGraph's delta channels: values that are told by what was written since the last snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Durability, Overwrite

from locus.integrations.langgraph.saver import LocusSaver
from locus.memory.backends.sqlite.engine import SQLiteEngine
from locus.memory.model.records import Ancestor
from tests.integrations.langgraph.graphs import Graph, thread


def joined(state: list[str], writes: Sequence[list[str]]) -> list[str]:
    """Depends on the order of writes, as most reducers do."""
    return [*state, *(item for write in writes for item in write)]


class Notes(TypedDict):
    notes: Annotated[list[str], DeltaChannel(joined, snapshot_frequency=4)]
    rare: Annotated[list[str], DeltaChannel(joined, snapshot_frequency=1_000)]
    turn: int


def graph_of(saver: BaseCheckpointSaver[Any]) -> Graph:
    """Three nodes at once, all of which add notes, and one that counts."""
    builder = StateGraph(Notes)
    for name in ("zebra", "ant", "mule"):
        builder.add_node(name, lambda state, name=name: {"notes": [f"{name} {state['turn']}"]})
        builder.add_edge(START, name)
    builder.add_node("count", lambda state: {"turn": state["turn"] + 1, "rare": [str(state["turn"])]})
    builder.add_edge(["zebra", "ant", "mule"], "count")
    return builder.compile(checkpointer=saver)


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[LocusSaver]:
    with LocusSaver(f"sqlite:{tmp_path / 'deltas.db'}") as saver:
        yield saver


def history(graph: Graph) -> list[Any]:
    return [state.values for state in graph.get_state_history(thread())]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_delta_channel_is_what_it_is_in_memory(saver: LocusSaver, durability: Durability) -> None:
    ours, theirs = graph_of(saver), graph_of(InMemorySaver())
    for number in range(7):
        for graph in (ours, theirs):
            graph.invoke(
                {"notes": [f"turn {number}"], **({} if number else {"turn": 0})}, thread(), durability=durability
            )
    assert ours.get_state(thread()).values == theirs.get_state(thread()).values
    assert ours.get_state(thread()).values["rare"] == list("0123456")
    assert history(ours) == history(theirs)


async def test_it_is_the_same_for_an_async_graph(saver: LocusSaver) -> None:
    graph = graph_of(saver)
    for number in range(5):
        await graph.ainvoke({"notes": [f"turn {number}"], **({} if number else {"turn": 0})}, thread())
    state = await graph.aget_state(thread())
    assert state.values["notes"][:4] == ["turn 0", "ant 0", "mule 0", "zebra 0"]
    assert len(state.values["notes"]) == 20


def test_forks_and_updates_see_only_their_own_line(saver: LocusSaver) -> None:
    graphs = graph_of(saver), graph_of(InMemorySaver())
    found = []
    for graph in graphs:
        for number in range(4):
            graph.invoke({"notes": [f"turn {number}"], **({} if number else {"turn": 0})}, thread())
        past = next(s for s in graph.get_state_history(thread()) if s.values.get("turn") == 2 and not s.next)
        graph.invoke({"notes": ["fork"]}, past.config)
        graph.update_state(thread(), {"notes": ["by hand"]}, as_node="count")
        graph.update_state(thread(), {"notes": Overwrite(["anew"])}, as_node="count")
        graph.invoke({"notes": ["on"]}, thread())
        found.append((graph.get_state(thread()).values, history(graph)))
    assert found[0] == found[1]
    assert found[0][0]["notes"] == ["anew", "on", "ant 3", "mule 3", "zebra 3"]


def test_a_prune_keeps_what_the_latest_is_made_from(saver: LocusSaver) -> None:
    graph = graph_of(saver)
    for number in range(6):
        graph.invoke({"notes": [f"turn {number}"], **({} if number else {"turn": 0})}, thread())
    before = graph.get_state(thread()).values
    saver.prune(["t"])
    assert graph.get_state(thread()).values == before
    graph.invoke({"notes": ["after"]}, thread())
    assert graph.get_state(thread()).values["notes"] == [*before["notes"], "after", "ant 6", "mule 6", "zebra 6"]


class Short(TypedDict):
    notes: Annotated[list[str], DeltaChannel(joined, snapshot_frequency=4)]


def test_a_prune_goes_back_no_further_than_the_snapshot(saver: LocusSaver) -> None:
    builder = StateGraph(Short).add_node("add", lambda state: {"notes": [str(len(state["notes"]))]})
    graph: Graph = builder.add_edge(START, "add").compile(checkpointer=saver)
    for _ in range(21):
        graph.invoke({"notes": ["in"]}, thread())
    before = graph.get_state(thread()).values
    assert len(list(saver.list(thread()))) == 63
    saver.prune(["t"])
    assert graph.get_state(thread()).values == before
    assert 1 < len(list(saver.list(thread()))) < 15


def test_a_copy_has_the_whole_line(saver: LocusSaver) -> None:
    graph = graph_of(saver)
    for number in range(3):
        graph.invoke({"notes": [f"turn {number}"], **({} if number else {"turn": 0})}, thread())
    saver.copy_thread("t", "copy")
    copied = [state.values for state in graph.get_state_history(thread("copy"))]
    assert copied == history(graph)


def test_a_run_that_is_deleted_takes_along_what_it_wrote_and_no_more(saver: LocusSaver) -> None:
    graph = graph_of(saver)
    for number in range(3):
        config: RunnableConfig = {**thread(), "metadata": {"run_id": f"run {number}"}}
        graph.invoke({"notes": [f"turn {number}"], **({} if number else {"turn": 0})}, config)
    saver.delete_for_runs(["run 2"])
    notes = graph.get_state(thread()).values["notes"]
    assert [note for note in notes if note.startswith("turn")] == ["turn 0", "turn 1"]


def test_a_channel_nobody_wrote_to_has_no_history(saver: LocusSaver) -> None:
    graph = graph_of(saver)
    graph.invoke({"notes": ["a"], "turn": 0}, thread())
    assert saver.get_delta_channel_history(config=thread(), channels=[]) == {}
    assert saver.get_delta_channel_history(config=thread(), channels=["nothing"]) == {"nothing": {"writes": []}}
    assert saver.get_delta_channel_history(config=thread("none"), channels=["x"]) == {"x": {"writes": []}}


@pytest.mark.parametrize("channel", [Short, Notes])
def test_a_turn_asks_the_same_few_questions_however_long_the_thread(
    saver: LocusSaver, monkeypatch: pytest.MonkeyPatch, channel: type
) -> None:
    asked: Counter[str] = Counter()
    lines: list[int] = []
    for name in ("read", "read_since", "read_with_writes", "read_part", "history", "entry", "export", "get_writes"):
        monkeypatch.setattr(SQLiteEngine, name, _noting(getattr(SQLiteEngine, name), asked, name))
    ancestors = SQLiteEngine.ancestors

    async def noted(self: SQLiteEngine, *args: Any) -> list[Ancestor]:
        asked["ancestors"] += 1
        found = await ancestors(self, *args)
        lines.append(len(found))
        return found

    monkeypatch.setattr(SQLiteEngine, "ancestors", noted)
    builder: Any = StateGraph(channel)
    builder.add_node("add", lambda state: {"notes": [f"a note {len(state['notes'])}" * 200]})
    graph: Graph = builder.add_edge(START, "add").compile(checkpointer=saver)
    for _ in range(30):
        asked.clear()
        graph.invoke({"notes": ["in"]}, thread())
        assert asked["read_with_writes"] == 1
        assert asked["ancestors"] <= 1, "a checkpoint may have a snapshot itself"
        # A snapshot that was taken since the last turn is read once.
        assert asked.total() - asked["ancestors"] <= 2
        assert not asked["history"] + asked["export"]
    assert len(lines) > 10
    assert max(lines) <= 8, "each second turn takes a snapshot"
    assert len(graph.get_state(thread()).values["notes"]) == 60


def _noting(method: Any, asked: Counter[str], name: str) -> Any:
    async def noted(*args: Any, **options: Any) -> Any:
        asked[name] += 1
        return await method(*args, **options)

    return noted
