"""The store of the server, limited to what the sender of a request may see."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypeVar

from starlette.requests import Request

from locus.memory.model.ids import Pattern, check_id
from locus.memory.model.records import Entry, Hit
from locus.memory.model.retention import Line, line_in
from locus.memory.store import CheckpointStore
from locus.server.auth import GRANT_KEY, THREADS_KEY, Grant
from locus.server.bodies import Limits, body_size, read_body
from locus.server.lists import listed
from locus.server.quotas import Charge, Ledger, Quota, charged
from locus.server.requests import Body
from locus.wire.format import from_segment
from locus.wire.problems import Problem

T = TypeVar("T")
E = TypeVar("E", Entry, Hit)
B = TypeVar("B", bound=Body)
NO_QUOTA = Quota()


class AuthorizedStore:
    """A store and the limits of requests. Every route gets its thread id from `thread`, which checks the grant.

    A route that saves does so inside of `charged`, which checks the quota.
    """

    def __init__(
        self, store: CheckpointStore, limits: Limits, quota: Quota = NO_QUOTA, ledger: Ledger | None = None
    ) -> None:
        self.store = store
        self.limits = limits
        self._quota = quota
        self._ledger = ledger

    @staticmethod
    def grant(request: Request) -> Grant:
        grant: Grant = request.scope[GRANT_KEY]
        return grant

    def thread(self, request: Request, *, writing: bool = False) -> str:
        """The thread id in the path of a request, if the sender may use that thread."""
        thread_id = check_id(from_segment(request.path_params["thread_id"]))
        return self.use(request, thread_id, writing=writing)

    def use(self, request: Request, thread_id: str, *, writing: bool) -> str:
        """A thread id that a request names, if the sender may use that thread. The audit log hears of it anyway."""
        request.scope.setdefault(THREADS_KEY, []).append(thread_id)
        return self.grant(request).check(thread_id, writing=writing)

    @staticmethod
    def checkpoint(request: Request) -> str:
        return check_id(from_segment(request.path_params["checkpoint_id"]), "checkpoint_id")

    def quota(self, request: Request) -> Quota:
        """What the sender may save in a day."""
        return self.grant(request).quota.over(self._quota)

    def charged(self, request: Request, saves: int = 1) -> AbstractContextManager[Charge]:
        """Count what the sender saves, whose body was read already. Raises a problem if that is too much."""
        grant = self.grant(request)
        return charged(self._ledger, grant.token_id, self.quota(request), saves, body_size(request))

    async def saves_of_copy(self, request: Request, source: str, line: Line | None) -> int:
        """As how many saves a copy of a line, or of a whole thread, counts: one for each checkpoint."""
        if self.quota(request).saves is None:
            return 1
        async with self.store.using() as engine:
            entries = await engine.history(source, None if line is None else line.namespace, None, None)
        return len(entries) if line is None else len(line_in(entries, line)[0])

    async def body(self, request: Request, model: type[B]) -> B:
        """The body of a request, checked by its model."""
        return await read_body(request, self.limits, lambda data, _: model.check(data))

    def prefix(self, request: Request, asked: str = "") -> str | None:
        """What the ids of all threads start with that the sender may see and asks for; None if there can be none."""
        granted = self.grant(request).prefix
        if asked.startswith(granted):
            return asked
        return granted if granted.startswith(asked) else None

    async def query(self, found: Awaitable[T]) -> T:
        """What a query finds, unless it takes too long."""
        seconds = self.limits.query_seconds
        try:
            async with asyncio.timeout(seconds):
                return await found
        except TimeoutError as error:
            raise Problem(
                500, "query_too_slow", f"this query took longer than {seconds:g} s: ask for less, or more precisely"
            ) from error

    async def entries(self, ask: Callable[[int], Awaitable[list[E]]], limit: int) -> list[E]:
        """What a query over many threads finds, unless it takes too long or is too large."""
        return await self.query(listed(ask, limit, self.limits.state_bytes))

    def check_metadata(self, metadata: str) -> None:
        most = self.limits.metadata_bytes
        if len(metadata) > most:
            raise Problem(413, "too_large", f"metadata has at most {most} bytes here: put what is large into the state")

    def visible(self, request: Request, found: list[T], thread_of: Callable[[T], str]) -> list[T]:
        """Only what is of threads that the sender may see. The store was asked for nothing else."""
        grant = self.grant(request)
        return found if grant.everywhere else [item for item in found if grant.allows(thread_of(item))]

    async def thread_ids(self, request: Request, pattern: Pattern, limit: int | None, asked: str = "") -> list[str]:
        prefix = self.prefix(request, asked)
        if prefix is None:
            return []
        async with self.store.using() as engine:
            wanted = replace(pattern, within=prefix)
            if wanted.matches_none:
                return []
            found = await engine.threads(wanted, limit)
            if found and not wanted.matches(found[0]):
                # An engine that does not know `after` would begin anew, and its client with it.
                found = list(filter(wanted.matches, await engine.threads(wanted, None)))[:limit]
        return self.visible(request, found, str)
