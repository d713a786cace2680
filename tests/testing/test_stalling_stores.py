"""Which backends have queries that can stall: a law that is lost there must not pass unnoticed."""

from __future__ import annotations

from locus.testing import REQUIRED, StallTestStore, TestStore
from tests.backends.embedded import FileStore, SQLiteStore
from tests.backends.every_store import MemoryStore
from tests.backends.http.store import StoreOverHTTP
from tests.backends.mysql.stores import MySQLStore
from tests.backends.oci.test_contract import OCIStore
from tests.backends.opensearch.store import OpenSearchStore
from tests.backends.oracle.stores import OracleStore
from tests.backends.postgresql.store import PostgreSQLStore
from tests.backends.redis.stores import RedisStore
from tests.backends.s3.store import S3Store

STORES: dict[str, type[TestStore]] = {
    "file": FileStore,
    "http": StoreOverHTTP,
    "memory": MemoryStore,
    "mysql": MySQLStore,
    "oci": OCIStore,
    "opensearch": OpenSearchStore,
    "oracle": OracleStore,
    "postgresql": PostgreSQLStore,
    "redis": RedisStore,
    "s3": S3Store,
    "sqlite": SQLiteStore,
}


def test_queries_can_stall_everywhere_but_in_memory_and_in_files() -> None:
    """There, nothing is waited for but the disk, which cannot be made to stall."""
    assert set(STORES) == set(REQUIRED)
    assert {name for name, store in STORES.items() if not issubclass(store, StallTestStore)} == {"memory", "file"}
