"""Copies between stores: complete, in order, resumable, and refused where they cannot be right."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError, ConfigurationError
from locus.memory.backends import FileCheckpointer, MemoryCheckpointer, StorageBackendAdapter, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.plan import MOST_ITEMS
from locus.memory.model.records import DEFAULT_NAMESPACE
from locus.testing.data import at, conversation, message, rich_state
from locus.testing.laws.base import dicts, ids
from locus.transfer import Report, copy_store
from locus.transfer.move import move
from locus.transfer.read import StoreSource
from tests.transfer.support import contents, fill
from tests.unsealed import unseal

KINDS: dict[str, Callable[[Path], Checkpointer]] = {
    "memory": lambda _folder: MemoryCheckpointer(),
    "file": lambda folder: FileCheckpointer(folder / "files", create_folder=True),
    "sqlite": lambda folder: sqlite_checkpointer(folder / "a.db", durability="normal", create_folder=True),
}


async def moved(source: Checkpointer, target: Checkpointer, **options: Any) -> Report:
    return await move(StoreSource(source.store), target.store, name="target", **options)


@pytest.mark.parametrize("into", KINDS)
@pytest.mark.parametrize("of", KINDS)
async def test_a_copy_has_everything(tmp_path: Path, of: str, into: str) -> None:
    async with KINDS[of](tmp_path / "from") as source, KINDS[into](tmp_path / "to") as target:
        count = await fill(source, small=True)
        before = await contents(source)
        checkpoints = sum(map(len, before.values()))
        report = await moved(source, target)
        assert report.ok
        assert (report.threads, report.done, report.present) == (count, count, 0)
        assert report.checkpoints == report.moved == report.verified == checkpoints
        assert await contents(target) == before
        assert await contents(source) == before
        again = await moved(source, target)
        assert (again.moved, again.present, again.verified) == (0, checkpoints, checkpoints)
        assert await contents(target) == before


async def test_everything_that_was_ever_hard_to_store_is_copied(tmp_path: Path) -> None:
    async with KINDS["sqlite"](tmp_path / "a") as source, KINDS["file"](tmp_path / "b") as target:
        await fill(source)
        report = await moved(source, target)
        assert report.ok, report.problems
        assert await contents(target) == await contents(source)


async def test_the_copy_of_a_copy_of_a_copy_can_be_gone_on_with(tmp_path: Path) -> None:
    first, second, third = (KINDS["sqlite"](tmp_path / name) for name in "abc")
    async with first, second, third:
        await fill(first, small=True)
        await moved(first, second)
        await moved(second, third)
        state = await third.load("forks")
        assert state is not None
        for number in range(3):
            state = state.with_messages(conversation(2, 500 + number * 2))
            await third.save(state, "forks", f"more{number}")
        assert await third.load("forks") == state
        assert (await contents(third))["forks"][:-3] == (await contents(first))["forks"]


class Plain:
    """Somebody else's storage, with the five plain methods: whole states, one at a time, and no pending writes."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}

    async def save(self, key: str, data: dict[str, Any]) -> None:
        self.kept[key] = data

    async def load(self, key: str) -> dict[str, Any] | None:
        return self.kept.get(key)

    async def delete(self, key: str) -> bool:
        return self.kept.pop(key, None) is not None

    async def exists(self, key: str) -> bool:
        return key in self.kept

    async def list_threads(self) -> list[str]:
        return list(self.kept)


async def test_stores_of_others_are_copied_from_and_to(tmp_path: Path) -> None:
    stranger, another = StorageBackendAdapter(Plain()), StorageBackendAdapter(Plain())
    async with stranger, another, KINDS["sqlite"](tmp_path) as target:
        state = rich_state()
        for number in range(4):
            state = state.with_messages(conversation(2, number))
            await stranger.save(state, "t", f"c{number}", {"n": number})
        for source, into in ((stranger, target), (target, another)):
            report = await moved(source, into)
            assert report.ok, report.problems
            assert (report.moved, report.verified) == (4, 4)
        assert [await another.load("t", f"c{number}") for number in range(4)] == [
            await stranger.load("t", f"c{number}") for number in range(4)
        ]
        assert await another.history("t") == await stranger.history("t")
        await target.put_writes("t", "c3", "task", [("x", 1)])
        (problem,) = (await moved(target, another)).problems
        assert "thread 't' has pending writes, and the destination has no place for them" in problem.message


