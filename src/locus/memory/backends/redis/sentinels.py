"""Finding the primary that sentinels name, however many of them are silent or know an old one.

A sentinel that does not answer costs no time: the others are asked before it has had its own. And a sentinel that was
cut off for a while names the primary of before, so the server that it names is asked for its role. The first sentinel
that names a real primary is asked first from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool
from redis.exceptions import AuthenticationError, AuthorizationError, RedisError, ResponseError

_HEAD_START = 0.1
"""The seconds that the sentinel which answered last has, before the others are asked as well."""

_Address = tuple[str, int]


class Sentinels(Sentinel):
    """The sentinels that name the primary. `connect` makes a client of the server at a host and port.

    No sentinel, and no server that they name, has longer than `seconds` for its answer.
    """

    def __init__(
        self,
        addresses: tuple[_Address, ...],
        settings: Mapping[str, Any],
        connect: Callable[[str, int], Redis],
        seconds: float,
    ) -> None:
        super().__init__(addresses, sentinel_kwargs=dict(settings))  # type: ignore[no-untyped-call]
        self._connect = connect
        self._seconds = seconds

    async def discover_master(self, service_name: str) -> _Address:
        """Find the first server that a sentinel names and that is a primary."""
        first, *others = self.sentinels
        tasks = [asyncio.create_task(self._primary_by(first, service_name))]
        reasons: list[str] = []
        try:
            await asyncio.wait(tasks, timeout=min(_HEAD_START, self._seconds / 4))
            if not tasks[0].done() or tasks[0].exception() is not None:
                tasks += [asyncio.create_task(self._primary_by(other, service_name)) for other in others]
            for answer in asyncio.as_completed(tasks):
                try:
                    return await answer
                except (RedisError, OSError) as error:
                    reasons.append(str(error) or type(error).__name__)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        raise MasterNotFoundError(
            f"no sentinel names a primary of {service_name!r} that is up: {'; '.join(dict.fromkeys(reasons))}"
        )

    async def _primary_by(self, sentinel: Redis, service_name: str) -> _Address:
        # Only these two: what the driver shows of a client includes how it logs in.
        settings = sentinel.connection_pool.connection_kwargs
        asking = name = f"the sentinel {settings['host']}:{settings['port']}"
        try:
            async with asyncio.timeout(self._seconds):
                masters: Any = await sentinel.sentinel_masters()
                state = masters.get(service_name)
                if not state or not self.check_master_state(state, service_name):
                    raise MasterNotFoundError(f"{name} knows none")
                host, port = state["ip"], state["port"]
                asking = f"{host}:{port}, which {name} names,"
                if not await self._is_primary(host, port):
                    raise MasterNotFoundError(f"{asking} is a replica")
        except TimeoutError:
            raise MasterNotFoundError(f"{asking} does not answer") from None
        self.sentinels.remove(sentinel)
        self.sentinels.insert(0, sentinel)
        return host, port

    async def _is_primary(self, host: str, port: int) -> bool:
        client: Any = self._connect(host, port)
        try:
            # Unlike ROLE, it needs no rights.
            answer = await client.execute_command("HELLO")
        except (AuthenticationError, AuthorizationError, ResponseError):
            return True  # whoever connects to it is told what is wrong
        finally:
            await client.aclose()
        about = answer if isinstance(answer, dict) else dict(zip(answer[::2], answer[1::2], strict=True))
        return bool(about.get(b"role") == b"master")


class PrimaryPool(SentinelConnectionPool):
    """Connections to the primary that the sentinels name."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)  # type: ignore[no-untyped-call]
        self._asking = asyncio.Lock()
        self._times_asked = 0
        self._answer: _Address | str = ""

    async def get_master_address(self) -> _Address:
        """Find the address of the primary.

        Connections that ask at the same time share an answer, and none waits for two.
        """
        before = self._times_asked
        async with self._asking:
            if self._times_asked == before:
                try:
                    self._answer = await super().get_master_address()  # type: ignore[no-untyped-call]
                except MasterNotFoundError as error:
                    self._answer = str(error)
                self._times_asked += 1
            if isinstance(self._answer, str):
                raise MasterNotFoundError(self._answer)
            return self._answer

    async def disconnect(self, inuse_connections: bool = True) -> None:
        """Close idle connections. The driver calls it when another server is named."""
        if inuse_connections:
            await super().disconnect()
        else:
            await close_idle(self)

    async def ensure_connection(self, connection: Any) -> None:
        """Open a connection anew if it was in use when another server was named, because it leads to the one before."""
        if self.master_address not in (None, (connection.host, connection.port)):
            await connection.disconnect()
        await super().ensure_connection(connection)


async def close_idle(pool: Any) -> None:
    """Close the connections that no request uses, so that each is opened anew.

    Nothing is awaited between two steps of it. The pool's own way to do this waits until each is closed; a request that
    takes one of them and opens it meanwhile loses it again, with its socket still open.
    """
    for connection in [*pool._available_connections]:
        await connection.disconnect(nowait=True)


def sentinel_pool(client: Any) -> Any:
    """The connections of a client to the server that sentinels name; None if it knows its server by itself."""
    pool = getattr(client, "connection_pool", None)
    return pool if isinstance(pool, SentinelConnectionPool) else None
