"""Routes for threads and checkpoints as whole states in JSON, for any HTTP client, `curl` included."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from locus.errors import ConfigurationError, InvalidIdError
from locus.memory.model.changes import MOST_ON_A_PAGE, PAGE
from locus.memory.model.codec import decode, decode_head, encode, encode_trusted
from locus.memory.model.comparison import LARGEST_PAGE, TooMuchText, payload_diff
from locus.memory.model.ids import check_pattern
from locus.memory.model.manifest import LONGEST_REMEMBERED, wanted
from locus.memory.model.parts import Range, needed, page_of
from locus.memory.model.payloads import dict_payload, payload_text
from locus.memory.model.price import amount
from locus.memory.model.records import ANY, DEFAULT_NAMESPACE, CheckpointKey, Extent, Stored, Unset
from locus.memory.model.records import Write as StoredWrite
from locus.memory.store import read_out
from locus.server.answers import NO_THREAD, Answer, Checkpoint, Count, Entries, missing
from locus.server.bodies import admission, is_large, json_response, jsonl_response, made, text_response
from locus.server.lists import MOST_LISTED, list_response
from locus.server.memory_budget import share_of
from locus.server.openapi import CHECKPOINT, NO_CONTENT, THREAD, Routes, answer, operation, text_answer
from locus.server.requests import (
    ID_ERROR,
    IN_QUERY,
    MOST,
    ROW,
    Body,
    Id,
    ItemPath,
    Many,
    Name,
    Namespaced,
    Number,
    Query,
    QueryFlag,
    invalid,
)
from locus.wire.format import diff_data, entry_data, etag, segment, sizes_data, write_data
from locus.wire.problems import NOT_FOUND, Problem

Listed = Annotated[int, Field(ge=0, le=MOST_LISTED), IN_QUERY]


class ThreadList(Query):
    pattern: Annotated[str, Field(description="`*` stands for any text, `?` for one character")] = "*"
    limit: Annotated[
        Listed | Literal["all"], Field(description=f"How many one answer lists; `all` is refused above {MOST_LISTED:,}")
    ] = 100
    prefix: Name = ""
    after: Annotated[Name, Field(description="Only ids behind this one: `next` of the answer before")] = ""


class ThreadDeletion(Query):
    namespace: Name | None = None


class CheckpointList(Namespaced):
    limit: Listed = 10
    before: Annotated[Id | None, Field(description="Only what is older than this checkpoint")] = None
    before_seq: Annotated[Number, IN_QUERY] | None = None
    every_namespace: QueryFlag = False


class WriteList(Namespaced):
    task_id: Id | None = None


class ItemList(Namespaced):
    checkpoint_id: Annotated[Id | None, Field(description="The latest, if it is not given")] = None
    path: Annotated[ItemPath, Field(description="The names that lead to the list, as JSON")] = ("messages",)
    start: Annotated[
        int, Field(ge=-MOST, le=MOST, description="From 0 on; a negative one counts from the end"), IN_QUERY
    ] = 0
    count: Listed = 50


class Compared(Namespaced):
    a: Annotated[Id, Field(description="The checkpoint to compare from")]
    b: Annotated[Id, Field(description="The checkpoint to compare with")]
    other_thread: Annotated[Id | None, Field(description="The thread of `b`, if it is another")] = None
    other_namespace: Annotated[Name | None, Field(description="The namespace of `b`, if it is another")] = None
    start: Annotated[Number, Field(description="`next` of the answer before"), IN_QUERY] = 0
    limit: Annotated[int, Field(ge=0, le=MOST_ON_A_PAGE, description="0 only counts"), IN_QUERY] = PAGE


class Save(Body):
    checkpoint_id: Id | None = None
    thread_id: Annotated[Id, ID_ERROR] | None = None
    created_at: str | None = None
    state: dict[Any, Any]
    metadata: dict[Any, Any] | None = None
    parent_id: Annotated[Id | None, Field(description="null: none. The latest, if it is not given")] = None


class PutWrites(Body):
    task_id: Id
    task_path: Name | None = None
    writes: Many[Annotated[tuple[Annotated[Name, ID_ERROR], Any], ROW]]
    keep_numbered: bool = False


class Measuring(Body):
    """A question about the size of a thread.

    With `older_than_days` or `keep_last`, the answer says how much such a vacuum would free; with `deleting`, how much
    deleting these checkpoints would.
    """

    older_than_days: Annotated[float, Field(ge=0)] | None = None
    keep_last: Annotated[int, Field(ge=1, le=MOST)] | None = None
    deleting: Many[Id] = Field(default_factory=list)
    namespace: Name = DEFAULT_NAMESPACE


class ListSize(Answer):
    path: list[str]
    runs: Count
    bytes: Count
    shared_bytes: Count


class Freed(Answer):
    checkpoints: Count
    runs: Count
    writes: Count
    bytes: Count


class Sizes(Answer):
    thread_id: str
    checkpoints: Count
    runs: Count
    writes: Count
    bytes: Annotated[int, Field(ge=0, description="The sum of the three that follow")]
    head_bytes: Count
    run_bytes: Count
    write_bytes: Count
    shared_bytes: Annotated[int, Field(ge=0, description="Of `run_bytes`, what more than one line of history shows")]
    lists: Annotated[list[ListSize], Field(description="The largest first")]
    freed: Freed | None


class Threads(Answer):
    threads: list[Id]
    next: Annotated[Id | None, Field(description="Only if there are more: send it as `after`")] = None


class Namespaces(Answer):
    namespaces: list[str]


class SomeItems(Answer):
    checkpoint_id: Id
    items: list[Any]
    total: Annotated[int, Field(description="How many the list has")]
    start: Annotated[int, Field(description="The position of the first of these")]


Kind = Literal["added", "removed", "changed"]


class ItemChange(Answer):
    kind: Kind
    old_index: int | None
    new_index: int | None
    before: Any
    after: Any


class ListDiff(Answer):
    path: list[str]
    old_length: Annotated[int | None, Field(description="null: it has no such list")]
    new_length: int | None
    added: Count
    removed: Count
    changed: Count
    changes: Annotated[list[ItemChange], Field(description="Those of this page")]


class ValueChange(Answer):
    path: list[str]
    kind: Kind
    before: Any
    after: Any


class Diff(Answer):
    values: list[ValueChange]
    lists: list[ListDiff]
    total: Annotated[int, Field(description="How many changes there are in all")]
    start: int
    next: Annotated[int | None, Field(description="Send it as `start` to go on; null if these were the last")]


class Saved(Answer):
    thread_id: Id
    checkpoint_id: Id


class Write(Answer):
    task_id: str
    task_path: str
    idx: int
    channel: str
    value: Any


class Writes(Answer):
    writes: list[Write]


_CHECKPOINT = answer(Checkpoint, "The checkpoint", ETag="Its id")


class ThreadRoutes(Routes):
    """Routes that save, load, list and delete checkpoints."""

    @operation("GET", "/threads", "Ids of threads, in order", answer(Threads, "Ids"))
    async def list_threads(self, request: Request, query: ThreadList) -> Response:
        limit = MOST_LISTED if query.limit == "all" else query.limit
        pattern = replace(check_pattern(query.pattern), after=query.after)
        # One more than the limit is read, to see whether there are more.
        more = limit + 1 if limit else 0
        ids = await self._authorized.query(self._authorized.thread_ids(request, pattern, more, query.prefix))
        if query.limit == "all" and len(ids) > limit:  # a client that asks for all does not read `next`
            raise Problem(
                413, "too_many", f"there are more than {limit} threads: ask for limit={limit}, and go on after"
            )
        names = ids[:limit]
        more_at = {"next": names[-1]} if len(ids) > limit else {}
        return await json_response(request, {"threads": names, **more_at})

    @operation("GET", f"{THREAD}/namespaces", "Where a thread has checkpoints", answer(Namespaces, "Names, in order"))
    async def list_namespaces(self, request: Request, thread_id: str) -> Response:
        """List the namespaces in which a thread has checkpoints."""
        namespaces = await self._store.namespaces(thread_id)
        if not namespaces:
            raise Problem(404, NOT_FOUND, NO_THREAD)
        return await json_response(request, {"namespaces": namespaces})

    @operation("DELETE", THREAD, "Delete a thread, or a namespace of it", NO_CONTENT, writing=True)
    async def delete_thread(self, request: Request, thread_id: str, query: ThreadDeletion) -> Response:
        """Delete the whole thread, or one of its namespaces."""
        namespace = query.namespace
        if not await self._store.delete(thread_id, None, namespace):
            elsewhere = "" if namespace is None else await self._store.other_namespaces(thread_id, namespace)
            detail = f"this thread has nothing in this namespace; {elsewhere}" if elsewhere else NO_THREAD
            raise Problem(404, NOT_FOUND, detail)
        return Response(status_code=204)

    @operation(
        "POST",
        f"{THREAD}/checkpoints",
        "Save a state as the newest checkpoint",
        answer(Saved, "Saved", "201", ETag="The checkpoint's id", Location="Where it is"),
        writing=True,
    )
    async def save(
        self, request: Request, thread_id: str, query: Namespaced, if_latest: str | None | Unset, body: Save
    ) -> Response:
        self._authorized.check_metadata(encode(body.metadata or {}, ("metadata",)))
        if body.thread_id not in (None, thread_id):
            raise InvalidIdError("the thread_id in the body is not the one in the path")
        with self._authorized.charged(request):
            saved = await self._store.save(
                thread_id,
                dict_payload(body.state),
                namespace=query.namespace,
                checkpoint_id=body.checkpoint_id,
                metadata=body.metadata,
                parent=body.parent_id if "parent_id" in body.model_fields_set else ANY,
                if_latest=if_latest,
                off_loop=is_large(request),
                admit=admission(request, self._authorized.limits),
            )
        where = f"/threads/{segment(thread_id)}/checkpoints/{segment(saved.checkpoint_id)}"
        headers = {"ETag": etag(saved.checkpoint_id), "Location": where}
        data = {"thread_id": thread_id, "checkpoint_id": saved.checkpoint_id}
        return await json_response(request, data, 201, headers)

    @operation("GET", f"{THREAD}/checkpoints", "Newest first, without states", answer(Entries, "Entries"))
    async def list_checkpoints(self, request: Request, thread_id: str, query: CheckpointList) -> Response:
        """List the checkpoints of a thread, newest first, without their states."""
        namespace, before_seq = None if query.every_namespace else query.namespace, query.before_seq
        if query.before is not None:
            if query.before_seq is not None or query.every_namespace:
                raise invalid("before", "given without before_seq and every_namespace")
            first = await self._store.entry(thread_id, query.before, query.namespace)
            if first is None:
                raise await self._store.not_found(thread_id, query.before, query.namespace, " to list from")
            before_seq = first.seq
        entries = await self._authorized.history(thread_id, namespace, query.limit, before_seq)
        return await list_response(request, "checkpoints", entries)

    @operation("GET", f"{THREAD}/latest", "The latest checkpoint, with its state", _CHECKPOINT)
    async def load_latest(self, request: Request, thread_id: str, query: Namespaced) -> Response:
        return await self._load(request, thread_id, None, query.namespace)

    @operation("GET", CHECKPOINT, "A checkpoint, with its state", _CHECKPOINT)
    async def load(self, request: Request, thread_id: str, checkpoint_id: str, query: Namespaced) -> Response:
        return await self._load(request, thread_id, checkpoint_id, query.namespace)

    async def _load(self, request: Request, thread_id: str, checkpoint_id: str | None, namespace: str) -> Response:
        stored = await self._store.read(thread_id, checkpoint_id, namespace)
        if stored is None:
            raise missing(await self._store.other_namespaces(thread_id, namespace))
        headers = {"ETag": etag(stored.entry.checkpoint_id)}
        return await text_response(request, await self._with_state(request, stored), headers=headers)

    async def _with_state(self, request: Request, stored: Stored, more: str = "") -> str:
        size = await read_out(stored, lambda: self._size(stored, wanted(stored.manifest)))
        self._check_size(size, "this state")
        about = encode_trusted(entry_data(stored.entry))[:-1] + more
        long = _takes_long(stored)
        # The text, and its bytes.
        state = await made(request, size, lambda: _state_text(stored), times=2, takes_long=long)
        return f'{about},"state":{state}}}'

    def _size(self, stored: Stored, extents: Iterable[Extent]) -> int:
        """The size of a state or of a part of it. It may be far larger than the stored runs, which it may repeat."""
        return len(stored.head) + amount(extents, stored.runs).characters

    def _check_size(self, size: int, what: str) -> None:
        """Raise a problem if a text is too large for this server to build. `what` names it."""
        most = self._authorized.limits.state_bytes
        if size > most:
            raise Problem(507, "state_too_large", f"{what} is larger than {most} bytes")

    @operation("GET", f"{THREAD}/items", "Some items of a list, without the rest", answer(SomeItems, "Items"))
    async def items(self, request: Request, thread_id: str, query: ItemList) -> Response:
        part = Range(query.path, query.start, query.count)
        stored = await self._store.read_part(thread_id, query.checkpoint_id, query.namespace, part)
        if stored is None:
            raise missing(await self._store.other_namespaces(thread_id, query.namespace))
        size = await read_out(stored, lambda: self._size(stored, needed(stored.manifest, part)))
        self._check_size(size, "what these items are")
        try:
            # The stored text, the values, and the text of the answer.
            size += len(stored.manifest)
            long = _takes_long(stored)
            text = await made(request, size, lambda: _items_text(stored, part), times=4, takes_long=long)
        except ConfigurationError as error:  # the path of the query leads to no list
            raise Problem(422, "invalid_request", str(error)) from error
        return await text_response(request, text)

    @operation(
        "POST",
        f"{THREAD}/sizes",
        "What a thread takes, in bytes, and what a removal would free",
        answer(Sizes, "Sizes"),
    )
    async def sizes(self, request: Request, thread_id: str, body: Measuring) -> Response:
        if body.deleting and (body.older_than_days is not None or body.keep_last is not None):
            raise invalid("deleting", "given, or what a vacuum keeps, and not both")
        sizes = await self._authorized.query(
            self._store.sizes(thread_id, body.older_than_days, body.keep_last, body.deleting, body.namespace)
        )
        if sizes is None:
            raise missing()
        return await json_response(request, sizes_data(sizes))

    @operation(
        "GET", f"{THREAD}/diff", "What changed from one checkpoint to another", answer(Diff, "A page of changes")
    )
    async def diff(self, request: Request, thread_id: str, query: Compared) -> Response:
        """Compare two checkpoints of this thread, or one of this thread and one of another."""
        other = thread_id
        if query.other_thread is not None:
            other = self._authorized.use(request, query.other_thread, writing=False)
        namespace = query.namespace if query.other_namespace is None else query.other_namespace
        old, new = CheckpointKey(thread_id, query.namespace, query.a), CheckpointKey(other, namespace, query.b)
        most = self._authorized.limits.state_bytes
        share_of(request).take(2 * LARGEST_PAGE)
        try:
            changes = await self._authorized.query(
                self._store.compare(old, new, lambda both: payload_diff(both, query.start, query.limit), most)
            )
        except TooMuchText:
            raise Problem(
                507, "state_too_large", f"what these checkpoints differ in is larger than {most} bytes"
            ) from None
        # The last change of a page may be very large.
        return await text_response(request, await asyncio.to_thread(lambda: encode_trusted(diff_data(changes))))

    @operation("DELETE", CHECKPOINT, "Delete a checkpoint", NO_CONTENT, writing=True)
    async def delete(self, request: Request, thread_id: str, checkpoint_id: str, query: Namespaced) -> Response:
        if not await self._store.delete(thread_id, checkpoint_id, query.namespace):
            raise missing(await self._store.other_namespaces(thread_id, query.namespace))
        return Response(status_code=204)

    @operation("GET", f"{CHECKPOINT}/writes", "What tasks wrote since a checkpoint", answer(Writes, "Writes"))
    async def get_writes(self, request: Request, thread_id: str, checkpoint_id: str, query: WriteList) -> Response:
        writes = await self._store.get_writes(
            thread_id, checkpoint_id, task_id=query.task_id, namespace=query.namespace
        )
        return await text_response(request, f'{{"writes":{await self._writes_text(request, writes)}}}')

    async def _writes_text(self, request: Request, writes: Sequence[StoredWrite]) -> str:
        """Pending writes as JSON text. All together may be large."""
        size = sum(len(write.value) for write in writes)
        self._check_size(size, "what tasks wrote since this checkpoint")
        return await made(request, size, lambda: encode_trusted([write_data(write) for write in writes]), times=2)

    @operation("PUT", f"{CHECKPOINT}/writes", "Replace what a task wrote", NO_CONTENT, writing=True)
    async def put_writes(
        self, request: Request, thread_id: str, checkpoint_id: str, query: Namespaced, body: PutWrites
    ) -> Response:
        with self._authorized.charged(request):
            await self._store.put_writes(
                thread_id,
                checkpoint_id,
                body.task_id,
                body.writes,
                task_path=body.task_path or "",
                namespace=query.namespace,
                keep_numbered=body.keep_numbered,
                off_loop=is_large(request),
            )
        return Response(status_code=204)

    @operation(
        "GET",
        f"{THREAD}/export",
        "All checkpoints, oldest first, one JSON object a line",
        text_answer("application/jsonl", "Lines"),
    )
    async def export(self, request: Request, thread_id: str) -> Response:
        """Stream all checkpoints of all namespaces, oldest first: one JSON object per line, with state and writes."""
        async with self._store.using() as engine:
            if not await engine.history(thread_id, None, 1, None):
                raise Problem(404, NOT_FOUND, NO_THREAD)
        return jsonl_response(request, self._lines(request, thread_id))

    async def _lines(self, request: Request, thread_id: str) -> AsyncIterator[bytes]:
        async with self._store.using() as engine:
            entries = await engine.history(thread_id, None, None, None)
        for entry in reversed(entries):
            stored = await self._store.read(thread_id, entry.checkpoint_id, entry.namespace)
            if stored is None:  # deleted since the export began
                continue
            writes: list[StoredWrite] = []
            if self._store.keeps_writes:
                writes = await self._store.get_writes(
                    thread_id, entry.checkpoint_id, task_id=None, namespace=entry.namespace
                )
            line = await self._with_state(request, stored, f',"writes":{await self._writes_text(request, writes)}')
            # Stored items have line breaks between them. Strings in JSON contain none.
            yield line.replace("\n", "").encode() + b"\n"
            share_of(request).give_back()


def _takes_long(stored: Stored) -> bool:
    """Whether the manifest is long: to decode it takes ten times as long as other texts."""
    return len(stored.manifest) > LONGEST_REMEMBERED


def _items_text(stored: Stored, part: Range) -> str:
    return encode_trusted({"checkpoint_id": stored.entry.checkpoint_id, **page_of(stored, part)._asdict()})


def _state_text(stored: Stored) -> str:
    """The state as JSON text. Raises if it is damaged: most of the stored text is passed on, so it is checked here."""
    decode_head(stored.head)
    for runs in stored.runs.values():
        for run in runs:
            decode(run.items)
    return payload_text(stored)
