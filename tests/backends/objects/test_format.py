"""The stored format of the object layout, pinned: old objects must stay readable."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.objects.schema import thread_name
from locus.memory.model.records import Base, Commit, Run, Write
from tests.backends.objects.in_memory import MemoryObjectStore

THREAD = "customer-7/ä"
FOLDER = f"t/{thread_name(THREAD)}"
MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def commit(number: int, base: Base | None = None) -> Commit:
    manifest = json.dumps([[["items"], [["b", number - 1, 0, number]]]], separators=(",", ":"))
    return Commit(
        thread_id=THREAD,
        namespace="default",
        checkpoint_id=f"c{number}",
        rev=f"r{number}",
        created_at=MOMENT,
        metadata='{"k":1}',
        head='{"items":[]}',
        manifest=manifest,
        runs=(Run("b", number - 1, number - 1, 1, f'[{{"n":{number}}}\n]'),),
        base=base,
    )


async def story() -> MemoryObjectStore:
    """Sixteen events: saves, pending writes and a deletion."""
    store = MemoryObjectStore()
    engine = ObjectEngine(store)
    await engine.commit(commit(1))
    await engine.put_writes(THREAD, "default", "c1", "task", [Write("task", "path", 0, "channel", '"value"')])
    for number in range(2, 15):
        await engine.commit(commit(number, Base(f"c{number - 1}", f"r{number - 1}")))
    history = await engine.history(THREAD, None, None, None)
    assert await engine.delete(THREAD, None, {history[0].seq: history[0].rev}) == 1
    return store


def told(store: MemoryObjectStore, key: str) -> list[str]:
    """The lines of an object, without what chance has made."""
    body, _ = store.objects[key]
    lines = body.decode().split("\n")
    records = [json.loads(line) if line.startswith('{"v"') else line for line in lines]
    for record in records:
        if isinstance(record, dict):
            record["by"] = "…"
    return [
        record if isinstance(record, str) else json.dumps(record, separators=(",", ":"), ensure_ascii=False)
        for record in records
    ]


async def test_the_names_of_objects() -> None:
    store = await story()
    assert thread_name(THREAD) == "121d9c312cb0dddd237c42767da527fe"
    assert sorted(store.objects) == [
        "locus.json",
        "n/customer.2d7.2fzc3za4-000000000001.maybe",
        "n/customer.2d7.2fzc3za4-000000000001.sure",
        f"{FOLDER}/m/999999999983-1-16.1.0.items",
        f"{FOLDER}/m/999999999983-1-16.1.1.entries",
        *(f"{FOLDER}/s/{999_999_999_999 - number}-{number}" for number in range(16, 0, -1)),
    ]
    assert store.objects["locus.json"][0] == b'{"format":1}\n'


async def test_events() -> None:
    store = await story()
    assert told(store, f"{FOLDER}/s/999999999996-3") == [
        '{"v":1,"n":3,"kind":"commit","by":"…","thread":"customer-7/ä",'
        '"row":["default","c2",1,"r2","2026-01-02T03:04:05+00:00","{\\"k\\":1}","[[[\\"items\\"],[[\\"b\\",1,0,2]]]]"],'
        '"runs":[["b",1,1,1]],"replaces":null}',
        '{"items":[]}',
        '[{"n":2}\r]',
    ]
    assert told(store, f"{FOLDER}/s/999999999997-2") == [
        '{"v":1,"n":2,"kind":"writes","by":"…","thread":"customer-7/ä","of":["default","c1","task"],'
        '"writes":[["path",0,"channel"]]}',
        '"value"',
    ]
    assert told(store, f"{FOLDER}/s/999999999983-16") == [
        '{"v":1,"n":16,"kind":"delete","by":"…","thread":"customer-7/ä","seqs":[15]}'
    ]


async def test_merged_objects() -> None:
    store = await story()
    entries = told(store, f"{FOLDER}/m/999999999983-1-16.1.1.entries")
    assert entries == [told(store, f"{FOLDER}/s/{999_999_999_999 - number}-{number}")[0] for number in range(1, 17)]
    items = told(store, f"{FOLDER}/m/999999999983-1-16.1.0.items")
    assert items[:7] == [
        '{"n":1,"lines":2}',
        '{"items":[]}',
        '[{"n":1}\r]',
        '{"n":2,"lines":1}',
        '"value"',
        '{"n":3,"lines":2}',
        '{"items":[]}',
    ]


async def test_what_a_sweep_writes() -> None:
    store = await story()
    await ObjectEngine(store).sweep()
    (base,) = told(store, f"{FOLDER}/m/999999999983-1-16.9.1.entries")
    record = json.loads(base)
    assert list(record) == [
        "v", "n", "kind", "to", "rows", "runs", "tops", "writes", "removal", "born", "thread", "by",
    ]  # fmt: skip
    assert (record["kind"], record["n"], record["to"], record["removal"], record["born"]) == ("base", 1, 16, 16, 1)
    assert record["rows"][1] == [
        3, "default", "c2", 1, "r2", "2026-01-02T03:04:05+00:00", '{"k":1}', '[[["items"],[["b",1,0,2]]]]', 3, 0,
    ]  # fmt: skip
    assert record["runs"][1] == ["b", 1, 1, 1, 3, 1]
    assert record["tops"] == {"b": 13}
    assert record["writes"] == [["default", "c1", "task", 0, "path", "channel", 2, 0]]
    items = told(store, f"{FOLDER}/m/999999999983-1-16.9.16.items")
    assert items[-3:] == ['{"n":14,"lines":2}', '{"items":[]}', '[{"n":13}\r]']
