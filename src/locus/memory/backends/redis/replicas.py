"""Waiting for replicas: a write is acknowledged when enough of them have it (`wait_replicas`, `wait_aof`).

WAIT answers for the writes of its own connection. So the scripts and WAIT go through one connection, in one round trip;
in a cluster, to the node that has their slot (the driver's own `wait` asks some other node). Between them goes MARK, a
write that leaves nothing behind: a save that is sent again, and found to be stored, writes nothing itself, and would
wait for nothing.

If too few replicas answer in time, the write is stored on the primary, and nobody knows whether a failover would keep
it. That is `TooFewReplicasError`. Whoever sends the same write again gets the same answer as the first time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode, PipelineCommand
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MaxConnectionsError,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from locus.memory.backends.redis.exchange import exchange
from locus.memory.backends.redis.scripts import MARK, ScriptCall
from locus.memory.runtime.retry import Backoff

_Command = tuple[Any, ...]
_Send = Callable[[Sequence[_Command]], Awaitable[list[Any]]]
"""Sends commands through one connection, and returns the answer of each, or its error."""

_ELSEWHERE = (
    RedisConnectionError,
    RedisTimeoutError,
    MovedError,
    AskError,
    TryAgainError,
    ClusterDownError,
    ReadOnlyError,
)
"""Errors after which a slot of a cluster may be with another node than the client believes."""
_DIRECTIONS = 6
"""The number of times that a node is looked for."""
_BETWEEN_DIRECTIONS = Backoff(0.02, 0.5, random_part=0.0)


class TooFewReplicasError(RedisError):
    """A write is stored on the primary, and too few replicas have confirmed it."""


class DemotedError(ReadOnlyError):
    """A write was stored on a primary that has become a replica since: the new primary may not have it."""


class Replicas:
    """Sends scripts, and waits for up to `seconds` until `count` replicas have their writes.

    With `aof`, it waits until the primary and these replicas have them on their disks.
    """

    def __init__(self, count: int, seconds: float, *, aof: bool = False) -> None:
        self.count = count
        self._seconds = seconds
        self.aof = aof
        milliseconds = max(1, round(seconds * 1_000))  # 0 would be for ever
        self._wait: _Command = ("WAITAOF", 1, count, milliseconds) if aof else ("WAIT", count, milliseconds)

    async def run(self, client: Any, call: ScriptCall) -> tuple[Any, bool]:
        """Run a script.

        Return its answer, and whether it may have run before, with its answer lost. Its error is raised.
        """
        if isinstance(client, RedisCluster):
            return await self._run_in_cluster(client, call)
        (answer,) = await self.run_each(client, [call])
        return _checked(answer), False

    async def run_each(self, client: Any, calls: Sequence[ScriptCall]) -> list[Any]:
        """Run many scripts, and return the answer of each, or its error. In a cluster, each node gets one request."""
        if not isinstance(client, RedisCluster):
            return await self._waited(partial(exchange, client), calls)
        by_node: dict[ClusterNode, list[int]] = {}
        for at, call in enumerate(calls):
            by_node.setdefault(_node_of(client, call), []).append(at)
        answers: list[Any] = [None] * len(calls)

        async def send(node: ClusterNode, places: Sequence[int]) -> None:
            theirs = await self._waited(partial(_through_node, node), [calls[at] for at in places])
            for at, answer in zip(places, theirs, strict=True):
                answers[at] = answer

        await asyncio.gather(*(send(node, places) for node, places in by_node.items()))
        return answers

    async def _run_in_cluster(self, client: RedisCluster, call: ScriptCall) -> tuple[Any, bool]:
        """Find the node that has the slot: it may have moved, or another may have taken the place of a dead one.

        While a slot is being moved, no node takes scripts on threads that are partly there; so this tries again.
        """
        for attempt in range(_DIRECTIONS):
            await client.initialize()
            node = _node_of(client, call)
            (answer,) = await self._waited(partial(_through_node, node), [call])
            if not isinstance(answer, _ELSEWHERE) or isinstance(answer, MaxConnectionsError):
                break
            if attempt == _DIRECTIONS - 1:
                break
            await _BETWEEN_DIRECTIONS.pause(attempt)
            # The driver follows the answers of the cluster, or asks it anew, and remembers what it learns.
            await client.execute_command("EXISTS", call.keys[0])
        return _checked(answer), attempt > 0

    async def _waited(self, send: _Send, calls: Sequence[ScriptCall]) -> list[Any]:
        return await run_scripts(partial(self._round, send, calls[0].keys[:1]), calls)

    async def _round(self, send: _Send, keys: Sequence[bytes | str], commands: Sequence[_Command]) -> list[Any]:
        mark = ScriptCall(MARK, keys)
        *answers, marked, waited = await send([*commands, mark.by_text(), self._wait])
        failed = marked if isinstance(marked, Exception) else self._shortfall(waited)
        if failed is None:
            return answers
        # Each gets an error of its own: one that several tasks raise would collect the tracebacks of all.
        return [
            answer if isinstance(answer, Exception) else _copied(failed) if at else failed
            for at, answer in enumerate(answers)
        ]

    def _shortfall(self, waited: Any) -> Exception | None:
        """The error for an answer of WAIT that is not enough; None if it is."""
        if isinstance(waited, Exception):
            if str(waited).startswith("UNBLOCKED") or "cannot be used with replica" in str(waited):
                return DemotedError(
                    f"the outcome is unknown: Redis has stored this, but the primary has become a replica ({waited})"
                )
            return waited
        flushed, confirmed = waited if self.aof else (1, waited)
        if flushed >= 1 and confirmed >= self.count:
            return None
        disk = "" if flushed >= 1 else "the primary has not written it to its disk, and "
        return TooFewReplicasError(
            f"the outcome is unknown: Redis has stored this, but {disk}{confirmed} of {self.count} replicas "
            f"(wait_replicas) have confirmed it within {self._seconds:g} s (wait_timeout). A failover may lose it, or "
            "keep it. Saving the same again under the same checkpoint id is safe"
        )


def _checked(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


def _copied(error: Exception) -> Exception:
    return type(error)(*error.args)


async def run_scripts(send: _Send, calls: Sequence[ScriptCall]) -> list[Any]:
    """Send scripts by their digests, and those that the server has not seen once more, as text.

    Answers and errors stand in the places of their calls.
    """
    answers = await send([call.by_digest() for call in calls])
    unknown = [at for at, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
    if unknown:
        for at, answer in zip(unknown, await send([calls[at].by_text() for at in unknown]), strict=True):
            answers[at] = answer
    return answers


def _node_of(client: RedisCluster, call: ScriptCall) -> ClusterNode:
    node = client.get_node_from_key(call.keys[0])  # type: ignore[arg-type]
    assert node is not None, "a slot without a primary is an error of its own"
    return node


async def _through_node(node: ClusterNode, commands: Sequence[_Command]) -> list[Any]:
    """Send commands through one connection to a node.

    A pipeline of the driver would send redirected commands again, through other connections.
    """
    sent = [PipelineCommand(at, *words) for at, words in enumerate(commands)]
    try:
        await node.execute_pipeline(sent)
    except (RedisError, RedisClusterException, OSError) as error:
        return [error] * len(commands)
    return [command.result for command in sent]
