"""Stores in the server of the session, and proxies in front of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.servers.opensearch import OpenSearchServer
from tests.contract.opensearch_store import OpenSearchStore


@pytest.fixture
def store(opensearch_server: OpenSearchServer) -> Iterator[OpenSearchStore]:
    """An index that is not there yet."""
    store = OpenSearchStore(opensearch_server.url)
    yield store
    store.remove()
