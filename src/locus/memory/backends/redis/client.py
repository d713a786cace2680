"""Talking to a Redis server, to a cluster, or to the primary that sentinels name: connections, retries, and errors.

`RedisClients` runs scripts and commands. It keeps one driver client for each event loop, because connections belong to
the loop that opened them. A client is closed when its loop ends, when the handle is closed, and when the handle is
garbage. `new_client` is the only place that makes clients of the driver. `translated` turns the errors of Redis and
its driver into Locus errors that say what to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeVar

from redis.asyncio import ConnectionPool, Redis, RedisCluster
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterDownError,
    MasterDownError,
    MaxConnectionsError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
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
from locus.memory.backends.redis.config import RedisConfig
from locus.memory.backends.redis.exchange import exchange
from locus.memory.backends.redis.replicas import (
    DemotedError,
    Replicas,
    TooFewReplicasError,
    run_scripts,
)
from locus.memory.backends.redis.scripts import MARK, Script
from locus.memory.backends.redis.scripts import ScriptCall as ScriptCall
from locus.memory.backends.redis.sentinels import PrimaryPool, Sentinels, close_idle, sentinel_pool
from locus.memory.runtime.per_loop import PerLoop
from locus.memory.runtime.retry import Backoff

try:
    from redis.driver_info import DriverInfo
except ImportError:  # an older one, which looks up its version once
    _DRIVER: dict[str, Any] = {}
else:
    # What a connection tells the server of its driver, whose version would else be read from the disk for each.
    _DRIVER = {"driver_info": DriverInfo()}

T = TypeVar("T")

DRIVER_ERRORS = (RedisError, RedisClusterException, OSError)
_TRANSIENT = (RedisConnectionError, RedisTimeoutError, RedisClusterException, OSError)
_PERMANENT = (AuthenticationError, AuthorizationError)
"""Texts of errors that are connection errors to the driver, but that trying again does not help."""
_BETWEEN_ATTEMPTS = Backoff(0.02, 20.0, factor=4.0, random_part=0.0)


class _LoopClient(NamedTuple):
    """The client of one event loop, with the number of requests that may be under way at once."""

    client: Any
    limit: asyncio.Semaphore


class RedisClients:
    """Runs scripts and commands, and repeats them after a lost connection: each of them may be sent twice.

    A `shared` client is the caller's: it serves every loop, and stays open. No more than `at_once` requests are under
    way in a loop, and none waits for its answer longer than `timeout`. If there are `replicas`, a change is
    acknowledged only when they have it.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        *,
        shared: Any = None,
        retries: int,
        timeout: float,
        at_once: int,
        replicas: Replicas | None = None,
    ) -> None:
        self._retries = retries
        self.replicas = replicas
        self.timeout = timeout
        self.needed_first: str | None = None
        """A key that replicas must have before anything else is acknowledged, though it may be on another node."""

        def open_client() -> _LoopClient:
            return _LoopClient(make() if shared is None else shared, asyncio.Semaphore(at_once))

        close = _close if shared is None else _leave_open
        self._by_loop = PerLoop(open_client, close, until_loop_ends=shared is None)

    async def run(self, script: Script, keys: Sequence[bytes | str], *arguments: Any) -> Any:
        """Run a script, and return its answer."""
        answer, _ = await self.run_reporting_repeats(script, keys, *arguments)
        return answer

    async def run_reporting_repeats(
        self, script: Script, keys: Sequence[bytes | str], *arguments: Any
    ) -> tuple[Any, bool]:
        """Run a script. Return its answer, and whether it may have run before, with its answer lost."""
        call = ScriptCall(script, keys, arguments)
        replicas = self.replicas if script.acknowledged else None
        if replicas is not None and script is not MARK:
            await self._confirm_first()

        async def once(client: Any) -> tuple[Any, bool]:
            if replicas is None:
                return await _run(client, call), False
            try:
                return await replicas.run(client, call)
            except TooFewReplicasError:
                await _connect_anew(client)
                raise

        (answer, again), attempt = await self._retried(once, writing=script.acknowledged)
        return answer, again or attempt > 0

    async def confirm(self, *keys: bytes | str) -> None:
        """Wait until replicas have everything that was changed so far, on the nodes that have these keys."""
        if self.replicas is not None:
            await self._run_several([ScriptCall(MARK, [key]) for key in keys])

    async def _confirm_first(self) -> None:
        if self.needed_first is not None:
            await self.confirm(self.needed_first)
            self.needed_first = None

    async def command(self, *words: Any) -> Any:
        """Send a command, and return its answer. Only for commands that may be sent twice."""
        answer, _ = await self._retried(lambda client: client.execute_command(*words))
        return answer

    async def run_all(self, calls: Sequence[ScriptCall]) -> list[Any]:
        """Run many scripts in one round trip, and return their answers; in a cluster, several at a time."""
        if self.is_cluster:
            return await self._run_several(calls)
        answers, _ = await self._retried(lambda client: _pipelined(client, calls)) if calls else ([], 0)
        return answers

    async def _run_several(self, calls: Sequence[ScriptCall]) -> list[Any]:
        """Run each call by itself. If one fails, none is under way any more: the handle may be closed then."""
        work = (self.run(call.script, call.keys, *call.arguments) for call in calls)
        answers = await asyncio.gather(*work, return_exceptions=True)
        failed = next((answer for answer in answers if isinstance(answer, BaseException)), None)
        if failed is not None:
            raise failed
        return answers

    async def run_each(self, calls: Sequence[ScriptCall]) -> list[Any]:
        """Run many scripts once, in one round trip, and return the answer of each, or its error.

        In a cluster, there is one round trip for each node.
        """
        if not calls:
            return []
        await self._confirm_first()
        client, limit = self._by_loop.current()
        async with limit, asyncio.timeout(self.timeout):
            await _know_cluster(client)
            if self.replicas is not None:
                return await self.replicas.run_each(client, calls)
            return await _answers(client, calls)

    @property
    def is_cluster(self) -> bool:
        return isinstance(self._by_loop.current().client, RedisCluster)

    @property
    def by_sentinels(self) -> bool:
        """True if sentinels name the server."""
        return sentinel_pool(self._by_loop.current().client) is not None

    async def evicts(self) -> str | None:
        """The `maxmemory-policy` of a server that removes keys when it is full; None if it does not, or does not say.

        INFO tells it where CONFIG is forbidden, as managed servers do. In a cluster, one node speaks for all.
        """
        try:
            answer = await self.command("INFO", "memory")
        except (NoPermissionError, ResponseError):
            return None
        memory = answer if isinstance(answer, dict) else {}
        if memory and all(isinstance(node, dict) for node in memory.values()):
            memory = next(iter(memory.values()))
        policy = memory.get("maxmemory_policy")
        return policy if memory.get("maxmemory") and isinstance(policy, str) and policy != "noeviction" else None

    async def close(self) -> None:
        """Close the clients of all loops; never raises."""
        await self._by_loop.close()

    async def _retried(self, work: Callable[[Any], Awaitable[T]], *, writing: bool = False) -> tuple[T, int]:
        """Do work with a client, again after a lost connection. Return its result, and how often it was done before."""
        for attempt in count():
            client, limit = self._by_loop.current()
            try:
                # One clock for the whole request: the driver's own, one for each step, cost a save twice as much.
                async with limit, asyncio.timeout(self.timeout):
                    await _know_cluster(client)
                    return await work(client), attempt
            except _TRANSIENT as error:
                await self._pause(error, attempt)
            except ResponseError as error:
                if not _is_no_primary(error, writing=writing):
                    raise
                await _connect_anew(client)
                await self._pause(error, attempt)
        raise AssertionError("the last pause raises")

    async def _pause(self, error: Exception, attempt: int) -> None:
        """Wait before the next attempt, unless there is none."""
        if isinstance(error.__cause__ or error, MaxConnectionsError):
            # Fewer requests than connections are under way, so these are lost: before redis-py 8.1 the client of a
            # cluster never uses a connection again that could not be opened once. A new client has all of them.
            await self._by_loop.close_here()
        if attempt >= self._retries or isinstance(error, _PERMANENT):
            raise error
        await _BETWEEN_ATTEMPTS.pause(attempt)


