"""`/t/{id}/export`: a thread as a file to keep or to hand on. Files are streamed."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from locus.looking.documents import exported_lines, markdown_pieces, page_pieces
from locus.looking.reading import whole_conversation
from locus.memory.checkpointer import entry_dict
from locus.memory.model.ids import MAX_ID_LENGTH
from locus.memory.model.manifest import wanted
from locus.memory.model.payloads import dict_from
from locus.memory.model.price import amount
from locus.memory.model.records import Stored
from locus.memory.store import read_out
from locus.memory.titles import title_of
from locus.server.bodies import PIECE_BYTES, jsonl_response
from locus.server.inspector.pages.base import Pages, no_such_thread, off_loop
from locus.server.memory_budget import share_of
from locus.server.parsing import VALUE_BYTES
from locus.server.requests import Query, Text
from locus.wire.problems import Problem

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_TYPES: Final = {"json": "application/json", "md": "text/markdown", "html": "text/html"}


class ExportQuery(Query):
    ns: Annotated[str | None, Field(max_length=MAX_ID_LENGTH)] = None
    checkpoint: Annotated[Text, Field(max_length=MAX_ID_LENGTH)] = ""
    """The id of the checkpoint to export; empty for the latest. JSON Lines always have all checkpoints."""
    format: Literal["", "jsonl", "json", "md", "html"] = ""


def routes(pages: Pages) -> list[Route]:
    async def export(request: Request) -> Response:
        thread_id = pages.thread(request)
        query = ExportQuery.of(request)
        if query.format == "jsonl":
            if not await pages.store.history(thread_id, 1, None, None):
                raise no_such_thread()
            response = jsonl_response(request, _lines(pages, thread_id))
            response.headers["Content-Disposition"] = _attachment(thread_id, "jsonl")
            return response
        namespace = await pages.namespace(thread_id, query.ns)
        if not query.format:
            entry = await pages.checkpoint(thread_id, query.checkpoint or None, namespace)
            title = await title_of(pages.store, entry)
            return pages.rendering.page(
                request, "export.html", thread_id=thread_id, title=title, query=query, entry=entry
            )
        stored = await pages.store.read(thread_id, query.checkpoint or None, namespace)
        if stored is None:
            raise no_such_thread()
        await _check_size(pages, request, stored)
        pieces = await off_loop(partial(_pieces, stored, query.format))
        return StreamingResponse(
            _streamed(pieces),
            media_type=f"{_TYPES[query.format]}; charset=utf-8",
            headers={"Content-Disposition": _attachment(thread_id, query.format)},
        )

    return [Route("/t/{thread_id}/export", export)]


async def _lines(pages: Pages, thread_id: str) -> AsyncIterator[bytes]:
    async for line in exported_lines(pages.store, thread_id):
        yield f"{line}\n".encode(errors="backslashreplace")


async def _check_size(pages: Pages, request: Request, stored: Stored) -> None:
    """Refuse a state that is too large to build here; count the memory that others take."""
    most = pages.authorized.limits.state_bytes
    found = await read_out(stored, lambda: amount(wanted(stored.manifest), stored.runs))
    size = len(stored.head) + found.characters
    if size > most or VALUE_BYTES * found.values > pages.authorized.limits.memory_bytes:
        raise Problem(
            507,
            "state_too_large",
            f"This state is larger than {most:,} bytes. Export the thread as JSON Lines instead.",
        )
    share_of(request).take(2 * size + VALUE_BYTES * found.values)


def _pieces(stored: Stored, kind: str) -> Iterable[str]:
    """The pieces of a file. The state is decoded here, and written while it is sent."""
    if kind == "json":
        document: dict[str, Any] = {**entry_dict(stored.entry), "state": dict_from(stored)}
        return json.JSONEncoder(ensure_ascii=False, indent=2, default=str).iterencode(document)
    conversation = whole_conversation(stored)
    return markdown_pieces([conversation]) if kind == "md" else page_pieces([conversation])


async def _streamed(pieces: Iterable[str]) -> AsyncIterator[bytes]:
    """Pieces as bytes, gathered or cut to a size that is worth sending."""
    left = iter(pieces)
    while gathered := await off_loop(partial(_gathered, left)):
        for start in range(0, len(gathered), PIECE_BYTES):
            yield gathered[start : start + PIECE_BYTES]


def _gathered(pieces: Iterator[str]) -> bytes:
    gathered: list[str] = []
    size = 0
    while size < PIECE_BYTES and (piece := next(pieces, None)) is not None:
        gathered.append(piece)
        size += len(piece)
    return "".join(gathered).encode(errors="backslashreplace")


def _attachment(thread_id: str, kind: str) -> str:
    """A header that makes the browser save a file, and never show it as a page of this server."""
    name = _UNSAFE.sub("-", thread_id).strip("-.")[:60] or "thread"
    return f'attachment; filename="{name}.{kind}"'
