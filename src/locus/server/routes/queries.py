"""Routes for search, metadata queries and vacuum, over the threads that the sender may see."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

from pydantic import ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from locus.errors import CapabilityError, ConfigurationError, InvalidIdError
from locus.memory.engine import LOOKED_AT, Deadline, Searches
from locus.memory.model import cursors
from locus.memory.model.arguments import UNLIMITED, days_before
from locus.memory.model.codec import encode, encode_trusted
from locus.memory.model.ids import MAX_QUERY_LENGTH, MAX_TERMS, checked_terms, query_terms
from locus.memory.model.records import Entry, Hit
from locus.memory.model.records import NewestThreads as FoundThreads
from locus.memory.model.retention import VacuumProgress, retention_since
from locus.memory.titles import titles_of
from locus.server import answers
from locus.server.answers import Answer, Contents, Count, Entries
from locus.server.bodies import json_response, made, text_response
from locus.server.lists import FIRST_PORTION, list_response, size_of, too_large
from locus.server.memory_budget import share_of
from locus.server.openapi import Routes, answer, operation
from locus.server.requests import IN_QUERY, MOST, Body, Many, Moment, Name, Query, QueryFlag, Text, invalid
from locus.server.vacuuming import expire, vacuum_portion
from locus.wire.format import contents_text, thread_data
from locus.wire.problems import Problem

PORTION_SECONDS = 5.0
"""How long one vacuum request works before it returns where to continue."""

REMOVED_AT_ONCE = 16
"""How many threads a vacuum takes before it checks the clock again."""
HEADROOM = 0.9
"""The part of a query's time that a search may take, so that it can answer before the query is ended."""
LEAST_SECONDS = 1e-9
"""The time that is passed to a search whose time is up, so that it returns at once."""
TITLES_AT_ONCE = 2
"""How many threads one request reads for their titles at the same time. Many requests may do so at once."""

MOST_CONTENTS = 500
"""How many threads one request reads whole. They should be small."""

Limit = Annotated[int, Field(ge=0, le=UNLIMITED)]


class Recent(Query):
    limit: Annotated[Limit, IN_QUERY] = 100
    prefix: Name = ""


class NewestThreads(Query):
    limit: Annotated[int, Field(ge=0, le=LOOKED_AT), IN_QUERY] = 50
    before: Annotated[
        str | None, Field(max_length=cursors.MAX_LENGTH, description="`next` of the answer before: only older ones")
    ] = None
    prefix: Name = ""
    titles: Annotated[QueryFlag, Field(description="Whether to read what a user said first")] = False


class Newest(Query):
    limit: Annotated[int, Field(ge=1, le=MOST_CONTENTS), IN_QUERY] = MOST_CONTENTS
    prefix: Name = ""
    after: Annotated[Name, Field(description="`next` of the answer before")] = ""


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
    timeout_seconds: Annotated[
        float | None,
        Field(gt=0, le=86_400, description="After this, what was found so far; without it, a slow search is an error"),
    ] = None

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
    progress: bool = False

    def cutoff(self) -> datetime | None:
        if self.before is not None and self.older_than_days is not None:
            raise invalid("before", "given, or older_than_days, and not both")
        return self.before if self.older_than_days is None else days_before(datetime.now(UTC), self.older_than_days)


class RecentThread(answers.Entry):
    """A thread in a list, by its newest checkpoint."""

    count: Annotated[int, Field(description="How many saves the thread has had")]
    title: str | None


class RecentThreads(Answer):
    threads: list[RecentThread]
    more: Annotated[bool, Field(description="Whether there may be more, even if these are fewer than `limit`")]
    next: Annotated[str | None, Field(description="Only if there may be more: send it as `before`")] = None


class Hits(Answer):
    hits: list[answers.Hit]
    complete: Annotated[bool, Field(description="False if the time was up before it had looked at everything")]


class Removed(Answer):
    """The result of a vacuum.

    With `progress`, it also says how many threads it looked at, how many pending writes it removed whose checkpoint was
    never saved, and how many threads are damaged.
    """

    removed: Count
    next: str | None
    threads: Count | None = None
    writes: Count | None = None
    damaged: Count | None = None


