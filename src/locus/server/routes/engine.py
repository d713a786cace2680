"""The engine primitives that `HTTPCheckpointer` uses: commits, stored records, deletions and copies."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from locus.errors import CapabilityError, ConflictError
from locus.memory.engine import Copies, Expires, Exports
from locus.memory.model.parts import Ends, Range, Window
from locus.memory.model.price import OF_CLIENTS
from locus.memory.model.records import DEFAULT_NAMESPACE, Base, Commit, Unset, Verdict
from locus.memory.model.retention import Line, Listed
from locus.server.answers import Answer, Count, Entry, Exported, Outcome, Stored, existing
from locus.server.auth import Grant
from locus.server.authorized_store import AuthorizedStore
from locus.server.bodies import admission, json_response, made, read_body, text_response
from locus.server.commits import CommitBody, commit_from
from locus.server.extents import ExtentCheck
from locus.server.memory_budget import share_of
from locus.server.openapi import THREAD, Routes, answer, operation
from locus.server.requests import (
    AT_ONCE,
    ID_ERROR,
    IN_QUERY,
    MOST,
    ROW,
    Body,
    HeldIds,
    Id,
    ItemPath,
    Many,
    Name,
    Namespaced,
    Number,
    Text,
    WindowOfLists,
    invalid,
)
from locus.wire.format import entry_data, exported_text, outcome_data, stored_text
from locus.wire.problems import NOT_FOUND, Problem

_REFUSALS = (Verdict.CONFLICT, Verdict.NO_PARENT)
MOST_CLOCK_SKEW = timedelta(minutes=5)
"""How far the clock of a client with access to some threads may be off. Beyond that, the server's time is used."""
LARGEST_EXPORT = 500
"""The most checkpoints in one response."""


class CheckpointQuery(Namespaced):
    checkpoint_id: Annotated[Id | None, Field(description="The latest, if it is not given")] = None


class PartQuery(CheckpointQuery):
    path: Annotated[ItemPath | None, Field(description="Only the runs that hold some items of this list")] = None
    start: Annotated[int, Field(ge=-MOST, le=MOST), IN_QUERY] = 0
    count: Annotated[Number, IN_QUERY] = 50
    window: Annotated[
        WindowOfLists | None, Field(description="Only so many of the last items of these lists, and all of the rest")
    ] = None
    ends: Annotated[
        int | None, Field(ge=1, le=MOST, description="Only so many of the last items of every extent"), IN_QUERY
    ] = None
    held: Annotated[
        HeldIds | None,
        Field(description="Without the runs of this checkpoint, which the client has: its id and its rev"),
    ] = None


class Records(Body):
    after_seq: Number = 0
    limit: Annotated[int, Field(ge=1, le=MOST)] = LARGEST_EXPORT
    known: dict[Text, Annotated[Number, AT_ONCE]]


class Deletions(Body):
    namespace: Name | None = None
    seqs: Many[Annotated[tuple[Number, Text], ROW]] | None = None


class Copy(Body):
    dest_thread_id: Id
    namespace: Name | None = None
    checkpoint_id: Annotated[Id | None, Field(description="Only this one, with its ancestors")] = None
    ancestors: Annotated[Number | None, Field(description="How many of them, the nearest first; null: all")] = None
    checkpoint_ids: Many[Annotated[Id, ID_ERROR]] | None = None


class Deleted(Answer):
    deleted: Count


class Copied(Answer):
    copied: Count


