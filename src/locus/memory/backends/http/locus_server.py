"""The dialect of `locus.server`: every primitive is one request, and a save sends what is new.

The store behind the server keeps the contract; this side only translates.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, TypeVar

from locus.errors import CapabilityError
from locus.memory.backends.http.client import (
    HTTPClient,
    HTTPRefusedError,
    HTTPUnavailableError,
    is_too_large,
    raise_error,
    says_not_found,
)
from locus.memory.engine import CheckpointerCapabilities
from locus.memory.model.arguments import UNLIMITED
from locus.memory.model.changes import PayloadDiff
from locus.memory.model.codec import EXACT, Dialect, encode_trusted
from locus.memory.model.ids import Pattern
from locus.memory.model.parts import Ends, Part, Range
from locus.memory.model.records import (
    DEFAULT_NAMESPACE,
    Base,
    CheckpointKey,
    Commit,
    Entry,
    Exported,
    Hit,
    Hits,
    NewestThreads,
    Outcome,
    Stored,
    Write,
)
from locus.memory.model.retention import Line, VacuumProgress
from locus.memory.model.sizes import ThreadSizes
from locus.wire.format import (
    MOST_LISTS,
    commit_text,
    conditions,
    diff_from,
    entry_from,
    exported_from,
    held_text,
    hit_from,
    newest_threads_from,
    outcome_from,
    path_text,
    segment,
    sizes_from,
    stored_from,
    window_text,
    write_from,
    writes_text,
)

T = TypeVar("T")

PAGE = 1_000
"""The number of entries of a long history that one request fetches."""

MOST_IDS = 10_000
"""The number of ids of threads that one request fetches; servers list no more."""

LONGEST_WINDOW = 2_000
"""The longest window in a URL, in characters: a proxy may refuse a longer URL. A larger one reads whole lists."""

LEAST_SECONDS, MOST_SECONDS = 0.001, 86_400.0
"""The bounds of the time that a request may ask for; the server has a limit of its own."""

_CHANGES_KEYS = Dialect(exact=False)


class LocusServer:
    """A Locus server, as its discovery document describes it."""

    def __init__(self, client: HTTPClient, about: Mapping[str, Any]) -> None:
        self._client = client
        self.capabilities = CheckpointerCapabilities(**about["capabilities"], windows=about["deltas"])
        self.keeps_writes: bool = about["pending_writes"]
        self.keeps_runs: bool = about["deltas"]
        self.exports: bool = about.get("exports", False)
        self.prefixes: bool = about.get("prefixes", False)
        self.lists_namespaces: bool = about.get("namespaces", False)
        self.reads_parts: bool = about.get("parts", False)
        self.reads_windows: bool = about.get("window", False)
        self.reads_ends: bool = about.get("ends", False)
        self.knows_held: bool = about.get("held", False)
        self.lists_newest_threads: bool = about.get("recent_threads", False)
        self.compares: bool = about.get("diffs", False)
        self.copies_lines: bool = about.get("ancestors", False)
        self.knows_deadlines: bool = about.get("deadlines", False)
        self._lists_in_pages: bool = about.get("pages", False)
        self._tells_progress: bool = about.get("progress", False)
        self.tells_sizes: bool = about.get("sizes", False)
        self._takes_before: bool = about.get("before", False)
        self.dialect = EXACT if about["keeps_key_order"] else _CHANGES_KEYS
        self._compress = not client.config.local

    async def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        body: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        retry: bool = True,
    ) -> Any:
        """Send a request, and return the data in the response; None if the resource does not exist."""
        response = await self._client.request(
            method,
            path,
            query,
            None if body is None else body.encode(),
            headers=headers,
            retry=retry,
            compress=self._compress,
        )
        if says_not_found(response):
            return None
        if not response.is_success:
            raise_error(response)
        return response.json() if response.content else {}

    async def commit(self, commit: Commit) -> Outcome:
        if commit.expires_at is not None:
            self._needs(self.capabilities.ttl, "ttl_seconds")
        answer = await self._ask(
            "POST",
            f"/threads/{segment(commit.thread_id)}/commits",
            _in(commit.namespace),
            commit_text(commit, before=self._takes_before),
            headers=conditions(commit.if_latest),
        )
        return _read(outcome_from, answer)

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        return await self._stored(thread_id, namespace, checkpoint_id, {})

    async def read_part(self, thread_id: str, namespace: str, checkpoint_id: str | None, part: Part) -> Stored | None:
        return await self._stored(thread_id, namespace, checkpoint_id, self._part(part))

    def _part(self, part: Part) -> dict[str, str | int]:
        """The parameters that name a part; none, for the whole checkpoint, if the server could not read them."""
        if isinstance(part, Range):
            if not self.reads_parts:
                return {}
            return {"path": path_text(part.path), "start": part.start, "count": part.count}
        if isinstance(part, Ends):
            return {"ends": part.last} if self.reads_ends else {}
        text = window_text(part) if self.reads_windows and len(part.paths) <= MOST_LISTS else ""
        return {"window": text} if 0 < len(text) <= LONGEST_WINDOW else {}

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        query: dict[str, str | int] = {"held": held_text(held)} if self.knows_held else {}
        stored = await self._stored(thread_id, namespace, checkpoint_id, query)
        if stored is not None and stored.since not in (None, held):
            raise HTTPUnavailableError("the server's answer is about another checkpoint than the one that is held")
        return stored

    async def _stored(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, more: dict[str, str | int]
    ) -> Stored | None:
        answer = await self._ask("GET", f"/threads/{segment(thread_id)}/stored", _one(namespace, checkpoint_id) | more)
        return None if answer is None else _read(stored_from, answer)

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        answer = await self._ask("GET", f"/threads/{segment(thread_id)}/entry", _one(namespace, checkpoint_id))
        return None if answer is None else _read(entry_from, answer)

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        entries: list[Entry] = []
        query: dict[str, str | int] = {"every_namespace": "true"} if namespace is None else _in(namespace)
        largest = PAGE
        while limit is None or len(entries) < limit:
            size = query["limit"] = largest if limit is None else min(largest, limit - len(entries))
            if before_seq is not None:
                query["before_seq"] = before_seq
            try:
                answer = await self._ask("GET", f"/threads/{segment(thread_id)}/checkpoints", query)
            except HTTPRefusedError as error:
                if size == 1 or not is_too_large(error):
                    raise
                largest = max(1, size // 8)
                continue
            page = _read(lambda data: [entry_from(entry) for entry in data["checkpoints"]], answer)
            entries += page
            if len(page) < size:
                break
            before_seq = page[-1].seq
        return entries

    async def namespaces(self, thread_id: str) -> list[str]:
        answer = await self._ask("GET", f"/threads/{segment(thread_id)}/namespaces")
        return [] if answer is None else _read(lambda data: [str(name) for name in data["namespaces"]], answer)

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        if (pattern.within and not self.prefixes) or (pattern.after and not self._lists_in_pages):
            # An older server would ignore what it does not know, and answer too much.
            known = Pattern(pattern.text, pattern.within if self.prefixes else "")
            return list(filter(pattern.matches, await self.threads(known, None)))[:limit]
        query: dict[str, str | int] = {"pattern": pattern.text, **self._within(pattern.within)}
        ids: list[str] = []
        after: str | None = pattern.after
        while after is not None and (limit is None or len(ids) < limit):
            most = MOST_IDS if self._lists_in_pages else "all"
            query["limit"] = most if limit is None else min(limit - len(ids), MOST_IDS)
            if after:
                query["after"] = after
            answer = await self._ask("GET", "/threads", query)
            ids += _read(lambda data: [str(thread_id) for thread_id in data["threads"]], answer)
            after = answer.get("next")
        return ids

    async def delete(self, thread_id: str, namespace: str | None, seqs: Mapping[int, str] | None) -> int:
        body = {"namespace": namespace, "seqs": None if seqs is None else [*seqs.items()]}
        answer = await self._ask(
            "POST", f"/threads/{segment(thread_id)}/deletions", body=encode_trusted(body), retry=False
        )
        return _read(lambda data: int(data["deleted"]), answer)

    async def recent(self, limit: int, prefix: str) -> list[Entry]:
        async def ask(most: int, within: str) -> list[Entry]:
            return _read(_entries, await self._ask("GET", "/recent", {"limit": most} | self._within(within)))

        return await self._of_threads(ask, limit, prefix)

    async def newest_threads(self, limit: int, before: str | None, prefix: str) -> NewestThreads:
        query: dict[str, str | int] = self._within(prefix) | ({} if before is None else {"before": before})
        while True:
            try:
                answer = await self._ask("GET", "/recent-threads", query | {"limit": limit})
                return _read(newest_threads_from, answer)
            except HTTPRefusedError as error:
                if limit <= 1 or not is_too_large(error):
                    raise
                limit = max(1, limit // 8)  # a page may be shorter than what was asked for

    async def find(self, key: str, value: str, limit: int, prefix: str) -> list[Entry]:
        self._needs(self.capabilities.metadata_query, "metadata_query")

        async def ask(most: int, within: str) -> list[Entry]:
            others = encode_trusted({"limit": most} | self._within(within))
            body = f'{{"key":{encode_trusted(key)},"value":{value},{others[1:]}'
            return _read(_entries, await self._ask("POST", "/find", body=body))

        return await self._of_threads(ask, limit, prefix)

    async def _of_threads(
        self, ask: Callable[[int, str], Awaitable[list[Entry]]], limit: int, prefix: str
    ) -> list[Entry]:
        """Fetch a list, and return the items of threads with a prefix.

        An older server, which knows no prefixes, is asked for all threads, and for more items until there are enough.
        """
        if self.prefixes or not prefix:
            return await ask(limit, prefix)
        most = limit
        while True:
            items = await ask(most, "")
            within = [entry for entry in items if entry.thread_id.startswith(prefix)]
            if len(within) >= limit or len(items) < most:
                return within[:limit]
            most = min(4 * most, UNLIMITED)

    async def search(self, terms: Sequence[str], limit: int, prefix: str) -> list[Hit]:
        self._needs(self.capabilities.search, "search")
        body = encode_trusted({"terms": terms, "limit": limit} | self._within(prefix))
        answer = await self._ask("POST", "/search", body=body)
        return _read(lambda data: [hit_from(hit) for hit in data["hits"]], answer)

    async def search_until(self, terms: Sequence[str], limit: int, prefix: str, seconds: float) -> Hits:
        """Search up to a deadline, at which the server ends the search and says whether it has looked at everything."""
        self._needs(self.capabilities.search, "search")
        about = {"terms": terms, "limit": limit, "timeout_seconds": min(max(seconds, LEAST_SECONDS), MOST_SECONDS)}
        answer = await self._ask("POST", "/search", body=encode_trusted(about | self._within(prefix)))
        return _read(lambda data: Hits(map(hit_from, data["hits"]), bool(data["complete"])), answer)

    async def copy(self, source: str, dest: str, namespace: str | None, checkpoint_ids: Collection[str] | None) -> int:
        self._needs(self.capabilities.branching, "branching")
        ids = None if checkpoint_ids is None else [*checkpoint_ids]
        body = encode_trusted({"dest_thread_id": dest, "namespace": namespace, "checkpoint_ids": ids})
        answer = await self._ask("POST", f"/threads/{segment(source)}/copy", body=body, retry=False)
        return 0 if answer is None else _read(lambda data: int(data["copied"]), answer)

    async def copy_line(self, source: str, dest: str, line: Line) -> int:
        self._needs(self.capabilities.branching, "branching")
        body = encode_trusted({"dest_thread_id": dest, **asdict(line)})
        answer = await self._ask("POST", f"/threads/{segment(source)}/copy", body=body, retry=False)
        return 0 if answer is None else _read(lambda data: int(data["copied"]), answer)

    async def export(self, thread_id: str, after_seq: int, limit: int, known: Mapping[str, int]) -> Exported:
        body = encode_trusted({"after_seq": after_seq, "limit": limit, "known": dict(known)})
        return _read(exported_from, await self._ask("POST", f"/threads/{segment(thread_id)}/records", body=body))

    async def diff(self, old: CheckpointKey, new: CheckpointKey, start: int, limit: int) -> PayloadDiff:
        query: dict[str, str | int] = {"a": old.checkpoint_id, "b": new.checkpoint_id, "start": start, "limit": limit}
        query |= _in(old.namespace)
        if new.thread_id != old.thread_id:
            query["other_thread"] = new.thread_id
        if new.namespace != old.namespace:
            query["other_namespace"] = new.namespace
        answer = await self._ask("GET", f"/threads/{segment(old.thread_id)}/diff", query)
        return _read(diff_from, answer)

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
        self._needs(self.keeps_writes, "pending writes")
        task_path = writes[0].task_path if writes else ""
        path = f"/threads/{segment(thread_id)}/checkpoints/{segment(checkpoint_id)}/writes"
        await self._ask("PUT", path, _in(namespace), writes_text(task_id, task_path, writes, keep_numbered))

    async def get_writes(self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
        self._needs(self.keeps_writes, "pending writes")
        path = f"/threads/{segment(thread_id)}/checkpoints/{segment(checkpoint_id)}/writes"
        query = _in(namespace) | ({} if task_id is None else {"task_id": task_id})
        answer = await self._ask("GET", path, query)
        return _read(lambda data: [write_from(write) for write in data["writes"]], answer)

    async def vacuum(
        self, cutoff: datetime | None, keep_last: int | None, dry_run: bool
    ) -> AsyncGenerator[VacuumProgress]:
        """Let the server remove what is old. It works in portions, so that no response takes long."""
        before = None if cutoff is None else cutoff.isoformat()
        body: dict[str, Any] = {"before": before, "keep_last": keep_last, "dry_run": dry_run}
        if self._tells_progress:
            body["progress"] = True
        while True:
            answer = await self._ask("POST", "/vacuum", body=encode_trusted(body), retry=False)
            yield _read(_vacuumed, answer)
            if answer.get("next") is None:
                return
            body["after"] = answer["next"]

    async def sizes(
        self,
        thread_id: str,
        older_than_days: float | None,
        keep_last: int | None,
        deleting: Collection[str],
        namespace: str,
    ) -> ThreadSizes | None:
        about: dict[str, Any] = {"deleting": [*deleting], "namespace": namespace}
        about |= {} if older_than_days is None else {"older_than_days": older_than_days}
        about |= {} if keep_last is None else {"keep_last": keep_last}
        answer = await self._ask("POST", f"/threads/{segment(thread_id)}/sizes", body=encode_trusted(about))
        return None if answer is None else _read(sizes_from, answer)

    async def expire(self) -> int:
        body = encode_trusted({"only_expired": True})
        return _read(lambda data: int(data["removed"]), await self._ask("POST", "/vacuum", body=body, retry=False))

    def _within(self, prefix: str) -> dict[str, str | int]:
        """The parameter for a prefix of ids; an error if the server does not know it, and would answer too much."""
        if prefix and not self.prefixes:
            raise CapabilityError("this server is too old to limit a query to a prefix of thread ids: update it")
        return {"prefix": prefix} if prefix else {}

    @staticmethod
    def _needs(able: bool, what: str) -> None:
        if not able:
            raise CapabilityError(f"the store of this server does not support {what}; check `.capabilities` first")


def _entries(data: Any) -> list[Entry]:
    return [entry_from(entry) for entry in data["checkpoints"]]


def _vacuumed(data: Any) -> VacuumProgress:
    """Read the progress of a portion of a vacuum. Older servers tell only how many checkpoints."""
    others = (int(data.get(name, 0)) for name in ("writes", "damaged"))
    return VacuumProgress(int(data.get("threads", 0)), int(data["removed"]), *others)


def _in(namespace: str) -> dict[str, str | int]:
    return {} if namespace == DEFAULT_NAMESPACE else {"namespace": namespace}


def _one(namespace: str, checkpoint_id: str | None) -> dict[str, str | int]:
    return _in(namespace) | ({} if checkpoint_id is None else {"checkpoint_id": checkpoint_id})


def _read(read: Callable[[Any], T], data: Any) -> T:
    try:
        return read(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HTTPUnavailableError(f"the server's answer lacks something: {type(error).__name__}") from error
