"""Threads and checkpoints for everybody: whole states as JSON, by any client, `curl` included."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from locus.errors import InvalidIdError
from locus.memory.model.codec import encode_trusted
from locus.memory.model.ids import check_id, check_pattern
from locus.memory.model.manifest import visible, wanted
from locus.memory.model.payloads import dict_payload, payload_text
from locus.memory.model.records import ANY, Entry, Stored
from locus.server import fields
from locus.server.access import Access
from locus.server.bodies import accepts_gzip, json_response, text_response
from locus.wire.format import entry_data, etag, segment, write_data
from locus.wire.problems import NOT_FOUND, Problem

PAGE = 1_000
MOST_LISTED = 10_000
_SAVING = frozenset({"checkpoint_id", "thread_id", "created_at", "state", "metadata", "parent_id"})
_GZIP = 31


class ThreadsAPI:
    """The endpoints that people use, and servers of other makers have, too."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._store = access.store

    def routes(self) -> list[Route]:
        thread = "/threads/{thread_id}"
        one = f"{thread}/checkpoints/{{checkpoint_id}}"
        return [
            Route("/threads", self.list_threads, methods=["GET"]),
            Route(thread, self.delete_thread, methods=["DELETE"]),
            Route(f"{thread}/latest", self.load_latest, methods=["GET"]),
            Route(f"{thread}/checkpoints", self.save, methods=["POST"]),
            Route(f"{thread}/checkpoints", self.list_checkpoints, methods=["GET"]),
            Route(one, self.load, methods=["GET"]),
            Route(one, self.delete, methods=["DELETE"]),
            Route(f"{one}/writes", self.get_writes, methods=["GET"]),
            Route(f"{one}/writes", self.put_writes, methods=["PUT"]),
            Route(f"{thread}/export", self.export, methods=["GET"]),
        ]

    async def list_threads(self, request: Request) -> Response:
        pattern = check_pattern(request.query_params.get("pattern", "*"))
        everything = request.query_params.get("limit") == "all"
        limit = None if everything else fields.query_number(request, "limit", 100, MOST_LISTED)
        return await json_response(request, {"threads": await self._access.thread_ids(request, pattern, limit)})

    async def delete_thread(self, request: Request) -> Response:
        """The whole thread, or one namespace of it."""
        thread_id = self._access.thread(request, writing=True)
        namespace = fields.namespace(request) if "namespace" in request.query_params else None
        if not await self._store.delete(thread_id, None, namespace):
            raise Problem(404, NOT_FOUND, "there is no such thread")
        return Response(status_code=204)

    async def save(self, request: Request) -> Response:
        thread_id = self._access.thread(request, writing=True)
        expected = fields.if_latest(request)
        body = await self._access.body(request)
        fields.only(body, _SAVING)
        if body.get("thread_id") not in (None, thread_id):
            raise InvalidIdError("the thread_id in the body is not the one in the path")
        parent = body.get("parent_id", ANY)
        saved = await self._store.save(
            thread_id,
            dict_payload(fields.mapping(body, "state")),
            namespace=fields.namespace(request),
            checkpoint_id=fields.optional_text(body, "checkpoint_id"),
            metadata=fields.mapping(body, "metadata") if body.get("metadata") is not None else None,
            parent=check_id(parent, "parent_id") if isinstance(parent, str) else ANY,
            if_latest=expected,
        )
        where = f"/threads/{segment(thread_id)}/checkpoints/{segment(saved.checkpoint_id)}"
        headers = {"ETag": etag(saved.checkpoint_id), "Location": where}
        data = {"thread_id": thread_id, "checkpoint_id": saved.checkpoint_id}
        return await json_response(request, data, 201, headers)

    async def list_checkpoints(self, request: Request) -> Response:
        """Newest first, without the states."""
        thread_id = self._access.thread(request)
        limit = fields.query_number(request, "limit", 10, MOST_LISTED)
        before = request.query_params.get("before")
        before_seq = fields.query_number(request, "before_seq", None, fields.MOST)
        every = fields.query_flag(request, "every_namespace")
        namespace = None if every else fields.namespace(request)
        if before is not None and (before_seq is not None or every):
            raise fields.invalid("before", "given without before_seq and every_namespace")
        if before is not None:
            entries = await self._store.history(thread_id, limit, before, namespace)
        else:
            async with self._store.using() as engine:
                entries = await engine.history(thread_id, namespace, limit, before_seq)
        return await json_response(request, {"checkpoints": [entry_data(entry) for entry in entries]})

    async def load_latest(self, request: Request) -> Response:
        return await self._load(request, None)

    async def load(self, request: Request) -> Response:
        return await self._load(request, self._access.checkpoint(request))

    async def _load(self, request: Request, checkpoint_id: str | None) -> Response:
        thread_id = self._access.thread(request)
        stored = await self._store.read(thread_id, checkpoint_id, fields.namespace(request))
        if stored is None:
            raise Problem(404, NOT_FOUND, "there is no such checkpoint")
        headers = {"ETag": etag(stored.entry.checkpoint_id)}
        return await text_response(request, self._with_state(stored), headers=headers)

    def _with_state(self, stored: Stored, **more: Any) -> str:
        self._check_size(stored)
        about = encode_trusted({**entry_data(stored.entry), **more})
        return f'{about[:-1]},"state":{payload_text(stored)}}}'

    def _check_size(self, stored: Stored) -> None:
        """A state is put together here only if that fits: its parts may be shown more than once."""
        size = len(stored.head)
        for extent in wanted(stored.manifest):
            pieces = visible(extent, stored.runs.get(extent.branch, ()))
            size += sum(len(run.items) * (high - low) // max(run.length, 1) for run, low, high in pieces)
        if size > self._access.limits.state_bytes:
            raise Problem(507, "state_too_large", f"this state is larger than {self._access.limits.state_bytes} bytes")

    async def delete(self, request: Request) -> Response:
        thread_id = self._access.thread(request, writing=True)
        checkpoint_id = self._access.checkpoint(request)
        if not await self._store.delete(thread_id, checkpoint_id, fields.namespace(request)):
            raise Problem(404, NOT_FOUND, "there is no such checkpoint")
        return Response(status_code=204)

    async def get_writes(self, request: Request) -> Response:
        thread_id = self._access.thread(request)
        writes = await self._store.get_writes(
            thread_id,
            self._access.checkpoint(request),
            task_id=request.query_params.get("task_id"),
            namespace=fields.namespace(request),
        )
        return await json_response(request, {"writes": [write_data(write) for write in writes]})

    async def put_writes(self, request: Request) -> Response:
        thread_id = self._access.thread(request, writing=True)
        checkpoint_id, namespace = self._access.checkpoint(request), fields.namespace(request)
        body = await self._access.body(request)
        fields.only(body, frozenset({"task_id", "task_path", "writes", "keep_numbered"}))
        rows = fields.sequence(body, "writes")
        if not all(isinstance(row, list) and len(row) == 2 for row in rows):
            raise fields.invalid("writes", "lists of a channel and a value")
        await self._store.put_writes(
            thread_id,
            checkpoint_id,
            fields.text(body, "task_id"),
            [(channel, value) for channel, value in rows],
            task_path=fields.optional_text(body, "task_path") or "",
            namespace=namespace,
            keep_numbered=fields.flag(body, "keep_numbered"),
        )
        return Response(status_code=204)

    async def export(self, request: Request) -> Response:
        """All checkpoints of all namespaces, oldest first, one JSON object a line, with state and writes."""
        thread_id = self._access.thread(request)
        async with self._store.using() as engine:
            if not await engine.history(thread_id, None, 1, None):
                raise Problem(404, NOT_FOUND, "there is no such thread")
        lines = self._lines(thread_id)
        headers = {"Vary": "Accept-Encoding"}
        if accepts_gzip(request):
            return StreamingResponse(_gzipped(lines), headers=headers | {"Content-Encoding": "gzip"}, media_type=_LINES)
        return StreamingResponse(lines, headers=headers, media_type=_LINES)

    async def _lines(self, thread_id: str) -> AsyncIterator[bytes]:
        for entry in reversed(await self._all_entries(thread_id)):
            stored = await self._store.read(thread_id, entry.checkpoint_id, entry.namespace)
            if stored is None:  # deleted since the export began
                continue
            writes = []
            if self._store.keeps_writes:
                writes = await self._store.get_writes(
                    thread_id, entry.checkpoint_id, task_id=None, namespace=entry.namespace
                )
            yield self._with_state(stored, writes=[write_data(write) for write in writes]).encode() + b"\n"

    async def _all_entries(self, thread_id: str) -> list[Entry]:
        async with self._store.using() as engine:
            return await engine.history(thread_id, None, None, None)


_LINES = "application/jsonl"


async def _gzipped(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    stream = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    async for line in lines:
        if packed := stream.compress(line):
            yield packed
    yield stream.flush()
