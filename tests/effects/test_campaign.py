"""The campaign that kills workers while they make effects, and what it would find."""

from __future__ import annotations

from pathlib import Path

import pytest

from locus.effects import Effects
from locus.testing import effects as campaign
from locus.testing.processes.effect_jobs import receive


@pytest.mark.crash
async def test_workers_that_are_killed_pay_on_the_terms_of_their_orders(tmp_path: Path) -> None:
    tally = await campaign.pay_under_kills(f"sqlite:{tmp_path / 'ledger.db'}", kills=3, seed=7, folder=tmp_path)
    assert tally.findings == []
    assert (tally.kills, tally.orders) == (3, 3 * 3 * campaign.EACH)
    assert tally.calls >= tally.orders - tally.unknown


@pytest.mark.parametrize(
    ("order", "lines", "told", "finding"),
    [
        ("raise 1", ["a r1"], ["r1"], None),
        ("raise 1", ["a r1"], [], "nobody was told"),
        ("raise 1", ["a r1", "a r2"], ["r1"], "made twice"),
        ("raise 1", [], ["r1"], "missing"),
        ("retry 1", [], ["unknown"], "against its terms"),
        ("retry 1", ["a r1", "b r1"], ["r1"], "two idempotency keys"),
        ("retry 1", ["a r1", "a r2"], ["r1"], None),
        ("retry 1", ["a r1", "a r2"], ["r1", "r2"], "different things"),
        ("reconcile 1", ["a r1", "a r2"], ["r1"], "made twice"),
        ("reconcile 1", ["a r2"], ["r1"], "not the receiver's"),
        ("reconcile 1", ["a r2"], ["r2"], "the ledger says"),
    ],
)
async def test_a_violation_is_found(
    order: str, lines: list[str], told: list[str], finding: str | None, tmp_path: Path
) -> None:
    effects, receiver = Effects("memory"), str(tmp_path / "received")
    await effects.once(f"charge/{order}", lambda: "receipt-r1")
    for line in lines:
        key, _, receipt = line.partition(" ")
        receive(receiver, f"{order}\t{key}\treceipt-{receipt}")
    tally = campaign.EffectTally()
    outcomes = [{"order": order, "outcome": each if each == "unknown" else f"receipt-{each}"} for each in told]
    await campaign._check(tally, effects, [order], outcomes, receiver)
    assert (tally.findings == []) == (finding is None)
    assert finding is None or any(finding in each for each in tally.findings)
