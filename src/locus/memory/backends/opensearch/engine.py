"""The engine for OpenSearch: each operation runs on an OS thread that has a connection of its own.

`schema` describes the documents, and how concurrent writers keep a thread consistent.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TypeVar

from locus.errors import CheckpointError
from locus.extras import require
from locus.memory.backends.opensearch import read, search
from locus.memory.backends.opensearch.client import Client, Failure, translated
from locus.memory.backends.opensearch.commit import commit_group, commit_to_log
from locus.memory.backends.opensearch.config import OpenSearchConfig
from locus.memory.backends.opensearch.examine import findings
from locus.memory.backends.opensearch.index import exists, found_format, prepare
from locus.memory.backends.opensearch.log import Log, ThreadCache
from locus.memory.backends.opensearch.remove import copy, expire, remove
from locus.memory.backends.opensearch.schema import FORMAT, Record, to_micros
from locus.memory.backends.opensearch.writes import delete_orphans, get_writes, put_writes
from locus.memory.engine import (
    PAGE,
    CommitsTogether,
    Copies,
    Engine,
    Expires,
    Exports,
    FindsMetadata,
    KeepsWrites,
    Maintains,
    Searches,
)
from locus.memory.model.ids import Pattern
from locus.memory.model.parts import Part
from locus.memory.model.records import (
    Base,
    Commit,
    Entry,
    Exported,
    Finding,
    Hit,
    NewestThreads,
    Outcome,
    Stored,
    StoredFormat,
    TaskWrites,
    Write,
)
from locus.memory.model.retention import Copied, OutlivedPage, Place, Retention
from locus.memory.model.sizes import Measured
from locus.memory.runtime.worker import WorkerPool

T = TypeVar("T")


class OpenSearchEngine(
    Engine, CommitsTogether, KeepsWrites, FindsMetadata, Searches, Expires, Copies, Exports, Maintains
):
    """Threads as documents of one index."""

    driver_errors = (Failure,)

    def __init__(
        self,
        config: OpenSearchConfig,
        open_client: Callable[[OpenSearchConfig], Client],
        *,
        connections: int,
        shards: int = 1,
        replicas: int | None = None,
    ) -> None:
        # Import the driver now: a fork while the first request imports it would leave half a module.
        require("opensearchpy", "opensearch")
        self._identity = f"opensearch:{config.shown_hosts}/{config.index}"
        self._shards = shards
        self._replicas = replicas
        self._cache = ThreadCache()
        self._needs_alias = True
        self._pool: WorkerPool[Client] = WorkerPool("locus-opensearch", partial(open_client, config), size=connections)
        self._with_config = partial(
            OpenSearchEngine, open_client=open_client, connections=connections, shards=shards, replicas=replicas
        )
        self._config = config

    @property
    def identity(self) -> str:
        return self._identity

    def _opened_space(self, name: str) -> Engine:
        return self._with_config(replace(self._config, index=f"{self._config.index}--{name}"))

    async def setup(self) -> None:
        if self.reading_only and not await self._pool.run(exists):
            raise self.nothing_there()
        reading = self.reading_only
        self._needs_alias = await self._pool.run(
            lambda client: prepare(client, self._shards, self._replicas, reading=reading)
        )

    async def examine(self) -> list[Finding]:
        return await self._pool.run(findings)

    async def stored_format(self) -> StoredFormat | None:
        return StoredFormat(await self._pool.run(found_format), FORMAT)

    async def _run(self, work: Callable[[Client], T]) -> T:
        def job(client: Client) -> T:
            client.needs_alias = self._needs_alias
            client.may_write = not self.reading_only
            return work(client)

        return await self._pool.run(job)

    async def ask(self, work: Callable[[Client], T]) -> T:
        """Send requests to an index that need not be one of Locus. No index is created for it."""
        try:
            return await self._pool.run(work)
        except Failure as failure:
            raise translated(failure) from failure

    async def _with_log(self, thread_id: str, work: Callable[[Log], T]) -> T:
        return await self._run(lambda client: work(Log(client, self._cache, thread_id)))

    async def commit(self, commit: Commit) -> Outcome:
        return await self._with_log(commit.thread_id, lambda log: commit_to_log(log, commit))

    async def commit_together(self, group: Sequence[Commit | TaskWrites]) -> list[Outcome | None]:
        return await self._run(lambda client: commit_group(client, self._cache, group))

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        return await self._with_log(thread_id, lambda log: read.read_checkpoint(log, namespace, checkpoint_id))

    async def read_part(self, thread_id: str, namespace: str, checkpoint_id: str | None, part: Part) -> Stored | None:
        return await self._with_log(thread_id, lambda log: read.read_checkpoint(log, namespace, checkpoint_id, part))

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        return await self._with_log(thread_id, lambda log: read.read_since(log, namespace, checkpoint_id, held))

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        return await self._with_log(thread_id, lambda log: read.read_entry(log, namespace, checkpoint_id))

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        return await self._with_log(thread_id, lambda log: read.history(log, namespace, limit, before_seq))

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        return await self._run(lambda client: read.list_threads(client, self._cache, pattern, limit))

    async def recent(self, limit: int, prefix: str = "") -> list[Entry]:
        return await self._run(lambda client: read.newest_entries(client, self._cache, limit, prefix=prefix))

    async def newest_threads(self, limit: int, before: str | None = None, prefix: str = "") -> NewestThreads:
        return await self._run(lambda client: read.newest_threads(client, self._cache, limit, before, prefix))

    async def find(self, key: str, value: str, limit: int, prefix: str = "") -> list[Entry]:
        pair = (key, value)
        return await self._run(lambda client: read.newest_entries(client, self._cache, limit, pair, prefix))

    async def search(self, terms: Sequence[str], limit: int, prefix: str = "") -> list[Hit]:
        if prefix:
            return await self._run(lambda client: search.search_within(client, self._cache, terms, limit, prefix))
        return await self._run(lambda client: search.search(client, self._cache, terms, limit))

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        def chosen(record: Record) -> bool:
            return (namespace is None or record.namespace == namespace) and (
                seqs is None or seqs.get(record.seq) == record.rev
            )

        everything = namespace is None and seqs is None
        return await self._with_log(thread_id, lambda log: remove(log, chosen, everything=everything))

    async def put_writes(self, task: TaskWrites) -> None:
        await self._with_log(task.thread_id, lambda log: put_writes(log, task))

    async def get_writes(self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
        return await self._with_log(thread_id, lambda log: get_writes(log, (namespace, checkpoint_id), task_id))

    async def outlived(
        self, retention: Retention, after: str = "", prefix: str = "", limit: int = PAGE
    ) -> AsyncGenerator[OutlivedPage]:
        """List what a vacuum would remove, from threads that have had a checkpoint."""
        while page := await self._run(
            partial(read.outlived_page, cache=self._cache, retention=retention, after=after, prefix=prefix, limit=limit)
        ):
            yield page
            after = page.after

    async def measure(self, thread_id: str) -> Measured | None:
        return await self._with_log(thread_id, read.measure)

    async def delete_orphans(self, thread_id: str, places: Collection[Place]) -> int:
        return await self._with_log(thread_id, lambda log: delete_orphans(log, places))

    async def expire(self, now: datetime) -> int:
        return await self._run(lambda client: expire(client, self._cache, to_micros(now)))

    async def copy(self, source: str, dest: str, copied: Copied) -> int:
        def work(client: Client) -> int:
            source_log, dest_log = (Log(client, self._cache, thread_id) for thread_id in (source, dest))
            return copy(source_log, dest_log, copied)

        return await self._run(work)

    async def export(self, thread_id: str, after_seq: int, limit: int, known: Mapping[str, int]) -> Exported:
        return await self._with_log(thread_id, lambda log: read.export(log, after_seq, known))

    def translate(self, error: BaseException) -> CheckpointError:
        return translated(error)

    async def close(self) -> None:
        self._cache.clear()
        await self._pool.close()
