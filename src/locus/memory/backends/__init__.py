"""The backends. A name is imported when it is first used, so that only the driver in use must be installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locus.extras import lazy_names

if TYPE_CHECKING:
    from locus.memory.backends.adapters import (
        StorageBackendAdapter,
        mysql_checkpointer,
        oci_bucket_checkpointer,
        opensearch_checkpointer,
        oracle_checkpointer,
        postgresql_checkpointer,
        redis_checkpointer,
        s3_checkpointer,
        sqlite_checkpointer,
    )
    from locus.memory.backends.file.backend import FileCheckpointer
    from locus.memory.backends.http.backend import HTTPCheckpointer
    from locus.memory.backends.memory import MemoryCheckpointer
    from locus.memory.backends.mysql.backend import MySQLBackend, MySQLConfig
    from locus.memory.backends.oci_bucket.backend import OCIBucketBackend
    from locus.memory.backends.opensearch.backend import OpenSearchBackend
    from locus.memory.backends.oracle.backend import (
        OracleBackend,
        OracleCheckpointSaver,
        OracleSyncBackend,
        OracleSyncCheckpointSaver,
    )
    from locus.memory.backends.postgresql.backend import PostgreSQLBackend
    from locus.memory.backends.postgresql.config import PostgreSQLConfig
    from locus.memory.backends.redis.backend import RedisBackend
    from locus.memory.backends.s3.backend import S3Backend
    from locus.memory.backends.sqlite.backend import SQLiteBackend

_MODULES = {
    "FileCheckpointer": "file",
    "HTTPCheckpointer": "http",
    "MemoryCheckpointer": "memory",
    "MySQLBackend": "mysql",
    "MySQLConfig": "mysql",
    "OCIBucketBackend": "oci_bucket",
    "OpenSearchBackend": "opensearch",
    "OracleBackend": "oracle",
    "OracleCheckpointSaver": "oracle",
    "OracleSyncBackend": "oracle",
    "OracleSyncCheckpointSaver": "oracle",
    "PostgreSQLBackend": "postgresql",
    "PostgreSQLConfig": "postgresql",
    "RedisBackend": "redis",
    "S3Backend": "s3",
    "SQLiteBackend": "sqlite",
    "StorageBackendAdapter": "adapters",
    "mysql_checkpointer": "adapters",
    "oci_bucket_checkpointer": "adapters",
    "opensearch_checkpointer": "adapters",
    "oracle_checkpointer": "adapters",
    "postgresql_checkpointer": "adapters",
    "redis_checkpointer": "adapters",
    "s3_checkpointer": "adapters",
    "sqlite_checkpointer": "adapters",
}

__all__ = [
    "FileCheckpointer",
    "HTTPCheckpointer",
    "MemoryCheckpointer",
    "MySQLBackend",
    "MySQLConfig",
    "OCIBucketBackend",
    "OpenSearchBackend",
    "OracleBackend",
    "OracleCheckpointSaver",
    "OracleSyncBackend",
    "OracleSyncCheckpointSaver",
    "PostgreSQLBackend",
    "PostgreSQLConfig",
    "RedisBackend",
    "S3Backend",
    "SQLiteBackend",
    "StorageBackendAdapter",
    "mysql_checkpointer",
    "oci_bucket_checkpointer",
    "opensearch_checkpointer",
    "oracle_checkpointer",
    "postgresql_checkpointer",
    "redis_checkpointer",
    "s3_checkpointer",
    "sqlite_checkpointer",
]


__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
