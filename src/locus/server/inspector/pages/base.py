"""Shared by all pages: the store as the sender of a request may see it, templates, and the threads that make pages.

A handler gets its thread from `Pages.thread`, which checks the grant of the sender. A thread that is not there and one
that the sender may not see lead to the same answer.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeVar

from starlette.requests import Request

from locus.memory.model.ids import check_id
from locus.memory.model.records import DEFAULT_NAMESPACE, Entry, Write
from locus.memory.store import CheckpointStore
from locus.server.authorized_store import AuthorizedStore
from locus.server.inspector.rendering import Rendering
from locus.wire.format import from_segment
from locus.wire.problems import FORBIDDEN, Problem

T = TypeVar("T")

_ROWS_ABOVE: Final = 20


@dataclass(frozen=True)
class Pages:
    """The store, as far as the sender of a request may see it, and the templates. With `writes` it may be changed."""

    authorized: AuthorizedStore
    rendering: Rendering
    writes: bool = False

    @property
    def store(self) -> CheckpointStore:
        return self.authorized.store

    def thread(self, request: Request, *, writing: bool = False) -> str:
        """The thread that the path names, if the sender may use it."""
        try:
            return self.authorized.thread(request, writing=writing)
        except Problem as problem:
            if problem.code != FORBIDDEN or self.authorized.grant(request).allows(thread_named(request)):
                raise
            raise no_such_thread() from None

    async def ready(self) -> None:
        """Raise an error here if the store cannot be used.

        Otherwise a page with a form would show it as a mistake in the form, and the text may name hosts and files.
        """
        async with self.store.using():
            pass

    async def checkpoint(self, thread_id: str, checkpoint_id: str | None, namespace: str) -> Entry:
        """A checkpoint of a thread that the sender may use; the latest one of the namespace if no id is given."""
        named = None if checkpoint_id is None else check_id(checkpoint_id, "checkpoint_id")
        entry = await self.store.entry(thread_id, named, namespace)
        if entry is None:
            raise no_such_thread()
        return entry

    async def pending_writes(self, entry: Entry) -> list[Write]:
        """The pending writes of a checkpoint; none if the store keeps none."""
        if not self.store.keeps_writes:
            return []
        return await self.store.get_writes(
            entry.thread_id, entry.checkpoint_id, task_id=None, namespace=entry.namespace
        )

    async def history(self, thread_id: str, namespace: str | None, limit: int, before: int | None) -> list[Entry]:
        """Checkpoints of a thread, newest first. A page has no limit that its reader could lower."""
        try:
            return await self.authorized.history(thread_id, namespace, limit, before)
        except Problem as problem:
            most = self.authorized.limits.state_bytes
            detail = f"The metadata of these checkpoints are larger than {most:,} bytes."
            raise Problem(problem.status, problem.code, detail) from None

    async def namespace(self, thread_id: str, asked: str | None) -> str:
        """The namespace `asked` for; else the default one if the thread has it, or that of its newest checkpoint."""
        if asked is not None:
            return asked
        if await self.store.entry(thread_id, None, DEFAULT_NAMESPACE) is not None:
            return DEFAULT_NAMESPACE
        newest = await self.store.history(thread_id, 1, None, None)
        if not newest:
            raise no_such_thread()
        return newest[0].namespace


async def off_loop(work: Callable[[], T]) -> T:
    """Do work in another thread, and return its result: payloads may be very large, and others wait for the loop."""
    return await asyncio.get_running_loop().run_in_executor(_workers(os.getpid()), work)


@cache
def _workers(_process: int) -> ThreadPoolExecutor:
    """The OS threads that make pages: few, so that pages do not take the processor from the API.

    Each process has its own. Those of a parent do not survive a fork.
    """
    return ThreadPoolExecutor(2, thread_name_prefix="locus-pages")


def timeline_before(later: Sequence[Entry]) -> int | None:
    """The parameter `before` of the page of the timeline that shows a checkpoint, with some later rows above it.

    `later` are the checkpoints after it. None for the newest page, if it is near enough to show it.
    """
    numbers = sorted(entry.seq for entry in later)
    return numbers[_ROWS_ABOVE] if len(numbers) > 2 * _ROWS_ABOVE else None


def thread_named(request: Request) -> str:
    """The thread that the path names, whoever may use it."""
    return from_segment(request.path_params["thread_id"])


def no_such_thread() -> Problem:
    """One and the same problem for a thread that is not there and for one that the sender may not see."""
    return Problem(404, "not_found", "There is no such thread or checkpoint, or it is not yours to see.")
