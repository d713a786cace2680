"""The contract, kept by Redis with and without modules, by Valkey, and by a Redis Cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from locus.testing import REQUIRED
from locus.testing.contract import DurableContract, StallLaws
from locus.testing.laws.durability.crash import CrashLaws
from locus.testing.laws.durability.outage import OutageLaws
from locus.testing.laws.durability.processes import ProcessLaws
from locus.testing.laws.handles.capabilities import CapabilityLaws
from locus.testing.laws.handles.lifecycle import HandleLaws
from locus.testing.laws.listing.newest_threads import NewestThreadLaws
from locus.testing.laws.listing.order import OrderLaws
from locus.testing.laws.listing.thread_lists import ThreadPageLaws, ThreadPatternLaws
from locus.testing.laws.names.ids import IdLaws
from locus.testing.laws.removal.deletion import DeletionLaws
from locus.testing.laws.removal.expiry import ExpiryLaws
from locus.testing.laws.removal.vacuum import VacuumLaws
from locus.testing.laws.saving.conflicts import ConflictLaws
from locus.testing.laws.saving.copies import CopyLaws
from locus.testing.laws.saving.replacement import ReplacementLaws
from locus.testing.laws.saving.round_trip import RoundTripLaws
from locus.testing.laws.saving.stale_bases import StaleBaseLaws
from locus.testing.laws.search.metadata import MetadataLaws
from locus.testing.stateful import StatefulLaws
from tests.backends.effort import FewerRepetitions, FewestRepetitions
from tests.backends.proxied import proxy_for
from tests.backends.redis.stores import ClusterStore, RedisStore
from tests.servers.redis import RedisCluster, RedisServer, ValkeyServer

WITHOUT_SEARCH = replace(REQUIRED["redis"], search=False)


@pytest.mark.redis("redis-stack")
class TestRedisWithModules(FewerRepetitions, DurableContract, StallLaws):
    """The whole contract, search included."""

    required = REQUIRED["redis"]
    commits_together = True

    @pytest.fixture
    def store(self, redis_stack_server: RedisServer, request: pytest.FixtureRequest) -> Iterator[RedisStore]:
        with proxy_for(request, redis_stack_server.port) as proxy:
            store = RedisStore(redis_stack_server, proxy, search=True)
            yield store
            store.remove()


# The relatives of that server run the same engine and the same scripts. They keep the laws that can differ there.


@pytest.mark.redis("redis")
class TestRedis(
    FewestRepetitions,
    CapabilityLaws,  # search is not there, and says so
    RoundTripLaws,  # a save that leaves no document for search
    DeletionLaws,  # and a removal that finds none
    ExpiryLaws,
    OutageLaws,
    StallLaws,
    CrashLaws,
    StatefulLaws,
):
    """A server without modules, which most people have."""

    required = WITHOUT_SEARCH

    @pytest.fixture
    def store(self, redis_server: RedisServer, request: pytest.FixtureRequest) -> Iterator[RedisStore]:
        with proxy_for(request, redis_server.port) as proxy:
            store = RedisStore(redis_server, proxy)
            yield store
            store.remove()


@pytest.mark.redis("valkey")
class TestValkey(
    FewestRepetitions,
    CapabilityLaws,
    RoundTripLaws,  # its own Lua and cjson: numbers, empty lists, large texts
    ConflictLaws,  # what the scripts decide
    ReplacementLaws,
    StaleBaseLaws,
    OrderLaws,
    MetadataLaws,  # its own sorted sets and scans
    ExpiryLaws,  # its own clock and eviction
    OutageLaws,
    StallLaws,
    CrashLaws,
    StatefulLaws,
):
    """Another server that runs the same scripts."""

    required = WITHOUT_SEARCH

    @pytest.fixture
    def store(self, valkey_server: ValkeyServer, request: pytest.FixtureRequest) -> Iterator[RedisStore]:
        with proxy_for(request, valkey_server.port) as proxy:
            store = RedisStore(valkey_server, proxy)
            yield store
            store.remove()


@pytest.mark.redis("redis-cluster")
class TestRedisCluster(
    FewestRepetitions,
    CapabilityLaws,
    IdLaws,  # ids become parts of keys, whose slot must not depend on what they contain
    ThreadPatternLaws,  # lists are put together from all nodes
    ThreadPageLaws,
    NewestThreadLaws,
    MetadataLaws,  # and so is the index of metadata
    CopyLaws,  # from one slot to another
    VacuumLaws,
    ExpiryLaws,
    HandleLaws,  # another client of the driver
    ProcessLaws,
    OutageLaws,
    CrashLaws,
    StatefulLaws,
):
    """Three nodes, each a server as above: all keys of a thread share a slot, and nothing else does."""

    required = WITHOUT_SEARCH

    @pytest.fixture
    def store(self, redis_cluster: RedisCluster) -> Iterator[ClusterStore]:
        store = ClusterStore(redis_cluster)
        yield store
        store.remove()
