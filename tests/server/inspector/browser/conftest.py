"""One store and one server for a module, and visits that are checked at their end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from tests.server.inspector.browser.stores import fill

if TYPE_CHECKING:
    from playwright.async_api import Browser

    from tests.server.inspector.browser.visits import Visit
    from tests.server.inspector.serving import Served

Visiting = Callable[..., Awaitable["Visit"]]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("inspected") / "agents.db"
    await fill(path)
    return path


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest, stored: Path) -> Any:
    """The inspector of the module's store; a module that has `WRITES` set may change it."""
    from tests.server.inspector.serving import inspecting

    with inspecting(stored, writes=getattr(request.module, "WRITES", False)) as inspector:
        yield inspector


@pytest_asyncio.fixture(loop_scope="session")
async def visiting(browser: Browser, served: Served) -> AsyncIterator[Visiting]:
    """Begins visits. All of them are checked at the end of the test."""
    async with visits(browser) as begin:
        yield lambda **options: begin(served, **options)


@pytest_asyncio.fixture(loop_scope="session")
async def visit(visiting: Visiting) -> Visit:
    return await visiting()


@asynccontextmanager
async def visits(browser: Browser) -> AsyncIterator[Visiting]:
    from tests.server.inspector.browser.visits import Visit

    begun: list[Visit] = []

    async def begin(served: Served, **options: Any) -> Visit:
        begun.append(await Visit.begin(browser, served, **options))
        return begun[-1]

    try:
        yield begin
    finally:
        for one in begun:
            await one.end()
