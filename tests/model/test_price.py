"""What a commit amounts to is known before it is stored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from locus.errors import CorruptCheckpointError, SerializationError
from locus.memory.backends import MemoryCheckpointer
from locus.memory.model import plan as planning
from locus.memory.model import price
from locus.memory.model.manifest import by_branch, decode_manifest
from locus.memory.model.payloads import dict_payload
from locus.memory.model.plan import MOST_CUTS, Planner
from locus.memory.model.price import PriceLimits, amount, check_amount, check_cuts, check_runs, repeats
from locus.memory.model.records import Base, Cuts, Extent, Path, Run
from locus.memory.model.trace import Trace
from locus.memory.storage import StorageBackend

LIMITS = PriceLimits(lists=3, extents=4, manifest=200, characters=100, values=50)


def _run(branch: str, number: int, items: list[Any], start: int = 0) -> Run:
    return Run(branch, number, start, len(items), json.dumps(items))


@pytest.mark.parametrize(
    ("extents", "times"),
    [
        ([("a", 0, 0, 4)], {}),
        ([("a", 0, 0, 2), ("a", 0, 2, 2)], {}),
        ([("a", 0, 2, 2), ("b", 0, 0, 9), ("a", 0, 0, 2)], {}),
        ([("a", 0, 0, 2), ("a", 0, 1, 2)], {"a": 2}),
        ([("a", 0, 0, 2), ("a", 1, 1, 2)], {"a": 2}),
        ([("a", 0, 0, 4)] * 5, {"a": 5}),
        ([("a", 0, 0, 9), ("a", 0, 1, 1), ("a", 0, 3, 1)], {"a": 2}),
        ([("a", 0, 0, 0)] * 5, {}),
        ([("#v", 0, 0, 1)] * 3, {"#v": 3}),
    ],
)
def test_how_often_items_are_repeated(extents: list[tuple[str, int, int, int]], times: dict[str, int]) -> None:
    assert repeats([Extent(*extent) for extent in extents]) == times


def test_an_amount_has_what_is_repeated_in_it() -> None:
    runs = by_branch([_run("a", 0, ["x" * 98]), _run("b", 0, [1, 2])])
    once = amount([Extent("a", 0, 0, 1), Extent("b", 0, 0, 2)], runs)
    often = amount([*[Extent("a", 0, 0, 1)] * 64, Extent("b", 0, 0, 2)], runs)
    assert once == (102 + 6, 2 + 3)
    assert often == (64 * 102 + 6, 64 * 2 + 3)
    check_amount(once._replace(characters=100), LIMITS)
    for too_much in (often._replace(values=50), often._replace(characters=100)):
        with pytest.raises(SerializationError, match="store a text once"):
            check_amount(too_much, LIMITS)


def test_a_manifest_has_so_many_lists_pieces_and_characters() -> None:
    one = (Extent("a", 0, 0, 1),)
    check_cuts({("a",): one, ("b",): one, ("c",): one * 2}, "", LIMITS)
    wrong: list[tuple[Cuts, str, str]] = [
        ({(str(number),): one for number in range(4)}, "", "one list of objects"),
        ({("a",): one * 5}, "", "pieces"),
        ({("a",): one}, "x" * 201, "shorter names"),
    ]
    for cuts, manifest, what in wrong:
        with pytest.raises(SerializationError, match=what):
            check_cuts(cuts, manifest, LIMITS)


def test_what_the_base_has_may_be_kept() -> None:
    base: dict[Path, tuple[Extent, ...] | str] = {(str(number),): (Extent("a", 0, 0, 1),) for number in range(9)}
    check_cuts(base, "", LIMITS, base)
    with pytest.raises(SerializationError):
        check_cuts({**base, ("x",): ()}, "", LIMITS, base)


@pytest.mark.parametrize("count", [1, 2, 300, 10_000])
@pytest.mark.parametrize("size", [1, 900, 70_000])
def test_the_runs_of_the_planner_are_large_enough(count: int, size: int) -> None:
    if count * size > 10_000_000:
        count = 100
    check_runs(Planner("r", None).plan(dict_payload({"m": ["x" * size] * count})).runs)


def test_runs_of_one_item_are_too_small() -> None:
    check_runs([_run("a", number, [1], number) for number in range(2)])
    with pytest.raises(SerializationError, match="into one run"):
        check_runs([_run("a", number, [1], number) for number in range(3)])


def test_very_many_lists_stay_in_the_head() -> None:
    lists = {f"key {number}": [{"n": number, "text": "x" * 80}] for number in range(MOST_CUTS + 50)}
    payload = {"nested": lists, "text": "y" * 2_000, "last": [{"n": 1}]}
    first = Planner("r", None).plan(dict_payload(payload))
    assert len(first.cuts) == MOST_CUTS
    more = {**payload, "last": [{"n": 1}, {"n": 2}]}
    trace = Trace(Base("c", "r"), first.fields)
    second = Planner("s", trace).plan(dict_payload(more))
    assert second.cuts.keys() == first.cuts.keys()
    assert len(second.runs) == 0
    fewer = {"nested": dict(list(lists.items())[100:]), "text": "y" * 2_000}
    third = Planner("t", trace).plan(dict_payload(fewer))
    assert ("text",) in third.cuts


async def test_very_many_lists_come_back() -> None:
    payload = {f"key {number}": [{"n": number}, "x" * 70] for number in range(MOST_CUTS + 50)}
    backend = StorageBackend(MemoryCheckpointer().store)
    await backend.save("t", payload)
    assert await backend.load("t") == payload
    payload["key 1049"].append("one more")
    await backend.save("t", payload)
    assert await backend.load("t") == payload


async def test_limits_in_the_same_process_are_higher_and_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locus.memory.store.IN_PROCESS", LIMITS)
    monkeypatch.setattr(planning, "MOST_CUTS", 3)
    monkeypatch.setattr("locus.memory.store.MOST_CUTS", 2)
    assert price.IN_PROCESS.lists > 10 * price.OF_CLIENTS.lists
    backend = StorageBackend(MemoryCheckpointer().store)
    await backend.save("t", {"a": [{}], "b": [{}], "c": [{}]})
    with pytest.raises(SerializationError, match="store a text once"):
        await backend.save("u", {"a": "x" * 2_000, "b": "x" * 2_000, "c": "x" * 2_000})
    assert await backend.load("u") is None


def test_a_stored_path_that_goes_on_and_on_is_damage() -> None:
    assert decode_manifest(json.dumps([[["a"] * 100, "#v"]]))
    for path in (["a"] * 101, ["a"] * 1_320, [], [1], "a", {"a": 1}):
        with pytest.raises(CorruptCheckpointError):
            decode_manifest(json.dumps([[path, "#v"]]))
