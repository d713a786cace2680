"""What a token that may read can ask for: bounded in time, nothing but words, and nothing of other tenants."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from locus.memory.backends import MemoryCheckpointer, sqlite_checkpointer
from locus.memory.backends.memory import MemoryEngine
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.ids import Pattern
from locus.memory.model.records import Entry, Hit
from locus.memory.storage import StorageBackend
from locus.memory.store import CheckpointStore
from locus.server import Limits, authorized_store, create_app, lists
from locus.server.routes import threads as thread_routes
from tests.server.running import ACME_READER, READER, TOKENS, asking, guarded

T = TypeVar("T")


class WatchedEngine(MemoryEngine):
    """Notes the threads that it answers with."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: set[str] = set()

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        found = await super().threads(pattern, limit)
        self.answered.update(found)
        return found

    async def recent(self, limit: int, prefix: str = "") -> list[Entry]:
        return self._noted(await super().recent(limit, prefix))

    async def find(self, key: str, value: str, limit: int, prefix: str = "") -> list[Entry]:
        return self._noted(await super().find(key, value, limit, prefix))

    async def search(self, terms: Sequence[str], limit: int, prefix: str = "") -> list[Hit]:
        found = await super().search(terms, limit, prefix)
        self._noted([hit.entry for hit in found])
        return found

    def _noted(self, found: list[Entry]) -> list[Entry]:
        self.answered.update(entry.thread_id for entry in found)
        return found


class StalledEngine(MemoryEngine):
    """Its searches do not end."""

    async def search(self, terms: Sequence[str], limit: int, prefix: str = "") -> list[Hit]:
        await asyncio.Event().wait()
        raise AssertionError


async def test_the_store_is_asked_for_nothing_of_other_tenants() -> None:
    engine = WatchedEngine()
    store = CheckpointStore(engine)
    backend = StorageBackend(store)
    for name in ("acme/1", "acme/2", "acme-corp/1", "other"):
        await backend.save(name, {"m": ["kangaroo"]}, metadata={"k": "v"})
    async with asking(guarded(Checkpointer(store)), ACME_READER) as client:
        assert (await client.get("/threads?pattern=*&limit=1")).json()["threads"] == ["acme/1"]
        assert (await client.get("/threads?pattern=*2")).json()["threads"] == ["acme/2"]
        assert (await client.get("/threads?pattern=other")).json()["threads"] == []
        for asked in ("acme/", "", "acme/2", "other", "acme-corp/"):
            expected = {name for name in ("acme/1", "acme/2") if name.startswith(asked)}
            listed = (await client.get("/threads", params={"prefix": asked})).json()["threads"]
            recent = (await client.get("/recent", params={"prefix": asked})).json()["checkpoints"]
            found = (await client.post("/find", json={"key": "k", "value": "v", "prefix": asked})).json()["checkpoints"]
            hits = (await client.post("/search", json={"query": "kangaroo", "prefix": asked})).json()["hits"]
            assert set(listed) == expected
            for entries in (recent, found, hits):
                assert {entry["thread_id"] for entry in entries} == expected
    assert engine.answered == {"acme/1", "acme/2"}


async def test_scores_tell_a_tenant_nothing_of_others(tmp_path: Path) -> None:
    """SQLite's own scores would: they depend on how rare a word is among all threads."""
    async with sqlite_checkpointer(tmp_path / "a.db") as store, asking(guarded(store), ACME_READER) as acme:
        backend = StorageBackend(store.store)
        await backend.save("acme/1", {"m": ["our merger with initech"]})
        await backend.save("acme/2", {"m": ["initech initech"]})

        async def seen() -> Any:
            return (await acme.post("/search", json={"query": "initech"})).json()["hits"]

        before = await seen()
        assert [hit["thread_id"] for hit in before] == ["acme/2", "acme/1"]
        for number in range(20):
            await backend.save(f"other/{number}", {"m": ["buy initech"]})
        assert await seen() == before


@pytest.mark.parametrize("term", ['"', "\\", "a b", "x*", "-x", "AND", "", "@words:{a}"])
async def test_a_term_that_is_no_word_is_refused(tmp_path: Path, term: str) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db") as store, asking(guarded(store), READER) as client:
        answer = await client.post("/search", json={"terms": [term]})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


async def test_long_patterns_and_queries_are_refused() -> None:
    async with asking(guarded(), READER) as client:
        for pattern in ("*a" * 100, "x" * 1_000):
            answer = await client.get("/threads", params={"pattern": pattern})
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_id")
        many = [f"w{number}" for number in range(200)]
        for body in ({"query": "x" * 20_000}, {"query": " ".join(many)}, {"terms": many}):
            answer = await client.post("/search", json=body)
            assert answer.status_code in (400, 422)
            assert answer.json()["code"] == "invalid_request"


async def test_a_query_that_takes_too_long_ends_while_others_go_on() -> None:
    store = CheckpointStore(StalledEngine())
    await StorageBackend(store).save("t", {"m": ["kangaroo"]})
    app = create_app(Checkpointer(store), TOKENS, limits=Limits(query_seconds=0.2))
    async with asking(app, READER) as client:
        stalled = asyncio.create_task(client.post("/search", json={"query": "kangaroo"}))
        assert (await client.get("/threads")).json()["threads"] == ["t"]
        answer = await stalled
        assert (answer.status_code, answer.json()["code"]) == (500, "query_too_slow")


