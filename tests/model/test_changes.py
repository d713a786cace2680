"""How two versions of a list are aligned, and that no content makes it slow."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locus.memory.backends import MemoryCheckpointer
from locus.memory.model import comparison
from locus.memory.model.changes import aligned, gaps
from locus.memory.storage import StorageBackend
from locus.testing.laws.loading.diffs import check_diff


class _Counted:
    """A key that counts how often keys are compared."""

    compared = 0

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        _Counted.compared += 1
        return isinstance(other, _Counted) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


def _check(old: Sequence[object], new: Sequence[object]) -> int:
    """Matches are true, in order, and apart; how many items they have."""
    at = start = 0
    matches = aligned(old, new)
    for match in matches:
        assert match.at >= at
        assert match.start >= start
        assert match.length > 0
        assert old[match.start : match.start + match.length] == new[match.at : match.at + match.length]
        at, start = match.at + match.length, match.start + match.length
    assert all(gap.old < gap.old_end or gap.new < gap.new_end for gap in gaps(matches, len(old), len(new)))
    return sum(match.length for match in matches)


@given(st.lists(st.integers(0, 5), max_size=30), st.lists(st.integers(0, 5), max_size=30))
def test_what_is_aligned_is_the_same_and_in_order(old: list[int], new: list[int]) -> None:
    _check(old, new)
    assert _check(old, old) == len(old)


def test_every_second_item_of_a_list_may_have_changed() -> None:
    old = list(range(1_000))
    new = [-item if item % 2 else item for item in old]
    assert _check(old, new) == 500


def test_items_that_moved_leave_the_others_in_place() -> None:
    old = list(range(100))
    assert _check(old, [*old[50:], *old[:50]]) == 50
    assert _check(old, [*old[1:], 0]) == 99


@pytest.mark.parametrize("kinds", [1, 2, 7, 100, 5_000])
def test_no_content_makes_it_quadratic(kinds: int) -> None:
    rng = random.Random(kinds)
    size = 4_000
    old = [_Counted(rng.randrange(kinds)) for _ in range(size)]
    new = [_Counted(rng.randrange(kinds)) for _ in range(size)]
    _Counted.compared = 0
    aligned(old, new)
    assert _Counted.compared < 200 * size


async def test_what_is_too_much_to_compare_is_removed_and_added(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = StorageBackend(MemoryCheckpointer().store)
    old, new = ({"m": [{"n": n, "v": v} for n in range(30)]} for v in (1, 2))
    for name, value in (("MOST_COMPARED", 10), ("MOST_TEXT", 100), ("MOST_PAIRS", 0), ("MANY_CUTS", 0)):
        await backend.delete("t")
        a = await backend.save("t", old)
        b = await backend.save("t", new, parent=None)
        with monkeypatch.context() as limited:
            limited.setattr(comparison, name, value)
            found = await backend.diff("t", a, b)
            check_diff(found, old, new, compared=False)
            assert found.lists[0].changed == (0 if name.startswith("MOST_C") or name == "MOST_TEXT" else 30)


async def test_a_page_is_not_larger_than_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "LARGEST_PAGE", 5_000)
    backend = StorageBackend(MemoryCheckpointer().store)
    a = await backend.save("t", {"m": []})
    b = await backend.save("t", {"m": [{"text": "x" * 1_000} for _ in range(20)]})
    start, seen = 0, 0
    while True:
        page = await backend.diff("t", a, b, start=start)
        seen += len(page.lists[0].changes)
        assert 0 < len(page.lists[0].changes) <= 5
        if page.next is None:
            break
        start = page.next
    assert seen == 20
