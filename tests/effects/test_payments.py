"""A payment, killed in the middle, in every framework, with each of the three choices."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from locus.effects import NOT_MADE, Effect, Effects, Made, current_effect
from locus.testing.processes.effect_jobs import receive, received
from tests.effects.payments import CHOICES, FRAMEWORKS, order_of

pytestmark = pytest.mark.xdist_group("payments")  # one process is killed for all of them

ROOT = Path(__file__).resolve().parents[2]


class Killed:
    """A process that was killed while it paid, what its receiver got, and its ledger."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:{folder / 'ledger.db'}"
        self.receiver = str(folder / "received")
        self.before: list[str] = []

    def payments(self, order: str) -> list[str]:
        """The idempotency keys under which an order was paid."""
        return [line.partition(" ")[0] for line in received(self.receiver) if line.partition(" ")[2] == order]

    async def pay(self, order_id: str, amount: int) -> str:
        effect = current_effect()
        assert effect is not None
        receive(self.receiver, f"{effect.idempotency_key} {order_id}")
        return f"paid {amount}"

    def ask(self, effect: Effect) -> Any:
        keys = [line.partition(" ")[0] for line in received(self.receiver)]
        return Made("it had arrived") if effect.idempotency_key in keys else NOT_MADE


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    there = Killed(tmp_path_factory.mktemp("payments"))
    command = [sys.executable, "-m", "tests.effects.payments", there.url, there.receiver]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "paid\n"
        process.kill()
    return there


@pytest_asyncio.fixture
async def effects(killed: Killed) -> AsyncIterator[Effects]:
    async with Effects(killed.url) as opened:
        yield opened


@pytest.mark.crash
@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_a_payment_that_was_cut_off_is_what_its_caller_chose(
    framework: str, killed: Killed, effects: Effects
) -> None:
    turn = FRAMEWORKS[framework]
    orders = {choice: order_of(framework, choice) for choice in CHOICES}
    assert [len(killed.payments(order)) for order in orders.values()] == [1, 1, 1]
    said = await turn(effects, killed.pay, orders["retry"], {"on_unknown": "retry"})
    assert "paid 5" in said
    assert len(killed.payments(orders["retry"])) == 2
    assert len(set(killed.payments(orders["retry"]))) == 1, "a receiver that knows the key pays once"
    said = await turn(effects, killed.pay, orders["ask the receiver"], {"on_unknown": killed.ask})
    assert "it had arrived" in said
    assert len(killed.payments(orders["ask the receiver"])) == 1
    try:
        said = await turn(effects, killed.pay, orders["raise"], {})
    except Exception as error:  # noqa: BLE001 - each framework has its own around it
        said = _text(error)
    assert "nobody knows whether" in said
    assert len(killed.payments(orders["raise"])) == 1
    again = await turn(effects, killed.pay, orders["retry"], {})
    assert "paid 5" in again
    assert len(killed.payments(orders["retry"])) == 2


def _text(error: BaseException | None) -> str:
    return "" if error is None else f"{error} {_text(error.__cause__ or error.__context__)}"
