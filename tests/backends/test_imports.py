"""What a driver needs is imported before any thread asks it for something."""

from __future__ import annotations

import pytest

from tests.samples import run_script

STORES = {
    "http": "HTTPCheckpointer('http://127.0.0.1:1')",
    "mysql": "mysql_checkpointer('127.0.0.1', 1, retry_seconds=0)",
    "opensearch": "opensearch_checkpointer(['127.0.0.1:1'])",
    "postgresql": "postgresql_checkpointer('127.0.0.1', 1, retry_seconds=0)",
    "redis": "redis_checkpointer('redis://127.0.0.1:1')",
    "s3": "s3_checkpointer('b', endpoint_url='http://127.0.0.1:1', max_retries=0, **KEYS)",
}


@pytest.mark.parametrize("store", STORES)
def test_the_first_request_imports_nothing(store: str) -> None:
    """A process that forks in the middle of an import has children that wait for its end for ever."""
    run_script(f"""
import sys
from locus.errors import BackendUnavailableError
from locus.memory.backends import *

KEYS = dict(aws_access_key_id="a", aws_secret_access_key="b")
with {STORES[store]}.sync as checkpointer:
    before = set(sys.modules)
    try:
        checkpointer.exists("t")
    except BackendUnavailableError:
        pass
    else:
        raise AssertionError("nobody listens there")
    assert set(sys.modules) == before, sorted(set(sys.modules) - before)
""")
