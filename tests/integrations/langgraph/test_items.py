"""Lists are encoded once, and a change is never missed that LangGraph lets a node make."""

from __future__ import annotations

import random
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from locus.integrations.langgraph import items as items_module
from locus.integrations.langgraph.classes import typed_codec
from locus.integrations.langgraph.codec import TypedCodec
from locus.integrations.langgraph.items import KnownList, ListEncoder, newest_items, returned
from locus.memory.model.digests import fingerprint

NEWEST = 32


@pytest.fixture(autouse=True)
def _few_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert items_module.NEWEST >= NEWEST
    monkeypatch.setattr(items_module, "NEWEST", NEWEST)


class Counting:
    """An encoder, and how many items it has encoded."""

    def __init__(self, *, sort_keys: bool = False) -> None:
        self.count = 0
        codec = typed_codec()
        self._fresh = ListEncoder(codec, sort_keys=sort_keys)
        self._encoder = ListEncoder(self._counted(codec), sort_keys=sort_keys)
        self.known: KnownList | None = None

    def _counted(self, codec: TypedCodec) -> TypedCodec:
        encode = codec.encode

        def counted(value: Any, path: tuple[str | int, ...] = ()) -> Any:
            self.count += 1
            return encode(value, path)

        counting = typed_codec()
        counting.encode = counted  # type: ignore[method-assign]
        return counting

    def encode(self, items: list[Any], *touched: object) -> int:
        """Encode a list, check it against one that nothing is known of, and return how many items it took."""
        self.count = 0
        encoded, self.known = self._encoder.encoded(items, ("x",), self.known, {id(one) for one in touched})
        taken = self.count
        whole, _ = self._fresh.encoded(items, ("x",), None)
        assert encoded.digests == whole.digests
        assert [encoded.text(index) for index in range(len(encoded))] == [whole.text(i) for i in range(len(whole))]
        assert [fingerprint(whole.text(index)) for index in range(len(whole))] == list(whole.digests)
        return taken


def messages(count: int, start: int = 0) -> list[AnyMessage]:
    made: list[AnyMessage] = []
    for number in range(start, start + count):
        call = {"name": "look_up", "args": {"a": [1]}, "id": "c"}
        made.append(
            AIMessage(f"answer {number}", id=f"{number}", tool_calls=[call], response_metadata={"n": number})
            if number % 2
            else HumanMessage(f"question {number}", id=f"{number}")
        )
    return made


