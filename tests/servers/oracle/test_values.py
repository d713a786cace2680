"""Oracle's forms of values: what goes over the wire comes back as it was."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.servers.oracle.buffers import Reader, UnderflowError, Writer
from tests.servers.oracle.types import from_json_text, json_text
from tests.servers.oracle.values import (
    bytes_to_double,
    bytes_to_number,
    bytes_to_time,
    double_to_bytes,
    number_to_bytes,
    restored,
    stored,
    time_to_bytes,
)

NUMBERS = st.decimals(allow_nan=False, allow_infinity=False, places=10, min_value=-(10**25), max_value=10**25)


@given(NUMBERS)
def test_a_number(value: Decimal) -> None:
    assert Decimal(bytes_to_number(number_to_bytes(str(value)))) == value


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("0", "80"),
        ("1", "c102"),
        ("10", "c10b"),
        ("100", "c202"),
        ("-1", "3e6466"),
        ("0.5", "c033"),
        ("123.45", "c202182e"),
    ],
)
def test_the_bytes_of_a_number_are_oracles(text: str, data: str) -> None:
    """As DUMP() shows them."""
    assert number_to_bytes(text).hex() == data


@given(st.floats(allow_nan=False))
def test_a_double(value: float) -> None:
    assert bytes_to_double(double_to_bytes(value)) == value


@given(st.datetimes(min_value=datetime(1, 1, 1)))  # noqa: DTZ001
def test_a_time(value: datetime) -> None:
    text = value.isoformat(" ")
    assert datetime.fromisoformat(bytes_to_time(time_to_bytes(text, "timestamp"))) == value
    assert datetime.fromisoformat(bytes_to_time(time_to_bytes(text, "date"))) == value.replace(microsecond=0)


@given(st.text())
def test_a_text_with_any_character(text: str) -> None:
    assert "\0" not in stored(text)
    assert restored(stored(text)) == text


def test_json_keeps_every_digit_and_every_character() -> None:
    from oracledb import thin_impl  # type: ignore[attr-defined]

    value = {"a\0": [Decimal("1.00000000000000000001"), 12345678901234567890, None, True, "é\U0010fffe"]}
    assert thin_impl.ThinConnImpl().decode_oson(from_json_text(json_text(value))) == value


@given(st.integers(0, 2**63), st.integers(-(2**31), 2**31), st.binary(max_size=70_000))
def test_integers_and_bytes(unsigned: int, signed: int, data: bytes) -> None:
    writer = Writer()
    writer.ub(unsigned)
    writer.sb(signed)
    writer.chunks(data)
    reader = Reader(bytes(writer.data))
    assert (reader.ub(), reader.sb(), reader.chunks()) == (unsigned, signed, data or None)
    with pytest.raises(UnderflowError):
        reader.u8()
