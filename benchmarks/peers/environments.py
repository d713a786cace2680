"""Installs and measures other libraries: each in a virtual environment of its own, outside this tree.

One of them is imported under our own name, so they can't be installed beside us. A peer that grows too slow or
too large is cut off, and marked; one that cannot be installed or fails is marked, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

from benchmarks.costs import PeerCost
from benchmarks.settings import Settings

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("LOCUS_PEERS_DIR", "~/.cache/locus/peers")).expanduser()

Progress = Callable[[str], None]


class Environment(NamedTuple):
    """A library, the runner for it, and which of its stores are measured."""

    name: str
    requirements: tuple[str, ...]
    runner: str
    kinds: tuple[str, ...]
    servers: Mapping[str, str] = MappingProxyType({})
    """Which of the kinds need a server, and which one."""


ENVIRONMENTS = (
    Environment(
        "locus-sdk 3.0.1",
        ("locus-sdk[postgresql,redis]==3.0.1",),
        "benchmarks.peers.locus_sdk",
        ("MemoryCheckpointer", "FileCheckpointer", "redis_checkpointer", "postgresql_checkpointer"),
        MappingProxyType({"redis_checkpointer": "redis", "postgresql_checkpointer": "postgresql"}),
    ),
)


class PeerError(Exception):
    """A peer could not be installed, or its runner failed."""


def measure_peers(settings: Settings, folder: Path, progress: Progress) -> list[PeerCost]:
    costs: list[PeerCost] = []
    for environment in ENVIRONMENTS:
        for kind in environment.kinds:
            name = f"{environment.name} `{kind}`"
            place = folder / "peer"
            place.mkdir()
            try:
                lines = run_peer(environment, kind, settings, place, progress)
                costs += peer_costs(name, lines)
            except PeerError as error:
                costs.append(PeerCost(name, 0, None, None, None, None, str(error)))
            shutil.rmtree(place)
            progress(f"{name}: done")
    return costs


def run_peer(
    environment: Environment, kind: str, settings: Settings, folder: Path, progress: Progress
) -> list[dict[str, Any]]:
    """The lines that the runner printed; the last one may say that it was cut off."""
    python = installed(environment, progress)
    order = {
        "kind": kind,
        "lengths": settings.peer_lengths,
        "folder": str(folder),
        "url": _server_url(environment.servers.get(kind)),
        "seconds": settings.peer_seconds,
        "megabytes": settings.peer_megabytes,
    }
    command = [str(python), "-m", environment.runner, json.dumps(order)]
    try:
        # The runner keeps the time itself; this is for one that hangs inside a single call.
        done = subprocess.run(
            command, cwd=ROOT, env=_bare(), capture_output=True, text=True, timeout=settings.peer_seconds * 3 + 60
        )
    except subprocess.TimeoutExpired as error:
        raise PeerError(f"did not come to an end within {error.timeout:.0f} s") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise PeerError(f"its runner failed: {last[:160]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def _server_url(server: str | None) -> str:
    """A server as durable as the one that ours is measured on, and empty: a database of its own, or a server."""
    if server == "postgresql":
        from benchmarks.subjects import postgresql

        name = f"peer{uuid4().hex[:12]}"
        postgresql.run_sql(postgresql.shared_server(), f"CREATE DATABASE {name}")
        return urlsplit(postgresql.shared_server().url)._replace(path=f"/{name}").geturl()
    if server == "redis":
        from benchmarks.subjects import redis

        return redis.shared_server(durable=True).url
    return ""


def installed(environment: Environment, progress: Progress) -> Path:
    """The Python of the peer's environment, made if it is not there."""
    wanted = "\n".join((*environment.requirements, sys.version.split()[0]))
    place = CACHE / f"{environment.name.replace(' ', '-')}-{hashlib.sha256(wanted.encode()).hexdigest()[:8]}"
    python, stamp = place / "bin" / "python", place / "complete"
    if stamp.exists():
        return python
    progress(f"installing {', '.join(environment.requirements)} into {place}")
    shutil.rmtree(place, ignore_errors=True)
    # Our own pip installs into it, so that the environment needs none.
    _run([sys.executable, "-m", "venv", "--without-pip", str(place)])
    _run([sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", *environment.requirements])
    stamp.write_text(wanted, encoding="utf-8")
    return python


BESIDE = ("sqlalchemy==2.1.8", "greenlet==3.5.6", "asyncpg==0.32.0")
"""What some of the frameworks' own stores need that nothing else here does."""


def libraries(progress: Progress) -> Path:
    """A folder with these libraries, for the end of `sys.path`; made if it is not there."""
    wanted = "\n".join((*BESIDE, sys.version.split()[0]))
    place = CACHE / f"libraries-{hashlib.sha256(wanted.encode()).hexdigest()[:8]}"
    stamp = place / "complete"
    if not stamp.exists():
        progress(f"installing {', '.join(BESIDE)} into {place}")
        shutil.rmtree(place, ignore_errors=True)
        _run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(place), *BESIDE])
        stamp.write_text(wanted, encoding="utf-8")
    return place


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise PeerError(f"could not be installed: {last[:160]}")


def _bare() -> dict[str, str]:
    """Our environment without what would bring our own packages in."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def peer_costs(name: str, lines: list[dict[str, Any]]) -> list[PeerCost]:
    """A cost for each length that was reached, and one for the turn at which the peer was cut off."""
    costs = []
    for line in lines:
        cut = "cut_off" in line
        costs.append(
            PeerCost(
                peer=name,
                length=line["cut_off" if cut else "turn"],
                save_ms=line["save_ms"],
                load_ms=line.get("load_ms"),
                list_ms=line.get("list_ms"),
                stored_bytes=line["bytes"],
                turn_ms=line.get("turn_ms"),
                note=f"cut off at turn {line['cut_off']:,}: {line['why']}" if cut else "",
            )
        )
    return costs
