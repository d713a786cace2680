"""Bisecting agrees with looking at every checkpoint, on random histories with forks."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from locus.errors import ConfigurationError, CorruptCheckpointError
from locus.looking import reading
from locus.looking.bisect import Bisected, bisect_metadata, bisect_run, bisect_text, bisect_value, line_of
from locus.memory.backends.memory import MemoryEngine
from locus.memory.model.codec import texts_in
from locus.memory.model.comparison import TooMuchText
from locus.memory.model.payloads import dict_from
from locus.memory.model.records import Entry
from locus.memory.registry import get_checkpointer
from locus.memory.storage import StorageBackend
from locus.memory.store import CheckpointStore
from tests.unsealed import unseal

WORDS = ["apple", "pear", "plum", "fig"]


async def random_history(backend: StorageBackend, rng: random.Random) -> None:
    """Saves that append, edit, trim and fork, in one thread."""
    states: dict[str, dict[str, Any]] = {}
    data: dict[str, Any] = {"messages": [], "status": "new", "docs": {"list": []}}
    for _step in range(rng.randint(5, 30)):
        if states and rng.random() < 0.25:
            data = json.loads(json.dumps(states[rng.choice(list(states))]))
        match rng.randrange(6):
            case 0 | 1 | 2:
                data["messages"] += [
                    {"content": rng.choice(WORDS) * rng.randint(1, 2)} for _ in range(rng.randint(1, 3))
                ]
            case 3:
                data["messages"] = data["messages"][: rng.randint(0, len(data["messages"]))]
            case 4 if data["messages"]:
                data["messages"][rng.randrange(len(data["messages"]))] = {"content": rng.choice(WORDS)}
            case _:
                data["status"] = rng.choice(WORDS)
                data["docs"]["list"] = [rng.choice(WORDS) for _ in range(rng.randint(0, 40))]
        saved = await backend.save("t", data)
        states[saved] = json.loads(json.dumps(data))


async def truths(store: CheckpointStore, line: list[Entry], holds: Any) -> list[tuple[int, bool]]:
    """The flips, by loading every checkpoint."""
    flips, now = [], False
    for entry in line:
        stored = await store.read(entry.thread_id, entry.checkpoint_id, entry.namespace)
        assert stored is not None
        if bool(holds(dict_from(stored))) != now:
            now = not now
            flips.append((entry.seq, now))
    return flips


def flips(found: Bisected) -> list[tuple[int, bool]]:
    return [(flip.entry.seq, flip.holds) for flip in found.flips]


def at(value: Any, *path: str) -> Any:
    for step in path:
        try:
            value = value[step] if isinstance(value, dict) else value[int(step)]
        except (KeyError, IndexError, ValueError, TypeError):
            return ...
    return value


@pytest.mark.parametrize("seed", range(25))
async def test_it_agrees_with_looking_at_every_checkpoint(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAGE", 4)
    rng = random.Random(seed)
    store = CheckpointStore(MemoryEngine())
    await random_history(StorageBackend(store), rng)
    for last in await store.history("t", 6, None, "default"):
        line = await line_of(store, last)
        assert line[-1] == last
        assert [entry.parent_id for entry in line[1:]] == [entry.checkpoint_id for entry in line[:-1]]
        for word in WORDS:
            found = await bisect_text(store, line, word)
            assert flips(found) == await truths(store, line, lambda data, word=word: word in json.dumps(data))
            assert found.looked_at == len(line)
        for path in (
            ("status",),
            ("messages", "0", "content"),
            ("messages", "-1"),
            ("docs",),
            ("docs", "list"),
            ("messages",),
        ):
            found = await bisect_value(store, line, path)
            assert flips(found) == await truths(store, line, lambda data, path=path: at(data, *path) is not ...)
        for path, value in ((("status",), "pear"), (("messages", "0", "content"), "fig"), (("docs", "list"), [])):
            found = await bisect_value(store, line, path, value)
            assert flips(found) == await truths(
                store, line, lambda data, path=path, value=value: at(data, *path) == value
            )


async def test_a_command_is_run_by_halves() -> None:
    store = CheckpointStore(MemoryEngine())
    backend = StorageBackend(store)
    for number in range(100):
        await backend.save("t", {"n": number})
    line = await line_of(store, (await store.history("t", 1, None, "default"))[0])
    for first in (0, 1, 57, 99):

        async def test(entry: Entry, first: int = first) -> bool:
            return entry.seq > first

        found = await bisect_run(line, test)
        assert found.first is not None
        assert found.first.seq == first + 1
        assert found.before == (line[first - 1] if first else None)
        assert found.looked_at <= 9

    async def never(entry: Entry) -> bool:
        return False

    assert (await bisect_run(line, never)).first is None


async def test_a_part_of_a_line() -> None:
    store = CheckpointStore(MemoryEngine())
    backend = StorageBackend(store)
    ids = [await backend.save("t", {"n": number}) for number in range(5)]
    entries = {entry.checkpoint_id: entry for entry in await store.history("t", None, None, "default")}
    line = await line_of(store, entries[ids[3]], entries[ids[1]])
    assert [entry.checkpoint_id for entry in line] == ids[1:4]
    with pytest.raises(ConfigurationError, match="not an ancestor"):
        await line_of(store, entries[ids[1]], entries[ids[3]])


@pytest.mark.parametrize("seed", range(4))
async def test_a_lost_run_is_an_error_wherever_a_load_fails(seed: int, tmp_path: Path) -> None:
    """And nowhere else: every run is taken out once, and put back."""
    path = tmp_path / "a.db"
    async with get_checkpointer(f"sqlite:{path}") as checkpointer:
        store = checkpointer.store
        await random_history(StorageBackend(store), random.Random(seed))
        line = await line_of(store, (await store.history("t", 1, None, "default"))[0])
    with closing(sqlite3.connect(path)) as database:
        runs = database.execute("SELECT * FROM locus_runs").fetchall()
        columns = [name for _, name, *_ in database.execute("PRAGMA table_info(locus_runs)")]
        key = columns.index("branch"), columns.index("number")
        marks = ", ".join("?" * len(columns))
        errors = 0
        for run in runs:
            named = [run[index] for index in key]
            database.execute("DELETE FROM locus_runs WHERE branch = ? AND number = ?", named)
            database.commit()
            async with get_checkpointer(f"sqlite:{path}") as checkpointer:
                try:
                    wanted = await truths(checkpointer.store, line, lambda data: "pear" in json.dumps(data))
                except CorruptCheckpointError:
                    errors += 1
                    with pytest.raises(CorruptCheckpointError):
                        await bisect_text(checkpointer.store, line, "in none of them")
                else:
                    assert flips(await bisect_text(checkpointer.store, line, "pear")) == wanted
            database.execute(f"INSERT INTO locus_runs ({', '.join(columns)}) VALUES ({marks})", run)
            database.commit()
    assert errors


async def test_an_item_of_a_lost_run_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with get_checkpointer(f"sqlite:{path}") as checkpointer:
        backend, data = (
            StorageBackend(checkpointer.store),
            {"status": "new", "messages": [f"{n}" * 100 for n in range(9)]},
        )
        for number in range(5):
            data["messages"] = [*data["messages"], f"{number}"]
            await backend.save("t", data)
        with closing(sqlite3.connect(path)) as database:
            database.execute("DELETE FROM locus_runs WHERE number = 2")
            database.commit()
        line = await line_of(checkpointer.store, (await checkpointer.store.history("t", 1, None, "default"))[0])
        for steps, equals in ((["messages", "11"], "2"), (["messages"], []), (["messages"], ...)):
            with pytest.raises(CorruptCheckpointError):
                await bisect_value(checkpointer.store, line, steps, equals)
        found = await bisect_value(checkpointer.store, line, ["status"], "new")  # this is not damaged
        assert flips(found) == [(1, True)]


@pytest.mark.parametrize("path", [["a", "b"], [], ["messages", "0", "x"], ["messages", "x"], [7]])
async def test_a_manifest_that_does_not_fit_is_an_error(path: list[Any], tmp_path: Path) -> None:
    async with get_checkpointer(f"sqlite:{tmp_path / 'a.db'}") as checkpointer:
        await StorageBackend(checkpointer.store).save("t", {"messages": ["x" * 100] * 20})
        with closing(sqlite3.connect(tmp_path / "a.db")) as database:
            ((manifest,),) = database.execute("SELECT manifest FROM locus_checkpoints")
            broken = [[path, cut] for _, cut in json.loads(manifest)]
            database.execute("UPDATE locus_checkpoints SET manifest = ?", [json.dumps(broken)])
            unseal(database)
            database.commit()
        line = await line_of(checkpointer.store, (await checkpointer.store.history("t", 1, None, "default"))[0])
        for steps in (["messages"], ["a"], ["b"]):
            with pytest.raises(CorruptCheckpointError):
                await bisect_value(checkpointer.store, line, steps, {})
        with pytest.raises(CorruptCheckpointError):
            await bisect_text(checkpointer.store, line, "y")


async def test_objects_and_lists_are_compared_whole() -> None:
    store = CheckpointStore(MemoryEngine())
    backend, long = StorageBackend(store), [{"n": number, "text": "x" * 50} for number in range(40)]
    values: list[Any] = [
        {"list": long[:39], "big": "y" * 9_000, "in": {"list": long}},
        {"list": long, "big": "y" * 9_000, "in": {"list": long}},
        {"list": long, "big": "y" * 9_000, "in": {"list": [*long[:39], {"n": 39.0, "text": "x" * 50}]}},
        {"list": long, "big": "z" * 9_000, "in": {"list": long}},
        {"list": long, "in": {"list": long}},
        {"list": [], "big": None},
        long,
        7,
    ]
    for value in values:
        await backend.save("t", {"it": value})
    line = await line_of(store, (await store.history("t", 1, None, "default"))[0])
    for at, value in enumerate(values):
        told: list[int] = []
        found = await bisect_value(store, line, ["it"], value, progress=told.append)
        assert [flip.entry.seq for flip in found.flips if flip.holds] == [at + 1]
        assert told == list(range(1, len(values) + 1))
    found = await bisect_value(store, line, ["it", "list"], long)
    assert flips(found) == [(2, True), (6, False)]


async def test_names_with_dots_are_found() -> None:
    store = CheckpointStore(MemoryEngine())
    backend = StorageBackend(store)
    await backend.save("t", {"metadata": {}})
    await backend.save("t", {"metadata": {"dot.key": {"a.b": ["x" * 100] * 30}}})
    await backend.save("t", {"metadata": {"dot": 1, "dot.key": 7}})
    line = await line_of(store, (await store.history("t", 1, None, "default"))[0])
    for path, expected in (
        ("metadata.dot.key", [(2, True), (3, False)]),
        ("metadata.dot.key.a.b.-1", [(2, True), (3, False)]),
        ("metadata.dot.key.a", []),
        ("metadata.dot", [(3, True)]),
    ):
        assert flips(await bisect_value(store, line, path.split("."))) == expected


async def test_it_can_be_ended_in_the_middle() -> None:
    store = CheckpointStore(MemoryEngine())
    backend = StorageBackend(store)
    for number in range(200):
        await backend.save("t", {"n": number})
    line = await line_of(store, (await store.history("t", 1, None, "default"))[0])
    told: list[int] = []

    def progress(looked_at: int) -> None:
        told.append(looked_at)
        task.cancel()

    task = asyncio.ensure_future(bisect_value(store, line, ["n"], progress=progress))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(told) < 100


async def test_it_can_be_ended_among_the_checkpoints_of_other_lines() -> None:
    store = CheckpointStore(MemoryEngine())
    backend = StorageBackend(store)
    for number in range(200):
        await backend.save("t", {"n": number}, namespace="other")
    await backend.save("t", {"n": 200})
    line = await line_of(store, (await store.history("t", 1, None, "default"))[0])
    told: list[int] = []

    def progress(looked_at: int) -> None:
        told.append(looked_at)
        task.cancel()

    task = asyncio.ensure_future(bisect_value(store, line, ["n"], 200, progress=progress))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert set(told) == {0}
    assert len(told) < 100


async def test_what_is_large_is_looked_at_by_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    store, threads = CheckpointStore(MemoryEngine()), set[threading.Thread]()
    many = {f"key {number}": "x" * 100 for number in range(5_000)}
    await StorageBackend(store).save("t", {**many, "messages": [{"content": "y" * 500_000}, {"content": "plum"}] * 20})
    line = await line_of(store, (await store.history("t", 1, None, "default"))[0])
    look = texts_in

    def noted(value: Any) -> Any:
        if len(json.dumps(value)) > 250_000:
            threads.add(threading.current_thread())
        return look(value)

    monkeypatch.setattr("locus.looking.bisect.texts_in", noted)
    assert flips(await bisect_text(store, line, "plum")) == [(1, True)]
    assert threads
    assert threading.main_thread() not in threads


async def test_what_is_held_is_bounded_for_a_server() -> None:
    store = CheckpointStore(MemoryEngine())
    await StorageBackend(store).save("t", {"messages": [{"content": "y" * 100}] * 100})
    line = await line_of(store, (await store.history("t", 1, None, "default"))[0])
    with pytest.raises(TooMuchText):
        await bisect_text(store, line, "plum", most=1_000)
    with pytest.raises(TooMuchText):
        await bisect_value(store, line, ["status"], most=1_000)
    assert flips(await bisect_text(store, line, "y", most=100_000)) == [(1, True)]


@pytest.mark.parametrize("seed", range(10))
async def test_what_is_quoted_stands_there(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first checkpoint that has the text, in whatever case: in an item of a list, or in a field."""
    monkeypatch.setattr(reading, "PAGE", 4)
    store = CheckpointStore(MemoryEngine())
    await random_history(StorageBackend(store), random.Random(seed))
    everything = (await store.history("t", None, None, None))[::-1]
    line = await line_of(store, everything[-1])
    for word in WORDS:
        exact = await bisect_text(store, line, word)
        found = await bisect_text(store, line, word.upper(), True)
        assert flips(found) == flips(exact)
        assert (found.passage, found.elsewhere) == (exact.passage, exact.elsewhere)
        assert flips(await bisect_text(store, line, word.upper())) == []
        with_it = [entry.seq for entry in everything if await _has(store, entry, word)]
        if found.first is None:
            on_line = {entry.seq for entry in line}
            others = [seq for seq in with_it if seq not in on_line]
            assert (None if found.elsewhere is None else found.elsewhere.seq) == next(iter(others), None)
            assert found.others == len(everything) - len(line)
            continue
        passage = found.passage
        assert passage is not None
        assert word in passage.text
        stored = await store.read("t", found.first.checkpoint_id, found.first.namespace)
        assert stored is not None
        place = [*passage.path, *([] if passage.position is None else [str(passage.position)])]
        there = at(dict_from(stored), *place)
        assert word in json.dumps(there)
        assert passage.in_conversation == (passage.path == ("messages",))


