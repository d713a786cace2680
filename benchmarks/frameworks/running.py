"""A turn through a framework: on our store, on the framework's own, and on its store in memory, which is the floor.

Each length has a store of its own on each side. All are grown first. Then one turn of each length and side is timed in
turn, in changing order, so that whatever disturbs the machine disturbs them all. What theirs keep is often the latest
only; ours keep every point of the history.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import pkgutil
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

import benchmarks.frameworks
from benchmarks.clock import freeze, frozen, timed
from benchmarks.costs import FrameworkCost, SideCost
from benchmarks.frameworks.subject import FrameworkSubject, Side
from benchmarks.peers.environments import libraries
from benchmarks.settings import Settings

NEWEST = 20
FEWEST = 5
"""Rounds that a length gets, however long they take."""
FEW_READS = 3
"""How often the newest messages of a long session are read: some frameworks read all of it for that."""
NO_SUBJECTS = {"postgresql_side", "running", "subject", "table"}
ELSEWHERE = ("crewai",)
"""Modules whose framework has an environment of its own, because it can't be installed beside the others."""
OURS, THEIRS, FLOOR = "ours", "theirs", "floor"

Progress = Callable[[str], None]
T = TypeVar("T")


class TooSlowError(Exception):
    """A side did not come to the length in its time."""


@dataclass
class Measured:
    """One side of a lane, and how long its turns took."""

    side: Side
    turns_ms: list[float] = field(default_factory=list)
    before: int | None = None
    grown: int = 0