class QueryRoutes(Routes):
    """Routes over many threads."""

    @operation("GET", "/recent", "The newest checkpoints of all threads", answer(Entries, "Entries"))
    async def recent(self, request: Request, query: Recent) -> Response:
        entries = await self._authorized.entries(request, query.prefix, query.limit, self._store.recent)
        return await list_response(request, "checkpoints", entries)

    @operation(
        "GET",
        "/recent-threads",
        "The newest threads, each once, with its newest checkpoint",
        answer(RecentThreads, "Threads"),
    )
    async def recent_threads(self, request: Request, query: NewestThreads) -> Response:
        prefix = self._authorized.prefix(request, query.prefix)
        if prefix is None:
            return await json_response(request, {"threads": [], "more": False})
        try:
            page = await self._authorized.query(self._newest(query.limit, query.before, prefix))
        except (cursors.ForeignCursorError, InvalidIdError) as error:
            raise Problem(422, "invalid_request", str(error)) from None
        entries = self._authorized.visible(request, page.entries)
        titles: list[str | None] = [None] * len(entries)
        if query.titles:
            titles = await self._authorized.query(titles_of(self._store, entries, TITLES_AT_ONCE))
        more = {} if page.next is None else {"next": page.next}

        def text() -> str:
            threads = [thread_data(entry, title) for entry, title in zip(entries, titles, strict=True)]
            return encode_trusted({"threads": threads, "more": page.next is not None, **more})

        return await text_response(request, await made(request, size_of(entries), text, times=2))

    async def _newest(self, limit: int, before: str | None, prefix: str) -> FoundThreads:
        """Read the newest threads in portions, because the metadata of each may be large."""
        most, entries = self._authorized.limits.state_bytes, list[Entry]()
        while True:
            wanted = min(limit - len(entries), FIRST_PORTION)
            page = await self._store.newest_threads(wanted, before, prefix)
            entries += page.entries
            if size_of(entries) > most:
                raise too_large(most)
            # A page that is not full took all the work that one request may do.
            if page.next is None or len(page.entries) < wanted or len(entries) >= limit:
                return FoundThreads(entries, page.next)
            before = page.next

    @operation("GET", "/contents", "The newest checkpoints of small threads, by id", answer(Contents, "Contents"))
    async def contents(self, request: Request, query: Newest) -> Response:
        """Return the newest checkpoint of each thread as it is stored, in the order of the ids of the threads."""
        prefix = self._authorized.prefix(request, query.prefix)
        if prefix is None:
            return await json_response(request, {"stored": [], "next": None, "damaged": 0})
        async with self._store.using() as engine:
            found = await self._authorized.query(engine.newest(prefix, query.after, query.limit))
        size = sum(stored.characters for stored in found.stored)
        share_of(request).take(3 * size)
        return await text_response(request, await made(request, size, partial(contents_text, found), times=0))

    @operation("POST", "/find", "Checkpoints by metadata, newest first", answer(Entries, "Entries"))
    async def find(self, request: Request, body: Find) -> Response:
        """Find checkpoints by a value in their metadata."""
        ask = partial(self._store.find, body.key, body.value)
        entries = await self._authorized.entries(request, body.prefix, body.limit, ask)
        return await list_response(request, "checkpoints", entries)

    @operation("POST", "/search", "Checkpoints that contain all words, best first", answer(Hits, "Hits"))
    async def search(self, request: Request, body: Search) -> Response:
        """Find checkpoints by the words in `query`, or by `terms`, a list of words."""
        terms = body.words()
        if not isinstance(self._store.engine, Searches):
            raise CapabilityError("the store of this server does not support search")
        complete, most_seconds = True, self._authorized.limits.query_seconds
        seconds = min(body.timeout_seconds or most_seconds, most_seconds)
        # A client that sends no time does not read `complete`. Its search gets more time than the query has, so that
        # a slow one is an error.
        deadline = Deadline(seconds * (HEADROOM if body.timeout_seconds is not None else 2.0))

        async def ask(most: int, prefix: str) -> list[Hit]:
            nonlocal complete
            hits = await self._store.search_terms(terms, most, prefix, max(deadline.left, LEAST_SECONDS))
            complete = complete and hits.complete
            return hits

        hits = await self._authorized.entries(request, body.prefix, body.limit, ask)
        return await list_response(request, "hits", hits, complete=complete)

    @operation(
        "POST",
        "/vacuum",
        "Delete what is old, some seconds long; send `next` as `after` to go on",
        answer(Removed, "How many"),
        writing=True,
    )
    async def vacuum(self, request: Request, body: Vacuum) -> Response:
        """Delete old checkpoints for some seconds. `next` says where to continue.

        Damaged threads are left alone. With `progress`, the answer counts them; without it, they are an error after the
        other threads are done.
        """
        cutoff = body.cutoff()
        if not body.only_expired and cutoff is None and body.keep_last is None:
            raise Problem(400, "invalid_request", "say what is old: older_than_days, keep_last, or both")
        done, after = VacuumProgress(), None
        if body.only_expired or (not body.dry_run and body.after is None):
            done += VacuumProgress(checkpoints=await self._expire(request))
        prefix = self._authorized.prefix(request)
        if not body.only_expired and prefix is not None:
            retention = retention_since(datetime.now(UTC), cutoff, body.keep_last)
            removed, after, damage = await vacuum_portion(
                self._store,
                retention,
                body.after or "",
                prefix,
                dry_run=body.dry_run,
                seconds=PORTION_SECONDS,
                at_once=REMOVED_AT_ONCE,
            )
            done += removed
            if damage is not None and not body.progress:
                raise damage
        about = {"removed": done.checkpoints, "next": after}
        if body.progress:
            about |= {"threads": done.threads, "writes": done.writes, "damaged": done.damaged}
        return await json_response(request, about)

    async def _expire(self, request: Request) -> int:
        """Delete expired threads, but only for a token for all threads: their number tells about other tenants."""
        return await expire(self._store) if self._authorized.grant(request).everywhere else 0
