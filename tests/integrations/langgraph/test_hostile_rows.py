"""A row that somebody else wrote into the database: nothing of it is called, and it costs no more than its length."""

from __future__ import annotations

import enum
import re
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NoReturn, cast

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, empty_checkpoint
from pydantic import BaseModel

from locus.errors import CorruptCheckpointError, SerializationError
from locus.integrations.langgraph import LocusSaver
from locus.integrations.langgraph.classes import typed_codec
from locus.integrations.langgraph.codec import TypedCodec
from locus.integrations.langgraph.payloads import checkpoint_of
from locus.integrations.langgraph.read import LONG_PATH
from locus.memory.backends import MemoryCheckpointer
from locus.memory.model.codec import decode, encode
from locus.memory.model.records import Entry, Stored, Write
from locus.threads import ItemDecoder, ReadVersion

PRIME = 2**61 - 1
"""Integers that are equal modulo this number have the same hash in Python."""

called: list[str] = []


def call(name: str) -> NoReturn:
    called.append(name)
    raise AssertionError(f"{name} was called")


class Guarded:
    """Whatever is called while an instance is made is noted."""

    kept: ClassVar[list[str]] = []
    total = 0

    def __new__(cls, *_args: object) -> Guarded:
        call("__new__")

    def __init__(self, *_args: object) -> None:
        call("__init__")

    def __setattr__(self, name: str, value: object) -> None:
        call("__setattr__")

    @property
    def place(self) -> Any:
        return self.__dict__["place"]

    @place.setter
    def place(self, value: object) -> None:
        call("the setter of place")

    @cached_property
    def worked_out(self) -> int:
        return 1

    def run(self) -> str:
        return "run"

    @classmethod
    def make(cls) -> str:
        return "make"

    @staticmethod
    def helper() -> str:
        return "helper"


@dataclass
class Guest:
    name: str
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.greeting = f"Hello {self.name}"

    def greet(self) -> str:
        return self.greeting


class Slotted:
    __slots__ = ("_size", "name")

    name: str
    _size: int

    @property
    def size(self) -> int:
        return self._size

    @size.setter
    def size(self, value: int) -> None:
        call("the setter of size")


class Strict(BaseModel):
    number: int = 1

    def __new__(cls, *_args: object, **_fields: object) -> Strict:
        call("__new__ of a model")


class Words(list[Any]):
    def __init__(self, *_args: object) -> None:
        call("__init__ of a list")

    def append(self, _item: object) -> None:
        call("append")

    def extend(self, _items: object) -> None:
        call("extend")


class Label(str):
    __slots__ = ("colour",)
    colour: str

    def __new__(cls, *_args: object) -> Label:
        call("__new__ of a str")


class Blob(bytes):
    def __new__(cls, *_args: object) -> Blob:
        call("__new__ of bytes")


class Pairs(dict[Any, Any]):
    def __init__(self, *_args: object) -> None:
        call("__init__ of a dict")

    def __setitem__(self, _key: object, _value: object) -> None:
        call("__setitem__")

    def update(self, *_args: object, **_kwargs: object) -> None:
        call("update")


class Ordered(OrderedDict[Any, Any]):
    def __setitem__(self, _key: object, _value: object) -> None:
        call("__setitem__ of an OrderedDict")


class Lists(defaultdict[Any, Any]):
    pass


class Count(Counter[Any]):
    pass


class Group(set[Any]):
    def __init__(self, *_args: object) -> None:
        call("__init__ of a set")


class Whole(int):
    pass


class Part(float):
    pass


class Rights(enum.Flag):
    READ = 1
    WRITE = 2

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        call("_missing_")


class Open(enum.IntFlag):
    ONE = 1


ALLOWED = (
    Guarded, Guest, Slotted, Strict, Words, Label, Blob, Pairs, Ordered, Lists, Count, Group, Whole, Part, Rights, Open,
)  # fmt: skip


@pytest.fixture(scope="module")
def codec() -> TypedCodec:
    return typed_codec(ALLOWED)


@pytest.fixture(autouse=True)
def nothing_is_called() -> Iterator[None]:
    called.clear()
    yield
    assert called == []


def tagged(kind: type, **fields: Any) -> dict[str, Any]:
    return {"$type": f"{__name__}.{kind.__name__}", **fields}


HUGE = {"$type": "range", "value": [0, 10**11, 1]}


