"""Requests that mean harm: odd JSON, odd ids, odd queries, and times that nobody can have."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from locus.core.state import AgentState
from locus.memory.backends import HTTPCheckpointer, MemoryCheckpointer, sqlite_checkpointer
from locus.memory.model.ids import new_id
from locus.server import create_app
from locus.wire.format import segment
from tests.server.running import ACME, TOKENS, WRITER, asking, guarded, threaded

JSON = {"Content-Type": "application/json"}
LONG_AGO = "1970-01-01T00:00:00+00:00"
FAR_AHEAD = "9999-12-31T23:59:59+00:00"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    store = sqlite_checkpointer(tmp_path / "t.db")
    async with asking(create_app(store)) as client:
        yield client
    await store.close()


def _deep(levels: int, start: str = "[", end: str = "]") -> str:
    return start * levels + "1" + end * levels


VALUES = {
    "NaN": "NaN",
    "infinite": "[-Infinity]",
    "1e400": "1e400",
    "lone surrogate": '"\\ud800"',
    "lone surrogate as a key": '{"\\udfff":1}',
    "NUL": '"\\u0000"',
    "duplicate keys": '{"a":1,"a":{"a":2,"a":3}}',
    "a long integer": "9" * 4_000,
    "an integer that is too long": "9" * 5_000,
    "a very long integer": "9" * 60_000,
    "a long fraction": "0." + "1" * 60_000,
    "deep": _deep(95),
    "very deep": _deep(2_000),
    "deep objects": _deep(500, '{"a":', "}"),
    "beyond every depth": _deep(30_000),
    "a tag of the codec": '{"$locus:int":"x"}',
    "a prototype": '{"__proto__":{"x":1},"constructor":1}',
    "an object of langchain": '{"lc":1,"type":"constructor","id":["os","system"],"kwargs":{"command":"true"}}',
    "a pickle": '{"__type__":"pickle","data":"gASVBQAAAAAAAABLAS4="}',
}


def _requests(value: str) -> list[tuple[str, str, str]]:
    commit = {"checkpoint_id": "c", "rev": new_id(), "created_at": LONG_AGO, "metadata": {}, "manifest": []}
    start = json.dumps(commit)[:-1]
    return [
        ("POST", "/threads/t/checkpoints", f'{{"state":{{"x":{value}}}}}'),
        ("POST", "/threads/t/checkpoints", f'{{"state":{value}}}'),
        ("POST", "/threads/t/checkpoints", f'{{"state":{{}},"metadata":{{"m":{value}}}}}'),
        ("POST", "/threads/t/checkpoints", f'{{"state":{{}},"checkpoint_id":{value}}}'),
        ("POST", "/threads/t/checkpoints", value),
        ("POST", "/threads/t/commits", f'{start},"head":{{"x":{value}}}}}'),
        ("POST", "/threads/t/commits", f'{start},"head":{{}},"runs":[["branch-1",0,0,[{value}]]]}}'),
        ("POST", "/threads/t/commits", f'{start},"head":{{}},"values":{value}}}'),
        ("PUT", "/threads/t/checkpoints/c/writes", f'{{"task_id":"t","writes":[["w",{value}]]}}'),
        ("POST", "/threads/t/records", f'{{"known":{{"branch":{value}}}}}'),
        ("POST", "/threads/t/deletions", f'{{"seqs":{value}}}'),
        ("POST", "/threads/t/copy", f'{{"dest_thread_id":{value}}}'),
        ("POST", "/find", f'{{"key":"m","value":{value}}}'),
        ("POST", "/find", f'{{"key":{value},"value":1}}'),
        ("POST", "/search", f'{{"query":{value}}}'),
        ("POST", "/search", f'{{"terms":[{value}]}}'),
        ("POST", "/vacuum", f'{{"older_than_days":{value}}}'),
        ("POST", "/vacuum", f'{{"keep_last":{value}}}'),
        ("POST", "/vacuum", f'{{"keep_last":5,"after":{value}}}'),
    ]


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
async def test_odd_values_are_kept_or_refused(client: httpx.AsyncClient, value: str) -> None:
    for method, path, body in _requests(value):
        response = await client.request(method, path, content=body, headers=JSON)
        assert response.status_code < 500, (path, body[:100], response.text)
    assert (await client.get("/recent")).is_success
    latest = await client.get("/threads/t/latest")
    assert latest.status_code in (200, 404)
    history = (await client.get("/threads/t/checkpoints")).json()["checkpoints"]
    for entry in history:
        loaded = await client.get(f"/threads/t/checkpoints/{segment(entry['checkpoint_id'])}")
        assert loaded.is_success
        json.loads(loaded.text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


IDS = [
    "a\0b",
    "\0",
    "a/b",
    "/",
    "..",
    ".",
    "../../etc/passwd",
    "a%2Fb",
    "%",
    "a?b#c",
    "a\\b",
    "a\nb",
    " ",
    "\u202e",
    "é",
    "é",
]


@pytest.mark.parametrize("name", IDS, ids=map(ascii, IDS))
async def test_no_character_of_an_id_means_anything(client: httpx.AsyncClient, name: str) -> None:
    quoted = "".join(f"%{byte:02x}" for byte in name.encode())
    for at in (segment(name), quoted):
        if at.startswith("%2e") and set(name) == {"."}:
            continue  # httpx takes a segment of dots for a way up
        saved = await client.post(f"/threads/{at}/checkpoints", json={"state": {"x": name}})
        assert saved.status_code == 201
        assert (await client.get(f"/threads/{at}/latest")).json()["thread_id"] == name
    assert (await client.get("/threads")).json()["threads"] == [name]
    assert (await client.get("/threads", params={"pattern": "acme*"})).json()["threads"] == []


async def test_an_id_leads_to_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "secret.jsonl").write_text('{"secret": 1}\n')
    async with asking(create_app(f"file:///{tmp_path}/store")) as client:
        for name in (
            "../secret",
            "../secret.jsonl",
            "..",
            "/etc/passwd",
            "a/../../secret",
            "..\\secret",
            "\0",
            "CON",
            "a" * 255,
        ):
            at = f"/threads/{segment(name)}"
            assert (await client.get(f"{at}/latest")).status_code == 404
            assert (await client.post(f"{at}/checkpoints", json={"state": {}})).status_code == 201
            assert (await client.delete(at)).status_code == 204
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret.jsonl", "store"]
    assert (tmp_path / "secret.jsonl").read_text() == '{"secret": 1}\n'


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("namespace=a", 404),
        ("namespace=%ff", 400),
        ("namespace=%ED%A0%80", 400),
        ("namespace=a&namespace=b", 400),
        ("&".join(["x=1"] * 1_000), 400),
        ("x=1&x=2", 422),
        ("namespace=%00", 404),
        ("namespace=" + "x" * 256, 400),
        ("%", 422),
    ],
)
async def test_a_query_means_one_thing(client: httpx.AsyncClient, query: str, status: int) -> None:
    assert (await client.get(f"/threads/t/latest?{query}")).status_code == status


@pytest.mark.parametrize(
    "names", [("localhost", "evil.example"), ("evil.example", "localhost"), ("localhost", ""), ()], ids=str
)
async def test_a_server_has_one_name(names: tuple[str, ...]) -> None:
    app = create_app(MemoryCheckpointer(), hosts={"localhost"})
    answered: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        answered.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/health",
        "raw_path": b"/health",
        "query_string": b"",
        "headers": [(b"host", name.encode()) for name in names],
    }
    await app(scope, receive, send)
    assert answered[0]["status"] == 421


async def test_two_tokens_are_none() -> None:
    """A proxy in front could look at one of them, and the server at the other."""
    async with asking(guarded()) as client:
        headers = [("Authorization", f"Bearer {ACME}"), ("Authorization", f"Bearer {WRITER}")]
        assert (await client.get("/threads", headers=headers)).status_code == 400


class TestTimes:
    """A tenant has no say in how old its checkpoints are, and how long they are kept."""

    def _commit(self, **changes: Any) -> dict[str, Any]:
        return {
            "checkpoint_id": "c",
            "rev": new_id(),
            "created_at": datetime.now(UTC).isoformat(),
            "metadata": {},
            "head": {},
            "manifest": [],
            **changes,
        }

    async def _created(self, token: str, created_at: str) -> datetime:
        async with asking(guarded(), token) as client:
            response = await client.post("/threads/acme%2F1/commits", json=self._commit(created_at=created_at))
            assert response.is_success, response.text
            entry = (await client.get("/threads/acme%2F1/entry")).json()
        return datetime.fromisoformat(entry["created_at"])

    @pytest.mark.parametrize("given", [LONG_AGO, FAR_AHEAD, "0001-01-01T00:00:00+00:00"])
    async def test_the_clock_of_the_server_counts_for_a_tenant(self, given: str) -> None:
        before = datetime.now(UTC)
        assert before <= await self._created(ACME, given) <= datetime.now(UTC)

    @pytest.mark.parametrize("given", [LONG_AGO, FAR_AHEAD])
    async def test_an_import_keeps_its_times(self, given: str) -> None:
        assert await self._created(WRITER, given) == datetime.fromisoformat(given)

    async def test_a_clock_that_is_a_little_off_is_believed(self) -> None:
        given = datetime.now(UTC) - timedelta(minutes=1)
        assert await self._created(ACME, given.isoformat()) == given

    @pytest.mark.parametrize(("token", "shortened"), [(ACME, True), (WRITER, False)])
    async def test_a_tenant_keeps_nothing_longer_than_the_store(self, token: str, shortened: bool) -> None:
        store = MemoryCheckpointer(ttl_seconds=3600)
        commits = []
        commit = store.store.engine.commit

        async def noted(found: Any) -> Any:
            commits.append(found)
            return await commit(found)

        store.store.engine.commit = noted  # type: ignore[assignment, method-assign]
        async with asking(guarded(store), token) as client:
            body = self._commit(expires_at=FAR_AHEAD)
            assert (await client.post("/threads/acme%2F1/commits", json=body)).is_success
            body = self._commit(checkpoint_id="d", expires_at=(datetime.now(UTC) + timedelta(minutes=1)).isoformat())
            assert (await client.post("/threads/acme%2F1/commits", json=body)).is_success
        soon = datetime.now(UTC) + timedelta(seconds=3600)
        assert (commits[0].expires_at <= soon) == shortened
        assert commits[1].expires_at < soon - timedelta(minutes=50)

    async def test_a_client_with_a_wrong_clock_goes_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its saves and their history are what they are with a right one."""

        class WrongClock(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
                return datetime.fromisoformat(FAR_AHEAD)

        monkeypatch.setattr("locus.memory.store.datetime", WrongClock)
        with threaded(create_app(MemoryCheckpointer(), TOKENS)) as port:
            async with HTTPCheckpointer(f"http://127.0.0.1:{port}", token=ACME) as checkpointer:
                state = AgentState(agent_id="a")
                first = await checkpointer.save(state, "acme/1", "c1")
                second = await checkpointer.save(state.with_metadata("k", 1), "acme/1", "c2")
                history = await checkpointer.history("acme/1")
                assert [entry.checkpoint_id for entry in history] == [second, first]
                assert all(entry.created_at <= datetime.now(UTC) for entry in history)


class TestParents:
    """`parent_id` of a save: a checkpoint, null for none, or not given."""

    async def _parent(self, client: httpx.AsyncClient, **more: Any) -> str | None:
        assert (await client.post("/threads/t/checkpoints", json={"checkpoint_id": "a", "state": {}})).is_success
        saved = await client.post("/threads/t/checkpoints", json={"checkpoint_id": "b", "state": {"x": 1}, **more})
        assert saved.is_success
        parent: str | None = (await client.get("/threads/t/checkpoints/b")).json()["parent_id"]
        return parent

    async def test_null_is_none_as_it_is_in_an_answer(self, client: httpx.AsyncClient) -> None:
        assert await self._parent(client, parent_id=None) is None

    async def test_not_given_is_the_latest(self, client: httpx.AsyncClient) -> None:
        assert await self._parent(client) == "a"
        unknown = {"state": {}, "parent_id": "nowhere"}
        assert (await client.post("/threads/t/checkpoints", json=unknown)).status_code == 404
