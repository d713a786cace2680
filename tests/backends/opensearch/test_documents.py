"""Documents of the OpenSearch backend: they come back as the records that they were made of, and damage is told."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from locus.errors import CorruptCheckpointError, UnsupportedFormatError
from locus.memory.backends.opensearch.log import KNOWN_NAMESPACES, next_state
from locus.memory.backends.opensearch.remove import remaining, removal_of, runs_to_keep
from locus.memory.backends.opensearch.schema import (
    CHECKPOINT,
    END,
    GONE,
    MAX_WORD_LENGTH,
    REMOVAL,
    RUNS,
    LogRemoval,
    Record,
    RunLocation,
    RunRef,
    StoredRun,
    ThreadState,
    indexed_words,
    metadata_term,
    name_id,
    record_from,
    record_id,
    record_source,
    state_from,
    state_source,
    thread_state_from,
    writes_id,
)
from locus.memory.model.codec import encode
from locus.memory.model.records import Run


def _checkpoint(place: int, runs: list[tuple[int, int, int]], extent: list[object], **more: object) -> Record:
    """A checkpoint that brought runs (number, start, length) of branch "b", and shows one extent of it."""
    stored = tuple(
        StoredRun(Run("b", number, start, length, encode([f"item {n}" for n in range(length)])), (RunRef(0, 1, 4),))
        for number, start, length in runs
    )
    record = Record(
        CHECKPOINT,
        "d",
        place,
        place,
        5,
        namespace="default",
        checkpoint_id=f"c{place}",
        parent_id=f"c{place - 1}" if place > 1 else None,
        seq=place,
        rev=f"r{place}",
        order=place,
        created=place,
        head='{"messages":[]}',
        manifest=encode([[["messages"], [extent]]]),
        run_locations=(RunLocation(place, True),),
        runs=stored,
    )
    return replace(record, **more)  # type: ignore[arg-type]


def _back(record: Record) -> Record:
    return record_from(json.loads(json.dumps(record_source(record))))


@pytest.mark.parametrize(
    "record",
    [
        _checkpoint(3, [(1, 4, 2)], ["b", 1, 0, 6], metadata='{"k":[1]}', expires=9, life=4),
        Record(GONE, "d", 4, 4, 5),
        Record(RUNS, "d", -2, 7, 5, "batch", seq=2, namespace="n", runs=(StoredRun(Run("b", 0, 0, 1, "[1]")),)),
        Record(REMOVAL, "d", 8, 8, 5, rev="r", removal=LogRemoval((1, -2), {3: None, 4: "c"}, (("n", "c1"),))),
        Record(END, "d", 9, 9, 5, epoch=9, rev="r"),
    ],
)
def test_a_record_comes_back_as_it_was(record: Record) -> None:
    assert _back(record) == record


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"kind": CHECKPOINT},
        {"kind": CHECKPOINT, "thread": "d", "position": 1, "at": 1},
        {"kind": CHECKPOINT, "thread": "d", "position": 1, "at": 1, "order": 1, "body": {"id": 5}},
        {"kind": RUNS, "thread": "d", "position": 1, "at": 1, "body": {"runs": [{"branch": "b"}]}},
        {"kind": REMOVAL, "thread": "d", "position": 1, "at": 1, "body": {"removed": []}},
    ],
)
def test_a_damaged_record_is_an_error(source: dict[str, object]) -> None:
    with pytest.raises(CorruptCheckpointError):
        record_from(source)


def test_ids_are_short_whatever_they_are_made_of() -> None:
    long = "\U0001f600" * 255
    for name in (name_id("d" * 32, long, long), writes_id("d" * 32, long, long, long, "b" * 20)):
        assert len(name.encode()) < 128
    assert record_id("d", "b", 7) == "d.7"
    assert record_id("d", "b", -7) == "d.b.7"
    assert name_id("d", "a", "bc") != name_id("d", "ab", "c")
    assert metadata_term("a", '"b"') != metadata_term('a","b', "")


def test_words_are_in_the_index_as_search_asks_for_them() -> None:
    long = "x" * (MAX_WORD_LENGTH + 1)
    text = indexed_words({"key": ["Two WORDS", {"deep": "naïve_test"}]}, [long, 5, None])
    assert text.split()[:4] == ["two", "words", "naïve", "test"]
    assert len(text.split()) == 5
    assert long not in text


def test_states_follow_from_records() -> None:
    state = ThreadState("t")
    for place in range(1, KNOWN_NAMESPACES + 3):
        state = next_state(state, _checkpoint(place, [], ["b", 0, 0, 0], namespace=f"n{place}"))
    assert (state.position, state.live, state.last_seq) == (KNOWN_NAMESPACES + 2,) * 3
    assert state.more
    assert len(state.latest_places) == KNOWN_NAMESPACES
    assert list(state.latest_places)[-1] == f"n{KNOWN_NAMESPACES + 2}"
    again = state_from("t", json.loads(json.dumps(state_source(state))))
    assert replace(again, unpublished=state.unpublished) == state
    fresh = next_state(state, _checkpoint(state.position + 1, [], ["b", 0, 0, 0], epoch=state.position, seq=1))
    assert (fresh.live, fresh.last_seq, len(fresh.latest_places)) == (1, 1, 1)
    for wrong in (_checkpoint(99, [], ["b", 0, 0, 0]), Record(GONE, "d", state.position + 1, state.position + 1, 5)):
        with pytest.raises(CorruptCheckpointError):
            next_state(state, wrong)


def test_the_document_of_a_newer_version_is_refused() -> None:
    with pytest.raises(UnsupportedFormatError):
        thread_state_from("t", {"body": {"format": 99, "state": {"tips": []}}})
    damaged: dict[str, Any]
    for damaged in ({}, {"body": {}}, {"body": {"state": {"position": 4}}}, {"body": {"state": 7}}):
        with pytest.raises(CorruptCheckpointError):
            thread_state_from("t", damaged)


def test_a_removal_keeps_what_others_show_and_the_way_to_it() -> None:
    """Run 1 replaced the end of run 0, and run 2 all of run 1."""
    records = [
        _checkpoint(1, [(0, 0, 4)], ["b", 0, 0, 4]),
        _checkpoint(2, [(1, 3, 2)], ["b", 1, 0, 5]),
        _checkpoint(3, [(2, 3, 3)], ["b", 2, 0, 6]),
        _checkpoint(4, [(3, 6, 1)], ["b", 3, 0, 7]),
    ]
    removal = removal_of(records, {1, 2, 4})
    assert removal.parents == {3: None}
    kept = runs_to_keep(records, removal.places)
    assert kept == {1: {("b", 0): True}, 2: {("b", 1): False}, 3: {("b", 2): True}}
    rest = [remaining(record, removal, kept.get(record.place, {})) for record in records]
    assert [record.kind for record in rest] == [RUNS, RUNS, CHECKPOINT, GONE]
    assert [bool(stored.run.items) for record in rest for stored in record.runs] == [True, False, True]
    assert [_back(record) for record in rest] == rest


def test_a_window_does_not_keep_what_is_before_it() -> None:
    records = [_checkpoint(place, [(place - 1, 4 * (place - 1), 4)], ["b", place - 1, 0, 4]) for place in range(1, 9)]
    records[-1] = replace(records[-1], manifest=encode([[["messages"], [["b", 7, 24, 8]]]]))
    kept = runs_to_keep(records, range(1, 8))
    assert sorted(kept) == [7, 8]


def test_a_run_that_was_sent_twice_stays_where_somebody_refers_to_it() -> None:
    """Another save continued the first, and was there when that was removed; a third shows what was sent again."""
    run = StoredRun(Run("b", 0, 0, 4, encode(["item"] * 4)))
    first, again = (replace(_checkpoint(place, [], ["b", 0, 0, 4]), runs=(run,)) for place in (1, 3))
    second = _checkpoint(2, [(1, 4, 1)], ["b", 1, 0, 5])
    shown = _checkpoint(4, [], ["b", 0, 0, 4], run_locations=again.run_locations)
    records = [first.emptied(first.runs), second, again, shown]
    assert runs_to_keep(records, [3]) == {1: {("b", 0): True}, 2: {("b", 1): True}, 3: {("b", 0): True}}
    assert runs_to_keep(records, [3, 4]) == {1: {("b", 0): True}, 2: {("b", 1): True}}
    assert runs_to_keep(records, [2]) == {3: {("b", 0): True}}


def test_a_value_stays_where_somebody_refers_to_it() -> None:
    """It was sent twice; the copy that is referred to is the one that has to stay."""
    value = StoredRun(Run("#v", 0, 0, 1, '["large"]'))
    manifest = encode([[["large"], "#v"]])
    first, second, third = (_checkpoint(place, [], [], manifest=manifest) for place in (1, 2, 3))
    first, third = replace(first, runs=(value,)), replace(third, runs=(value,))
    second = replace(second, run_locations=first.run_locations)
    assert runs_to_keep([first, second, third], [1]) == {1: {("#v", 0): True}, 3: {("#v", 0): True}}
    assert runs_to_keep([first, second, third], [1, 2]) == {3: {("#v", 0): True}}