@pytest.mark.parametrize(
    "row",
    [
        {"$type": "Fraction", "value": "1e10000000"}, {"$type": "Fraction", "value": "1E+999999999999"},
        {"$type": "Fraction", "value": "1/" + "3" * 5_000}, {"$type": "Fraction", "value": "0.5"},
        {"$type": "Decimal", "value": "1E+100000000"}, {"$type": "Decimal", "value": "0E+999999999"},
        {"$type": "Decimal", "value": "1E-100000000"},
        {"$type": "range", "value": [0, 10**4_000, 1]}, {"$type": "range", "value": [0, 5.0, 1]},
        {"$type": "range", "value": "012"}, {"$type": "tuple", "value": HUGE}, {"$type": "tuple", "value": "ab"},
        {"$type": "set", "value": {"a": 1}}, {"$type": "deque", "value": "abc"}, {"$type": "float", "value": 1},
        {"$type": "complex", "value": [1, 2]}, {"$type": "timedelta", "value": [1]},
        {"$type": "Pattern", "value": "a", "flags": "0"},
        {"$type": "ZoneInfo", "value": "a.b/c"}, {"$type": "ZoneInfo", "value": "x" * 5_000},
        {"$type": "ndarray", "dtype": "<f8,<f8", "shape": [0], "value": ""},
        tagged(Words, value=HUGE), tagged(Words, value="text"), tagged(Words, value={"a": 1}),
        tagged(Blob, value=10**11), tagged(Blob, value="text"), tagged(Blob, value=[1, 2]),
        tagged(Label, value=7), tagged(Label, value=HUGE), tagged(Whole, value="7"), tagged(Whole, value=7.5),
        tagged(Part, value="7"), tagged(Part, value=True), tagged(Group, value=[1]), tagged(Pairs, value=[[1, 2]]),
        tagged(Lists, value={}, factory="eval"),
        tagged(Rights, value=4), tagged(Rights, value="READ"), tagged(Rights, value=-1), tagged(Rights, value=1.0),
        tagged(Open, value=10**1_000),
    ],
    ids=lambda row: f"{row['$type']} {row.get('value')!s:.20}",
)  # fmt: skip
def test_a_number_or_type_that_was_never_written_is_damage(codec: TypedCodec, row: dict[str, Any]) -> None:
    with pytest.raises(CorruptCheckpointError, match="is damaged"):
        codec.decode({"a": row})


@pytest.mark.parametrize(
    ("pattern", "flags"),
    [
        ("a" * 200_000, 0),
        ("[\0-\uffff]" * 1_000, 0),
        (r"[\u0000-\uffff]" * 400, int(re.IGNORECASE)),
        ("a*" * 20_000, 0),
        ("[ab]" * 2_000, 0),
    ],
    ids=lambda value: f"{value!s:.20}",
)
def test_a_pattern_that_takes_long_to_compile_is_refused(codec: TypedCodec, pattern: str, flags: int) -> None:
    with pytest.raises(CorruptCheckpointError, match=r"takes as long to compile as 100,000 characters"):
        codec.decode({"a": {"$type": "Pattern", "value": pattern, "flags": flags}})


