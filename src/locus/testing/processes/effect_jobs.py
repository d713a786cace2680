"""Jobs on effects for worker processes (see `jobs`). Their receiver is a file, to which each call adds a line."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from locus.effects import Effects
from locus.testing.processes.jobs import wait_for_the_others
from locus.testing.processes.workers import Channel


def receive(receiver: str, line: str) -> None:
    """Add a line to a file, whole, whoever else does so."""
    with Path(receiver).open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())


def received(receiver: str) -> list[str]:
    path = Path(receiver)
    return path.read_text().splitlines() if path.exists() else []


async def make_together(talk: Channel, url: str, receiver: str, keys: list[str], blocking: bool) -> list[Any]:
    """Make effects that other workers make at the same time. Returns their results."""
    async with Effects(url, lease_seconds=600) as effects:
        await wait_for_the_others(talk)
        results = []
        for key in keys:

            def call(idempotency_key: str, key: str = key) -> Any:
                receive(receiver, f"{key} {idempotency_key}")
                return {"by": os.getpid(), "key": key}

            if blocking:
                results.append(await asyncio.to_thread(effects.sync.once, key, call))
            else:
                results.append(await effects.once(key, call))
        return results


async def make_until_killed(talk: Channel, url: str, receiver: str, key: str, when: str) -> None:
    """Make an effect, and stop before its receiver has it, or behind that, to be killed there."""
    async with Effects(url, lease_seconds=0.2) as effects:

        async def call(idempotency_key: str) -> None:
            if when == "before":
                talk.send(at="before")
                await asyncio.sleep(600)
            receive(receiver, f"{key} {idempotency_key}")
            talk.send(at="behind")
            await asyncio.sleep(600)

        await effects.once(key, call, args={"amount": 5})
