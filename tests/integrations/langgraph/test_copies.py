"""Values that are remembered by their texts, and given out as copies."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from pydantic import BaseModel, PrivateAttr

from locus.integrations.langgraph import copies
from locus.integrations.langgraph.classes import class_kind, typed_codec
from locus.integrations.langgraph.codec import TypedCodec, class_name
from locus.integrations.langgraph.copies import DecodedTexts
from locus.threads.json import decode, encode


class Nested(BaseModel):
    model_config = {"extra": "allow"}
    name: str = ""
    inner: list[dict[str, Any]] = []


class Secretive(BaseModel):
    _secret: int = PrivateAttr(default=1)


class Recording(DecodedTexts):
    """Counts what was decoded."""

    def __init__(self, codec: TypedCodec) -> None:
        super().__init__(codec)
        self.decoded = 0

    def of(self, codec: TypedCodec, text: str) -> Any:
        def read() -> Any:
            self.decoded += 1
            return codec.decode(decode(text))

        return self.value(text, read)


VALUES: list[Any] = [
    "text",
    {"a": [1, {"b": [None, 2.5, True]}], "c": {}},
    HumanMessage("hello", id="h", additional_kwargs={"x": [1]}),
    AIMessage("", id="a", tool_calls=[{"name": "f", "args": {"n": [1]}, "id": "1", "type": "tool_call"}]),
    ToolMessage("done", tool_call_id="1", artifact={"rows": [[1]]}),
    Nested.model_validate({"name": "n", "inner": [{"x": [1]}], "more": {"y": [2]}}),
    [datetime.datetime(2026, 7, 1, tzinfo=datetime.UTC), Decimal("1.5"), b"bytes"],
]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_each_copy_is_the_value_and_shares_nothing(value: Any) -> None:
    codec = typed_codec([Nested])
    texts, text = Recording(codec), encode(codec.encode([value]))
    found = [texts.of(codec, text) for _ in range(3)]
    assert texts.decoded == 1
    for one in found:
        assert one == [value]
        assert repr(one) == repr([value])
        if isinstance(value, BaseModel):
            assert one[0].model_fields_set == found[0][0].model_fields_set
            assert one[0].model_extra == found[0][0].model_extra
    for mutated in found[:2]:
        _change(mutated)
        assert texts.of(codec, text) == found[2] == [value]


def _change(value: Any) -> None:
    """Change everything in place that can be changed."""
    if isinstance(value, list):
        for item in value:
            _change(item)
        value.append("changed")
    elif isinstance(value, dict):
        for item in value.values():
            _change(item)
        value["changed"] = True
    elif isinstance(value, BaseModel):
        _change(vars(value))
        value.model_fields_set.add("changed")
        _change(value.model_extra)


@pytest.mark.parametrize("value", [{1, 2}, (1, [2]), Secretive()], ids=str)
def test_what_cannot_be_copied_with_certainty_is_decoded_each_time(value: Any) -> None:
    codec = typed_codec([Secretive])
    texts, text = Recording(codec), encode(codec.encode([value]))
    for count in range(1, 4):
        assert texts.of(codec, text) == [value]
        assert texts.decoded == count


def test_a_class_that_takes_the_place_of_another_is_used() -> None:
    codec = typed_codec()

    def declared(default: str) -> type[BaseModel]:
        kind = type("Note", (BaseModel,), {"__annotations__": {"text": str}, "text": default, "__module__": "app"})
        codec.add_declared(class_name(kind), kind, *class_kind(codec, kind))
        return kind

    first = declared("first")
    texts, text = Recording(codec), encode(codec.encode(first()))
    assert type(texts.of(codec, text)) is first
    second = declared("second")
    assert type(texts.of(codec, text)) is second
    assert type(texts.of(codec, text)) is second
    assert texts.decoded == 2


def test_only_so_much_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "MOST_CHARACTERS", 30)
    codec = typed_codec()
    texts = Recording(codec)
    for text in ('"1234567890"', '"abcdefghij"', '"klmnopqrst"'):
        texts.of(codec, text)
    assert texts.decoded == 3
    texts.of(codec, '"klmnopqrst"')
    assert texts.decoded == 3
    texts.of(codec, '"1234567890"')
    assert texts.decoded == 4
