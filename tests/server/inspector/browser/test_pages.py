"""Every page in a real browser: what it shows, where it leads, and that it works without scripts, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser

from locus.memory.backends import sqlite_checkpointer
from tests.server.inspector.browser.conftest import Visiting, visits
from tests.server.inspector.browser.places import every_page
from tests.server.inspector.browser.stores import GRAPH, LONG, PLANTED, SESSION, TRIP
from tests.server.inspector.browser.visits import Visit
from tests.server.inspector.serving import inspecting

pytestmark = pytest.mark.asyncio(loop_scope="session")

BOTH = pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])


@BOTH
async def test_every_page_has_one_heading_a_title_and_fits(visiting: Visiting, stored: Path, scripts: bool) -> None:
    """At 200 %, half as many pixels are left: nothing may stick out on the side."""
    visit = await visiting(java_script_enabled=scripts, viewport={"width": 640, "height": 400})
    page = visit.page
    wrong: dict[str, object] = {}
    for name, (segments, query) in (await every_page(stored)).items():
        await visit.go(*segments, **query)
        if await page.locator("h1").count() != 1 or not (await page.title()).endswith("Locus"):
            wrong[name] = await page.title()
        if scripts and (widest := await width(visit)) > 640:
            wrong[name] = widest
    assert wrong == {}
    assert [answer for answer in visit.refused if not answer.startswith("404") or "nobody" not in answer] == []


async def width(visit: Visit) -> int:
    found: int = await visit.page.evaluate("document.documentElement.scrollWidth")
    return found


@BOTH
async def test_which_save_brought_a_text_in_takes_few_clicks(visiting: Visiting, scripts: bool) -> None:
    """Thread, text, Enter, and the page says it: no more than four clicks."""
    visit = await visiting(java_script_enabled=scripts)
    page = visit.page
    await page.locator("[data-row]", has_text=LONG).locator("a[data-open]").click()
    await page.locator("#filter").fill(PLANTED)
    await page.keyboard.press("Enter")
    answer = page.locator("[data-answer]")
    await answer.wait_for()
    assert "It came with #" in await answer.inner_text()
    await answer.locator("a[data-open]").click()
    assert PLANTED in await page.locator("main").inner_text()


@BOTH
async def test_a_conversation_reads_like_one(visiting: Visiting, scripts: bool) -> None:
    visit = await visiting(java_script_enabled=scripts)
    page = visit.page
    await page.locator("[data-row]", has_text=SESSION).locator("a[data-open]").click()
    await page.wait_for_url("**/t/**")
    await page.locator("[data-row] a[data-open]").first.click()
    turns = page.locator("article.turn")
    await turns.first.wait_for()
    assert [await turns.nth(at).locator(".role").inner_text() for at in range(await turns.count())] == [
        "user",
        "assistant",
        "assistant",
    ]
    call = page.locator(".call")
    assert "find_parcel" in await call.inner_text()
    assert "Leipzig" in await call.inner_text()


@BOTH
async def test_two_checkpoints_are_compared_with_the_form(visiting: Visiting, scripts: bool) -> None:
    visit = await visiting(java_script_enabled=scripts)
    page = await visit.go("t", TRIP)
    await page.locator("input[name=pick][value='2']").check()
    await page.locator("input[name=pick][value='8']").check()
    await page.get_by_role("button", name="Compare").click()
    await page.wait_for_url("**/diff/**")
    assert "from #2" in " ".join((await page.locator(".head .title").inner_text()).split())


async def test_without_scripts_nothing_is_offered_that_needs_them(visiting: Visiting) -> None:
    visit = await visiting(java_script_enabled=False)
    page = await visit.go("t", TRIP)
    for needed in ("[data-follow]", "[data-copy]", "[data-theme-button]", "[data-help-button]"):
        assert await page.locator(needed).first.is_hidden()


async def test_a_waiting_node_and_a_namespace_are_seen(visit: Visit) -> None:
    page = await visit.go("t", GRAPH)
    assert await page.locator(".chip", has_text="waits for a person").count() == 1
    await page.get_by_role("navigation", name="Namespaces").get_by_text("planner:1").click()
    assert await page.locator("[data-row]").count() == 1
    await page.go_back()
    await page.locator("[data-row]", has_text="waits for a person").locator("a[data-open]").press("Enter")
    await page.wait_for_url("**/c/**")
    assert "Refund 129.90 euros?" in await page.locator("main").inner_text()


async def test_what_a_row_is_can_be_read_on_a_narrow_screen(visiting: Visiting) -> None:
    visit = await visiting(viewport={"width": 400, "height": 800})
    cut = "chips => chips.filter(chip => chip.scrollWidth > chip.clientWidth).map(chip => chip.textContent)"
    for thread in (TRIP, GRAPH):
        page = await visit.go("t", thread)
        chips = page.locator("[data-row] .what > .chip:first-child")
        assert await chips.count()
        assert await chips.evaluate_all(cut) == []


async def test_an_address_can_be_shared_and_back_and_forward_work(visiting: Visiting) -> None:
    visit = await visiting()
    page = visit.page
    await page.locator("#filter").fill("trip*")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/threads?q=trip*")
    await page.locator("a[data-open]").first.click()
    await page.wait_for_url(f"**/t/{TRIP}*")
    await page.locator("[data-pane] a[data-changes]").press("Enter")
    await page.wait_for_url("**/diff/**")
    shown, shared = await page.locator("main").inner_text(), page.url
    other = await visiting()
    await other.page.goto(shared)
    assert await other.page.locator("main").inner_text() == shown
    await page.go_back()
    await page.wait_for_url(f"**/t/{TRIP}*")
    await page.go_back()
    assert await page.locator("#filter").input_value() == "trip*"
    await page.go_forward()
    await page.go_forward()
    assert page.url == shared


async def test_an_empty_store_says_what_to_do(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    async with sqlite_checkpointer(path) as handle:
        await handle.list_threads()
        assert await handle.delete("nothing") is False
    with inspecting(path, writes=True) as served:
        async with visits(browser) as begin:
            visit = await begin(served)
            assert "No threads yet" in await visit.page.locator("main").inner_text()


@BOTH
async def test_what_was_found_is_in_view_and_marked(visiting: Visiting, scripts: bool) -> None:
    """By a search, and by the question when a text came; both open the middle of a conversation."""
    visit = await visiting(java_script_enabled=scripts, viewport={"width": 1280, "height": 500})
    places: list[tuple[tuple[str, ...], dict[str, str], str]] = [
        (("search",), {"q": "invoice 4 711"}, "a[data-open]"),
        (("t", LONG, "bisect"), {"appears": PLANTED.upper()}, "text=Read it"),
    ]
    for segments, query, link in places:
        page = await visit.go(*segments, **query)
        await page.locator(link).first.click()
        await page.wait_for_url("**/c/**")
        found = page.locator("article", has_text=PLANTED).locator("mark").first
        await found.wait_for()
        box = await found.bounding_box()
        assert box is not None
        assert 0 < box["y"] < 500
