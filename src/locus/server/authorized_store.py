"""The store of the server, limited to what the sender of a request may see."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.requests import Request

from locus.memory.model.arguments import UNLIMITED
from locus.memory.model.ids import Pattern, check_id
from locus.memory.store import CheckpointStore
from locus.server.auth import GRANT_KEY, THREADS_KEY, Grant
from locus.server.bodies import Limits, read_body
from locus.server.requests import Body
from locus.wire.format import from_segment

T = TypeVar("T")
B = TypeVar("B", bound=Body)


class AuthorizedStore:
    """A store and the limits of requests. Every route gets its thread id from `thread`, which checks the grant."""

    def __init__(self, store: CheckpointStore, limits: Limits) -> None:
        self.store = store
        self.limits = limits

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

    async def body(self, request: Request, model: type[B]) -> B:
        """The body of a request, checked by its model."""
        return await read_body(request, self.limits, lambda data, _: model.check(data))

    async def visible(
        self, request: Request, limit: int, fetch: Callable[[int], Awaitable[list[T]]], thread_of: Callable[[T], str]
    ) -> list[T]:
        """The first `limit` of the items that `fetch` finds in threads that the sender may see."""
        grant = self.grant(request)
        if grant.everywhere or limit == 0:
            return await fetch(limit)
        asked = max(limit * 4, 100)
        while True:
            found = await fetch(min(asked, UNLIMITED))
            visible = [item for item in found if grant.allows(thread_of(item))]
            if len(visible) >= limit or len(found) < asked or asked >= UNLIMITED:
                return visible[:limit]
            asked *= 8

    async def thread_ids(self, request: Request, pattern: Pattern, limit: int | None) -> list[str]:
        grant = self.grant(request)
        async with self.store.using() as engine:
            if grant.everywhere:
                return await engine.threads(pattern, limit)
            # The store looks up one range. The prefix may contain pattern syntax, so only its literal start is used.
            shared = Pattern(f"{Pattern(grant.prefix).prefix}*")
            found = await engine.threads(shared, None)
        return [name for name in found if grant.allows(name) and pattern.matches(name)][:limit]
