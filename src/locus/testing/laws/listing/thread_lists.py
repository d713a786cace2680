"""Lists of threads: patterns, limits, and pages that go on behind the last id of the one before."""

from __future__ import annotations

import re
from typing import Any

import pytest

from locus.core.state import AgentState
from locus.errors import ConfigurationError, InvalidIdError
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import HOSTILE_IDS
from locus.testing.laws.base import Laws, dicts, save_each

_PATTERNS = (
    "*", "**", "?", "??", "a*", "*a", "*a*", "a?b", "a%b", "a_b", "%", "_", "%*", "_*", "[a]", "[a]*", "[!a]", "*\\*",
    "\\?", "\\%", "tenant?a", "tenant/*", "*\n*", "*\0*", "?\0", "'*", "jos?", "jose*", "alice", "?lice", "*'1'='1",
    "😀*", "x*y", "*.*", "nothing like this*", "",
)  # fmt: skip


def _expected(pattern: str, names: tuple[str, ...]) -> list[str]:
    """The meaning of a pattern, spelt out independently of the code under test."""
    regex = "".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern)
    return sorted(name for name in names if re.fullmatch(regex, name, re.DOTALL))


class ThreadPatternLaws(Laws):
    """Patterns of `list_threads`, and the limits of all lists."""

    async def test_a_pattern_matches_what_it_says_and_nothing_else(self, checkpointer: Checkpointer) -> None:
        await save_each(checkpointer, HOSTILE_IDS)
        for pattern in _PATTERNS:
            found = await checkpointer.list_threads(None, pattern)
            assert found == _expected(pattern, HOSTILE_IDS), pattern

    async def test_every_id_is_found_by_itself_as_a_pattern(self, checkpointer: Checkpointer) -> None:
        await save_each(checkpointer, self.other_ids)
        for name in self.other_ids:
            assert name in await checkpointer.list_threads(None, name), name

    async def test_threads_are_listed_in_code_point_order_up_to_the_limit(self, checkpointer: Checkpointer) -> None:
        names = ["b", "a", "B", "é", "z", "10", "9", "😀", "\uffff", "a b", "ab"]
        await save_each(checkpointer, names)
        ordered = sorted(names)
        assert await checkpointer.list_threads() == ordered
        for limit in range(len(names) + 2):
            assert await checkpointer.list_threads(limit) == ordered[:limit]
        assert await checkpointer.list_threads(2, "a*") == ["a", "a b"]
        assert await checkpointer.list_threads(limit=None, pattern="?") == [name for name in ordered if len(name) == 1]

    async def test_the_usual_limit_is_one_hundred(self, checkpointer: Checkpointer) -> None:
        for number in range(103):
            await dicts(checkpointer).save(f"t{number:03}", {})
        assert len(await checkpointer.list_threads()) == 100
        assert len(await checkpointer.list_threads(None)) == 103
        assert len(await checkpointer.list_with_metadata()) == 100

    async def test_only_threads_are_listed_and_each_once(self, checkpointer: Checkpointer) -> None:
        for number in range(5):
            await checkpointer.save(AgentState(), "t", metadata={"n": number})
            await checkpointer.save(AgentState(), "t", namespace="other")
            await checkpointer.save(AgentState(), "u", "latest")
        await checkpointer.put_writes("t", "latest", "task", [("x", 1)])
        assert await checkpointer.list_threads() == ["t", "u"]

    async def test_a_pattern_of_many_stars_takes_no_time(self, checkpointer: Checkpointer) -> None:
        """Trying every way to divide this id among the stars would not end in a lifetime."""
        await save_each(checkpointer, ("a" * 120, "b" * 250))
        for letter in "ab":
            stars = f"*{letter}" * 30
            assert await checkpointer.list_threads(None, f"{stars}c") == []
            assert await checkpointer.list_threads(None, f"{stars}*?{letter}") != []

    async def test_a_pattern_that_is_too_long_is_refused(self, checkpointer: Checkpointer) -> None:
        for pattern in ("x" * 1_000, "*" * 1_000, "*a" * 100):
            with pytest.raises(InvalidIdError, match="at most"):
                await checkpointer.list_threads(10, pattern)

    async def test_a_pattern_that_is_no_text_is_refused(self, checkpointer: Checkpointer) -> None:
        bad: Any
        for bad in (None, 5, b"*", {"$regex": ".*"}, ["*"]):
            with pytest.raises(InvalidIdError):
                await checkpointer.list_threads(10, bad)

    async def test_a_pattern_that_no_id_can_match_matches_none_or_is_refused(self, checkpointer: Checkpointer) -> None:
        await checkpointer.save(AgentState(), "t")
        for pattern in ("\ud800", "t\udfff*", "t" * 300, "?" * 300):
            try:
                found = await checkpointer.list_threads(10, pattern)
            except InvalidIdError:
                found = []
            assert found == [], pattern

    async def test_a_limit_that_is_no_number_from_zero_on_is_refused(self, checkpointer: Checkpointer) -> None:
        await checkpointer.save(AgentState(), "t")
        bad: Any
        for bad in (-1, 1.5, "10", float("nan"), [1]):
            with pytest.raises(ConfigurationError):
                await checkpointer.list_threads(bad)
            with pytest.raises(ConfigurationError):
                await checkpointer.list_checkpoints("t", bad)
            with pytest.raises(ConfigurationError):
                await checkpointer.history("t", bad)
            with pytest.raises(ConfigurationError):
                await checkpointer.list_with_metadata(bad)

    async def test_a_limit_of_zero_gives_nothing(self, checkpointer: Checkpointer) -> None:
        await checkpointer.save(AgentState(), "t")
        assert await checkpointer.list_threads(0) == []
        assert await checkpointer.list_checkpoints("t", 0) == []
        assert await checkpointer.history("t", 0) == []
        assert await checkpointer.list_with_metadata(0) == []

    async def test_a_list_without_a_limit_is_never_empty(self, checkpointer: Checkpointer) -> None:
        """An empty list means "not there". A limit of None must give everything, or be refused."""
        await checkpointer.save(AgentState(), "t", metadata={"k": 1})
        none: Any = None
        try:
            found = await checkpointer.list_with_metadata(none)
        except ConfigurationError:
            found = await checkpointer.list_with_metadata(1)
        assert len(found) == 1


