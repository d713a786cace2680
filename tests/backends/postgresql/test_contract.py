"""The contract, kept by PostgreSQL, and by tables that are partitioned."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from locus.testing import REQUIRED
from locus.testing.contract import DurableContract, StallLaws
from locus.testing.laws.listing.newest_threads import NewestThreadLaws
from locus.testing.laws.listing.thread_lists import ThreadPageLaws
from locus.testing.laws.saving.copies import CopyLaws
from locus.testing.laws.saving.pending_writes import PendingWritesLaws
from locus.testing.laws.saving.replacement import ReplacementLaws
from locus.testing.laws.saving.shared_commits import SharedCommitLaws
from locus.testing.laws.search.metadata import MetadataLaws
from locus.testing.laws.search.words import SearchLaws
from locus.testing.stateful import StatefulLaws
from tests.backends.effort import FewerRepetitions, FewestRepetitions
from tests.backends.postgresql.store import PostgreSQLStore, new_store, used_store
from tests.backends.proxied import proxy_for
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.proxy import NoProxy, Proxy

PARTITIONS = 4


@pytest.fixture
def proxy(postgresql_server: PostgreSQLServer, request: pytest.FixtureRequest) -> Iterator[Proxy]:
    with proxy_for(request, postgresql_server.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def used_schema(postgresql_server: PostgreSQLServer) -> Iterator[str]:
    """Made once: creating tables takes longer than most of these tests."""
    with new_store(postgresql_server.url, NoProxy(postgresql_server.port)) as store:
        yield store.schema


@pytest.mark.postgresql
class TestPostgreSQL(FewerRepetitions, DurableContract, StallLaws):
    required = REQUIRED["postgresql"]
    commits_together = True

    @pytest.fixture
    def store(
        self, postgresql_server: PostgreSQLServer, proxy: Proxy, used_schema: str, request: pytest.FixtureRequest
    ) -> Iterator[PostgreSQLStore]:
        # Those that are about a store that is not there yet get one.
        is_new = "new_store" in request.node.name or "first_uses" in request.node.name
        url = postgresql_server.url
        with new_store(url, proxy) if is_new else used_store(url, used_schema, proxy) as store:
            yield store


@pytest.fixture(scope="module")
def used_partitions(postgresql_server: PostgreSQLServer) -> Iterator[str]:
    with new_store(postgresql_server.url, NoProxy(postgresql_server.port), PARTITIONS) as store:
        yield store.schema


@pytest.mark.postgresql
class TestPartitioned(
    FewestRepetitions,
    ReplacementLaws,  # unique indexes with other columns, and one for each partition
    PendingWritesLaws,  # rows in two partitions have the same place (ctid)
    SharedCommitLaws,  # a statement whose members are in several partitions
    CopyLaws,  # from one partition to another
    ThreadPageLaws,  # lists are put together from all partitions
    NewestThreadLaws,  # and so is the order of all checkpoints
    MetadataLaws,  # an index of metadata for each partition
    SearchLaws,  # and one of words
    StatefulLaws,
):
    """The same server and the same statements. What is about single threads, or about the server, cannot differ."""

    required = REQUIRED["postgresql"]
    commits_together = True

    @pytest.fixture
    def store(
        self, postgresql_server: PostgreSQLServer, proxy: Proxy, used_partitions: str, request: pytest.FixtureRequest
    ) -> Iterator[PostgreSQLStore]:
        is_new = "new_store" in request.node.name or "first_uses" in request.node.name
        url = postgresql_server.url
        made = new_store(url, proxy, PARTITIONS) if is_new else used_store(url, used_partitions, proxy, PARTITIONS)
        with made as store:
            yield store
