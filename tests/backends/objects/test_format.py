"""The stored format of the object layout, pinned: old objects must stay readable."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from locus.errors import CorruptCheckpointError, UnsupportedFormatError
from locus.memory.backends.objects.backend import ObjectCheckpointStore
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.objects.schema import VERSION, event_record, parse_event, thread_name
from locus.memory.model.parts import Range, page_of
from locus.memory.model.records import Base, Commit, Run, Stored, TaskWrites, Verdict, Write
from locus.memory.storage import StorageBackend
from tests.backends.objects.in_memory import MemoryObjectStore
from tests.backends.objects.small import make_small

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
    await engine.put_writes(
        TaskWrites(THREAD, "default", "c1", "task", (Write("task", "path", 0, "channel", '"value"'),))
    )
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
            record |= dict.fromkeys(record.keys() & {"by", "after", "sum"}, "…")
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
    assert store.objects["locus.json"][0] == b'{"format":2}\n'


async def test_events() -> None:
    store = await story()
    assert told(store, f"{FOLDER}/s/999999999996-3") == [
        '{"v":2,"n":3,"kind":"commit","by":"…","after":"…","thread":"customer-7/ä",'
        '"row":["default","c2",1,"r2","2026-01-02T03:04:05+00:00","{\\"k\\":1}","[[[\\"items\\"],[[\\"b\\",1,0,2]]]]"],'
        '"runs":[["b",1,1,1]],"replaces":null,"sizes":[12,10],"sums":[3930267421,3084420709],"sum":"…"}',
        '{"items":[]}',
        '[{"n":2}\r]',
    ]
    assert told(store, f"{FOLDER}/s/999999999997-2") == [
        '{"v":2,"n":2,"kind":"writes","by":"…","after":"…","thread":"customer-7/ä","of":["default","c1","task"],'
        '"writes":[["path",0,"channel"]],"sizes":[7],"sums":[1380416492],"sum":"…"}',
        '"value"',
    ]
    assert told(store, f"{FOLDER}/s/999999999983-16") == [
        '{"v":2,"n":16,"kind":"delete","by":"…","after":"…","thread":"customer-7/ä","seqs":[15],"sum":"…"}'
    ]


async def test_merged_objects() -> None:
    store = await story()
    entries = told(store, f"{FOLDER}/m/999999999983-1-16.1.1.entries")
    *records, tip = entries
    assert records == [told(store, f"{FOLDER}/s/{999_999_999_999 - number}-{number}")[0] for number in range(1, 17)]
    assert tip == '{"v":2,"n":16,"kind":"tip","thread":"customer-7/ä","tops":{"b":13},"versions":[],"sum":"…"}'
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
        "v", "n", "kind", "to", "rows", "runs", "tops", "writes", "removal", "born", "by", "thread", "sum",
    ]  # fmt: skip
    assert (record["kind"], record["n"], record["to"], record["removal"], record["born"]) == ("base", 1, 16, 16, 1)
    assert record["rows"][1] == [
        3, "default", "c2", 1, "r2", "2026-01-02T03:04:05+00:00", '{"k":1}', '[[["items"],[["b",1,0,2]]]]',
        3, 0, 3930267421,
    ]  # fmt: skip
    assert record["runs"][1] == ["b", 1, 1, 1, 3, 1, 3084420709, None]
    assert record["tops"] == {"b": 13}
    assert record["writes"] == [["default", "c1", "task", 0, "path", "channel", 2, 0, 1380416492]]
    items = told(store, f"{FOLDER}/m/999999999983-1-16.9.16.items")
    assert items[-3:] == ['{"n":14,"lines":2}', '{"items":[]}', '[{"n":13}\r]']


def in_format_1(store: MemoryObjectStore) -> MemoryObjectStore:
    """The same objects as an older version has put them: without checksums, and without a word about what precedes."""
    for key, (body, at) in store.objects.items():
        lines = [line for line in body.decode().split("\n") if '"kind":"tip"' not in line]
        for index, line in enumerate(lines):
            if line.startswith('{"v"'):
                record = json.loads(line)
                for name in ("after", "sizes", "sums", "sum"):
                    record.pop(name, None)
                record["v"] = 1
                if record["kind"] == "base":
                    del record["by"]
                    record |= {
                        "rows": [row[:10] for row in record["rows"]],
                        "runs": [run[:6] for run in record["runs"]],
                    }
                    record["writes"] = [write[:8] for write in record["writes"]]
                lines[index] = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
        store.objects[key] = ("\n".join(lines).encode().replace(b'{"format":2}', b'{"format":1}'), at)
    return store


@pytest.mark.parametrize("swept", [False, True])
async def test_objects_in_format_1_are_read_and_carried_on(swept: bool) -> None:
    store = await story()
    if swept:
        await ObjectEngine(store).sweep()
    store = in_format_1(store)
    engine = ObjectEngine(store)
    found = await engine.read(THREAD, "default", None)
    assert found is not None
    assert len(found.runs["b"]) == 13
    assert [write.value for write in await engine.get_writes(THREAD, "default", "c1", None)] == ['"value"']
    outcome = await engine.commit(replace(commit(15, Base("c13", "r13")), runs=(Run("b", 14, 13, 1, "[15]"),)))
    assert outcome.verdict is Verdict.COMMITTED
    for thread_id in (THREAD, "copy"):
        again = await ObjectEngine(store).read(thread_id, "default", "c13")
        assert again is not None
        assert (again.head, again.manifest, again.runs) == (found.head, found.manifest, found.runs)
        if thread_id == THREAD:
            assert await ObjectEngine(store).copy(THREAD, "copy", None) == 14
            assert store.objects["locus.json"][0] == b'{"format":2}\n'


async def test_every_change_is_found() -> None:
    """In the record of an event, and in its texts; also after they were merged."""
    store = await story()
    whole = dict(store.objects)
    found = 0
    for key in [key for key in whole if key.startswith("t/")]:
        body, at = whole[key]
        for place in range(len(body) % 40, len(body), 61):
            changed = bytearray(body)
            changed[place] ^= 1
            store.objects = {**whole, key: (bytes(changed), at)}
            try:
                read = await ObjectEngine(store).read(THREAD, "default", None)
            except CorruptCheckpointError:
                found += 1
            else:
                assert read == await read_whole(whole), f"unnoticed in {key} at {place}"
    assert found > 40


async def test_a_record_without_its_checksum_is_damage() -> None:
    """A changed letter in the name of the checksum must not do without it: only format 1 had none."""
    events = {parse_event(key) or 0: body for key, (body, _) in (await story()).objects.items() if "/s/" in key}
    assert events
    for number, body in events.items():
        assert event_record(body, number)["v"] == 2
        assert b',"sum":' in body
        with pytest.raises(CorruptCheckpointError, match="no checksum"):
            event_record(body.replace(b',"sum":', b',"sun":'), number)
    store = MemoryObjectStore()
    await ObjectEngine(store).commit(commit(1))
    (key,) = [key for key in store.objects if "/s/" in key]
    body, at = store.objects[key]
    store.objects[key] = (body.replace(b',"sum":', b',"sun":'), at)
    with pytest.raises(CorruptCheckpointError, match="checksum"):
        await ObjectEngine(store).read(THREAD, "default", None)


async def read_whole(objects: dict[str, tuple[bytes, datetime]]) -> Stored | None:
    store = MemoryObjectStore()
    store.objects = objects
    return await ObjectEngine(store).read(THREAD, "default", None)


async def test_another_event_cannot_take_the_place_of_a_lost_one() -> None:
    store = MemoryObjectStore()
    late, busy = ObjectEngine(store), ObjectEngine(store)
    await late.commit(commit(1))
    for number in (2, 3):
        await busy.commit(commit(number, Base(f"c{number - 1}", f"r{number - 1}")))
    del store.objects[f"{FOLDER}/s/999999999997-2"]
    # This handle knows event 1, and may rely on that for some minutes. So it does not see that there are others.
    await late.commit(replace(commit(9, Base("c1", "r1")), runs=(), manifest="[]"))
    with pytest.raises(CorruptCheckpointError, match="lost"):
        await ObjectEngine(store).read(THREAD, "default", None)


async def test_a_newer_format_says_who_may_use_it() -> None:
    store = await story()
    for least, reading, allowed in (
        ("", True, False),
        (f',"min_reader":{VERSION}', True, True),
        (f',"min_reader":{VERSION}', False, False),
        (f',"min_writer":{VERSION}', False, True),
        (f',"min_writer":{VERSION + 1}', False, False),
    ):
        store.objects["locus.json"] = (f'{{"format":{VERSION + 1}{least}}}\n'.encode(), MOMENT)
        engine = ObjectEngine(store)
        engine.reading_only = reading
        if allowed:
            assert await engine.read(THREAD, "default", None) is not None
        else:
            with pytest.raises(UnsupportedFormatError, match="upgrade"):
                await engine.read(THREAD, "default", None)


async def test_objects_of_versions_that_knew_no_lengths_and_no_tips(monkeypatch: pytest.MonkeyPatch) -> None:
    """As such a version has put them: 35 saves, the events of the first sixteen removed after their hour."""
    store = MemoryObjectStore()
    written = json.loads((Path(__file__).parent / "data" / "format-2.json").read_text())
    store.objects = {key: (body.encode(), MOMENT) for key, body in written.items()}
    make_small(monkeypatch)
    for saved in range(35, 60):
        handle = StorageBackend(ObjectCheckpointStore(ObjectEngine(MemoryObjectStore(shared=store))))
        for part in (Range(("items",), -3, 3), Range(("items",), 4, 3)):
            found = await handle.store.read_part("t", None, "default", part)
            assert found is not None
            start = saved - 3 if part.start < 0 else 4
            assert page_of(found, part).items == [{"n": n + 1} for n in range(start, start + 3)]
        data = await handle.load("t")
        assert data is not None
        assert (len(data["items"]), data["fixed"], data["large"]) == (saved, [{"text": "f" * 60}], "x" * 1_100)
        await handle.save("t", {**data, "items": [*data["items"], {"n": saved + 1}]})
    first = await StorageBackend(ObjectCheckpointStore(ObjectEngine(store))).load("t", "c1")
    assert first is not None
    assert first["items"] == [{"n": 1}]
