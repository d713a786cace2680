"""Threads and checkpoints as whole states in JSON, for any HTTP client, `curl` included."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from locus.errors import InvalidIdError
from locus.memory.model.codec import encode_trusted
from locus.memory.model.ids import check_id, check_pattern
from locus.memory.model.manifest import visible, wanted
from locus.memory.model.payloads import dict_payload, payload_text
from locus.memory.model.records import ANY, Stored
from locus.server import fields
from locus.server.authorized_store import AuthorizedStore
from locus.server.bodies import json_response, jsonl_response, text_response
from locus.server.openapi import (
    CHECKPOINT,
    CONDITIONS,
    FLAG,
    ID,
    NAME,
    NAMESPACE,
    NO_CONTENT,
    TEXT,
    THREAD,
    Schema,
    array,
    limit_parameter,
    nullable,
    obj,
    operation,
    path_parameter,
    query_parameter,
    ref,
    response,
)
from locus.wire.format import entry_data, etag, segment, write_data
from locus.wire.problems import NOT_FOUND, Problem

MOST_LISTED = 10_000
_SAVING = frozenset({"checkpoint_id", "thread_id", "created_at", "state", "metadata", "parent_id"})


class ThreadRoutes:
    """Saves, loads, lists and deletes checkpoints."""

    def __init__(self, authorized: AuthorizedStore) -> None:
        self._authorized = authorized
        self._store = authorized.store

    def routes(self) -> list[Route]:
        return [
            Route("/threads", self.list_threads, methods=["GET"]),
            Route(THREAD, self.delete_thread, methods=["DELETE"]),
            Route(f"{THREAD}/latest", self.load_latest, methods=["GET"]),
            Route(f"{THREAD}/checkpoints", self.save, methods=["POST"]),
            Route(f"{THREAD}/checkpoints", self.list_checkpoints, methods=["GET"]),
            Route(CHECKPOINT, self.load, methods=["GET"]),
            Route(CHECKPOINT, self.delete, methods=["DELETE"]),
            Route(f"{CHECKPOINT}/writes", self.get_writes, methods=["GET"]),
            Route(f"{CHECKPOINT}/writes", self.put_writes, methods=["PUT"]),
            Route(f"{THREAD}/export", self.export, methods=["GET"]),
        ]

    async def list_threads(self, request: Request) -> Response:
        pattern = check_pattern(request.query_params.get("pattern", "*"))
        everything = request.query_params.get("limit") == "all"
        limit = None if everything else fields.query_number(request, "limit", 100, MOST_LISTED)
        return await json_response(request, {"threads": await self._authorized.thread_ids(request, pattern, limit)})

    async def delete_thread(self, request: Request) -> Response:
        """Delete the whole thread, or one of its namespaces."""
        thread_id = self._authorized.thread(request, writing=True)
        namespace = fields.namespace(request) if "namespace" in request.query_params else None
        if not await self._store.delete(thread_id, None, namespace):
            raise Problem(404, NOT_FOUND, "this thread does not exist")
        return Response(status_code=204)

    async def save(self, request: Request) -> Response:
        thread_id = self._authorized.thread(request, writing=True)
        expected = fields.if_latest(request)
        body = await self._authorized.body(request)
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
        thread_id = self._authorized.thread(request)
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
        return await self._load(request, self._authorized.checkpoint(request))

    async def _load(self, request: Request, checkpoint_id: str | None) -> Response:
        thread_id = self._authorized.thread(request)
        stored = await self._store.read(thread_id, checkpoint_id, fields.namespace(request))
        if stored is None:
            raise Problem(404, NOT_FOUND, "this checkpoint does not exist")
        headers = {"ETag": etag(stored.entry.checkpoint_id)}
        return await text_response(request, self._with_state(stored), headers=headers)

    def _with_state(self, stored: Stored, **more: Any) -> str:
        self._check_size(stored)
        about = encode_trusted({**entry_data(stored.entry), **more})
        return f'{about[:-1]},"state":{payload_text(stored)}}}'

    def _check_size(self, stored: Stored) -> None:
        """Refuse a state that is too large to build here. A small store can hold one, because items are stored once."""
        size = len(stored.head)
        for extent in wanted(stored.manifest):
            pieces = visible(extent, stored.runs.get(extent.branch, ()))
            size += sum(len(run.items) * (high - low) // max(run.length, 1) for run, low, high in pieces)
        if size > self._authorized.limits.state_bytes:
            raise Problem(
                507, "state_too_large", f"this state is larger than {self._authorized.limits.state_bytes} bytes"
            )

    async def delete(self, request: Request) -> Response:
        thread_id = self._authorized.thread(request, writing=True)
        checkpoint_id = self._authorized.checkpoint(request)
        if not await self._store.delete(thread_id, checkpoint_id, fields.namespace(request)):
            raise Problem(404, NOT_FOUND, "this checkpoint does not exist")
        return Response(status_code=204)

    async def get_writes(self, request: Request) -> Response:
        thread_id = self._authorized.thread(request)
        writes = await self._store.get_writes(
            thread_id,
            self._authorized.checkpoint(request),
            task_id=request.query_params.get("task_id"),
            namespace=fields.namespace(request),
        )
        return await json_response(request, {"writes": [write_data(write) for write in writes]})

    async def put_writes(self, request: Request) -> Response:
        thread_id = self._authorized.thread(request, writing=True)
        checkpoint_id, namespace = self._authorized.checkpoint(request), fields.namespace(request)
        body = await self._authorized.body(request)
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
        """All checkpoints of all namespaces, oldest first: one JSON object per line, with state and writes."""
        thread_id = self._authorized.thread(request)
        async with self._store.using() as engine:
            if not await engine.history(thread_id, None, 1, None):
                raise Problem(404, NOT_FOUND, "this thread does not exist")
        return jsonl_response(request, self._lines(thread_id))

    async def _lines(self, thread_id: str) -> AsyncIterator[bytes]:
        async with self._store.using() as engine:
            entries = await engine.history(thread_id, None, None, None)
        for entry in reversed(entries):
            stored = await self._store.read(thread_id, entry.checkpoint_id, entry.namespace)
            if stored is None:  # deleted since the export began
                continue
            writes = []
            if self._store.keeps_writes:
                writes = await self._store.get_writes(
                    thread_id, entry.checkpoint_id, task_id=None, namespace=entry.namespace
                )
            yield self._with_state(stored, writes=[write_data(write) for write in writes]).encode() + b"\n"


def openapi_paths() -> dict[str, Schema]:
    return {**_thread_paths(), **_checkpoint_paths()}


def _thread_paths() -> dict[str, Schema]:
    limit = {"anyOf": [{"type": "integer", "minimum": 0, "maximum": MOST_LISTED}, {"const": "all"}], "default": 100}
    listing = [
        query_parameter("pattern", {**TEXT, "default": "*"}, "`*` stands for any text, `?` for one character"),
        query_parameter("limit", limit),
    ]
    ids = obj({"threads": array(ID)})
    lines = {"application/jsonl": {"schema": TEXT}}
    return {
        "/threads": {
            "get": operation("list_threads", "Ids of threads, in order", response(ids, "Ids"), parameters=listing)
        },
        THREAD: {
            "parameters": [path_parameter("thread_id")],
            "delete": operation(
                "delete_thread",
                "Delete a thread, or a namespace of it",
                NO_CONTENT,
                parameters=[query_parameter("namespace", NAME)],
            ),
        },
        f"{THREAD}/export": {
            "parameters": [path_parameter("thread_id")],
            "get": operation(
                "export",
                "All checkpoints, oldest first, one JSON object a line",
                {"200": {"description": "Lines", "content": lines}},
            ),
        },
        f"{THREAD}/latest": {
            "parameters": [path_parameter("thread_id")],
            "get": operation(
                "load_latest",
                "The latest checkpoint, with its state",
                response(ref("Checkpoint"), "The checkpoint", ETag="Its id"),
                parameters=[NAMESPACE],
            ),
        },
    }


def _checkpoint_paths() -> dict[str, Schema]:
    listing = [
        NAMESPACE,
        limit_parameter(10, MOST_LISTED),
        query_parameter("before", ID, "Only what is older than this checkpoint"),
        query_parameter("before_seq", {"type": "integer", "minimum": 0, "maximum": fields.MOST}),
        query_parameter("every_namespace", {"type": "boolean", "default": False}),
    ]
    saving = obj(
        {
            "checkpoint_id": nullable(ID),
            "thread_id": nullable(ID),
            "created_at": nullable(TEXT),
            "state": {"type": "object"},
            "metadata": nullable({"type": "object"}),
            "parent_id": nullable(ID),
        },
        "state",
        closed=True,
    )
    saved = obj({"thread_id": ID, "checkpoint_id": ID})
    entries = obj({"checkpoints": array(ref("Entry"))})
    writing = obj(
        {"task_id": ID, "task_path": nullable(NAME), "writes": array(ref("Pair")), "keep_numbered": FLAG},
        *("task_id", "writes"),
        closed=True,
    )
    return {
        f"{THREAD}/checkpoints": {
            "parameters": [path_parameter("thread_id")],
            "get": operation(
                "list_checkpoints", "Newest first, without states", response(entries, "Entries"), parameters=listing
            ),
            "post": operation(
                "save",
                "Save a state as the newest checkpoint",
                response(saved, "Saved", "201", ETag="The checkpoint's id", Location="Where it is"),
                parameters=[NAMESPACE, *CONDITIONS],
                body=saving,
            ),
        },
        CHECKPOINT: {
            "parameters": [path_parameter("thread_id"), path_parameter("checkpoint_id"), NAMESPACE],
            "get": operation(
                "load", "A checkpoint, with its state", response(ref("Checkpoint"), "The checkpoint", ETag="Its id")
            ),
            "delete": operation("delete", "Delete a checkpoint", NO_CONTENT),
        },
        f"{CHECKPOINT}/writes": {
            "parameters": [path_parameter("thread_id"), path_parameter("checkpoint_id"), NAMESPACE],
            "get": operation(
                "get_writes",
                "What tasks wrote since a checkpoint",
                response(obj({"writes": array(ref("Write"))}), "Writes"),
                parameters=[query_parameter("task_id", ID)],
            ),
            "put": operation("put_writes", "Replace what a task wrote", NO_CONTENT, body=writing),
        },
    }
