"""Values that a database's own JSON type would change travel as tags, and come back as they were."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locus.errors import CorruptCheckpointError
from locus.memory.model.codec import EXACT, Dialect, decode, encode, from_native, to_native
from locus.testing.data import EXACT_VALUES, budget, json_values
from tests.samples import exact

JSONB = Dialect(exact=False, nul=False, negative_zero=False, float_exponents=False)
MYSQL = Dialect(exact=False, nul=True, negative_zero=True, float_exponents=True, integer_bits=64)
ORACLE = Dialect(exact=False, nul=False, fractions_only=True, integer_digits=38, longest_key=255)


def _rebuilt(value: Any, number: Callable[[Any], Any], text: Callable[[str], str], key: Callable[[str], str]) -> Any:
    """A value as a database gives it back: numbers and texts its own way, keys in an order of its own."""
    if isinstance(value, dict):
        pairs = ((key(name), _rebuilt(item, number, text, key)) for name, item in value.items())
        return dict(sorted(pairs, key=lambda pair: (len(pair[0].encode()), pair[0])))
    if isinstance(value, list):
        return [_rebuilt(item, number, text, key) for item in value]
    if isinstance(value, str):
        return text(value)
    return value if value is None or isinstance(value, bool) else number(value)


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("this database refuses NUL")
    return text


def _decimal(value: int | float) -> int | float:
    """Numbers are decimals: a zero has no sign, and what is written with an exponent becomes an integer."""
    if isinstance(value, float):
        if value == 0:
            return 0.0
        return int(value) if "e" in repr(value) and value.is_integer() else value
    return value


def _up_to_64_bits(value: int | float) -> int | float:
    return float(value) if isinstance(value, int) and not -(2**63) <= value < 2**64 else value


def _oracle_number(value: int | float) -> int | float:
    """Of 38 digits, and not too small or too large; whole numbers are integers, whatever they were."""
    number = Decimal(str(value))
    if number and not Decimal("1e-130") <= abs(number) < Decimal("1e126"):
        raise ValueError("this database has no such number")
    number = Context(prec=38).plus(number)
    return int(number) if number == number.to_integral_value() else float(number)


def _oracle_key(key: str) -> str:
    if not 0 < len(key.encode()) <= 255:
        raise ValueError("this database has no such key")
    return _no_nul(key)


def jsonb(text: str) -> str:
    return json.dumps(_rebuilt(json.loads(text), _decimal, _no_nul, _no_nul), ensure_ascii=False)


def mysql(text: str) -> str:
    return json.dumps(_rebuilt(json.loads(text), _up_to_64_bits, str, str), ensure_ascii=False)


def oracle(text: str) -> str:
    return json.dumps(_rebuilt(json.loads(text), _oracle_number, _no_nul, _oracle_key), ensure_ascii=False)


DATABASES = [
    pytest.param(JSONB, jsonb, id="jsonb"),
    pytest.param(MYSQL, mysql, id="mysql"),
    pytest.param(ORACLE, oracle, id="oracle"),
]
LOOK_ALIKES: list[Any] = [
    {"$locus:float": "1e+22"},
    {"$locus:int": "no number"},
    {"$locus:str": '"\\u0000"'},
    {"$locus:dict": []},
    {"$locus:dict": [["a", 1]]},
    {"$locus:unheard-of": {"$locus:float": -0.0}},
    {"$locus:": None},
    {"$locus:float": "1", "b": 1},
    {"$locus:dict": {"$locus:dict": {"$locus:dict": "\0"}}},
    {"\0": {"\0\0": ["\0", {"$locus:str": "\0"}]}, "b": 1e22},
    {"": {"": ""}, "x" * 256: {"é" * 128: 1.0}, "y" * 255: 2.5},
    "$locus:float",
    ["$locus:int", "\\u0000", "\\\\u0000", "\0\\u0000"],
]


@pytest.mark.parametrize(("dialect", "database"), DATABASES)
@pytest.mark.parametrize("value", [*EXACT_VALUES, *LOOK_ALIKES], ids=lambda value: repr(value)[:30])
def test_a_value_survives_the_database(value: Any, dialect: Dialect, database: Callable[[str], str]) -> None:
    returned = database(to_native(encode(value), dialect))
    assert exact(decode(from_native(returned))) == exact(value)


tagged_values = st.recursive(
    st.sampled_from([1e22, -0.0, 0.0, 2**64, 10**40, -(10**38), 2**63, 1e-7, 3.0, "\0", "$locus:str", "x", 1, None])
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a", "\0", "$locus:dict", "$locus:float", "$locus:x", ""]), inner, max_size=2
        )
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(("dialect", "database"), DATABASES)
@given(value=tagged_values | json_values)
@budget(40)
def test_any_value_survives_the_database(value: Any, dialect: Dialect, database: Callable[[str], str]) -> None:
    returned = database(to_native(encode(value), dialect))
    assert exact(decode(from_native(returned))) == exact(value)


@pytest.mark.parametrize(
    ("database", "value"),
    [(jsonb, 1e22), (jsonb, -0.0), (mysql, 2**64), (mysql, 10**40), (oracle, 10**40 + 1), (oracle, 1.0)],
)
def test_without_tags_the_database_would_change_it(database: Callable[[str], str], value: Any) -> None:
    """Or these tests would show nothing."""
    assert exact(decode(database(encode(value)))) != exact(value)


@pytest.mark.parametrize(
    ("dialect", "value", "native"),
    [
        (JSONB, 1e22, {"$locus:float": "1e+22"}),
        (JSONB, -0.0, {"$locus:float": "-0.0"}),
        (JSONB, [1e-7, 0.1, 10**40, 1e15], [1e-7, 0.1, 10**40, 1e15]),
        (JSONB, "a\0", {"$locus:str": '"a\\u0000"'}),
        (JSONB, {"\0": 1}, {"$locus:dict": [[{"$locus:str": '"\\u0000"'}, 1]]}),
        (JSONB, {"$locus:int": "1"}, {"$locus:dict": [["$locus:int", "1"]]}),
        (JSONB, {"$locus:int": "1", "b": 2}, {"$locus:int": "1", "b": 2}),
        (MYSQL, 2**64, {"$locus:int": "18446744073709551616"}),
        (MYSQL, [2**63 - 1, 1e22, -0.0, "\0"], [2**63 - 1, 1e22, -0.0, "\0"]),
        (ORACLE, 10**40, {"$locus:int": "1" + "0" * 40}),
        (ORACLE, [10**38 - 1, True], [10**38 - 1, True]),
        (ORACLE, [0.1, -12.75, "2.0", 7], [0.1, -12.75, "2.0", 7]),
        (ORACLE, [1.0, 1e-7], [{"$locus:float": "1.0"}, {"$locus:float": "1e-07"}]),
        (ORACLE, {"": 1}, {"$locus:dict": [["", 1]]}),
        (ORACLE, {"é" * 128: 1}, {"$locus:dict": [["é" * 128, 1]]}),
        (ORACLE, {"x" * 255: '"":'}, {"x" * 255: '"":'}),
    ],
)
def test_exactly_what_would_change_is_tagged(dialect: Dialect, value: Any, native: Any) -> None:
    assert exact(json.loads(to_native(encode(value), dialect))) == exact(native)


@given(json_values | tagged_values)
@budget(20)
def test_a_database_that_stores_text_gets_the_text_as_it_is(value: Any) -> None:
    text = encode(value)
    assert to_native(text, EXACT) is text


def test_text_without_suspicious_values_is_not_parsed() -> None:
    text = '{ "a" : [1, 2.5, "x"] }'
    assert to_native(text, JSONB) is text
    assert to_native(text, ORACLE) is text
    assert from_native(text) is text


@pytest.mark.parametrize(
    "stored",
    [
        '{"$locus:later":1}',
        '{"$locus:float":"x"}',
        '{"$locus:int":null}',
        '{"$locus:str":"not json"}',
        '{"$locus:dict":7}',
        '{"$locus:dict":[["a"]]}',
        '{"$locus:dict":[[[],1]]}',
        '{"$locus:float":"1"',
    ],
)
def test_a_tag_that_is_not_understood_is_an_error_of_ours(stored: str) -> None:
    with pytest.raises(CorruptCheckpointError):
        from_native(stored)


def test_the_sign_of_zero_survives() -> None:
    returned = decode(from_native(jsonb(to_native("[-0.0,0.0]", JSONB))))
    assert [math.copysign(1, zero) for zero in returned] == [-1, 1]
