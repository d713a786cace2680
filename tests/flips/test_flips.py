"""No answer that an agent goes on from is wrong after one change, and no error is foreign."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.flips.campaign import campaign
from tests.flips.stores import ChangedFiles, ChangedObjects, ChangedRedis, ChangedSQLite, ChangedStore
from tests.servers.redis import RedisServer

CHANGES = 100
"""How many `make test` makes of each store. `python -m tests.flips` makes 10,000."""
MANY = 2_000
"""How many `make soak` makes."""


async def test_files(tmp_path: Path) -> None:
    figures = await campaign(ChangedFiles(tmp_path), CHANGES, 1)
    assert not figures.wrong, figures.examples
    assert not figures.foreign, figures.examples
    assert figures.told == CHANGES


async def test_sqlite(tmp_path: Path) -> None:
    """What only an index has lost, such as a pending write or a word, `locus doctor` finds."""
    figures = await campaign(ChangedSQLite(tmp_path), 2 * CHANGES, 2)
    assert figures.told > CHANGES // 2
    assert not figures.foreign, figures.examples
    assert not {"newest", "by id", "history"} & set(figures.wrong), figures.examples
    assert not figures.silent, figures.examples


@pytest.fixture
def redis_store(redis_server: RedisServer) -> Iterator[ChangedRedis]:
    store = ChangedRedis(redis_server.port)
    yield store
    store.close()


async def test_redis(redis_store: ChangedRedis) -> None:
    """What only an index over threads has lost, `locus doctor` finds."""
    figures = await campaign(redis_store, CHANGES // 2, 1)
    assert figures.told > CHANGES // 6
    assert not figures.foreign, figures.examples
    assert set(figures.wrong) <= {"list", "metadata"}, figures.examples
    assert not figures.silent, figures.examples


async def test_objects() -> None:
    """A newest event that is gone leaves nothing behind, unless it was the first."""
    figures = await campaign(ChangedObjects(), CHANGES // 2, 1)
    assert figures.told > CHANGES // 8
    assert not figures.foreign, figures.examples
    assert all(": lost: " in example for example in figures.examples), figures.examples


@pytest.mark.soak
@pytest.mark.parametrize("kind", [ChangedFiles, ChangedSQLite])
async def test_many(kind: Callable[[Path], ChangedStore], tmp_path: Path) -> None:
    figures = await campaign(kind(tmp_path), MANY, 3)
    assert not figures.foreign, figures.examples
    assert not {"newest", "by id", "history"} & set(figures.wrong), figures.examples


@pytest.mark.soak
async def test_many_of_redis(redis_store: ChangedRedis) -> None:
    figures = await campaign(redis_store, MANY, 3)
    assert not figures.foreign, figures.examples
    assert not figures.misleading, figures.examples
    assert not figures.silent, figures.examples


@pytest.mark.soak
async def test_many_of_objects() -> None:
    figures = await campaign(ChangedObjects(), MANY, 3)
    assert not figures.foreign, figures.examples
    assert all(": lost: " in example for example in figures.examples), figures.examples
