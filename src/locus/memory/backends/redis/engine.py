"""Threads in Redis or Valkey: a save is one call of one script, whatever the length of the thread.

The keys are shown in `redis_records`. What `decisions.decide` says is decided inside the script COMMIT, so an ordinary
save is one round trip. Removing checkpoints is planned here, from a survey of the thread, and carried out by a script
that first makes sure that the thread is still as it was surveyed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from redis.asyncio import RedisCluster

from locus.errors import CapabilityError, CheckpointError, ConflictError, CorruptCheckpointError, UnsupportedFormatError
from locus.memory.backends.redis import scripts
from locus.memory.backends.redis.client import (
    DRIVER_ERRORS,
    RedisClients,
    check_client,
    identity_of,
    new_client,
    translated,
)
from locus.memory.backends.redis.commit import commit_arguments
from locus.memory.backends.redis.config import RedisLocation
from locus.memory.backends.redis.read import Listing
from locus.memory.backends.redis.remove import Dump, Survey
from locus.memory.backends.redis.schema import (
    FORMAT,
    Layout,
    history_arguments,
    index_field,
    place,
    to_entries,
    to_entry,
    to_stored,
    to_writes,
    write_text,
)
from locus.memory.backends.redis.scripts import Script
from locus.memory.backends.redis.search import RedisSearch
from locus.memory.engine import (
    Copies,
    Engine,
    Expires,
    Exports,
    FindsMetadata,
    KeepsWrites,
    Searches,
)
from locus.memory.model.arguments import UNLIMITED
from locus.memory.model.ids import Pattern, new_id
from locus.memory.model.records import (
    Commit,
    Entry,
    Exported,
    Hit,
    Outcome,
    Stored,
    Verdict,
    Write,
)

_ATTEMPTS = 100
"""Times that a removal is planned anew because the thread was changed meanwhile."""


class RedisEngine(Engine, KeepsWrites, FindsMetadata, Searches, Expires, Copies, Exports):
    """Threads in a Redis server or cluster. `search` is None where the server is to be asked for the Search module."""

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
        """Search is there if the server has its module, which is not known before the first use."""
        return isinstance(self, capability) and (capability is not Searches or self._search is True)

    async def setup(self) -> None:
        """Agree with all others on the format and on the number of buckets."""
        layout = self._layout
        key = f"{layout.prefix}format"
        version, buckets = await self._clients.command("HMGET", key, "version", "buckets")
        if version is None and self.reading_only:
            raise self.nothing_there()
        if version is None:
            await self._clients.run(scripts.WRITE_FORMAT, [key], FORMAT, layout.buckets)
            version, buckets = await self._clients.command("HMGET", key, "version", "buckets")
        try:
            known, self._layout = int(version), Layout(layout.prefix, int(buckets))
        except (TypeError, ValueError) as error:
            raise CorruptCheckpointError(f"the key {key!r} in Redis does not say which format this is") from error
        if known > FORMAT:
            raise UnsupportedFormatError(
                f"the threads under {layout.prefix!r} are in format {known}, and this version of Locus knows {FORMAT}: "
                "upgrade locus-sdk"
            )
        if self._search is None:
            self._search = await self._searcher().is_available()

    def _keys(self, thread_id: str) -> list[bytes]:
        return self._layout.thread_keys(thread_id)

    async def _run(self, script: Script, thread_id: str, *arguments: Any) -> Any:
        answer = await self._clients.run(script, self._keys(thread_id), *arguments)
        _check(thread_id, answer)
        return answer

    async def commit(self, commit: Commit) -> Outcome:
        keys = self._keys(commit.thread_id)
        for _ in range(_ATTEMPTS):
            arguments = commit_arguments(commit) if commit.replaces is None else await self._replacing(commit)
            answer = await self._clients.run(scripts.COMMIT, keys, *arguments)
            if answer[0] != b"MOVED":
                _check(commit.thread_id, answer)
                return _outcome(answer)
        raise _overtaken(commit.thread_id)

    async def _replacing(self, commit: Commit) -> list[Any]:
        survey = await self._survey(commit.thread_id)
        doomed = {
            seq
            for seq, entry in survey.entries.items()
            if entry.rev == commit.replaces
            and (entry.namespace, entry.checkpoint_id) == (commit.namespace, commit.checkpoint_id)
        }
        return commit_arguments(commit, survey.removal(doomed, spare=commit), survey.version)

    async def _survey(self, thread_id: str) -> Survey:
        return Survey(thread_id, await self._run(scripts.OUTLINE, thread_id))

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        answer = await self._run(scripts.READ, thread_id, namespace, _field(namespace, checkpoint_id))
        return to_stored(thread_id, answer) if answer else None

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        answer = await self._run(scripts.ENTRY, thread_id, namespace, _field(namespace, checkpoint_id))
        return to_entry(thread_id, *answer) if answer else None

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        answer = await self._run(scripts.HISTORY, thread_id, *history_arguments(namespace, limit, before_seq))
        return to_entries(thread_id, answer)

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        return await self._listing().threads(pattern, UNLIMITED if limit is None else limit)

    async def recent(self, limit: int) -> list[Entry]:
        return await self._listing().recent(limit)

    async def find(self, key: str, value: str, limit: int) -> list[Entry]:
        return await self._listing().find(key, value, limit)

    def _listing(self) -> Listing:
        return Listing(self._clients, self._layout, tidy=not self.reading_only)

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        if namespace is None and seqs is None:
            return await self._delete_thread(thread_id)
        doubtful: set[int] = set()
        for _ in range(_ATTEMPTS):
            survey = await self._survey(thread_id)
            doomed = survey.chosen(namespace, seqs)
            if not doomed:
                return len(doubtful)
            everything = len(doomed) == len(survey.entries)
            plan = ["all"] if everything else ["some", *survey.removal(doomed)]
            removed, again = await self._clients.run_once(
                scripts.REMOVE, self._keys(thread_id), thread_id, survey.version, *plan
            )
            if removed >= 0:
                return int(removed)
            # An answer was lost, so what is gone when the thread is looked at again may have been removed here.
            doubtful = doomed if again else set()
        raise _overtaken(thread_id)

    async def _delete_thread(self, thread_id: str) -> int:
        keys = self._keys(thread_id)
        there = await self._clients.command("ZCARD", keys[1])
        removed, again = await self._clients.run_once(scripts.REMOVE, keys, thread_id, "", "all")
        return int(there) if again and not removed else int(removed)

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
        except (ValueError, IndexError) as error:
            raise CorruptCheckpointError(f"pending writes of thread {thread_id!r} cannot be read: {error}") from error
        return sorted(found, key=lambda write: (write.task_path, write.task_id, write.idx))

    async def expire(self, now: datetime) -> int:
        """Redis removes threads by itself when their time has come; here their traces in the index go."""
        await self._listing().sweep()
        return 0

    async def copy(self, source: str, dest: str, namespace: str | None, checkpoint_ids: Collection[str] | None) -> int:
        answer = await self._run(scripts.CONTENTS, source)
        if not answer:
            return 0
        count, arguments = Dump(answer).copied(dest, new_id(), namespace, checkpoint_ids)
        if not count:
            return 0
        created = await self._clients.run(scripts.CREATE, self._keys(dest), *arguments)
        if created < 0:
            raise _incomplete(dest)
        return count if created else -1

    async def export(self, thread_id: str, after_seq: int, limit: int, known: Mapping[str, int]) -> Exported:
        answer = await self._run(scripts.CONTENTS, thread_id)
        return Dump(answer).exported(thread_id, after_seq, known) if answer else Exported([], [])

    async def search(self, terms: Sequence[str], limit: int) -> list[Hit]:
        if not self._search:
            raise CapabilityError(
                "this Redis server has no Search module, or search=False was said: Redis 8 and Redis Stack have it"
            )
        return await self._searcher().search(terms, limit)

    def _searcher(self) -> RedisSearch:
        return RedisSearch(self._clients, self._layout)

    def translate(self, error: BaseException) -> CheckpointError:
        return translated(error)

    async def close(self) -> None:
        await self._clients.close()


_VERDICTS = {verdict.name.encode(): verdict for verdict in Verdict}


def _outcome(answer: Sequence[Any]) -> Outcome:
    verdict, *rest = answer
    if verdict in (b"COMMITTED", b"REPEATED"):
        seq, parent = rest
        parent_id = None if parent is None else parent.decode()
        return Outcome(Verdict.COMMITTED, int(seq), parent_id, repeated=verdict == b"REPEATED")
    latest = rest[0].decode() if rest and rest[0] is not None else None
    return Outcome(_VERDICTS[verdict], latest=latest)


def _field(namespace: str, checkpoint_id: str | None) -> bytes:
    return b"" if checkpoint_id is None else index_field(namespace, checkpoint_id)


def _check(thread_id: str, answer: Any) -> None:
    if isinstance(answer, list) and answer[:1] == [b"DAMAGED"]:
        raise _incomplete(thread_id)


def _incomplete(thread_id: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"some of the keys of thread {thread_id!r} are gone from Redis, and others are there: they were evicted "
        "(maxmemory-policy must be noeviction) or removed by hand. delete() removes the rest"
    )


def _overtaken(thread_id: str) -> ConflictError:
    return ConflictError(f"thread {thread_id!r} is changed by others faster than this step can follow; try again")


def opened(location: RedisLocation, client: Any = None) -> RedisEngine:
    """The engine for a location, or for the database that a client is connected to."""
    if client is not None:
        check_client(client)
    return RedisEngine(
        RedisClients(
            lambda: new_client(location),
            shared=client,
            retries=location.retries,
            timeout=location.timeout,
            at_once=location.max_connections,
        ),
        identity=identity_of(location, client),
        prefix=location.prefix,
        buckets=location.buckets,
        ttl_seconds=location.ttl_seconds,
        search=False if isinstance(client, RedisCluster) else location.search,
    )
