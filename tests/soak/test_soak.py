"""Long forms of the kill and load laws, bounded in time.

`LOCUS_SOAK_SECONDS` is the time for all of `make soak`, 300 by default; these take half of it together.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from locus.testing.processes.crash import KillTally, kill_at_lines, kill_at_random
from locus.testing.processes.crash_jobs import save_until_killed
from locus.testing.processes.jobs import remove_while_others_save, save_many
from locus.testing.processes.ledger import Ledger, content_of
from locus.testing.processes.workers import Crew, Worker
from locus.testing.stores import DurableTestStore
from tests.backends.embedded import FileStore, SQLiteStore

STORES: dict[str, Callable[[Path], DurableTestStore]] = {"sqlite": SQLiteStore, "file": FileStore}
CAMPAIGNS = 4
SECONDS = float(os.environ.get("LOCUS_SOAK_SECONDS", "300")) / 2 / (CAMPAIGNS * len(STORES))

pytestmark = pytest.mark.soak

Report = Callable[[str, object], None]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> DurableTestStore:
    return STORES[request.param](tmp_path)


@pytest.fixture
def crew(store: DurableTestStore) -> Iterator[Crew]:
    with Crew(store.url) as crew:
        yield crew


@pytest.fixture
def seed() -> int:
    """Another one every time; a failure shows it."""
    return int(time.time())


async def test_kills_at_random(store: DurableTestStore, crew: Crew, seed: int, record_property: Report) -> None:
    tally = await kill_at_random(crew, store.open, seed=seed, kills=10**9, seconds=SECONDS)
    record_property("crash", str(tally))
    assert tally.inside > tally.kills // 4, tally


async def test_kills_at_every_line(store: DurableTestStore, crew: Crew, record_property: Report) -> None:
    end = time.monotonic() + SECONDS
    steps = iter(["append", "replace", "delete", "write", "edit", "trim", "fork", "first"])
    while time.monotonic() < end and (step := next(steps, None)) is not None:
        tally = await kill_at_lines(crew, store.open, step=step, evenly=None)
        record_property("crash", f"{step}: {tally}")
        assert tally.inside > tally.kills // 2, tally


async def test_kills_in_a_crowd(store: DurableTestStore, crew: Crew, seed: int, record_property: Report) -> None:
    """Four processes save to threads of their own; one after the other is killed, and the others go on."""
    rng, end, tally = random.Random(seed), time.monotonic() + SECONDS, KillTally()
    ledgers = [Ledger(f"thread {number}") for number in range(4)]
    rounds = 0

    def started(ledger: Ledger) -> Worker:
        return crew.start(save_until_killed, url=store.url, thread_id=ledger.thread_id, seed=rng.randrange(10**6))

    workers = [started(ledger) for ledger in ledgers]
    while time.monotonic() < end:
        rounds += 1
        for ledger, worker in zip(ledgers, workers, strict=True):
            for message in worker.hear_until(time.monotonic() + rng.uniform(0, 0.01)):
                ledger.note(message)
        doomed = rng.randrange(4)
        for message in workers[doomed].kill():
            ledgers[doomed].note(message)
        assert workers[doomed].killed, f"round {rounds}, seed {seed}"
        workers[doomed].close()
        await tally.settle(ledgers[doomed], store.open, search=rounds % 10 == 0)
        if len(ledgers[doomed].content.checkpoints) > 300:
            ledgers[doomed] = Ledger(f"thread {rounds + 4}")
        workers[doomed] = started(ledgers[doomed])
    record_property("crash", str(tally))
    assert tally.inside > 0, tally


async def test_load(store: DurableTestStore, crew: Crew) -> None:
    """Savers on shared threads, and others that delete there; round after round, on new threads."""
    end, rounds = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        rounds += 1
        threads = [f"round {rounds}, thread {number}" for number in range(3)]
        savers = [
            crew.start(
                save_many, url=store.url, thread_ids=threads, count=60, name=f"process {n}", from_latest=n % 2 == 0
            )
            for n in range(5)
        ]
        removers = [
            crew.start(remove_while_others_save, url=store.url, thread_id=threads[n], how=how)
            for n, how in enumerate(("checkpoints", "thread"))
        ]
        crew.together([*savers, *removers])
        saved = {(thread, known): state for saver in savers for thread, known, state in saver.finish(120)}
        for remover in removers:
            remover.tell(stop=True)
        deleted = {(threads[0], known) for known in removers[0].finish()}
        removers[1].finish()
        async with store.open() as checkpointer:
            found = {
                (thread, known): state
                for thread in threads
                for known, state in (await content_of(checkpointer, thread)).checkpoints
            }
        assert found.items() <= saved.items()
        expected = saved.keys() - deleted - {key for key in saved if key[0] == threads[1]}
        assert expected == {key for key in found if key[0] != threads[1]}
