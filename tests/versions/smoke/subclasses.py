"""Classes that users derive from the frozen models, in a module that knows none of the names those are made of."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any

from annotated_types import Ge

from locus.core.messages import Message as TheirMessage
from locus.core.messages import Role as TheirRole
from locus.core.state import AgentState as TheirState

Score = Annotated[int, Ge(0)]


class Order(TheirMessage):
    item: str = ""
    placed: datetime | None = None


class ShopState(TheirState):
    score: Score = 0
    orders: tuple[Order, ...] = ()


class Numbers(TheirState):
    """Only numbers may stand in fields that it does not know."""

    __pydantic_extra__: dict[str, Score]


def check_subclasses() -> None:
    unknown: dict[str, Any] = {"mood": {"calm": [True]}}
    order = Order(role=TheirRole.USER, content="two", item="pear", placed=datetime(2026, 1, 2, tzinfo=UTC), **unknown)
    state = ShopState(score=2, orders=(order,), **unknown)
    for value in (order, state):
        again = type(value).model_validate_json(value.model_dump_json())
        assert again == value
        # Frozen, too, where nothing is validated.
        copy = value.model_copy(update={"mood": {"calm": []}})
        for unchanging in (extra(value)["mood"]["calm"], extra(copy)["mood"]):
            refused(unchanging.clear)
    assert state.with_message(order).messages == (order,)
    assert isinstance(state.with_message(order), ShopState)
    refused(lambda: ShopState(score=-1))
    assert extra(Numbers.model_validate({"luck": 7})) == {"luck": 7}
    refused(lambda: Numbers.model_validate({"luck": -7}))


def extra(value: TheirState | TheirMessage) -> dict[str, Any]:
    found = value.model_extra
    assert found is not None
    return found


def refused(change: Callable[[], object]) -> None:
    try:
        change()
    except (TypeError, ValueError):
        return
    raise AssertionError("a frozen value was changed, or a wrong one taken")
