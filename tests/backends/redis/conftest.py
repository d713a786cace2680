"""A store on the plain server, and a client past the backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends.redis.stores import RedisStore
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
def store(redis_server: RedisServer, proxy: Proxy) -> Iterator[RedisStore]:
    store = RedisStore(redis_server, proxy)
    yield store
    store.remove()
