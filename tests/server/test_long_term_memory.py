"""Long-term memory over HTTP: tenants, old servers, and what a token may do."""

from __future__ import annotations

import pytest

from locus.core.state import AgentState
from locus.effects import Effects
from locus.errors import BackendUnavailableError, CapabilityError, CheckpointError, LocusError
from locus.memory import LongTermMemory
from locus.memory.backends import HTTPCheckpointer, MemoryCheckpointer
from locus.memory.long_term.names import item_id
from locus.server import Quota, create_app
from locus.server.auth import Token
from locus.server.routes import _routes_of
from tests.server.running import threaded

ADMIN, ACME, READER = "a" * 40, "b" * 40, "c" * 40
TOKENS = [Token(ADMIN), Token(ACME, prefix="acme/"), Token(READER, "read", "acme/")]


async def test_a_tenant_sees_the_items_below_its_prefix_and_no_others() -> None:
    kept = MemoryCheckpointer()
    with threaded(create_app(kept, TOKENS)) as port:
        url = f"http://127.0.0.1:{port}"
        async with HTTPCheckpointer(url, token=ADMIN) as everywhere, HTTPCheckpointer(url, token=ACME) as tenant:
            admin, acme = LongTermMemory(everywhere), LongTermMemory(tenant)
            for namespace in (("acme",), ("acme", "users"), ("acme-corp",), ("other",), ("acme/",), ()):
                await admin.put(namespace, "acme/!k", "secret", source="t")
            await admin.put(("acme" + "x" * 300,), "k" * 300, "secret")
            assert [found.namespace for found in await acme.search()] == [("acme",), ("acme", "users")]
            assert await acme.list_namespaces() == [("acme",), ("acme", "users")]
            assert (await acme.put(("acme",), "mine", 1)).version == 1
            assert await acme.list_keys(("acme",)) == ["acme/!k", "mine"]
            for namespace in (("other",), ("acme-corp",), (), ("acme/",), ("acme" + "x" * 300,)):
                for call in (
                    acme.get(namespace, "acme/!k"),
                    acme.put(namespace, "k", 1),
                    acme.delete(namespace, "acme/!k"),
                    acme.history(namespace, "acme/!k"),
                ):
                    with pytest.raises(CheckpointError):
                        await call
            assert await acme.erase(source="t") == 2
            assert await acme.erase(()) == 1
            assert len(await admin.search((), limit=100)) == 5
            assert await kept.list_threads() == []
            async with HTTPCheckpointer(url, token=READER) as reading:
                with pytest.raises(CheckpointError):
                    await LongTermMemory(reading).put(("acme",), "k", 1)
        async with HTTPCheckpointer(url) as nobody:
            with pytest.raises(LocusError):
                await LongTermMemory(nobody).search()


async def test_a_tenant_keeps_effects_of_its_own_threads_and_of_no_others() -> None:
    with threaded(create_app(MemoryCheckpointer(), TOKENS)) as port:
        url = f"http://127.0.0.1:{port}"
        async with HTTPCheckpointer(url, token=ADMIN) as everywhere, HTTPCheckpointer(url, token=ACME) as tenant:
            admin, acme = Effects(everywhere), Effects(tenant)
            for thread_id in ("acme/1", "acme/1/below", "acme-corp/1", "acme", None):
                await admin.once("k", lambda thread_id=thread_id: thread_id, thread_id=thread_id)
            assert await acme.once("k", lambda: "again", thread_id="acme/1") == "acme/1"
            assert await acme.once("mine", lambda: "made", thread_id="acme/2") == "made"
            assert {effect.thread_id for effect in await acme.find()} == {"acme", "acme/1", "acme/1/below", "acme/2"}
            for thread_id in ("acme-corp/1", None):
                with pytest.raises(CheckpointError):
                    await acme.once("k", lambda: "again", thread_id=thread_id)
            assert await acme.erase("acme/1") == 1
            assert len(await admin.find()) == 5


async def test_items_count_for_the_quota_of_a_token() -> None:
    kept = MemoryCheckpointer()
    with threaded(create_app(kept, TOKENS, quota=Quota(saves=3))) as port:
        async with HTTPCheckpointer(f"http://127.0.0.1:{port}", token=ACME) as tenant:
            await tenant.save(AgentState(), "acme/t")
            for number in range(2):
                await LongTermMemory(tenant).put(("acme",), "k", number)
            with pytest.raises(BackendUnavailableError) as refused:
                await LongTermMemory(tenant).put(("acme",), "other", 1)
            assert refused.value.code == "quota_exceeded"
            assert await LongTermMemory(tenant).get(("acme",), "k") == 1
    assert await LongTermMemory(kept).list_keys(("acme",)) == ["k"]


async def test_a_server_that_keeps_no_items_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locus.server.app.all_routes", _routes_of)
    with threaded(create_app(MemoryCheckpointer())) as port:
        async with HTTPCheckpointer(f"http://127.0.0.1:{port}") as handle:
            with pytest.raises(CapabilityError, match="key space"):
                await LongTermMemory(handle).put(("a",), "k", 1)
            assert await handle.list_threads() == []


async def test_the_same_id_is_a_thread_and_an_item() -> None:
    kept = MemoryCheckpointer()
    name = item_id(("a",), "k")
    with threaded(create_app(kept)) as port:
        async with HTTPCheckpointer(f"http://127.0.0.1:{port}") as handle:
            await LongTermMemory(handle).put(("a",), "k", 1)
            assert not await handle.exists(name)
    assert await LongTermMemory(kept).get(("a",), "k") == 1
