"""Vacuum in portions, and sizes, over HTTP."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import CorruptCheckpointError
from locus.memory import VacuumProgress
from locus.memory.backends import FileCheckpointer, HTTPCheckpointer, MemoryCheckpointer
from locus.memory.backends.http.locus_server import LocusServer
from locus.server import create_app
from locus.server.routes import queries
from tests.server.running import ACME, ACME_READER, READER, asking, guarded, threaded

ORPHANED = "1ec9414c-232a-6b00-b3c8-9f6bdeced846"
STATE = AgentState().with_message(Message.user("hello"))


async def _filled(store: MemoryCheckpointer | FileCheckpointer, *thread_ids: str) -> None:
    for thread_id in thread_ids:
        for number in range(3):
            await store.save(STATE, thread_id, f"c{number}")
        await store.put_writes(thread_id, ORPHANED, "task", [("x", 1)])


async def _portions(client: httpx.AsyncClient, **body: object) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    while not found or found[-1]["next"] is not None:
        asked = {"progress": True, **body, **({"after": found[-1]["next"]} if found else {})}
        found.append((await client.post("/vacuum", json=asked)).raise_for_status().json())
        assert len(found) < 50, "it does not end"
    return found


@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_vacuum_ends_however_short_a_portion_is(monkeypatch: pytest.MonkeyPatch, dry_run: bool) -> None:
    monkeypatch.setattr(queries, "PORTION_SECONDS", -1.0)
    monkeypatch.setattr(queries, "REMOVED_AT_ONCE", 1)
    store = MemoryCheckpointer()
    names = [f"t{number}" for number in range(7)]
    await _filled(store, *names)
    async with asking(create_app(store)) as client:
        found = await _portions(client, keep_last=1, dry_run=dry_run)
    assert sum(int(str(one["removed"])) for one in found) == 14
    assert sum(int(str(one["writes"])) for one in found) == 7
    assert sum(int(str(one["threads"])) for one in found) == 7
    assert len(found) > 7 or dry_run
    assert [len(await store.list_checkpoints(name)) for name in names] == [3 if dry_run else 1] * 7


async def test_damage_is_told_and_the_rest_is_done(tmp_path: Path) -> None:
    async with FileCheckpointer(tmp_path) as store:
        await _filled(store, "a", "damaged", "z")
    log = tmp_path / "damaged.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"checkpoint_id":"c1"', b'"checkpoint_id":"cx"', 1))
    async with FileCheckpointer(tmp_path) as store:
        async with asking(create_app(store)) as client:
            dry = await client.post("/vacuum", json={"keep_last": 1, "dry_run": True})
            assert (dry.status_code, dry.json()["code"]) == (500, "corrupt")
        with threaded(create_app(store)) as port:
            async with HTTPCheckpointer(f"http://127.0.0.1:{port}") as handle:
                told: list[VacuumProgress] = []
                with pytest.raises(CorruptCheckpointError, match="damaged"):
                    await handle.vacuum(keep_last=1, progress=told.append)
                assert told[-1] == VacuumProgress(threads=3, checkpoints=4, writes=2, damaged=1)
                assert await handle.list_checkpoints("a") == await handle.list_checkpoints("z") == ["c2"]


async def test_a_tenant_measures_and_vacuums_its_own() -> None:
    store = MemoryCheckpointer()
    await _filled(store, "acme/t", "other")
    own, others = await store.sizes("acme/t", keep_last=1), await store.sizes("other")
    assert own is not None
    assert own.freed is not None
    assert others is not None
    app = guarded(store)
    async with asking(app, ACME_READER) as client:
        answer = (await client.post("/threads/~YWNtZS90/sizes", json={"keep_last": 1})).raise_for_status().json()
        assert (answer["bytes"], answer["freed"]["bytes"]) == (own.bytes, own.freed.bytes)
        assert answer["lists"][0]["path"] == ["messages"]
        assert (await client.post("/threads/other/sizes", json={})).status_code == 403
    async with asking(app, READER) as client:
        assert (await client.post("/threads/other/sizes", json={})).json()["bytes"] == others.bytes
        assert (await client.post("/threads/nobody/sizes", json={})).status_code == 404
        for wrong in ({"keep_last": 0}, {"older_than_days": -1}, {"keep_last": 1, "deleting": ["c1"]}, {"what": 1}):
            assert (await client.post("/threads/other/sizes", json=wrong)).status_code in (400, 422)
        missing = await client.post("/threads/other/sizes", json={"deleting": ["c9"]})
        assert (missing.status_code, missing.json()["code"]) == (404, "no_such_checkpoint")
    async with asking(app, ACME) as client:
        (found,) = await _portions(client, keep_last=1)
    assert (found["removed"], found["writes"], found["threads"]) == (2, 1, 1)
    assert await store.sizes("other") == others


async def test_a_server_that_tells_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older one: what is missing is worked out here, or left out."""
    store = MemoryCheckpointer()
    await _filled(store, "t")
    known = LocusServer.__init__

    def older(self: LocusServer, client: object, about: dict[str, object]) -> None:
        known(self, client, {name: value for name, value in about.items() if name not in ("sizes", "progress")})  # type: ignore[arg-type]

    monkeypatch.setattr(LocusServer, "__init__", older)
    with threaded(create_app(store)) as port:
        async with HTTPCheckpointer(f"http://127.0.0.1:{port}") as handle:
            found, expected = await handle.sizes("t"), await store.sizes("t")
            assert found is not None
            assert expected is not None
            assert (found.head_bytes, found.run_bytes) == (expected.head_bytes, expected.run_bytes)
            assert await handle.vacuum(keep_last=1) == 2
