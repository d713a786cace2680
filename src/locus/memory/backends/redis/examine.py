"""Looks for faults of a Redis server or cluster, and of the indexes over threads, for `locus doctor`.

INFO tells most of the first, also where CONFIG is forbidden, as managed servers do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from redis.exceptions import NoPermissionError, ResponseError

from locus.memory.backends.redis import scripts
from locus.memory.backends.redis.client import RedisClients
from locus.memory.backends.redis.schema import Layout, thread_in
from locus.memory.backends.redis.scripts import ScriptCall
from locus.memory.model.findings import clock, not_told
from locus.memory.model.records import Finding

_PAGE = 200
"""The number of threads, or of checkpoints of one thread, that a script looks at."""


async def index_findings(clients: RedisClients, layout: Layout) -> list[Finding]:
    """Find what is there, and would not be found: threads by lists, checkpoints by their ids or their metadata."""
    faults = Counter[str]()
    for bucket in range(layout.buckets):
        async for _, count in _index_pages(clients, layout, bucket, "recent"):
            faults["the index of threads has lost {} entries: lists may lack threads"] += count
        async for names, count in _index_pages(clients, layout, bucket, "ids"):
            faults["the index of threads has lost {} entries: lists may lack threads"] += count
            ways, pairs = await _thread_faults(clients, layout, names)
            faults["{} checkpoints are not found by their ids, or as the newest"] += ways
            faults["the index of metadata has lost {} entries: queries may miss checkpoints"] += pairs
    advice = "their content is whole; restore the store from a backup to find it again"
    return [Finding("error", what.format(f"{count:,}"), advice) for what, count in faults.items() if count]


async def _index_pages(
    clients: RedisClients, layout: Layout, bucket: int, index: str
) -> AsyncGenerator[tuple[Sequence[bytes], int]]:
    skip, names = 0, [b""] * _PAGE
    while len(names) == _PAGE:
        names, faults = await clients.run(scripts.INDEX_FAULTS, layout.bucket_keys(bucket), index, skip, _PAGE)
        skip += len(names)
        yield names, faults


async def _thread_faults(clients: RedisClients, layout: Layout, names: Sequence[bytes]) -> tuple[int, int]:
    """Count the checkpoints of some threads that are not found, and the pairs of metadata that are in no index."""
    ways, pairs, skip = 0, 0, dict.fromkeys(names, 0)
    while skip:
        calls = [
            ScriptCall(scripts.THREAD_FAULTS, layout.thread_keys(thread_in(name)), (start, _PAGE))
            for name, start in skip.items()
        ]
        for name, (count, lost_ways, lost_pairs) in zip(list(skip), await clients.run_all(calls), strict=True):
            ways, pairs = ways + lost_ways, pairs + lost_pairs
            if count == _PAGE:
                skip[name] += _PAGE
            else:
                del skip[name]
    return ways, pairs


async def findings(clients: RedisClients) -> list[Finding]:
    results = await _clock(clients)
    waits, flushed = (clients.replicas.count, clients.replicas.aof) if clients.replicas else (0, False)
    sentinels = clients.by_sentinels
    about = [await _asked(clients, "INFO", section) for section in ("memory", "persistence", "replication")]
    for memory, persistence, replication in zip(*about, strict=False):
        results += [*eviction(memory), *standing(replication, waits, sentinels=sentinels)]
        if sentinels and not waits and replication.get("connected_slaves"):
            results += alone(await _setting(clients, "min-replicas-to-write"))
        asks = persistence.get("aof_enabled") and not flushed
        results += log_file(persistence, await _setting(clients, "appendfsync") if asks else "always")
    if not all(about):
        results.append(not_told("how it is set up"))
    return list(dict.fromkeys(results))  # the nodes of a cluster mostly have the same


async def _clock(clients: RedisClients) -> list[Finding]:
    before = datetime.now(UTC)
    try:
        answer = await clients.command("TIME")
    except (NoPermissionError, ResponseError):
        return []
    answers = answer.values() if isinstance(answer, dict) else [answer]
    times = [datetime.fromtimestamp(int(seconds) + int(micros) / 1e6, UTC) for seconds, micros in answers]
    return [finding for theirs in times for finding in clock(theirs, before)]


async def _asked(clients: RedisClients, *words: str) -> list[dict[str, Any]]:
    """Ask each node, and return the answers; none if this user may not ask."""
    try:
        answer = await clients.command(*words)
    except (NoPermissionError, ResponseError):
        return []
    if not isinstance(answer, dict):
        return []
    nodes = list(answer.values())
    return nodes if nodes and all(isinstance(node, dict) for node in nodes) else [answer]


async def _setting(clients: RedisClients, name: str) -> str | None:
    """A setting of a node, which speaks for all; None if it does not say."""
    answers = await _asked(clients, "CONFIG GET", name)
    return next((node.get(name) for node in answers), None)


def eviction(memory: Mapping[str, Any]) -> list[Finding]:
    policy = memory.get("maxmemory_policy")
    if policy in (None, "noeviction"):
        return []
    limited = bool(memory.get("maxmemory"))
    return [
        Finding(
            "error" if limited else "warning",
            f"Redis throws keys away when it is full, and checkpoints with them: maxmemory-policy is {policy}"
            + ("" if limited else "; it has no limit yet"),
            "set maxmemory-policy to noeviction: then a full server refuses to save, and loses nothing",
        )
    ]


_AOF = "set appendonly yes and appendfsync always, if no save may be lost"


def log_file(persistence: Mapping[str, Any], fsync: str | None) -> list[Finding]:
    """Make findings of losses that a crash may cause. `fsync` is when the log of commands is written to the disk."""
    if not persistence:
        return []
    if persistence.get("aof_last_write_status", "ok") != "ok":
        return [Finding("error", "Redis could not write its log of commands to the disk", "see its log; is it full?")]
    if not persistence.get("aof_enabled"):
        return [Finding("warning", "a restart of Redis loses each save since its last snapshot: it keeps no log", _AOF)]
    if fsync is None:
        return [not_told("how often it writes its log to the disk (appendfsync)")]
    lost = {"everysec": "about the last second", "no": "about the last half minute"}.get(fsync)
    if lost is None:
        return []
    return [
        Finding("warning", f"a crash of the machine may lose the saves of {lost}, because appendfsync is {fsync}", _AOF)
    ]


def standing(replication: Mapping[str, Any], waits: int = 0, *, sentinels: bool = False) -> list[Finding]:
    """Make findings of a server that is a replica, and of losses that a failover to a replica may cause.

    `waits` is the number of replicas that a save waits for. A single server is not told to have any, unless `sentinels`
    watch it.
    """
    if replication.get("role") == "slave":
        return [Finding("error", "this Redis server is a replica: nothing can be saved", "connect to the primary")]
    connected = int(replication.get("connected_slaves") or 0)
    if connected < waits:
        what = f"no save is acknowledged: wait_replicas is {waits}, and the primary has {connected} replicas connected"
        return [Finding("error", what, "bring the missing replicas back, or lower wait_replicas")]
    if not connected:
        what = "the primary has no replicas: if it fails, the sentinels have none that could take its place"
        return [Finding("warning", what, "start a replica, or see why it is not connected")] if sentinels else []
    if not waits:
        return [
            Finding(
                "warning",
                "Redis answers a save before its replicas have it: a failover may lose the saves of the last moments",
                f"open the store with wait_replicas={connected}; min-replicas-to-write and min-replicas-max-lag bound "
                "what others may lose",
            )
        ]
    if waits < connected:
        what = f"a save waits for {waits} of {connected} replicas: a failover to another one may lose it"
        advice = "set wait_replicas to their number, or replica-priority to 0 on those that must not take over"
        return [Finding("note", what, advice)]
    return []


def alone(min_replicas: str | None) -> list[Finding]:
    """Make a finding if a primary that is cut off from its replicas and the sentinels would go on taking writes."""
    if min_replicas is None:
        return [not_told("whether it takes saves without its replicas (min-replicas-to-write)")]
    if int(min_replicas):
        return []
    return [
        Finding(
            "warning",
            "a primary that is cut off from its sentinels goes on taking saves, and they are lost when it comes back "
            "as a replica: min-replicas-to-write is 0",
            "set min-replicas-to-write to 1 and min-replicas-max-lag to 10, or open the store with wait_replicas",
        )
    ]
