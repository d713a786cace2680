"""The codec writes exactly what it was given, or says where it cannot."""

from __future__ import annotations

import json
import random
from collections import OrderedDict
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locus.core.frozen import freeze
from locus.errors import CorruptCheckpointError, SerializationError
from locus.memory.model.codec import MAX_DEPTH, canonical, check, decode, encode, encode_each, parse, path_text
from locus.testing.data import EXACT_VALUES, budget, json_values
from tests.samples import exact


class Colour(Enum):
    RED = 1


class Number(IntEnum):
    ONE = 1


class Word(StrEnum):
    YES = "yes"


def nested(levels: int, kind: type[list[Any]] | type[dict[str, Any]]) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value] if kind is list else {"a": value}
    return value


def shuffled(value: Any, chance: random.Random) -> Any:
    """The same value with the keys of its dicts in another order."""
    if isinstance(value, dict):
        pairs = [(key, shuffled(item, chance)) for key, item in value.items()]
        chance.shuffle(pairs)
        return dict(pairs)
    return [shuffled(item, chance) for item in value] if isinstance(value, list) else value


@given(json_values)
@budget(75)
def test_what_is_encoded_decodes_to_the_same(value: Any) -> None:
    text = encode(value)
    assert exact(decode(text)) == exact(value)
    assert exact(decode(text.encode())) == exact(value)


@pytest.mark.parametrize("value", EXACT_VALUES, ids=lambda value: repr(value)[:30])
def test_values_that_databases_change_decode_to_the_same(value: Any) -> None:
    assert exact(decode(encode(value))) == exact(value)


def test_the_text_is_compact_and_keeps_unicode_and_the_order_of_keys() -> None:
    assert encode({"b": [1, 2.0, "é😀"], "a": None}) == '{"b":[1,2.0,"é😀"],"a":null}'


@given(json_values, st.randoms(use_true_random=False))
@budget(30)
def test_canonical_text_does_not_depend_on_the_order_of_keys(value: Any, chance: random.Random) -> None:
    assert canonical(shuffled(value, chance)) == canonical(value)
    assert exact(decode(canonical(value))) == exact(value)


@pytest.mark.parametrize(("a", "b"), [(1, True), (1, 1.0), (0.0, -0.0), (0, False), ("1", 1), (None, False)])
def test_canonical_text_tells_apart_what_python_calls_equal(a: Any, b: Any) -> None:
    assert canonical(a) != canonical(b)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((1, (2, [3])), "[1,[2,[3]]]"),
        (OrderedDict(b=1, a=2), '{"b":1,"a":2}'),
        (freeze({"a": [1, {"b": ()}]}), '{"a":[1,{"b":[]}]}'),
        (Word.YES, '"yes"'),
        ([Number.ONE, True], "[1,true]"),
        ({Word.YES: 1}, '{"yes":1}'),
    ],
)
def test_relatives_of_json_types_are_written_as_these(value: Any, text: str) -> None:
    assert encode(value) == text


REFUSALS: list[tuple[Any, str, str]] = [
    (float("nan"), "nan", ""),
    ({"a": [0.5, float("inf")]}, "inf", "a[1]"),
    ([1, [2, -float("inf")]], "-inf", "[1][1]"),
    ({"a": b"x"}, "type bytes", "a"),
    ({"a": {"b": {1}}}, "type set", "a.b"),
    ([frozenset[int]()], "type frozenset", "[0]"),
    ({"a": object()}, "type object", "a"),
    ({"a": 1j}, "type complex", "a"),
    ({"a": Decimal(1)}, "type Decimal", "a"),
    ({"a": [Colour.RED]}, "type Colour", "a[0]"),
    ({"a": range(3)}, "type range", "a"),
    ({"a": iter([1])}, "type list_iterator", "a"),
    ({"a": {1: 2}}, "key of type int", "a"),
    ({"a": {None: 2}}, "key of type NoneType", "a"),
    ({"a": {True: 2}}, "key of type bool", "a"),
    ({"a": {"x": 1, (1, 2): 2}}, "key of type tuple", "a"),
    ({"a": "x\ud800"}, "lone surrogate", "a"),
    ({"a": {"\udfff": 1}}, "lone surrogate", "a"),
    ({"a": "\ud83d\ude00"}, "lone surrogate", "a"),
    ({"a": 10**5000}, "integer too long", "a"),
    ({"not a name": {"": float("nan")}}, "nan", "['not a name']['']"),
]


@pytest.mark.parametrize("write", [encode, canonical])
@pytest.mark.parametrize(("value", "why", "path"), REFUSALS, ids=[f"{why} at {path}" for _, why, path in REFUSALS])
def test_what_json_cannot_hold_is_refused_with_its_path(value: Any, why: str, path: str, write: Any) -> None:
    with pytest.raises(SerializationError) as caught:
        write(value)
    assert caught.value.path == path
    assert why in str(caught.value)
    assert str(caught.value).startswith(path or "the value")