async def test_only_threads_that_match_are_copied(tmp_path: Path) -> None:
    async with MemoryCheckpointer() as source, MemoryCheckpointer() as target:
        for name in ("acme/1", "acme/2", "acme-corp/1", "other"):
            await source.save(AgentState(), name)
        report = await moved(source, target, pattern="acme/*")
        assert report.ok
        assert await target.list_threads(None) == ["acme/1", "acme/2"]
        with pytest.raises(ConfigurationError, match="no thread that matches 'z\\*'"):
            await moved(source, target, pattern="z*")


async def test_what_has_been_added_since_is_added(tmp_path: Path) -> None:
    async with KINDS["sqlite"](tmp_path / "a") as source, KINDS["file"](tmp_path / "b") as target:
        state = AgentState().with_messages(conversation(4))
        await source.save(state, "t", "a")
        await source.put_writes("t", "a", "task", [("x", 1)])
        assert (await moved(source, target)).moved == 1
        await source.put_writes("t", "a", "task", [("x", 2), ("y", 3)])
        await source.save(state.with_message(message(9)), "t", "b")
        await source.save(state.with_message(message(8)), "t", "c", parent="a")
        await dicts(source).save("t", {"n": [1, 2, 3]}, "a", namespace="other")
        report = await moved(source, target)
        assert report.ok, report.problems
        assert (report.moved, report.present) == (3, 1)
        assert await contents(target) == await contents(source)


async def test_a_thread_that_has_gone_on_at_the_destination_stays_as_it_is(tmp_path: Path) -> None:
    async with MemoryCheckpointer() as source, KINDS["sqlite"](tmp_path) as target:
        state = AgentState().with_messages(conversation(4))
        await source.save(state, "t", "a")
        await source.put_writes("t", "a", "task", [("x", 1)])
        await moved(source, target)
        await target.put_writes("t", "a", "task", [("x", 2)])
        await target.save(state.with_message(message(9)), "t", "b")
        before = await contents(target)
        report = await moved(source, target)
        assert report.ok
        assert (report.moved, report.verified) == (0, 1)
        assert await contents(target) == before


async def test_namespaces_are_moved_each_for_itself(tmp_path: Path) -> None:
    """A graph's thread and a session may have the same name, and come from different stores."""
    async with MemoryCheckpointer() as one, MemoryCheckpointer() as other, KINDS["sqlite"](tmp_path) as target:
        for number in range(3):
            await dicts(one).save("t", {"n": number}, f"c{number}", namespace="one")
            await dicts(other).save("t", {"m": number}, f"c{number}", namespace="other")
        assert (await moved(one, target)).moved == 3
        assert (await moved(other, target)).moved == 3
        await dicts(one).save("t", {"n": 9}, "c9", namespace="one")
        report = await moved(one, target)
        assert (report.ok, report.moved, report.present, report.verified) == (True, 1, 3, 4)
        assert await ids(target, "t", namespace="one") == ["c9", "c2", "c1", "c0"]
        assert await ids(target, "t", namespace="other") == ["c2", "c1", "c0"]


async def _other_content(handle: Checkpointer, how: str) -> None:
    """Almost the thread of `_thread`."""
    await _thread(handle, metadata={"k": 2} if how == "metadata" else {"k": 1})
    if how == "more":
        await dicts(handle).save("t", {"n": 9}, "z")


async def _thread(handle: Checkpointer, metadata: dict[str, Any] | None = None) -> None:
    await dicts(handle).save("t", {"n": [1, 2]}, "a", metadata or {"k": 1})


@pytest.mark.parametrize("how", ["time", "metadata", "more"])
async def test_other_content_under_the_same_id_is_a_conflict_that_says_what_to_do(how: str) -> None:
    async with MemoryCheckpointer() as source, MemoryCheckpointer() as target:
        await _thread(source)
        if how == "more":
            await moved(source, target)
            await dicts(source).save("t", {"n": 1}, "b")
            await dicts(target).save("t", {"n": 9}, "z")
        else:
            await _other_content(target, how)
        await dicts(source).save("u", {"n": 1}, "a")
        before = (await contents(target))["t"]
        report = await moved(source, target)
        assert not report.ok
        (problem,) = report.problems
        assert (problem.thread, problem.kind) == ("t", "ConflictError")
        assert "'t'" in problem.message
        assert "Delete it there, or choose another destination" in problem.message
        assert (await contents(target))["t"] == before
        assert await target.exists("u"), "other threads are moved all the same"
        assert report.done == 1