def _is_no_primary(error: ResponseError, *, writing: bool) -> bool:
    """Tell whether a server may not be the primary any more: it is a replica now, or has lost its replicas.

    A server that was opened for reading is a replica for good, and reads that clean up by the way are not `writing`.
    """
    if isinstance(error, MasterDownError):
        return True
    return writing and (isinstance(error, ReadOnlyError) or str(error).startswith("NOREPLICAS"))


async def _know_cluster(client: Any) -> None:
    """Ask the cluster for its nodes, unless the client knows them.

    Before it does, the driver (8.1) sends each command to some node, which names another one; and from the fifth such
    answer on it closes all connections, those of other requests too.
    """
    if isinstance(client, RedisCluster):
        await client.initialize()


async def _connect_anew(client: Any) -> None:
    """Drop idle connections, so that the next request asks the sentinels, or looks up the host's name, again.

    Another server may be the primary now.
    """
    pool = getattr(client, "connection_pool", None)
    if pool is not None:
        with suppress(*DRIVER_ERRORS):
            await close_idle(pool)


async def _close(opened: _LoopClient) -> None:
    pool = sentinel_pool(opened.client)
    for client in (opened.client, *(() if pool is None else pool.sentinel_manager.sentinels)):
        with suppress(*DRIVER_ERRORS):
            await client.aclose()


