"""JSON Lines: what was exported comes back equal, and a file is never trusted."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from locus.errors import ConflictError, CorruptCheckpointError, LocusError
from locus.looking.documents import exported_lines
from locus.looking.reading import exported_pages
from locus.memory.backends.memory import MemoryEngine
from locus.memory.model.codec import MAX_DEPTH
from locus.memory.registry import get_checkpointer
from locus.memory.saver import CheckpointSaver
from locus.memory.storage import StorageBackend
from locus.memory.store import CheckpointStore
from locus.transfer.content import StoredContent
from locus.transfer.imports import import_store
from locus.transfer.items import ThreadItems
from locus.transfer.read import checkpoints
from tests.looking.test_bisect import random_history


async def exported(store: CheckpointStore, path: Path, *threads: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        for thread_id in threads:
            async for line in exported_lines(store, thread_id):
                file.write(f"{line}\n")


async def contents(store: CheckpointStore, thread_id: str) -> list[object]:
    return [(one.header, one.content.digest, one.writes_digest) async for one in checkpoints(store, thread_id)]


@pytest.mark.parametrize("seed", range(6))
async def test_a_thread_comes_back_equal(seed: int, tmp_path: Path) -> None:
    store = CheckpointStore(MemoryEngine())
    backend = StorageBackend(store)
    await random_history(backend, random.Random(seed))
    hostile = 'x"\n\u202e/../%\U0001f600'
    await backend.save(hostile, {"big": 10**400, "float": 1e-300, "text": "\u2028\x00", "empty": []}, namespace="n")
    latest = (await store.history(hostile, 1, None, "n"))[0].checkpoint_id
    await backend.put_writes(hostile, latest, "task", [("a", {"x": [1]}), ("__interrupt__", "why")], namespace="n")
    await exported(store, tmp_path / "all.jsonl", "t", hostile)
    for target in (f"sqlite:{tmp_path / 'to.db'}", f"file:{tmp_path / 'to'}"):
        for _time in range(2):  # the second time everything is there already
            report = await import_store("jsonl", str(tmp_path / "all.jsonl"), target)
            assert report.ok, report.problems
    assert report.moved == 0
    for there in map(get_checkpointer, (f"sqlite:{tmp_path / 'to.db'}", f"file:{tmp_path / 'to'}")):
        async with there:
            for thread_id in ("t", hostile):
                assert await contents(there.store, thread_id) == await contents(store, thread_id)


async def test_what_is_as_deep_as_it_may_be_comes_back_equal(tmp_path: Path) -> None:
    store = CheckpointStore(MemoryEngine())
    deep: Any = 1
    for _ in range(MAX_DEPTH):
        deep = {"d": deep}
    state = {"head": deep, "items": [deep["d"], "x" * 100], "value": {"d": deep["d"]["d"], "text": "x" * 2_000}}
    await StorageBackend(store).save("t", state, metadata=deep["d"])
    await exported(store, tmp_path / "t.jsonl", "t")
    report = await import_store("jsonl", str(tmp_path / "t.jsonl"), f"sqlite:{tmp_path / 'to.db'}")
    assert report.ok, report.problems
    async with get_checkpointer(f"sqlite:{tmp_path / 'to.db'}") as there:
        assert await contents(there.store, "t") == await contents(store, "t")


async def test_a_file_is_as_long_as_the_thread(tmp_path: Path) -> None:
    store = CheckpointStore(MemoryEngine())
    backend = StorageBackend(store)
    sizes = []
    for turns in (50, 100):
        data: dict[str, list[str]] = {"messages": []}
        for turn in range(turns):
            data["messages"].append(f"{turn} {'x' * 1000}")
            await backend.save(f"t{turns}", data)
        await exported(store, tmp_path / f"{turns}.jsonl", f"t{turns}")
        sizes.append((tmp_path / f"{turns}.jsonl").stat().st_size)
    assert sizes[1] < 2.2 * sizes[0]


LINES = [
    '{"locus":1,"thread_id":"t"}',
    '{"branch":"b","run":0,"start":0,"items":["a"]}',
    '{"namespace":"default","checkpoint_id":"c","parent_id":null,"created_at":"2026-01-01T00:00:00+00:00",'
    '"metadata":{},"state":{"m":[]},"lists":[[["m"],[["b",0,0,1]]]],"writes":[]}',
    '{"end":"t","checkpoints":1}',
]


def with_writes(line: str, *indexes: str) -> str:
    write = '{"task_id":"k","task_path":"","idx":IDX,"channel":"a","value":1}'
    return line.replace('"writes":[]', f'"writes":[{",".join(write.replace("IDX", idx) for idx in indexes)}]')


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        (0, '{"locus":2,"thread_id":"t"}'),
        (0, '{"locus":1,"thread_id":""}'),
        (0, '{"locus":1}'),
        (0, "[]"),
        (1, '{"branch":"b","run":-1,"start":0,"items":["a"]}'),
        (1, '{"branch":"b","run":0,"start":0,"items":'),
        (1, '{"branch":7,"run":0,"start":0,"items":["a"]}'),
        (1, ""),
        (2, LINES[2].replace('"b",0,0,1', '"b",0,0,7')),
        (2, LINES[2].replace('"b",0,0,1', '"b",0,0,-1')),
        (2, LINES[2].replace('[["b",0,0,1]]', "7")),
        (2, LINES[2].replace('"state":{"m":[]}', '"state":[]')),
        (2, LINES[2].replace("2026-01-01T00:00:00+00:00", "yesterday")),
        (2, LINES[2].replace('"checkpoint_id":"c",', "")),
        (2, LINES[2].replace('"writes":[]', '"writes":[{"task_id":1}]')),
        (2, LINES[2].replace("}", "")),
        # Paths that the state does not have, or that lead through something else than objects.
        (2, LINES[2].replace('["m"]', '["a","b"]')),
        (2, LINES[2].replace('["m"]', "[]")),
        (2, LINES[2].replace('["m"]', "[7]")),
        (2, LINES[2].replace('["m"]', '["m","0","x"]').replace('"m":[]', '"m":[{"x":[]}]')),
        (2, LINES[2].replace('[["m"],', '[["m"],[]],[["m","x"],')),
        (2, LINES[2].replace('[["m"],', '[["m"],"b"],[["m","x"],')),
        # Far more items than the file has.
        (2, LINES[2].replace('["b",0,0,1]', '["b",0,0,1],["b",0,0,1]')),
        (2, LINES[2].replace('["b",0,0,1]', ",".join(['["b",0,0,0]'] * 1001))),
        # Numbers and times that no store can keep.
        (2, with_writes(LINES[2], "1e400")),
        (2, with_writes(LINES[2], f"{2**70}")),
        (2, with_writes(LINES[2], "-5")),
        (2, with_writes(LINES[2], "1.5")),
        (2, LINES[2].replace("2026-01-01T00:00:00+00:00", "0001-01-01T00:00:00+23:59")),
        # A circle of parents.
        (2, LINES[2].replace("null", '"c"')),
        (2, LINES[2] + "\n" + LINES[2]),
        (2, LINES[2].replace("null", '"d"') + "\n" + LINES[2].replace("null", '"c"').replace('"c",', '"d",', 1)),
        # Lines that are missing, or too many.
        (2, ""),
        (3, ""),
        (3, '{"end":"u","checkpoints":1}'),
        (3, '{"end":"t","checkpoints":2}'),
        (3, '{"end":"t"}'),
        (3, LINES[3] + "\n" + LINES[1]),
        (3, LINES[3] + "\n" + LINES[3]),
    ],
)
async def test_a_file_that_is_wrong_is_refused(line: int, broken: str, tmp_path: Path) -> None:
    file, target = tmp_path / "x.jsonl", f"sqlite:{tmp_path / 'to.db'}"
    file.write_text("\n".join(LINES) + "\n")
    assert (await import_store("jsonl", str(file), f"sqlite:{tmp_path / 'good.db'}")).ok
    file.write_text("\n".join([*LINES[:line], broken, *LINES[line + 1 :]]) + "\n")
    try:
        report = await import_store("jsonl", str(file), target)
    except LocusError:
        return
    assert not report.ok
    assert json.dumps(report.as_dict())


async def test_a_file_that_was_cut_off_is_no_older_thread(tmp_path: Path) -> None:
    """Wherever that was, also between two lines: what is whole is imported, and nothing of the rest."""
    store = CheckpointStore(MemoryEngine())
    for thread_id in ("a", "b"):
        for number in range(3):
            await StorageBackend(store).save(thread_id, {"n": number, "items": [[at] for at in range(number)]})
    await exported(store, tmp_path / "all.jsonl", "a", "b")
    lines = (tmp_path / "all.jsonl").read_text().splitlines(keepends=True)
    begins = next(number for number, line in enumerate(lines) if '"thread_id":"b"' in line)
    for kept in range(begins + 1, len(lines)):
        file, target = tmp_path / f"{kept}.jsonl", f"sqlite:{tmp_path / f'{kept}.db'}"
        file.write_text("".join(lines[:kept]))
        report = await import_store("jsonl", str(file), target)
        assert [(problem.thread, problem.kind) for problem in report.problems] == [("b", "CorruptCheckpointError")]
        async with get_checkpointer(target) as there:
            assert await there.list_threads() == ["a"]
            assert await contents(there.store, "a") == await contents(store, "a")


async def test_a_thread_that_is_deleted_while_it_is_read_is_not_taken_for_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("locus.looking.reading.PAGE", 2)
    async with get_checkpointer(f"sqlite:{tmp_path / 'from.db'}") as handle:
        backend = StorageBackend(handle.store)
        for number in range(4):
            await backend.save("t", {"n": number})
        lines = exported_lines(handle.store, "t")
        begun = [await anext(lines) for _ in range(3)]
        assert len(begun) == 3
        await backend.delete("t")
        with pytest.raises(ConflictError, match="changed while it was read"):
            async for line in lines:
                begun.append(line)
        assert not any('"end"' in line for line in begun)


async def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LocusError, match="cannot be read: No such file"):
        await import_store("jsonl", str(tmp_path / "no.jsonl"), f"sqlite:{tmp_path / 'to.db'}")


async def test_what_is_legal_is_taken(tmp_path: Path) -> None:
    """Special indexes, a parent that is not in the file, a time of another zone, lists inside of large values."""
    line = LINES[2].replace("null", '"gone"').replace("+00:00", "+23:59")
    line = with_writes(line, "-4", "-1", "0")
    line = line.replace('[["m"],', '[["m"],"v"],[["m","x"],').replace('"m":[]', '"m":null')
    value = '{"branch":"v","run":0,"start":0,"items":[{"x":[],"y":1}]}'
    (tmp_path / "x.jsonl").write_text("\n".join([*LINES[:2], value, line, LINES[3]]) + "\n")
    report = await import_store("jsonl", str(tmp_path / "x.jsonl"), f"sqlite:{tmp_path / 'to.db'}")
    assert report.ok, report.problems
    async with get_checkpointer(f"sqlite:{tmp_path / 'to.db'}") as there:
        assert await StorageBackend(there.store).load("t") == {"m": {"x": ["a"], "y": 1}}


async def test_a_parent_that_came_after_its_child_comes_back(tmp_path: Path) -> None:
    """A saver may name a parent that is saved later, or never."""
    store = CheckpointStore(MemoryEngine())
    saver = CheckpointSaver(StorageBackend(store))
    for name, parent in (("c", "b"), ("b", "a"), ("a", None), ("d", "gone"), ("e", "c"), ("f", "a")):
        await saver.put(thread_id="t", checkpoint_id=name, checkpoint_data={"n": name}, parent_checkpoint_id=parent)
    await exported(store, tmp_path / "x.jsonl", "t")
    target = f"sqlite:{tmp_path / 'to.db'}"
    report = await import_store("jsonl", str(tmp_path / "x.jsonl"), target)
    assert report.ok, report.problems
    async with get_checkpointer(target) as there:
        assert await contents(there.store, "t") == await contents(store, "t")


async def test_a_damaged_manifest_is_found_in_a_store() -> None:
    store = CheckpointStore(MemoryEngine())
    await StorageBackend(store).save("t", {"m": ["x" * 100] * 40})
    [one] = [stored async for page in exported_pages(store, "t", dict) for stored in page.checkpoints]
    items = ThreadItems()
    items.add([run async for page in exported_pages(store, "t", dict) for run in page.runs])
    StoredContent(one.head, one.manifest, items)
    with pytest.raises(CorruptCheckpointError, match="do not fit together"):
        StoredContent('{"n":[]}', one.manifest, items)


async def test_something_that_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # opening it would wait
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(LocusError, match="give a file"):
            await import_store("jsonl", str(path), f"sqlite:{tmp_path / 'to.db'}")
