"""Lists that somebody else encodes: the planner asks for the texts that it writes, and for no other."""

from __future__ import annotations

from typing import Any

import pytest

from locus.memory.model import plan
from locus.memory.model.alignment import Match, align
from locus.memory.model.codec import decode, encode
from locus.memory.model.digests import fingerprint
from locus.memory.model.payloads import dict_payload
from locus.memory.model.plan import MAX_EXTENTS, EncodedList, Payload
from tests.model.planned import Plans


class Encoding:
    """Makes encoded lists, and notes which texts are asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def of(self, items: list[Any]) -> EncodedList:
        texts = [encode(item) for item in items]

        def text(index: int) -> str:
            self.asked.append(index)
            return texts[index]

        return EncodedList(tuple(map(fingerprint, texts)), text)

    def payload(self, items: list[Any]) -> Payload:
        return Payload({"plain": 1}, {"values": {"inner": {"list": self.of(items)}}}, frozen=False, checked=True)


def data(items: list[Any]) -> dict[str, Any]:
    return {"plain": 1, "values": {"inner": {"list": items}}}


@pytest.mark.parametrize("cold", [False, True])
def test_only_new_texts_are_asked_for(cold: bool) -> None:
    plans, encoding = Plans(), Encoding()
    items = [{"n": number} for number in range(20)]
    plans.save(encoding.payload(items))
    for step in range(3):
        encoding.asked.clear()
        items = [*items, {"n": 100 + step}, {"n": 200 + step}]
        plans.save(encoding.payload(items), base=step, cold=cold)
        assert encoding.asked == [len(items) - 2, len(items) - 1]
        assert plans.read(step + 1) == data(items)


@pytest.mark.parametrize("encoded", [False, True])
def test_a_list_that_has_grown_or_stayed_is_not_aligned(monkeypatch: pytest.MonkeyPatch, *, encoded: bool) -> None:
    plans, encoding = Plans(), Encoding()
    payload = encoding.payload if encoded else lambda items: dict_payload(data(items))
    items: list[Any] = [{"n": number, "text": "x" * 100} for number in range(20)]
    plans.save(payload(items))
    aligned: list[Any] = []

    def noted(old: Any, new: Any) -> list[Match]:
        aligned.append(new)
        return align(old, new)

    monkeypatch.setattr(plan, "align", noted)
    for step, version in enumerate(([*items, {"n": 20}], [*items, {"n": 20}], [*items, {"n": 20}, {"n": 21}])):
        plans.save(payload(version), base=step)
        assert plans.read(step + 1) == data(version)
    assert not aligned
    plans.save(payload(items[5:]), base=3)
    assert len(aligned) == 1


def test_an_edit_a_trim_and_a_scattered_list_read_back() -> None:
    plans, encoding = Plans(), Encoding()
    items: list[Any] = [{"n": number} for number in range(60)]
    versions = [items, [*items[:30], {"n": -1}, *items[31:]], items[40:], [], items[::2], items]
    for number, version in enumerate(versions):
        plans.save(encoding.payload(version), base=number - 1 if number else None)
        assert plans.read(number) == data(version)
    assert plans.most_extents() <= MAX_EXTENTS


def test_it_is_stored_as_a_list_would_be() -> None:
    encoded, plain = Plans(), Plans()
    for number in (3, 5, 9):
        items: list[Any] = [{"n": index} for index in range(number)]
        base = None if number == 3 else len(plain.versions) - 1
        for plans, payload in ((encoded, Encoding().payload(items)), (plain, dict_payload(data(items)))):
            plans.save(payload, base=base)
    assert encoded.runs == plain.runs
    assert [stored.manifest for stored in encoded.versions] == [stored.manifest for stored in plain.versions]
    assert [decode(stored.head) for stored in encoded.versions] == [decode(stored.head) for stored in plain.versions]