async def _leave_open(_shared: _LoopClient) -> None:
    """Does nothing: a caller's client stays open."""


async def _run(client: Any, call: ScriptCall) -> Any:
    """The answer of a script. A cluster says where else a key may be, and the driver follows."""
    if not isinstance(client, RedisCluster):
        (answer,) = await _pipelined(client, [call])
        return answer
    try:
        return await client.execute_command(*call.by_digest())
    except NoScriptError:
        return await client.execute_command(*call.by_text())


async def _pipelined(client: Any, calls: Sequence[ScriptCall]) -> list[Any]:
    answers = await _answers(client, calls)
    failed = next((answer for answer in answers if isinstance(answer, Exception)), None)
    if failed is not None:
        raise failed
    return answers


async def _answers(client: Any, calls: Sequence[ScriptCall]) -> list[Any]:
    return await run_scripts(partial(exchange, client), calls)


def new_client(config: RedisConfig) -> Redis | RedisCluster:
    """Make a client of the driver for this config. It connects on first use."""
    settings: dict[str, Any] = {
        "username": config.username,
        "password": config.password,
        # `RedisClients` has one clock for each request.
        "socket_timeout": None,
        "socket_connect_timeout": config.connect_timeout,
        # The answers of scripts are the same in both protocols, and those of the Search module are not.
        "protocol": 2,
    }
    if config.tls:
        names = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname")
        settings |= {name: getattr(config, name) for name in names}
    if config.cluster:
        return _new_cluster_client(config, settings)
    if config.sentinels:
        return _new_sentinel_client(config, settings)
    kind: type[Any] = SSLConnection if config.tls else Connection
    settings |= {"host": config.host, "port": config.port, "socket_keepalive": True} if not config.path else {}
    if config.path:
        kind, settings["path"] = UnixDomainSocketConnection, config.path
    pool = ConnectionPool(
        connection_class=kind,
        db=config.db,
        # `RedisClients` repeats commands. Only Locus knows which of them are safe to repeat.
        retry=Retry(NoBackoff(), 0),
        **_DRIVER,
        **settings,
    )
    return Redis.from_pool(pool)


def _new_cluster_client(config: RedisConfig, settings: dict[str, Any]) -> RedisCluster:
    return RedisCluster(
        host=config.host,
        port=config.port,
        ssl=config.tls,
        max_connections=config.max_connections + 1,
        # A slot may have moved to another node. The client has to try again to find it.
        retry=Retry(ExponentialBackoff(base=0.02, cap=0.5), 3),
        **settings,
    )


def _new_sentinel_client(config: RedisConfig, settings: dict[str, Any]) -> Redis:
    no_repeats = {"retry": Retry(NoBackoff(), 0), **_DRIVER}
    of_sentinels = {
        **settings,
        "username": config.sentinel_username,
        "password": config.sentinel_password,
        "ssl": config.tls,
        **no_repeats,
    }

    def connect(host: str, port: int) -> Redis:
        client = new_client(replace(config, sentinels=(), host=host, port=port))
        assert isinstance(client, Redis)
        return client

    # They leave the request that has to ask them as much time again.
    sentinels = Sentinels(config.sentinels, of_sentinels, connect, config.timeout / 2)
    client: Redis = sentinels.master_for(
        config.service,
        connection_pool_class=PrimaryPool,
        db=config.db,
        ssl=config.tls,
        socket_keepalive=True,
        **settings,
        **no_repeats,
    )
    return client


