"""Reads the runs of a thread that has very many, in portions: while a script runs, the server does nothing else.

What was read before them is as of an earlier instant. If nothing was removed since, all that it needs is among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from locus.errors import ConflictError
from locus.memory.backends.redis import scripts
from locus.memory.backends.redis.client import RedisClients
from locus.memory.backends.redis.scripts import Script

ATTEMPTS = 100
"""How often something is read or planned anew because the thread has changed meanwhile."""
MOST_RUNS = 10_000
"""The most runs that a script goes through at once (see `lua/shared/run_headers.lua`)."""
_RUNS_AT_ONCE = 2_000
"""About how many a portion has."""

Keys = Sequence[bytes | str]


async def with_headers(clients: RedisClients, keys: Keys, script: Script, place: slice, answer: Sequence[Any]) -> Any:
    """Complete an answer of OUTLINE or MEASURE, which ends with a version if it has too many runs.

    Their names, headers and, for MEASURE, sizes belong at `place`. If something was removed meanwhile, the script is
    run again; its answer may then be short, because the thread is gone or damaged.
    """
    for _ in range(ATTEMPTS):
        if len(answer) < place.stop:
            return answer
        *found, version = answer
        if not version:
            return found
        about: dict[bytes, Sequence[Any]] = {}
        cursor: bytes | int = 0
        while True:
            cursor, *columns = await clients.run(scripts.RUN_HEADERS, keys, cursor, _RUNS_AT_ONCE)
            about |= {row[0]: row for row in zip(*columns, strict=True)}
            if not int(cursor):
                break
        if not await was_removed_from(clients, keys, version):
            columns = [list(column) for column in zip(*about.values(), strict=True)] or [[], [], []]
            found[place] = columns[: place.stop - place.start]
            return found
        answer = await clients.run(script, keys)
    raise ConflictError("a thread is changed by others faster than it can be read; try again")


async def scan_runs(clients: RedisClients, keys: Keys, take: Callable[[Mapping[bytes, bytes]], object]) -> None:
    """Read all fields of the hash of runs, in portions. One may come twice."""
    cursor = b"0"
    while True:
        cursor, fields = await clients.command("HSCAN", keys[3], cursor, "COUNT", _RUNS_AT_ONCE)
        take(fields)
        if int(cursor) == 0:
            return


async def was_removed_from(clients: RedisClients, keys: Keys, version: bytes) -> bool:
    """Whether anything was removed from a thread since it had this version."""
    born, _, removals = version.split(b" ")
    now = await clients.command("HMGET", keys[0], "born", "v")
    return [part or b"" for part in now] != [born, removals]
