"""Ids in paths and headers."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locus.errors import InvalidIdError
from locus.memory.backends.http.plain_server import plain_segment
from locus.wire.format import etag, from_etag, from_segment, segment

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=255)


@given(TEXTS)
def test_a_segment_stands_for_its_id_and_no_proxy_changes_it(value: str) -> None:
    text = segment(value)
    assert from_segment(text) == value
    assert re.fullmatch(r"~?[A-Za-z0-9._-]+", text)
    assert text.strip(".")


@given(TEXTS, TEXTS)
def test_two_ids_have_two_segments(one: str, other: str) -> None:
    assert (segment(one) == segment(other)) == (one == other)


@given(TEXTS)
def test_an_entity_tag_stands_for_its_id(value: str) -> None:
    assert from_etag(etag(value)) == value
    assert etag(value).isascii()


@pytest.mark.parametrize("text", ["", "c", '"a" "b"', '"%ff"', 'W/"a"', '"a b"'])
def test_other_texts_are_no_entity_tags(text: str) -> None:
    assert from_etag(text) == ""


@pytest.mark.parametrize("text", ["~*", "~a", "~_w", "%ff", "%C3"])
def test_other_texts_are_no_segments(text: str) -> None:
    with pytest.raises(InvalidIdError):
        from_segment(text)


@given(TEXTS)
def test_a_plain_segment_is_escaped_wherever_it_could_mean_something(value: str) -> None:
    text = plain_segment(value)
    assert re.fullmatch(r"[A-Za-z0-9._~%-]+", text)
    assert text not in (".", "..")
    assert unquote(text, errors="strict") == value
