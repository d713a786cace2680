"""How much memory requests in progress may take together. It is an estimate: bodies, what they become, and answers."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import Scope

from locus.wire.problems import Problem

_SHARE_KEY = "locus.memory"


class MemoryBudget:
    """What all requests of this process may take."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0


class MemoryShare:
    """What one request takes. It is given back when the request has ended."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._taken = 0

    def take(self, size: int) -> None:
        """Refuse what would be too much, unless the request is alone: its own limits hold for it."""
        budget = self._budget
        if budget.taken + size > budget.most and budget.taken > self._taken:
            raise Problem(
                503,
                "busy",
                "this server has too much in progress: try again",
                headers={"Retry-After": "1", "Connection": "close"},
            )
        budget.taken += size
        self._taken += size

    def give_back(self) -> None:
        self._budget.taken -= self._taken
        self._taken = 0

    def put_into(self, scope: Scope) -> None:
        scope[_SHARE_KEY] = self


def share_of(request: Request) -> MemoryShare:
    share: MemoryShare = request.scope[_SHARE_KEY]
    return share
