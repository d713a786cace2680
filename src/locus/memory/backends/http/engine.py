"""Threads on a server, over HTTP: `locus serve`, or any server that has the four endpoints of `plain_server`.

The first request finds out which of the two it is: a Locus server says so at its root. To a Locus server, a save sends
only what is new, and the store behind that server keeps the contract. Any other server gets whole states.

The engine passes every operation on to `locus_server` or `plain_server`, the two dialects. `client` sends requests and
retries them. The texts are those of `locus.wire`, the same for client and server.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING

from locus.errors import BackendUnavailableError, CapabilityError, CheckpointError, UnsupportedFormatError
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
from locus.memory.model.codec import EXACT, Dialect
from locus.memory.model.findings import SECOND, clock, http_time
from locus.memory.model.ids import Pattern
from locus.memory.model.parts import Part
from locus.memory.model.records import (
    Base,
    CheckpointKey,
    Commit,
    Entry,
    Exported,
    Finding,
    Hit,
    Hits,
    NewestThreads,
    Outcome,
    Stored,
    Write,
)
from locus.memory.model.retention import Line, VacuumProgress
from locus.memory.model.sizes import ThreadSizes
from locus.wire.format import PROTOCOL, SERVICE

if TYPE_CHECKING:
    from locus.memory.backends.http.client import HTTPClient
    from locus.memory.backends.http.locus_server import LocusServer
    from locus.memory.backends.http.plain_server import PlainServer


class NotMeasured(Enum):
    """The type of an answer that stands for "not measured": older servers do not measure threads."""

    NOT_MEASURED = "not measured"


NOT_MEASURED = NotMeasured.NOT_MEASURED


class HTTPEngine(Engine, KeepsWrites, FindsMetadata, Searches, Expires, Copies, Compares, Exports, Maintains):
    """Threads on a server. It claims every capability until the server has said what it can do."""

    checks_extents = True

    def __init__(self, client: HTTPClient) -> None:
        # Here, and not with the first request: a fork in the middle of an import would leave half a module.
        from locus.memory.backends.http import client as client_module
        from locus.memory.backends.http import locus_server, plain_server

        self.client = client
        self._server: LocusServer | PlainServer | None = None
        self._client_module = client_module
        self._plain_server, self._locus_server = plain_server.PlainServer, locus_server.LocusServer

    @property
    def identity(self) -> str:
        return f"http:{self.client.config.address}"

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
            return self._server is not None and self._server.exports
        if capability is Compares:
            return isinstance(self._server, self._locus_server) and self._server.compares
        return super().offers(capability)

    async def setup(self) -> None:
        await self._connected()

    async def _connected(self) -> LocusServer | PlainServer:
        """The server, as its dialect, which the first request finds out."""
        server = self._server
        if server is None or (isinstance(server, self._plain_server) and server.became_locus_server):
            server = self._server = await self._discover()
        return server

    async def _discover(self) -> LocusServer | PlainServer:
        response = await self.client.request("GET", "/", retry=True)
        about = self._client_module.problem_details(response)
        if response.is_success and about.get("service") == SERVICE:
            if about.get("protocol") != PROTOCOL:
                raise UnsupportedFormatError(
                    f"the server speaks protocol {about.get('protocol')!r:.20} and this client {PROTOCOL}: "
                    "bring both to the same version of locus-state"
                )
            try:
                return self._locus_server(self.client, about)
            except (KeyError, TypeError) as error:
                raise BackendUnavailableError("the server does not say what it can do") from error
        if (
            self._client_module.is_from_locus_server(response)
            or response.status_code >= 500
            or response.status_code == 429
        ):
            self._client_module.raise_error(response)
        return self._plain_server(self.client)

    async def examine(self) -> list[Finding]:
        """Examine the clock. A server does not tell how its store is set up."""
        asked = datetime.now(UTC)
        response = await self.client.request("GET", "/", retry=True)
        theirs = http_time(response.headers.get("date", ""))
        return [] if theirs is None else clock(theirs, asked, SECOND)

    async def commit(self, commit: Commit) -> Outcome:
        return await (await self._connected()).commit(commit)

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        return await (await self._connected()).read(thread_id, namespace, checkpoint_id)

    async def read_part(self, thread_id: str, namespace: str, checkpoint_id: str | None, part: Part) -> Stored | None:
        server = await self._connected()
        if isinstance(server, self._locus_server):
            return await server.read_part(thread_id, namespace, checkpoint_id, part)
        return await server.read(thread_id, namespace, checkpoint_id)

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        server = await self._connected()
        if isinstance(server, self._locus_server):
            return await server.read_since(thread_id, namespace, checkpoint_id, held)
        return await server.read(thread_id, namespace, checkpoint_id)

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        return await (await self._connected()).entry(thread_id, namespace, checkpoint_id)

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        return await (await self._connected()).history(thread_id, namespace, limit, before_seq)

    async def namespaces(self, thread_id: str) -> list[str]:
        server = await self._connected()
        if isinstance(server, self._locus_server) and server.lists_namespaces:
            return await server.namespaces(thread_id)
        return await super().namespaces(thread_id)

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        return await (await self._connected()).threads(pattern, limit)

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        return await (await self._connected()).delete(thread_id, namespace, seqs)

    async def recent(self, limit: int, prefix: str = "") -> list[Entry]:
        return await (await self._connected()).recent(limit, prefix)

    async def newest_threads(self, limit: int, before: str | None = None, prefix: str = "") -> NewestThreads:
        server = await self._connected()
        if isinstance(server, self._locus_server) and server.lists_newest_threads:
            return await server.newest_threads(limit, before, prefix)
        return await super().newest_threads(limit, before, prefix)

    async def find(self, key: str, value: str, limit: int, prefix: str = "") -> list[Entry]:
        return await (await self._connected()).find(key, value, limit, prefix)

    async def search(self, terms: Sequence[str], limit: int, prefix: str = "") -> list[Hit]:
        return await (await self._connected()).search(terms, limit, prefix)

    async def search_until(self, terms: Sequence[str], limit: int, prefix: str, deadline: Deadline) -> Hits:
        server = await self._connected()
        if isinstance(server, self._locus_server) and server.knows_deadlines:
            return await server.search_until(terms, limit, prefix, deadline.left)
        return await super().search_until(terms, limit, prefix, deadline)

    async def copy(self, source: str, dest: str, namespace: str | None, checkpoint_ids: Collection[str] | None) -> int:
        return await (await self._connected()).copy(source, dest, namespace, checkpoint_ids)

    async def copy_line(self, source: str, dest: str, line: Line) -> int:
        server = await self._connected()
        if isinstance(server, self._locus_server) and server.copies_lines:
            return await server.copy_line(source, dest, line)
        return await super().copy_line(source, dest, line)

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
        server = await self._connected()
        await server.put_writes(thread_id, namespace, checkpoint_id, task_id, writes, keep_numbered=keep_numbered)

    async def get_writes(self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
        return await (await self._connected()).get_writes(thread_id, namespace, checkpoint_id, task_id)

    async def export(self, thread_id: str, after_seq: int, limit: int, known: Mapping[str, int]) -> Exported:
        server = await self._connected()
        if not isinstance(server, self._locus_server):
            raise CapabilityError("this server gives one checkpoint at a time")
        return await server.export(thread_id, after_seq, limit, known)

    async def diff(self, old: CheckpointKey, new: CheckpointKey, start: int, limit: int) -> PayloadDiff:
        server = await self._connected()
        if not isinstance(server, self._locus_server):
            raise CapabilityError("this server gives one checkpoint at a time")
        return await server.diff(old, new, start, limit)

    async def vacuum(
        self, cutoff: datetime | None, keep_last: int | None, dry_run: bool
    ) -> AsyncGenerator[VacuumProgress]:
        """Let the server remove what is old, and yield the progress of each portion."""
        server = await self._connected()
        if not isinstance(server, self._locus_server):
            raise CapabilityError("this server does not support vacuum: it is no `locus serve`")
        async with aclosing(server.vacuum(cutoff, keep_last, dry_run)) as portions:
            async for portion in portions:
                yield portion

    async def sizes(
        self,
        thread_id: str,
        older_than_days: float | None,
        keep_last: int | None,
        deleting: Collection[str],
        namespace: str,
    ) -> ThreadSizes | NotMeasured | None:
        """Ask the server for the sizes of a thread; `NOT_MEASURED` if it cannot tell."""
        server = await self._connected()
        if not isinstance(server, self._locus_server) or not server.tells_sizes:
            return NOT_MEASURED
        return await server.sizes(thread_id, older_than_days, keep_last, deleting, namespace)

    async def expire(self, now: datetime) -> int:
        return await (await self._connected()).expire()

    def translate(self, error: BaseException) -> CheckpointError:
        return BackendUnavailableError(f"{self.client.config.address}: {type(error).__name__}")

    async def close(self) -> None:
        self._server = None
        await self.client.close()
