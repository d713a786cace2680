"""Search, metadata queries and vacuum, over the threads that the sender may see."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from locus.errors import CapabilityError, ConfigurationError
from locus.memory.engine import Expires, Searches
from locus.memory.model.arguments import UNLIMITED, days_before
from locus.memory.model.codec import encode
from locus.memory.model.ids import MAX_QUERY_LENGTH, MAX_TERMS, Pattern, checked_terms, query_terms
from locus.memory.model.records import Entry, Hit
from locus.memory.model.retention import outlived
from locus.server import answers
from locus.server.answers import Answer, Count, Entries
from locus.server.bodies import json_response
from locus.server.lists import MOST_LISTED, list_response
from locus.server.openapi import Routes, answer, operation
from locus.server.requests import IN_QUERY, MOST, Body, Many, Moment, Name, Query, Text, invalid
from locus.wire.problems import Problem

PORTION_SECONDS = 5.0
"""How long one vacuum request works before it returns where to continue."""

Limit = Annotated[int, Field(ge=0, le=UNLIMITED)]


class Recent(Query):
    limit: Annotated[Limit, IN_QUERY] = 100
    prefix: Name = ""


class Find(Body):
    key: Text
    value: Any
    limit: Limit = 100
    prefix: Name = ""


class Search(Body):
    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["query"]}, {"required": ["terms"]}]})

    query: Annotated[str, Field(max_length=MAX_QUERY_LENGTH)] = ""
    terms: Annotated[Many[Text], Field(max_length=MAX_TERMS)] = Field(default_factory=list)
    limit: Limit = 10
    prefix: Name = ""

    def words(self) -> list[str]:
        if ("terms" in self.model_fields_set) == ("query" in self.model_fields_set):
            raise invalid("query", "given, or terms, and not both")
        encode(self.query)  # refuses lone surrogates
        try:
            return checked_terms(self.terms) or query_terms(self.query)
        except ConfigurationError as error:
            raise Problem(400, "invalid_request", str(error)) from None


class Vacuum(Body):
    older_than_days: Annotated[float, Field(ge=0)] | None = None
    before: Moment | None = None
    keep_last: Annotated[int, Field(ge=1, le=MOST)] | None = None
    dry_run: bool = False
    after: Text | None = None
    only_expired: bool = False

    def cutoff(self) -> datetime | None:
        if self.before is not None and self.older_than_days is not None:
            raise invalid("before", "given, or older_than_days, and not both")
        return self.before if self.older_than_days is None else days_before(datetime.now(UTC), self.older_than_days)


class Hits(Answer):
    hits: list[answers.Hit]


class Removed(Answer):
    removed: Count
    next: str | None


class QueryRoutes(Routes):
    """Requests about the whole store."""

    @operation("GET", "/recent", "The newest checkpoints of all threads", answer(Entries, "Entries"), query=Recent)
    async def recent(self, request: Request) -> Response:
        asked = Recent.of(request)
        prefix = self._authorized.prefix(request, asked.prefix)
        found: list[Entry] = []
        if prefix is not None:
            found = await self._authorized.entries(lambda most: self._store.recent(most, prefix), asked.limit)
        found = self._authorized.visible(request, found, _thread)
        return await list_response(request, "checkpoints", found)

    @operation("POST", "/find", "Checkpoints by metadata, newest first", answer(Entries, "Entries"), body=Find)
    async def find(self, request: Request) -> Response:
        """Find checkpoints by metadata."""
        body = await self._authorized.body(request, Find)
        prefix = self._authorized.prefix(request, body.prefix)
        found: list[Entry] = []
        if prefix is not None:
            found = await self._authorized.entries(
                lambda most: self._store.find(body.key, body.value, most, prefix), body.limit
            )
        found = self._authorized.visible(request, found, _thread)
        return await list_response(request, "checkpoints", found)

    @operation("POST", "/search", "Checkpoints that contain all words, best first", answer(Hits, "Hits"), body=Search)
    async def search(self, request: Request) -> Response:
        """Find checkpoints by the words of `query`, or by `terms`, which are words already."""
        body = await self._authorized.body(request, Search)
        terms = body.words()
        if not isinstance(self._store.engine, Searches):
            raise CapabilityError("the store of this server does not support search")
        prefix = self._authorized.prefix(request, body.prefix)
        found: list[Hit] = []
        if prefix is not None:
            found = await self._authorized.entries(
                lambda most: self._store.search_terms(terms, most, prefix), body.limit
            )
        found = self._authorized.visible(request, found, lambda hit: hit.entry.thread_id)
        return await list_response(request, "hits", found)

    @operation(
        "POST",
        "/vacuum",
        "Delete what is old, some seconds long; send `next` as `after` to go on",
        answer(Removed, "How many"),
        body=Vacuum,
    )
    async def vacuum(self, request: Request) -> Response:
        """Delete old checkpoints for some seconds. `next` is the thread to continue after."""
        self._authorized.grant(request).check_writing()
        body = await self._authorized.body(request, Vacuum)
        cutoff, after = body.cutoff(), body.after
        if body.only_expired:
            return await json_response(request, {"removed": await self._expire(request), "next": None})
        if cutoff is None and body.keep_last is None:
            raise Problem(400, "invalid_request", "say what is old: older_than_days, keep_last, or both")
        removed = 0 if body.dry_run or after is not None else await self._expire(request)
        until = time.monotonic() + PORTION_SECONDS
        while page := await self._authorized.thread_ids(request, Pattern(after=after or ""), MOST_LISTED):
            for thread_id in page:
                if time.monotonic() > until and after is not None:
                    return await json_response(request, {"removed": removed, "next": after})
                removed += await self._vacuum_one(thread_id, cutoff, body.keep_last, body.dry_run)
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
