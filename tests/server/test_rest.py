"""The API as anybody uses it: JSON in, JSON out, and problem details."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends import MemoryCheckpointer
from locus.server import create_app
from locus.wire.format import segment
from tests.server.running import asking

STATE = {"messages": [{"role": "user", "content": "Where is the platypus?"}], "n": 1}


@pytest.fixture
def store() -> MemoryCheckpointer:
    return MemoryCheckpointer()


@pytest.fixture
async def client(store: MemoryCheckpointer) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(create_app(store)) as client:
        yield client


async def _save(client: httpx.AsyncClient, thread: str = "t", state: Any = None, **more: Any) -> str:
    headers = more.pop("headers", {})
    body = {"state": state or STATE, **more}
    response = await client.post(f"/threads/{thread}/checkpoints", json=body, headers=headers)
    assert response.status_code == 201, response.text
    saved: str = response.json()["checkpoint_id"]
    return saved


def _is_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = response.json()
    assert found["status"] == status
    assert found["code"] == code
    assert found["type"] == f"urn:locus:problem:{code}"
    assert found["request_id"] == response.headers["x-request-id"]
    return found


async def test_a_state_is_saved_loaded_listed_and_deleted(client: httpx.AsyncClient) -> None:
    body = {
        "checkpoint_id": "c1",
        "thread_id": "t",
        "created_at": "2026-01-01T00:00:00+00:00",
        "state": STATE,
        "metadata": {"k": "v"},
    }
    response = await client.post("/threads/t/checkpoints", json=body)
    assert response.status_code == 201
    assert response.json() == {"thread_id": "t", "checkpoint_id": "c1"}
    assert response.headers["etag"] == '"c1"'
    loaded = (await client.get(response.headers["location"])).json()
    assert loaded["state"] == STATE
    assert loaded["metadata"] == {"k": "v"}
    assert (await client.get("/threads/t/latest")).json() == loaded
    listed = (await client.get("/threads/t/checkpoints", params={"limit": 5})).json()["checkpoints"]
    assert [entry["checkpoint_id"] for entry in listed] == ["c1"]
    assert "state" not in listed[0]
    assert (await client.get("/threads")).json() == {"threads": ["t"]}
    assert (await client.delete("/threads/t/checkpoints/c1")).status_code == 204
    _is_problem(await client.delete("/threads/t/checkpoints/c1"), 404, "not_found")
    _is_problem(await client.get("/threads/t/checkpoints/c1"), 404, "not_found")
    _is_problem(await client.get("/threads/t/latest"), 404, "not_found")


async def test_a_save_can_be_repeated(client: httpx.AsyncClient) -> None:
    for _ in range(3):
        await _save(client, checkpoint_id="c1")
    listed = (await client.get("/threads/t/checkpoints")).json()["checkpoints"]
    assert [entry["checkpoint_id"] for entry in listed] == ["c1"]


async def test_what_is_saved_here_is_what_a_checkpointer_loads(
    client: httpx.AsyncClient, store: MemoryCheckpointer
) -> None:
    state = AgentState(agent_id="a").with_message(Message.user("hi"))
    await _save(client, state=json.loads(json.dumps(state.to_checkpoint())))
    assert await store.load("t") == state
    await store.save(state.with_message(Message.user("there")), "t")
    latest = (await client.get("/threads/t/latest")).json()
    assert [message["content"] for message in latest["state"]["messages"]] == ["hi", "there"]


async def test_conditions_are_entity_tags(client: httpx.AsyncClient) -> None:
    first = await _save(client, headers={"If-None-Match": "*"})
    refused = await client.post("/threads/t/checkpoints", json={"state": {}}, headers={"If-None-Match": "*"})
    found = _is_problem(refused, 412, "conflict")
    assert (found["expected"], found["latest"]) == (None, first)
    second = await _save(client, state={"n": 2}, headers={"If-Match": f'"{first}"'})
    refused = await client.post("/threads/t/checkpoints", json={"state": {}}, headers={"If-Match": f'"{first}"'})
    found = _is_problem(refused, 412, "conflict")
    assert (found["expected"], found["latest"]) == (first, second)
    for wrong in ("c7", '"a", "b"', '""', "*", '"%ff"'):
        response = await client.post("/threads/t/checkpoints", json={"state": {}}, headers={"If-Match": wrong})
        _is_problem(response, 400, "malformed")
    both = {"If-Match": '"c"', "If-None-Match": "*"}
    _is_problem(await client.post("/threads/t/checkpoints", json={"state": {}}, headers=both), 400, "malformed")


@pytest.mark.parametrize(
    "name", ["tenant/a", "..", ".", "~", "~x", "a b", "a%2Fb", "%", "日本", "\0", "a?b#c", "\\", "a;b"]
)
async def test_an_id_is_any_text(client: httpx.AsyncClient, store: MemoryCheckpointer, name: str) -> None:
    path = f"/threads/{segment(name)}/checkpoints/{segment(name)}"
    await _save(client, segment(name), checkpoint_id=name)
    assert (await client.get(path)).json()["thread_id"] == name
    assert await store.list_threads() == [name]
    if not name.startswith("~"):
        escaped = "".join(f"%{byte:02X}" for byte in name.encode())
        assert (await client.get(f"/threads/{escaped}/checkpoints/{escaped}")).json()["checkpoint_id"] == name
    assert (await client.delete(path)).status_code == 204


@pytest.mark.parametrize("path", ["/threads/~!/latest", "/threads/~_w/latest", "/threads/%FF/latest"])
async def test_a_path_that_is_no_id_is_refused(client: httpx.AsyncClient, path: str) -> None:
    _is_problem(await client.get(path), 400, "invalid_id")


@pytest.mark.parametrize("path", ["/nothing", "/threads//latest", "/threads/a/b/c/d", "/health/", "/threads/a/"])
async def test_other_paths_lead_nowhere(client: httpx.AsyncClient, path: str) -> None:
    _is_problem(await client.get(path), 404, "no_such_path")


async def test_other_methods_are_refused(client: httpx.AsyncClient) -> None:
    response = await client.patch("/threads/a/checkpoints", json={})
    _is_problem(response, 405, "method_not_allowed")
    assert "GET" in response.headers["allow"] or "POST" in response.headers["allow"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"state": None},
        {"state": []},
        {"state": {}, "metadata": []},
        {"state": {}, "checkpoint_id": 7},
        {"state": {}, "meta": {}},
    ],
)
async def test_a_body_that_is_no_save_is_refused(client: httpx.AsyncClient, body: Any) -> None:
    _is_problem(await client.post("/threads/t/checkpoints", json=body), 422, "invalid_request")
    assert (await client.get("/threads")).json() == {"threads": []}


@pytest.mark.parametrize(
    ("method", "path", "body", "said"),
    [
        ("POST", "/threads/t/checkpoints", {}, "state must be given"),
        ("POST", "/threads/t/checkpoints", {"state": {}, "parent_id": 7}, "parent_id must be text"),
        ("POST", "/threads/t/checkpoints", {"state": {}, "meta": {}}, "there is no field 'meta'"),
        (
            "PUT",
            "/threads/t/checkpoints/c/writes",
            {"task_id": "x", "writes": [["a", 1], 7]},
            "writes.1 must be a list",
        ),
        ("POST", "/find", {"key": "k", "value": 1, "limit": True}, "limit must be a whole number"),
        ("POST", "/threads/t/records", {"known": {"b": -1}}, "known must be greater than or equal to 0"),
        ("GET", "/threads?limit=x", None, "limit must be a whole number"),
        ("GET", "/threads/t/checkpoints?every_namespace=1", None, "every_namespace must be true or false"),
    ],
)
async def test_a_wrong_field_is_named(client: httpx.AsyncClient, method: str, path: str, body: Any, said: str) -> None:
    found = _is_problem(await client.request(method, path, json=body), 422, "invalid_request")
    assert found["detail"] == said


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/threads/t/deletions", {"seqs": [7] * 200_000}),
        ("/threads/t/records", {"known": {str(number): "" for number in range(200_000)}}),
        ("/threads/t/commits", {str(number): "" for number in range(200_000)}),
    ],
)
async def test_the_first_error_in_a_body_ends_the_check(client: httpx.AsyncClient, path: str, body: Any) -> None:
    """An error for each wrong item would need many times the memory of the body."""
    text = json.dumps(body)
    tracemalloc.start()
    try:
        _is_problem(
            await client.post(path, content=text, headers={"Content-Type": "application/json"}), 422, "invalid_request"
        )
        assert tracemalloc.get_traced_memory()[1] < 60_000_000
    finally:
        tracemalloc.stop()


async def test_a_thread_id_in_the_body_must_be_that_of_the_path(client: httpx.AsyncClient) -> None:
    response = await client.post("/threads/t/checkpoints", json={"thread_id": "other", "state": {}})
    _is_problem(response, 400, "invalid_id")


@pytest.mark.parametrize("text", ["1e999", "NaN", "-Infinity", '"\\ud800"', "[" * 95 + "]" * 95])
async def test_a_value_that_json_does_not_have_is_refused(client: httpx.AsyncClient, text: str) -> None:
    response = await client.post(
        "/threads/t/checkpoints",
        content=f'{{"state":{{"a":{{"b":{text}}}}}}}',
        headers={"Content-Type": "application/json"},
    )
    found = _is_problem(response, 422, "not_json")
    assert found["path"].startswith("a.b")


async def test_the_dump_of_a_window_is_refused(client: httpx.AsyncClient) -> None:
    """It would become a shorter thread; and that somebody sends one is no failure of the server."""
    state = {"messages": [], "locus_omitted": {"messages": 3}}
    found = _is_problem(await client.post("/threads/t/checkpoints", json={"state": state}), 422, "window")
    assert "without_omitted()" in found["detail"]
    assert (await client.get("/threads")).json()["threads"] == []


async def test_history_is_paged(client: httpx.AsyncClient) -> None:
    names = [await _save(client, state={"n": number}) for number in range(7)]
    seen, query = [], {"limit": 3}
    while True:
        page = (await client.get("/threads/t/checkpoints", params=query)).json()["checkpoints"]
        seen += [entry["checkpoint_id"] for entry in page]
        if len(page) < 3:
            break
        query["before"] = page[-1]["checkpoint_id"]
    assert seen == names[::-1]
    response = await client.get("/threads/t/checkpoints", params={"before": "nothing"})
    _is_problem(response, 404, "no_such_checkpoint")
    for wrong in ("-1", "x", "10001", "1" * 40, ""):
        _is_problem(await client.get("/threads/t/checkpoints", params={"limit": wrong}), 422, "invalid_request")


async def test_pending_writes_copies_search_and_queries(client: httpx.AsyncClient) -> None:
    saved = await _save(client, metadata={"k": [1, "é"]})
    writes = {"task_id": "task", "writes": [["x", {"a": 1}], ["__error__", "no"]]}
    path = f"/threads/t/checkpoints/{saved}/writes"
    assert (await client.put(path, json=writes)).status_code == 204
    beside = {"task_id": "task", "writes": [["__error__", "no"]], "keep_numbered": True}
    assert (await client.put(path, json=beside)).status_code == 204
    assert (await client.put(path, json={**beside, "keep_numbered": "yes"})).status_code == 422
    found = (await client.get(path)).json()["writes"]
    assert [(write["idx"], write["channel"], write["value"]) for write in found] == [
        (-1, "__error__", "no"),
        (0, "x", {"a": 1}),
    ]
    assert (await client.post("/threads/t/copy", json={"dest_thread_id": "u"})).json() == {"copied": 1}
    again = await client.post("/threads/t/copy", json={"dest_thread_id": "u"})
    _is_problem(again, 412, "conflict")
    _is_problem(await client.post("/threads/none/copy", json={"dest_thread_id": "v"}), 404, "not_found")
    hits = (await client.post("/search", json={"query": "Platypus"})).json()["hits"]
    assert {hit["thread_id"] for hit in hits} == {"t", "u"}
    assert "platypus" in hits[0]["snippet"]
    listed = (await client.post("/find", json={"key": "k", "value": [1, "é"]})).json()["checkpoints"]
    assert {entry["thread_id"] for entry in listed} == {"t", "u"}
    assert len((await client.get("/recent", params={"limit": 1})).json()["checkpoints"]) == 1
    assert (await client.post("/vacuum", json={"older_than_days": 0, "dry_run": True})).json()["removed"] == 2
    assert (await client.post("/vacuum", json={"keep_last": 1})).json() == {"removed": 0, "next": None}
    assert (await client.delete("/threads/u")).status_code == 204
    assert (await client.get("/threads")).json() == {"threads": ["t"]}


async def test_a_thread_is_exported_line_by_line(client: httpx.AsyncClient) -> None:
    for number in range(3):
        await _save(client, checkpoint_id=f"c{number}", state={"n": number, "text": "x" * 500})
    await client.put("/threads/t/checkpoints/c1/writes", json={"task_id": "task", "writes": [["x", 1]]})
    await client.post("/threads/t/checkpoints?namespace=", json={"checkpoint_id": "other", "state": {"n": 9}})
    response = await client.get("/threads/t/export", headers={"Accept-Encoding": "identity"})
    assert response.headers["content-type"].startswith("application/jsonl")
    lines = [json.loads(line) for line in response.text.splitlines()]
    assert [(line["checkpoint_id"], line["namespace"], line["state"]["n"]) for line in lines] == [
        ("c0", "default", 0),
        ("c1", "default", 1),
        ("c2", "default", 2),
        ("other", "", 9),
    ]
    assert [write["value"] for write in lines[1]["writes"]] == [1]
    packed = await client.get("/threads/t/export", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.text == response.text
    _is_problem(await client.get("/threads/none/export"), 404, "not_found")


async def test_large_answers_are_compressed_for_those_who_take_that(client: httpx.AsyncClient) -> None:
    await _save(client, state={"text": "x" * 20_000})
    packed = await client.get("/threads/t/latest", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    for taken in ("identity", "gzip;q=0", ""):
        plain = await client.get("/threads/t/latest", headers={"Accept-Encoding": taken})
        assert "content-encoding" not in plain.headers
        assert plain.json() == packed.json()


async def test_bodies_may_be_compressed(client: httpx.AsyncClient) -> None:
    body = gzip.compress(json.dumps({"state": {"text": "x" * 20_000}}).encode())
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    assert (await client.post("/threads/t/checkpoints", content=body, headers=headers)).status_code == 201
    assert len((await client.get("/threads/t/latest")).json()["state"]["text"]) == 20_000


async def test_a_thread_in_another_namespace_is_found(client: httpx.AsyncClient) -> None:
    for name in ("graph", ""):
        response = await client.post(f"/threads/t/checkpoints?namespace={name}", json={"state": STATE})
        assert response.status_code == 201
    found = await client.get("/threads/t/namespaces")
    assert (found.status_code, found.json()) == (200, {"namespaces": ["", "graph"]})
    for method, path in (("GET", "latest"), ("GET", "checkpoints/c"), ("DELETE", "checkpoints/c")):
        problem = _is_problem(await client.request(method, f"/threads/t/{path}"), 404, "not_found")
        assert (
            problem["detail"]
            == "this checkpoint does not exist; the thread has checkpoints in other namespaces: '', 'graph'"
        )
    problem = _is_problem(await client.delete("/threads/t?namespace=default"), 404, "not_found")
    assert "in other namespaces: '', 'graph'" in problem["detail"]
    for path in ("latest", "namespaces"):
        assert "namespaces" not in _is_problem(await client.get(f"/threads/u/{path}"), 404, "not_found")["detail"]


async def test_some_items_of_a_list(client: httpx.AsyncClient) -> None:
    saved = await _save(client, state={"messages": [{"n": n} for n in range(5)], "deep": {"er": ["x", "y"]}, "n": 1})
    found = (await client.get("/threads/t/items", params={"start": -2, "count": 1})).json()
    assert found == {"checkpoint_id": saved, "items": [{"n": 3}], "total": 5, "start": 3}
    deep = {"path": '["deep", "er"]', "checkpoint_id": saved}
    assert (await client.get("/threads/t/items", params=deep)).json()["items"] == ["x", "y"]
    for path in ('["n"]', '["none"]', "messages", "[]", "[1]", json.dumps([""] * 91)):
        _is_problem(await client.get("/threads/t/items", params={"path": path}), 422, "invalid_request")
    for wrong in ({"count": -1}, {"count": "many"}, {"start": "1.5"}):
        _is_problem(await client.get("/threads/t/items", params=wrong), 422, "invalid_request")
    _is_problem(await client.get("/threads/none/items"), 404, "not_found")
    _is_problem(await client.get("/threads/t/items", params={"namespace": "other"}), 404, "not_found")


async def test_many_items_are_put_together_beside_the_event_loop(client: httpx.AsyncClient) -> None:
    items = ["x" * 1_000 for _ in range(1_500)]
    await _save(client, state={"messages": items})
    assert (await client.get("/threads/t/items?count=9999")).json()["items"] == items
    _is_problem(await client.get('/threads/t/items?path=["none"]'), 422, "invalid_request")
