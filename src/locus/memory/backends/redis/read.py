"""Reads over all threads: their ids, the newest checkpoints, and those with some metadata.

Each bucket has a sorted index of its own, so a page of every bucket makes a page of the whole. The index still holds
threads that have expired. Reads skip those, and remove them from the index.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from heapq import nsmallest
from typing import Any, NamedTuple

from redis.exceptions import NoPermissionError, ReadOnlyError

from locus.errors import CorruptCheckpointError
from locus.memory.backends.redis import scripts
from locus.memory.backends.redis.client import RedisClients
from locus.memory.backends.redis.schema import (
    Layout,
    committed_at,
    history_arguments,
    pair_digest,
    thread_in,
    time_in,
    to_entry,
    to_history,
)
from locus.memory.backends.redis.scripts import Script, ScriptCall
from locus.memory.engine import LOOKED_AT
from locus.memory.model.cursors import cursor_of, numbers_in
from locus.memory.model.ids import Pattern, shown_thread
from locus.memory.model.matching import has_value
from locus.memory.model.records import Entry, NewestThreads

_LARGEST_PAGE = 1_000
_HISTORIES_AT_ONCE = 32
_REMOVED = 9_999_999_999_999_999
"""The time of a removed checkpoint in an answer of `threads_within`."""
_FILTERED_PAGE = 200
"""The number of threads of each bucket that a script looks through for a prefix."""


class _IndexRow(NamedTuple):
    """A row in the index of a bucket, with the time it is ordered by."""

    at: int
    name: bytes
    entry: bytes | None


class _IndexPage(NamedTuple):
    """Rows of a bucket, and the cursor to read on from; None if there are no more."""

    rows: list[_IndexRow]
    cursor: bytes | None


class IndexReader:
    """Reads the index of all buckets of a store. With `clean`, it removes expired threads that it comes across."""

    def __init__(self, clients: RedisClients, layout: Layout, *, clean: bool = True) -> None:
        self._clients = clients
        self._layout = layout
        self._may_clean = clean

    async def threads(self, pattern: Pattern, limit: int) -> list[str]:
        """List ids of threads in the order of code points, which is that of their bytes."""
        start, end = _range(pattern.prefix)
        if pattern.end is not None:
            end = b"(" + pattern.end.encode()
        if pattern.from_after:
            start = b"(" + pattern.after.encode()
        starts = dict.fromkeys(range(self._layout.buckets), start)
        names: list[bytes] = []
        page = self._page_size(limit)
        while limit:
            # Buckets that have more, unless it sorts after everything that is asked for.
            last = nsmallest(limit, names)[-1] if len(names) >= limit else None
            waiting = {bucket: start for bucket, start in starts.items() if last is None or start[1:] < last}
            if not waiting:
                break
            names += [
                name for name in await self._next_page(starts, waiting, end, page) if pattern.matches(thread_in(name))
            ]
            page = min(page * 2, _LARGEST_PAGE)
        return [thread_in(name) for name in sorted(names)[:limit]]

    async def recent(self, limit: int, prefix: str = "") -> list[Entry]:
        """List the newest entries, by the time of their commit, of all threads whose ids start with a prefix."""
        if not limit:
            return []
        best: list[tuple[int, Entry]] = []
        batch: list[str] = []
        size = 4
        async with aclosing(self._threads_by_time(limit, prefix)) as threads:
            async for at, name in threads:
                if len(best) >= limit and best[limit - 1][0] >= at:
                    break
                batch.append(name)
                if len(batch) == size:
                    best = _newest(best, await self._histories(batch, limit), limit)
                    batch, size = [], _HISTORIES_AT_ONCE
        if batch:
            best = _newest(best, await self._histories(batch, limit), limit)
        return [entry for _, entry in best]

    async def _threads_by_time(self, limit: int, prefix: str) -> AsyncGenerator[tuple[int, str]]:
        """List the times of last commits with the ids of threads, newest first."""
        if prefix and await self._has_few(prefix):
            for thread in await self._within(prefix):
                yield thread
            return
        async with aclosing(self._rows_by_commit(limit, None, prefix)) as rows:
            async for row in rows:
                if row.entry is None:
                    yield row.at, thread_in(row.name)

    async def newest_threads(self, limit: int, before: str | None, prefix: str) -> NewestThreads:
        """List threads by the time of their last commit, each with its newest checkpoint.

        Without a prefix, or among very many, a thread whose newest checkpoint was removed keeps its place. The index
        has each thread once, so none can be in the way of others, but there may be many that have expired.
        """
        start = None if before is None else numbers_in(before, 2)
        newest: list[tuple[Entry, str]] = []
        batch: list[tuple[str, str]] = []
        looked_at = 0
        if not limit:
            return NewestThreads([])
        async with aclosing(self._by_commit(limit, start, prefix)) as threads:
            async for cursor, name in threads:
                looked_at += 1
                if name is not None:
                    batch.append((cursor, name))
                is_last = looked_at == LOOKED_AT
                if is_last or len(batch) >= min(limit + 1 - len(newest), _HISTORIES_AT_ONCE):
                    newest += await self._newest_of(batch)
                    batch = []
                if len(newest) > limit:
                    return NewestThreads([entry for entry, _ in newest[:limit]], newest[limit - 1][1])
                if is_last:
                    return NewestThreads([entry for entry, _ in newest], cursor)
        newest += await self._newest_of(batch)
        more = newest[limit - 1][1] if len(newest) > limit else None
        return NewestThreads([entry for entry, _ in newest[:limit]], more)

    async def _by_commit(
        self, limit: int, start: Sequence[int] | None, prefix: str
    ) -> AsyncGenerator[tuple[str, str | None]]:
        """Yield cursors and ids of threads by the time of their last commit, from a cursor on.

        There may be cursors without an id: no further thread with the prefix was found up to there.
        """
        if prefix and await self._has_few(prefix):
            times = {name: at for at, name in await self._within(prefix)}
            removed = [name for name, at in times.items() if at == _REMOVED]
            for at, entry in await self._histories(removed, 1):
                times[entry.thread_id] = at
            places = ((at, -self._layout.bucket(name), name) for name, at in times.items() if at != _REMOVED)
            for at, bucket, name in sorted(places, reverse=True):
                if start is None or (at, bucket) < (start[0], -start[1]):
                    yield cursor_of(at, -bucket), name
            return

        async with aclosing(self._rows_by_commit(limit, None if start is None else start[0], prefix)) as rows:
            async for row in rows:
                name = thread_in(row.name)
                bucket = self._layout.bucket(name)
                # Buckets that have something of the same time come in their order.
                if start is None or (row.at, -bucket) < (start[0], -start[1]):
                    yield cursor_of(row.at, bucket), name if row.entry is None else None

    def _rows_by_commit(self, limit: int, since: int | None, prefix: str) -> AsyncGenerator[_IndexRow]:
        """Yield threads by the time of their last commit, from a time on.

        With a prefix, rows that have an entry are of other threads, and only say how far this went.
        """

        def call(bucket: int, cursor: bytes, page: int) -> ScriptCall:
            start = cursor or ("+inf" if since is None else since)
            if prefix:
                return self._call(scripts.RECENT_WITHIN, bucket, start, page, prefix.encode())
            return self._call(scripts.RECENT_THREADS, bucket, start, page)

        if prefix:
            return self._merged(_FILTERED_PAGE, call, _filtered_rows)
        return self._merged(self._page_size(limit), call, _recent_rows)

    async def _has_few(self, prefix: str) -> bool:
        buckets = range(self._layout.buckets)
        calls = [self._call(scripts.COUNT_WITHIN, bucket, *_range(prefix), LOOKED_AT + 1) for bucket in buckets]
        return bool(sum(await self._clients.run_all(calls)) <= LOOKED_AT)

    async def _newest_of(self, threads: Sequence[tuple[str, str]]) -> list[tuple[Entry, str]]:
        """Read the newest checkpoints of threads with cursors, without threads that are gone."""
        found = await self._histories([name for _, name in threads], 1)
        entries = {entry.thread_id: entry for _, entry in found}
        return [(entries[name], cursor) for cursor, name in threads if name in entries]

    async def threads_newest_first(self, prefix: str) -> list[str]:
        """List the ids of threads that start with a prefix, by the time of their last commits."""
        return [name for _, name in await self._within(prefix)]

    async def _within(self, prefix: str) -> list[tuple[int, str]]:
        start, end = _range(prefix)
        starts = dict.fromkeys(range(self._layout.buckets), start)
        threads: list[tuple[int, str]] = []
        while starts:
            calls = [
                self._call(scripts.THREADS_WITHIN, bucket, start, end, _LARGEST_PAGE)
                for bucket, start in starts.items()
            ]
            for bucket, (names, times) in zip(list(starts), await self._clients.run_all(calls), strict=True):
                threads += [(time_in(time), thread_in(name)) for name, time in zip(names, times, strict=True) if time]
                if len(names) == _LARGEST_PAGE:
                    starts[bucket] = b"(" + names[-1]
                else:
                    del starts[bucket]
        return sorted(threads, reverse=True)

    async def find(self, key: str, value: str, limit: int, prefix: str = "") -> list[Entry]:
        """List the newest entries with this metadata, of threads whose ids start with a prefix."""
        pair = pair_digest(key, value)

        def call(bucket: int, cursor: bytes, page: int) -> ScriptCall:
            start, end = b"[" + pair, cursor or b"(" + pair + b"\xff"
            return self._call(scripts.FIND_METADATA, bucket, start, end, page, prefix.encode())

        matching: list[Entry] = []
        gone: dict[int, list[bytes]] = {}
        async with aclosing(self._merged(self._page_size(limit), call, _found_rows)) as rows:
            async for row in rows:
                if len(matching) >= limit:
                    break
                seq, _, thread_id = row.name[32:].partition(b":")
                if row.entry is None:
                    gone.setdefault(self._layout.bucket(thread_in(thread_id)), []).append(row.name)
                    continue
                entry = to_entry(thread_in(thread_id), seq, row.entry)
                # Two pairs may share a digest.
                if has_value(entry.metadata, key, value):
                    matching.append(entry)
        await self._clean({}, gone)
        return matching

    async def sweep(self) -> None:
        """Remove everything from the index that has expired."""
        starts = dict.fromkeys(range(self._layout.buckets), b"-")
        while starts:
            await self._next_page(starts, dict(starts), b"+", _LARGEST_PAGE)
        starts = dict.fromkeys(range(self._layout.buckets), b"-")
        while starts:
            calls = [
                self._call(scripts.STALE_METADATA, bucket, start, _LARGEST_PAGE) for bucket, start in starts.items()
            ]
            gone: dict[int, list[bytes]] = {}
            for bucket, (last, stale) in zip(list(starts), await self._clients.run_all(calls), strict=True):
                if stale:
                    gone[bucket] = stale
                if last:
                    starts[bucket] = b"(" + last
                else:
                    del starts[bucket]
            await self._clean({}, gone)

    def _page_size(self, limit: int) -> int:
        """The number of rows of each bucket to read at once, so that one round is mostly enough."""
        return min(2 * limit // self._layout.buckets + 16, _LARGEST_PAGE)

    def _call(self, script: Script, bucket: int, *arguments: Any) -> ScriptCall:
        return ScriptCall(script, self._layout.bucket_keys(bucket), arguments)

    async def _next_page(
        self, starts: dict[int, bytes], waiting: dict[int, bytes], end: bytes, page: int
    ) -> list[bytes]:
        """Read the next page of threads of the waiting buckets. Updates `starts`, and drops buckets without more."""
        calls = [self._call(scripts.LIST_THREADS, bucket, start, end, page) for bucket, start in waiting.items()]
        existing: list[bytes] = []
        gone: dict[int, list[bytes]] = {}
        for bucket, (names, flags) in zip(waiting, await self._clients.run_all(calls), strict=True):
            if len(names) == page:
                starts[bucket] = b"(" + names[-1]
            else:
                del starts[bucket]
            for name, is_there in zip(names, flags, strict=True):
                if is_there:
                    existing.append(name)
                else:
                    gone.setdefault(bucket, []).append(name)
        await self._clean(gone, {})
        return existing

    async def _merged(
        self, page: int, call: Callable[[int, bytes, int], ScriptCall], rows_of: Callable[[Any, int], _IndexPage]
    ) -> AsyncGenerator[_IndexRow]:
        """Merge the rows of all buckets, newest first."""
        cursors = dict.fromkeys(range(self._layout.buckets), b"")
        read: dict[int, deque[_IndexRow]] = {bucket: deque() for bucket in cursors}
        while read:
            empty = [bucket for bucket, rows in read.items() if not rows]
            if not empty:
                newest = max(read, key=lambda bucket: read[bucket][0].at)
                yield read[newest].popleft()
                if not read[newest] and newest not in cursors:
                    del read[newest]
                continue
            calls = [call(bucket, cursors[bucket], page) for bucket in empty]
            for bucket, answer in zip(empty, await self._clients.run_all(calls), strict=True):
                rows, cursor = rows_of(answer, page)
                read[bucket].extend(rows)
                if cursor is not None:
                    cursors[bucket] = cursor
                    continue
                del cursors[bucket]
                if not rows:
                    del read[bucket]

    async def _histories(self, thread_ids: Sequence[str], limit: int) -> list[tuple[int, Entry]]:
        keys = self._layout.thread_keys
        calls = [ScriptCall(scripts.HISTORY, keys(name), history_arguments(None, limit, None)) for name in thread_ids]
        entries: list[tuple[int, Entry]] = []
        for name, answer in zip(thread_ids, await self._clients.run_all(calls), strict=True):
            if answer[:1] in ([b"DAMAGED"], [b"BROKEN"]):
                raise CorruptCheckpointError(f"some of the keys or fields of {shown_thread(name)} are gone from Redis")
            times = map(committed_at, answer[2::2])
            entries += zip(times, to_history(name, answer, None, limit, None), strict=True)
        return entries

    async def _clean(self, threads: dict[int, list[bytes]], members: dict[int, list[bytes]]) -> None:
        """Remove rows from the index whose threads are gone. If this user or server may not write, they stay."""
        if not self._may_clean:
            return
        calls = [
            self._call(scripts.CLEAN_INDEX, bucket, len(threads.get(bucket, ())), *threads.get(bucket, ()), *names)
            for bucket, names in {**{key: list[bytes]() for key in threads}, **members}.items()
        ]
        with suppress(ReadOnlyError, NoPermissionError):
            await self._clients.run_all(calls)


def _range(prefix: str) -> tuple[bytes, bytes]:
    """The bounds of ids that start with a prefix, as ZRANGEBYLEX takes them."""
    start = prefix.encode()
    return (b"[" + start, b"(" + start + b"\xff") if start else (b"-", b"+")


def _recent_rows(answer: Sequence[bytes], page: int) -> _IndexPage:
    pairs = list(zip(answer[::2], answer[1::2], strict=True))
    rows = [_IndexRow(time_in(score), name, None) for name, score in pairs]
    return _IndexPage(rows, b"(" + pairs[-1][1] if len(pairs) == page else None)


def _filtered_rows(answer: Sequence[Any], _page: int) -> _IndexPage:
    """Keep the rows with the prefix, and a last one that only says how far the page went."""
    pairs, last = answer
    rows = [_IndexRow(time_in(score), name, None) for name, score in zip(pairs[::2], pairs[1::2], strict=True)]
    if not last:
        return _IndexPage(rows, None)
    return _IndexPage([*rows, _IndexRow(time_in(last[1]), last[0], b"")], b"(" + last[1])


def _found_rows(answer: Sequence[Any], _page: int) -> _IndexPage:
    members, entries, last = answer
    rows = [_IndexRow(time_in(member[16:32]), member, entry) for member, entry in zip(members, entries, strict=True)]
    return _IndexPage(rows, b"(" + last if last else None)


def _newest(best: list[tuple[int, Entry]], more: list[tuple[int, Entry]], limit: int) -> list[tuple[int, Entry]]:
    return sorted([*best, *more], key=lambda row: (row[0], row[1].seq), reverse=True)[:limit]