_IDS = (
    "a", "a ", "a'b", "a%b", "a*b", "a/b", "a:b", "a\0", "a\0b", "a\x01", "A", "Alice", "alice", "alice ", "josé",
    "jose\u0301", "tenant/1", "tenant/2", "tenant_1", "ß", "\ud7ff", "\ue000", "😀", "😀1", "\U0010ffff",
)  # fmt: skip
_PREFIXES = (
    "", "a", "A", "a ", "a%", "a*", "a'", "a:", "a\0", "alice", "tenant/", "tenant_", "jose", "😀", "\ud7ff", "é",
)  # fmt: skip
_BEHIND = (
    "", "a", "a ", "a%", "a*", "a'; DROP TABLE locus_threads; --", "a\0", "a\0\0", "alicf", "Z", "jose", "tenant/",
    "tenant/2", '{"$gt": ""}', "😀", "\U0010ffff", "\U0010ffff" * 300, "a" * 100_000,
)  # fmt: skip


async def paged(checkpointer: Checkpointer, size: int, **options: Any) -> list[str]:
    """All ids, put together from pages."""
    names: list[str] = []
    page = await checkpointer.list_threads(size, **options)
    while page:
        assert len(page) <= size
        assert not names or names[-1] < page[0], "a page does not begin behind the one before"
        names += page
        page = await checkpointer.list_threads(size, after=page[-1], **options)
    return names


class ThreadPageLaws(Laws):
    """Pages of `list_threads`, with `after` and `prefix`."""

    async def test_pages_add_up_to_the_whole_list(self, checkpointer: Checkpointer) -> None:
        await save_each(checkpointer, _IDS)
        assert await paged(checkpointer, 6) == sorted(_IDS)
        for prefix in _PREFIXES:
            expected = sorted(name for name in _IDS if name.startswith(prefix))
            assert await checkpointer.list_threads(None, prefix=prefix) == expected, prefix
        for prefix in ("a", "tenant/"):
            expected = sorted(name for name in _IDS if name.startswith(prefix))
            assert await paged(checkpointer, 2, prefix=prefix) == expected, prefix
            both = [name for name in expected if name.startswith("a") and name.endswith("b")]
            assert await paged(checkpointer, 2, pattern="a*b", prefix=prefix) == both, prefix
            assert await checkpointer.list_threads(None, "a", prefix=prefix) == [
                name for name in expected if name == "a"
            ]
        assert await checkpointer.list_threads(None, "b*", prefix="a") == []
        assert await checkpointer.list_threads(None, prefix="a" * 300) == []

    async def test_a_page_begins_behind_any_text(self, checkpointer: Checkpointer) -> None:
        """The text need not be the id of a thread that exists."""
        await save_each(checkpointer, _IDS)
        for after in _BEHIND:
            expected = sorted(name for name in _IDS if name > after)
            assert await checkpointer.list_threads(None, after=after) == expected, after[:20]
            assert await checkpointer.list_threads(2, after=after) == expected[:2], after[:20]
            within = [name for name in expected if name.startswith("a")]
            assert await checkpointer.list_threads(None, "*", after=after, prefix="a") == within, after[:20]
            assert await checkpointer.list_threads(3, "a*", after=after) == within[:3], after[:20]

    async def test_pages_have_all_that_stays_once_while_others_come_and_go(self, checkpointer: Checkpointer) -> None:
        backend = dicts(checkpointer)
        staying = [f"s{number:02}" for number in range(12)]
        going = [f"s{number:02}x" for number in range(0, 12, 2)]
        await save_each(checkpointer, (*staying, *going))
        listed: list[str] = []
        after: str | None = None
        while page := await checkpointer.list_threads(4, after=after, prefix="s"):
            listed += page
            after = page[-1]
            if going:
                await backend.delete(going.pop())
                await backend.delete(going.pop(0))
            if not after.endswith("-new"):
                await backend.save(f"{after}-new", {})
            await backend.save(f"r{len(listed)}", {})
            if after not in staying:
                await backend.delete(after)
        assert listed == sorted(listed)
        assert [name for name in listed if name in staying] == staying
        assert len(listed) == len({*listed})

    async def test_what_is_no_text_is_no_place_in_a_list(self, checkpointer: Checkpointer) -> None:
        await dicts(checkpointer).save("t", {})
        bad: Any
        for bad in (5, b"a", ["a"], "\ud800"):
            with pytest.raises(InvalidIdError):
                await checkpointer.list_threads(10, after=bad)
            with pytest.raises(InvalidIdError):
                await checkpointer.list_threads(10, prefix=bad)
        with pytest.raises(InvalidIdError):
            await checkpointer.list_threads(10, prefix=None)  # type: ignore[arg-type]
