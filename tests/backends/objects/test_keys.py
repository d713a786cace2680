"""Names of objects: they sort as what they name, hold only safe characters, and can be read back."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from locus.memory.backends.objects.client import MAX_KEY
from locus.memory.backends.objects.schema import (
    MAX_ENCODED_ID,
    MarkerState,
    MergedObject,
    cover,
    decoded,
    encoded,
    event_key,
    marker_of,
    parse_event,
    parse_marker,
    parse_merged,
    thread_name,
    with_slashes,
)
from locus.testing.data import HOSTILE_IDS

ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=255) | st.sampled_from(HOSTILE_IDS)
similar = st.text(st.sampled_from("aAzZ09 -._/:[`{~é𝄞"), min_size=1, max_size=255)


@given(ids)
def test_a_name_is_safe_and_can_be_read_back(thread_id: str) -> None:
    name = encoded(thread_id)
    assert re.fullmatch(r"[0-9A-Za-z._]+", name)
    assert decoded(name) == thread_id


@given(ids | similar, ids | similar)
def test_names_sort_as_ids_do(one: str, other: str) -> None:
    first, second = (f"{with_slashes(encoded(text))}-" for text in (one, other))
    assert (first < second) == (one.encode() < other.encode())


@given(similar, similar)
def test_the_name_of_a_beginning_is_the_beginning_of_the_name(start: str, rest: str) -> None:
    assert with_slashes(encoded(start + rest)).startswith(with_slashes(encoded(start)))


@given(ids, st.integers(1, 10**9), st.sampled_from(MarkerState))
def test_marks_can_be_read_back_and_fit_everywhere(thread_id: str, number: int, state: MarkerState) -> None:
    made = marker_of(thread_id, number, state)
    assert parse_marker(made.key) == made
    assert made.long == (len(encoded(thread_id)) > MAX_ENCODED_ID)
    assert len(made.key) <= MAX_KEY
    assert all(0 < len(part) <= 255 for part in made.key.split("/"))


@given(st.integers(1, 10**11), st.integers(1, 10**11))
def test_the_newest_event_is_listed_first(one: int, other: int) -> None:
    thread = thread_name("t")
    assert parse_event(event_key(thread, one)) == one
    assert (event_key(thread, one) < event_key(thread, other)) == (one > other)
    one_merged = MergedObject("items", one, one + other, 2, 7, 5)
    assert parse_merged(one_merged.key(thread), 5) == one_merged
    assert one_merged.key(thread) < event_key(thread, one)


def test_what_is_not_ours_is_not_read() -> None:
    for key in ("n/", "n/a-1.sure", "t/x/s/1", "t/x/m/1-1-1.1.0.other", "README", ""):
        assert parse_marker(key) is None
        assert parse_event(key) is None
        assert parse_merged(key, 0) is None


ranges = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 20)), max_size=12)


@given(ranges)
def test_a_cover_reaches_as_far_as_possible_without_a_gap(found: list[tuple[int, int]]) -> None:
    merged = [MergedObject("entries", low, low + length, 1, 0) for low, length in found]
    chosen = cover(merged)
    reached = 0
    for one_merged in chosen:
        assert one_merged.low <= reached + 1 <= one_merged.high
        reached = one_merged.high
    assert not any(one_merged.low <= reached + 1 <= one_merged.high for one_merged in merged)
