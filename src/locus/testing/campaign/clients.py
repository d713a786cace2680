"""The client processes of a round. When one is killed, another takes its place."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from locus.testing.campaign.client import CLOCK, use_store
from locus.testing.campaign.history import has_begun, log_of
from locus.testing.processes.workers import Crew, Worker, WorkerFailed

UNREADY: Final = 0.05
"""The probability that a kill may hit a client before its first operation."""
STOP_SECONDS: Final = 120.0
"""How long a client may take to finish its operations after all faults. Beyond that, it counts as hanging."""


class Clients:
    """Keeps `count` clients at work."""

    def __init__(
        self, crew: Crew, folder: Path, *, seed: str, faults: Sequence[str], count: int, **orders: Any
    ) -> None:
        """`orders` are further arguments of `use_store`, which are the same for all clients."""
        self._crew = crew
        self._folder = folder
        self._seed = seed
        self._faults = list(faults)
        self._orders = orders
        self._generation = 0
        self._names: dict[str, str] = {}
        self._workers: dict[str, Worker] = {str(place): self._started(str(place)) for place in range(count)}
        self.failures: list[str] = []

    def _started(self, place: str) -> Worker:
        self._generation += 1
        name = self._names[place] = f"{place}-{self._generation}"
        # The clock of one client stays right, and only that client may vacuum by age.
        faults = [fault for fault in self._faults if fault != CLOCK or place != "0"]
        return self._crew.start(
            use_store,
            url=self._crew.url,
            folder=str(self._folder),
            name=name,
            place=place,
            seed=f"{self._seed}/{name}",
            faults=faults,
            **self._orders,
        )

    async def at_work(self) -> None:
        """Wait until all clients have opened the store."""
        for worker in self._workers.values():
            await asyncio.to_thread(worker.hear)

    def kill_one(self, rng: random.Random) -> bool:
        """End a client with SIGKILL, and start another in its place. True if it was at work.

        A client is at work once it has begun an operation. Most of the time only such clients are chosen, and none is
        killed if there is none. Sometimes any client is chosen, even one that is about to open the store.
        """
        at_work = [place for place in sorted(self._workers) if self._is_at_work(place)]
        places = sorted(self._workers) if rng.random() < UNREADY else at_work
        if not places:
            return False
        place = rng.choice(places)
        worker = self._workers.pop(place)
        try:
            worker.kill()
        except WorkerFailed as failure:
            self.failures.append(str(failure))
        worker.close()
        self._workers[place] = self._started(place)
        return place in at_work

    def _is_at_work(self, place: str) -> bool:
        return has_begun(log_of(self._folder, self._names[place]))

    async def stop(self) -> None:
        """Stop all clients, after they have finished their operations."""
        for worker in self._workers.values():
            try:
                worker.tell(stop=True)
            except WorkerFailed as failure:
                self.failures.append(str(failure))
        for worker in self._workers.values():
            try:
                await asyncio.to_thread(worker.hear_out, STOP_SECONDS)
            except WorkerFailed as failure:
                self.failures.append(str(failure))
            worker.close()
        self._workers.clear()
