"""Graphs that several processes run, and that some of them do not survive."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from langgraph.types import Durability

from locus.integrations.langgraph.saver import LocusSaver
from locus.testing.processes.workers import Crew
from tests.integrations.langgraph.graphs import Graph, chat, said, texts, thread
from tests.integrations.langgraph.jobs import (
    ask_deep_agent,
    converse,
    die_beside_other_tasks,
    die_in_a_step,
    noting_in,
    parts,
)

pytestmark = pytest.mark.crash


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    with Crew(f"sqlite:{tmp_path / 'graphs.db'}", ["tests.integrations.langgraph.jobs"]) as crew:
        yield crew


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_run_that_was_killed_goes_on_where_it_was(crew: Crew, tmp_path: Path, durability: Durability) -> None:
    notes = tmp_path / "notes"
    worker = crew.start(die_in_a_step, url=crew.url, notes=str(notes), durability=durability)
    worker.hear_out()
    assert worker.killed
    with LocusSaver(crew.url) as saver:
        graph: Graph = noting_in(notes, "a", "b", "c").compile(checkpointer=saver)
        kept = graph.get_state(thread())
        found = graph.invoke(None if kept.next else {"log": []}, thread())
    assert found["log"] == ["a", "b", "c"]
    # What is kept only at the end of a run is not there; what is kept at once, is; between the two it is a race.
    again = {"sync": ["b", "c"], "exit": ["a", "b", "c"]}
    assert notes.read_text().split()[2:] in ([again[durability]] if durability in again else again.values())


def test_tasks_that_were_done_before_the_kill_are_not_done_again(crew: Crew, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    worker = crew.start(die_beside_other_tasks, url=crew.url, notes=str(notes))
    worker.hear_out()
    assert worker.killed
    with LocusSaver(crew.url) as saver:
        found = parts(saver, notes, deadly=False).invoke(None, thread())
    assert found["done"] == ["part 1", "part 2", "part 3", "3 parts"]
    assert sorted(notes.read_text().split()) == ["1", "2", "3"]


def test_two_processes_on_one_thread_lose_nothing(crew: Crew) -> None:
    workers = [crew.start(converse, url=crew.url, name=name, turns=6) for name in ("one", "two")]
    crew.together(workers)
    heard = [message["said"] for worker in workers for message in worker.hear_out()]
    assert len(heard) == 12
    with LocusSaver(crew.url) as saver:
        states = list(chat(saver).get_state_history(thread()))
    assert len(states) == 36
    kept = {text for state in states if state.values for text in texts(state)}
    assert {text for name in heard for text in (name, f"answer to {name}")} <= kept


def test_what_was_acknowledged_survives_any_kill(crew: Crew) -> None:
    chance = random.Random(5)
    with LocusSaver(crew.url) as saver:
        graph = chat(saver)
        acknowledged: list[str] = []
        for number in range(8):
            worker = crew.start(converse, url=crew.url, name=f"process {number}", turns=1_000)
            crew.together([worker], head_start=0)
            heard = [worker.hear() for _ in range(chance.randrange(4))]
            heard += [*worker.hear_until(time.monotonic() + chance.uniform(0, 0.02)), *worker.kill()]
            acknowledged += [message["said"] for message in heard]
            found = texts(graph.get_state(thread())) if graph.get_state(thread()).values else []
            assert [text for text in found if text in set(acknowledged)] == acknowledged
        assert acknowledged
        assert texts(graph.invoke(said("the end"), thread()))[-1] == "answer to the end"
        for state in graph.get_state_history(thread()):
            assert graph.get_state(state.config).values == state.values


def test_a_deep_agent_goes_on_in_another_process(crew: Crew) -> None:
    first = crew.start(ask_deep_agent, url=crew.url, question="Where is the station? Write it down.").finish()
    assert first["files"] == {}
    assert first["todos"] == [{"content": "write it down", "status": "in_progress"}]
    assert first["next"]
    approved = {"decisions": [{"type": "approve"}]}
    second = crew.start(ask_deep_agent, url=crew.url, question=approved).finish()
    assert second["files"] == {"/note.md": "the station is in the north"}
    assert second["texts"][-1] == "It is written down."
    third = crew.start(ask_deep_agent, url=crew.url, question="Where was it?").finish()
    assert third["files"] == second["files"]
    assert third["todos"] == [{"content": "write it down", "status": "completed"}]
    assert third["texts"][-1] == "It is in the north."
    assert any("the station is in the north" in text for text in third["texts"][len(second["texts"]) :])
    assert third["texts"][: len(second["texts"])] == second["texts"]