class Lane:
    """Sessions of one length on all sides.

    A short session would soon be a long one, so the turns are spread over several: each gets a few, up to exactly the
    length.
    """

    def __init__(self, subject: FrameworkSubject, length: int, settings: Settings, folder: Path) -> None:
        self.length = length
        self.note = ""
        self.seconds = 0.0
        self.rounds = 0
        self._subject = subject
        self._settings = settings
        self._each = min(settings.framework_rounds, max(1, length // 2))
        self._names = [f"session-{number}" for number in range(-(-settings.framework_rounds // self._each))]
        self._bulk = length - self._each > subject.one_by_one
        makers = {OURS: subject.ours}
        if subject.own is not None:
            makers[THEIRS] = subject.theirs
        if subject.in_memory is not None:
            makers[FLOOR] = subject.floor
        self.sides: dict[str, Measured] = {}
        for name, make in makers.items():
            place = folder / name
            place.mkdir(parents=True)
            self.sides[name] = Measured(make(place))

    async def grow(self) -> None:
        """Bring the sessions to where the timed turns begin. A side that takes too long for that is left out."""
        for name, measured in [*self.sides.items()]:
            await measured.side.open()
            try:
                await self._grow(measured.side)
            except TooSlowError as error:
                self.note = " ".join(filter(None, (self.note, f"{name}: {error}")))
                del self.sides[name]
                await measured.side.close()
                continue
            measured.before = measured.side.stored_bytes()

    async def _grow(self, side: Side) -> None:
        count = self.length - self._each
        end = perf_counter() + self._settings.framework_growth_seconds
        for name in self._names:
            await side.begin(name)
            if self._bulk:
                await side.save_many(name, [self._subject.turn(number) for number in range(count)])
                continue
            for number in range(count):
                await side.save(name, self._subject.turn(number))
                if perf_counter() > end:
                    raise TooSlowError(f"{number + 1:,} turns in {self._settings.framework_growth_seconds:.0f} s.")

    @property
    def done(self) -> bool:
        if not self.sides or self.rounds >= len(self._names) * self._each:
            return True
        return self.rounds >= FEWEST and self.seconds > self._settings.framework_seconds

    async def round(self) -> None:
        """One turn on each side, in changing order."""
        began = perf_counter()
        name = self._names[self.rounds // self._each]
        number = self.length - self._each + self.rounds % self._each
        sides = [*self.sides.values()]
        for place in range(len(sides)):
            measured = sides[(self.rounds + place) % len(sides)]
            turn = self._subject.turn(number)
            measured.turns_ms.append(await timed(partial(measured.side.save, name, turn)))
        self.rounds += 1
        self.seconds += perf_counter() - began

    async def cost(self) -> FrameworkCost:
        subject = self._subject
        costs = await self._costs() if self.sides else {}
        turns = len(self._names) * (self.length - self._each) + self.rounds
        return FrameworkCost(
            subject.name,
            subject.call,
            subject.store,
            subject.own,
            subject.in_memory,
            self.length,
            sum(subject.content(subject.turn(number)) for number in range(SAMPLE)) * turns // SAMPLE,
            costs.get(OURS),
            costs.get(THEIRS),
            costs.get(FLOOR),
            self.note,
        )

    async def _costs(self) -> dict[str, SideCost]:
        """What the turns have cost on each side. All have to have kept the same."""
        for measured in self.sides.values():
            stored = measured.side.stored_bytes()
            if stored is not None and measured.before is not None:
                measured.grown = stored - measured.before
        name = self._names[(self.rounds - 1) // self._each]
        kept = [await measured.side.newest(name, NEWEST) for measured in self.sides.values()]
        if not kept[0] or len({len(newest) for newest in kept}) != 1:
            raise RuntimeError(f"{self._subject.name}: the sides have not kept the same")
        del kept
        newest = [await self._newest_ms(measured.side, name) for measured in self.sides.values()]
        return {
            side: SideCost(
                turn_ms=median(measured.turns_ms),
                newest_ms=read_ms,
                added_bytes=None if measured.before is None else measured.grown / self.rounds,
                stored_bytes=None if self._bulk or measured.before is None else measured.before + measured.grown,
            )
            for (side, measured), read_ms in zip(self.sides.items(), newest, strict=True)
        }

    async def _newest_ms(self, side: Side, name: str) -> float:
        """The median of some reads in a row, after a first one.

        They are not made in turn with other sides: one that reads a whole session leaves nothing of the others in the
        caches of the processor, and a long session would seem to be read more slowly than a short one.
        """
        read = partial(side.newest, name, NEWEST)
        await read()
        return median([await timed(read) for _ in range(FEW_READS if self._bulk else self._settings.loads)])

    async def close(self) -> None:
        for measured in self.sides.values():
            await measured.side.close()


SAMPLE = 100
"""Turns whose content is weighed; all have about the same."""


def modules(only: Sequence[str] = ()) -> list[str]:
    """These modules, if they are there; else all that have subjects. LangGraph's is the first."""
    names = {module.name for module in pkgutil.iter_modules(benchmarks.frameworks.__path__)} - NO_SUBJECTS
    for name in only:
        if name not in names:
            raise SystemExit(f"there is no framework {name!r}; there are: {', '.join(sorted(names))}")
    return sorted(names & {*(only or names)}, key=lambda name: (name != "langgraph", name))


def subjects(module: str, *, peers: bool = False) -> list[FrameworkSubject]:
    """What is measured of a framework; without `peers` only that whose libraries are there anyway."""
    found: list[FrameworkSubject] = importlib.import_module(f"benchmarks.frameworks.{module}").SUBJECTS
    return [subject for subject in found if peers or not subject.peers]


async def measure_subject(subject: FrameworkSubject, settings: Settings, folder: Path) -> list[FrameworkCost]:
    lanes = [Lane(subject, length, settings, folder / str(length)) for length in settings.framework_lengths]
    try:
        with frozen():
            for lane in lanes:
                await lane.grow()
            freeze()
            while waiting := [lane for lane in lanes if not lane.done]:
                for lane in waiting:
                    await lane.round()
                    if lane.done:
                        freeze()  # what a long session has left behind is not looked through for every shorter one
            return [await lane.cost() for lane in lanes]
    finally:
        for lane in lanes:
            await lane.close()


def driven(work: Coroutine[Any, Any, T]) -> T:
    """Run what never waits, without an event loop: as it is in a blocking program."""
    try:
        while True:
            if work.send(None) is not None:  # `sleep(0)` hands over None
                raise RuntimeError("this has to wait, and can't in a blocking program")
    except StopIteration as done:
        value: T = done.value
        return value


def measure_framework(
    module: str, settings: Settings, folder: Path, progress: Progress, *, peers: bool
) -> tuple[list[FrameworkCost], dict[str, str]]:
    """The costs, and the versions of everything that took part."""
    if module in ELSEWHERE:
        return _measured_elsewhere(module, settings, folder) if peers else ([], {})
    if peers and (found := str(libraries(progress))) not in sys.path:
        sys.path.append(found)
    return _measured_here(module, settings, folder, progress, peers=peers)


def _measured_here(
    module: str, settings: Settings, folder: Path, progress: Progress, *, peers: bool
) -> tuple[list[FrameworkCost], dict[str, str]]:
    costs: list[FrameworkCost] = []
    versions: dict[str, str] = {}
    for number, subject in enumerate(subjects(module, peers=peers)):
        began = perf_counter()
        work = measure_subject(subject, settings, folder / f"subject-{number}")
        costs += driven(work) if subject.blocking else asyncio.run(work)
        versions |= {name: version(name) for name in subject.libraries}
        versions |= subject.servers()
        progress(f"{subject.name}, {subject.call}, {subject.store}, {subject.own}: {perf_counter() - began:.1f} s")
    return costs, versions


def _measured_elsewhere(module: str, settings: Settings, folder: Path) -> tuple[list[FrameworkCost], dict[str, str]]:
    """The same, in a process that has the environment of the framework's tests."""
    from tests.integrations.crewai.environment import with_crewai

    order = json.dumps({"module": module, "folder": str(folder), "settings": asdict(settings)})
    found = json.loads(with_crewai().run("-m", "benchmarks.frameworks.running", order))
    return [FrameworkCost.from_dict(cost) for cost in found["costs"]], found["versions"]


def main() -> None:
    """Answer `_measured_elsewhere`."""
    order = json.loads(sys.argv[1])
    found: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in order["settings"].items()
    }
    costs, versions = _measured_here(
        order["module"], Settings(**found), Path(order["folder"]), lambda _text: None, peers=True
    )
    print(json.dumps({"costs": [asdict(cost) for cost in costs], "versions": versions}))


if __name__ == "__main__":
    main()