@given(st.lists(json_values, max_size=5), st.booleans())
@budget(75)
def test_items_that_are_encoded_together_have_the_texts_of_each(values: list[Any], sort_keys: bool) -> None:
    assert encode_each(values, ("messages",), 3, sort_keys=sort_keys) == [
        encode(value, sort_keys=sort_keys) for value in values
    ]


@pytest.mark.parametrize("sort_keys", [False, True])
@pytest.mark.parametrize(("value", "why", "path"), REFUSALS, ids=[f"{why} at {path}" for _, why, path in REFUSALS])
def test_of_items_that_are_encoded_together_the_bad_one_is_named(
    value: Any, why: str, path: str, sort_keys: bool
) -> None:
    with pytest.raises(SerializationError, match=why) as caught:
        encode_each([{"text": "x" * 5_000}, value, 1.5], ("messages",), 3, sort_keys=sort_keys)
    joint = "" if not path or path.startswith("[") else "."
    assert caught.value.path == f"messages[4]{joint}{path}"


@pytest.mark.parametrize(("value", "why", "path"), REFUSALS, ids=[f"{why} at {path}" for _, why, path in REFUSALS])
def test_the_path_starts_where_the_value_stands(value: Any, why: str, path: str) -> None:
    with pytest.raises(SerializationError) as caught:
        encode(value, ("messages", 3))
    joint = "" if not path or path.startswith("[") else "."
    assert caught.value.path == f"messages[3]{joint}{path}"


@pytest.mark.parametrize("kind", [list, dict])
def test_the_deepest_value_that_is_kept(kind: type[Any]) -> None:
    assert decode(encode(nested(MAX_DEPTH, kind))) == nested(MAX_DEPTH, kind)
    with pytest.raises(SerializationError, match=f"more than {MAX_DEPTH} levels") as caught:
        encode(nested(MAX_DEPTH + 1, kind))
    assert caught.value.path == path_text(((0,) if kind is list else ("a",)) * MAX_DEPTH)


@pytest.mark.parametrize("kind", [list, dict])
def test_a_value_deeper_than_the_stack_is_refused_like_any_other(kind: type[Any]) -> None:
    with pytest.raises(SerializationError, match="levels deep"):
        encode(nested(100_000, kind))


def test_a_value_that_contains_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append({"again": ring})
    with pytest.raises(SerializationError, match="levels deep"):
        encode(ring)


def test_check_refuses_shapes_and_types_without_writing() -> None:
    check({"a": [1, "x", None, {"b": 2.5}]})
    with pytest.raises(SerializationError) as caught:
        check({"a": [1, {"b": {2}}]}, ("metadata",))
    assert caught.value.path == "metadata.a[1].b"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("messages", 3, "metadata", "x"), "messages[3].metadata.x"),
        ((0, "a"), "[0].a"),
        (("a b", "", "é", "1"), "['a b'][''].é['1']"),
    ],
)
def test_paths_as_text(path: tuple[str | int, ...], text: str) -> None:
    assert path_text(path) == text


@pytest.mark.parametrize("text", ["", "{", '{"a":1', "[1,]", "nul", "\x00", b"\xff\xfe\xfd", "[" * 100_000, "1" * 5000])
def test_damaged_text_is_an_error_of_ours(text: str | bytes) -> None:
    with pytest.raises(CorruptCheckpointError) as caught:
        decode(text)
    assert isinstance(caught.value.__cause__, ValueError | RecursionError)


def test_the_text_is_json_for_everybody() -> None:
    value = {"a": [1, 2.5, "x\0\u2028", None, True], "": {}}
    assert json.loads(encode(value)) == value


@pytest.mark.parametrize(
    "text", ['"\\u00e9"', '"zebra \\ud83e\\udd93\\""', '{"\\u00fc": ["\\n\\u20ac x"]}', '"\u00e9"']
)
def test_the_quick_parser_reads_escapes(text: str) -> None:
    assert parse(text) == parse(text.encode()) == json.loads(text)


def test_a_text_of_many_digits_is_not_looked_at_one_by_one() -> None:
    """It might hold a number too long to read, so all of the value is looked at again."""

    class Digits(str):
        def __iter__(self) -> Any:
            raise AssertionError("character by character")

    text = Digits("7" * 5_000)
    assert encode({"a": [text]}) == f'{{"a":["{text}"]}}'
    with pytest.raises(SerializationError, match="lone surrogate"):
        encode({"a": [Digits("7" * 5_000 + "\ud800")]})
