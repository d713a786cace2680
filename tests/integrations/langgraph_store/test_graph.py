"""A real graph whose nodes remember things across threads."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import BaseStore

from locus.integrations.langgraph_store.store import LocusStore
from locus.testing.stores import DurableTestStore


class Visit(TypedDict, total=False):
    user: str
    visits: int


def visit(state: Visit, *, store: BaseStore) -> Visit:
    seen = store.get(("users", state["user"]), "visits")
    visits = (seen.value["n"] if seen else 0) + 1
    store.put(("users", state["user"]), "visits", {"n": visits})
    return {"visits": visits}


async def avisit(state: Visit, *, store: BaseStore) -> Visit:
    seen = await store.aget(("users", state["user"]), "visits")
    visits = (seen.value["n"] if seen else 0) + 1
    await store.aput(("users", state["user"]), "visits", {"n": visits})
    return {"visits": visits}


def graph(node: Any, store: BaseStore) -> Any:
    builder = StateGraph(Visit)
    builder.add_node("visit", node)
    builder.add_edge(START, "visit")
    builder.add_edge("visit", END)
    return builder.compile(store=store)


def test_a_graph_remembers_in_another_run(place: DurableTestStore) -> None:
    for number in (1, 2):
        with LocusStore(place.url) as store:
            assert graph(visit, store).invoke({"user": "alice"})["visits"] == number
    with LocusStore(place.url) as store:
        assert graph(visit, store).invoke({"user": "bob"})["visits"] == 1


@pytest.mark.asyncio
async def test_an_async_graph_remembers_too(store: LocusStore) -> None:
    for number in (1, 2):
        result = await graph(avisit, store).ainvoke({"user": "alice"})
        assert result["visits"] == number
