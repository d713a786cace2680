"""Runs the rounds of a campaign: clients at work under faults, and then the checks."""

from __future__ import annotations

import asyncio
import itertools
import random
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from locus.errors import ConfigurationError
from locus.memory.checkpointer import Checkpointer
from locus.testing.campaign.checker import check, left_as_it_was
from locus.testing.campaign.client import CLOCK
from locus.testing.campaign.clients import Clients
from locus.testing.campaign.effects import check_effects, read_effects
from locus.testing.campaign.faults import CLIENT_FAULTS, INSIDE, KILLED, ClientKilled, InsideOfClients
from locus.testing.campaign.finding import Finding, Kind
from locus.testing.campaign.found import (
    PAGE,
    FoundThread,
    find_threads,
    places_of_writes,
    read_threads,
    wait_until_reachable,
)
from locus.testing.campaign.history import History, Operation
from locus.testing.campaign.plan import RoundPlan, planned
from locus.testing.campaign.site import Fault, Site
from locus.testing.campaign.tally import FailedRound, Tally
from locus.testing.processes.jobs import opened
from locus.testing.processes.workers import Crew

CLIENTS: Final = 3
ROUND_SECONDS: Final = 6.0
CROWD: Final = 500
AT_ONCE: Final = 16
"""How many threads are removed at the same time."""


@dataclass(frozen=True)
class CampaignOptions:
    """The options of a campaign."""

    folder: Path
    """The folder for the histories of clients."""
    clients: int = CLIENTS
    round_seconds: float = ROUND_SECONDS
    crowd: int = CROWD
    vacuums: bool = True
    """Whether clients may vacuum the whole store. Allow it only if nobody else uses the store."""
    modules: tuple[str, ...] = ()
    """Modules that a client imports before it opens the store."""
    only: tuple[str, ...] = ()
    """The faults to choose from; empty for all."""
    kills: bool = False
    """Whether clients are killed in three of four rounds, in addition to the other faults."""
    command: str = ""
    """The command line of this campaign, without its seed."""
    say: Callable[[str], None] = print


@dataclass
class RoundOutcome:
    """The result of a round."""

    plan: RoundPlan
    struck: dict[str, int]
    history: History
    findings: list[Finding] = field(default_factory=list)
    found: dict[str, FoundThread] = field(default_factory=dict)
    seconds: float = 0.0

    def __str__(self) -> str:
        faults = ", ".join(f"{name} × {count}" for name, count in self.struck.items())
        told = ", ".join(f"{count} {name}" for name, count in self.history.told().items())
        verdict = f"{len(self.findings)} findings" if self.findings else "nothing found"
        return f"{self.plan.site}, seed {self.plan.seed}, round {self.plan.number}: {faults}; {told}; {verdict}"


def fault_names(site: Site, only: Sequence[str] = ()) -> list[str]:
    """The names of the faults of a store and its clients; with `only`, just those."""
    names = [*(fault.name for fault in site.faults()), *CLIENT_FAULTS]
    if unknown := set(only) - set(names):
        raise ConfigurationError(
            f"{site.name} has no fault {', '.join(map(repr, sorted(unknown)))}; it has {', '.join(map(repr, names))}"
        )
    return [name for name in names if not only or name in only]


