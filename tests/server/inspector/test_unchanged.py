"""Without `--write` no request changes a byte of the store, and a file that may only be read is enough."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import httpx
import pytest

from locus.memory.backends import FileCheckpointer, sqlite_checkpointer
from locus.transfer.stores import open_to_read
from tests.backends.as_nobody import as_nobody, open_folder
from tests.server.inspector.access import looking, two_tenants
from tests.server.inspector.walking import Step, steps

__all__ = ["open_folder"]


def content(folder: Path) -> dict[str, str]:
    """The files of a folder, and the digest of each. Readers of SQLite share memory, and may leave an empty journal."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.endswith("-shm"))
    files = [path for path in files if not (path.name.endswith("-wal") and not path.stat().st_size)]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


async def ask(client: httpx.AsyncClient, step: Step, rev: str = "") -> httpx.Response:
    if step.method == "POST":
        return await client.post(step.address("acme/1"), data=step.filled("acme/1", rev))
    return await client.get(step.address("acme/1"))


async def visit(client: httpx.AsyncClient, *, rev: str = "") -> list[tuple[Step, int]]:
    """Ask for everything there is, and for everything that would be there with `--write`."""
    found = []
    for step in steps(writes=True):
        if step.streams:
            continue  # it reads what the timeline reads
        found.append((step, (await ask(client, step, rev)).status_code))
    return found


@pytest.mark.parametrize("kind", ["sqlite", "file"])
async def test_no_byte_is_changed(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "agents.db" if kind == "sqlite" else tmp_path
    async with sqlite_checkpointer(place) if kind == "sqlite" else FileCheckpointer(place) as checkpointer:
        await two_tenants(checkpointer)
        rev = (await checkpointer.store.history("acme/1", 1, None, None))[0].rev
    before = content(tmp_path)
    store = open_to_read(f"{kind}:{place}")
    try:
        async with looking(store) as client:
            statuses = await visit(client, rev=rev)
    finally:
        await store.close()
    assert content(tmp_path) == before
    for step, status in statuses:
        changes = step.path in ("/vacuum", "/t/{thread_id}/fork", "/t/{thread_id}/delete")
        assert (status == 404) == changes, step
        assert status < 500 or (kind == "file" and step.path == "/search"), step


async def test_read_only_is_a_state_of_the_engine(tmp_path: Path) -> None:
    """Not a button that is not shown: with all pages there, what was opened to be read stays as it is."""
    async with sqlite_checkpointer(tmp_path / "agents.db") as checkpointer:
        await two_tenants(checkpointer)
        rev = (await checkpointer.store.history("acme/1", 1, None, None))[0].rev
    before = content(tmp_path)
    store = open_to_read(f"sqlite:{tmp_path / 'agents.db'}")
    try:
        async with looking(store, writes=True) as client:
            statuses = await visit(client, rev=rev)
    finally:
        await store.close()
    assert content(tmp_path) == before
    refused = {step.path for step, status in statuses if status >= 500}
    assert refused == {"/vacuum", "/t/{thread_id}/fork", "/t/{thread_id}/delete"}


def test_a_file_that_may_only_be_read_is_enough(open_folder: Path) -> None:
    path = open_folder / "agents.db"

    async def fill() -> None:
        async with sqlite_checkpointer(path) as checkpointer:
            await two_tenants(checkpointer)

    async def walk() -> int:
        store = open_to_read(f"sqlite:{path}")
        try:
            async with looking(store) as client:
                statuses = await visit(client)
        finally:
            await store.close()
        return sum(status == 200 for _, status in statuses)

    asyncio.run(fill())
    shown = asyncio.run(walk())
    assert shown > 20
    for left in open_folder.glob("agents.db-*"):
        left.unlink()
    path.chmod(0o444)
    open_folder.chmod(0o555)
    assert as_nobody(lambda: asyncio.run(walk())) == shown
    assert [entry.name for entry in open_folder.iterdir()] == ["agents.db"]
