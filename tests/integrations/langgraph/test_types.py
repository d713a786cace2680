"""Python values in a checkpoint: what is saved comes back equal and of the same type, and nothing else is loaded."""

from __future__ import annotations

import datetime as dt
import enum
import ipaddress
import json
import math
import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Command, Interrupt, Overwrite, Send
from pydantic import BaseModel, Field, PrivateAttr, RootModel

from locus.errors import ConfigurationError, CorruptCheckpointError, SerializationError
from locus.integrations.langgraph.classes import typed_codec
from locus.integrations.langgraph.codec import TypedCodec
from locus.memory.model.codec import decode, encode


class Colour(enum.Enum):
    RED = "red"
    BOTH = (1, 2)


class Level(enum.IntEnum):
    HIGH = 3


class Word(enum.StrEnum):
    YES = "yes"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: int = 2


@dataclass
class Ticket:
    number: int
    tags: list[str] = field(default_factory=list)
    made: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.made = self.number > 0


@dataclass(frozen=True, slots=True)
class Sealed:
    name: str
    at: dt.datetime | None = None


class Model(BaseModel):
    number: int
    notes: dict[str, Any] = Field(default_factory=dict)
    inner: Model | None = None
    _seen: int = PrivateAttr(default=0)


class Open(BaseModel, extra="allow"):
    number: int = 1


class Numbers(RootModel[list[int]]):
    pass


class Text(str):
    pass


class Plain:
    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is Plain and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]


class Slotted:
    __slots__ = ("__hidden", "unset", "value")

    def __init__(self, value: object) -> None:
        self.value = value
        self.__hidden = 1

    def __eq__(self, other: object) -> bool:
        return type(other) is Slotted and (other.value, other.__hidden) == (self.value, self.__hidden)

    __hash__ = None  # type: ignore[assignment]


ALLOWED = (Colour, Level, Word, Rights, Point, Ticket, Sealed, Model, Open, Numbers, Text, Plain, Slotted)

BERLIN = ZoneInfo("Europe/Berlin")
NAIVE = dt.datetime(2026, 7, 1, 12, 30, 1, 5)  # noqa: DTZ001 - people have such
CALL = {"name": "look_up", "args": {"place": "Rome", "limit": 5}, "id": "call_1"}

VALUES: list[Any] = [
    None, True, 0, -1, 10**40, 0.1, -0.0, 1e22, "", "é\0\n", [], {}, [1, [2, [None]]], {"a": {"b": []}},
    math.inf, -math.inf, complex(1, -0.0), Decimal("1.10"), Decimal("Infinity"), Fraction(1, 3), range(1, 9, 2),
    b"", b"\0\xff", bytearray(b"x"), UUID(int=7),
    NAIVE, dt.datetime(2026, 7, 1, tzinfo=dt.UTC),
    dt.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1), dt.time(1, 2, 3, 4), dt.time(1, 2, tzinfo=dt.UTC),
    dt.datetime(2026, 7, 1, tzinfo=dt.timezone(dt.timedelta(hours=2, seconds=3))),
    dt.datetime(2026, 7, 1, tzinfo=dt.timezone(dt.timedelta(hours=2), "MEZ")),
    dt.timezone(dt.timedelta(hours=-3), "X"), dt.date(2026, 7, 1), dt.timedelta(-1, 2, 3), BERLIN,
    (), (1, [2], ()), {1, "a", (2, None)}, frozenset({1.5}), deque([1, {2}], 3), deque(),
    OrderedDict(b=1, a=2), Counter("aab"), defaultdict(list, {"a": [1]}), defaultdict(None, {1: 2}),
    {1: "a", (1, 2): {3: 4}, None: 5}, {"$type": "HumanMessage", "content": "no message"}, {"$type": 1, 2: 3},
    Path("/a/b"), PurePosixPath("a"), PureWindowsPath("c:/x"), re.compile("a.*", re.I | re.S), re.compile(b"a"),
    ipaddress.ip_address("10.0.0.1"), ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_interface("10.0.0.1/8"),
    ipaddress.ip_address("::1"), ipaddress.ip_network("fe80::/64"), ipaddress.ip_interface("fe80::1/64"),
    Colour.RED, Colour.BOTH, Level.HIGH, Word.YES, Rights.READ | Rights.WRITE, Rights(0),
    Point(1, 3), Ticket(0, ["a"]), Sealed("a", NAIVE), Text("t"), Plain([Plain(1)]), Slotted((1,)),
    Model(number=1), Model(number=1, notes={"a": {1}}, inner=Model(number=2)), Numbers([1, 2]),
    Open.model_validate({"number": 1, "other": (1, 2)}), AIMessageChunk(content="chunk"),
    HumanMessage("Hello", id="1"), HumanMessage([{"type": "text", "text": "a"}], name="n", extra_field={1}),
    AIMessage("", tool_calls=[CALL], usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
    AIMessage("x", response_metadata={"at": dt.date(2026, 1, 1)}, invalid_tool_calls=[]),
    ToolMessage("r", tool_call_id="call_1", artifact=Ticket(3), status="error"), SystemMessage("s"),
    ChatMessage(content="c", role="critic"), FunctionMessage(content="f", name="f"), RemoveMessage(id="1"),
    Document("text", metadata={"page": 1}), Send("node", {"a": (1,)}), Interrupt("why", id="i"),
    Command(goto=[Send("a", 1), "b"], update={"x": {1}}, resume={"i": 2}), Overwrite([1]), _DeltaSnapshot([1, (2,)]),
]  # fmt: skip