async def run_round(site: Site, plan: RoundPlan, options: CampaignOptions) -> RoundOutcome:
    """Run one round, and check its history."""
    began = time.monotonic()
    folder = options.folder / plan.name.replace("/", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    struck = dict.fromkeys(plan.faults, 0)
    async with opened(site.direct_url()) as checkpointer:
        while left := await checkpointer.list_threads(PAGE, prefix=plan.prefix):  # of an earlier run of this round
            await _remove(checkpointer, left)
    with Crew(site.url(), options.modules) as crew:
        clients = Clients(
            crew,
            folder,
            seed=plan.name,
            prefix=plan.prefix,
            faults=[name for name in plan.faults if name in INSIDE],
            count=options.clients,
            vacuums=options.vacuums and (plan.vacuums or CLOCK in plan.faults),
            crowd=options.crowd,
        )
        await clients.at_work()
        faults = _faults(site, plan, clients)
        await _strike(faults, plan, options.round_seconds, struck)
        await clients.stop()
    history = History.read(folder)
    struck |= {name: count for name, count in history.faults().items() if name in struck}
    threads = await _found(site, plan, history)
    findings = [Finding(Kind.WRONG_ERROR, "", f"a client failed: {failure}") for failure in clients.failures]
    findings += check(history, threads)
    findings += check_effects(history, read_effects(folder))
    return RoundOutcome(plan, struck, history, findings, threads, time.monotonic() - began)


def _faults(site: Site, plan: RoundPlan, clients: Clients) -> list[Fault]:
    known: dict[str, Fault] = {fault.name: fault for fault in site.faults()}
    killed = ClientKilled(clients)
    known[killed.name] = killed
    known |= {name: InsideOfClients(name) for name in INSIDE}
    return [known[name] for name in plan.faults]


async def _strike(faults: Sequence[Fault], plan: RoundPlan, seconds: float, struck: dict[str, int]) -> None:
    """Let one fault after another strike for some time. Kills go on meanwhile, even while a server is stopped."""
    end = time.monotonic() + seconds

    async def one_after_the_other(choices: Sequence[Fault], rng: random.Random) -> None:
        while choices and time.monotonic() < end:
            fault = rng.choice(choices)
            struck[fault.name] += await fault.strike(rng)

    async with asyncio.TaskGroup() as both:
        both.create_task(one_after_the_other([fault for fault in faults if fault.name != KILLED], plan.rng()))
        both.create_task(one_after_the_other([fault for fault in faults if fault.name == KILLED], plan.rng("kills")))


async def _found(site: Site, plan: RoundPlan, history: History) -> dict[str, FoundThread]:
    async with opened(site.direct_url()) as checkpointer:
        await wait_until_reachable(checkpointer)
        return await find_threads(checkpointer, plan.prefix, places_of_writes(history))


class Campaign:
    """Runs rounds on one store, one after another. Threads stay for one more round, and are checked again after it."""

    def __init__(self, site: Site, tally: Tally, options: CampaignOptions, state: Path | None = None) -> None:
        self._site = site
        self._tally = tally
        self._options = options
        self._state = state
        self._earlier: dict[str, FoundThread] = {}

    @property
    def _besides(self) -> tuple[str, ...]:
        return (KILLED,) if self._options.kills else ()

    def plan(self, seed: int, number: int) -> RoundPlan:
        return planned(seed, self._site.name, number, fault_names(self._site, self._options.only), self._besides)

    async def run(self, seed: int, seconds: float, only: int | None = None) -> list[RoundOutcome]:
        """Run the rounds of a seed that were not run yet, until the time is over; or run only the round `only`."""
        outcomes: list[RoundOutcome] = []
        end = time.monotonic() + seconds
        while True:
            number = self._tally.site(self._site.name).rounds.get(seed, 0) if only is None else only
            outcome = await self._round(self.plan(seed, number))
            self.note(outcome, counts=only is None)
            outcomes.append(outcome)
            if only is not None or time.monotonic() >= end:
                break
        async with opened(self._site.direct_url()) as checkpointer:
            await _remove(checkpointer, self._earlier)
        return outcomes

    async def _round(self, plan: RoundPlan) -> RoundOutcome:
        outcome = await run_round(self._site, plan, self._options)
        async with opened(self._site.direct_url()) as checkpointer:
            outcome.findings += await _still_there(checkpointer, self._earlier, outcome.history.of_kind("vacuum"))
            await _remove(checkpointer, self._earlier)
        self._earlier = {} if outcome.findings else outcome.found
        return outcome

    def note(self, outcome: RoundOutcome, *, counts: bool = True) -> None:
        """Report a round, and keep its histories if there are findings. A repeated round does not count."""
        plan, site = outcome.plan, self._site
        if counts:
            self._tally.expect(site.name, fault_names(site))
            told = {str(name): count for name, count in outcome.history.told().items()}
            self._tally.add(
                site.name, site.versions(), plan.seed, outcome.struck, told, outcome.findings, outcome.seconds
            )
        self._options.say(str(outcome))
        folder = self._options.folder / plan.name.replace("/", "-")
        if not outcome.findings:
            shutil.rmtree(folder)
        else:
            texts = [str(finding) for finding in outcome.findings]
            (folder / "findings.txt").write_text("\n".join(texts))
            if counts:
                self._tally.failures.append(
                    FailedRound(
                        site=site.name,
                        seed=plan.seed,
                        round=plan.number,
                        faults=list(plan.faults),
                        findings=texts[:20],
                        folder=str(folder),
                    )
                )
            for text in texts[:10]:
                self._options.say(f"  {text}")
            self._options.say(f"  histories are in {folder}; the same round again:")
            self._options.say(f"  {self._options.command} --seed {plan.seed} --round {plan.number}")
        self._tally.write(self._state)


async def _still_there(
    checkpointer: Checkpointer, earlier: dict[str, FoundThread], vacuums: Sequence[Operation]
) -> list[Finding]:
    """Check that the threads of an earlier round are as they were left."""
    findings: list[Finding] = []
    read = await read_threads(checkpointer, {thread_id: thread.writes.keys() for thread_id, thread in earlier.items()})
    for thread_id, before in earlier.items():
        findings += left_as_it_was(before, read[thread_id], vacuums)
    return findings


async def _remove(checkpointer: Checkpointer, threads: Iterable[str]) -> None:
    names = iter(threads)
    while batch := list(itertools.islice(names, AT_ONCE)):
        await asyncio.gather(*(checkpointer.delete(thread_id) for thread_id in batch))
