"""What a client asks for if it needs only a part of a checkpoint, or has most of it already."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from locus.core.state import AgentState
from locus.memory.backends import MemoryCheckpointer
from locus.memory.telemetry import instrument
from locus.server import create_app
from locus.testing.data import conversation
from tests.backends.http.sparing import sparing
from tests.server.running import ACME, CORP, WRITER, asking, guarded

LISTS = [["messages"], ["tool_executions"]]


@pytest.fixture
async def store() -> MemoryCheckpointer:
    """Twenty messages, two a save."""
    checkpointer, state = sparing(), AgentState()
    for turn in range(10):
        state = state.with_messages(conversation(2, 2 * turn))
        await checkpointer.save(state, "t", f"c{turn}")
    return checkpointer


@pytest.fixture
async def client(store: MemoryCheckpointer) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(create_app(store)) as client:
        yield client


async def _stored(client: httpx.AsyncClient, **query: Any) -> dict[str, Any]:
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in query.items()}
    response = await client.get("/threads/t/stored", params=texts)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def test_the_root_says_that_windows_and_what_is_held_are_known(client: httpx.AsyncClient) -> None:
    about = (await client.get("/")).json()
    assert (about["protocol"], about["parts"], about["window"], about["held"]) == (1, True, True, True)


async def test_a_window_is_the_last_items_and_the_rest_of_the_checkpoint(client: httpx.AsyncClient) -> None:
    whole, part = await _stored(client), await _stored(client, window=[4, LISTS])
    assert [run[1] for run in part["runs"]] == [8, 9]
    assert len(whole["runs"]) == 10
    assert {**part, "runs": [], "before": []} == {**whole, "runs": [], "before": []}
    assert len((await _stored(client, window=[4, [["elsewhere"]]]))["runs"]) == 10


async def test_what_is_held_is_left_out_and_the_answer_says_so(client: httpx.AsyncClient) -> None:
    whole = await _stored(client)
    assert "since" not in whole
    held = (await _stored(client, checkpoint_id="c7"))["entry"]
    base = [held["checkpoint_id"], held["rev"]]
    found = await _stored(client, held=base)
    assert (found["since"], [run[1] for run in found["runs"]]) == (base, [8, 9])
    assert found["manifest"] == whole["manifest"]
    for gone in (["c7", "another"], ["c6", base[1]], ["never", "there"]):
        assert await _stored(client, held=gone) == whole


async def test_a_checkpoint_of_another_tenant_is_not_held(store: MemoryCheckpointer) -> None:
    """Its runs could be left out by one who has never seen them, and that would tell that they are there."""
    app = guarded(store)
    state = AgentState().with_messages(conversation(4))
    await store.save(state, "acme/t", "c")
    await store.save(state, "acme-corp/t", "c")
    async with asking(app, WRITER) as all_of_it, asking(app, CORP) as corp, asking(app, ACME) as acme:
        path = {name: f"/threads/{name}%2Ft/stored" for name in ("acme", "acme-corp")}
        rev = (await all_of_it.get(path["acme"])).json()["entry"]["rev"]
        query = {"held": json.dumps(["c", rev])}
        assert (await acme.get(path["acme"], params=query)).json()["since"] == ["c", rev]
        assert "since" not in (await corp.get(path["acme-corp"], params=query)).json()
        assert (await corp.get(path["acme"], params=query)).status_code == 403


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (
            "window",
            [
                *("", "x", "5", "[]", "[5]", "[5,[],1]", "{}", "null", '"window"', "[5,[]", "NaN", "9" * 5_000),
                *("[0,[]]", "[-1,[]]", "[true,[]]", "[1.0,[]]", '["1",[]]', "[9007199254740992,[]]"),
                *("[1,null]", '[1,"messages"]', '[1,["messages"]]', "[1,[[]]]", "[1,[[1]]]", "[1,[[null]]]"),
                *('[1,[["\\ud800"]]]', "[" * 20_000, f"[1,{'[' * 500}]"),
                json.dumps([1, [["x"] * 1_000]]),
                json.dumps([1, [[str(number)] for number in range(65)]]),
            ],
        ),
        (
            "held",
            [
                *("", "c7", "[]", '["c7"]', '["c7","r","x"]', '{"checkpoint_id":"c7"}', "null", '["c7",null]'),
                *('["c7",1]', '["","r"]', '["c7",""]', '["c7","\\ud800"]', '["c\\u0000","r","s"]', "[" * 20_000),
                json.dumps(["c" * 256, "r"]),
                json.dumps(["c7", "r" * 256]),
            ],
        ),
        ("path", ["[]", "x", "[" * 20_000, '["\\ud800"]', json.dumps(["x"] * 91)]),
    ],
)
async def test_anything_else_is_refused_and_the_sender_told(
    client: httpx.AsyncClient, name: str, values: list[str]
) -> None:
    for value in values:
        response = await client.get("/threads/t/stored", params={name: value})
        said = response.json()
        assert response.status_code in (400, 422), (value[:80], response.text[:200])
        assert said["code"] in ("invalid_request", "invalid_id")
        assert said["detail"].startswith(name)
        assert len(said["detail"]) < 300
    twice = await client.get(f"/threads/t/stored?{name}=[]&{name}=[]")
    assert (twice.status_code, twice.json()["detail"]) == (400, f"send {name} once")


async def test_one_part_is_asked_for_at_a_time(client: httpx.AsyncClient) -> None:
    asked = {"path": '["messages"]', "window": "[1,[]]", "held": '["a","b"]'}
    for left_out in asked:
        two = {name: value for name, value in asked.items() if name != left_out}
        response = await client.get("/threads/t/stored", params=two)
        assert response.status_code == 422
        assert response.json()["detail"] == "path, window, ends and held must be given one at a time"


async def test_the_document_says_that_lists_in_a_query_are_json(client: httpx.AsyncClient) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    described = {one["name"]: one for one in paths["/threads/{thread_id}/stored"]["get"]["parameters"]}
    for name in ("path", "window", "held"):
        assert described[name]["content"]["application/json"]["schema"]["type"] == "array"
        assert described[name]["description"]


@pytest.mark.parametrize("measured", [False, True])
async def test_a_server_holds_nothing_of_what_tenants_save(measured: bool) -> None:
    handle = instrument(MemoryCheckpointer()) if measured else MemoryCheckpointer()
    async with asking(create_app(handle)) as client:
        for number in range(40):
            state = {"messages": [f"{number} " * 20_000]}
            assert (await client.post(f"/threads/t{number}/checkpoints", json={"state": state})).is_success
    assert handle.cache_info()[:4] == (0, 0, 0, 0)
