"""The engine: threads in Redis or Valkey, each step one call of one script.

A save is one round trip, whatever the length of the thread (see `commit`). A removal takes two: it is planned from an
outline of the thread (see `remove`), and a script carries it out if the thread is still at that version.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from redis.asyncio import RedisCluster

from locus.errors import CapabilityError, CheckpointError, ConflictError, CorruptCheckpointError
from locus.memory.backends.redis import scripts
from locus.memory.backends.redis.client import (
    DRIVER_ERRORS,
    RedisClients,
    check_client,
    identity_of,
    new_client,
    translated,
)
from locus.memory.backends.redis.commit import commit_arguments, commit_outcome
from locus.memory.backends.redis.config import MAX_BUCKETS, RedisConfig
from locus.memory.backends.redis.load import held_arguments, part_arguments, to_stored, which_arguments
from locus.memory.backends.redis.read import IndexReader
from locus.memory.backends.redis.remove import ThreadContents, ThreadOutline
from locus.memory.backends.redis.schema import (
    FORMAT,
    Layout,
    history_arguments,
    index_field,
    place,
    to_entries,
    to_entry,
    to_manifest,
    to_writes,
    write_text,
)
from locus.memory.backends.redis.scripts import Script
from locus.memory.backends.redis.search import RedisSearch
from locus.memory.engine import Copies, Engine, Expires, Exports, FindsMetadata, KeepsWrites, Searches
from locus.memory.model.arguments import UNLIMITED
from locus.memory.model.formats import check_format, oldest
from locus.memory.model.ids import Pattern, new_id, shown_thread
from locus.memory.model.parts import Part
from locus.memory.model.records import Base, Commit, Entry, Exported, Hit, Outcome, Stored, Write

_log = logging.getLogger(__name__)

_ATTEMPTS = 100
"""How often a removal is planned again because the thread changed meanwhile."""


class RedisEngine(Engine, KeepsWrites, FindsMetadata, Searches, Expires, Copies, Exports):
    """Threads in a Redis server or cluster. With `search=None`, it asks the server for the Search module."""

    driver_errors = DRIVER_ERRORS

    def __init__(
        self,
        clients: RedisClients,
        *,
        identity: str,
        prefix: str,
        buckets: int,
        ttl_seconds: float | None,
        search: bool | None,
    ) -> None:
        self._clients = clients
        self._identity = identity
        self._layout = Layout(prefix, buckets)
        self._ttl = "" if ttl_seconds is None else str(max(1, int(ttl_seconds * 1000)))
        self._search = search

    @property
    def identity(self) -> str:
        return self._identity

    def offers(self, capability: type) -> bool:
        """Whether the server can search is not known before the first use."""
        return isinstance(self, capability) and (capability is not Searches or self._search is True)

    async def setup(self) -> None:
        """Check the format, and take over the number of buckets. The first process to come decides both."""
        layout = self._layout
        key = layout.format_key
        version, buckets = await self._clients.command("HMGET", key, "version", "buckets")
        if version is None and self.reading_only:
            raise self.nothing_there()
        if version is None:
            await self._clients.run(scripts.WRITE_FORMAT, [key], FORMAT, layout.buckets)
            version, buckets = await self._clients.command("HMGET", key, "version", "buckets")
        try:
            known, count = int(version), int(buckets)
            if not 0 < count <= MAX_BUCKETS:
                raise ValueError("no such number of buckets can be")
            self._layout = Layout(layout.prefix, count)
        except (TypeError, ValueError) as error:
            raise CorruptCheckpointError(f"the key {key!r} in Redis does not say which format this is") from error
        if known > FORMAT:
            (least,) = await self._clients.command("HMGET", key, oldest(self.reading_only))
            number = int(least) if least is not None and least.isdigit() else None
            check_format(known, FORMAT, number, f"the threads under {layout.prefix!r} are in")
        elif known < FORMAT and not self.reading_only:
            await self._clients.run(scripts.WRITE_FORMAT, [key], FORMAT, layout.buckets)
        policy = await self._clients.evicts()
        if policy is not None:
            _log.warning(
                "Redis throws keys away when it is full (maxmemory-policy is %s), and threads with them: set it to "
                "noeviction for %s",
                policy,
                self._identity,
            )
        if self._search is None:
            self._search = await self._searcher().is_available()

    def _keys(self, thread_id: str) -> list[bytes]:
        return self._layout.thread_keys(thread_id)

    async def _run(self, script: Script, thread_id: str, *arguments: Any) -> Any:
        answer = await self._clients.run(script, self._keys(thread_id), *arguments)
        _check_complete(thread_id, answer)
        return answer

    async def commit(self, commit: Commit) -> Outcome:
        keys = self._keys(commit.thread_id)
        for _ in range(_ATTEMPTS):
            arguments = commit_arguments(commit) if commit.replaces is None else await self._replacing_arguments(commit)
            answer = await self._clients.run(scripts.COMMIT, keys, *arguments)
            if answer[0] != b"MOVED":
                _check_complete(commit.thread_id, answer)
                return commit_outcome(answer)
        raise _overtaken(commit.thread_id)

    async def _replacing_arguments(self, commit: Commit) -> list[Any]:
        outline = await self._outline(commit.thread_id)
        # If that is another one than the commit may replace, the script refuses.
        doomed = {
            seq
            for seq, entry in outline.entries.items()
            if (entry.namespace, entry.checkpoint_id) == (commit.namespace, commit.checkpoint_id)
        }
        return commit_arguments(commit, outline.removal_arguments(doomed, replacement=commit), outline.version)

    async def _outline(self, thread_id: str) -> ThreadOutline:
        return ThreadOutline(thread_id, await self._run(scripts.OUTLINE, thread_id))

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        which = which_arguments(namespace, checkpoint_id)
        return to_stored(thread_id, await self._run(scripts.READ, thread_id, *which))

    async def read_part(self, thread_id: str, namespace: str, checkpoint_id: str | None, part: Part) -> Stored | None:
        which = which_arguments(namespace, checkpoint_id)
        answer = await self._run(scripts.READ_PART, thread_id, *which, *part_arguments(part))
        return to_stored(thread_id, answer, part=part)

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        which = which_arguments(namespace, checkpoint_id)
        answer = await self._run(scripts.READ_SINCE, thread_id, *which, *held_arguments(namespace, held))
        return to_stored(thread_id, answer, held=held)

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        answer = await self._run(scripts.ENTRY, thread_id, *which_arguments(namespace, checkpoint_id))
        return to_entry(thread_id, *answer) if answer else None

    async def manifest(self, thread_id: str, namespace: str, checkpoint_id: str) -> tuple[str, str] | None:
        answer = await self._run(scripts.MANIFEST, thread_id, index_field(namespace, checkpoint_id))
        return to_manifest(thread_id, *answer) if answer else None

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        answer = await self._run(scripts.HISTORY, thread_id, *history_arguments(namespace, limit, before_seq))
        return to_entries(thread_id, answer)

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        return await self._index().threads(pattern, UNLIMITED if limit is None else limit)

    async def recent(self, limit: int, prefix: str = "") -> list[Entry]:
        return await self._index().recent(limit, prefix)

    async def find(self, key: str, value: str, limit: int, prefix: str = "") -> list[Entry]:
        return await self._index().find(key, value, limit, prefix)

    def _index(self) -> IndexReader:
        return IndexReader(self._clients, self._layout, clean=not self.reading_only)

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        if namespace is None and seqs is None:
            return await self._delete_thread(thread_id)
        maybe_removed: set[int] = set()
        for _ in range(_ATTEMPTS):
            outline = await self._outline(thread_id)
            doomed = outline.select(namespace, seqs)
            if not doomed:
                return len(maybe_removed)
            everything = len(doomed) == len(outline.entries)
            plan = ["all"] if everything else ["some", *outline.removal_arguments(doomed)]
            removed, repeated = await self._clients.run_reporting_repeats(
                scripts.REMOVE, self._keys(thread_id), thread_id, outline.version, *plan
            )
            if removed >= 0:
                return int(removed)
            # An answer was lost. What is gone at the next look may have been removed by this call.
            maybe_removed = doomed if repeated else set()
        raise _overtaken(thread_id)

    async def _delete_thread(self, thread_id: str) -> int:
        keys = self._keys(thread_id)
        there = await self._clients.command("ZCARD", keys[1])
        removed, repeated = await self._clients.run_reporting_repeats(scripts.REMOVE, keys, thread_id, "", "all")
        return int(there) if repeated and not removed else int(removed)

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
        fresh = b"".join(map(write_text, {write.idx: write for write in writes}.values()))
        where, keep = place(namespace, checkpoint_id), "1" if keep_numbered else ""
        await self._run(scripts.PUT_WRITES, thread_id, where, task_id, fresh, self._ttl, keep)

    async def get_writes(self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
        answer = await self._run(scripts.GET_WRITES, thread_id, place(namespace, checkpoint_id), task_id or "")
        try:
            found = [write for at in range(0, len(answer), 2) for write in to_writes(answer[at], answer[at + 1])]
        except (ValueError, IndexError):
            raise CorruptCheckpointError(f"pending writes of {shown_thread(thread_id)} cannot be read") from None
        return sorted(found, key=lambda write: (write.task_path, write.task_id, write.idx))

    async def expire(self, now: datetime) -> int:
        """Redis removes expired threads by itself. This removes what is left of them in the index."""
        await self._index().sweep()
        return 0

    async def copy(self, source: str, dest: str, namespace: str | None, checkpoint_ids: Collection[str] | None) -> int:
        answer = await self._run(scripts.CONTENTS, source)
        if not answer:
            return 0
        count, arguments = ThreadContents(answer).copy_arguments(dest, new_id(), namespace, checkpoint_ids)
        if not count:
            return 0
        created = await self._clients.run(scripts.CREATE, self._keys(dest), *arguments)
        if created < 0:
            raise _damaged(dest)
        return count if created else -1

    async def export(self, thread_id: str, after_seq: int, limit: int, known: Mapping[str, int]) -> Exported:
        answer = await self._run(scripts.CONTENTS, thread_id)
        return ThreadContents(answer).export(thread_id, after_seq, known) if answer else Exported([], [])

    async def search(self, terms: Sequence[str], limit: int, prefix: str = "") -> list[Hit]:
        if not self._search:
            raise CapabilityError(
                "this Redis server has no Search module, or search=False was said: Redis 8 and Redis Stack have it"
            )
        if prefix:
            newest_first = await self._index().threads_newest_first(prefix)
            return await self._searcher().search_within(terms, limit, prefix, newest_first)
        return await self._searcher().search(terms, limit)

    def _searcher(self) -> RedisSearch:
        return RedisSearch(self._clients, self._layout)

    def translate(self, error: BaseException) -> CheckpointError:
        return translated(error)

    async def close(self) -> None:
        await self._clients.close()


def _check_complete(thread_id: str, answer: Any) -> None:
    if isinstance(answer, list) and answer[:1] == [b"DAMAGED"]:
        raise _damaged(thread_id)
    if isinstance(answer, list) and answer[:1] == [b"TOO_LONG"]:
        raise CorruptCheckpointError(f"a checkpoint of {shown_thread(thread_id)} names more than can be read at once")


def _damaged(thread_id: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"keys of {shown_thread(thread_id)} are gone from Redis before their time: they were evicted (maxmemory-policy "
        "must be noeviction) or removed by hand. delete() removes the rest"
    )


def _overtaken(thread_id: str) -> ConflictError:
    return ConflictError(f"thread {thread_id!r} is changed by others faster than this step can follow; try again")


def open_engine(config: RedisConfig, client: Any = None) -> RedisEngine:
    """The engine for a config, or for the database that the caller's client is connected to."""
    if client is not None:
        check_client(client)
    return RedisEngine(
        RedisClients(
            lambda: new_client(config),
            shared=client,
            retries=config.retries,
            timeout=config.timeout,
            at_once=config.max_connections,
        ),
        identity=identity_of(config, client),
        prefix=config.prefix,
        buckets=config.buckets,
        ttl_seconds=config.ttl_seconds,
        search=False if isinstance(client, RedisCluster) else config.search,
    )
