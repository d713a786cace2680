"""What the file backend asks of the operating system before it acknowledges a save."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import pytest

from locus.testing.laws.base import WorkerLaws
from locus.testing.processes.crash_jobs import Saver
from locus.testing.processes.jobs import opened
from locus.testing.processes.workers import Channel, Crew
from locus.testing.stores import DurableTestStore

CHANGES = {"write", "pwrite", "writev", "pwritev", "ftruncate", "truncate", "replace", "rename", "unlink", "remove"}
SYNCS = {"fsync", "fdatasync"}


async def calls_of_a_step(talk: Channel, url: str, thread_id: str, step: str) -> list[str]:
    """The calls that change files or wait for the disk, in order, of one step on a thread with some history."""
    calls: list[str] = []
    active = False

    def note(_frame: FrameType, event: str, function: Any) -> None:
        if active and event == "c_call" and function.__module__ == "posix" and function.__name__ in CHANGES | SYNCS:
            calls.append(function.__name__)

    threading.setprofile(note)
    async with opened(url) as checkpointer:
        saver = Saver(talk, checkpointer, thread_id, seed=3)
        for _ in range(3 if step != "first" else 0):
            await saver.append()
        active = True
        await saver.step(step)
        active = False
    assert sys.getprofile() is None, "the calls of this thread are not meant"
    return calls


class DiskLaws(WorkerLaws):
    """A kill loses nothing that was handed to the system; a power failure loses what was not synced."""

    @pytest.mark.parametrize("step", ["first", "append", "replace", "delete", "write"])
    async def test_what_is_acknowledged_is_on_the_disk(self, store: DurableTestStore, crew: Crew, step: str) -> None:
        worker = crew.start(calls_of_a_step, url=store.url, thread_id="t", step=step)
        worker.hear_out()
        calls = worker.finish()
        assert CHANGES.intersection(calls), "nothing was written"
        assert calls[-1] in SYNCS, f"changed after the last sync, or never synced: {calls}"
        for number, call in enumerate(calls):
            if call in ("replace", "rename"):
                assert calls[number - 1] in SYNCS, f"put in place before it was on the disk: {calls}"
