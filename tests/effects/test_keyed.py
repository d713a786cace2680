"""Functions of which each call is an effect."""

from __future__ import annotations

import asyncio
import inspect
from contextvars import Context
from pathlib import Path
from typing import Any

import pytest

from locus.effects import Effects, current_effect
from locus.errors import ConfigurationError, EffectMismatchError, SerializationError


@pytest.fixture
def effects() -> Effects:
    return Effects("memory")


async def test_the_arguments_of_a_call_make_its_key(effects: Effects) -> None:
    made: list[tuple[Any, ...]] = []

    @effects.keyed("pay/{order}/{to}")
    async def pay(order: str, to: str = "me", *, amount: int = 1, idempotency_key: str = "") -> int:
        made.append((order, to, amount, idempotency_key))
        return len(made)

    assert await pay("1") == await pay(order="1") == await pay("1") == 1
    assert await pay("a/b", "c") == 2
    assert await pay("a", "b/c") == 3
    with pytest.raises(EffectMismatchError):
        await pay("1", amount=2)
    assert [effect.key for effect in await effects.find()] == ["pay/1/me", "pay/a%2Fb/c", "pay/a/b%2Fc"]
    assert len({key for *_, key in made}) == 3
    assert list(inspect.signature(pay).parameters) == ["order", "to", "amount"]
    assert pay.__name__ == "pay"


async def test_a_blocking_function_and_a_key_of_its_own(effects: Effects) -> None:
    @effects.keyed(lambda args: f"handler {args['id']}")
    def by_function(args: dict[str, Any]) -> str:
        return "first"

    @effects.keyed("handler {args[id]}")
    def by_text(args: dict[str, Any]) -> str:
        return "second"

    assert by_function({"id": 7}) == by_text({"id": 7}) == "first"
    assert by_text({"id": 8}) == "second"


async def test_what_makes_no_key_is_refused(effects: Effects) -> None:
    async def pay(order: object) -> None:
        raise AssertionError("it was called")

    for key in ("pay", "pay/{other}", "pay/{}"):
        with pytest.raises(ConfigurationError, match="in braces"):
            effects.keyed(key)(pay)
    with pytest.raises(SerializationError, match="pay"):
        await effects.keyed("pay/{order}")(pay)(object())
    for terms in ({"on_unknown": "twice"}, {"lease_seconds": 0}, {"lease_seconds": 9_999}, {"wait_seconds": -1}):
        with pytest.raises(ConfigurationError):
            effects.keyed("pay/{order}", **terms)
    with pytest.raises(ConfigurationError, match="on_unknown"):
        Effects("memory", on_unknwon="retry")  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="async"):
        effects.sync.once("k", lambda: pay(1))


async def test_a_variable_that_is_set_after_a_store_has_answered_stays_set(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def pay() -> None:
        await asyncio.sleep(0)
        seen.append(current_effect())

    async def in_a_task_without_variables() -> None:
        async with Effects(f"sqlite:{tmp_path / 'ledger.db'}") as effects:
            await effects.once("k", pay)

    await asyncio.create_task(in_a_task_without_variables(), context=Context())
    assert [effect.key for effect in seen] == ["k"]
