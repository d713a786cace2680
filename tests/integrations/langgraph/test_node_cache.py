"""`LocusCache`: the tests of LangGraph's own caches, with ours in their place, and what only ours has."""

from __future__ import annotations

import operator
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.cache.base import BaseCache, FullKey
from langgraph.cache.memory import InMemoryCache
from langgraph.graph import START, StateGraph
from langgraph.types import CachePolicy

from locus.errors import CorruptCheckpointError, SerializationError
from locus.integrations.langgraph import LocusCache
from locus.memory import get_checkpointer
from tests.backends.mysql.stores import new_name
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.redis import RedisServer

A: FullKey = (("ns", "a"), "k")
B: FullKey = (("ns",), "a,k")
C: FullKey = (("ns,a",), "k")


@dataclass
class Price:
    cents: int


@pytest.fixture(params=["memory", "sqlite", "file", "langgraph"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BaseCache[Any]]:
    if request.param == "langgraph":  # which shows what these tests expect of any cache
        yield InMemoryCache()
        return
    url = {"memory": "memory", "sqlite": f"sqlite:{tmp_path / 'a.db'}", "file": f"file:{tmp_path / 'a'}"}
    with LocusCache[Any](url[request.param]) as opened:
        yield opened


def test_values_are_kept_by_namespace_and_key(cache: BaseCache[Any]) -> None:
    assert cache.get([]) == {}
    assert cache.get([A]) == {}
    cache.set({A: (1, None), B: ({"x": [1, [2, 3]]}, None), C: ([b"\x00\xff"], 60)})
    assert cache.get([A, B, C, A]) == {A: 1, B: {"x": [1, [2, 3]]}, C: [b"\x00\xff"]}
    cache.set({A: (2, None)})
    assert cache.get([A, (("ns", "a"), "other")]) == {A: 2}


async def test_the_same_without_blocking(cache: BaseCache[Any]) -> None:
    await cache.aset({A: (1, None), B: (2, 60)})
    assert await cache.aget([A, B, C]) == {A: 1, B: 2}
    await cache.aclear([("ns",)])
    assert await cache.aget([A, B]) == {A: 1}
    await cache.aclear()
    assert await cache.aget([A]) == {}


def test_namespaces_are_cleared_alone(cache: BaseCache[Any]) -> None:
    cache.set({A: (1, None), B: (2, None), C: (3, None)})
    cache.clear([("ns", "a"), ("nowhere",)])
    assert cache.get([A, B, C]) == {B: 2, C: 3}
    cache.clear()
    assert cache.get([A, B, C]) == {}


def test_what_has_expired_is_gone(cache: BaseCache[Any]) -> None:
    cache.set({A: (1, 0), B: (2, 600)})
    assert cache.get([A, B]) == {B: 2}
    cache.set({A: (3, None)})
    assert cache.get([A]) == {A: 3}


def _graph(cache: BaseCache[Any], calls: list[int]) -> Any:
    class State(TypedDict):
        numbers: Annotated[list[int], operator.add]

    def node(state: State) -> State:
        calls.append(1)
        return {"numbers": [sum(state["numbers"])]}

    builder = StateGraph(State).add_node("node", node, cache_policy=CachePolicy(ttl=600)).add_edge(START, "node")
    return builder.compile(cache=cache)


def test_a_node_is_not_run_twice(cache: BaseCache[Any]) -> None:
    calls: list[int] = []
    graph = _graph(cache, calls)
    for _ in range(3):
        assert graph.invoke({"numbers": [1, 2]})["numbers"] == [1, 2, 3]
    assert len(calls) == 1
    assert graph.invoke({"numbers": [4]})["numbers"] == [4, 4]
    graph.clear_cache()
    graph.invoke({"numbers": [1, 2]})
    assert len(calls) == 3


def test_another_process_has_it_too_and_no_list_of_threads_does(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    calls: list[int] = []
    for _ in range(2):
        with LocusCache[Any](url) as cache:
            _graph(cache, calls).invoke({"numbers": [1, 2]})
    assert len(calls) == 1
    with get_checkpointer(url).sync as handle:
        assert handle.list_threads() == []


def test_a_value_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    with LocusCache[Any](f"sqlite:{tmp_path / 'a.db'}") as cache:
        for number in range(20):
            cache.set({A: (number, None)})
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        (count,) = database.execute("SELECT count(*) FROM locus__cache_checkpoints").fetchone()
    assert count == 1


def test_classes_are_allowed_as_for_a_saver() -> None:
    with LocusCache[Any]("memory") as cache, pytest.raises(SerializationError, match="allowed_types"):
        cache.set({A: (Price(1), None)})
    with LocusCache[Any]("memory", allowed_types=[Price]) as cache:
        cache.set({A: (Price(1), None)})
        assert cache.get([A]) == {A: Price(1)}


def test_damage_is_told(tmp_path: Path) -> None:
    with LocusCache[Any](f"file:{tmp_path / 'a'}") as cache:
        cache.set({A: (1, None)})
        document = cache._space.document(next(iter(cache._run(cache._space.list_threads()))), "langgraph")
        cache._run(document.save({"kind": "locus", "value": "no base64!"}, checkpoint_id="value"))
        with pytest.raises(CorruptCheckpointError, match="clear its namespace"):
            cache.get([A])
        cache.clear([("ns", "a")])
        assert cache.get([A]) == {}


def _check(store: Any) -> None:
    with LocusCache[Any](store) as cache:
        cache.clear()
        cache.set({A: (1, None), B: ([b"x"], 60)})
        assert cache.get([A, B, C]) == {A: 1, B: [b"x"]}
        cache.set({A: (2, 0)})
        assert cache.get([A, B]) == {B: [b"x"]}
        cache.clear([("ns",)])
        assert cache.get([B]) == {}
        cache.clear()


@pytest.mark.postgresql
def test_on_postgresql(postgresql_server: PostgreSQLServer) -> None:
    _check(f"{postgresql_server.url}?table_name={new_name()}")


@pytest.mark.redis
def test_on_redis(redis_server: RedisServer) -> None:
    _check(f"redis://127.0.0.1:{redis_server.port}/0?prefix=cache-test:")