async def _has(store: CheckpointStore, entry: Entry, word: str) -> bool:
    stored = await store.read(entry.thread_id, entry.checkpoint_id, entry.namespace)
    assert stored is not None
    return word in json.dumps(dict_from(stored))


async def test_metadata_of_checkpoints() -> None:
    backend = StorageBackend(CheckpointStore(MemoryEngine()))
    for turn, user in enumerate(["a", "b", "b", "a"]):
        await backend.save("t", {"n": turn}, metadata={"user": {"name": user}, "turn": turn})
    line = await line_of(backend.store, (await backend.store.history("t", 1, None, None))[0])
    assert flips(bisect_metadata(line, ["user", "name"], "b")) == [(2, True), (4, False)]
    assert flips(bisect_metadata(line, ["turn"], 2)) == [(3, True), (4, False)]
    assert flips(bisect_metadata(line, ["turn"], "2")) == []
    assert flips(bisect_metadata(line, ["user"])) == [(1, True)]
    assert flips(bisect_metadata(line, ["nothing"])) == []


async def test_the_passage_is_what_said_the_text_first() -> None:
    """A save may bring a tool's result and the answer that repeats it."""
    said = [{"role": "user", "content": "How much?"}, {"role": "tool", "content": "8.99"}]
    async with StorageBackend(CheckpointStore(MemoryEngine())) as backend:
        await backend.save("t", {"messages": said[:1]})
        await backend.save("t", {"messages": [*said, {"role": "assistant", "content": "It costs 8.99."}]})
        entries = await backend.store.history("t", None, None, None)
        found = await bisect_text(backend.store, await line_of(backend.store, entries[0]), "8.99", False)
    assert found.passage is not None
    assert (found.passage.position, found.passage.role, found.passage.text) == (1, "tool", "8.99")