class EngineRoutes(Routes):
    """Routes for the primitives of an engine."""

    def __init__(self, authorized: AuthorizedStore) -> None:
        super().__init__(authorized)
        limits = authorized.limits
        self._extents = ExtentCheck(replace(OF_CLIENTS, characters=limits.body_bytes, values=limits.body_values))

    @operation(
        "POST",
        f"{THREAD}/commits",
        "A save that was planned by the client: only what is new",
        answer(Outcome, "Committed, or how to send it again"),
        body=CommitBody,
        writing=True,
    )
    async def commit(
        self, request: Request, thread_id: str, query: Namespaced, if_latest: str | None | Unset
    ) -> Response:
        commit = self._with_own_times(
            await read_body(
                request,
                self._authorized.limits,
                lambda data, counter: commit_from(thread_id, query.namespace, data, if_latest, counter),
            ),
            self._authorized.grant(request),
        )
        self._authorized.check_metadata(commit.metadata)
        with self._authorized.charged(request) as charge:
            async with self._store.using() as engine:
                if commit.base is not None and not engine.keeps_runs:
                    raise CapabilityError("the store of this server keeps whole states only: send no base")
                commit, chains = await self._extents.checked(
                    commit, engine, admission(request, self._authorized.limits)
                )
                outcome = await self._store.commit(commit)
            if outcome.verdict is not Verdict.COMMITTED:
                charge.refund()
        self._extents.committed(commit, outcome, chains)
        if outcome.verdict in _REFUSALS:
            self._store.refused(commit, outcome)
        return await json_response(request, outcome_data(outcome))

    def _with_own_times(self, commit: Commit, grant: Grant) -> Commit:
        """The commit with the times that this server allows.

        The client may set the time at which a thread expires; otherwise this server's store does. A sender with access
        to some threads can neither keep them longer than the operator wants, nor set the time of a checkpoint. An
        import, which brings its own times, therefore needs a token for all threads.
        """
        now, ttl_seconds = datetime.now(UTC), self._store.ttl_seconds
        if commit.expires_at is not None and not isinstance(self._store.engine, Expires):
            raise CapabilityError("the store of this server lets no thread expire: leave out ttl_seconds")
        if ttl_seconds is not None:
            latest = now + timedelta(seconds=ttl_seconds)
            if commit.expires_at is None or (commit.expires_at > latest and not grant.everywhere):
                commit = replace(commit, expires_at=latest)
        if abs(commit.created_at - now) > MOST_CLOCK_SKEW and not grant.everywhere:
            commit = replace(commit, created_at=now)
        return commit

    @operation("GET", f"{THREAD}/stored", "A checkpoint as it is stored", answer(Stored, "Its parts"))
    async def stored(self, request: Request, thread_id: str, query: PartQuery) -> Response:
        if sum(part is not None for part in (query.path, query.window, query.ends, query.held)) > 1:
            raise invalid("path, window, ends and held", "given one at a time")
        store, where = self._store, (thread_id, query.checkpoint_id, query.namespace)
        if query.path is not None:
            stored = existing(await store.read_part(*where, Range(query.path, query.start, query.count)))
        elif query.window is not None:
            last, paths = query.window
            stored = existing(await store.read_part(*where, Window(last, frozenset(paths))))
        elif query.ends is not None:
            stored = existing(await store.read_part(*where, Ends(query.ends)))
        elif query.held is not None:
            stored = existing(await store.read_since(*where, Base(*query.held)))
        else:
            stored = existing(await store.read(*where))
        size = stored.characters
        share_of(request).take(3 * size)
        return await text_response(request, await made(request, size, partial(stored_text, stored), times=0))

    @operation("GET", f"{THREAD}/entry", "A checkpoint without its state", answer(Entry, "The entry"))
    async def entry(self, request: Request, thread_id: str, query: CheckpointQuery) -> Response:
        entry = existing(await self._store.entry(thread_id, query.checkpoint_id, query.namespace))
        return await json_response(request, entry_data(entry))

    @operation(
        "POST",
        f"{THREAD}/records",
        "Checkpoints as they are stored, in order, with the runs that the client does not know",
        answer(Exported, "Some of them; send the last number as `after_seq` to go on"),
    )
    async def records(self, request: Request, thread_id: str, body: Records) -> Response:
        """Return the checkpoints after a sequence number, with the runs that the client does not have."""
        async with self._store.using() as engine:
            if not isinstance(engine, Exports) or not engine.offers(Exports):
                raise CapabilityError("the store of this server gives one checkpoint at a time")
            exported = await engine.export(thread_id, body.after_seq, min(body.limit, LARGEST_EXPORT), body.known)
        size = sum(len(run.items) for run in exported.runs)
        for stored in exported.checkpoints:
            size += len(stored.head) + len(stored.manifest) + len(stored.entry.metadata)
        size += sum(len(write.value) for writes in exported.writes.values() for write in writes)
        share_of(request).take(3 * size)
        return await text_response(request, await made(request, size, partial(exported_text, exported), times=0))

    @operation(
        "POST",
        f"{THREAD}/deletions",
        "Delete checkpoints by number, or all",
        answer(Deleted, "How many"),
        writing=True,
    )
    async def delete_some(self, request: Request, thread_id: str, body: Deletions) -> Response:
        seqs = None if body.seqs is None else dict(body.seqs)
        async with self._store.using() as engine:
            deleted = await engine.delete(thread_id, body.namespace, seqs)
        return await json_response(request, {"deleted": deleted})

    @operation(
        "POST",
        f"{THREAD}/copy",
        "Copy a thread, or a checkpoint with its ancestors, under a new id",
        answer(Copied, "How many"),
    )
    async def copy(self, request: Request, thread_id: str, body: Copy) -> Response:
        """Copy a whole thread, one checkpoint with its ancestors, or the listed checkpoints."""
        dest = self._authorized.use(request, body.dest_thread_id, writing=True)
        among = DEFAULT_NAMESPACE if body.namespace is None else body.namespace
        if body.ancestors is not None and body.checkpoint_id is None:
            raise invalid("ancestors", "given with checkpoint_id")
        with self._authorized.charged(request, await self._saves_of(request, thread_id, body, among)):
            if body.checkpoint_ids is not None:
                copied = await self._copy_listed(thread_id, dest, among, set(body.checkpoint_ids))
            else:
                most: int | Literal["all"] = "all" if body.ancestors is None else body.ancestors
                copied = await self._store.copy(thread_id, dest, body.checkpoint_id, among, most)
            if not copied:
                raise Problem(404, NOT_FOUND, "there is nothing to copy")
        return await json_response(request, {"copied": int(copied)})

    async def _saves_of(self, request: Request, source: str, body: Copy, among: str) -> int:
        """The number of saves that a copy counts as, if saves are limited: one for each checkpoint."""
        if self._authorized.quota(request).saves is None:
            return 1
        if body.checkpoint_ids is not None:
            return len(set(body.checkpoint_ids))
        line = None if body.checkpoint_id is None else Line(among, body.checkpoint_id, body.ancestors)
        return await self._authorized.saves_of_copy(request, source, line)

    async def _copy_listed(self, source: str, dest: str, among: str, wanted: set[str]) -> int:
        async with self._store.using() as engine:
            if not isinstance(engine, Copies):
                raise CapabilityError("the store of this server does not support branching")
            copied = await engine.copy(source, dest, Listed(among, wanted))
        if copied < 0:
            raise ConflictError(f"thread {dest!r} exists already; choose another id, or delete it first")
        return copied
