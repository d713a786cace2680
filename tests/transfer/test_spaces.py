"""What is kept beside the threads goes with them: copies, doctor, migrations, vacuums and erasures know it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from locus.core.state import AgentState
from locus.doctor import examine
from locus.effects import Effects
from locus.memory import Item, LongTermMemory
from locus.memory.backends import FileCheckpointer, MemoryCheckpointer, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.engine import Engine
from locus.memory.model.spaces import KEY_SPACES
from locus.repair import repair
from locus.testing.processes.workers import Crew
from locus.transfer import copy_store
from tests.cli.terminals import Commands
from tests.memory.long_term.test_old_items import SQLITE
from tests.transfer.kill_jobs import copy_and_die

LONG = ("users", "x" * 300, "y" * 300)


async def filled(handle: Checkpointer) -> None:
    """Items and effects of two tenants, with versions, ends, sources, long names and vectors."""
    memory = LongTermMemory(handle, embed=lambda texts: [[float(len(text)), 1.0] for text in texts], embed_model="m")
    for number in range(5):
        await memory.put(("acme", "ada"), "tea", {"text": f"tea {number}"}, {"n": number}, source=f"t{number}")
    await memory.put(("acme", "ada"), "mood", "tired", ttl_seconds=3_600)
    await memory.put(LONG, "k" * 400, ["a list", {"of": "things"}])
    await memory.put(("acme-corp",), "large", {"text": "z" * 100_000})
    effects = Effects(handle)
    assert await effects.once("pay", lambda: "paid", thread_id="acme/1") == "paid"


async def kept(handle: Checkpointer) -> list[tuple[Item, Any]]:
    """All versions of all items, with their vectors."""
    memory = LongTermMemory(handle)
    items = [item async for page in memory._items.pages(()) for item in page]
    versions = [version for item in items for version in await memory.history(item.namespace, item.key, limit=None)]
    return [(version, version.vectors) for version in versions]


def target_of(kind: str, folder: Path) -> tuple[str, Checkpointer]:
    if kind == "file":
        return f"file:{folder / 'files'}", FileCheckpointer(folder / "files")
    return f"sqlite:{folder / 'b.db'}", sqlite_checkpointer(folder / "b.db")


@pytest.mark.parametrize("kind", ["sqlite", "file"])
@pytest.mark.parametrize("has_threads", [True, False])
async def test_a_copy_has_items_with_all_their_versions(tmp_path: Path, kind: str, has_threads: bool) -> None:
    source = f"sqlite:{tmp_path / 'a.db'}"
    url, target = target_of(kind, tmp_path)
    async with sqlite_checkpointer(tmp_path / "a.db") as handle, target:
        await filled(handle)
        if has_threads:
            await handle.save(AgentState(), "t")
        expected = await kept(handle)
        assert len(expected) == 8
        dry = await copy_store(source, url, dry_run=True)
        assert (dry.spaces["memory"].moved, dry.spaces["effects"].threads) == (8, 1)
        assert not (tmp_path / "b.db").exists()
        report = await copy_store(source, url)
        assert report.ok, report.as_dict()
        assert (report.threads, report.spaces["memory"].verified) == (int(has_threads), 8)
        assert await kept(target) == expected
        assert await target.list_threads() == ["t"] * has_threads
        again = await copy_store(source, url)
        assert (again.spaces["memory"].moved, again.spaces["memory"].present) == (0, 8)

        def fails() -> str:
            raise AssertionError("what is in the ledger is not done again")

        assert await Effects(target).once("pay", fails, thread_id="acme/1") == "paid"
        await LongTermMemory(handle).put(("acme", "ada"), "tea", "newer")
        assert (await copy_store(source, url)).spaces["memory"].moved == 1
        assert await LongTermMemory(target).get(("acme", "ada"), "tea") == "newer"


async def test_an_item_that_was_copied_ends_when_it_should(tmp_path: Path) -> None:
    """So that a sweep finds it: the destination knows of each thread of a key space when it ends."""
    async with sqlite_checkpointer(tmp_path / "a.db") as handle:
        memory = LongTermMemory(handle)
        await memory.put(("a",), "ends", 1, ttl_seconds=3_600)
        await memory.put(("a",), "stays", 1)
    await copy_store(f"sqlite:{tmp_path / 'a.db'}", f"sqlite:{tmp_path / 'b.db'}")
    ends = []
    for name in ("a.db", "b.db"):
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            ends.append(
                connection.execute(
                    "SELECT thread_id, expires_at FROM locus__memory_threads ORDER BY thread_id"
                ).fetchall()
            )
    assert ends[0] == ends[1]
    assert [at is None for _id, at in ends[0]] == [False, True]


async def test_chosen_threads_are_copied_without_items(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db") as handle:
        await filled(handle)
        await handle.save(AgentState(), "t")
    report = await copy_store(f"sqlite:{tmp_path / 'a.db'}", f"sqlite:{tmp_path / 'b.db'}", pattern="t")
    assert (report.threads, report.spaces) == (1, {})


async def test_a_destination_that_keeps_no_items_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db") as handle:
        await filled(handle)
        await handle.save(AgentState(), "t")
    monkeypatch.setattr("locus.memory.backends.file.engine.FileEngine._opened_space", Engine._opened_space)
    report = await copy_store(f"sqlite:{tmp_path / 'a.db'}", f"file:{tmp_path / 'files'}")
    assert (report.ok, report.done) == (False, 1)
    assert sorted(problem.message.partition(":")[0] for problem in report.problems) == [
        "1 effects were not copied",
        "4 items of long-term memory were not copied",
    ]


async def test_items_of_an_older_version_are_not_left_behind(locus: Commands, tmp_path: Path) -> None:
    """They are in a table of their own until the memory is used for the first time."""
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.executescript(SQLITE)
        row = ["acme/", "k", '{"n": 1}', "2025-01-01T00:00:00.000000+00:00", "2025-01-01T00:00:00.000000+00:00"]
        connection.execute("INSERT INTO locus_store VALUES (?, ?, ?, ?, ?, NULL, NULL)", row)
        connection.commit()
    for command in (["copy", "sqlite:a.db", "sqlite:b.db"], ["erase", "acme/"], ["doctor"]):
        said = locus.piped(*command, cwd=tmp_path, env={"LOCUS_STORE": "sqlite:a.db"})
        assert "`locus migrate --apply` once" in said.out + said.err
    async with sqlite_checkpointer(tmp_path / "a.db") as handle:
        await handle.save(AgentState(), "t")
    assert locus.piped("migrate", "--apply", "-s", "sqlite:a.db", cwd=tmp_path).code == 0
    assert locus.piped("copy", "sqlite:a.db", "sqlite:b.db", cwd=tmp_path).code == 0
    async with sqlite_checkpointer(tmp_path / "b.db") as handle:
        assert await LongTermMemory(handle).get(("acme",), "k") == {"n": 1}


async def test_an_item_whose_older_versions_are_gone_is_brought_up_to_date(tmp_path: Path) -> None:
    """Here or there: its newest version counts, and what was changed at the destination since stays."""
    source, url = f"sqlite:{tmp_path / 'a.db'}", f"sqlite:{tmp_path / 'b.db'}"
    async with sqlite_checkpointer(tmp_path / "a.db") as handle, sqlite_checkpointer(tmp_path / "b.db") as target:
        memory, copied = LongTermMemory(handle), LongTermMemory(target)
        for key in ("swept", "again", "there"):
            await memory.put(("a",), key, 1)
            await memory.put(("a",), key, 2)
        await copy_store(source, url)
        await memory.put(("a",), "swept", 3)
        assert await memory.sweep(keep_last=1) == 4
        await memory.delete(("a",), "again")
        await memory.put(("a",), "again", 3)
        await copied.put(("a",), "there", 4)
        report = await copy_store(source, url)
        assert report.ok, report.as_dict()
        assert (report.spaces["memory"].done, report.items) == (3, 3)
        assert [await copied.get(("a",), key) for key in ("swept", "again", "there")] == [3, 3, 4]


@pytest.mark.crash
async def test_a_copy_of_items_that_is_killed_again_and_again_gets_there(tmp_path: Path) -> None:
    source, url = f"sqlite:{tmp_path / 'a.db'}", f"sqlite:{tmp_path / 'b.db'}"
    async with sqlite_checkpointer(tmp_path / "a.db") as handle:
        await filled(handle)
        expected = await kept(handle)
    with Crew(url, ["tests.transfer.kill_jobs"]) as crew:
        for step in (1, 2, 5, 6):
            worker = crew.start(copy_and_die, source=source, destination=url, step=step)
            worker.hear_out()
            assert worker.killed
    async with sqlite_checkpointer(tmp_path / "b.db") as target:
        assert 0 < len(await kept(target)) < len(expected)
        report = await copy_store(source, url)
        assert report.ok
        assert 0 < report.spaces["memory"].present < 8
        assert await kept(target) == expected


async def test_doctor_finds_damage_of_items_and_repairs_what_it_can(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db") as handle:
        await filled(handle)
        healthy = await examine(handle.store)
        assert healthy.healthy
        assert {name: part.threads for name, part in healthy.spaces.items()} == {"memory": 4, "effects": 1}
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("DROP INDEX locus__memory_runs_by_branch")
        damage = "UPDATE locus__memory_checkpoints SET head = '{' WHERE seq = 2"
        assert connection.execute(damage).rowcount == 1
        connection.commit()
    async with sqlite_checkpointer(tmp_path / "a.db") as handle:
        found = await examine(handle.store)
        assert not found.healthy
        (damaged,) = found.spaces["memory"].damaged
        assert (damaged.thread_id, damaged.readable) == ("acme/ada/!tea", 4)
        (missing,) = found.spaces["memory"].findings
        assert "locus__memory_runs_by_branch is missing" in missing.what
        assert {one.left_alone for one in await repair(handle.store, found, apply=True)} == {""}
        assert (await examine(handle.store)).healthy
        assert len(await LongTermMemory(handle).history(("acme", "ada"), "tea")) == 4


async def test_doctor_finds_an_item_that_is_none() -> None:
    """A checkpoint that can be read, and says nothing that is an item."""
    handle = MemoryCheckpointer()
    await handle.save(AgentState(), "t")
    await Checkpointer(handle.store.key_space("memory")).save(AgentState(), "acme/!k")
    found = await examine(handle.store)
    (finding,) = found.spaces["memory"].findings
    assert (finding.severity, found.healthy) == ("error", False)
    assert "acme" not in finding.what


def test_commands_know_items(locus: Commands, tmp_path: Path) -> None:
    async def begun() -> None:
        async with sqlite_checkpointer(tmp_path / "a.db") as handle:
            await filled(handle)
            for thread in ("acme/1", "acme-corp/1"):
                await handle.save(AgentState(), thread)

    asyncio.run(begun())
    said = locus.piped("migrate", cwd=tmp_path)
    assert [line.partition(": ")[0] for line in said.lines[1:]] == list(KEY_SPACES.values())
    said = locus.piped("doctor", cwd=tmp_path)
    assert "4 items of long-term memory with 8 versions read" in said.lines
    said = locus.piped("vacuum", "--space", "memory", "--keep-last", "2", cwd=tmp_path)
    assert (said.out, said.err) == ("would remove 3 versions\n", "nothing was changed: --apply does it\n")
    said = locus.piped("vacuum", "--space", "memory", "--keep-last", "0", "--apply", cwd=tmp_path)
    assert said.out == "removed 4 versions\n"
    assert len(locus.piped("memory", "history", "acme/ada/", "tea", cwd=tmp_path).lines) == 1
    said = locus.piped("erase", "acme/", "--apply", cwd=tmp_path)
    assert said.lines[0] == "deleted 1 threads and 2 items of long-term memory and 1 effects"
    left = [json.loads(line) for line in locus.piped("memory", "list", "--json", cwd=tmp_path).lines]
    assert [one["namespace"] for one in left] == [["acme-corp"], list(LONG)]
    locus.piped("delete", "acme-corp/1", "--apply", cwd=tmp_path)
    assert len(locus.piped("memory", "list", "--json", cwd=tmp_path).lines) == 2
    said = locus.piped("copy", "sqlite:a.db", "sqlite:b.db", cwd=tmp_path)
    assert "2 of 2 items of long-term memory: 2 versions moved, 0 were there already" in said.lines
