"""Threads on a server, over HTTP: `locus serve`, or any server that has the four endpoints of `plain_server`.

The first request finds out which of the two it is: a Locus server says so at its root. To a Locus server, a save sends
only what is new, every operation is one request, and the store behind that server keeps the contract. Any other server
gets whole states, through `plain_server`.

`client` sends requests and retries them. The texts are those of `locus.wire`, the same for client and server. Importing
this module needs httpx.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, TypeVar

from locus.errors import BackendUnavailableError, CapabilityError, CheckpointError, UnsupportedFormatError
from locus.memory.backends.http.client import (
    HTTPClient,
    HTTPRefusedError,
    HTTPUnavailableError,
    is_from_locus_server,
    is_too_large,
    problem_details,
    raise_error,
)
from locus.memory.backends.http.locus_server import LocusServer
from locus.memory.backends.http.plain_server import PlainServer
from locus.memory.engine import (
    Compares,
    Copies,
    Deadline,
    Engine,
    Expires,
    Exports,
    FindsMetadata,
    KeepsWrites,
    Maintains,
    Searches,
)
from locus.memory.model.changes import PayloadDiff
from locus.memory.model.codec import EXACT, Dialect, encode_trusted
from locus.memory.model.findings import SECOND, clock, http_time
from locus.memory.model.ids import Pattern
from locus.memory.model.parts import Part
from locus.memory.model.records import (
    DEFAULT_NAMESPACE,
    Base,
    CheckpointKey,
    Commit,
    Contents,
    Entry,
    Exported,
    Finding,
    Hit,
    Hits,
    NewestThreads,
    Outcome,
    Stored,
    TaskWrites,
    Write,
)
from locus.memory.model.retention import Copied, Line, Listed, VacuumProgress, ancestors, cut
from locus.memory.model.sizes import ThreadSizes
from locus.wire.format import (
    PROTOCOL,
    SERVICE,
    SPACES,
    commit_text,
    conditions,
    contents_from,
    diff_from,
    entry_from,
    exported_from,
    held_text,
    hit_from,
    newest_threads_from,
    outcome_from,
    segment,
    sizes_from,
    stored_from,
    write_from,
    writes_text,
)

T = TypeVar("T")
_Parameters = dict[str, str | int]

CONTENTS_PAGE = 500
"""The number of small threads that one request reads."""

PAGE = 1_000
"""The number of entries of a long history that one request fetches."""

MOST_IDS = 10_000
"""The number of ids of threads that one request fetches; servers list no more."""

LEAST_SECONDS, MOST_SECONDS = 0.001, 86_400.0
"""The bounds of the time that a request may ask for; the server has a limit of its own."""


class HTTPEngine(Engine, KeepsWrites, FindsMetadata, Searches, Expires, Copies, Compares, Exports, Maintains):
    """Threads on a server. It claims every capability until the server has said what it can do."""

    checks_extents = True

    def __init__(self, client: HTTPClient, space: str = "") -> None:
        """`space` names the key space, if it is not that of the threads."""
        self.client = client if not space else client.below(f"{SPACES}/{space}")
        self._space = space
        self._server: LocusServer | PlainServer | None = None

    @property
    def identity(self) -> str:
        return f"http:{self.client.config.address}"

    def _opened_space(self, name: str) -> Engine:
        return HTTPEngine(self.client, name)

    @property
    def server(self) -> LocusServer | PlainServer | None:
        """The server; `None` before the first request."""
        return self._server

    # Other engines know this from the beginning; this one, when it has asked the server.
    @property
    def dialect(self) -> Dialect:  # type: ignore[override]
        return self._server.dialect if self._server else EXACT

    @property
    def keeps_runs(self) -> bool:  # type: ignore[override]
        return self._server.keeps_runs if self._server else True

    def offers(self, capability: type) -> bool:
        """Tell whether the server has a capability. The first request tells whether it exports and compares."""
        if capability is Exports:
            return self.has("exports")
        if capability is Compares:
            return self.has("diffs")
        return super().offers(capability)

    def has(self, feature: str) -> bool:
        """Tell whether the server announces a feature. The first request tells."""
        return isinstance(self._server, LocusServer) and feature in self._server.features

    async def setup(self) -> None:
        await self._connected()

    async def _connected(self) -> LocusServer | PlainServer:
        """The server, of which the first request finds out what it is."""
        server = self._server
        if server is None or (isinstance(server, PlainServer) and server.became_locus_server):
            server = self._server = await self._discover()
        return server

    async def _discover(self) -> LocusServer | PlainServer:
        response = await self.client.request("GET", "/", retry=True)
        about = problem_details(response)
        if response.is_success and about.get("service") == SERVICE:
            if about.get("protocol") != PROTOCOL:
                raise UnsupportedFormatError(
                    f"the server speaks protocol {about.get('protocol')!r:.20} and this client {PROTOCOL}: "
                    "bring both to the same version of locus-state"
                )
            try:
                return LocusServer(self.client, about)
            except (KeyError, TypeError) as error:
                raise BackendUnavailableError("the server does not say what it can do") from error
        if self._space and (response.status_code == HTTPStatus.NOT_FOUND or response.is_success):
            raise CapabilityError(
                f"this server has no key space {self._space!r}: it needs `locus serve` of a version that has, "
                "over a store that has"
            )
        if is_from_locus_server(response) or response.status_code >= 500 or response.status_code == 429:
            raise_error(response)
        return PlainServer(self.client)

    async def _locus_server(self, what: str) -> LocusServer:
        """The server if it is a Locus server. No other one can do `what`."""
        server = await self._connected()
        if isinstance(server, PlainServer):
            raise CapabilityError(
                f"this server does not support {what}: it is no `locus serve`; check `.capabilities` first"
            )
        return server

    async def _locus_server_with(self, capability: str) -> LocusServer:
        """The server if it is a Locus server whose store has a capability."""
        server = await self._locus_server(capability)
        _check(server.keeps_writes if capability == _WRITES else getattr(server.capabilities, capability), capability)
        return server

    async def examine(self) -> list[Finding]:
        """Examine the clock. A server does not tell how its store is set up."""
        asked = datetime.now(UTC)
        response = await self.client.request("GET", "/", retry=True)
        theirs = http_time(response.headers.get("date", ""))
        return [] if theirs is None else clock(theirs, asked, SECOND)

    async def commit(self, commit: Commit) -> Outcome:
        server = await self._connected()
        if isinstance(server, PlainServer):
            return await server.commit(commit)
        if commit.expires_at is not None:
            _check(server.capabilities.ttl, "ttl_seconds")
        return await server.ask(
            outcome_from,
            "POST",
            f"/threads/{segment(commit.thread_id)}/commits",
            _in(commit.namespace),
            commit_text(commit, before="before" in server.features),
            headers=conditions(commit.if_latest),
        )

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        return await self._stored(thread_id, namespace, checkpoint_id, lambda _: {})

    async def read_part(self, thread_id: str, namespace: str, checkpoint_id: str | None, part: Part) -> Stored | None:
        return await self._stored(thread_id, namespace, checkpoint_id, lambda server: server.part(part))

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        def without(server: LocusServer) -> _Parameters:
            return {"held": held_text(held)} if "held" in server.features else {}

        stored = await self._stored(thread_id, namespace, checkpoint_id, without)
        if stored is not None and stored.since not in (None, held):
            raise HTTPUnavailableError("the server's answer is about another checkpoint than the one that is held")
        return stored

    async def _stored(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, part: Callable[[LocusServer], _Parameters]
    ) -> Stored | None:
        """Read a checkpoint, from a Locus server with only the part that further parameters of the query name."""
        server = await self._connected()
        if isinstance(server, PlainServer):
            return await server.read(thread_id, namespace, checkpoint_id)
        query = _one(namespace, checkpoint_id) | part(server)
        return await server.ask(_if_there(stored_from), "GET", f"/threads/{segment(thread_id)}/stored", query)

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        server = await self._connected()
        if isinstance(server, PlainServer):
            return await server.entry(thread_id, namespace, checkpoint_id)
        query = _one(namespace, checkpoint_id)
        return await server.ask(_if_there(entry_from), "GET", f"/threads/{segment(thread_id)}/entry", query)

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        server = await self._connected()
        if isinstance(server, PlainServer):
            return await server.history(thread_id, namespace, limit, before_seq)
        entries: list[Entry] = []
        query: _Parameters = {"every_namespace": "true"} if namespace is None else _in(namespace)
        largest = PAGE
        while limit is None or len(entries) < limit:
            size = query["limit"] = largest if limit is None else min(largest, limit - len(entries))
            if before_seq is not None:
                query["before_seq"] = before_seq
            try:
                page = await server.ask(_entries, "GET", f"/threads/{segment(thread_id)}/checkpoints", query)
            except HTTPRefusedError as error:
                if size == 1 or not is_too_large(error):
                    raise
                largest = max(1, size // 8)
                continue
            entries += page
            if len(page) < size:
                break
            before_seq = page[-1].seq
        return entries

    async def namespaces(self, thread_id: str) -> list[str]:
        server = await self._connected()
        if isinstance(server, PlainServer) or "namespaces" not in server.features:
            return await super().namespaces(thread_id)
        names = _if_there(lambda data: [str(name) for name in data["namespaces"]])
        return await server.ask(names, "GET", f"/threads/{segment(thread_id)}/namespaces") or []

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        server = await self._locus_server("list_threads")
        prefixes, pages = "prefixes" in server.features, "pages" in server.features
        if (pattern.within and not prefixes) or (pattern.after and not pages):
            # An older server would ignore what it does not know, and answer too much.
            known = Pattern(pattern.text, pattern.within if prefixes else "")
            return list(filter(pattern.matches, await self.threads(known, None)))[:limit]
        query: _Parameters = {"pattern": pattern.text, **server.within(pattern.within)}
        ids: list[str] = []
        after: str | None = pattern.after
        while after is not None and (limit is None or len(ids) < limit):
            most = MOST_IDS if pages else "all"
            query["limit"] = most if limit is None else min(limit - len(ids), MOST_IDS)
            if after:
                query["after"] = after
            page, after = await server.ask(_page_of_ids, "GET", "/threads", query)
            ids += page
        return ids

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        server = await self._connected()
        if isinstance(server, PlainServer):
            return await server.delete(thread_id, namespace, seqs)
        body = encode_trusted({"namespace": namespace, "seqs": None if seqs is None else [*seqs.items()]})
        path = f"/threads/{segment(thread_id)}/deletions"
        return await server.ask(lambda data: int(data["deleted"]), "POST", path, body=body, retry=False)

    async def recent(self, limit: int, prefix: str = "") -> list[Entry]:
        server = await self._locus_server("list_with_metadata")

        async def ask(most: int, within: str) -> list[Entry]:
            return await server.ask(_entries, "GET", "/recent", {"limit": most} | server.within(within))

        return await server.of_threads(ask, limit, prefix)

    async def newest_threads(self, limit: int, before: str | None = None, prefix: str = "") -> NewestThreads:
        server = await self._connected()
        if isinstance(server, PlainServer) or "recent_threads" not in server.features:
            return await super().newest_threads(limit, before, prefix)
        query = server.within(prefix) | ({} if before is None else {"before": before})
        while True:
            try:
                return await server.ask(newest_threads_from, "GET", "/recent-threads", query | {"limit": limit})
            except HTTPRefusedError as error:
                if limit <= 1 or not is_too_large(error):
                    raise
                limit = max(1, limit // 8)  # a page may be shorter than what was asked for

    async def newest(self, prefix: str, after: str, limit: int) -> Contents:
        server = await self._connected()
        if isinstance(server, PlainServer) or "contents" not in server.features:
            return await super().newest(prefix, after, limit)
        query = server.within(prefix) | ({"after": after} if after else {})
        return await server.ask(contents_from, "GET", "/contents", query | {"limit": min(limit, CONTENTS_PAGE)})

    async def find(self, key: str, value: str, limit: int, prefix: str = "") -> list[Entry]:
        server = await self._locus_server_with("metadata_query")

        async def ask(most: int, within: str) -> list[Entry]:
            others = encode_trusted({"limit": most} | server.within(within))
            body = f'{{"key":{encode_trusted(key)},"value":{value},{others[1:]}'
            return await server.ask(_entries, "POST", "/find", body=body)

        return await server.of_threads(ask, limit, prefix)

    async def search(self, terms: Sequence[str], limit: int, prefix: str = "") -> list[Hit]:
        server = await self._locus_server_with("search")
        body = encode_trusted({"terms": terms, "limit": limit} | server.within(prefix))
        return await server.ask(lambda data: [hit_from(hit) for hit in data["hits"]], "POST", "/search", body=body)

    async def search_until(self, terms: Sequence[str], limit: int, prefix: str, deadline: Deadline) -> Hits:
        """Search up to a deadline, at which the server ends the search and says whether it has looked at everything."""
        server = await self._locus_server_with("search")
        if "deadlines" not in server.features:
            return await super().search_until(terms, limit, prefix, deadline)
        seconds = min(max(deadline.left, LEAST_SECONDS), MOST_SECONDS)
        body = encode_trusted({"terms": terms, "limit": limit, "timeout_seconds": seconds} | server.within(prefix))
        return await server.ask(
            lambda data: Hits(map(hit_from, data["hits"]), bool(data["complete"])), "POST", "/search", body=body
        )

    async def copy(self, source: str, dest: str, copied: Copied) -> int:
        server = await self._locus_server_with("branching")
        if isinstance(copied, Line) and "ancestors" not in server.features:
            # An older server copies all ancestors, or what is listed.
            entries = await self.history(source, copied.namespace, None, None)
            line = ancestors(entries, copied.checkpoint_id, copied.longest)
            if cut(line, copied) is not None:
                raise CapabilityError("this server copies all ancestors of a checkpoint: leave out `ancestors`")
            if not line:
                return 0
            copied = Listed(copied.namespace, [entry.checkpoint_id for entry in line])
        which = {} if copied is None else asdict(copied)
        if isinstance(copied, Listed):
            which["checkpoint_ids"] = [*copied.checkpoint_ids]
        body = encode_trusted({"dest_thread_id": dest, **which})
        answer = _if_there(lambda data: int(data["copied"]))
        path = f"/threads/{segment(source)}/copy"
        return await server.ask(answer, "POST", path, body=body, retry=False) or 0

    async def put_writes(self, task: TaskWrites) -> None:
        server = await self._locus_server_with(_WRITES)
        path = _writes_path(task.thread_id, task.checkpoint_id)
        await server.ask(bool, "PUT", path, _in(task.namespace), writes_text(task))

    async def get_writes(self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
        server = await self._locus_server_with(_WRITES)
        query = _in(namespace) | ({} if task_id is None else {"task_id": task_id})
        path = _writes_path(thread_id, checkpoint_id)
        return await server.ask(lambda data: [write_from(write) for write in data["writes"]], "GET", path, query)

    async def export(self, thread_id: str, after_seq: int, limit: int, known: Mapping[str, int]) -> Exported:
        server = await self._locus_server("exports")
        body = encode_trusted({"after_seq": after_seq, "limit": limit, "known": dict(known)})
        return await server.ask(exported_from, "POST", f"/threads/{segment(thread_id)}/records", body=body)

    async def diff(self, old: CheckpointKey, new: CheckpointKey, start: int, limit: int) -> PayloadDiff:
        server = await self._locus_server("diffs")
        query: _Parameters = {"a": old.checkpoint_id, "b": new.checkpoint_id, "start": start, "limit": limit}
        query |= _in(old.namespace)
        if new.thread_id != old.thread_id:
            query["other_thread"] = new.thread_id
        if new.namespace != old.namespace:
            query["other_namespace"] = new.namespace
        return await server.ask(diff_from, "GET", f"/threads/{segment(old.thread_id)}/diff", query)

    async def vacuum(
        self, cutoff: datetime | None, keep_last: int | None, dry_run: bool
    ) -> AsyncGenerator[VacuumProgress]:
        """Let the server remove what is old, in portions, so that no response takes long; yield their progress."""
        server = await self._locus_server("vacuum")
        before = None if cutoff is None else cutoff.isoformat()
        body: dict[str, Any] = {"before": before, "keep_last": keep_last, "dry_run": dry_run}
        if "progress" in server.features:
            body["progress"] = True
        while True:
            progress, after = await server.ask(_vacuumed, "POST", "/vacuum", body=encode_trusted(body), retry=False)
            yield progress
            if after is None:
                return
            body["after"] = after

    async def sizes(
        self,
        thread_id: str,
        older_than_days: float | None,
        keep_last: int | None,
        deleting: Collection[str],
        namespace: str,
    ) -> ThreadSizes | None:
        """Ask the server, which `has("sizes")`, for the sizes of a thread."""
        server = await self._locus_server("sizes")
        about: dict[str, Any] = {"deleting": [*deleting], "namespace": namespace}
        about |= {} if older_than_days is None else {"older_than_days": older_than_days}
        about |= {} if keep_last is None else {"keep_last": keep_last}
        path = f"/threads/{segment(thread_id)}/sizes"
        return await server.ask(_if_there(sizes_from), "POST", path, body=encode_trusted(about))

    async def expire(self, now: datetime) -> int:
        server = await self._locus_server("ttl")
        body = encode_trusted({"only_expired": True})
        return await server.ask(lambda data: int(data["removed"]), "POST", "/vacuum", body=body, retry=False)

    def translate(self, error: BaseException) -> CheckpointError:
        return BackendUnavailableError(f"{self.client.config.address}: {type(error).__name__}")

    async def close(self) -> None:
        self._server = None
        await self.client.close()


_WRITES = "pending writes"


def _check(able: bool, what: str) -> None:
    if not able:
        raise CapabilityError(f"the store of this server does not support {what}; check `.capabilities` first")


def _in(namespace: str) -> _Parameters:
    return {} if namespace == DEFAULT_NAMESPACE else {"namespace": namespace}


def _one(namespace: str, checkpoint_id: str | None) -> _Parameters:
    return _in(namespace) | ({} if checkpoint_id is None else {"checkpoint_id": checkpoint_id})


def _writes_path(thread_id: str, checkpoint_id: str) -> str:
    return f"/threads/{segment(thread_id)}/checkpoints/{segment(checkpoint_id)}/writes"


def _if_there(read: Callable[[Any], T]) -> Callable[[Any], T | None]:
    return lambda data: None if data is None else read(data)


def _entries(data: Any) -> list[Entry]:
    return [entry_from(entry) for entry in data["checkpoints"]]


def _page_of_ids(data: Any) -> tuple[list[str], str | None]:
    return [str(thread_id) for thread_id in data["threads"]], data.get("next")


def _vacuumed(data: Any) -> tuple[VacuumProgress, str | None]:
    """Read the progress of a portion of a vacuum, and where to go on. Older servers tell only how many checkpoints."""
    others = (int(data.get(name, 0)) for name in ("writes", "damaged"))
    return VacuumProgress(int(data.get("threads", 0)), int(data["removed"]), *others), data.get("next")
