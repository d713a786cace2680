"""Names and texts in Redis: nothing of one thread can be taken for something of another."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from locus.errors import CorruptCheckpointError
from locus.memory.backends.redis.schema import (
    Layout,
    committed_at,
    entry_text,
    index_field,
    metadata_pairs,
    milliseconds,
    net,
    nets,
    pair_digest,
    payload_text,
    place,
    relinked,
    run_text,
    to_entry,
    to_extents,
    to_payload,
    to_run,
    to_stored_entry,
    to_writes,
    write_text,
)
from locus.memory.model.records import Entry, Extent, Run, Write
from locus.testing.data import HOSTILE_IDS

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
ID = TEXT.filter(bool)
AT = b"1763211323000001"
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@PATIENT
@given(st.lists(TEXT))
def test_netstrings_come_back(texts: list[str]) -> None:
    assert [part.decode() for part in nets(b"".join(map(net, texts)))] == texts


@pytest.mark.parametrize("damaged", [b"5:abc", b"abc", b"x:abc", b":", b"3"])
def test_damaged_netstrings_are_refused(damaged: bytes) -> None:
    with pytest.raises(ValueError):
        nets(damaged)


@PATIENT
@given(TEXT, ID, TEXT, ID)
def test_places_and_fields_name_one_checkpoint(ns: str, cid: str, other_ns: str, other_cid: str) -> None:
    same = (ns, cid) == (other_ns, other_cid)
    assert (place(ns, cid) == place(other_ns, other_cid)) == same
    assert (index_field(ns, cid) == index_field(other_ns, other_cid)) == same


def test_the_keys_of_all_threads_differ_and_stay_in_their_slot() -> None:
    layout = Layout("locus:state:", 16)
    names = [*HOSTILE_IDS, "a", "a:s", "h:a", "{1}", "}{", "ids", "recent"]
    keys = {name: layout.thread_keys(name) for name in names}
    own = [key for thread in keys.values() for key in (*thread[:6], thread[9])]
    assert len(own) == len(set(own))
    shared = {key.encode() for bucket in range(16) for key in layout.bucket_keys(bucket)[:3]}
    assert not shared & set(own)
    for name, thread in keys.items():
        tags = {key.partition(b"{")[2].partition(b"}")[0] for key in thread}
        assert tags == {str(layout.bucket(name)).encode()}, name


def test_threads_spread_over_the_buckets() -> None:
    layout = Layout("p:", 16)
    assert {layout.bucket(f"thread {number}") for number in range(300)} == set(range(16))


@PATIENT
@given(TEXT, ID, st.none() | ID, TEXT)
def test_entries_come_back(namespace: str, checkpoint_id: str, parent_id: str | None, value: str) -> None:
    metadata = json.dumps({"k": value}, ensure_ascii=False)
    created = datetime(2026, 2, 3, 4, 5, 6, 789_012, tzinfo=UTC)
    entry = Entry("t", namespace, checkpoint_id, parent_id, 7, "rev", created, metadata)
    stored = relinked(7, AT + entry_text(entry), 3, parent_id)
    assert to_stored_entry("t", 7, stored) == (entry, 3)
    assert committed_at(stored) == int(AT)
    old = relinked(7, stored, None, "another parent")
    assert relinked(7, old, 3, parent_id) == stored
    with pytest.raises(CorruptCheckpointError):
        to_entry("t", 7, old)
    with pytest.raises(CorruptCheckpointError):
        to_entry("t", 8, stored)


@pytest.mark.parametrize("stored", [None, b"", AT, AT + b"7:default", AT + b"nonsense"])
def test_a_damaged_entry_is_corrupt(stored: bytes | None) -> None:
    with pytest.raises(CorruptCheckpointError, match="checkpoint 3 of thread #"):
        to_entry("t", 3, stored)


def test_payloads_runs_and_writes_come_back() -> None:
    extents = [Extent("abc", 3, 1, 12), Extent("#" + "0" * 32, 0, 0, 1)]
    stored = payload_text("rev", extents, '{"é":[]}', "[]")
    assert to_payload(stored, "rev")[1:] == ('{"é":[]}', "[]", True)
    for other in ("another rev", None):
        with pytest.raises((CorruptCheckpointError, ValueError)):
            to_payload(stored, other)
    assert to_extents(nets(stored)[0]) == extents
    assert to_extents(b"") == []
    run = Run("abc", 3, 9, 2, '["1 2\\n", "😀"]')
    assert to_run(b"abc 3", run_text(run)) == run
    writes = [Write("täsk", "p", -1, "channel", '"v"'), Write("täsk", "", 0, "", "null")]
    at, task = place("ns", "c"), "täsk".encode()
    text = b"".join(write_text(at, "täsk", write) for write in writes)
    assert to_writes(at, task, text) == writes
    for another in ((place("ns", "d"), task), (at, b"task")):
        with pytest.raises(CorruptCheckpointError):
            to_writes(*another, text)


def test_metadata_pairs_tell_keys_from_values() -> None:
    pairs = [("a", "1"), ("a1", ""), ("a", '"1"'), ("", "a1"), ("1", "a")]
    assert len({pair_digest(*pair) for pair in pairs}) == len(pairs)
    assert metadata_pairs("{}") == b""
    assert metadata_pairs('{"a":1,"b":{"y":1,"x":2}}') == pair_digest("a", "1") + pair_digest("b", '{"x":2,"y":1}')


def test_times_in_milliseconds() -> None:
    assert milliseconds(None) == ""
    assert milliseconds(datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)) == "1500"
