"""The newest threads of a prefix that very many threads have."""

from __future__ import annotations

import pytest

from locus.memory.backends.redis import read as redis_read
from locus.testing.laws.base import dicts
from locus.testing.laws.listing.newest_threads import all_pages
from tests.backends.redis.stores import RedisStore


async def test_a_list_that_ends_early_says_so_and_goes_on(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_read, "LOOKED_AT", 7)
    monkeypatch.setattr(redis_read, "_FILTERED_PAGE", 1)
    async with store.open() as checkpointer:
        backend = dicts(checkpointer)
        for number in range(12):
            await backend.save(f"a/{number}", {})
            await backend.save(f"b/{number}", {})
        for prefix, count in {"a/": 12, "b/1": 3, "": 24}.items():
            for limit in (1, 5, 50):
                found = [one.thread_id for one in await all_pages(checkpointer, limit, prefix=prefix)]
                assert len(found) == len({*found}) == count
                numbers = [int(name[2:]) for name in found]
                assert numbers == sorted(numbers, reverse=True)
        page = await checkpointer.recent_threads(50, prefix="a/")
        assert page.more
        assert len(page.threads) < 12