async def test_another_writer_at_the_destination_is_noticed(tmp_path: Path) -> None:
    async with MemoryCheckpointer() as source, MemoryCheckpointer() as target:
        for number in range(4):
            await dicts(source).save("t", {"n": number}, f"c{number}")

        def meddle(report: Report) -> None:
            if report.moved == 2:
                target.sync.save(AgentState(), "t", "meddler")

        report = await moved(source, target, progress=meddle)
        (problem,) = report.problems
        assert "is changed by another program at the destination" in problem.message
        assert await ids(target, "t") == ["meddler", "c1", "c0"]


async def test_a_damaged_thread_is_named_and_the_others_are_moved(tmp_path: Path) -> None:
    async with KINDS["sqlite"](tmp_path) as source, MemoryCheckpointer() as target:
        for name in ("bad", "good"):
            await source.save(rich_state(), name, "a")
        with closing(sqlite3.connect(tmp_path / "a.db")) as database, database:
            changed = database.execute(
                "DELETE FROM locus_runs WHERE thread = (SELECT id FROM locus_threads WHERE thread_id = 'bad')"
            )
            assert changed.rowcount > 0
        report = await moved(source, target)
        (problem,) = report.problems
        assert (problem.thread, problem.kind) == ("bad", "CorruptCheckpointError")
        assert "checkpoint 'a' of thread 'bad' cannot be read" in problem.message
        assert await target.list_threads(None) == ["good"]


_TAMPERING = {
    "UPDATE locus_runs SET items = replace(items, 'message 1 ', 'message 7 ')": "'a' has another content",
    "UPDATE locus_checkpoints SET head = replace(head, 'iteration\":0', 'iteration\":1')": "'a' has another content",
    "UPDATE locus_writes SET value = '2'": "'b' has other pending writes",
    "DELETE FROM locus_writes": "'b' has other pending writes",
    "DELETE FROM locus_checkpoints WHERE checkpoint_id = 'b'": "'b' is not at the destination",
    "DELETE FROM locus_checkpoints WHERE checkpoint_id = 'a'": "'b' has another id, parent, time or metadata",
    "UPDATE locus_checkpoints SET metadata = '{}'": "'a' has another id, parent, time or metadata",
    "UPDATE locus_checkpoints SET parent_id = NULL": "'b' has another id, parent, time or metadata",
    "UPDATE locus_checkpoints SET namespace = ''": "'a' is not at the destination",
    "UPDATE locus_checkpoints SET created_at = '2024-01-01T00:00:00+00:00'": "'a' has another id, parent",
    "INSERT INTO locus_checkpoints SELECT 9, thread, namespace, 'c', parent_id, 9, 'r', created_at, metadata, head,"
    " manifest FROM locus_checkpoints WHERE checkpoint_id = 'b'": "'c' is only at the destination",
}


_COLUMNS = "id, thread, namespace, checkpoint_id, parent_id, seq, rev, created_at, metadata, head, manifest"


@pytest.mark.parametrize("statement", _TAMPERING)
async def test_a_difference_at_the_destination_is_found_by_verification(tmp_path: Path, statement: str) -> None:
    """Somebody changes what was copied, a moment before it is verified."""
    async with MemoryCheckpointer() as source, KINDS["sqlite"](tmp_path) as target:
        state = AgentState().with_messages(conversation(3))
        await source.save(state, "t", "a", {"k": 1})
        await source.save(state.with_message(message(5)), "t", "b", {"k": 1})
        await source.put_writes("t", "b", "task", [("x", 1)])
        await source.save(AgentState(), "u", "a")

        def tamper(report: Report) -> None:
            if report.moved == 2 and not report.done and not report.problems:
                with closing(sqlite3.connect(tmp_path / "a.db")) as database, database:
                    assert database.execute(statement.replace(" SELECT 9,", f" ({_COLUMNS}) SELECT 9,")).rowcount > 0
                    unseal(database)  # otherwise the seal would tell first

        report = await moved(source, target, progress=tamper, jobs=1)
        (problem,) = report.problems
        assert (problem.thread, problem.kind) == ("t", "CorruptCheckpointError")
        assert f"verification of thread 't' failed: checkpoint {_TAMPERING[statement]}" in problem.message
        assert (report.done, report.verified, report.moved) == (1, 1, 3)


