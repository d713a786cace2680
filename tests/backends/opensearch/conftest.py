"""Stores in the server of the session, and proxies in front of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends.opensearch.store import OpenSearchStore
from tests.servers.opensearch import OpenSearchServer


@pytest.fixture
def store(opensearch_server: OpenSearchServer) -> Iterator[OpenSearchStore]:
    """An index that is not there yet."""
    store = OpenSearchStore(opensearch_server.url)
    yield store
    store.remove()
