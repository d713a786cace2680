"""The engine primitives that `HTTPCheckpointer` uses: commits, stored records, deletions and copies."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from locus.errors import CapabilityError, ConflictError
from locus.memory.engine import Copies, Expires, Exports
from locus.memory.model.ids import check_id, check_ids
from locus.memory.model.records import DEFAULT_NAMESPACE, Commit, Verdict
from locus.server import fields
from locus.server.authorized_store import AuthorizedStore
from locus.server.bodies import json_response, text_response
from locus.server.commits import commit_from
from locus.server.openapi import (
    CONDITIONS,
    COUNT,
    ID,
    NAME,
    NAMESPACE,
    NUMBER,
    THREAD,
    Schema,
    array,
    nullable,
    obj,
    operation,
    path_parameter,
    query_parameter,
    ref,
    response,
)
from locus.wire.format import entry_data, exported_text, outcome_data, stored_text
from locus.wire.problems import NOT_FOUND, Problem

_REFUSALS = (Verdict.CONFLICT, Verdict.NO_PARENT)
LARGEST_EXPORT = 500
"""The most checkpoints in one response."""
_COPYING = frozenset({"dest_thread_id", "namespace", "checkpoint_id", "checkpoint_ids"})


class EngineRoutes:
    """One request per primitive of an engine."""

    def __init__(self, authorized: AuthorizedStore) -> None:
        self._authorized = authorized
        self._store = authorized.store

    def routes(self) -> list[Route]:
        return [
            Route(f"{THREAD}/commits", self.commit, methods=["POST"]),
            Route(f"{THREAD}/stored", self.stored, methods=["GET"]),
            Route(f"{THREAD}/entry", self.entry, methods=["GET"]),
            Route(f"{THREAD}/records", self.records, methods=["POST"]),
            Route(f"{THREAD}/deletions", self.delete_some, methods=["POST"]),
            Route(f"{THREAD}/copy", self.copy, methods=["POST"]),
        ]

    async def commit(self, request: Request) -> Response:
        thread_id = self._authorized.thread(request, writing=True)
        namespace, expected = fields.namespace(request), fields.if_latest(request)
        commit = self._with_expiry(commit_from(thread_id, namespace, await self._authorized.body(request), expected))
        async with self._store.using() as engine:
            if commit.base is not None and not engine.keeps_runs:
                raise CapabilityError("the store of this server keeps whole states only: send no base")
            outcome = await engine.commit(commit)
        if outcome.verdict in _REFUSALS:
            self._store.refused(commit, outcome)
        return await json_response(request, outcome_data(outcome))

    def _with_expiry(self, commit: Commit) -> Commit:
        """With the time that the thread expires: the client's, or else the one that this server's store sets."""
        ttl_seconds = self._store.ttl_seconds
        if commit.expires_at is None and ttl_seconds is not None:
            return replace(commit, expires_at=datetime.now(UTC) + timedelta(seconds=ttl_seconds))
        if commit.expires_at is not None and not isinstance(self._store.engine, Expires):
            raise CapabilityError("the store of this server lets no thread expire: leave out ttl_seconds")
        return commit

    async def stored(self, request: Request) -> Response:
        thread_id = self._authorized.thread(request)
        wanted = request.query_params.get("checkpoint_id")
        stored = await self._store.read(thread_id, wanted, fields.namespace(request))
        if stored is None:
            raise Problem(404, NOT_FOUND, "this checkpoint does not exist")
        return await text_response(request, stored_text(stored))

    async def entry(self, request: Request) -> Response:
        thread_id = self._authorized.thread(request)
        wanted = request.query_params.get("checkpoint_id")
        entry = await self._store.entry(thread_id, wanted, fields.namespace(request))
        if entry is None:
            raise Problem(404, NOT_FOUND, "this checkpoint does not exist")
        return await json_response(request, entry_data(entry))

    async def records(self, request: Request) -> Response:
        """The checkpoints after a number, with the runs that the client does not have."""
        thread_id = self._authorized.thread(request)
        body = await self._authorized.body(request)
        fields.only(body, frozenset({"after_seq", "limit", "known"}))
        after = fields.number(body.get("after_seq", 0), "after_seq")
        limit = fields.number(body.get("limit", LARGEST_EXPORT), "limit", least=1)
        known = {name: fields.number(value, "known") for name, value in fields.mapping(body, "known").items()}
        async with self._store.using() as engine:
            if not isinstance(engine, Exports) or not engine.offers(Exports):
                raise CapabilityError("the store of this server gives one checkpoint at a time")
            exported = await engine.export(thread_id, after, min(limit, LARGEST_EXPORT), known)
        return await text_response(request, exported_text(exported))

    async def delete_some(self, request: Request) -> Response:
        thread_id = self._authorized.thread(request, writing=True)
        body = await self._authorized.body(request)
        fields.only(body, frozenset({"namespace", "seqs"}))
        namespace = fields.optional_text(body, "namespace")
        if namespace is not None:
            check_id(namespace, "namespace", empty=True)
        seqs = _seqs(body) if body.get("seqs") is not None else None
        async with self._store.using() as engine:
            deleted = await engine.delete(thread_id, namespace, seqs)
        return await json_response(request, {"deleted": deleted})

    async def copy(self, request: Request) -> Response:
        """Copy a whole thread, one checkpoint with its ancestors, or the listed checkpoints."""
        source = self._authorized.thread(request, writing=False)
        body = await self._authorized.body(request)
        fields.only(body, _COPYING)
        dest = check_id(fields.text(body, "dest_thread_id"), "dest_thread_id")
        self._authorized.grant(request).check(dest, writing=True)
        namespace = fields.optional_text(body, "namespace")
        among = DEFAULT_NAMESPACE if namespace is None else namespace
        wanted = fields.optional_text(body, "checkpoint_id")
        check_ids(source, wanted, among)
        if body.get("checkpoint_ids") is not None:
            copied = await self._copy_listed(source, dest, among, fields.sequence(body, "checkpoint_ids"))
        else:
            copied = await self._store.copy(source, dest, wanted, among)
        if not copied:
            raise Problem(404, NOT_FOUND, "there is nothing to copy")
        return await json_response(request, {"copied": int(copied)})

    async def _copy_listed(self, source: str, dest: str, among: str, ids: list[Any]) -> int:
        wanted = {check_id(name, "checkpoint_id") for name in ids}
        async with self._store.using() as engine:
            if not isinstance(engine, Copies):
                raise CapabilityError("the store of this server does not support branching")
            copied = await engine.copy(source, dest, among, wanted)
        if copied < 0:
            raise ConflictError(f"thread {dest!r} exists already; choose another id, or delete it first")
        return copied


def _seqs(body: dict[str, Any]) -> dict[int, str]:
    seqs = {}
    for row in fields.sequence(body, "seqs"):
        if not isinstance(row, list) or len(row) != 2 or not isinstance(row[1], str):
            raise fields.invalid("seqs", "lists of a number and a rev")
        seqs[fields.number(row[0], "seqs")] = row[1]
    return seqs


def openapi_paths() -> dict[str, Schema]:
    one = [NAMESPACE, query_parameter("checkpoint_id", ID, "The latest, if it is not given")]
    deleting = obj({"namespace": nullable(NAME), "seqs": nullable(array(ref("NumberAndRev")))}, closed=True)
    copying = obj(
        {
            "dest_thread_id": ID,
            "namespace": nullable(NAME),
            "checkpoint_id": nullable(ID),
            "checkpoint_ids": nullable(array(ID)),
        },
        "dest_thread_id",
        closed=True,
    )
    exporting = obj(
        {
            "after_seq": NUMBER,
            "limit": {"type": "integer", "minimum": 1, "maximum": fields.MOST},
            "known": {"type": "object", "additionalProperties": NUMBER},
        },
        "known",
        closed=True,
    )
    thread = [path_parameter("thread_id")]
    return {
        f"{THREAD}/commits": {
            "parameters": thread,
            "post": operation(
                "commit",
                "A save that was planned by the client: only what is new",
                response(ref("Outcome"), "Committed, or how to send it again"),
                parameters=[NAMESPACE, *CONDITIONS],
                body=ref("Commit"),
            ),
        },
        f"{THREAD}/stored": {
            "parameters": thread,
            "get": operation(
                "stored", "A checkpoint as it is stored", response(ref("Stored"), "Its parts"), parameters=one
            ),
        },
        f"{THREAD}/entry": {
            "parameters": thread,
            "get": operation(
                "entry", "A checkpoint without its state", response(ref("Entry"), "The entry"), parameters=one
            ),
        },
        f"{THREAD}/records": {
            "parameters": thread,
            "post": operation(
                "records",
                "Checkpoints as they are stored, in order, with the runs that the client does not know",
                response(ref("Exported"), "Some of them; send the last number as `after_seq` to go on"),
                body=exporting,
            ),
        },
        f"{THREAD}/deletions": {
            "parameters": thread,
            "post": operation(
                "delete_some",
                "Delete checkpoints by number, or all",
                response(obj({"deleted": COUNT}), "How many"),
                body=deleting,
            ),
        },
        f"{THREAD}/copy": {
            "parameters": thread,
            "post": operation(
                "copy",
                "Copy a thread, or a checkpoint with its ancestors, under a new id",
                response(obj({"copied": COUNT}), "How many"),
                body=copying,
            ),
        },
    }
