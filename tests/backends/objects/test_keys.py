"""Names of objects: they sort as what they name, hold only safe characters, and can be read back."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from locus.memory.backends.objects.client import MAX_KEY
from locus.memory.backends.objects.schema import (
    LONGEST_NAME,
    Life,
    Segment,
    cover,
    decoded,
    encoded,
    event_key,
    in_segments,
    mark,
    parse_event,
    parse_mark,
    parse_segment,
    thread_name,
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
    first, second = (f"{in_segments(encoded(text))}-" for text in (one, other))
    assert (first < second) == (one.encode() < other.encode())


@given(similar, similar)
def test_the_name_of_a_beginning_is_the_beginning_of_the_name(start: str, rest: str) -> None:
    assert in_segments(encoded(start + rest)).startswith(in_segments(encoded(start)))


@given(ids, st.integers(1, 10**9), st.sampled_from(Life))
def test_marks_can_be_read_back_and_fit_everywhere(thread_id: str, number: int, life: Life) -> None:
    made = mark(thread_id, number, life)
    assert parse_mark(made.key) == made
    assert made.long == (len(encoded(thread_id)) > LONGEST_NAME)
    assert len(made.key) <= MAX_KEY
    assert all(0 < len(part) <= 255 for part in made.key.split("/"))


@given(st.integers(1, 10**11), st.integers(1, 10**11))
def test_the_newest_event_is_listed_first(one: int, other: int) -> None:
    thread = thread_name("t")
    assert parse_event(event_key(thread, one)) == one
    assert (event_key(thread, one) < event_key(thread, other)) == (one > other)
    segment = Segment("items", one, one + other, 2, 7, 5)
    assert parse_segment(segment.key(thread), 5) == segment
    assert segment.key(thread) < event_key(thread, one)


def test_what_is_not_ours_is_not_read() -> None:
    for key in ("n/", "n/a-1.sure", "t/x/s/1", "t/x/m/1-1-1.1.0.other", "README", ""):
        assert parse_mark(key) is None
        assert parse_event(key) is None
        assert parse_segment(key, 0) is None


ranges = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 20)), max_size=12)


@given(ranges)
def test_a_cover_reaches_as_far_as_possible_without_a_gap(found: list[tuple[int, int]]) -> None:
    segments = [Segment("entries", low, low + length, 1, 0) for low, length in found]
    chosen = cover(segments)
    reached = 0
    for segment in chosen:
        assert segment.low <= reached + 1 <= segment.high
        reached = segment.high
    assert not any(segment.low <= reached + 1 <= segment.high for segment in segments)
