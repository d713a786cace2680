"""Moves in processes of their own, which end themselves with SIGKILL at a chosen step."""

from __future__ import annotations

import os
import signal
from typing import Any

from locus.testing.processes.workers import Channel
from locus.transfer import copy_store, import_store
from locus.transfer.write import ThreadWriter


def die_at_step(number: int) -> None:
    """Die at the n-th step at the destination: just before a save (its pending writes are there), or just after."""
    steps = 0
    prepared, remembered = ThreadWriter._commit, ThreadWriter._remember

    def count() -> None:
        nonlocal steps
        steps += 1
        if steps == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self: ThreadWriter, *args: Any) -> Any:
        count()
        return prepared(self, *args)

    def after(self: ThreadWriter, *args: Any) -> None:
        count()
        remembered(self, *args)

    ThreadWriter._commit = before  # type: ignore[method-assign,assignment]
    ThreadWriter._remember = after  # type: ignore[method-assign,assignment]


async def copy_and_die(talk: Channel, source: str, destination: str, step: int) -> dict[str, Any]:
    die_at_step(step)
    report = await copy_store(source, destination, jobs=1)
    return report.as_dict()


async def import_and_die(talk: Channel, kind: str, source: str, destination: str, step: int) -> dict[str, Any]:
    die_at_step(step)
    report = await import_store(kind, source, destination, jobs=1)
    return report.as_dict()
