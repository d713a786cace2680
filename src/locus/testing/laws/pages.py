"""Lists of threads in pages: each goes on behind the last id of the one before, whatever happens in between."""

from __future__ import annotations

from typing import Any

import pytest

from locus.errors import InvalidIdError
from locus.memory.checkpointer import Checkpointer
from locus.testing.laws.base import Laws, dicts

_IDS = (
    "a",
    "a ",
    "a'b",
    "a%b",
    "a*b",
    "a/b",
    "a:b",
    "a\0",
    "a\0b",
    "a\x01",
    "A",
    "Alice",
    "alice",
    "alice ",
    "josé",
    "jose\u0301",
    "tenant/1",
    "tenant/2",
    "tenant_1",
    "ß",
    "\ud7ff",
    "\ue000",
    "😀",
    "😀1",
    "\U0010ffff",
)
_PREFIXES = (
    "",
    "a",
    "A",
    "a ",
    "a%",
    "a*",
    "a'",
    "a:",
    "a\0",
    "alice",
    "tenant/",
    "tenant_",
    "jose",
    "😀",
    "\ud7ff",
    "é",
)
_BEHIND = (
    "",
    "a",
    "a ",
    "a%",
    "a*",
    "a'; DROP TABLE locus_threads; --",
    "a\0",
    "a\0\0",
    "alicf",
    "Z",
    "jose",
    "tenant/",
    "tenant/2",
    '{"$gt": ""}',
    "😀",
    "\U0010ffff",
    "\U0010ffff" * 300,
    "a" * 100_000,
)


async def paged(checkpointer: Checkpointer, size: int, **options: Any) -> list[str]:
    """All ids, page by page."""
    found: list[str] = []
    page = await checkpointer.list_threads(size, **options)
    while page:
        assert len(page) <= size
        assert not found or found[-1] < page[0], "a page does not begin behind the one before"
        found += page
        page = await checkpointer.list_threads(size, after=page[-1], **options)
    return found


class PageLaws(Laws):
    """`list_threads` with `after` and `prefix`."""

    async def test_pages_add_up_to_the_whole_list(self, checkpointer: Checkpointer) -> None:
        for name in _IDS:
            await dicts(checkpointer).save(name, {})
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
        """The text need not be the id of a thread, or no longer."""
        for name in _IDS:
            await dicts(checkpointer).save(name, {})
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
        for name in (*staying, *going):
            await backend.save(name, {})
        found: list[str] = []
        after: str | None = None
        while page := await checkpointer.list_threads(4, after=after, prefix="s"):
            found += page
            after = page[-1]
            if going:
                await backend.delete(going.pop())
                await backend.delete(going.pop(0))
            if not after.endswith("-new"):
                await backend.save(f"{after}-new", {})
            await backend.save(f"r{len(found)}", {})
            if after not in staying:
                await backend.delete(after)
        assert found == sorted(found)
        assert [name for name in found if name in staying] == staying
        assert len(found) == len({*found})

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