@pytest.fixture(scope="module")
def codec() -> TypedCodec:
    return typed_codec(ALLOWED)


def back(codec: TypedCodec, value: Any, *, sort_keys: bool = False) -> Any:
    """The value after it was in a database."""
    return codec.decode(decode(encode(codec.encode(value), sort_keys=sort_keys)))


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types to the bottom."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple | deque):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one == other and all(same(one[key], other[key]) for key in one)
    if isinstance(one, float) and one == 0:
        return math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("sort_keys", [False, True])
def test_a_value_comes_back_equal_and_of_the_same_type(codec: TypedCodec, value: Any, sort_keys: bool) -> None:
    assert same(back(codec, value, sort_keys=sort_keys), value)
    nested = {"a": [value, {"b": (value,)}]}
    assert same(back(codec, nested, sort_keys=sort_keys), nested)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_was_loaded_is_written_as_it_was(codec: TypedCodec, value: Any) -> None:
    """Else a process that loads a thread would store it anew."""
    written = encode(codec.encode(value))
    assert encode(codec.encode(codec.decode(decode(written)))) == written


def test_not_a_number_comes_back(codec: TypedCodec) -> None:
    assert math.isnan(back(codec, math.nan))
    assert math.isnan(back(codec, complex(math.nan, 1)).real)


def test_a_set_is_written_the_same_whatever_its_order(codec: TypedCodec) -> None:
    words = {f"word {number}" for number in range(50)}
    crowded = {*words, *map(str, range(10_000))}
    crowded -= set(map(str, range(10_000)))
    assert list(crowded) != list(words)
    assert codec.encode(crowded) == codec.encode(words)


@pytest.mark.parametrize(
    "array",
    [
        numpy.arange(6).reshape(2, 3), numpy.array([1.5, math.nan]), numpy.array(3), numpy.array([], dtype="u1"),
        numpy.array(["a", "bcd"]), numpy.array(["2026-01-01"], dtype="M8[D]"), numpy.arange(6).reshape(2, 3).T,
        numpy.float32(1.5), numpy.int64(3), numpy.bool_(True), numpy.float64(2.5), numpy.datetime64("2026-01-01"),
    ],
)  # fmt: skip
def test_numpy_comes_back(codec: TypedCodec, array: Any) -> None:
    found = back(codec, array)
    assert type(found) is type(array)
    assert found.dtype == array.dtype
    assert numpy.array_equal(found, array, equal_nan=array.dtype.kind == "f")


def test_an_array_of_objects_is_refused(codec: TypedCodec) -> None:
    with pytest.raises(SerializationError, match="object"):
        codec.encode(numpy.array([object()]))
    with pytest.raises(CorruptCheckpointError, match="object"):
        codec.decode({"$type": "ndarray", "dtype": "|O", "shape": [1], "value": ""})


def test_the_state_of_a_model_is_kept_to_the_last_field(codec: TypedCodec) -> None:
    model = Model(number=1)
    model._seen = 7
    model.notes["added"] = 1
    found = back(codec, model)
    assert (found._seen, found.notes) == (7, {"added": 1})
    assert found.model_fields_set == {"number"}
    assert back(codec, Open.model_validate({"x": [1]})).__pydantic_extra__ == {"x": [1]}


def test_neither_init_nor_validators_run_on_load(codec: TypedCodec) -> None:
    ticket = Ticket(3)
    ticket.made = False
    assert back(codec, ticket).made is False
    assert codec.decode({"$type": f"{__name__}.Model", "number": "no number"}).number == "no number"


def test_a_class_may_change_between_saving_and_loading(codec: TypedCodec) -> None:
    name = f"{__name__}.Ticket"
    assert codec.decode({"$type": name, "number": 1, "gone": 2}).tags == []
    with pytest.raises(SerializationError, match="was kept without number: give the new field a default"):
        codec.decode({"$type": name, "tags": []})
    with pytest.raises(SerializationError, match="was kept without number"):
        codec.decode({"$type": f"{__name__}.Model"})
    first, second = (codec.decode({"$type": f"{__name__}.Model", "number": 1}) for _ in range(2))
    assert first.notes is not second.notes


class Forbidden(BaseModel):
    number: int = 1


