"""Sites for the tests of the faults: one of each kind for all of them."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.soak.sites.base import ServerSite, ThreadedSite
from tests.soak.sites.embedded import EmbeddedSite, FileSite, SQLiteSite
from tests.soak.sites.postgresql import PostgreSQLSite
from tests.soak.sites.redis import RedisSite

T = TypeVar("T", bound=ThreadedSite)


@contextmanager
def started(kind: type[T]) -> Iterator[T]:
    with tempfile.TemporaryDirectory(prefix="locus-site-") as folder:
        Path(folder).chmod(0o711)
        site = kind(Path(folder) / "site")
        asyncio.run(site.start())
        try:
            yield site
        finally:
            asyncio.run(site.stop())


@pytest.fixture(scope="session")
def postgresql_site() -> Iterator[PostgreSQLSite]:
    with started(PostgreSQLSite) as site:
        yield site


@pytest.fixture(scope="session")
def redis_site() -> Iterator[RedisSite]:
    with started(RedisSite) as site:
        yield site


@pytest.fixture(
    params=[
        pytest.param("postgresql", marks=pytest.mark.postgresql("sites")),
        pytest.param("redis", marks=pytest.mark.redis("sites")),
    ]
)
def server_site(request: pytest.FixtureRequest) -> ServerSite[Any]:
    site: ServerSite[Any] = request.getfixturevalue(f"{request.param}_site")
    return site


@pytest.fixture
def sqlite_site() -> Iterator[SQLiteSite]:
    with started(SQLiteSite) as site:
        yield site


@pytest.fixture
def file_site() -> Iterator[FileSite]:
    with started(FileSite) as site:
        yield site


@pytest.fixture(params=["sqlite", "file"])
def disk_site(request: pytest.FixtureRequest) -> EmbeddedSite:
    site: EmbeddedSite = request.getfixturevalue(f"{request.param}_site")
    if not site.disk.is_mounted():
        pytest.skip("a disk of its own is not allowed here")
    return site


@pytest.fixture
def rng() -> random.Random:
    return random.Random(1)
