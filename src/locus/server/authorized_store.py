"""The store of the server, limited to the threads that the sender of a request may see."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypeVar

from starlette.requests import Request

from locus.memory.model.ids import Pattern, check_id
from locus.memory.model.records import Entry, Hit
from locus.memory.model.retention import Line, chosen_in
from locus.memory.store import CheckpointStore
from locus.server.auth import GRANT_KEY, GRANT_NOW_KEY, THREADS_KEY, Grant
from locus.server.bodies import Limits, body_size, read_body
from locus.server.lists import FIRST_PORTION, listed, size_of, too_large
from locus.server.quotas import Charge, Quota, QuotaLedger, charged
from locus.server.requests import Body
from locus.wire.format import from_segment
from locus.wire.problems import Problem

T = TypeVar("T")
E = TypeVar("E", Entry, Hit)
V = TypeVar("V", Entry, Hit, str)
B = TypeVar("B", bound=Body)
NO_QUOTA = Quota()


class AuthorizedStore:
    """A store, and the limits and rights of requests.

    Every route gets its thread id from `thread`, which checks the grant. A route that saves does so inside `charged`,
    which checks the quota.
    """

    def __init__(
        self, store: CheckpointStore, limits: Limits, quota: Quota = NO_QUOTA, ledger: QuotaLedger | None = None
    ) -> None:
        self.store = store
        self.limits = limits
        self._quota = quota
        self._ledger = ledger

    def key_space(self, name: str) -> AuthorizedStore:
        """Another space of keys in the same store, with the same limits, and one quota for both."""
        return AuthorizedStore(self.store.key_space(name), self.limits, self._quota, self._ledger)

    @staticmethod
    def grant(request: Request) -> Grant:
        grant: Grant = request.scope[GRANT_KEY]
        return grant

    def thread(self, request: Request, *, writing: bool = False) -> str:
        """The thread id in the path of a request, if the sender may use that thread."""
        thread_id = check_id(from_segment(request.path_params["thread_id"]))
        return self.use(request, thread_id, writing=writing)

    def use(self, request: Request, thread_id: str, *, writing: bool) -> str:
        """A thread id that a request names, if the sender may use that thread. The audit log lists it in any case."""
        request.scope.setdefault(THREADS_KEY, []).append(thread_id)
        return self.grant(request).check(thread_id, writing=writing)

    @staticmethod
    def may_still_see(request: Request, thread_id: str) -> bool:
        """Whether the session that a request came from goes on, and may see a thread: for an answer that takes long."""
        grant: Grant | None = request.scope[GRANT_NOW_KEY]()
        return grant is not None and grant.allows(thread_id)

    @staticmethod
    def checkpoint(request: Request) -> str:
        return check_id(from_segment(request.path_params["checkpoint_id"]), "checkpoint_id")

    def quota(self, request: Request) -> Quota:
        """The quota of the sender, for a day."""
        return self.grant(request).quota.over(self._quota)

    def charged(self, request: Request, saves: int = 1) -> AbstractContextManager[Charge]:
        """A context that counts a save of the sender, whose body was read. Raises a problem if the quota is used up."""
        grant = self.grant(request)
        return charged(self._ledger, grant.token_id, self.quota(request), saves, body_size(request))

    async def saves_of_copy(self, request: Request, source: str, line: Line | None) -> int:
        """The number of saves that a copy of a line, or of a whole thread, counts as: one for each checkpoint."""
        if self.quota(request).saves is None:
            return 1
        async with self.store.using() as engine:
            entries = await engine.history(source, None if line is None else line.namespace, None, None)
        return len(chosen_in(entries, line))

    async def body(self, request: Request, model: type[B]) -> B:
        """Read the body of a request, and check it by its model."""
        return await read_body(request, self.limits, lambda data, _: model.check(data))

    def prefix(self, request: Request, wanted: str = "") -> str | None:
        """The prefix of the thread ids that the sender both wants and may see; None if no id can have both."""
        granted = self.grant(request).prefix
        if wanted.startswith(granted):
            return wanted
        return granted if granted.startswith(wanted) else None

    async def query(self, result: Awaitable[T]) -> T:
        """Await the result of a query. Raises a problem if it takes too long."""
        seconds = self.limits.query_seconds
        try:
            async with asyncio.timeout(seconds):
                return await result
        except TimeoutError as error:
            raise Problem(
                500, "query_too_slow", f"this query took longer than {seconds:g} s: ask for less, or more precisely"
            ) from error

    async def entries(
        self, request: Request, prefix: str, limit: int, ask: Callable[[int, str], Awaitable[list[E]]]
    ) -> list[E]:
        """Run a query over the threads with a prefix that the sender may see. `ask` gets a limit and a prefix.

        Raises a problem if it takes too long, or its result is too large.
        """
        within = self.prefix(request, prefix)
        if within is None:
            return []
        return self.visible(
            request, await self.query(listed(lambda most: ask(most, within), limit, self.limits.state_bytes))
        )

    async def history(self, thread_id: str, namespace: str | None, limit: int, before_seq: int | None) -> list[Entry]:
        """Checkpoints of a thread, newest first: a portion at a time, because the metadata of each may be large.

        Raises a problem if they are larger than a state may be.
        """
        most, entries = self.limits.state_bytes, list[Entry]()
        while True:
            wanted = min(limit - len(entries), FIRST_PORTION)
            async with self.store.using() as engine:
                portion = await engine.history(thread_id, namespace, wanted, entries[-1].seq if entries else before_seq)
            entries += portion
            if size_of(entries) > most:
                raise too_large(most)
            if len(portion) < wanted or len(entries) >= limit:
                return entries

    def check_metadata(self, metadata: str) -> None:
        most = self.limits.metadata_bytes
        if len(metadata) > most:
            raise Problem(413, "too_large", f"metadata has at most {most} bytes here: put what is large into the state")

    def visible(self, request: Request, items: list[V]) -> list[V]:
        """Those of some ids, checkpoints or hits whose threads the sender may see.

        This checks again: the query asked for no others.
        """
        grant = self.grant(request)
        return items if grant.everywhere else [item for item in items if grant.allows(_thread_of(item))]

    async def thread_ids(self, request: Request, pattern: Pattern, limit: int | None, prefix: str = "") -> list[str]:
        visible_prefix = self.prefix(request, prefix)
        if visible_prefix is None:
            return []
        async with self.store.using() as engine:
            wanted = replace(pattern, within=visible_prefix)
            if wanted.matches_none:
                return []
            ids = await engine.threads(wanted, limit)
            if ids and not wanted.matches(ids[0]):
                # An engine that ignores `after` returns the first page again, and a client would never get beyond it.
                ids = list(filter(wanted.matches, await engine.threads(wanted, None)))[:limit]
        return self.visible(request, ids)


def _thread_of(item: Entry | Hit | str) -> str:
    if isinstance(item, str):
        return item
    return (item.entry if isinstance(item, Hit) else item).thread_id
