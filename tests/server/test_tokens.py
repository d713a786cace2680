"""Tokens: who is let in, and what a tenant can find out about others. Nothing."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends import HTTPCheckpointer, MemoryCheckpointer
from locus.memory.backends.http.client import HTTPAuthenticationError
from locus.wire.format import segment
from tests.server.running import ACME, ACME_READER, CORP, READER, WRITER, Serving, asking, guarded, serving

THREADS = ("acme/1", "acme/2", "acme-corp/1", "acme", "acmé/1", "Acme/1", "other")


@pytest.fixture
async def store() -> MemoryCheckpointer:
    store = MemoryCheckpointer()
    for name in THREADS:
        state = AgentState(agent_id=name).with_message(Message.user(f"a kangaroo of {name}"))
        await store.save(state, name, "c", {"k": "v"})
        await store.put_writes(name, "c", "task", [("x", name)])
    return store


@pytest.fixture
async def app(store: MemoryCheckpointer) -> Any:
    return guarded(store)


@pytest.fixture
async def acme(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(app, ACME) as client:
        yield client


@pytest.mark.parametrize("token", [None, "", "wrong", "a-token-that-may-writ", f"{WRITER}x", WRITER.upper()])
async def test_strangers_are_not_let_in(app: Any, token: str | None) -> None:
    async with asking(app, token) as client:
        for path in ("/", "/threads", "/threads/other/latest", "/metrics", "/recent", "/nothing"):
            response = await client.get(path)
            assert (response.status_code, response.json()["code"]) == (401, "unauthenticated")
            assert response.headers["www-authenticate"].startswith("Bearer")
        for path in ("/health", "/ready", "/openapi.json"):
            assert (await client.get(path)).is_success


@pytest.mark.parametrize("value", [WRITER, f"Basic {WRITER}", f"Token {WRITER}", "Bearer", "Bearer  "])
async def test_a_token_is_a_bearer_token(app: Any, value: str) -> None:
    async with asking(app) as client:
        assert (await client.get("/threads", headers={"Authorization": value})).status_code == 401
        assert (await client.get("/threads", headers={"Authorization": f"bearer {WRITER}"})).is_success


def _writing(thread: str) -> list[tuple[str, str, Any]]:
    at = f"/threads/{segment(thread)}"
    return [
        ("POST", f"{at}/checkpoints", {"state": {}}),
        ("POST", f"{at}/commits", {}),
        ("POST", f"{at}/deletions", {}),
        ("PUT", f"{at}/checkpoints/c/writes", {"task_id": "t", "writes": []}),
        ("DELETE", f"{at}/checkpoints/c", None),
        ("DELETE", at, None),
    ]


def _reading(thread: str) -> list[tuple[str, str, Any]]:
    at = f"/threads/{segment(thread)}"
    ways = ("latest", "checkpoints", "checkpoints/c", "checkpoints/c/writes", "stored", "entry", "export")
    return [("GET", f"{at}/{way}", None) for way in ways]


@pytest.mark.parametrize("token", [READER, ACME_READER])
async def test_a_reader_reads_and_does_not_write(app: Any, store: MemoryCheckpointer, token: str) -> None:
    async with asking(app, token) as client:
        for method, path, body in _reading("acme/1"):
            assert (await client.request(method, path, json=body)).is_success, path
        copy = ("POST", "/threads/acme%2F1/copy", {"dest_thread_id": "acme/copy"})
        for method, path, body in [*_writing("acme/1"), copy, ("POST", "/vacuum", {"older_than_days": 0})]:
            response = await client.request(method, path, json=body)
            assert (response.status_code, response.json()["code"]) == (403, "forbidden"), path
    assert set(await store.list_threads()) == {*THREADS}


@pytest.mark.parametrize("thread", ["acme-corp/1", "acme", "acmé/1", "Acme/1", "other", "not there", "acme-corp/none"])
async def test_a_tenant_reaches_no_thread_of_others(acme: httpx.AsyncClient, thread: str) -> None:
    """The answer is the same whether there is such a thread or not."""
    copies = [
        ("POST", f"/threads/{segment(thread)}/copy", {"dest_thread_id": "acme/stolen"}),
        ("POST", "/threads/acme%2F1/copy", {"dest_thread_id": thread}),
    ]
    for method, path, body in [*_reading(thread), *_writing(thread), *copies]:
        response = await acme.request(method, path, json=body)
        assert (response.status_code, response.json()["code"]) == (403, "forbidden"), path
        assert thread not in response.text


async def test_a_tenant_uses_its_own_threads(acme: httpx.AsyncClient, store: MemoryCheckpointer) -> None:
    for method, path, body in _reading("acme/1"):
        assert (await acme.request(method, path, json=body)).is_success, path
    assert (await acme.post("/threads/acme%2F3/checkpoints", json={"state": {}})).status_code == 201
    assert (await acme.post("/threads/acme%2F1/copy", json={"dest_thread_id": "acme/4"})).is_success
    assert (await acme.delete("/threads/acme%2F1")).status_code == 204
    assert await store.list_threads(pattern="acme/*") == ["acme/2", "acme/3", "acme/4"]


@pytest.mark.parametrize("pattern", ["*", "acme*", "acme?corp*", "*1", "other", "?????", "acme-corp/*"])
async def test_lists_show_a_tenant_its_own(acme: httpx.AsyncClient, pattern: str) -> None:
    for limit in (1, 100, "all"):
        found = (await acme.get("/threads", params={"pattern": pattern, "limit": limit})).json()["threads"]
        assert all(name.startswith("acme/") for name in found)
    everything = (await acme.get("/threads")).json()["threads"]
    assert everything == ["acme/1", "acme/2"]


@pytest.mark.parametrize("limit", [0, 1, 2, 100])
async def test_searches_and_queries_show_a_tenant_its_own(acme: httpx.AsyncClient, limit: int) -> None:
    """And as many of them as it asked for, however many others have."""
    hits = (await acme.post("/search", json={"query": "kangaroo", "limit": limit})).json()["hits"]
    found = (await acme.post("/find", json={"key": "k", "value": "v", "limit": limit})).json()["checkpoints"]
    recent = (await acme.get("/recent", params={"limit": limit})).json()["checkpoints"]
    for result in (hits, found, recent):
        assert len(result) == min(limit, 2)
        assert {item["thread_id"] for item in result} <= {"acme/1", "acme/2"}


async def test_what_is_rare_is_found_among_very_many_of_others(store: MemoryCheckpointer) -> None:
    for number in range(300):
        await store.save(AgentState(), f"other/{number}", metadata={"k": "v"})
    async with asking(guarded(store), ACME) as client:
        found = (await client.post("/find", json={"key": "k", "value": "v", "limit": 10})).json()["checkpoints"]
        assert {entry["thread_id"] for entry in found} == {"acme/1", "acme/2"}
        recent = (await client.get("/recent", params={"limit": 2})).json()["checkpoints"]
        assert {entry["thread_id"] for entry in recent} == {"acme/1", "acme/2"}


async def test_vacuum_removes_a_tenants_own(acme: httpx.AsyncClient, store: MemoryCheckpointer) -> None:
    dry = (await acme.post("/vacuum", json={"older_than_days": 0, "dry_run": True})).json()
    assert dry == {"removed": 2, "next": None}
    assert (await acme.post("/vacuum", json={"older_than_days": 0})).json()["removed"] == 2
    assert set(await store.list_threads()) == {name for name in THREADS if not name.startswith("acme/")}


async def test_figures_are_for_those_who_see_everything(app: Any) -> None:
    for token, status in ((ACME, 403), (CORP, 403), (READER, 200), (WRITER, 200)):
        async with asking(app, token) as client:
            assert (await client.get("/metrics")).status_code == status


class TestTheClient:
    """`HTTPCheckpointer` with tokens, to a real process."""

    async def test_a_token_opens_what_it_is_for(self, server: Serving) -> None:
        state = AgentState().with_message(Message.user("hi"))
        async with HTTPCheckpointer(server.url, token=WRITER) as everything:
            await everything.save(state, "other")
        async with HTTPCheckpointer(server.url, token=ACME) as acme:
            await acme.save(state, "acme/1", metadata={"k": "v"})
            assert await acme.load("acme/1") == state
            assert await acme.list_threads() == ["acme/1"]
            assert [hit["thread_id"] for hit in await acme.query_by_metadata("k", "v")] == ["acme/1"]
            for call in (acme.load("other"), acme.save(state, "other"), acme.delete("other"), acme.exists("none")):
                with pytest.raises(HTTPAuthenticationError, match="403") as caught:
                    await call
                assert isinstance(caught.value, httpx.HTTPError)

    async def test_a_wrong_token_is_an_error_and_no_empty_thread(self, server: Serving) -> None:
        for options in ({}, {"token": "wrong"}, {"auth": ("user", "secret")}, {"headers": {"X-Api-Key": "k"}}):
            async with HTTPCheckpointer(server.url, **options) as checkpointer:
                assert await checkpointer.health_check()
                with pytest.raises(HTTPAuthenticationError, match="401") as caught:
                    await checkpointer.load("other")
                assert "secret" not in repr(caught.value)
                assert "secret" not in repr(checkpointer)

    @pytest.fixture
    def server(self, tokens_server: Serving) -> Serving:
        return tokens_server


@pytest.fixture(scope="module")
def tokens_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder: Path = tmp_path_factory.mktemp("tokens")
    (folder / "tokens").write_text(f"# for all\n{WRITER}\n\n{ACME} write acme/\n")
    (folder / "tokens").chmod(0o640)
    more = f"{READER} read\n{CORP} write acme-corp/"
    with serving(folder, "sqlite:///t.db", "--token-file", "tokens", LOCUS_SERVER_TOKENS=more) as server:
        yield server


def test_tokens_come_from_files_and_variables_and_stay_out_of_the_log(tokens_server: Serving) -> None:
    for token, status in ((WRITER, 200), (ACME, 200), (READER, 200), (CORP, 200), ("no-token-of-this-server", 401)):
        headers = {"Authorization": f"Bearer {token}", "X-Request-ID": f"ask-{status}"}
        response = httpx.get(f"{tokens_server.url}/threads", headers=headers)
        assert response.status_code == status
        assert response.headers["x-request-id"] == f"ask-{status}"
    end = time.monotonic() + 30
    # The line is written after the answer was sent.
    while '"request_id": "ask-401"' not in (log := tokens_server.log.read_text()):
        assert time.monotonic() < end, log
        time.sleep(0.01)
    for token in (WRITER, ACME, READER, CORP, "no-token-of-this-server", "acme/"):
        assert token not in log
