"""`/t/{id}/fork`, `/t/{id}/delete` and `/vacuum`: pages that change the store. Each shows first what would happen.

Without `writes` these pages do not exist, and a token that may only read is refused. To remove something, one has to
type its id.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from locus.errors import CapabilityError, ConflictError
from locus.looking.forking import fork as forked
from locus.looking.formatting import visible_id
from locus.memory.engine import Copies
from locus.memory.model.ids import MAX_ID_LENGTH, check_id
from locus.memory.model.records import Entry
from locus.memory.model.retention import Line, VacuumProgress, retention
from locus.memory.model.sizes import ThreadSizes
from locus.memory.titles import title_of
from locus.server.bodies import read_form
from locus.server.inspector.pages.base import Pages, no_such_thread
from locus.server.inspector.pages.stats import Rules
from locus.server.requests import Body, Query, Text
from locus.server.vacuuming import expire, vacuum_portion
from locus.wire.problems import Problem

VACUUM_SECONDS: Final = 20.0
"""The time that one request takes to look for old checkpoints, or to remove them."""
VACUUM_WORD: Final = "vacuum"
"""The word that confirms a vacuum."""


class ChangeQuery(Query):
    ns: Annotated[str | None, Field(max_length=MAX_ID_LENGTH)] = None
    checkpoint: Annotated[Text, Field(max_length=MAX_ID_LENGTH)] = ""


class Fork(Body):
    new_thread: Text
    ancestors: Annotated[str, Field(max_length=6, pattern="^(all|[0-9]+)$")] = "all"

    @property
    def most_ancestors(self) -> int | Literal["all"]:
        return "all" if self.ancestors == "all" else int(self.ancestors)


class Delete(Body):
    confirm: Text
    rev: Text
    """The revision that the page has shown. The checkpoint may have been replaced since."""


class VacuumForm(Rules):
    confirm: Text


@dataclass(frozen=True)
class Vacuumed:
    """The checkpoints that a vacuum has counted or removed, and whether these are all."""

    progress: VacuumProgress
    complete: bool


def routes(pages: Pages) -> list[Route]:
    if not pages.writes:
        return []
    store, authorized, rendering = pages.store, pages.authorized, pages.rendering

    def thread(request: Request) -> str:
        """The thread to change. A sender who may not write is refused whether the thread is there or not."""
        authorized.grant(request).check_writing()
        return pages.thread(request, writing=True)

    async def entry_of(thread_id: str, query: ChangeQuery) -> Entry:
        namespace = await pages.namespace(thread_id, query.ns)
        return await pages.checkpoint(thread_id, query.checkpoint or None, namespace)

    # Fork

    async def fork_form(request: Request, entry: Entry, query: ChangeQuery, suggested: str, said: str = "") -> Response:
        return rendering.page(
            request,
            "fork.html",
            status=409 if said else 200,
            thread_id=entry.thread_id,
            title=await title_of(store, entry),
            entry=entry,
            query=query,
            said=said,
            suggested=suggested[:MAX_ID_LENGTH],
        )

    async def fork_page(request: Request) -> Response:
        """The form to fork a checkpoint."""
        thread_id, query = thread(request), ChangeQuery.of(request)
        return await fork_form(request, await entry_of(thread_id, query), query, f"{thread_id}-again")

    async def fork(request: Request) -> Response:
        """Continue a checkpoint as a new thread."""
        thread_id, query = thread(request), ChangeQuery.of(request)
        form = Fork.check({**await read_form(request, authorized.limits)})
        entry = await entry_of(thread_id, query)
        if not isinstance(store.engine, Copies):
            raise CapabilityError("the store of this server does not support branching")
        new_thread = authorized.use(request, check_id(form.new_thread, "the new thread"), writing=True)
        ancestors = form.most_ancestors
        line = Line(entry.namespace, entry.checkpoint_id, None if ancestors == "all" else ancestors)
        whole = not query.checkpoint and ancestors == "all" and len(await store.namespaces(thread_id)) > 1
        try:
            saves = await authorized.saves_of_copy(request, thread_id, None if whole else line)
            with authorized.charged(request, saves):
                await forked(store, entry, new_thread, ancestors, latest=not query.checkpoint)
        except ConflictError:
            taken = "A thread with this id exists already: choose another one."
            return await fork_form(request, entry, query, form.new_thread, taken)
        return RedirectResponse(rendering.url("t", new_thread), 303)

    # Delete

    async def delete_form(
        request: Request, entry: Entry, query: ChangeQuery, said: str = "", status: int = 200
    ) -> Response:
        sizes = await authorized.query(_sizes(pages, entry, query))
        return rendering.page(
            request,
            "delete.html",
            status=status,
            thread_id=entry.thread_id,
            title=await title_of(store, entry),
            entry=entry,
            query=query,
            said=said,
            sizes=sizes,
        )

    async def delete_page(request: Request) -> Response:
        """The form to delete a checkpoint or a thread, which says what would go."""
        thread_id, query = thread(request), ChangeQuery.of(request)
        return await delete_form(request, await entry_of(thread_id, query), query)

    async def delete(request: Request) -> Response:
        """Delete a checkpoint, or a thread with all its namespaces."""
        thread_id, query = thread(request), ChangeQuery.of(request)
        form = Delete.check({**await read_form(request, authorized.limits)})
        entry = await entry_of(thread_id, query)
        named = query.checkpoint or thread_id
        if form.confirm not in (named, visible_id(named)):  # what has no shape can only be typed as it is shown
            return await delete_form(request, entry, query, "That is not the id: nothing was deleted.", 422)
        if form.rev != entry.rev:
            changed = "It has changed since you looked: nothing was deleted. Look again."
            return await delete_form(request, entry, query, changed, 409)
        namespace = entry.namespace if query.checkpoint else None
        if not await store.delete(thread_id, query.checkpoint or None, namespace):
            raise no_such_thread()
        return RedirectResponse(rendering.url("t", thread_id) if query.checkpoint else rendering.url("threads"), 303)

    # Vacuum

    def vacuum_form(
        request: Request,
        query: Rules,
        status: int = 200,
        *,
        preview: Vacuumed | None = None,
        done: Vacuumed | None = None,
        said: str = "",
    ) -> Response:
        facts: dict[str, Any] = {"query": query, "preview": preview, "done": done, "said": said, "word": VACUUM_WORD}
        return rendering.page(request, "vacuum.html", status=status, **facts)

    async def vacuum_page(request: Request) -> Response:
        """The form for a vacuum, which says what would go."""
        authorized.grant(request).check_writing()
        query = Rules.of(request)
        preview = None
        if (query.older_than or query.keep_last) and not query.wrong:
            preview = await vacuumed(request, query, dry_run=True)
        return vacuum_form(request, query, 422 if query.wrong else 200, preview=preview)

    async def vacuum(request: Request) -> Response:
        """Remove old checkpoints of the threads that the sender may see."""
        authorized.grant(request).check_writing()
        query = VacuumForm.check({**await read_form(request, authorized.limits)})
        if query.wrong:
            return vacuum_form(request, query, 422)
        if query.given() == (None, None):
            raise Problem(422, "invalid_request", "Say what is old: an age, how many to keep, or both.")
        if query.confirm != VACUUM_WORD:
            return vacuum_form(request, query, 422, said=f"Type {VACUUM_WORD} to remove them: nothing was removed.")
        return vacuum_form(request, query, done=await vacuumed(request, query, dry_run=False))

    async def vacuumed(request: Request, query: Rules, *, dry_run: bool) -> Vacuumed:
        rules, prefix = retention(datetime.now(UTC), *query.given()), authorized.prefix(request) or ""
        done, after, _ = await vacuum_portion(store, rules, "", prefix, dry_run=dry_run, seconds=VACUUM_SECONDS)
        if not dry_run and authorized.grant(request).everywhere:
            done += VacuumProgress(checkpoints=await expire(store))
        return Vacuumed(done, after is None)

    return [
        Route("/t/{thread_id}/fork", fork_page, methods=["GET"]),
        Route("/t/{thread_id}/fork", fork, methods=["POST"]),
        Route("/t/{thread_id}/delete", delete_page, methods=["GET"]),
        Route("/t/{thread_id}/delete", delete, methods=["POST"]),
        Route("/vacuum", vacuum_page, methods=["GET"]),
        Route("/vacuum", vacuum, methods=["POST"]),
    ]


async def _sizes(pages: Pages, entry: Entry, query: ChangeQuery) -> ThreadSizes:
    """The sizes of a thread, with the bytes that deleting the named checkpoint would free."""
    deleting = [entry.checkpoint_id] if query.checkpoint else ()
    sizes = await pages.store.sizes(entry.thread_id, deleting=deleting, namespace=entry.namespace)
    if sizes is None:
        raise no_such_thread()
    return sizes