async def test_pending_writes_that_have_changed_are_put_again(tmp_path: Path) -> None:
    async with MemoryCheckpointer() as source, KINDS["sqlite"](tmp_path) as target:
        await source.save(AgentState(), "t", "a")
        await source.put_writes("t", "a", "task", [("x", 1)])
        await moved(source, target)
        await target.put_writes("t", "a", "task", [("x", 2)])
        assert (await moved(source, target)).ok
        assert [write.value for write in await target.get_writes("t", "a")] == [1]


async def test_pending_writes_that_were_added_at_the_destination_are_not_lost(tmp_path: Path) -> None:
    """A graph goes on there, and the step is not done yet."""
    async with MemoryCheckpointer() as source, KINDS["sqlite"](tmp_path) as target:
        await source.save(AgentState(), "t", "a")
        await source.put_writes("t", "a", "task", [("__interrupt__", "ask")])
        await moved(source, target)
        await target.put_writes("t", "a", "task", [("x", 1), ("y", 2)])
        before = await contents(target)
        assert len(await target.get_writes("t", "a")) == 3
        for dry_run in (True, False):
            (problem,) = (await moved(source, target, dry_run=dry_run)).problems
            assert problem.kind == "ConflictError"
            assert "has pending writes that it does not have at the source" in problem.message
            assert await contents(target) == before


async def test_an_outage_of_the_destination_ends_it(tmp_path: Path) -> None:
    async with KINDS["sqlite"](tmp_path / "a") as source, KINDS["file"](tmp_path / "b") as target:
        await source.save(AgentState(), "t")
        await target.save(AgentState(), "other")
        (tmp_path / "b" / "files").rename(tmp_path / "b" / "gone")
        with pytest.raises(BackendUnavailableError):
            await moved(source, target)


async def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    source = f"sqlite:{tmp_path / 'a.db'}"
    async with sqlite_checkpointer(tmp_path / "a.db") as handle:
        await handle.save(AgentState(), "t", "a")
        await handle.save(AgentState(), "t", "b")
    for url in (f"file:{tmp_path / 'files'}", f"sqlite:{tmp_path / 'new' / 'b.db'}"):
        report = await copy_store(source, url, dry_run=True)
        assert (report.ok, report.moved, report.present, report.verified) == (True, 2, 0, 0)
    assert sorted(path.name for path in tmp_path.iterdir() if "a.db" not in path.name) == []
    async with sqlite_checkpointer(tmp_path / "b.db") as handle:
        await handle.save(AgentState(), "other")
    report = await copy_store(source, f"sqlite:{tmp_path / 'b.db'}", dry_run=True)
    assert (report.moved, report.dry_run) == (2, True)
    async with sqlite_checkpointer(tmp_path / "b.db") as handle:
        assert await handle.list_threads(None) == ["other"]