def check_client(client: Any) -> None:
    """Refuse an object that cannot serve as a client."""
    if not isinstance(client, Redis | RedisCluster):
        raise ConfigurationError(
            f"client must be a redis.asyncio.Redis or redis.asyncio.RedisCluster, got {type(client).__name__}"
        )
    if client.get_encoder().decode_responses:
        raise ConfigurationError("the client decodes answers, and Locus needs bytes: give it decode_responses=False")


def identity_of(config: RedisConfig, client: Any) -> str:
    """A name of the store, equal for all clients that share it."""
    if client is None:
        where = replace(config, sentinels=tuple(sorted(config.sentinels))).shown.partition("://")[2]
    else:
        settings = client.get_connection_kwargs()
        where = f"{settings.get('host') or settings.get('path') or id(client)}:{settings.get('port', '')}"
        where += f"/{settings.get('db', 0)}"
    return f"redis:{where}:{config.prefix}"


_ADVICE_BY_CLASS: tuple[tuple[type[BaseException], str], ...] = (
    (OutOfMemoryError, "Redis is out of memory, and nothing was written: raise maxmemory, or delete threads"),
    (ReadOnlyError, "this Redis server is a read-only replica: connect to the primary"),
    (BusyLoadingError, "Redis is loading its data: try again in a while"),
    (AuthenticationError, "Redis refuses the user name or the password: check username and password"),
    (AuthorizationError, "Redis refuses this user: check username and password"),
    (NoPermissionError, "the Redis user may not do this: see the page on Redis for the rights that are needed"),
    (ClusterCrossSlotError, "this is a Redis Cluster: open it with cluster=True"),
    (MovedError, "this is a Redis Cluster: open it with cluster=True"),
    (AskError, "this is a Redis Cluster: open it with cluster=True"),
    (MasterDownError, "this Redis replica has lost its primary"),
    (ClusterDownError, "the Redis Cluster is down: not all of its slots are served"),
    (RedisTimeoutError, "Redis did not answer in time"),
    (TimeoutError, "Redis did not answer in time: `timeout` says how long to wait"),
    (
        MasterNotFoundError,
        "the sentinels name no primary: a failover is under way, they cannot be reached, the name is wrong, or they "
        "ask for a password (sentinel_password)",
    ),
)
_ADVICE_BY_CODE = {
    "MISCONF": "Redis cannot write to its disk, and refuses to change anything: see its log",
    "BUSY": "Redis is busy with a long script: SCRIPT KILL ends it",
    "NOREPLICAS": "too few replicas of Redis are connected, and nothing was written (min-replicas-to-write)",
    "WAITAOF": "WAITAOF needs appendonly yes on the primary",
    "NOAUTH": "Redis asks for a password: give username and password",
    "OOM": _ADVICE_BY_CLASS[0][1],
    "READONLY": _ADVICE_BY_CLASS[1][1],
    "LOADING": _ADVICE_BY_CLASS[2][1],
}


def translated(error: BaseException) -> CheckpointError:
    """Make an error of Locus from an error of the driver, whose texts hold no secrets."""
    text = str(error) or type(error).__name__
    advice = _ADVICE_BY_CODE.get(text.partition(" ")[0])
    advice = advice or next((hint for kind, hint in _ADVICE_BY_CLASS if isinstance(error, kind)), None)
    if isinstance(error, TooFewReplicasError | DemotedError):
        return BackendUnavailableError(text)
    if "unknown command" in text.lower() and "WAITAOF" in text:
        return BackendUnavailableError(
            "this server has no WAITAOF: Redis 7.2 and Valkey have it, for others leave out wait_aof"
        )
    if "unknown command" in text.lower() and "FT." in text:
        return CapabilityError("this Redis server has no Search module: Redis 8 and Redis Stack have it")
    if advice is not None:
        return BackendUnavailableError(f"{advice} ({text})")
    if text.startswith("WRONGTYPE") or "user_script:" in text:
        return CorruptCheckpointError(f"the keys of Locus in Redis do not hold what was written there: {text}")
    if "exceeds" in text and "bulk" in text:
        return SerializationError(f"a value is larger than Redis can hold (proto-max-bulk-len): {text}")
    return BackendUnavailableError(f"Redis cannot be used now: {text}")
