"""Threads on a server, over HTTP: one of ours, or any that has the four endpoints of `http_plain`.

Which of the two it is, the first request finds out: a server of ours says so at its root. Then saves are deltas,
and the laws are kept by the store behind that server. Any other server gets whole states.

    HTTPCheckpointer   the face
    HTTPStore        asks the server what it can do before it plans a save
    HTTPEngine         the primitives, in the dialect that the server speaks
    http_server        our dialect           http_plain    the other one
    http_link          requests and retries  http_errors   what they may come to
    http_format        the texts, the same for `locus.server`
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from locus.errors import BackendUnavailableError, CapabilityError, CheckpointError, UnsupportedFormatError
from locus.memory.engine import (
    Copies,
    Engine,
    Expires,
    Exports,
    FindsMetadata,
    KeepsWrites,
    Searches,
)
from locus.memory.model.codec import EXACT, Dialect
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
from locus.wire.format import PROTOCOL, SERVICE

if TYPE_CHECKING:
    from locus.memory.backends.http.client import Link
    from locus.memory.backends.http.locus_server import LocusServer
    from locus.memory.backends.http.plain_server import PlainServer


class HTTPEngine(Engine, KeepsWrites, FindsMetadata, Searches, Expires, Copies, Exports):
    """Threads on a server. It has every capability until the server has said which it has not."""

    def __init__(self, link: Link) -> None:
        # Here, and not with the first request: a fork in the middle of an import would leave half a module.
        from locus.memory.backends.http import client, locus_server, plain_server

        self.link = link
        self._server: LocusServer | PlainServer | None = None
        self._errors, self._plain, self._ours = client, plain_server.PlainServer, locus_server.LocusServer

    @property
    def identity(self) -> str:
        return f"http:{self.link.address}"

    @property
    def server(self) -> LocusServer | PlainServer | None:
        """What is known of the server; nothing before the first request."""
        return self._server

    # What other engines know when they are written, this one knows when it has asked.
    @property
    def dialect(self) -> Dialect:  # type: ignore[override]
        return self._server.dialect if self._server else EXACT

    @property
    def keeps_runs(self) -> bool:  # type: ignore[override]
        return self._server.keeps_runs if self._server else True

    def offers(self, capability: type) -> bool:
        """Whether threads are exported is known after the first request."""
        if capability is Exports:
            return self._server is not None and self._server.exports
        return super().offers(capability)

    async def setup(self) -> None:
        await self._known()

    async def _known(self) -> LocusServer | PlainServer:
        """The server, in the dialect that it speaks."""
        server = self._server
        if server is None or (isinstance(server, self._plain) and server.became_ours):
            server = self._server = await self._asked()
        return server

    async def _asked(self) -> LocusServer | PlainServer:
        response = await self.link.ask("GET", "/", again=True)
        about = self._errors.problem(response)
        if response.is_success and about.get("service") == SERVICE:
            if about.get("protocol") != PROTOCOL:
                raise UnsupportedFormatError(
                    f"the server speaks protocol {about.get('protocol')!r:.20} and this client {PROTOCOL}: "
                    "bring both to the same version of locus-sdk"
                )
            try:
                return self._ours(self.link, about)
            except (KeyError, TypeError) as error:
                raise BackendUnavailableError("the server does not say what it can do") from error
        if self._errors.is_ours(response) or response.status_code >= 500 or response.status_code == 429:
            self._errors.refuse(response)
        return self._plain(self.link)

    async def commit(self, commit: Commit) -> Outcome:
        return await (await self._known()).commit(commit)

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        return await (await self._known()).read(thread_id, namespace, checkpoint_id)

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        return await (await self._known()).entry(thread_id, namespace, checkpoint_id)

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        return await (await self._known()).history(thread_id, namespace, limit, before_seq)

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        return await (await self._known()).threads(pattern, limit)

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        return await (await self._known()).delete(thread_id, namespace, seqs)

    async def recent(self, limit: int) -> list[Entry]:
        return await (await self._known()).recent(limit)

    async def find(self, key: str, value: str, limit: int) -> list[Entry]:
        return await (await self._known()).find(key, value, limit)

    async def search(self, terms: Sequence[str], limit: int) -> list[Hit]:
        return await (await self._known()).search(terms, limit)

    async def copy(self, source: str, dest: str, namespace: str | None, checkpoint_ids: Collection[str] | None) -> int:
        return await (await self._known()).copy(source, dest, namespace, checkpoint_ids)

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
        server = await self._known()
        await server.put_writes(thread_id, namespace, checkpoint_id, task_id, writes, keep_numbered=keep_numbered)

    async def get_writes(self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
        return await (await self._known()).get_writes(thread_id, namespace, checkpoint_id, task_id)

    async def export(self, thread_id: str, after_seq: int, limit: int, known: Mapping[str, int]) -> Exported:
        server = await self._known()
        if not isinstance(server, self._ours):
            raise CapabilityError("this server gives one checkpoint at a time")
        return await server.export(thread_id, after_seq, limit, known)

    async def vacuum(self, cutoff: datetime | None, keep_last: int | None, dry_run: bool) -> int:
        return await (await self._known()).vacuum(cutoff, keep_last, dry_run)

    async def expire(self, now: datetime) -> int:
        return await (await self._known()).expire()

    def translate(self, error: BaseException) -> CheckpointError:
        return BackendUnavailableError(f"{self.link.address}: {type(error).__name__}")

    async def close(self) -> None:
        self._server = None
        await self.link.close()