class TestManyPatterns:
    """What a load compiles is limited as a whole; the same pattern counts once."""

    CHANNELS = ("messages", "words", "notes", "more")
    MANY: ClassVar = [re.compile(f"[ab]{{1,{number}}}") for number in range(1, 101)]

    @pytest.fixture(autouse=True)
    def lower(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Half of MANY are too many: what the limit stands for would take each test seconds."""
        monkeypatch.setattr("locus.integrations.langgraph.standard_types.MOST_TOGETHER", 9_000)

    async def _save(self, saver: LocusSaver, patterns: list[re.Pattern[str]]) -> RunnableConfig:
        """Save patterns in a few saves."""
        config: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        values: dict[str, Any] = {}
        for number, channel in enumerate(self.CHANNELS):
            values |= {channel: patterns[number :: len(self.CHANNELS)]}
            checkpoint = {**empty_checkpoint(), "channel_values": dict(values)}
            config = await saver.aput(config, cast("Checkpoint", checkpoint), {}, {})
        return config

    async def test_too_many_in_one_load(self) -> None:
        async with MemoryCheckpointer() as store:
            config = await self._save(LocusSaver(store), self.MANY[:20])
            assert await LocusSaver(store).aget_tuple(config) is not None
            for number in range(20, 100):
                await LocusSaver(store).aput_writes(config, [("words", self.MANY[number])], f"task {number}")
            with pytest.raises(CorruptCheckpointError, match=r"is one of many regular expressions"):
                await LocusSaver(store).aget_tuple(config)

    async def test_too_many_in_one_save(self) -> None:
        async with MemoryCheckpointer() as store:
            saver = LocusSaver(store)
            config: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
            checkpoint = {**empty_checkpoint(), "channel_values": {"words": self.MANY}}
            with pytest.raises(SerializationError, match=r"is one of many regular expressions"):
                await saver.aput(config, cast("Checkpoint", checkpoint), {}, {})
            assert await saver.aget_tuple(config) is None

    async def test_the_same_pattern_counts_once(self) -> None:
        async with MemoryCheckpointer() as store:
            config = await self._save(LocusSaver(store), self.MANY[:2] * 100)
            found = await LocusSaver(store).aget_tuple(config)
        assert found is not None
        assert sum(map(len, found.checkpoint["channel_values"].values())) == 200


@pytest.mark.parametrize("kind", ["set", "frozenset", "dict", "Counter", "OrderedDict", "defaultdict"])
@pytest.mark.parametrize("nested", [False, True])
def test_keys_that_collide_are_refused(codec: TypedCodec, kind: str, nested: bool) -> None:
    keys: list[Any] = [PRIME * number for number in range(20_000)]
    if nested:
        keys = [{"$type": "tuple", "value": [key]} for key in keys]
    content = {"value": keys} if "set" in kind else {"items": [[key, 1] for key in keys], "factory": None}
    with pytest.raises(CorruptCheckpointError, match="is damaged"):
        codec.decode({"$type": kind, **content})


def test_keys_that_do_not_collide_are_not(codec: TypedCodec) -> None:
    many = set(range(-2, 5_000)) | {PRIME * number for number in range(500)}
    assert codec.decode(codec.encode(many)) == many


def test_an_error_quotes_nothing_of_what_is_stored(codec: TypedCodec) -> None:
    for row in ({"$type": "datetime", "value": "my secret"}, {"$type": "set", "value": [["my secret"]]}):
        with pytest.raises(CorruptCheckpointError) as caught:
            codec.decode(row)
        assert "secret" not in str(caught.value)


def test_a_pattern_prints_nothing(codec: TypedCodec, capsys: pytest.CaptureFixture[str]) -> None:
    found = codec.decode({"$type": "Pattern", "value": "a+", "flags": int(re.DEBUG | re.UNICODE)})
    assert found.match("aa")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?P<user>[\w.+-]+)@(?P<host>[\w-]+(\.[\w-]+)+)", "a" * 90_000, "|".join(f"word{at}" for at in range(9_000)),
        "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df]+", r"(?:[a-z0-9]{1,63}\.){1,8}" * 20, b"[\x00-\xff]" * 20,
    ],
    ids=len,
)  # fmt: skip
def test_an_ordinary_pattern_is_kept(codec: TypedCodec, pattern: str | bytes) -> None:
    assert codec.decode(codec.encode(re.compile(pattern))) == re.compile(pattern)


def test_a_pattern_that_could_not_be_loaded_is_refused(codec: TypedCodec) -> None:
    with pytest.raises(SerializationError, match="takes as long to compile"):
        codec.encode({"a": re.compile("[\0-\uffff]" * 100)})


@pytest.mark.parametrize("name", ["run", "make", "helper", "__class__", "__dict__", "__call__", "__deepcopy__"])
def test_no_stored_name_takes_the_place_of_a_method(codec: TypedCodec, name: str) -> None:
    with pytest.raises(SerializationError, match="which its class defines otherwise"):
        codec.decode(tagged(Guarded, **{name: {"a": 1}}))
    with pytest.raises(SerializationError, match="which its class defines otherwise"):
        codec.decode(tagged(Guest, name="Ada", greet="x"))


def test_an_instance_is_made_of_its_attributes_alone(codec: TypedCodec) -> None:
    found = codec.decode(tagged(Guarded, place="Rome", worked_out=7, total=3, other=[1]))
    assert vars(found) == {"place": "Rome", "worked_out": 7, "total": 3, "other": [1]}
    assert (found.place, found.worked_out, found.run()) == ("Rome", 7, "run")
    assert vars(codec.decode(codec.encode(found))) == vars(found)


def test_a_dataclass_keeps_what_it_has_beside_its_fields(codec: TypedCodec) -> None:
    guest = codec.decode(decode(encode(codec.encode(Guest("Ada", ["x"])))))
    assert guest == Guest("Ada", ["x"])
    assert guest.greet() == "Hello Ada"


def test_slots_are_set_without_setters(codec: TypedCodec) -> None:
    found = codec.decode(tagged(Slotted, _size=3, name="n", size=9, other=1))
    assert (found.size, found.name) == (3, "n")


def test_a_model_is_made_without_new(codec: TypedCodec) -> None:
    assert codec.decode(tagged(Strict, number=5)).number == 5


@pytest.mark.parametrize(
    ("kind", "content", "plain"),
    [
        (Words, [1, [2]], [1, [2]]), (Label, "a", "a"), (Blob, {"$type": "bytes", "value": "AAE="}, b"\0\1"),
        (Pairs, {"a": 1}, {"a": 1}), (Ordered, {"b": 1, "a": 2}, OrderedDict(b=1, a=2)), (Count, {"a": 2}, {"a": 2}),
        (Lists, {"a": [1]}, {"a": [1]}), (Group, {"$type": "set", "value": [1, 2]}, {1, 2}), (Whole, 7, 7),
        (Part, 1.5, 1.5), (Part, {"$type": "float", "value": "inf"}, float("inf")),
    ],
)  # fmt: skip
def test_what_subclasses_of_builtin_types_were_stored_as_is_still_read(
    codec: TypedCodec, kind: type, content: Any, plain: Any
) -> None:
    found = codec.decode(tagged(kind, value=content))
    assert type(found) is kind
    assert found == plain
    if isinstance(found, dict):
        assert list(found) == list(plain)
    assert codec.decode(decode(encode(codec.encode(found)))) == plain


def test_the_slots_and_the_factory_of_a_subclass_are_kept(codec: TypedCodec) -> None:
    label = str.__new__(Label, "a")
    label.colour = "red"
    assert codec.decode(codec.encode(label)).colour == "red"
    assert codec.decode(codec.encode(Lists(list, {"a": [1]})))["new"] == []
    assert codec.decode(tagged(Lists, value={})).default_factory is None


def test_flags_are_combined_without_calling_the_class(codec: TypedCodec) -> None:
    both = codec.decode(tagged(Rights, value=3))
    assert (both.value, list(both)) == (3, [Rights.READ, Rights.WRITE])
    assert codec.decode(codec.encode(both)) is both
    assert codec.decode(tagged(Open, value=6)) == Open(6)


@pytest.mark.parametrize("value", [Decimal("1E+100000000"), Decimal("1E-7000"), range(10**30), Fraction(1, 10**5_000)])
def test_what_could_not_be_loaded_is_not_saved(codec: TypedCodec, value: object) -> None:
    with pytest.raises(SerializationError, match="a is a"):
        codec.encode({"a": value})


@pytest.mark.parametrize("value", [Decimal("-1.5E+6144"), Decimal("NaN"), Decimal("1E-6000"), Fraction(-7, 10**4_000)])
def test_large_numbers_are_kept(codec: TypedCodec, value: Any) -> None:
    assert str(codec.decode(codec.encode(value))) == str(value)


@pytest.mark.parametrize(
    "head",
    [
        {"langgraph": 1, "channel_values": 7},
        {"langgraph": 1, "channel_values": [1]},
        {"langgraph": 1, "$type": "tuple", "value": [], "channel_values": {}},
    ],
)
def test_a_damaged_checkpoint_is_an_error(codec: TypedCodec, head: dict[str, Any]) -> None:
    entry = Entry("t", "", "c", None, 1, "r", datetime.now(UTC), "{}")
    for channels in (None, {"a"}):
        with pytest.raises(CorruptCheckpointError, match="is damaged"):
            checkpoint_of(ReadVersion(Stored(entry, encode(head), "[]")), codec, ItemDecoder(codec.decode), channels)


def test_a_damaged_pending_write_is_an_error() -> None:
    write = Write("task", "", 0, "a", encode({"$type": LONG_PATH}))
    with LocusSaver("memory") as saver, pytest.raises(CorruptCheckpointError, match="is damaged"):
        saver._reader.pending([write])
