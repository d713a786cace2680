"""Oracle's binary form of JSON: byte for byte what the driver writes, but not in the square of its time."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracledb import thin_impl  # type: ignore[attr-defined]

from locus.testing.data import budget
from tests.servers.oracle.oson import encoded

codec = thin_impl.ThinConnImpl()
numbers = st.integers(-(10**37), 10**37) | st.decimals(-1000, 1000, places=4)
plain = st.none() | st.booleans() | numbers | st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)


@given(st.lists(values, max_size=4) | st.dictionaries(keys, values, max_size=4))
@budget(100)
def test_it_is_what_the_driver_writes(value: Any) -> None:
    assert encoded(value) == codec.encode_oson(value)


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        {f"k{n}": n for n in range(300)},
        list(range(300)),
        ["x" * 70_000],
        {f"{n:0250}": None for n in range(300)},
        [Decimal("1E+20"), Decimal("-0.001")],
    ],
    ids=lambda value: json.dumps(value, default=str)[:20],
)
def test_large_values_have_wide_offsets(value: Any) -> None:
    assert encoded(value) == codec.encode_oson(value)


def test_keys_that_are_too_long_are_left_to_the_driver() -> None:
    assert encoded({"x" * 256: 1}) is None


def test_many_objects_take_no_longer_than_they_are_many() -> None:
    value = [{"role": "user", "n": number} for number in range(5_000)]
    began = time.process_time()
    image = encoded(value)
    assert time.process_time() - began < 5
    assert codec.decode_oson(image) == value
