"""The fixture `browser`: one Chromium for all tests of a worker.

Tests that use it, directly or through another fixture, get the marker `browser` and are one xdist group: so only one
worker starts it. They run in the event loop of the session, as the browser does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.servers.chromium import OPTIONS, find_chromium
from tests.servers.errors import ServerError

if TYPE_CHECKING:
    from playwright.async_api import Browser

FIXTURE = "browser"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    from playwright.async_api import async_playwright

    chromium = find_chromium()
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(
            executable_path=chromium.binary, args=[*OPTIONS], env=chromium.environment
        )
        yield opened
        await opened.close()


def uses_browser(item: pytest.Item) -> bool:
    return FIXTURE in getattr(item, "fixturenames", ())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before xdist, which adds the groups to the names of the tests."""
    distributed = config.pluginmanager.hasplugin("xdist")
    for item in filter(uses_browser, items):
        item.add_marker(FIXTURE)
        if distributed and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(FIXTURE))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch it here, where no timeout of a test is running."""
    if not session.config.option.collectonly and any(map(uses_browser, getattr(session, "items", []))):
        with suppress(ServerError):  # the fixture says it again
            find_chromium()
