"""Axe finds nothing on any page: in light, in dark, and with the colours of the system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]
from playwright.async_api import Page

from tests.server.inspector.browser.conftest import Visiting
from tests.server.inspector.browser.places import every_page

pytestmark = pytest.mark.asyncio(loop_scope="session")
WRITES = True


FULL: dict[str, Any] = {"resultTypes": ["violations"]}
COLOURS: dict[str, Any] = {**FULL, "runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
"""Nothing else depends on the colours."""


async def findings(page: Page, rules: dict[str, Any]) -> list[str]:
    found: Any = await page.evaluate("rules => axe.run(rules)", rules)
    return [
        f"{one['id']}: {node['target']} {node.get('failureSummary', '')}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


async def findings_in_all_colours(page: Page) -> list[str]:
    """What Axe finds on a page in light, and in the colours of the dark and of the system."""
    await page.evaluate(Axe().axe_script)
    await page.emulate_media(color_scheme="light", forced_colors="none")
    light = await findings(page, FULL)
    await page.emulate_media(color_scheme="dark")
    dark = await findings(page, COLOURS)
    await page.emulate_media(color_scheme="light", forced_colors="active")
    forced = await findings(page, COLOURS)
    return [*light, *(f"dark: {one}" for one in dark), *(f"forced: {one}" for one in forced)]


async def test_axe_finds_nothing(visiting: Visiting, stored: Path) -> None:
    visit = await visiting(bypass_csp=True, reduced_motion="reduce")
    found: dict[str, list[str]] = {}
    for name, (segments, query) in (await every_page(stored, writes=True)).items():
        found[name] = await findings_in_all_colours(await visit.go(*segments, **query))
    await visit.press("?")
    await visit.page.locator("dialog#help[open]").wait_for()
    found["help"] = await findings_in_all_colours(visit.page)
    assert {name: told for name, told in found.items() if told} == {}


async def test_the_timeline_is_a_list_of_links_with_names(visiting: Visiting) -> None:
    visit = await visiting()
    page = await visit.go("t", "trip-to-helsinki")
    names = [await link.get_attribute("aria-label") for link in await page.locator("a[data-open]").all()]
    assert names[0] == "Checkpoint 24, latest"
    assert names[3] == "Checkpoint 21, fork of 8"
    assert names[-1] == "Checkpoint 1"
    assert await page.locator("svg.lanes").get_attribute("aria-hidden") == "true"


async def test_the_focus_is_seen(visiting: Visiting) -> None:
    visit = await visiting()
    await visit.press("j")
    width = await visit.page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
    assert width not in ("0px", "")
