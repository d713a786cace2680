"""The contract, kept by Redis with and without modules, by Valkey, and by a Redis Cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from locus.testing import REQUIRED
from locus.testing.contract import CoreContract, DurableContract, DurableLaws
from locus.testing.laws.copies import CopyLaws
from locus.testing.laws.expiry import ExpiryLaws
from locus.testing.laws.metadata import MetadataLaws
from locus.testing.laws.outage import OutageLaws
from tests.backends.effort import FewerRepetitions
from tests.backends.redis.stores import ClusterStore, RedisStore
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisCluster, RedisServer, ValkeyServer


class WithoutSearch(CoreContract, MetadataLaws, CopyLaws, ExpiryLaws, OutageLaws, DurableLaws):
    """All laws but those of search, which needs a module."""

    required = replace(REQUIRED["redis"], search=False)


@pytest.mark.redis("redis")
class TestRedis(WithoutSearch):
    # Each line is Python's; what is atomic is the server's script.
    line_step = 3

    @pytest.fixture
    def store(self, redis_server: RedisServer) -> Iterator[RedisStore]:
        with Proxy(redis_server.port) as proxy:
            store = RedisStore(redis_server, proxy)
            yield store
            store.remove()


@pytest.mark.redis("redis-stack")
class TestRedisWithModules(FewerRepetitions, DurableContract):
    required = REQUIRED["redis"]
    line_step = 12
    line_samples = 10

    @pytest.fixture
    def store(self, redis_stack_server: RedisServer) -> Iterator[RedisStore]:
        with Proxy(redis_stack_server.port) as proxy:
            store = RedisStore(redis_stack_server, proxy, search=True)
            yield store
            store.remove()


@pytest.mark.redis("valkey")
class TestValkey(FewerRepetitions, WithoutSearch):
    line_step = 12
    line_samples = 10

    @pytest.fixture
    def store(self, valkey_server: ValkeyServer) -> Iterator[RedisStore]:
        with Proxy(valkey_server.port) as proxy:
            store = RedisStore(valkey_server, proxy)
            yield store
            store.remove()


@pytest.mark.redis("redis-cluster")
class TestRedisCluster(FewerRepetitions, WithoutSearch):
    line_step = 30
    line_samples = 5

    @pytest.fixture
    def store(self, redis_cluster: RedisCluster) -> Iterator[ClusterStore]:
        store = ClusterStore(redis_cluster)
        yield store
        store.remove()
