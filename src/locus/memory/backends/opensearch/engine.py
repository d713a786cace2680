"""OpenSearch: threads as documents of one index, on a server that others search in, too.

The layout, and how writers keep out of each other's way, is told in `opensearch_layout`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from locus.errors import CheckpointError
from locus.extras import require
from locus.memory.backends.opensearch import read as queries
from locus.memory.backends.opensearch.client import Client, Failure, give_way, translated
from locus.memory.backends.opensearch.commit import commit_in, put_writes
from locus.memory.backends.opensearch.config import OpenSearchConfig
from locus.memory.backends.opensearch.index import exists, prepare
from locus.memory.backends.opensearch.log import Log, Memories
from locus.memory.backends.opensearch.read import export, load, whole_or_corrupt
from locus.memory.backends.opensearch.remove import copy, expire, remove
from locus.memory.backends.opensearch.schema import micros
from locus.memory.backends.opensearch.writes import get_writes
from locus.memory.engine import (
    Copies,
    Engine,
    Expires,
    Exports,
    FindsMetadata,
    KeepsWrites,
    Searches,
)
from locus.memory.model.ids import Pattern
from locus.memory.model.records import (
    Commit,
    Entry,
    Exported,
    Hit,
    Outcome,
    Stored,
    Write,
)
from locus.memory.runtime.worker import WorkerPool

T = TypeVar("T")


class OpenSearchEngine(Engine, KeepsWrites, FindsMetadata, Searches, Expires, Copies, Exports):
    """Threads in an index. What blocks runs on threads of its own, each with a connection."""

    driver_errors = (Failure,)

    def __init__(
        self,
        config: OpenSearchConfig,
        open_client: Callable[[], Client],
        *,
        connections: int,
        shards: int = 1,
        replicas: int | None = None,
    ) -> None:
        # Here, and not with the first request: a fork in the middle of an import would leave half a module.
        require("opensearchpy", "opensearch")
        self._identity = f"opensearch:{config.shown_hosts}/{config.index}"
        self._shape = (shards, replicas)
        self._memories = Memories()
        self._needs_alias = True
        self._pool: WorkerPool[Client] = WorkerPool("locus-opensearch", open_client, size=connections)

    @property
    def identity(self) -> str:
        return self._identity

    async def setup(self) -> None:
        if self.reading_only and not await self._pool.run(exists):
            raise self.nothing_there()
        self._needs_alias = await self._pool.run(lambda client: prepare(client, *self._shape))

    async def _run(self, work: Callable[[Client], T]) -> T:
        def job(client: Client) -> T:
            client.needs_alias = self._needs_alias
            return work(client)

        return await self._pool.run(job)

    async def ask(self, work: Callable[[Client], T]) -> T:
        """Requests of one's own, to an index that need not be ours. Nothing is set up for it."""
        try:
            return await self._pool.run(work)
        except Failure as failure:
            raise translated(failure) from failure

    async def _with_log(self, thread_id: str, work: Callable[[Log], T]) -> T:
        return await self._run(lambda client: work(Log(client, self._memories, thread_id)))

    async def commit(self, commit: Commit) -> Outcome:
        return await self._with_log(commit.thread_id, lambda log: commit_in(log, commit))

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        def work(log: Log) -> Stored | None:
            def read() -> Stored | None:
                record = _found(log, namespace, checkpoint_id, light=False)
                return None if record is None else load(log, record)

            return whole_or_corrupt(log, read)

        return await self._with_log(thread_id, work)

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        def work(log: Log) -> Entry | None:
            record = whole_or_corrupt(log, lambda: _found(log, namespace, checkpoint_id, light=True))
            return None if record is None else record.entry(thread_id)

        return await self._with_log(thread_id, work)

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        def work(log: Log) -> list[Entry]:
            for attempt in range(20):
                found = queries.history(log, namespace, limit, before_seq)
                if found is not None:
                    return found
                give_way(attempt)
            raise Failure(409, "too many writers", "the thread changes faster than it can be listed")

        return await self._with_log(thread_id, work)

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        return await self._run(lambda client: queries.list_threads(client, self._memories, pattern, limit))

    async def recent(self, limit: int) -> list[Entry]:
        return await self._run(lambda client: queries.newest(client, self._memories, limit))

    async def find(self, key: str, value: str, limit: int) -> list[Entry]:
        return await self._run(lambda client: queries.newest(client, self._memories, limit, (key, value)))

    async def search(self, terms: Sequence[str], limit: int) -> list[Hit]:
        return await self._run(lambda client: queries.search(client, self._memories, terms, limit))

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        def work(log: Log) -> int:
            return remove(
                log,
                lambda record: (
                    (namespace is None or record.namespace == namespace)
                    and (seqs is None or seqs.get(record.seq) == record.rev)
                ),
                everything=namespace is None and seqs is None,
            )

        return await self._with_log(thread_id, work)

    async def put_writes(
        self,
        thread_id: str,
        namespace: str,
        checkpoint_id: str,
        task_id: str,
        writes: Sequence[Write],
        *,
        keep_numbered: bool = False,
    ) -> None:
        place = (namespace, checkpoint_id, task_id)
        await self._with_log(thread_id, lambda log: put_writes(log, place, writes, keep_numbered))

    async def get_writes(self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
        return await self._with_log(thread_id, lambda log: get_writes(log, namespace, checkpoint_id, task_id))

    async def expire(self, now: datetime) -> int:
        return await self._run(lambda client: expire(client, self._memories, micros(now)))

    async def copy(self, source: str, dest: str, namespace: str | None, checkpoint_ids: Collection[str] | None) -> int:
        def work(client: Client) -> int:
            logs = [Log(client, self._memories, thread_id) for thread_id in (source, dest)]
            return copy(logs[0], logs[1], namespace, checkpoint_ids)

        return await self._run(work)

    async def export(self, thread_id: str, after_seq: int, limit: int, known: Mapping[str, int]) -> Exported:
        return await self._with_log(thread_id, lambda log: export(log, after_seq, known))

    def translate(self, error: BaseException) -> CheckpointError:
        return translated(error)

    async def close(self) -> None:
        self._memories.clear()
        await self._pool.close()


def _found(log: Log, namespace: str, checkpoint_id: str | None, *, light: bool) -> Any:
    if checkpoint_id is None:
        log.look(latest=namespace, light=light)
        return log.latest(namespace)
    log.look(names=[(namespace, checkpoint_id)], light=light)
    return log.find(namespace, checkpoint_id)
