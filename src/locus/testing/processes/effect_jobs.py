"""Jobs on effects for worker processes (see `jobs`). Their receiver is a file, to which each call adds a line."""

from __future__ import annotations

import asyncio
import importlib
import os
import random
import re
from pathlib import Path
from typing import Any

from locus.effects import NOT_MADE, Effect, Effects, Made, current_effect
from locus.effects.terms import NotMade
from locus.memory.model.ids import new_id
from locus.testing.processes.jobs import wait_for_the_others
from locus.testing.processes.workers import Channel


def receive(receiver: str, line: str) -> None:
    """Add a line to a file, whole, whoever else does so."""
    with Path(receiver).open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())


def received(receiver: str) -> list[str]:
    path = Path(receiver)
    return path.read_text().splitlines() if path.exists() else []


async def make_together(talk: Channel, url: str, receiver: str, keys: list[str], blocking: bool) -> list[Any]:
    """Make effects that other workers make at the same time. Returns their results."""
    async with Effects(url, lease_seconds=600) as effects:
        await wait_for_the_others(talk)
        results = []
        for key in keys:

            def call(idempotency_key: str, key: str = key) -> Any:
                receive(receiver, f"{key} {idempotency_key}")
                return {"by": os.getpid(), "key": key}

            if blocking:
                results.append(await asyncio.to_thread(effects.sync.once, key, call))
            else:
                results.append(await effects.once(key, call))
        return results


async def make_until_killed(talk: Channel, url: str, receiver: str, key: str, when: str) -> None:
    """Make an effect, and stop before its receiver has it, or behind that, to be killed there."""
    async with Effects(url, lease_seconds=0.2) as effects:

        async def call(idempotency_key: str) -> None:
            if when == "before":
                talk.send(at="before")
                await asyncio.sleep(600)
            receive(receiver, f"{key} {idempotency_key}")
            talk.send(at="behind")
            await asyncio.sleep(600)

        await effects.once(key, call, args={"amount": 5})


async def pay_all(
    talk: Channel, url: str, receiver: str, orders: list[str], seed: int, lease_seconds: float, turn: str, ends: bool
) -> None:
    """Pay these orders while others do so, and report what came of each: a receipt, "unknown", or what was said last.

    Without `ends`, the worker stays until it is killed. The first word of an order is what is done if its outcome is
    unknown. `turn` names a function that pays by a tool of a framework, as `module:name`; if it is empty, nothing is
    between.
    """
    rng, outcomes = random.Random(seed), dict[str, str]()

    async def pay(order_id: str, amount: int) -> str:
        effect = current_effect()
        assert effect is not None
        await asyncio.sleep(rng.uniform(0, 0.03))
        receipt = f"receipt-{new_id()}"
        receive(receiver, f"{order_id}\t{effect.idempotency_key}\t{receipt}")
        await asyncio.sleep(rng.uniform(0, 0.03))
        return receipt

    def ask(effect: Effect) -> Made | NotMade:
        told = [line.split("\t") for line in received(receiver)]
        return next((Made(receipt) for _, key, receipt in told if key == effect.idempotency_key), NOT_MADE)

    module, _, name = turn.partition(":")
    pay_by_turn = getattr(importlib.import_module(module), name) if turn else _directly
    async with Effects(url, lease_seconds=lease_seconds) as effects:
        talk.send(ready=True)
        for order in rng.sample(orders, len(orders)):
            choice = order.partition(" ")[0]
            terms = {"on_unknown": ask if choice == "reconcile" else choice}
            for _ in range(_MOST_TRIES):
                try:
                    said = await pay_by_turn(effects, pay, order, terms)
                except Exception as error:  # noqa: BLE001 - each framework has its own around it
                    said = _all_of(error)
                outcomes[order] = _outcome(said)
                if outcomes[order] == "unknown" or outcomes[order].startswith("receipt-"):
                    break
                await asyncio.sleep(0.05)  # the store was out of reach
            talk.send(order=order, outcome=outcomes[order])
    if not ends:
        await asyncio.Event().wait()


_MOST_TRIES = 200


async def _directly(effects: Effects, pay: Any, order: str, terms: dict[str, Any]) -> str:
    return str(await effects.once(f"charge/{order}", lambda: pay(order, 5), args={"amount": 5}, **terms))


def _outcome(said: str) -> str:
    if (receipt := re.search(r"receipt-\w+", said)) is not None:
        return receipt[0]
    return "unknown" if "nobody knows whether" in said else said


def _all_of(error: BaseException | None) -> str:
    return "" if error is None else f"{error} {_all_of(error.__cause__ or error.__context__)}"