class GreedyEngine(MemoryEngine):
    """Knows the most that was asked for at once."""

    def __init__(self) -> None:
        super().__init__()
        self.most_asked = 0

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        assert limit is not None
        return self._asked(limit, await super().threads(pattern, limit))

    async def recent(self, limit: int, prefix: str = "") -> list[Entry]:
        return self._asked(limit, await super().recent(limit, prefix))

    async def find(self, key: str, value: str, limit: int, prefix: str = "") -> list[Entry]:
        return self._asked(limit, await super().find(key, value, limit, prefix))

    async def search(self, terms: Sequence[str], limit: int, prefix: str = "") -> list[Hit]:
        return self._asked(limit, await super().search(terms, limit, prefix))

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        assert limit is not None
        return self._asked(limit, await super().history(thread_id, namespace, limit, before_seq))

    def _asked(self, limit: int, found: list[T]) -> list[T]:
        self.most_asked = max(self.most_asked, limit)
        return found


LISTS = (
    ("GET", "/recent", "checkpoints"),
    ("POST", "/find", "checkpoints"),
    ("POST", "/search", "hits"),
    ("GET", "/threads/t/checkpoints", "checkpoints"),
)


async def _listed(client: httpx.AsyncClient, method: str, path: str, limit: int) -> httpx.Response:
    if method == "GET":
        return await client.get(path, params={"limit": limit})
    about = {"query": "kangaroo"} if path == "/search" else {"key": "k", "value": "v"}
    return await client.post(path, json={**about, "limit": limit})


@pytest.mark.parametrize(("method", "path", "name"), LISTS)
async def test_a_long_list_is_whole_and_a_large_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, method: str, path: str, name: str
) -> None:
    for module in (lists, authorized_store):
        monkeypatch.setattr(module, "FIRST_PORTION", 2)
    engine = GreedyEngine()
    store = CheckpointStore(engine)
    for number in range(20):
        await StorageBackend(store).save(
            "t", {"m": ["kangaroo"]}, f"c{number}", metadata={"k": "v", "much": "x" * 1_000}
        )
    async with asking(create_app(Checkpointer(store), TOKENS), READER) as client:
        for limit in (0, 1, 2, 3, 19, 20, 1_000):
            found = (await _listed(client, method, path, limit)).json()[name]
            expected = [f"c{number}" for number in range(19, -1, -1)][:limit]
            assert [entry["checkpoint_id"] for entry in found] == expected
    engine.most_asked = 0
    app = create_app(Checkpointer(store), TOKENS, limits=Limits(state_bytes=8_000))
    async with asking(app, READER) as client:
        assert len((await _listed(client, method, path, 4)).json()[name]) == 4
        for limit in (20, 10_000):
            answer = await _listed(client, method, path, limit)
            assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
            assert "limit" in answer.json()["detail"]
    assert engine.most_asked <= 8, "much more was read than may be answered"


async def test_ids_of_threads_come_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_routes, "MOST_LISTED", 3)
    engine = GreedyEngine()
    store = CheckpointStore(engine)
    names = sorted(["acme/", *(f"acme/{number}" for number in range(10)), "other"])
    for name in names:
        await StorageBackend(store).save(name, {"n": 1})
    async with asking(create_app(Checkpointer(store), TOKENS), ACME_READER) as client:
        found: list[str] = []
        query = {"limit": "3", "pattern": "acme*"}
        while True:
            answer = (await client.get("/threads", params=query)).json()
            assert 0 < len(answer["threads"]) <= 3
            found += answer["threads"]
            if "next" not in answer:
                break
            query["after"] = answer["next"]
        assert found == names[:-1]
        assert (await client.get("/threads?limit=0")).json() == {"threads": []}
        assert (await client.get("/threads?limit=2&after=acme/8")).json() == {"threads": ["acme/9"]}
    assert engine.most_asked == 4


async def test_metadata_beyond_the_limit_is_refused() -> None:
    limits = Limits(metadata_bytes=1_000)
    async with asking(create_app(MemoryCheckpointer(), limits=limits)) as client:
        for size, status in ((900, 201), (1_000, 413)):
            body = {"state": {}, "metadata": {"k": "x" * size}}
            assert (await client.post("/threads/t/checkpoints", json=body)).status_code == status


class ForgetfulEngine(MemoryEngine):
    """Does not know that a list can go on behind an id."""

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        return await super().threads(replace(pattern, after=""), limit)


async def test_pages_of_an_engine_that_always_begins_at_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_routes, "MOST_LISTED", 2)
    store = CheckpointStore(ForgetfulEngine())
    for name in "abcde":
        await StorageBackend(store).save(name, {"n": 1})
    async with asking(create_app(Checkpointer(store))) as client:
        assert (await client.get("/threads?limit=2")).json() == {"threads": ["a", "b"], "next": "b"}
        assert (await client.get("/threads?limit=2&after=b")).json() == {"threads": ["c", "d"], "next": "d"}
        assert (await client.get("/threads?limit=all&after=d")).json() == {"threads": ["e"]}
        refused = await client.get("/threads?limit=all")
        assert refused.status_code == 413, "who asks for all, as older clients do, would take a part for all"
        assert "limit=2" in refused.json()["detail"]
        assert (await client.post("/vacuum", json={"older_than_days": 0})).json() == {"removed": 5, "next": None}