def _state_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """What is in a folder. SQLite's index of its journal is its own business, and so is an empty journal."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
        and not path.name.endswith("-shm")
        and not (path.name.endswith("-wal") and not path.stat().st_size)
    }


@pytest.mark.parametrize("kind", ["file", "sqlite", "sqlite with a journal"])
async def test_the_source_is_not_touched(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "source"
    handle = KINDS[kind.partition(" ")[0]](folder)
    await fill(handle, small=True)
    url = f"file:{folder / 'files'}" if kind == "file" else f"sqlite:{folder / 'a.db'}"
    if kind != "sqlite with a journal":
        await handle.close()
    before = _state_of(folder)
    report = await copy_store(url, f"sqlite:{tmp_path / 'b.db'}")
    assert report.ok
    assert _state_of(folder) == before
    await handle.close()
    if kind == "sqlite with a journal":
        assert any(name.endswith("-wal") for name in before), "what was saved last stands in the journal"
    async with KINDS[kind.partition(" ")[0]](folder) as source, sqlite_checkpointer(tmp_path / "b.db") as copied:
        assert await contents(copied) == await contents(source)


@pytest.mark.parametrize("url", ["sqlite:{}/none/a.db", "file:{}/none", "sqlite:{}/empty.db", "file:{}/empty"])
async def test_a_source_that_is_not_there_is_an_error_and_stays_so(tmp_path: Path, url: str) -> None:
    (tmp_path / "empty").mkdir()
    with closing(sqlite3.connect(tmp_path / "empty.db")) as database:
        database.execute("CREATE TABLE somebodys (x)")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigurationError, match="no threads were ever kept in"):
        await copy_store(url.format(tmp_path), f"file:{tmp_path / 'target'}")
    assert sorted(tmp_path.rglob("*")) == before
    with closing(sqlite3.connect(tmp_path / "empty.db")) as database:
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("somebodys",)]


async def test_a_store_is_not_copied_into_itself(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db") as handle:
        await handle.save(AgentState(), "t")
    with pytest.raises(ConfigurationError, match="the same store"):
        await copy_store(f"sqlite:{tmp_path / 'a.db'}", f"sqlite:{tmp_path}/./a.db")


async def test_a_long_thread_takes_no_more_room_than_it_took(tmp_path: Path) -> None:
    """Deltas stay deltas: also those of forks, of trimmed lists, and after a pause."""
    async with KINDS["sqlite"](tmp_path / "a") as source, KINDS["sqlite"](tmp_path / "b") as target:
        state = AgentState()
        for turn in range(120):
            state = state.with_messages(conversation(4, turn * 4))
            name = await source.save(state, "t")
            if turn == 60:
                middle, kept = state, name
                await moved(source, target)
        for turn in range(40):
            middle = middle.with_messages(conversation(4, 10_000 + turn * 4))
            state = state.with_messages_replaced(state.messages[4:]).with_messages(conversation(4, 20_000 + turn * 4))
            kept = await source.save(middle, "t", parent=kept)
            await source.save(state, "t")
        assert (await moved(source, target)).ok
    sizes = [_stored(tmp_path / name / "a.db") for name in "ab"]
    assert sizes[1] < sizes[0] * 1.1


def _stored(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        (runs,) = database.execute("SELECT sum(length(items)) FROM locus_runs").fetchone()
        (heads,) = database.execute("SELECT sum(length(head) + length(manifest)) FROM locus_checkpoints").fetchone()
    return int(runs + heads)


async def test_times_are_kept_whatever_the_clock_says(tmp_path: Path) -> None:
    async with MemoryCheckpointer() as source, KINDS["sqlite"](tmp_path) as target:
        await source.save(AgentState(started_at=at(1), updated_at=at(2)), "t", "a")
        await moved(source, target)
        (entry,) = await target.history("t")
        (before,) = await source.history("t")
        assert entry.created_at == before.created_at
        assert entry.created_at.tzinfo is UTC
        assert datetime.now(UTC) - entry.created_at < timedelta(minutes=5)


async def test_jobs_do_not_change_the_result(tmp_path: Path) -> None:
    async with KINDS["sqlite"](tmp_path / "a") as source:
        await fill(source, small=True)
        for jobs in (1, 7):
            async with KINDS["sqlite"](tmp_path / str(jobs)) as target:
                assert (await moved(source, target, jobs=jobs)).ok
                assert await contents(target) == await contents(source)


async def test_saves_of_many_items_are_copied_run_by_run(tmp_path: Path) -> None:
    """Opened, continued, and forked; a second copy brings what came after the first."""
    source, copy = tmp_path / "a.db", f"sqlite:{tmp_path / 'b.db'}"
    many = tuple(Message.user(f"message {number}") for number in range(3 * MOST_ITEMS))
    async with sqlite_checkpointer(source) as handle:
        first = AgentState(agent_id="a").with_messages(many)
        await handle.save(first, "t", "first")
        await handle.save(first.with_messages(many), "t", "second")
        await handle.save(first.with_messages_replaced(many[:300] + many), "t", "forked")
        for further in (None, "third"):
            if further is not None:
                await handle.save(first.with_messages(many[:MOST_ITEMS]), "t", further)
            report = await copy_store(f"sqlite:{source}", copy)
            assert report.ok, report.problems
        async with sqlite_checkpointer(tmp_path / "b.db") as copied:
            for name in ("first", "second", "forked", "third"):
                expected, found = await handle.load("t", name), await copied.load("t", name)
                assert expected is not None
                assert found is not None
                assert found.messages == expected.messages
            stored = await copied.store.read("t", "second", DEFAULT_NAMESPACE)
            assert stored is not None
            assert max(run.length for runs in stored.runs.values() for run in runs) == MOST_ITEMS
            hits = [hit["checkpoint_id"] for hit in await copied.search(f"{2 * MOST_ITEMS + 5}")]
            assert hits
            assert len(hits) == len(set(hits))
