"""Clients of a Redis server or cluster: one for each event loop, because connections belong to the loop that opened
them. A client is closed when its loop ends, when the handle is closed, and when the handle is garbage.

Engines for locations: the only place that makes clients of the driver.

What Redis and its driver say, as errors of ours that tell what to do.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from redis.asyncio import ConnectionPool, Redis, RedisCluster
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from locus.errors import (
    BackendUnavailableError,
    CapabilityError,
    CheckpointError,
    ConfigurationError,
    CorruptCheckpointError,
    SerializationError,
)
from locus.memory.backends.redis.config import RedisLocation
from locus.memory.backends.redis.scripts import Script

T = TypeVar("T")

DRIVER_ERRORS = (RedisError, RedisClusterException, OSError)
_PASSING = (RedisConnectionError, RedisTimeoutError, RedisClusterException, OSError)
_LASTING = (AuthenticationError, AuthorizationError)
_FIRST_PAUSE = 0.02


class Call(NamedTuple):
    """A script with what it is given."""

    script: Script
    keys: Sequence[bytes | str]
    arguments: Sequence[Any] = ()


class _Opened(NamedTuple):
    client: Any
    places: asyncio.Semaphore
    keeper: AsyncGenerator[None] | None
    pid: int


class RedisClients:
    """Calls scripts, again where a connection was lost: every script of ours may be sent twice.

    A `shared` client is the caller's: it is used from every loop, and left open. No more than `at_once` requests are
    under way in a loop, and none waits for its answer longer than `timeout`.
    """

    def __init__(
        self, make: Callable[[], Any], *, shared: Any = None, retries: int, timeout: float, at_once: int
    ) -> None:
        self._make = make
        self._shared = shared
        self._retries = retries
        self._timeout = timeout
        self._at_once = at_once
        self._opened: dict[asyncio.AbstractEventLoop, _Opened] = {}
        self._inherited: list[_Opened] = []

    def _here(self) -> _Opened:
        """The client of the running loop."""
        loop = asyncio.get_running_loop()
        opened = self._opened.get(loop)
        if opened is not None and opened.pid == os.getpid():
            return opened
        if opened is not None:
            # The sockets are the parent process's: closing them properly would be its business, too.
            self._inherited.append(opened)
        for ended in [other for other in list(self._opened) if other.is_closed()]:
            self._opened.pop(ended, None)
        opened = self._opened[loop] = self._open(loop)
        return opened

    def _open(self, loop: asyncio.AbstractEventLoop) -> _Opened:
        places = asyncio.Semaphore(self._at_once)
        if self._shared is not None:
            return _Opened(self._shared, places, None, os.getpid())
        client = self._make()
        keeper = self._kept(loop, client)
        with suppress(StopIteration):
            keeper.__anext__().send(None)
        return _Opened(client, places, keeper, os.getpid())

    async def _kept(self, loop: asyncio.AbstractEventLoop, client: Any) -> AsyncGenerator[None]:
        """Waits for its end, which a loop brings about before it is closed."""
        try:
            yield
        finally:
            self._opened.pop(loop, None)
            with suppress(*DRIVER_ERRORS):
                await client.aclose()

    async def run(self, script: Script, keys: Sequence[bytes | str], *arguments: Any) -> Any:
        """What a script answers."""
        answer, _ = await self.run_once(script, keys, *arguments)
        return answer

    async def run_once(self, script: Script, keys: Sequence[bytes | str], *arguments: Any) -> tuple[Any, bool]:
        """What a script answers, and whether it may have run before: then its answer was lost."""
        attempt = 0
        while True:
            client, places, _, _ = self._here()
            try:
                # One clock for all of it: those of the driver, one for each step, cost a save twice as much.
                async with places, asyncio.timeout(self._timeout):
                    try:
                        answer = await client.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments)
                    except NoScriptError:
                        answer = await client.execute_command("EVAL", script.text, len(keys), *keys, *arguments)
                return answer, attempt > 0
            except _PASSING as error:
                await self._pause(error, attempt)
            attempt += 1

    async def command(self, *words: Any) -> Any:
        """What a command answers. Only for those that may be sent twice."""
        return await self._insist(lambda client: client.execute_command(*words))

    async def run_all(self, calls: Sequence[Call]) -> list[Any]:
        """What each of many scripts answers, in one round trip; in a cluster, several at a time."""
        if isinstance(self._here().client, RedisCluster):
            return list(await asyncio.gather(*(self.run(call.script, call.keys, *call.arguments) for call in calls)))
        return await self._insist(lambda client: _piped(client, calls)) if calls else []

    async def _insist(self, work: Callable[[Any], Awaitable[T]]) -> T:
        attempt = 0
        while True:
            client, places, _, _ = self._here()
            try:
                async with places, asyncio.timeout(self._timeout):
                    return await work(client)
            except _PASSING as error:
                await self._pause(error, attempt)
            attempt += 1

    async def _pause(self, error: Exception, attempt: int) -> None:
        """Wait before the next attempt, unless there is none."""
        if attempt >= self._retries or isinstance(error, _LASTING):
            raise error
        await asyncio.sleep(_FIRST_PAUSE * 4**attempt)

    async def close(self) -> None:
        """Close the clients of all loops; never raises."""
        here = asyncio.get_running_loop()
        for loop, opened in list(self._opened.items()):
            self._opened.pop(loop, None)
            if opened.pid != os.getpid():
                self._inherited.append(opened)
            elif opened.keeper is None:
                continue
            elif loop is here:
                await opened.keeper.aclose()
            elif loop.is_running():
                future = asyncio.run_coroutine_threadsafe(_ended(opened.keeper), loop)
                await asyncio.wait([asyncio.wrap_future(future)])


async def _ended(keeper: AsyncGenerator[None]) -> None:
    await keeper.aclose()


async def _piped(client: Any, calls: Sequence[Call]) -> list[Any]:
    answers = await _sent(client, calls, "EVALSHA")
    if any(isinstance(answer, NoScriptError) for answer in answers):
        answers = await _sent(client, calls, "EVAL")
    failed = next((answer for answer in answers if isinstance(answer, Exception)), None)
    if failed is not None:
        raise failed
    return answers


async def _sent(client: Any, calls: Sequence[Call], verb: str) -> list[Any]:
    async with client.pipeline(transaction=False) as pipe:
        for script, keys, arguments in calls:
            what = script.sha if verb == "EVALSHA" else script.text
            pipe.execute_command(verb, what, len(keys), *keys, *arguments)
        answers: list[Any] = await pipe.execute(raise_on_error=False)
    return answers


def check_client(client: Any) -> None:
    if not isinstance(client, Redis | RedisCluster):
        raise ConfigurationError(
            f"client must be a redis.asyncio.Redis or redis.asyncio.RedisCluster, got {type(client).__name__}"
        )
    if client.get_encoder().decode_responses:
        raise ConfigurationError("the client decodes answers, and ours are bytes: give it decode_responses=False")


def identity_of(location: RedisLocation, client: Any) -> str:
    if client is None:
        where = location.shown.partition("://")[2]
    else:
        settings = client.get_connection_kwargs()
        where = f"{settings.get('host') or settings.get('path') or id(client)}:{settings.get('port', '')}"
        where += f"/{settings.get('db', 0)}"
    return f"redis:{where}:{location.prefix}"


def new_client(location: RedisLocation) -> Redis | RedisCluster:
    settings: dict[str, Any] = {
        "username": location.username,
        "password": location.password,
        # There is one clock for each request, in `RedisClients`.
        "socket_timeout": None,
        "socket_connect_timeout": location.connect_timeout,
        # The answers of scripts are the same in both protocols, and those of the Search module are not.
        "protocol": 2,
    }
    if location.tls:
        names = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname")
        settings |= {name: getattr(location, name) for name in names}
    if location.cluster:
        return _cluster(location, settings)
    kind: type[Any] = SSLConnection if location.tls else Connection
    settings |= {"host": location.host, "port": location.port, "socket_keepalive": True} if not location.path else {}
    if location.path:
        kind, settings["path"] = UnixDomainSocketConnection, location.path
    pool = ConnectionPool(
        connection_class=kind,
        db=location.db,
        # A command is sent again by us, who know whether that is safe.
        retry=Retry(NoBackoff(), 0),
        **settings,
    )
    return Redis.from_pool(pool)


def _cluster(location: RedisLocation, settings: dict[str, Any]) -> RedisCluster:
    return RedisCluster(
        host=location.host,
        port=location.port,
        ssl=location.tls,
        max_connections=location.max_connections + 1,
        # The client looks for the node that has a slot now, and for that it has to try again.
        retry=Retry(ExponentialBackoff(base=0.02, cap=0.5), 3),
        **settings,
    )


_BY_CLASS: tuple[tuple[type[BaseException], str], ...] = (
    (OutOfMemoryError, "Redis is out of memory, and nothing was written: raise maxmemory, or delete threads"),
    (ReadOnlyError, "this Redis server is a read-only replica: connect to the primary"),
    (BusyLoadingError, "Redis is loading its data: try again in a while"),
    (AuthenticationError, "Redis refuses the user name or the password: check username and password"),
    (AuthorizationError, "Redis refuses this user: check username and password"),
    (NoPermissionError, "the Redis user may not do this: see the page on Redis for the rights that are needed"),
    (ClusterCrossSlotError, "this is a Redis Cluster: open it with cluster=True"),
    (MovedError, "this is a Redis Cluster: open it with cluster=True"),
    (AskError, "this is a Redis Cluster: open it with cluster=True"),
    (ClusterDownError, "the Redis Cluster is down: not all of its slots are served"),
    (RedisTimeoutError, "Redis did not answer in time"),
    (TimeoutError, "Redis did not answer in time: `timeout` says how long to wait"),
)
_BY_WORD = {
    "MISCONF": "Redis cannot write to its disk, and refuses to change anything: see its log",
    "BUSY": "Redis is busy with a long script of somebody's: SCRIPT KILL ends it",
    "NOREPLICAS": "too few replicas of Redis are connected, and nothing was written (min-replicas-to-write)",
    "MASTERDOWN": "this Redis replica has lost its primary",
    "NOAUTH": "Redis asks for a password: give username and password",
    "OOM": _BY_CLASS[0][1],
    "READONLY": _BY_CLASS[1][1],
    "LOADING": _BY_CLASS[2][1],
}


def translated(error: BaseException) -> CheckpointError:
    """An error of ours for one of the driver's. The driver puts no secrets into its texts."""
    said = str(error) or type(error).__name__
    advice = _BY_WORD.get(said.partition(" ")[0])
    advice = advice or next((text for kind, text in _BY_CLASS if isinstance(error, kind)), None)
    if "unknown command" in said.lower() and "FT." in said:
        return CapabilityError("this Redis server has no Search module: Redis 8 and Redis Stack have it")
    if advice is not None:
        return BackendUnavailableError(f"{advice} ({said})")
    if said.startswith("WRONGTYPE") or "user_script:" in said:
        return CorruptCheckpointError(f"what Redis has under our keys is not what was written there: {said}")
    if "exceeds" in said and "bulk" in said:
        return SerializationError(f"a value is larger than Redis can hold (proto-max-bulk-len): {said}")
    return BackendUnavailableError(f"Redis cannot be used now: {said}")