@pytest.fixture(params=[10, NEWEST, NEWEST + 1, 3 * NEWEST], ids=str)
def length(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


def test_an_unchanged_list_is_not_encoded_again(length: int) -> None:
    encoder, items = Counting(), messages(length)
    assert encoder.encode(items) == length
    assert encoder.encode(list(items)) == 0


def test_only_what_was_added_is_encoded(length: int) -> None:
    encoder, items = Counting(), messages(length)
    encoder.encode(items)
    for number in range(5):
        items = [*items, *messages(3, 1_000 + 3 * number)]
        assert encoder.encode(items) == 3


def test_a_change_in_place_of_a_new_item_is_seen(length: int) -> None:
    for change in (
        lambda message: setattr(message, "content", "changed"),
        lambda message: message.additional_kwargs.update(x=1),
        lambda message: message.response_metadata.clear(),
        lambda message: message.tool_calls[0]["args"]["a"].append(2),
        lambda message: setattr(message, "unheard_of", 1),
    ):
        encoder, items = Counting(), messages(length)
        encoder.encode(items)
        change(items[-1 if length % 2 == 0 else -2])
        assert encoder.encode([*items, *messages(2, 9_000)]) == 3
        assert encoder.encode([*items, *messages(2, 9_000)]) <= 2


def test_an_old_item_that_a_task_returns_is_encoded_again() -> None:
    encoder, items = Counting(), messages(3 * NEWEST)
    encoder.encode(items)
    items[3].content = "changed"
    assert encoder.encode(items, items[3], items[-1]) == 1
    assert encoder.encode(items) == 0


def test_an_old_item_that_was_replaced_is_encoded_again() -> None:
    encoder, items = Counting(), messages(3 * NEWEST)
    encoder.encode(items)
    items[3] = HumanMessage("other", id="3")
    assert encoder.encode(items) == 1


def test_a_list_that_is_trimmed_from_the_front_is_not_encoded_again(length: int) -> None:
    encoder, items = Counting(), messages(length)
    encoder.encode(items)
    for number in range(4):
        items = [*items[2:], *messages(1, 5_000 + number)]
        assert encoder.encode(items) == 1


def test_a_list_that_is_cut_down_to_a_few_is_not_encoded_again(length: int) -> None:
    encoder, items = Counting(), messages(length)
    encoder.encode(items)
    assert encoder.encode(items[-3:]) == 0
    assert encoder.encode([*items[-3:], *messages(1, 5_000)]) == 1


def test_a_list_that_was_loaded_again_is_known_by_its_objects(length: int) -> None:
    encoder, items, loaded = Counting(), messages(length), messages(length)
    encoder.encode(items)
    assert encoder.known is not None
    encoder.known = encoder.known.loaded(loaded)
    assert encoder.encode([*items, *messages(1, 5_000)]) == 1
    encoder.known = encoder.known.loaded([*messages(length), *messages(1, 5_000)])
    assert encoder.encode([*items, *messages(1, 5_000)]) <= 1


def test_items_of_any_kind_are_encoded_right() -> None:
    encoder = Counting()
    for items in ([1, True, 1.0], [True, 1, 1], [{"a": 1}], [{"a": [1]}], [{"a": [1]}, HumanMessage("x")], [{1}], []):
        encoder.encode(items)
    shared: dict[str, Any] = {"a": [1]}
    plain = [shared, "x", None]
    encoder.encode(plain)
    shared["a"].append(2)
    assert encoder.encode(plain) == 1


def test_what_cannot_be_compared_is_encoded_each_time() -> None:
    encoder, items = Counting(), [{1}, {2}]
    assert encoder.encode(items) == 2
    items[1].add(3)
    assert encoder.encode(items) == 2


@pytest.mark.parametrize("seed", range(20))
def test_a_random_course_of_changes_is_encoded_right(seed: int) -> None:
    chance, encoder = random.Random(seed), Counting(sort_keys=bool(seed % 2))
    items: list[Any] = messages(chance.choice([3, NEWEST - 2, NEWEST + 40]))
    for step in range(30):
        touched: list[object] = []
        match chance.randrange(7):
            case 0 | 1:
                items = [*items, *messages(chance.randrange(1, 5), 1_000 * (step + 1))]
            case 2:
                items = items[chance.randrange(3) :]
            case 3 if items:
                index = chance.randrange(len(items))
                items[index].content = f"changed {step}"
                touched.append(items[index])
            case 4 if items:
                index = chance.randrange(len(items))
                items = [*items[:index], *items[index + 1 :]]
            case 5 if items:
                index = chance.randrange(len(items))
                items = [*items[:index], *messages(1, 1_000 * (step + 1)), *items[index:]]
            case 6 if items and encoder.known is not None:
                encoder.known = encoder.known.loaded([one.model_copy() for one in items])
        encoder.encode(items, *touched)


def test_a_tail_is_as_long_as_it_may_be() -> None:
    encoder, items = Counting(), messages(3)
    for _ in range(3):
        items = [*items, *messages(NEWEST // 2, len(items))]
        encoder.encode(items)
        assert encoder.known is not None
        assert encoder.known.newest == newest_items(items)
        assert len(encoder.known.newest) == min(len(items), NEWEST)


def test_what_a_task_returns_is_found_in_lists_too() -> None:
    one, two, three = messages(3)
    assert list(returned([one, [two, three], (one,), None])) == [one, two, three, one, None]
