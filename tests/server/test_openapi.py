"""The OpenAPI document, held against the server that it describes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from starlette.routing import Router

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends import MemoryCheckpointer
from locus.memory.model.spaces import DATA_KEYS, KEY_SPACES
from locus.server import create_app
from locus.wire.format import SPACES
from tests.server.running import asking


def _store() -> MemoryCheckpointer:
    store = MemoryCheckpointer()
    asyncio.run(store.save(AgentState().with_message(Message.user("hi")), "0", "0"))
    return store


APP = create_app(_store())
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", APP)
EFFORT = settings(
    max_examples=12,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[*HealthCheck],
)

# What a schema allows may still not fit: a condition that does not hold, a digest that is none.
NOT_PROMISED = [schemathesis.checks.positive_data_acceptance]


def does_what_is_said(case: Any) -> None:
    case.call_and_validate(excluded_checks=NOT_PROMISED)


@pytest.fixture
def schema() -> Any:
    return SCHEMA


def _labels() -> list[str]:
    operations: list[Any] = list(SCHEMA.get_all_operations())
    return [found.ok().label for found in operations]


@pytest.mark.parametrize("operation", _labels())
def test_the_server_does_what_its_document_says(operation: str, request: pytest.FixtureRequest) -> None:
    """The cases are made here: `SCHEMA.parametrize` makes all of them while tests are collected, in every worker."""
    held = schemathesis.pytest.from_fixture("schema").include(name=operation).parametrize()(does_what_is_said)
    EFFORT(held)(request=request)


async def test_every_route_is_described_and_nothing_else() -> None:
    async with asking(APP) as client:
        document = (await client.get("/openapi.json")).json()
    described = {
        (method.upper(), path) for path, item in document["paths"].items() for method in item if method != "parameters"
    }
    router = APP._app
    assert isinstance(router, Router)
    served = {(method, route.path) for route in router.routes for method in route.methods if method != "HEAD"}  # type: ignore[attr-defined]
    spaces = {(method, f"{SPACES}/{space}{path}") for space in (*KEY_SPACES, DATA_KEYS) for method, path in described}
    assert served == described | spaces
    names = [
        operation["operationId"]
        for item in document["paths"].values()
        for method, operation in item.items()
        if method != "parameters"
    ]
    routes = [route for route in router.routes if not route.path.startswith(SPACES)]  # type: ignore[attr-defined]
    assert sorted(names) == sorted(route.endpoint.__name__ for route in routes)  # type: ignore[attr-defined]
