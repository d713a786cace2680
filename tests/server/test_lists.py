"""Lists of threads over HTTP: for a tenant, page by page, with queries that say what they mean."""

from __future__ import annotations

import httpx
import pytest

from locus.memory.backends import MemoryCheckpointer
from locus.memory.backends.memory import MemoryEngine
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.ids import Pattern
from locus.memory.model.records import NewestThreads
from locus.memory.storage import StorageBackend
from locus.memory.store import CheckpointStore
from locus.server import create_app
from tests.server.running import ACME_READER, READER, asking, guarded


class CountingEngine(MemoryEngine):
    """Counts the ids and the checkpoints that it answers with."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: list[str] = []

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        found = await super().threads(pattern, limit)
        self.answered += found
        return found

    async def newest_threads(self, limit: int, before: str | None = None, prefix: str = "") -> NewestThreads:
        found = await super().newest_threads(limit, before, prefix)
        self.answered += [entry.thread_id for entry in found.entries]
        return found


async def _filled() -> tuple[CountingEngine, Checkpointer]:
    engine = CountingEngine()
    store = CheckpointStore(engine)
    for number in range(50):
        await StorageBackend(store).save(
            f"acme/{number:02}", {"messages": [{"role": "user", "content": f"hi {number}"}]}
        )
        await StorageBackend(store).save(f"other/{number:02}", {})
    return engine, Checkpointer(store)


async def test_a_page_for_a_tenant_reads_no_more_ids_than_it_has() -> None:
    engine, checkpointer = await _filled()
    async with asking(guarded(checkpointer), ACME_READER) as client:
        found: list[str] = []
        page = (await client.get("/threads?limit=10")).json()
        while True:
            found += page["threads"]
            assert len(engine.answered) <= 11  # one more tells whether there are more
            engine.answered.clear()
            if "next" not in page:
                break
            page = (await client.get("/threads", params={"limit": 10, "after": page["next"]})).json()
        assert found == [f"acme/{number:02}" for number in range(50)]
        assert (await client.get("/threads", params={"after": "other/", "prefix": ""})).json() == {"threads": []}
        assert engine.answered == []


async def test_the_newest_threads_of_a_tenant() -> None:
    engine, checkpointer = await _filled()
    async with asking(guarded(checkpointer), ACME_READER) as client:
        found: list[str] = []
        page = (await client.get("/recent-threads?limit=20&titles=true")).json()
        assert page["threads"][0]["title"] == "hi 49"
        assert page["threads"][0]["count"] == 1
        while True:
            found += [thread["thread_id"] for thread in page["threads"]]
            if not page["more"]:
                assert "next" not in page
                break
            page = (await client.get("/recent-threads", params={"limit": 20, "before": page["next"]})).json()
            assert {thread["title"] for thread in page["threads"]} == {None}
        assert found == [f"acme/{number:02}" for number in range(49, -1, -1)]
        nothing = {"threads": [], "more": False}
        for prefix in ("other/", "b", "acme/99"):
            assert (await client.get("/recent-threads", params={"prefix": prefix})).json() == nothing
        # A cursor of somebody else's list shows a tenant nothing of it.
        made_up = {"before": f"{10**17}:other/49"}
        seen = (await client.get("/recent-threads", params=made_up)).json()["threads"]
        assert {thread["thread_id"].partition("/")[0] for thread in seen} == {"acme"}
    assert {name.partition("/")[0] for name in engine.answered} == {"acme"}


async def test_a_cursor_that_is_none_is_the_senders_mistake() -> None:
    async with asking(guarded(), READER) as client:
        for cursor in ("x", "-1:t", "1.5", "9" * 1_000, "", "%00"):
            answer = await client.get("/recent-threads", params={"before": cursor})
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), cursor
        assert (await client.get("/recent-threads?limit=2001")).status_code == 422


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("/threads?prefxi=acme/", "did you mean 'prefix'?"),
        ("/threads?limit=5&Prefix=acme/", "did you mean 'prefix'?"),
        ("/threads?offset=5", "there are: pattern, limit, prefix, after"),
        ("/recent?limits=5", "did you mean 'limit'?"),
        ("/recent-threads?after=x", "there are: limit, before, prefix, titles"),
        ("/threads/t/checkpoints?namespce=x", "did you mean 'namespace'?"),
        ("/threads/t/latest?checkpoint_id=c", "there are: namespace"),
        ("/threads/t/namespaces?namespace=x", "this request has none"),
        ("/threads/t/stored?windows=1", "did you mean 'window'?"),
        ("/?x=1", "this request has none"),
    ],
)
async def test_a_parameter_that_does_not_exist_is_refused(url: str, meant: str) -> None:
    async with asking(guarded(), READER) as client:
        answer = await client.get(url)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
        assert meant in answer.json()["detail"]


async def test_writes_with_a_parameter_that_does_not_exist_do_nothing() -> None:
    store = MemoryCheckpointer()
    async with asking(create_app(store)) as client:
        refused: list[httpx.Response] = [
            await client.post("/threads/t/checkpoints?namespce=x", json={"state": {}}),
            await client.post("/search?limit=1", json={"query": "x"}),
            await client.post("/vacuum?dry_run=true", json={"keep_last": 1}),
        ]
        assert [answer.status_code for answer in refused] == [422, 422, 422]
        assert await store.list_threads() == []
        await client.post("/threads/t/checkpoints", json={"state": {}})
        assert (await client.delete("/threads/t?namespaces=x")).status_code == 422
        assert await store.list_threads() == ["t"]


async def test_probes_may_add_what_they_like() -> None:
    async with asking(guarded()) as client:
        for path in ("/health", "/ready", "/openapi.json"):
            assert (await client.get(f"{path}?now=1")).status_code == 200
    async with asking(guarded(), READER) as client:
        assert (await client.get("/metrics?now=1")).status_code == 200
    async with asking(guarded()) as client:
        assert (await client.get("/threads?nothing=1")).status_code == 401  # and not what there is instead