def test_a_send_of_an_older_langgraph_has_no_timeout(codec: TypedCodec) -> None:
    stored = codec.encode(Send("node", 1))
    del stored["timeout"]
    found = codec.decode(stored)
    assert (repr(found), found) == ("Send(node='node', arg=1)", Send("node", 1))


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Forbidden(), f"{__name__}.Forbidden"),
        (object(), "builtins.object"),
        (json.loads, "builtins.function"),
        (Forbidden, "pydantic"),
        (type("Odd", (HumanMessage,), {"__module__": "my_app"})("x"), "my_app.Odd"),
    ],
)
def test_a_type_that_is_not_allowed_is_named_when_it_is_saved(value: object, name: str) -> None:
    with pytest.raises(SerializationError, match=r"channel_values\.a\[1\]\['b c'\] is of type") as caught:
        typed_codec().encode({"a": [1, {"b c": value}]}, ("channel_values",))
    assert name in str(caught.value)
    # Nobody can allow what is built in.
    assert ("allowed_types=[" in str(caught.value)) is not name.startswith("builtins.")
    assert caught.value.path == "channel_values.a[1]['b c']"


@pytest.mark.parametrize(
    "tag",
    ["os.system", "builtins.eval", f"{__name__}.Forbidden", "langchain_core.load.load.Reviver", "", 7, None, ["x"]],
)
def test_a_tag_that_is_not_allowed_is_named_when_it_is_loaded(tag: object) -> None:
    before = set(sys.modules)
    with pytest.raises(SerializationError, match=r"a\[0\] is of type .* which is not allowed here") as caught:
        typed_codec().decode({"a": [{"$type": tag, "value": "touch x", "args": ["x"]}]})
    assert str(tag) in str(caught.value)
    assert set(sys.modules) == before


def test_what_langchain_would_revive_is_a_plain_dict() -> None:
    armed = {"lc": 1, "type": "constructor", "id": ["langchain_core", "messages", "HumanMessage"], "kwargs": {}}
    assert back(typed_codec(), armed) == armed


@pytest.mark.parametrize(
    "damaged",
    [
        {"$type": "datetime", "value": "yesterday"}, {"$type": "UUID"}, {"$type": "bytes", "value": "*"},
        {"$type": "ZoneInfo", "value": "../../etc/passwd"}, {"$type": "dict", "items": [1]}, {"$type": "tuple"},
        {"$type": "Decimal", "value": "x"}, {"$type": "Pattern", "value": "(", "flags": 0},
        {"$type": "range", "value": []},
        {"$type": "defaultdict", "factory": "eval", "items": []}, {"$type": f"{__name__}.Colour", "value": "BLUE"},
        {"$type": "UUID", "value": 7}, {"$type": "set", "value": [[1]]},
    ],
)  # fmt: skip
def test_a_damaged_value_is_an_error(codec: TypedCodec, damaged: dict[str, Any]) -> None:
    with pytest.raises(CorruptCheckpointError, match="cannot be read as"):
        codec.decode({"a": damaged})


def test_a_class_that_cannot_be_kept_is_refused_at_once() -> None:
    for kind in (type(re.match("", "")), type(sys), ValueError, numpy.ndarray):
        with pytest.raises(ConfigurationError, match=kind.__name__):
            typed_codec([kind])
    with pytest.raises(ConfigurationError, match="takes classes"):
        typed_codec(["my_app.Model"])  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match="have the name"):
        typed_codec([Forbidden, type("Forbidden", (BaseModel,), {"__module__": __name__})])


def test_types_that_are_allowed_anyway_may_be_named(codec: TypedCodec) -> None:
    assert back(typed_codec([HumanMessage, dict, dt.datetime]), HumanMessage("x")) == HumanMessage("x")


def test_an_exception_is_kept_as_text(codec: TypedCodec) -> None:
    assert back(codec, ValueError("no")) == "ValueError('no')"


def test_what_would_lose_something_is_refused(codec: TypedCodec) -> None:
    marked = Text("x")
    marked.note = 1  # type: ignore[attr-defined]
    with Path("/usr/share/zoneinfo/UTC").open("rb") as file:
        nameless = ZoneInfo.from_file(file)
    for value, reason in (
        (marked, "attributes of its own"),
        (defaultdict(lambda: 1), "default_factory"),
        (nameless, "no name"),
    ):
        with pytest.raises(SerializationError, match=reason):
            codec.encode(value)


def test_a_value_that_holds_itself_is_an_error(codec: TypedCodec) -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(SerializationError, match="holds itself"):
        codec.encode(circle, ("a",))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts | st.binary(max_size=8)
    | st.sampled_from(["$type", "dict", "HumanMessage"]) | st.datetimes(timezones=st.none() | st.timezones())
    | st.uuids() | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner)
    | st.dictionaries(texts | st.just("$type") | st.integers(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(json_like)
def test_anything_made_of_these_comes_back(value: Any) -> None:
    codec = typed_codec()
    assert same(codec.decode(decode(encode(codec.encode(value)))), value)
