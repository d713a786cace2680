"""Several servers behind one URL, one of which takes writes: which to ask first, and how long to wait for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

H = TypeVar("H")
T = TypeVar("T")


class NoHostError(ConnectionError):
    """No server took the connection. `failures` has the error of each, in the order in which they were asked."""

    def __init__(self, told: str, failures: Sequence[BaseException]) -> None:
        super().__init__(told)
        self.failures = failures


class Hosts(Generic[H]):
    """Servers of which one at a time takes writes."""

    def __init__(self, hosts: Sequence[H]) -> None:
        self._hosts = list(hosts)

    async def first_usable(
        self,
        connect: Callable[[H], Awaitable[T]],
        seconds: float,
        errors: tuple[type[BaseException], ...],
        tell: Callable[[H, BaseException], str],
        is_final: Callable[[BaseException], bool],
    ) -> T:
        """Connect to the first server to which `connect` succeeds.

        The server that was usable last is asked first. Each gets an even share of the seconds that are left, so that a
        silent server does not use up the time of the others. If all of them refuse with `errors` that are final,
        waiting does not help, and the last of these is raised.
        """
        failures: list[tuple[H, BaseException]] = []
        end = time.monotonic() + seconds
        hosts = list(self._hosts)
        for place, host in enumerate(hosts):
            share = max(0.0, end - time.monotonic()) / (len(hosts) - place)
            try:
                async with asyncio.timeout(share):
                    connection = await connect(host)
            except errors as error:
                failures.append((host, error))
            else:
                self._hosts = [host, *(other for other in hosts if other is not host)]
                return connection
        if all(is_final(error) and not isinstance(error, TimeoutError) for _, error in failures):
            raise failures[-1][1]
        told = "; ".join(tell(host, error) for host, error in failures)
        raise NoHostError(told, [error for _, error in failures])
