"""Keeping only the newest checkpoint while a step is under way."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Durability, Send, interrupt

from locus.integrations.langgraph.saver import LocusSaver
from tests.integrations.langgraph.graphs import Graph, thread


def joined(state: list[str], writes: Sequence[list[str]]) -> list[str]:
    return [*state, *(item for write in writes for item in write)]


class Plain(TypedDict):
    log: Annotated[list[str], operator.add]


class Delta(TypedDict):
    log: Annotated[list[str], DeltaChannel(joined)]


class Tool(TypedDict):
    n: int
    log: Annotated[list[str], operator.add]


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[LocusSaver]:
    with LocusSaver(f"sqlite:{tmp_path / 'agents.db'}") as saver:
        yield saver


def tools(saver: LocusSaver, state: type, runs: Counter[int], *, in_subgraph: bool) -> Graph:
    """Four tools at once. Two of them ask a person first."""

    def tool(given: Any) -> dict[str, Any]:
        number = given["n"]
        answer = interrupt(f"tool {number}?") if number % 2 else "alone"
        runs[number] += 1
        return {"log": [f"tool {number} {answer}"]}

    inner: Any = tool
    if in_subgraph:
        tools_of_its_own: Any = StateGraph(Tool)
        inner = tools_of_its_own.add_node("inner", tool).add_edge(START, "inner").compile()
    builder: Any = StateGraph(state)
    builder.add_node("plan", lambda _: {"log": ["plan"]}).add_node("tool", inner)
    builder.add_node("end", lambda _: {"log": ["end"]}).add_edge(START, "plan").add_edge("tool", "end")
    builder.add_conditional_edges("plan", lambda _: [Send("tool", {"n": number}) for number in range(4)], ["tool"])
    graph: Graph = builder.compile(checkpointer=saver)
    return graph


def _prune(saver: LocusSaver) -> None:
    saver.prune(["t"])


def _vacuum(saver: LocusSaver) -> None:
    saver._run(saver.store.vacuum(None, 1, False))


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("in_subgraph", [False, True])
@pytest.mark.parametrize("state", [Plain, Delta])
@pytest.mark.parametrize("keep_newest", [_prune, _vacuum])
def test_a_tool_that_has_finished_does_not_run_again(
    saver: LocusSaver,
    keep_newest: Callable[[LocusSaver], None],
    state: type,
    in_subgraph: bool,
    durability: Durability,
) -> None:
    runs = Counter[int]()
    graph = tools(saver, state, runs, in_subgraph=in_subgraph)
    graph.invoke({"log": ["in"]}, thread(), durability=durability)
    asked = 0
    while waiting := (before := graph.get_state(thread())).interrupts:
        assert before.values["log"][:2] == ["in", "plan"]
        keep_newest(saver)
        after = graph.get_state(thread())
        assert (after.interrupts, after.values) == (waiting, before.values)
        graph.invoke(Command(resume={waiting[0].id: "yes"}), thread(), durability=durability)
        asked += 1
    keep_newest(saver)
    assert asked == 2
    assert runs == Counter(range(4))
    tools_said = ["tool 0 alone", "tool 1 yes", "tool 2 alone", "tool 3 yes"]
    assert graph.get_state(thread()).values["log"] == ["in", "plan", *tools_said, "end"]
