"""Lists on a server that does not know all of what is asked for: the client takes it out of what it gets."""

from __future__ import annotations

import pytest

from locus.errors import CapabilityError
from locus.memory.backends import HTTPCheckpointer, MemoryCheckpointer
from locus.memory.backends.http.engine import HTTPEngine
from locus.memory.backends.http.locus_server import LocusServer
from locus.memory.storage import StorageBackend
from locus.server import create_app
from locus.server.routes import operations
from locus.testing.laws.listing.newest_threads import all_pages
from tests.server.running import threaded

pytestmark = pytest.mark.http

NAMES = [f"{tenant}/{number}" for tenant in ("a", "b") for number in range(6)]


def _server(handle: HTTPCheckpointer) -> LocusServer:
    engine = handle.store.engine
    assert isinstance(engine, HTTPEngine)
    assert isinstance(engine.server, LocusServer)
    return engine.server


@pytest.mark.parametrize(
    "lacking", [(), ("recent_threads",), ("recent_threads", "pages"), ("recent_threads", "prefixes")]
)
async def test_an_older_server_never_lists_too_much(lacking: str) -> None:
    store = MemoryCheckpointer()
    for number, name in enumerate(NAMES):
        await StorageBackend(store.store).save(name, {"n": number}, metadata={"k": "v"})
    with threaded(create_app(store)) as port:
        async with HTTPCheckpointer(f"http://127.0.0.1:{port}") as handle:
            assert await handle.list_threads() == NAMES
            server = _server(handle)
            # As a server that does not announce them is understood.
            assert server.features >= {*lacking}
            server.features -= {*lacking}
            within = [name for name in NAMES if name.startswith("a/")]
            for after in (None, "a/2", "a/9", "z"):
                expected = [name for name in NAMES if after is None or name > after]
                assert await handle.list_threads(after=after) == expected
                assert await handle.list_threads(2, after=after) == expected[:2]
                assert (
                    await handle.list_threads(3, after=after, prefix="a/")
                    == [name for name in expected if name in within][:3]
                )
            assert await handle.list_threads(None, "*5", prefix="b") == ["b/5"]
            newest = NAMES[::-1]
            for limit in (5, 50):
                assert [one.thread_id for one in await all_pages(handle, limit)] == newest
                found = await all_pages(handle, limit, prefix="a/")
                assert [one.thread_id for one in found] == within[::-1]
                listed = await handle.list_with_metadata(limit, prefix="a/")
                assert [one["thread_id"] for one in listed] == within[::-1][:limit]
                queried = await handle.query_by_metadata("k", "v", limit, prefix="a/")
                assert [one["thread_id"] for one in queried] == within[::-1][:limit]
            if "prefixes" in lacking:
                with pytest.raises(CapabilityError, match="too old"):
                    await handle.search("x", prefix="a/")


async def test_what_a_server_does_not_announce_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older server ignores what it does not know; a newer one refuses it."""
    announced = operations.About.model_fields
    assert {"pages", "prefixes", "recent_threads"} <= announced.keys()
    sent: list[str] = []
    with threaded(create_app(MemoryCheckpointer())) as port:
        async with HTTPCheckpointer(f"http://127.0.0.1:{port}") as handle:
            await StorageBackend(handle.store).save("t", {"messages": [{"role": "user", "content": "hi"}]})
            server = _server(handle)
            server.features -= {"recent_threads", "pages", "prefixes", "parts", "held"}
            ask = server.ask

            async def noted(
                read: object,
                method: str,
                path: str,
                query: dict[str, object] | None = None,
                *more: object,
                **options: object,
            ) -> object:
                sent.extend(query or ())
                return await ask(read, method, path, query, *more, **options)  # type: ignore[arg-type]

            monkeypatch.setattr(server, "ask", noted)
            assert await handle.list_threads(5, after="s", prefix="t") == ["t"]
            assert (await handle.recent_threads(titles=True, prefix="t")).threads[0].title == "hi"
            assert await handle.list_with_metadata(prefix="u") == []
    assert {*sent} <= {"pattern", "limit", "every_namespace", "namespace", "checkpoint_id"}
