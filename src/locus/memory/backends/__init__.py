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


__getattr__ = lazy_names(
    __name__,
    {
        "file": ("FileCheckpointer",),
        "http": ("HTTPCheckpointer",),
        "memory": ("MemoryCheckpointer",),
        "mysql": ("MySQLBackend", "MySQLConfig"),
        "oci_bucket": ("OCIBucketBackend",),
        "opensearch": ("OpenSearchBackend",),
        "oracle": ("OracleBackend", "OracleCheckpointSaver", "OracleSyncBackend", "OracleSyncCheckpointSaver"),
        "postgresql": ("PostgreSQLBackend", "PostgreSQLConfig"),
        "redis": ("RedisBackend",),
        "s3": ("S3Backend",),
        "sqlite": ("SQLiteBackend",),
        "adapters": (
            "StorageBackendAdapter",
            "mysql_checkpointer",
            "oci_bucket_checkpointer",
            "opensearch_checkpointer",
            "oracle_checkpointer",
            "postgresql_checkpointer",
            "redis_checkpointer",
            "s3_checkpointer",
            "sqlite_checkpointer",
        ),
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
