"""Counts what a receiver got while workers that make effects were killed: `python -m locus.testing.effects URL`.

Two workers pay the same orders, directly or by a tool of a framework, and one is killed at a random instant. A third
of the orders is paid on the terms "raise", a third on "retry", and a third asks the receiver. The receiver is a file.
Then what it got is held against what the workers were told:

- "raise": at most once, and exactly once if anybody was told so
- "retry": at least once, under one idempotency key, so exactly once where the receiver honours it
- asking: exactly once
- every worker was told the same receipt, which is in the ledger and at the receiver; nothing is under way for ever
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from locus.effects import Effects
from locus.testing.processes.effect_jobs import pay_all, received
from locus.testing.processes.workers import Crew

CHOICES = ("raise", "retry", "reconcile")
EACH = 2
"""How many orders of a round have each of these terms."""
LONGEST_WAIT = 0.05
"""The most seconds between the end of an order and the kill."""


@dataclass
class EffectTally:
    """What a campaign has counted."""

    kills: int = 0
    cuts: int = 0
    orders: int = 0
    calls: int = 0
    cut_off: int = 0
    """Effects that were begun, and whose end the ledger has from somebody else, or not at all."""
    unknown: int = 0
    """Orders of "raise" whose outcome stayed unknown."""
    repeated: int = 0
    """Orders of "retry" that the receiver got more than once."""
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.kills:,} kills, {self.cuts:,} cuts, {self.orders:,} effects, {self.calls:,} calls received; "
            f"{self.cut_off:,} cut off: {self.unknown:,} stayed unknown, {self.repeated:,} arrived twice as they may; "
            f"{len(self.findings)} violations"
        )


async def pay_under_kills(
    url: str,
    *,
    kills: int,
    seed: int,
    folder: Path,
    turn: str = "",
    lease_seconds: float = 1.0,
    modules: Sequence[str] = (),
    cut: Callable[[], object] | None = None,
    direct_url: str | None = None,
) -> EffectTally:
    """Run a campaign with so many kills. `cut` cuts the connections of workers; `direct_url` leads past that."""
    rng, tally = random.Random(seed), EffectTally()
    name = f"{seed}-{rng.randrange(10**9)}-{time.time_ns()}"
    with Crew(url, modules) as crew:
        for kill in range(kills):
            receiver = str(folder / f"received-{kill}")
            orders = [f"{choice} {name}-{kill}-{number}" for choice in CHOICES for number in range(EACH)]
            workers = [
                crew.start(
                    pay_all,
                    url=url,
                    receiver=receiver,
                    orders=orders,
                    seed=rng.randrange(10**6),
                    lease_seconds=lease_seconds,
                    turn=turn,
                    ends=ends,
                )
                for ends in (False, True)
            ]
            for worker in workers:
                assert worker.hear() == {"ready": True}
            told = [workers[0].hear() for _ in range(rng.randrange(len(orders)))]
            told += workers[0].hear_until(time.monotonic() + rng.uniform(0, LONGEST_WAIT))
            if cut is not None and rng.random() < 0.5:
                cut()
                tally.cuts += 1
                told += workers[0].hear_until(time.monotonic() + rng.uniform(0, LONGEST_WAIT))
            told += workers[0].kill()
            tally.kills += workers[0].killed
            told += workers[1].hear_out()
            workers[1].finish()
            for worker in workers:
                worker.close()
            async with Effects(direct_url or url) as effects:
                await _check(tally, effects, orders, told, receiver)
    return tally


async def _check(
    tally: EffectTally, effects: Effects, orders: Sequence[str], told: Sequence[dict[str, str]], receiver: str
) -> None:
    lines = [line.split("\t") for line in received(receiver)]
    for order in orders:
        choice = order.partition(" ")[0]
        got = [(key, receipt) for paid, key, receipt in lines if paid == order]
        outcomes = {each["outcome"] for each in told if each.get("order") == order}
        effect = await effects.get(f"charge/{order}")
        tally.orders += 1
        tally.calls += len(got)
        receipts = outcomes - {"unknown"}
        wrong = {
            "nobody was told of it": not outcomes,
            "it was given up": any(not each.startswith("receipt-") for each in receipts),
            "its callers were told different things": len(outcomes) > 1,
            "its receipt is not the receiver's": not receipts <= {receipt for _, receipt in got},
            "it was made twice": choice != "retry" and len(got) > 1,
            "it is missing": not got and (choice != "raise" or bool(receipts)),
            "it is unknown, against its terms": choice != "raise" and "unknown" in outcomes,
            "it had two idempotency keys": len({key for key, _ in got}) > 1,
            "the ledger lost it": effect is None,
            "the ledger says something else": (effect is not None and (effect.state == "done") != bool(receipts))
            or (effect is not None and bool(receipts) and not any(each in str(effect.result) for each in receipts)),
        }
        tally.cut_off += effect is not None and (effect.attempt > 1 or effect.state != "done" or bool(effect.note))
        tally.unknown += outcomes == {"unknown"}
        tally.repeated += len(got) > 1
        tally.findings += [f"{order}: {what}" for what, is_so in wrong.items() if is_so]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m locus.testing.effects", description="Kill workers that make effects, and count what arrived."
    )
    parser.add_argument("url", help="the store of the ledger: what get_checkpointer takes")
    parser.add_argument("--kills", type=int, default=50, help="how many workers are killed (50)")
    parser.add_argument("--seed", type=int, default=1, help="decides the order and the instants (1)")
    parser.add_argument("--turn", default="", metavar="MODULE:NAME", help="a function that pays by a framework's tool")
    parser.add_argument("--lease", type=float, default=1.0, help="the lease of a worker in seconds (1)")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="locus-effects-") as folder:
        tally = asyncio.run(
            pay_under_kills(
                given.url,
                kills=given.kills,
                seed=given.seed,
                folder=Path(folder),
                turn=given.turn,
                lease_seconds=given.lease,
            )
        )
    sys.stdout.write("\n".join(itertools.chain(tally.findings, [str(tally)])) + "\n")
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
