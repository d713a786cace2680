"""Search, metadata queries and vacuum, over the threads that the sender may see."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from locus.errors import CapabilityError
from locus.memory.engine import Expires, Searches
from locus.memory.model.arguments import UNLIMITED, check_vacuum, days_before
from locus.memory.model.codec import encode
from locus.memory.model.ids import Pattern, words
from locus.memory.model.records import Entry, Hit
from locus.memory.model.retention import outlived
from locus.server import fields
from locus.server.authorized_store import AuthorizedStore
from locus.server.bodies import json_response
from locus.server.openapi import COUNT, TEXT, Schema, array, limit_parameter, nullable, obj, operation, ref, response
from locus.wire.format import entry_data, hit_data

PORTION_SECONDS = 5.0
"""How long one vacuum request works before it returns where to continue."""

_VACUUM = frozenset({"older_than_days", "before", "keep_last", "dry_run", "after", "only_expired"})


class QueryRoutes:
    """Requests about the whole store."""

    def __init__(self, authorized: AuthorizedStore) -> None:
        self._authorized = authorized
        self._store = authorized.store

    def routes(self) -> list[Route]:
        return [
            Route("/recent", self.recent, methods=["GET"]),
            Route("/find", self.find, methods=["POST"]),
            Route("/search", self.search, methods=["POST"]),
            Route("/vacuum", self.vacuum, methods=["POST"]),
        ]

    async def recent(self, request: Request) -> Response:
        limit = fields.query_number(request, "limit", 100, UNLIMITED)
        assert limit is not None
        found = await self._authorized.visible(request, limit, self._store.recent, _thread)
        return await json_response(request, {"checkpoints": [entry_data(entry) for entry in found]})

    async def find(self, request: Request) -> Response:
        """Find checkpoints by metadata."""
        body = await self._authorized.body(request)
        fields.only(body, frozenset({"key", "value", "limit"}))
        key, limit = fields.text(body, "key"), fields.limit(body, 100)
        if "value" not in body:
            raise fields.invalid("value", "given")

        async def fetch(most: int) -> list[Entry]:
            return await self._store.find(key, body["value"], most)

        found = await self._authorized.visible(request, limit, fetch, _thread)
        return await json_response(request, {"checkpoints": [entry_data(entry) for entry in found]})

    async def search(self, request: Request) -> Response:
        """Find checkpoints by the words of `query`, or by `terms`, which are words already."""
        body = await self._authorized.body(request)
        fields.only(body, frozenset({"query", "terms", "limit"}))
        terms, limit = _terms(body), fields.limit(body, 10)
        if not isinstance(self._store.engine, Searches):
            raise CapabilityError("the store of this server does not support search")

        async def fetch(most: int) -> list[Hit]:
            async with self._store.using() as engine:
                assert isinstance(engine, Searches)
                return await engine.search(terms, most) if terms else []

        found = await self._authorized.visible(request, limit, fetch, lambda hit: hit.entry.thread_id)
        return await json_response(request, {"hits": [hit_data(hit) for hit in found]})

    async def vacuum(self, request: Request) -> Response:
        """Delete old checkpoints for some seconds. `next` is the thread to continue after."""
        self._authorized.grant(request).check_writing()
        body = await self._authorized.body(request)
        fields.only(body, _VACUUM)
        dry_run, after = fields.flag(body, "dry_run"), fields.optional_text(body, "after")
        cutoff, keep_last = _cutoff(body), fields.optional_number(body, "keep_last", 1)
        if fields.flag(body, "only_expired"):
            return await json_response(request, {"removed": await self._expire(request), "next": None})
        check_vacuum(None if cutoff is None else 0, keep_last)
        removed = 0 if dry_run or after is not None else await self._expire(request)
        until = time.monotonic() + PORTION_SECONDS
        for thread_id in await self._authorized.thread_ids(request, Pattern(), None):
            if after is not None and thread_id <= after:
                continue
            if time.monotonic() > until and after is not None:
                return await json_response(request, {"removed": removed, "next": after})
            removed += await self._vacuum_one(thread_id, cutoff, keep_last, dry_run)
            after = thread_id
        return await json_response(request, {"removed": removed, "next": None})

    async def _vacuum_one(self, thread_id: str, cutoff: datetime | None, keep_last: int | None, dry_run: bool) -> int:
        async with self._store.using() as engine:
            entries = await engine.history(thread_id, None, None, None)
            seqs = outlived(entries, cutoff, keep_last)
            doomed = {entry.seq: entry.rev for entry in entries if entry.seq in seqs}
            if not doomed or dry_run:
                return len(doomed)
            return await engine.delete(thread_id, None, doomed)

    async def _expire(self, request: Request) -> int:
        """Delete expired threads. Nobody sees them, so only their number could tell a tenant about another one."""
        async with self._store.using() as engine:
            if isinstance(engine, Expires) and self._authorized.grant(request).everywhere:
                return await engine.expire(datetime.now(UTC))
        return 0


def _thread(entry: Entry) -> str:
    return entry.thread_id


def _terms(body: dict[str, Any]) -> list[str]:
    if ("terms" in body) == ("query" in body):
        raise fields.invalid("query", "given, or terms, and not both")
    if "query" in body:
        encode(fields.text(body, "query"))
        return words(body["query"])
    terms = fields.sequence(body, "terms")
    if not all(isinstance(term, str) and term for term in terms):
        raise fields.invalid("terms", "words")
    encode(terms)
    return terms


def _cutoff(body: dict[str, Any]) -> datetime | None:
    if body.get("before") is not None and body.get("older_than_days") is not None:
        raise fields.invalid("before", "given, or older_than_days, and not both")
    if body.get("before") is not None:
        return fields.moment(body, "before")
    days = body.get("older_than_days")
    if days is None:
        return None
    if not isinstance(days, int | float) or isinstance(days, bool) or not days >= 0:
        raise fields.invalid("older_than_days", "a number from 0 on")
    return days_before(datetime.now(UTC), days)


def openapi_paths() -> dict[str, Schema]:
    entries = response(obj({"checkpoints": array(ref("Entry"))}), "Entries")
    number = {"type": "integer", "minimum": 0, "maximum": UNLIMITED}
    finding = obj({"key": TEXT, "value": {}, "limit": number}, "key", "value", closed=True)
    searching = obj({"query": TEXT, "terms": array({"type": "string", "minLength": 1}), "limit": number}, closed=True)
    searching["oneOf"] = [{"required": ["query"]}, {"required": ["terms"]}]
    vacuum = obj(
        {
            "older_than_days": nullable({"type": "number", "minimum": 0}),
            "before": nullable({"type": "string", "format": "date-time"}),
            "keep_last": nullable({"type": "integer", "minimum": 1, "maximum": fields.MOST}),
            "dry_run": {"type": "boolean"},
            "after": nullable(TEXT),
            "only_expired": {"type": "boolean"},
        },
        closed=True,
    )
    removed = obj({"removed": COUNT, "next": nullable(TEXT)})
    return {
        "/recent": {
            "get": operation(
                "recent", "The newest checkpoints of all threads", entries, parameters=[limit_parameter(100, UNLIMITED)]
            )
        },
        "/find": {"post": operation("find", "Checkpoints by metadata, newest first", entries, body=finding)},
        "/search": {
            "post": operation(
                "search",
                "Checkpoints that contain all words, best first",
                response(obj({"hits": array(ref("Hit"))}), "Hits"),
                body=searching,
            )
        },
        "/vacuum": {
            "post": operation(
                "vacuum",
                "Delete what is old, some seconds long; send `next` as `after` to go on",
                response(removed, "How many"),
                body=vacuum,
            )
        },
    }
