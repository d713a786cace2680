"""What was acknowledged survives the machine, and not only the process: the disk keeps nothing but what was flushed."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from locus.testing.processes.crash import KillTally
from locus.testing.processes.crash_jobs import save_until_killed
from locus.testing.processes.ledger import Ledger
from locus.testing.processes.workers import Crew
from locus.testing.stores import DurableTestStore
from tests.backends.embedded import FileStore, SQLiteStore
from tests.servers.errors import ServerError
from tests.soak.disk import Disk

FAILURES = 6
LONGEST = 0.05
"""Seconds of saving before the power fails."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "disk")
    try:
        disk.mount()
    except ServerError as refusal:
        pytest.skip(f"a disk of its own is not allowed here: {refusal}")
    yield disk
    disk.unmount()


async def fail(disk: Disk, store: DurableTestStore, url: str, *, failures: int) -> KillTally:
    """Let a process save, and let its machine stop in the middle of that: the process, and what the disk takes."""
    rng, tally = random.Random(7), KillTally()
    ledger = Ledger("thread")
    with Crew(url) as crew:
        for _ in range(failures):
            worker = crew.start(save_until_killed, url=url, thread_id=ledger.thread_id, seed=rng.randrange(10**6))
            said = [worker.hear(), worker.hear(), *worker.hear_until(time.monotonic() + rng.uniform(0, LONGEST))]
            os.kill(worker.pid, signal.SIGSTOP)
            disk.cut_power()
            for message in (*said, *worker.kill()):
                ledger.note(message)
            worker.close()
            disk.restore_power()
            await tally.settle(ledger, store.open, search=False)
    return tally


@pytest.mark.crash
@pytest.mark.parametrize("kind", [SQLiteStore, FileStore])
async def test_what_was_acknowledged_survives_a_power_failure(disk: Disk, kind: type[SQLiteStore | FileStore]) -> None:
    store = kind(disk.place)
    tally = await fail(disk, store, store.url, failures=FAILURES)
    assert tally.kills == FAILURES


@pytest.mark.crash
async def test_a_store_that_does_not_wait_for_the_disk_loses_what_it_acknowledged(disk: Disk) -> None:
    """As its documentation says; and so it is seen that such a disk forgets."""
    store = SQLiteStore(disk.place)
    with pytest.raises(AssertionError, match="missing"):
        await fail(disk, store, f"{store.url}?durability=normal", failures=FAILURES)
