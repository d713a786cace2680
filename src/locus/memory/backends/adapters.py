"""Storage backends as checkpointers, and a factory for each backend of Locus."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from pydantic import SecretStr

from locus.memory.backends.plain import PlainStoreEngine
from locus.memory.backends.sqlite.backend import SQLiteBackend
from locus.memory.checkpointer import THIRTY_DAYS, BaseCheckpointer, Checkpointer, RecentThreads, SearchHits, StoreVerbs
from locus.memory.engine import CheckpointerCapabilities, Deadline
from locus.memory.model.arguments import CACHE_MB, SEARCH_SECONDS, checked_seconds
from locus.memory.model.ids import check_prefix
from locus.memory.model.retention import VacuumProgress
from locus.memory.store import CheckpointStore

if TYPE_CHECKING:
    from locus.memory.backends.mysql.backend import MySQLBackend
    from locus.memory.backends.oci_bucket.backend import OCIBucketBackend
    from locus.memory.backends.opensearch.backend import OpenSearchBackend
    from locus.memory.backends.oracle.backend import OracleBackend
    from locus.memory.backends.postgresql.backend import PostgreSQLBackend
    from locus.memory.backends.redis.backend import RedisBackend
    from locus.memory.backends.s3.backend import S3Backend


P = ParamSpec("P")
R = TypeVar("R")


def taking_those_of(_constructor: Callable[[], Callable[P, object]]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Tells type checkers that a factory takes the parameters of a class, which is imported when it is called."""
    return lambda factory: factory


class StorageBackendAdapter(Checkpointer):
    """A checkpointer over a storage backend of Locus, or over any object with five plain methods.

    With a backend of Locus the whole contract holds. Any other object needs `save(key, data)`, `load(key)`,
    `delete(key)`, `exists(key)` and, for `list_threads` and `vacuum`, `list_threads()`. See the module `plain` for its
    keys, and for what it cannot promise: atomic saves, and saves from two processes. Its own `search`,
    `query_by_metadata` and `vacuum` are used where it has them.
    """

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        is_locus_backend = isinstance(backend, StoreVerbs)
        self._plain = None if is_locus_backend else backend
        super().__init__(backend.store if is_locus_backend else CheckpointStore(PlainStoreEngine(backend)))

    def _has(self, method: str) -> bool:
        return callable(getattr(self._plain, method, None))

    @property
    def capabilities(self) -> CheckpointerCapabilities:
        capabilities = super().capabilities
        if self._plain is None:
            return capabilities
        lists = self._has("list_threads")
        return replace(
            capabilities,
            search=self._has("search"),
            metadata_query=lists or self._has("query_by_metadata") or self._has("get_by_metadata"),
            vacuum=lists or self._has("vacuum"),
            list_threads=lists,
            list_with_metadata=lists or self._has("list_with_metadata"),
        )

    async def search(
        self, query: str, limit: int = 10, *, prefix: str = "", timeout_seconds: float = SEARCH_SECONDS
    ) -> SearchHits:
        if self._plain is None:
            return await super().search(query, limit, prefix=prefix, timeout_seconds=timeout_seconds)
        checked_seconds(timeout_seconds, "timeout_seconds")
        deadline = Deadline(timeout_seconds)
        try:
            async with deadline.timeout():
                return SearchHits(await self._ask("search", query, limit=limit, prefix=prefix))
        except TimeoutError:
            if not deadline.has_passed:
                raise
            return SearchHits(complete=False)

    async def query_by_metadata(
        self, key: str, value: Any, limit: int = 100, *, prefix: str = ""
    ) -> list[dict[str, Any]]:
        if self._plain is None or self._has("list_threads"):
            return await super().query_by_metadata(key, value, limit, prefix=prefix)
        method = "query_by_metadata" if self._has("query_by_metadata") else "get_by_metadata"
        return await self._ask(method, key, value, limit=limit, prefix=prefix)

    async def list_threads(
        self, limit: int | None = 100, pattern: str = "*", *, after: str | None = None, prefix: str = ""
    ) -> list[str]:
        if self._plain is not None and not self._has("list_threads"):
            self._cannot("list_threads")
        return await super().list_threads(limit, pattern, after=after, prefix=prefix)

    async def list_with_metadata(self, limit: int = 100, *, prefix: str = "") -> list[dict[str, Any]]:
        if self._plain is None or self._has("list_threads"):
            return await super().list_with_metadata(limit, prefix=prefix)
        return await self._ask("list_with_metadata", limit=limit, prefix=prefix)

    async def recent_threads(
        self, limit: int = 50, *, before: str | None = None, prefix: str = "", titles: bool = False
    ) -> RecentThreads:
        if self._plain is not None and not self._has("list_threads"):
            self._cannot("recent_threads")
        return await super().recent_threads(limit, before=before, prefix=prefix, titles=titles)

    async def vacuum(
        self,
        older_than_days: float = THIRTY_DAYS,
        *,
        keep_last: int | None = None,
        dry_run: bool = False,
        progress: Callable[[VacuumProgress], None] | None = None,
    ) -> int:
        if self._plain is None or self._has("list_threads"):
            return await super().vacuum(older_than_days, keep_last=keep_last, dry_run=dry_run, progress=progress)
        if keep_last is not None or dry_run:
            self._cannot("vacuum with keep_last or dry_run")
        removed = int(await self._call("vacuum", older_than_days))
        if progress is not None:
            progress(VacuumProgress(checkpoints=removed))
        return removed

    async def _ask(self, method: str, *args: Any, limit: int, prefix: str) -> list[dict[str, Any]]:
        """Call a list method of the plain object, and return the items of threads with a prefix.

        The object knows no prefixes, so it is asked for more items until there are enough.
        """
        prefix, most = check_prefix(prefix), limit
        while True:
            items = list(await self._call(method, *args, limit=most))
            if not prefix:
                return items
            if not all(isinstance(item, dict) and isinstance(item.get("thread_id"), str) for item in items):
                self._cannot(f"{method} with a prefix, because it does not say of which thread something is")
            within = [item for item in items if item["thread_id"].startswith(prefix)]
            if len(within) >= limit or len(items) < most:
                return within[:limit]
            most *= 4

    async def _call(self, method: str, *args: Any, **options: Any) -> Any:
        """Call a method of the plain object that the five do not include."""
        if not self._has(method):
            self._cannot(method)
        try:
            result = getattr(self._plain, method)(*args, **options)
            return await result if inspect.isawaitable(result) else result
        except Exception as error:
            raise self.store.engine.translate(error) from error

    def __repr__(self) -> str:
        return f"StorageBackendAdapter({type(self.backend).__name__})"


