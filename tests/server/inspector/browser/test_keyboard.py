"""The inspector without a mouse: the whole way from a list of threads to a fork, and each key on its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.server.inspector.browser.conftest import Visiting, visits
from tests.server.inspector.browser.stores import GRAPH, LONG, TRIP
from tests.server.inspector.browser.visits import Visit
from tests.server.inspector.serving import inspecting

pytestmark = pytest.mark.asyncio(loop_scope="session")
WRITES = True


async def test_from_the_filter_to_a_fork_by_keys_alone(visit: Visit) -> None:
    page = visit.page
    await visit.press("/")
    assert await page.evaluate("document.activeElement.id") == "filter"
    await page.keyboard.type("trip*")
    await visit.press("Enter")
    await page.wait_for_url("**/threads?q=trip*")
    await visit.press("j", "Enter")
    await page.wait_for_url(f"**/t/{TRIP}*")
    await visit.press("j", "j", "j", "m")
    await visit.said("Marked")
    marked = await page.locator("[data-row].marked").get_attribute("data-seq")
    await visit.press("k", "k", "d")
    await page.wait_for_url("**/diff/**")
    assert await page.locator("h1").inner_text() == "What changed"
    assert f"#{marked}" in await page.locator(".head .title").inner_text()
    await visit.press("f")
    await page.wait_for_url(f"**/t/{TRIP}/fork?checkpoint=*")
    await tab_to(visit, "new_thread")
    await visit.press("Control+A")
    await page.keyboard.type("trip-by-keys")
    await visit.press("Enter")
    await page.wait_for_url("**/t/trip-by-keys*")
    assert await page.locator("[data-row]").count() > 0


async def tab_to(visit: Visit, name: str) -> None:
    """Go to a field as somebody without a mouse does."""
    for _ in range(40):
        await visit.press("Tab")
        if await visit.page.evaluate("document.activeElement.name") == name:
            return
    pytest.fail(f"{name} cannot be reached")


async def test_rows_are_walked_to_their_ends_and_no_further(visit: Visit) -> None:
    page = await visit.go("threads")
    count = await page.locator("[data-row]").count()
    await visit.press(*"k" * 1)
    assert await focused_row(visit) == count - 1
    await visit.press("j")
    assert await focused_row(visit) == count - 1
    await visit.press(*"k" * (count + 2))
    assert await focused_row(visit) == 0


async def focused_row(visit: Visit) -> int:
    found: int = await visit.page.evaluate(
        "[...document.querySelectorAll('[data-row]')].indexOf(document.activeElement.closest('[data-row]'))"
    )
    return found


async def test_parent_and_child_of_a_checkpoint(visit: Visit) -> None:
    page = await visit.go("t", TRIP)
    await page.locator("a[data-open]", has_text="#5").first.press("Enter")
    await page.wait_for_url("**/c/**")
    await visit.press("[")
    await page.get_by_role("heading", name="Checkpoint #4", exact=True).wait_for()
    await visit.press("]")
    await page.get_by_role("heading", name="Checkpoint #5", exact=True).wait_for()
    await visit.press("b")
    await page.wait_for_url(f"**/t/{TRIP}/bisect")


async def test_the_first_checkpoint_says_that_it_has_no_parent(visit: Visit) -> None:
    page = await visit.go("t", TRIP)
    await page.locator("a[data-open]", has_text="#1").last.press("Enter")
    await page.get_by_role("heading", name="Checkpoint #1", exact=True).wait_for()
    await visit.press("[")
    await visit.said("There is no parent here")


async def test_a_mark_stays_in_the_tab_and_belongs_to_its_thread(visiting: Visiting) -> None:
    visit = await visiting()
    page = await visit.go("t", TRIP)
    await visit.press("j", "m")
    await page.reload()
    assert await page.locator("[data-row].marked").count() == 1
    await visit.go("t", LONG)
    assert await page.locator("[data-row].marked").count() == 0
    await visit.press("j", "d")
    await visit.said("Mark a checkpoint of this thread first")
    other = await visiting()
    await other.go("t", TRIP)
    assert await other.page.locator("[data-row].marked").count() == 0


async def test_a_mark_is_let_go_of(visit: Visit) -> None:
    page = await visit.go("t", TRIP)
    await visit.press("j", "m", "m")
    await visit.said("No longer marked")
    assert await page.locator("[data-row].marked").count() == 0


async def test_keys_can_be_switched_off_and_stay_off(visit: Visit) -> None:
    page = visit.page
    await visit.press("?")
    await page.locator("dialog#help[open]").wait_for()
    await page.locator("[data-keys-off]").check()
    await visit.press("Escape")
    await page.locator("dialog#help:not([open])").wait_for(state="attached")
    await visit.press("j")
    assert await focused_row(visit) == -1
    await page.reload()
    await visit.press("?", "j")
    assert await focused_row(visit) == -1
    # The button stays, and brings them back.
    await page.locator("[data-help-button]").click()
    await page.locator("[data-keys-off]").uncheck()
    await visit.press("Escape", "j")
    assert await focused_row(visit) == 0


async def test_keys_do_nothing_in_a_field_or_with_a_modifier(visit: Visit) -> None:
    page = visit.page
    await page.locator("#filter").focus()
    await page.keyboard.type("jt?")
    assert await page.locator("#filter").input_value() == "jt?"
    assert await page.locator("html").get_attribute("data-theme") is None
    await visit.press("Escape")
    await page.keyboard.press("Alt+t")
    assert await page.locator("html").get_attribute("data-theme") is None


async def test_the_theme_goes_round_and_is_remembered(visit: Visit) -> None:
    page, root = visit.page, visit.page.locator("html")
    await visit.press("t")
    assert await root.get_attribute("data-theme") == "light"
    await visit.press("t")
    await page.reload()
    assert await root.get_attribute("data-theme") == "dark"
    assert (
        await page.evaluate(
            "getComputedStyle(document.body).colorScheme || getComputedStyle(document.documentElement).colorScheme"
        )
        == "dark"
    )
    await page.locator("[data-theme-button]").click()
    assert await root.get_attribute("data-theme") is None


@pytest.mark.parametrize("permissions", [["clipboard-read", "clipboard-write"], []])
async def test_an_id_is_copied(visiting: Visiting, permissions: list[str]) -> None:
    visit = await visiting(permissions=permissions)
    page = await visit.go("t", TRIP)
    await visit.press("j")
    wanted = await page.locator("[data-row]").first.get_attribute("data-checkpoint")
    await visit.press("y")
    await visit.said("Copied")
    if permissions:
        assert await page.evaluate("navigator.clipboard.readText()") == wanted
    await page.locator("[data-copy]").first.click()
    await visit.said("Copied")


async def test_keys_work_under_another_path(browser: Browser, stored: Path) -> None:
    """As `locus serve --inspector` has it."""
    with inspecting(stored, base="/ui") as served:
        async with visits(browser) as begin:
            visit = await begin(served)
            page = await visit.go("t", GRAPH)
            await visit.press("j", "m", "j", "d")
            await page.wait_for_url("**/ui/t/*/diff/**")
            await page.go_back()
            await visit.press("F")
            await page.locator("[data-follow-told]", has_text="Following").wait_for()
            assert visit.refused == []


async def test_what_is_typed_on_a_page_that_is_opened_empty_goes_into_its_field(visit: Visit) -> None:
    for place in (("search",), ("t", TRIP, "bisect")):
        page = await visit.go(*place)
        await visit.press("j", "t")
        assert await page.locator("#filter").input_value() == "jt"
        assert await page.locator("html").get_attribute("data-theme") is None


async def test_the_button_says_which_theme_is_chosen(visit: Visit) -> None:
    button = visit.page.locator("[data-theme-button]")
    assert await button.inner_text() == "Theme: system"
    await button.click()
    assert await button.inner_text() == "Theme: light"
    await visit.go("search")
    assert await button.inner_text() == "Theme: light"


async def test_enter_closes_the_list_of_keys_and_leaves_them_on(visit: Visit) -> None:
    page = visit.page
    await visit.press("?")
    await page.locator("dialog#help[open]").wait_for()
    await visit.press("Enter")
    await page.locator("dialog#help:not([open])").wait_for(state="attached")
    await visit.press("j")
    assert await focused_row(visit) == 0
