"""A limit on the memory of all requests in progress, by estimates for bodies, parsed values and answers."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import Scope

from locus.wire.problems import Problem

_SHARE_KEY = "locus.memory"


class MemoryBudget:
    """The memory that all requests of this process may take together, and that they have taken."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0


class MemoryShare:
    """The memory of one request. It is given back when the request has ended."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._taken = 0

    def take(self, size: int) -> None:
        """Take memory from the budget. Raises a problem if that is too much, unless no other request is in progress."""
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