@taking_those_of(lambda: MySQLBackend)
def mysql_checkpointer(
    host: str = "localhost",
    port: int = 3306,
    database: str = "locus",
    user: str = "root",
    password: str | SecretStr = "",
    dsn: str | SecretStr | None = None,
    **options: Any,
) -> StorageBackendAdapter:
    """A checkpointer in MySQL; the options are those of `MySQLBackend` (`table_name`, `ttl_seconds`, …)."""
    from locus.memory.backends.mysql.backend import MySQLBackend

    return StorageBackendAdapter(MySQLBackend(host, port, database, user, password, dsn, **options))


@taking_those_of(lambda: OCIBucketBackend)
def oci_bucket_checkpointer(
    bucket_name: str, namespace: str, prefix: str = "locus/checkpoints/", **kwargs: Any
) -> BaseCheckpointer:
    """A checkpointer in OCI Object Storage: an `OCIBucketBackend`, whose options it takes."""
    from locus.memory.backends.oci_bucket.backend import OCIBucketBackend

    return OCIBucketBackend(bucket_name, namespace, prefix, **kwargs)


@taking_those_of(lambda: OpenSearchBackend)
def opensearch_checkpointer(
    hosts: Sequence[str] | None = None, index_name: str = "locus-checkpoints", **options: Any
) -> StorageBackendAdapter:
    """A checkpointer in OpenSearch; the options are those of `OpenSearchBackend` (`username`, `use_ssl`, …)."""
    from locus.memory.backends.opensearch.backend import OpenSearchBackend

    return StorageBackendAdapter(OpenSearchBackend(hosts, index_name, **options))


@taking_those_of(lambda: OracleBackend)
def oracle_checkpointer(
    dsn: str | None = None, user: str = "admin", password: str | SecretStr = "", **kwargs: Any
) -> StorageBackendAdapter:
    """A checkpointer in Oracle Database; the options are those of `OracleBackend` (`wallet_location`, …)."""
    from locus.memory.backends.oracle.backend import OracleBackend

    return StorageBackendAdapter(OracleBackend(dsn, user, password, **kwargs))


@taking_those_of(lambda: PostgreSQLBackend)
def postgresql_checkpointer(
    host: str = "localhost",
    port: int = 5432,
    database: str = "locus",
    user: str = "postgres",
    password: str | SecretStr = "",
    dsn: str | SecretStr | None = None,
    **options: Any,
) -> StorageBackendAdapter:
    """A checkpointer in PostgreSQL; the options are those of `PostgreSQLBackend` (`table_name`, `ttl_seconds`, …)."""
    from locus.memory.backends.postgresql.backend import PostgreSQLBackend

    return StorageBackendAdapter(PostgreSQLBackend(host, port, database, user, password, dsn, **options))


@taking_those_of(lambda: RedisBackend)
def redis_checkpointer(
    url: str = "redis://localhost:6379", prefix: str = "locus:state:", **options: Any
) -> StorageBackendAdapter:
    """A checkpointer in Redis or Valkey; the options are those of `RedisBackend` (`ttl_seconds`, `db`, …)."""
    from locus.memory.backends.redis.backend import RedisBackend

    return StorageBackendAdapter(RedisBackend(url, prefix, **options))


@taking_those_of(lambda: S3Backend)
def s3_checkpointer(bucket: str, prefix: str = "locus/checkpoints/", **options: Any) -> StorageBackendAdapter:
    """A checkpointer in an S3 bucket; the options are those of `S3Backend` (`endpoint_url`, `region_name`, …)."""
    from locus.memory.backends.s3.backend import S3Backend

    return StorageBackendAdapter(S3Backend(bucket, prefix, **options))


def sqlite_checkpointer(
    path: str | Path = "locus.db",
    *,
    durability: Literal["full", "normal"] = "full",
    ttl_seconds: float | None = None,
    timeout: float = 30.0,
    query_timeout: float = 60.0,
    create_folder: bool = False,
    cache_mb: float = CACHE_MB,
) -> StorageBackendAdapter:
    """A checkpointer in an SQLite file; the options are those of `SQLiteBackend`."""
    backend = SQLiteBackend(
        path,
        durability=durability,
        ttl_seconds=ttl_seconds,
        timeout=timeout,
        query_timeout=query_timeout,
        create_folder=create_folder,
        cache_mb=cache_mb,
    )
    return StorageBackendAdapter(backend)
