"""The engine for Redis and Valkey: each step is one call of one script.

A save is one round trip, whatever the length of the thread (see `commit`), and so are many saves that go together, each
in a script of its own. A removal takes two: it is planned from an outline of the thread (see `remove`), and a script
carries it out if the thread is still at that version.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from redis.asyncio import RedisCluster
from redis.exceptions import NoPermissionError

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
from locus.memory.backends.redis.commit import commit_arguments, commit_outcome, outcome_together
from locus.memory.backends.redis.config import MAX_BUCKETS, RedisConfig
from locus.memory.backends.redis.examine import findings, index_findings
from locus.memory.backends.redis.load import (
    ManyRuns,
    held_arguments,
    is_many,
    part_arguments,
    to_stored,
    which_arguments,
)
from locus.memory.backends.redis.portions import ATTEMPTS, MOST_RUNS, scan_runs, was_removed_from, with_headers
from locus.memory.backends.redis.read import IndexReader
from locus.memory.backends.redis.remove import ThreadContents, ThreadOutline
from locus.memory.backends.redis.replicas import Replicas
from locus.memory.backends.redis.schema import (
    FORMAT,
    Layout,
    check_buckets,
    format_arguments,
    history_arguments,
    index_field,
    is_asked,
    net,
    place,
    to_ancestors,
    to_entry,
    to_history,
    to_manifest,
    to_measured,
    to_orphans,
    to_task_writes,
    write_text,
)
from locus.memory.backends.redis.scripts import Script, ScriptCall
from locus.memory.backends.redis.search import RedisSearch
from locus.memory.engine import (
    PAGE,
    CommitsTogether,
    ConfirmsDeletions,
    Copies,
    Engine,
    Expires,
    Exports,
    FindsMetadata,
    KeepsWrites,
    Maintains,
    Searches,
)
from locus.memory.model.arguments import UNLIMITED
from locus.memory.model.foreign import SDK_PREFIXES
from locus.memory.model.formats import check_format, oldest
from locus.memory.model.ids import Pattern, new_id, shown_thread
from locus.memory.model.manifest import newest_runs
from locus.memory.model.parts import Part
from locus.memory.model.records import (
    Ancestor,
    AncestorQuery,
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
from locus.memory.model.retention import Copied, Outlived, OutlivedPage, Place, Retention, orphaned, outlived_in
from locus.memory.model.sizes import Measured
from locus.memory.model.trimming import MOST_ROWS

_log = logging.getLogger(__name__)

T = TypeVar("T")

_AT_ONCE = 64
"""The number of threads that are asked in one round trip."""

_MOST_PAGES = 50
"""The number of pages of keys that are looked at to find out whether another library keeps its threads here."""


class RedisEngine(
    Engine,
    CommitsTogether,
    KeepsWrites,
    FindsMetadata,
    Searches,
    Expires,
    Copies,
    Exports,
    Maintains,
    ConfirmsDeletions,
):
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
        self._asked_search = search
        self._ttl = "" if ttl_seconds is None else str(max(1, int(ttl_seconds * 1000)))
        self._search = search

    @property
    def identity(self) -> str:
        return self._identity

    def offers(self, capability: type) -> bool:
        """Tell whether the store has a capability. Whether the server can search is known after the first use."""
        return isinstance(self, capability) and (capability is not Searches or self._search is True)

    def _opened_space(self, name: str) -> Engine:
        return RedisEngine(
            self._clients,
            identity=f"{self._identity}@{name}",
            prefix=f"{self._layout.prefix}@{name}:",
            buckets=self._layout.buckets,
            ttl_seconds=None,
            search=self._asked_search,
        )

    async def setup(self) -> None:
        """Check the format, and take over the number of buckets. The first process to come decides both."""
        layout = self._layout
        key = layout.format_key
        version, buckets, check = await self._clients.command("HMGET", key, "version", "buckets", "check")
        if version is None:
            self.check_foreign(await self._foreign_kind())
            if self.reading_only:
                raise self.nothing_there()
            await self._clients.run(scripts.WRITE_FORMAT, [key], *format_arguments(layout.buckets))
            version, buckets, check = await self._clients.command("HMGET", key, "version", "buckets", "check")
        try:
            known, count = int(version), int(buckets)
            if not 0 < count <= MAX_BUCKETS:
                raise ValueError("no such number of buckets can be")
            check_buckets(count, known, check)
            self._layout = Layout(layout.prefix, count)
        except (TypeError, ValueError) as error:
            raise CorruptCheckpointError(f"the key {key!r} in Redis does not say which format this is") from error
        if known > FORMAT:
            (least,) = await self._clients.command("HMGET", key, oldest(self.reading_only))
            number = int(least) if least is not None and least.isdigit() else None
            check_format(known, FORMAT, number, f"the threads under {layout.prefix!r} are in")
        elif known < FORMAT and not self.reading_only:
            await self._clients.run(scripts.WRITE_FORMAT, [key], *format_arguments(count))
        if self._clients.is_cluster:
            # Whoever wrote it may have failed to reach its replicas. On a single server, a save comes after it.
            self._clients.needed_first = key
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

    async def _foreign_kind(self) -> str | None:
        """Look for keys of locus-sdk under the prefix of this store, among the first of a server's."""
        prefix = self._layout.prefix
        if self._clients.is_cluster or prefix not in SDK_PREFIXES:
            return None
        cursor = b"0"
        try:
            for _ in range(_MOST_PAGES):
                cursor, keys = await self._clients.command("SCAN", cursor, "MATCH", f"{prefix}*", "COUNT", 1_000)
                for key in keys:
                    if await self._clients.command("TYPE", key) == b"string":
                        return "locus-sdk"
                if int(cursor) == 0:
                    break
        except NoPermissionError:
            # A store needs neither right, and its documented user has none. So it opens, and says what it did not see.
            _log.warning(
                "whether %s has threads of locus-sdk is not known: this user may not look (SCAN, TYPE)", self._identity
            )
            return None
        return None

    async def examine(self) -> list[Finding]:
        return await findings(self._clients)

    async def examine_indexes(self) -> list[Finding]:
        return await index_findings(self._clients, self._layout)

    async def stored_format(self) -> StoredFormat | None:
        (version,) = await self._clients.command("HMGET", self._layout.format_key, "version")
        return StoredFormat(int(version) if version is not None and version.isdigit() else 0, FORMAT)

    def _keys(self, thread_id: str) -> list[bytes]:
        return self._layout.thread_keys(thread_id)

    async def _run(self, script: Script, thread_id: str, *arguments: Any) -> Any:
        answer = await self._clients.run(script, self._keys(thread_id), *arguments)
        _check_complete(thread_id, answer)
        return answer

    async def commit(self, commit: Commit) -> Outcome:
        keys = self._keys(commit.thread_id)
        for _ in range(ATTEMPTS):
            outline = None if commit.replaces is None else await self._outline(commit.thread_id)
            arguments = commit_arguments(commit) if outline is None else _replacing_arguments(outline, commit)
            answer = await self._clients.run(scripts.COMMIT, keys, *arguments)
            if answer != [b"MOVED"]:
                _check_complete(commit.thread_id, answer)
                await self._after_replacing(outline)
                return commit_outcome(commit, answer)
        raise _overtaken(commit.thread_id)

    async def commit_together(self, group: Sequence[Commit | TaskWrites]) -> list[Outcome | None]:
        """Send all members in one round trip; in a cluster, in one for each node.

        Members that replace a checkpoint go alone.
        """
        # Redis can tell of each step whether it was done before, so one that failed may be answered with None, too:
        # sent alone, it raises its error.
        calls = [self._call(member) for member in group]
        answers = iter(await self._clients.run_each([call for call in calls if call is not None]))
        return [
            None if call is None else outcome_together(member, next(answers))
            for member, call in zip(group, calls, strict=True)
        ]

    def _call(self, member: Commit | TaskWrites) -> ScriptCall | None:
        """The script that does all of a step; None if the thread has to be read first."""
        keys = self._keys(member.thread_id)
        if isinstance(member, TaskWrites):
            return ScriptCall(scripts.PUT_WRITES, keys, self._write_arguments(member))
        return None if member.replaces is not None else ScriptCall(scripts.COMMIT, keys, commit_arguments(member))

    async def _outline(self, thread_id: str) -> ThreadOutline:
        answer = await self._with_headers(scripts.OUTLINE, thread_id, slice(4, 6))
        return await _apart(len(answer[4]), partial(ThreadOutline, thread_id, answer))

    async def _with_headers(self, script: Script, thread_id: str, place: slice) -> Any:
        """Run OUTLINE or MEASURE. If the thread has very many runs, read about them in portions."""
        answer = await self._run(script, thread_id)
        if answer:
            answer = await with_headers(self._clients, self._keys(thread_id), script, place, answer)
            _check_complete(thread_id, answer)
        return answer

    async def _contents(self, thread_id: str) -> Any:
        """Run CONTENTS. If the thread has very many runs, read them in portions."""
        for _ in range(ATTEMPTS):
            answer = await self._run(scripts.CONTENTS, thread_id)
            if not answer:
                return answer
            *answer, version = answer
            if not version:
                return answer
            found: dict[bytes, bytes] = {}
            await scan_runs(self._clients, self._keys(thread_id), found.update)
            if not await was_removed_from(self._clients, self._keys(thread_id), version):
                answer[5] = [part for field in found.items() for part in field]
                return answer
        raise _overtaken(thread_id)

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        return await self._load(scripts.READ, (thread_id, namespace, checkpoint_id))

    async def read_part(self, thread_id: str, namespace: str, checkpoint_id: str | None, part: Part) -> Stored | None:
        return await self._load(
            scripts.READ_PART, (thread_id, namespace, checkpoint_id), *part_arguments(part), part=part
        )

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        return await self._load(
            scripts.READ_SINCE, (thread_id, namespace, checkpoint_id), *held_arguments(namespace, held), held=held
        )

    async def _load(
        self,
        script: Script,
        place: tuple[str, str, str | None],
        *arguments: Any,
        part: Part | None = None,
        held: Base | None = None,
    ) -> Stored | None:
        thread_id, namespace, checkpoint_id = place
        for _ in range(ATTEMPTS):
            answer = await self._run(script, thread_id, *which_arguments(namespace, checkpoint_id), *arguments)
            if not is_many(answer):
                stored = to_stored(thread_id, answer, part, held)
                if stored is not None:
                    is_asked(stored.entry, namespace, checkpoint_id)
                return stored
            found = ManyRuns(thread_id, answer)
            await scan_runs(self._clients, self._keys(thread_id), found.add)
            # As long as the checkpoint is there, so are its runs: a scan gives all that are there from begin to end.
            now = await self.entry(thread_id, namespace, found.entry.checkpoint_id)
            if now is not None and (now.seq, now.rev) == (found.entry.seq, found.entry.rev):
                return found.stored(part)
        raise _overtaken(thread_id)

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        answer = await self._run(scripts.ENTRY, thread_id, *which_arguments(namespace, checkpoint_id))
        return is_asked(to_entry(thread_id, *answer), namespace, checkpoint_id) if answer else None

    async def manifest(self, thread_id: str, namespace: str, checkpoint_id: str) -> tuple[str, str] | None:
        answer = await self._run(scripts.MANIFEST, thread_id, index_field(namespace, checkpoint_id))
        return to_manifest(thread_id, namespace, checkpoint_id, answer) if answer else None

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        answer = await self._run(scripts.HISTORY, thread_id, *history_arguments(namespace, limit, before_seq))
        return to_history(thread_id, answer, namespace, limit, before_seq)

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        return await self._index().threads(pattern, UNLIMITED if limit is None else limit)

    async def recent(self, limit: int, prefix: str = "") -> list[Entry]:
        return await self._index().recent(limit, prefix)

    async def newest_threads(self, limit: int, before: str | None = None, prefix: str = "") -> NewestThreads:
        return await self._index().newest_threads(limit, before, prefix)

    async def find(self, key: str, value: str, limit: int, prefix: str = "") -> list[Entry]:
        return await self._index().find(key, value, limit, prefix)

    def _index(self) -> IndexReader:
        return IndexReader(self._clients, self._layout, clean=not self.reading_only)

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        if namespace is None and seqs is None:
            return await self._delete_thread(thread_id)
        maybe_removed: set[int] = set()
        for _ in range(ATTEMPTS):
            outline = await self._outline(thread_id)
            doomed = outline.select(namespace, seqs)
            if not doomed:
                await self.confirm(thread_id)
                return len(maybe_removed)
            everything = len(doomed) == len(outline.entries)
            planned = partial(outline.removal_arguments, doomed)
            plan = ["all"] if everything else ["some", *await _apart(len(outline.runs), planned)]
            removed, repeated = await self._clients.run_reporting_repeats(
                scripts.REMOVE, self._keys(thread_id), thread_id, outline.version, *plan
            )
            if removed >= 0:
                if outline.leaves_runs:
                    outline.was_removed(doomed)
                    await self._remove_leftovers(thread_id, outline)
                return int(removed)
            # An answer was lost. What is gone at the next look may have been removed by this call.
            maybe_removed = doomed if repeated else set()
        raise _overtaken(thread_id)

    async def _remove_leftovers(self, thread_id: str, outline: ThreadOutline | None = None) -> None:
        """Remove the runs that nothing needs any more. If others change the thread meanwhile, look at it again."""
        for _ in range(ATTEMPTS):
            known = outline or await self._outline(thread_id)
            plans = known.leftovers()
            while plan := await asyncio.to_thread(next, plans, None):
                removed, _ = await self._clients.run_reporting_repeats(
                    scripts.REMOVE, self._keys(thread_id), thread_id, known.version, "some", *plan
                )
                if removed < 0:
                    outline = None
                    break
            else:
                return
        raise _overtaken(thread_id)

    async def _after_replacing(self, outline: ThreadOutline | None) -> None:
        """Remove the runs that a commit has left of a checkpoint that it replaced."""
        if outline is not None and outline.leaves_runs:
            await self._remove_leftovers(outline.thread_id)

    async def confirm(self, thread_id: str | None = None) -> None:
        """Wait for replicas. WAIT answers for one stream of changes; each node of a cluster has its own."""
        if thread_id is not None:
            await self._clients.confirm(self._keys(thread_id)[0])
        elif self._clients.is_cluster:
            await self._clients.confirm(
                *(self._layout.bucket_keys(bucket)[-1] for bucket in range(self._layout.buckets))
            )
        else:
            await self._clients.confirm(self._layout.format_key)

    async def trim(self, thread_id: str, seqs: Mapping[int, str]) -> int:
        """Remove checkpoints in portions: while a script runs, the server does nothing else."""
        removed, maybe = 0, set[int]()
        for _ in range(ATTEMPTS if len(seqs) > MOST_ROWS else 0):
            outline = await self._outline(thread_id)
            removed += len(maybe - outline.entries.keys())
            # Those that are left for `delete` may be all that the thread has.
            doomed = sorted(outline.select(None, seqs))[:-MOST_ROWS]
            plan = await asyncio.to_thread(outline.trimming, doomed, MOST_ROWS)
            while portion := plan.next():
                removal = plan.removal(portion)
                arguments = outline.portion_arguments(portion, removal)
                count, repeated = await self._clients.run_reporting_repeats(
                    scripts.REMOVE, self._keys(thread_id), thread_id, outline.version, "some", *arguments
                )
                if count < 0:
                    # An answer was lost. What is gone at the next look may have been removed by this call.
                    maybe = set(portion.seqs) if repeated else set()
                    break
                plan.done(portion)
                outline.after(portion, removal)
                removed += int(count)
            else:
                break
        return removed + await self.delete(thread_id, None, seqs)

    async def _delete_thread(self, thread_id: str) -> int:
        keys = self._keys(thread_id)
        there = await self._clients.command("ZCARD", keys[1])
        removed, repeated = await self._clients.run_reporting_repeats(scripts.REMOVE, keys, thread_id, "", "all")
        return int(there) if repeated and not removed else int(removed)

    async def put_writes(self, task: TaskWrites) -> None:
        await self._run(scripts.PUT_WRITES, task.thread_id, *self._write_arguments(task))

    def _write_arguments(self, task: TaskWrites) -> list[Any]:
        named = place(task.namespace, task.checkpoint_id)
        writes = {write.idx: write for write in task.writes}.values()
        fresh = b"".join([write_text(named, task.task_id, write) for write in writes])
        return [named, task.task_id, fresh, self._ttl, "1" if task.keep_numbered else ""]

    async def get_writes(self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
        at = place(namespace, checkpoint_id)
        answer = await self._run(scripts.GET_WRITES, thread_id, at, task_id or "")
        try:
            return to_task_writes(at, answer)
        except (ValueError, IndexError):
            raise CorruptCheckpointError(f"pending writes of {shown_thread(thread_id)} cannot be read") from None

    async def ancestors(self, query: AncestorQuery) -> list[Ancestor]:
        namespace, checkpoint_id = net(query.namespace), query.checkpoint_id
        answer = await self._run(scripts.ANCESTORS, query.thread_id, namespace, checkpoint_id, query.limit)
        return to_ancestors(query, answer)

    async def outlived(
        self, retention: Retention, after: str = "", prefix: str = "", limit: int = PAGE
    ) -> AsyncGenerator[OutlivedPage]:
        """List what a vacuum would remove, from threads that are in the index.

        It lacks those that have only pending writes.
        """
        while thread_ids := await self._index().threads(Pattern(within=prefix, after=after), limit):
            after = thread_ids[-1]
            outlived: list[Outlived] = []
            damaged: list[CorruptCheckpointError] = []
            for start in range(0, len(thread_ids), _AT_ONCE):
                some = thread_ids[start : start + _AT_ONCE]
                histories = await self._ask_all(scripts.HISTORY, some, *history_arguments(None, None, None))
                orphans = await self._ask_all(scripts.ORPHANS, some)
                for thread_id, rows, places in zip(some, histories, orphans, strict=True):
                    try:
                        _check_complete(thread_id, rows)
                        waiting = orphaned(to_orphans(thread_id, places), retention.orphans_before)
                        entries = to_history(thread_id, rows, None, None, None)
                        outlived.append(outlived_in(thread_id, entries, retention, waiting))
                    except CorruptCheckpointError as error:
                        damaged.append(error)
            yield OutlivedPage(after, len(thread_ids), list(filter(None, outlived)), damaged)

    async def measure(self, thread_id: str) -> Measured | None:
        answer = await self._with_headers(scripts.MEASURE, thread_id, slice(4, 7))
        if not answer:
            return None
        measured = await _apart(len(answer[4]), partial(to_measured, thread_id, answer))
        if len(measured.runs) <= MOST_RUNS:
            return measured
        # Checkpoints may have come while these were read in portions.
        newest = newest_runs(checkpoint.manifest for checkpoint in measured.checkpoints)
        runs = {run: size for run, size in measured.runs.items() if run.number <= newest.get(run.branch, -1)}
        return Measured(measured.checkpoints, runs, measured.writes)

    async def _ask_all(self, script: Script, thread_ids: Sequence[str], *arguments: Any) -> list[Any]:
        return await self._clients.run_all([ScriptCall(script, self._keys(name), arguments) for name in thread_ids])

    async def delete_orphans(self, thread_id: str, places: Collection[Place]) -> int:
        removed = 0
        for start in range(0, len(places), _AT_ONCE):
            some = [place(*name) for name in sorted(places)[start : start + _AT_ONCE]]
            removed += await self._run(scripts.DELETE_ORPHANS, thread_id, *some)
        return removed

    async def expire(self, now: datetime) -> int:
        """Remove expired threads from the index. Redis removes their keys by itself."""
        await self._index().sweep()
        return 0

    async def copy(self, source: str, dest: str, copied: Copied) -> int:
        answer = await self._contents(source)
        if not answer:
            return 0
        contents = await _apart(len(answer[5]), partial(ThreadContents, answer))
        count, arguments = await _apart(len(answer[5]), partial(contents.copy_arguments, dest, new_id(), copied))
        if not count:
            return 0
        created = await self._clients.run(scripts.CREATE, self._keys(dest), *arguments)
        if created < 0:
            raise _damaged(dest)
        return count if created else -1

    async def export(self, thread_id: str, after_seq: int, limit: int, known: Mapping[str, int]) -> Exported:
        answer = await self._contents(thread_id)
        if not answer:
            return Exported([], [])
        contents = await _apart(len(answer[5]), partial(ThreadContents, answer))
        return await _apart(len(answer[5]), partial(contents.export, thread_id, after_seq, known))

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


async def _apart(rows: int, work: Callable[[], T]) -> T:
    """Do what takes long, for so many rows, in a thread of its own, so that the event loop goes on."""
    return await asyncio.to_thread(work) if rows > MOST_RUNS else work()


def _replacing_arguments(outline: ThreadOutline, commit: Commit) -> list[Any]:
    # If that is another one than the commit may replace, the script refuses.
    doomed = {
        seq
        for seq, entry in outline.entries.items()
        if (entry.namespace, entry.checkpoint_id) == (commit.namespace, commit.checkpoint_id)
    }
    return commit_arguments(commit, outline.removal_arguments(doomed, replacement=commit), outline.version)


def _check_complete(thread_id: str, answer: Any) -> None:
    if isinstance(answer, list) and answer[:1] == [b"DAMAGED"]:
        raise _damaged(thread_id)
    if isinstance(answer, list) and answer[:1] == [b"BROKEN"]:
        raise CorruptCheckpointError(
            f"{shown_thread(thread_id)} is damaged: something that leads to its checkpoints or pending writes was lost"
            " or changed. delete() removes the thread"
        )
    if isinstance(answer, list) and answer[:1] == [b"TOO_LONG"]:
        raise CorruptCheckpointError(f"a checkpoint of {shown_thread(thread_id)} names more than can be read at once")


def _damaged(thread_id: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"keys of {shown_thread(thread_id)} are gone from Redis before their time: they were evicted (maxmemory-policy "
        "must be noeviction) or removed by hand. delete() removes the rest"
    )


def _overtaken(thread_id: str) -> ConflictError:
    return ConflictError(f"thread {thread_id!r} is changed by others faster than this step can follow; try again")


def _replicas(config: RedisConfig) -> Replicas | None:
    """The replicas that a write waits for; None if it waits for none."""
    if not config.wait_replicas and not config.wait_aof:
        return None
    assert config.wait_timeout is not None, "a config that was checked has one"
    return Replicas(config.wait_replicas, config.wait_timeout, aof=config.wait_aof)


def open_engine(config: RedisConfig) -> RedisEngine:
    """Make the engine for a config, or for the database that the caller's client is connected to."""
    client = config.client
    if client is not None:
        check_client(client)
    return RedisEngine(
        RedisClients(
            lambda: new_client(config),
            shared=client,
            retries=config.retries,
            timeout=config.timeout,
            at_once=config.max_connections,
            replicas=_replicas(config),
        ),
        identity=identity_of(config, client),
        prefix=config.prefix,
        buckets=config.buckets,
        ttl_seconds=config.ttl_seconds,
        search=False if isinstance(client, RedisCluster) else config.search,
    )
