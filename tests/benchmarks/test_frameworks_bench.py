"""Turns through frameworks are measured on what all sides kept, and the table can say no. No test depends on speed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.clock import settled
from benchmarks.costs import FrameworkCost, SideCost
from benchmarks.frameworks.langgraph import Deltas, PostgreSQLGraph, SQLiteGraph, WholeList
from benchmarks.frameworks.openai_agents import OpenAISubject
from benchmarks.frameworks.running import driven, measure_framework, measure_subject, modules, subjects
from benchmarks.frameworks.subject import FrameworkSubject, Side
from benchmarks.frameworks.table import framework_figures, framework_notes, framework_table
from benchmarks.settings import QUICK

SETTINGS = replace(QUICK, framework_lengths=(2, 5), framework_rounds=2, loads=1)


async def test_all_sides_keep_the_same_and_are_timed(tmp_path: Path) -> None:
    short, long = await measure_subject(OpenAISubject(), SETTINGS, tmp_path)
    assert (short.length, long.length) == (2, 5)
    for cost in (short, long):
        for side in (cost.ours, cost.theirs, cost.floor):
            assert side is not None
            assert side.turn_ms > 0
            assert side.newest_ms > 0
        assert cost.content_bytes > 2_700 * cost.length
        assert cost.ours is not None
        assert cost.ours.stored_bytes is not None
        assert cost.ours.stored_bytes > cost.content_bytes
        assert cost.floor is not None
        assert cost.floor.added_bytes is None
        assert cost.adds(cost.ours) == cost.ours.turn_ms - cost.floor.turn_ms


@pytest.mark.parametrize("state", [WholeList, Deltas])
def test_a_graph_is_called_without_an_event_loop(tmp_path: Path, state: type) -> None:
    settings = replace(SETTINGS, framework_lengths=(3,))
    (cost,) = driven(measure_subject(SQLiteGraph(state, blocking=True), settings, tmp_path))
    assert cost.ours is not None
    assert cost.theirs is not None
    assert cost.own == "`SqliteSaver`"


@pytest.mark.postgresql
@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("state", [WholeList, Deltas])
def test_a_long_thread_is_begun_in_bulk_and_goes_on_turn_by_turn(tmp_path: Path, state: type, blocking: bool) -> None:
    class ShortGraph(PostgreSQLGraph):
        one_by_one = 8

    settings = replace(SETTINGS, framework_lengths=(40,))
    work = measure_subject(ShortGraph(state, blocking=blocking), settings, tmp_path)
    (cost,) = driven(work) if blocking else asyncio.run(work)
    for side in (cost.ours, cost.theirs):
        assert side is not None
        assert side.stored_bytes is None, "a thread that was made in bulk takes less than one that grew"
        assert side.added_bytes is not None


async def test_a_long_thread_has_all_its_messages(tmp_path: Path) -> None:
    subject = SQLiteGraph(Deltas, blocking=False)
    for make in (subject.floor, subject.ours, subject.theirs):
        place = tmp_path / make.__name__
        place.mkdir()
        side = make(place)
        await side.open()
        await side.save_many("long", [subject.turn(number) for number in range(60)])
        assert [message.id for message in await side.newest("long", 500)] == [
            message.id for number in range(60) for message in subject.turn(number)
        ]
        await side.close()


class OnlyOurs(OpenAISubject):
    own: str | None = None
    in_memory: str | None = None


async def test_a_framework_without_a_store_of_its_own_is_measured_alone(tmp_path: Path) -> None:
    costs = await measure_subject(OnlyOurs(), SETTINGS, tmp_path)
    assert [(cost.theirs, cost.floor) for cost in costs] == [(None, None), (None, None)]
    assert not list(tmp_path.rglob("theirs"))
    assert [figure.what for figure in framework_figures(costs)] == [
        "a save, at 5 ÷ at 2 turns",
        "the newest 20 messages, at 5 ÷ at 2 turns",
        "stored bytes ÷ content, at 5 turns",
    ]


async def test_a_store_that_is_too_slow_is_left_out_and_named(tmp_path: Path) -> None:
    settings = replace(SETTINGS, framework_growth_seconds=-1.0)
    cost, _ = await measure_subject(OpenAISubject(), settings, tmp_path)
    assert (cost.ours, cost.theirs, cost.floor) == (None, None, None)
    assert "theirs: 1 turns in" in cost.note
    assert "| 2 | – | – | – | – | – | – | – | – | – | – |" in framework_table([cost])
    assert "2 turns: ours: 1 turns in" in framework_notes([cost], {})
    assert framework_figures([cost]) == []


def test_what_a_store_adds_is_not_told_where_the_floor_was_left_out() -> None:
    cost = replace(graph(10_000), floor=None)
    assert (cost.adds(cost.ours), cost.adds(cost.theirs)) == (None, None)
    assert framework_figures([graph(30), cost]) == framework_figures([graph(30)])


class Forgetful(Side):
    """Keeps nothing."""

    async def save(self, session_id: str, turn: Any) -> None:
        pass

    async def newest(self, session_id: str, count: int) -> list[Any]:
        return []


class ForgetfulSubject(OpenAISubject):
    def theirs(self, folder: Path) -> Side:
        return Forgetful(folder)


async def test_figures_of_a_store_that_forgets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="have not kept the same"):
        await measure_subject(ForgetfulSubject(), SETTINGS, tmp_path)


def test_what_has_to_wait_is_no_blocking_program() -> None:
    async def waits() -> None:
        await loop.create_future()

    driven(settled())
    loop = asyncio.new_event_loop()
    with pytest.raises(RuntimeError, match="has to wait"):
        driven(waits())
    loop.close()


def session(length: int, ours: SideCost, theirs: SideCost | None) -> FrameworkCost:
    return FrameworkCost("A framework", "`save`", "SQLite", "`Own`", None, length, 3_000 * length, ours, theirs, None)


@pytest.mark.parametrize(
    ("ours", "missed"),
    [
        (SideCost(1.0, 1.0, 1.0, 4_000_000), []),
        (SideCost(1.09, 1.0, 1.0, 4_000_000), ["a save ÷ the framework's own, at 1,000 turns"]),
        (SideCost(1.0, 1.0, 1.0, 4_600_000), ["stored bytes ÷ content, at 1,000 turns"]),
        (SideCost(1.0, 1.3, 1.0, 4_000_000), ["the newest 20 messages, at 1,000 ÷ at 10 turns"]),
    ],
)
def test_sessions_that_cost_too_much_are_told(ours: SideCost, missed: list[str]) -> None:
    own = SideCost(1.0, 1.0, 1.0, 60_000)
    costs = [session(10, own, own), session(1_000, ours, replace(own, turn_ms=1.05, newest_ms=30.0))]
    assert [figure.what for figure in framework_figures(costs) if not figure.ok] == missed
    assert f"| 1,000 | – | 1.05 | {ours.turn_ms:.3g} |" in framework_table(costs)


def graph(length: int, ours: float = 5.0, theirs: float = 6.0) -> FrameworkCost:
    sides = (SideCost(ours + 2, 1.0, 1.0), SideCost(theirs + 2, 1.0, 1.0), SideCost(2.0, 1.0))
    return FrameworkCost("LangGraph, x", "`invoke`", "PostgreSQL", "`Own`", "`Memory`", length, 3_000 * length, *sides)


@pytest.mark.parametrize(
    ("costs", "missed"),
    [
        ([graph(30), graph(400, 3.0), graph(10_000, 6.4)], []),
        ([graph(30), graph(400, -3.0, -1.0), graph(10_000, -6.4)], []),
        ([graph(30, 6.1), graph(400, 3.0)], ["what the saver adds to a turn ÷ what LangGraph's own adds, at 30 turns"]),
        ([graph(30), graph(400, 3.1)], ["what the saver adds to a turn ÷ what LangGraph's own adds, at 400 turns"]),
        ([graph(30), graph(10_000, 6.6)], ["what the saver adds to a turn, at 10,000 ÷ at 30 turns"]),
    ],
)
def test_savers_that_cost_too_much_are_told(costs: Sequence[FrameworkCost], missed: list[str]) -> None:
    assert [figure.what for figure in framework_figures(costs) if not figure.ok] == missed


def test_a_store_that_does_less_than_the_one_in_memory_shows_it() -> None:
    assert "| 2 | 8 | 0.5 | 6 | −1.5 | 0.00 |" in framework_table([graph(10_000, -1.5)])


def test_subjects_are_found_by_being_there() -> None:
    assert modules()[0] == "langgraph"
    assert {"a2a", "agent_framework", "crewai", "llmfy", "openai_agents", "strands"} < {*modules()}
    assert modules(["strands"]) == ["strands"]
    with pytest.raises(SystemExit, match="openai_agents"):
        modules(["nothing"])
    assert [subject.name for subject in subjects("claude_agent_sdk")] == ["Claude Agent SDK"]
    assert not any(subject.peers for subject in subjects("google_adk"))
    assert any(subject.peers for subject in subjects("google_adk", peers=True))


@pytest.mark.parametrize("module", ["agent_framework", "claude_agent_sdk", "google_adk", "pydantic_ai", "strands"])
def test_every_framework_is_measured(tmp_path: Path, module: str) -> None:
    settings = replace(SETTINGS, framework_lengths=(3,))
    costs, versions = measure_framework(module, settings, tmp_path, lambda _: None, peers=False)
    assert all(cost.ours is not None and cost.ours.turn_ms > 0 for cost in costs)
    assert {cost.framework for cost in costs} == {subject.name for subject in subjects(module)}
    assert versions.keys() >= {name for subject in subjects(module) for name in subject.libraries}
    assert "SQLite" in versions


def test_a_framework_with_an_environment_of_its_own_is_measured_there(tmp_path: Path) -> None:
    settings = replace(SETTINGS, framework_lengths=(3,))
    (cost,), versions = measure_framework("crewai", settings, tmp_path, lambda _: None, peers=True)
    assert cost.theirs is not None
    assert cost.theirs.turn_ms > 0
    assert {"crewai", "SQLite"} == {*versions}
    assert measure_framework("crewai", settings, tmp_path, lambda _: None, peers=False) == ([], {})


def test_turns_are_weighed_as_they_are(tmp_path: Path) -> None:
    subject: FrameworkSubject = SQLiteGraph(WholeList, blocking=True)
    assert 2_700 < subject.content(subject.turn(3)) < 4_000
