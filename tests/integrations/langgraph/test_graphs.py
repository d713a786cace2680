"""Real graphs on a real database: what LangGraph promises of a checkpointer, it keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, RemoveMessage
from langgraph.func import entrypoint, task
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, Durability, StateSnapshot, interrupt

from locus.integrations.langgraph.saver import LocusSaver
from tests.backends.postgresql.store import new_store
from tests.integrations.langgraph.graphs import Graph, asking, chat, fan, line, nested, parallel, said, texts, thread
from tests.integrations.langgraph.test_types import ALLOWED, VALUES, same
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.proxy import Proxy

DURABILITIES: tuple[Durability, ...] = ("sync", "async", "exit")


class Scenarios:
    """The same for every store: what matters to all of them."""

    def test_a_conversation_goes_on_in_a_new_process(self, url: str) -> None:
        for number in range(3):
            with LocusSaver(url) as saver:
                found = chat(saver).invoke(said(f"question {number}"), thread())
        assert texts(found) == [text for n in range(3) for text in (f"question {n}", f"answer to question {n}")]

    async def test_an_async_graph_is_the_same(self, url: str) -> None:
        async with LocusSaver(url) as saver:
            graph = chat(saver)
            for number in range(3):
                await graph.ainvoke(said(f"question {number}"), thread())
            assert len(texts(await graph.aget_state(thread()))) == 6
            history = [texts(state) async for state in graph.aget_state_history(thread()) if state.values]
        assert [len(found) for found in history] == [6, 5, 4, 4, 3, 2, 2, 1, 0]

    def test_a_human_answers_after_a_restart(self, url: str) -> None:
        with LocusSaver(url) as saver:
            stopped = asking(saver).invoke({"log": []}, thread())
        assert [one.value for one in stopped["__interrupt__"]] == [{"question": "first"}]
        with LocusSaver(url) as saver:
            graph = asking(saver)
            assert graph.get_state(thread()).next == ("ask",)
            assert graph.get_state(thread()).interrupts[0].value == {"question": "first"}
            assert "__interrupt__" in graph.invoke(Command(resume="one"), thread())
        with LocusSaver(url) as saver:
            found = asking(saver).invoke(Command(resume="two"), thread())
        assert found["log"] == ["before", "one and two", "after"]

    def test_subgraphs_have_histories_of_their_own(self, url: str) -> None:
        with LocusSaver(url) as saver:
            graph = nested(saver)
            graph.invoke({"log": []}, thread())
            stopped = graph.get_state(thread(), subgraphs=True)
            within = stopped.tasks[0].state
            assert isinstance(within, StateSnapshot)
            inside = within.tasks[0].state
            assert isinstance(inside, StateSnapshot)
            assert inside.values == {"log": ["outer", "inner"]}
            namespaces = {found.config["configurable"]["checkpoint_ns"] for found in saver.list(thread())}
            assert sorted(name.count("|") for name in namespaces) == [0, 0, 1]
        with LocusSaver(url) as saver:
            found = nested(saver).invoke(Command(resume="yes"), thread())
        assert found["log"] == ["outer", "outer", "outer", "inner", "asked: yes", "middle"]

    def test_values_of_every_kind_come_back(self, url: str) -> None:
        """In a list, beside one, and as a pending write; from a process that knows nothing."""
        keyed = {f"v{number}": value for number, value in enumerate(VALUES)}
        with LocusSaver(url, allowed_types=ALLOWED) as saver:
            made = _checkpoint("1")
            made["channel_values"] = {"list": list(VALUES), "one": {"nested": keyed}}
            put = saver.put(thread(checkpoint_ns=""), made, {"step": 1}, {})
            saver.put_writes(put, list(keyed.items()), "task", "path")
        with LocusSaver(url, allowed_types=ALLOWED) as saver:
            for found in (saver.get_tuple(thread()), *saver.list(None)):
                assert found is not None
                assert same(found.checkpoint["channel_values"], {"list": list(VALUES), "one": {"nested": keyed}})
                assert same({channel: value for _, channel, value in found.pending_writes or []}, keyed)
            made["id"] = "2"
            assert found is not None
            made["channel_values"]["list"] = [*found.checkpoint["channel_values"]["list"], "one more"]
            saver.put(put, made, {"step": 2}, {})
            again = saver.get_tuple(thread())
            assert again is not None
            assert same(again.checkpoint["channel_values"]["list"], [*VALUES, "one more"])

    def test_a_task_that_is_done_is_not_done_again(self, url: str) -> None:
        fails = True
        done: list[int] = []

        def work(part: Any) -> dict[str, Any]:
            if fails and part["number"] == 2:
                raise RuntimeError("not yet")
            done.append(part["number"])
            return {"done": [f"part {part['number']}"]}

        with LocusSaver(url) as saver, pytest.raises(RuntimeError, match="not yet"):
            fan(saver, work).invoke({"parts": [1, 2, 3]}, thread())
        assert sorted(done) == [1, 3]
        fails = False
        with LocusSaver(url) as saver:
            graph = fan(saver, work)
            failed = [found.error for found in graph.get_state(thread()).tasks if found.error]
            assert [str(error) for error in failed] == ["RuntimeError('not yet')"]
            found = graph.invoke(None, thread())
        assert found["done"] == ["part 1", "part 2", "part 3", "3 parts"]
        assert sorted(done) == [1, 2, 3]


def _checkpoint(checkpoint_id: str) -> Any:
    values: dict[str, Any] = {"channel_values": {}, "channel_versions": {}, "versions_seen": {}}
    return {"v": 4, "id": checkpoint_id, "ts": "2026-07-01T00:00:00+00:00", **values}


class TestSQLite(Scenarios):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:{tmp_path / 'graphs.db'}"


@pytest.mark.postgresql
class TestPostgreSQL(Scenarios):
    @pytest.fixture
    def url(self, postgresql_server: PostgreSQLServer) -> Iterator[str]:
        with Proxy(postgresql_server.port) as proxy, new_store(postgresql_server.url, proxy) as store:
            yield store.url


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[LocusSaver]:
    with LocusSaver(f"sqlite:///{tmp_path / 'graphs.db'}") as saver:
        yield saver


@pytest.mark.parametrize("durability", DURABILITIES)
def test_every_durability_keeps_the_end_of_a_run(saver: LocusSaver, durability: Durability) -> None:
    graph = line(saver, "a", "b", "c")
    for _ in range(2):
        graph.invoke({"log": []}, thread(), durability=durability)
    assert graph.get_state(thread()).values["log"] == ["a", "b", "c"] * 2
    steps = [state.metadata["step"] for state in graph.get_state_history(thread()) if state.metadata]
    assert steps == ([8, 3] if durability == "exit" else list(range(8, -2, -1)))


@pytest.mark.parametrize("durability", DURABILITIES)
def test_every_durability_keeps_an_interrupt(saver: LocusSaver, durability: Durability) -> None:
    graph = asking(saver)
    graph.invoke({"log": []}, thread(), durability=durability)
    graph.invoke(Command(resume="one"), thread(), durability=durability)
    found = graph.invoke(Command(resume="two"), thread(), durability=durability)
    assert found["log"] == ["before", "one and two", "after"]


def test_every_state_of_the_past_can_be_loaded(saver: LocusSaver) -> None:
    graph = chat(saver)
    for number in range(5):
        graph.invoke(said(str(number)), thread())
    states = list(graph.get_state_history(thread()))
    assert len(states) == 15
    for state in states:
        assert graph.get_state(state.config) == state
    parents = {state.config["configurable"]["checkpoint_id"]: state.parent_config for state in states}
    assert [states[number].parent_config for number in range(14)] == [states[n + 1].config for n in range(14)]
    assert parents[states[-1].config["configurable"]["checkpoint_id"]] is None


def test_a_thread_is_forked_from_its_past(saver: LocusSaver) -> None:
    graph = chat(saver)
    for number in range(3):
        graph.invoke(said(str(number)), thread())
    past = next(state for state in graph.get_state_history(thread()) if len(texts(state)) == 2 and not state.next)
    found = graph.invoke(said("other"), past.config)
    assert texts(found) == ["0", "answer to 0", "other", "answer to other"]
    assert texts(graph.get_state(thread())) == texts(found)
    lengths = [len(texts(state)) for state in graph.get_state_history(thread()) if state.values]
    assert lengths == [4, 3, 2, 6, 5, 4, 4, 3, 2, 2, 1, 0]


def test_a_step_of_the_past_is_run_again(saver: LocusSaver) -> None:
    graph = line(saver, "a", "b", "c")
    graph.invoke({"log": []}, thread())
    past = next(state for state in graph.get_state_history(thread()) if state.next == ("b",))
    assert graph.invoke(None, past.config)["log"] == ["a", "b", "c"]
    assert len(list(graph.get_state_history(thread()))) == 8


def test_a_state_is_updated_by_hand(saver: LocusSaver) -> None:
    graph = chat(saver)
    graph.invoke(said("0"), thread())
    graph.update_state(thread(), {"messages": [HumanMessage("corrected", id="h 0")]}, as_node="answer")
    assert texts(graph.get_state(thread())) == ["corrected", "answer to 0"]
    graph.update_state(thread(), {"messages": [RemoveMessage(id="h 0")]}, as_node="answer")
    assert texts(graph.get_state(thread())) == ["answer to 0"]
    assert [state.metadata["source"] for state in graph.get_state_history(thread()) if state.metadata][:2] == [
        "update"
    ] * 2
    past = list(graph.get_state_history(thread()))[1]
    forked = graph.update_state(past.config, {"messages": [HumanMessage("fork", id="f")]}, as_node="answer")
    assert texts(graph.get_state(forked)) == ["corrected", "answer to 0", "fork"]
    copied = graph.update_state(past.config, None, as_node="__copy__")
    assert texts(graph.get_state(copied)) == ["corrected", "answer to 0"]


def test_a_message_that_a_node_changes_in_place_is_kept_as_it_is(saver: LocusSaver) -> None:
    def shout(state: Any) -> dict[str, Any]:
        last = state["messages"][-1]
        last.content = str(last.content).upper()
        return {"messages": [last]}

    graph = chat(saver, shout)
    graph.invoke(said("hello"), thread())
    assert texts(graph.get_state(thread())) == ["HELLO"]


def test_a_conversation_is_summarised(saver: LocusSaver) -> None:
    def summarise(state: Any) -> dict[str, Any]:
        if len(state["messages"]) < 4:
            return {"messages": [HumanMessage("short")]}
        removed = RemoveMessage(id=REMOVE_ALL_MESSAGES)
        return {"messages": [removed, HumanMessage("all that", id="summary"), *state["messages"][-1:]]}

    graph = chat(saver, summarise)
    for number in range(3):
        graph.invoke(said(str(number)), thread())
    assert texts(graph.get_state(thread())) == ["all that", "2"]
    lengths = [len(texts(state)) for state in graph.get_state_history(thread()) if state.values]
    assert lengths == [2, 5, 4, 4, 3, 2, 2, 1, 0]


def test_parallel_nodes_all_keep_what_they_wrote(saver: LocusSaver) -> None:
    fails = True
    graph = parallel(saver, lambda: fails)
    with pytest.raises(RuntimeError, match="the second failed"):
        graph.invoke({"log": []}, thread())
    written = {found[1] for found in graph.checkpointer.get_tuple(thread()).pending_writes}  # type: ignore[union-attr]
    assert "__error__" in written
    fails = False
    assert graph.invoke(None, thread())["log"] == ["first", "second", "third", "last"]


def test_a_subgraph_with_a_memory_of_its_own_keeps_it(saver: LocusSaver) -> None:
    graph = nested(saver, stateful=True)
    for _ in range(2):
        graph.invoke({"log": []}, thread())
        found = graph.invoke(Command(resume="yes"), thread())
    assert found["log"].count("asked: yes") > 2


def test_a_namespace_may_be_longer_than_a_name_of_ours(saver: LocusSaver) -> None:
    long = "|".join(f"a rather long name of a node:{number:036}" for number in range(9))
    other = long.replace("long", "LONG")
    for namespace in (long, other):
        config = thread(checkpoint_ns=namespace)
        put = saver.put(config, _checkpoint("1" + namespace[9]), {"step": 1}, {})
        saver.put_writes(put, [("x", 1)], "task", "path " * 100)
    for namespace in (long, other):
        found = saver.get_tuple(thread(checkpoint_ns=namespace))
        assert found is not None
        assert found.config["configurable"]["checkpoint_ns"] == namespace
        assert found.checkpoint["id"] == "1" + namespace[9]
        assert found.pending_writes == [("task", "x", 1)]
        assert [one.config for one in saver.list(thread(checkpoint_ns=namespace))] == [found.config]
    assert {one.config["configurable"]["checkpoint_ns"] for one in saver.list(thread())} == {long, other}


def test_long_task_paths_keep_their_order(saver: LocusSaver) -> None:
    put = saver.put(thread(checkpoint_ns=""), _checkpoint("1"), {"step": 1}, {})
    paths = ["~" + "x" * 300 + letter for letter in "cab"] + ["~" + "x" * 299, "", "~~"]
    for number, path in enumerate(paths):
        saver.put_writes(put, [("a", path), ("b", number)], f"task {9 - number}", path)
    found = saver.get_tuple(put)
    assert found is not None
    assert [value for _, channel, value in found.pending_writes or [] if channel == "a"] == sorted(paths)


def test_the_functional_way_is_kept_too(saver: LocusSaver) -> None:
    done: list[int] = []

    @task
    def double(number: int) -> int:
        done.append(number)
        return number * 2

    @entrypoint(checkpointer=saver)
    def work(numbers: list[int], *, previous: Any = None) -> Any:
        results = [double(number).result() for number in numbers]
        answer = interrupt("sum?")
        return entrypoint.final(value=(previous, results), save=answer)

    work.invoke([1, 2], thread())
    assert work.invoke(Command(resume="a"), thread()) == (None, [2, 4])
    assert sorted(done) == [1, 2]
    work.invoke([3], thread())
    assert work.invoke(Command(resume="b"), thread()) == ("a", [6])


async def test_many_graphs_in_many_threads_of_many_loops_share_a_saver(saver: LocusSaver) -> None:
    graph: Graph = chat(saver)

    def converse(name: str) -> list[str]:
        for number in range(3):
            graph.invoke(said(f"{name} {number}"), thread(name))
        return texts(graph.get_state(thread(name)))

    async def converse_async(name: str) -> list[str]:
        for number in range(3):
            await graph.ainvoke(said(f"{name} {number}"), thread(name))
        return texts(await graph.aget_state(thread(name)))

    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(4) as pool:
        blocking = [loop.run_in_executor(pool, converse, f"b{number}") for number in range(4)]
        others = [loop.run_in_executor(pool, lambda n=n: asyncio.run(converse_async(f"l{n}"))) for n in range(2)]  # type: ignore[misc]
        found = await asyncio.gather(*blocking, *others, *(converse_async(f"a{number}") for number in range(4)))
    for name, one in zip([*(f"b{n}" for n in range(4)), "l0", "l1", *(f"a{n}" for n in range(4))], found, strict=True):
        assert one == [text for n in range(3) for text in (f"{name} {n}", f"answer to {name} {n}")]


def test_two_runs_on_one_thread_at_once_are_both_in_its_history(saver: LocusSaver) -> None:
    graph = chat(saver)
    graph.invoke(said("first"), thread())
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: graph.invoke(said(f"at once {n}"), thread()), range(4)))
    assert all(f"answer to at once {n}" in texts(state) for n, state in enumerate(found))
    kept = {text for state in graph.get_state_history(thread()) if state.values for text in texts(state)}
    assert {f"answer to at once {n}" for n in range(4)} <= kept
