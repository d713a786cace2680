"""The contract, kept by OpenSearch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import pytest

from locus.testing import REQUIRED
from locus.testing.contract import DurableContract, StallLaws
from locus.testing.data import SOAK
from tests.backends.effort import FewestRepetitions
from tests.backends.opensearch.store import OpenSearchStore
from tests.backends.proxied import is_behind_the_proxy
from tests.servers.opensearch import OpenSearchServer
from tests.servers.proxy import Proxy


@pytest.fixture(scope="module")
def proxy(opensearch_server: OpenSearchServer) -> Iterator[Proxy]:
    with Proxy(opensearch_server.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def emptied(opensearch_server: OpenSearchServer) -> Iterator[OpenSearchStore]:
    """One index for most tests, because making one takes longer than many of them."""
    store = OpenSearchStore(opensearch_server.url)
    store.make()
    yield store
    store.remove()


class TestOpenSearch(FewestRepetitions, DurableContract, StallLaws):
    """A request takes this server several times what it takes the others.

    Deaths before each single write, and many orders of requests, are tried on a model of the index; and a thread of
    more than a page in `test_long_threads`.
    """

    required = REQUIRED["opensearch"]
    commits_together = True
    late_turn: ClassVar[int] = 200 if SOAK else 40
    """A line that others fork gets a branch of its own with each save here, and is gathered with every eighth. Such a
    save is not among the early ones, and must not be among the last ones either."""
    saves_while_removing: ClassVar[Mapping[str, int]] = {"checkpoints": 15, "vacuum": 15, "thread": 25}

    @pytest.fixture
    def store(self, emptied: OpenSearchStore, request: pytest.FixtureRequest) -> Iterator[OpenSearchStore]:
        test = request.node.originalname
        if "a_new_store" in test:
            store = OpenSearchStore(emptied.server_url)
            yield store
            store.remove()
            return
        proxy = request.getfixturevalue("proxy") if is_behind_the_proxy(request) else None
        yield OpenSearchStore(emptied.server_url, emptied.index, proxy)
        emptied.empty()
