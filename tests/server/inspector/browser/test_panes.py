"""The timeline and the conversation side by side, and what a support engineer finds there in three clicks."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from tests.looking.stories import QUESTIONS, STORIES, WITHOUT_TOOLS, tell_all
from tests.server.inspector.browser.conftest import Visiting, visits
from tests.server.inspector.browser.stores import LONG, TRIP
from tests.server.inspector.browser.visits import Visit
from tests.server.inspector.serving import inspecting

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stories") / "agents.db"
    await asyncio.to_thread(asyncio.run, tell_all(path))
    return path


async def in_pane(page: Page, number: int) -> None:
    await page.locator("[data-pane] h2", has_text=f"Checkpoint #{number}").wait_for()


async def test_keys_move_without_loading_the_page(visit: Visit) -> None:
    page = await visit.go("t", TRIP)
    await in_pane(page, 24)
    await page.evaluate("window.stayed = true")
    await visit.press("j", "j", "j")
    await in_pane(page, 22)
    await visit.press("k")
    await in_pane(page, 23)
    assert page.url.endswith(f"/t/{TRIP}#23")
    assert await page.locator("[data-row][aria-current]").get_attribute("data-seq") == "23"
    assert await page.evaluate("window.stayed")
    await page.reload()
    await in_pane(page, 23)


async def test_the_pane_opens_at_what_the_save_added(visit: Visit) -> None:
    page = await visit.go("t", LONG)
    await in_pane(page, 34)
    added = page.locator("[data-pane] article.new")
    assert "Thank you." in await added.inner_text()
    await page.wait_for_function("document.querySelector('[data-pane]').scrollTop > 0")
    box, pane = await added.bounding_box(), await page.locator("[data-pane]").bounding_box()
    assert box is not None
    assert pane is not None
    assert pane["y"] <= box["y"] < pane["y"] + pane["height"]


async def test_a_click_shows_a_row_and_its_changes_beside_it(visit: Visit) -> None:
    page = await visit.go("t", TRIP)
    await in_pane(page, 24)
    await page.locator("[data-row][data-seq='9'] a[data-open]").click()
    await in_pane(page, 9)
    await page.locator("[data-pane]").get_by_text("What changed here").click()
    await page.locator("[data-pane] h2", has_text="What changed").first.wait_for()
    assert page.url.endswith(f"/t/{TRIP}#9")


async def test_the_scrubber_goes_through_the_turns(visit: Visit) -> None:
    page = await visit.go("t", TRIP)
    await in_pane(page, 24)
    await page.locator("[data-scrubber] input").focus()
    await visit.press("Home")
    await in_pane(page, 4)
    assert await page.locator("[data-scrubber] output").inner_text() == "1 of 6"


async def test_two_rows_are_chosen_and_a_third_lets_go_of_the_first(visit: Visit) -> None:
    page = await visit.go("t", TRIP)
    for number in (2, 5, 9):
        await page.locator(f"input[name=pick][value='{number}']").check()
    picked = await page.locator("input[name=pick]:checked").evaluate_all("boxes => boxes.map(box => box.value)")
    assert sorted(map(int, picked)) == [5, 9]
    await page.get_by_role("button", name="Compare #5 with #9").click()
    await page.wait_for_url("**/diff/**")


async def test_a_narrow_screen_has_pages_and_content_first(visiting: Visiting) -> None:
    visit = await visiting(viewport={"width": 390, "height": 844})
    page = await visit.go("t", TRIP)
    assert await page.locator("[data-pane]").is_hidden()
    assert await page.locator("#filter").is_hidden()
    box = await page.locator("[data-row]").first.bounding_box()
    assert box is not None
    assert box["y"] < 422
    await page.locator("[data-row] a[data-open]").first.click()
    await page.wait_for_url("**/c/**")
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("thread_id", STORIES)
async def test_both_questions_are_answered_in_three_clicks(browser: Browser, told: Path, thread_id: str) -> None:
    """Which turn brought the wrong price, and what did the agent know just then?"""
    with inspecting(told) as served:
        async with visits(browser) as begin:
            visit = await begin(served)
            page = visit.page
            rows = page.locator("[data-row]", has=page.locator(".row-id").get_by_text(thread_id, exact=True))
            await rows.locator("a[data-open]").click()  # 1: the thread
            before, after = ("costs ", ".") if thread_id in WITHOUT_TOOLS else ("← ", "")
            wrong = page.locator("[data-row]", has_text=f"{before}8.99{after}").first
            await wrong.wait_for()
            question = page.locator("[data-row]", has_text=QUESTIONS[1]).last
            numbers = [int(await row.get_attribute("data-seq") or 0) for row in (question, wrong)]
            assert numbers == sorted(numbers)  # the turn of the second question
            clock = await wrong.locator("time[data-clock]").inner_text()
            assert re.fullmatch(r"\d\d:\d\d:\d\d", clock)
            await wrong.locator("a[data-open]").click()  # 2: the save that brought it
            await in_pane(page, numbers[1])
            known = await page.locator("[data-pane]").inner_text()
            assert "89.90" in known
            assert "8.99" in known
            right = page.locator("[data-row]", has_text=f"{before}89.90{after}").last
            number = int(await right.get_attribute("data-seq") or 0)
            await right.locator("a[data-open]").click()  # 3: what it knew at the time of another row
            await in_pane(page, number)
            if number < numbers[1]:
                assert "8.99" not in await page.locator("[data-pane]").inner_text()


async def test_times_are_local_with_utc_beside_them(visiting: Visiting) -> None:
    visit = await visiting(timezone_id="Asia/Tokyo")
    page = await visit.go("t", TRIP)
    await in_pane(page, 24)
    saved = datetime.fromisoformat(
        await page.locator("[data-row] time[data-clock]").first.get_attribute("datetime") or ""
    )
    local = saved.astimezone(timezone(timedelta(hours=9)))
    assert f"{saved:%H:%M:%S} UTC" in await page.locator("[data-pane] time").first.inner_text()
    assert f"{local:%H:%M:%S}" in await page.locator("[data-pane] time").first.inner_text()
    await page.locator("#at").fill(f"{local:%Y-%m-%dT%H:%M:%S}")
    assert await page.locator("[data-zone-of=at]").inner_text() == f"(Asia/Tokyo; {saved:%H:%M:%S} UTC)"
    await page.get_by_role("button", name="Go there").click()
    await page.wait_for_url("**/c/**")
    assert await page.get_by_text("this was the latest checkpoint").count() == 1
    await visit.go("threads")
    day = f"{local:%Y-%m-%d}"
    await page.locator("#since").fill(day)
    await page.get_by_role("button", name="Show").click()
    begin = datetime.fromisoformat(f"{day}T00:00:00+09:00").astimezone(UTC)
    await page.wait_for_url(f"**since={begin:%Y-%m-%dT%H}%3A00%3A00**")
    assert await page.locator("#since").input_value() == day
    assert await page.locator("[data-row]").count()


async def test_what_was_searched_stays_marked_beside_the_timeline(visit: Visit) -> None:
    page = await visit.go("search", q="hazelnuts")
    await page.locator("[data-row] a[data-open]").first.click()
    await page.locator("#main .crumbs a").last.click()
    row = page.locator("[data-row][aria-current]")
    await row.wait_for()
    number = int(await row.get_attribute("data-seq") or 0)
    await in_pane(page, number)
    assert await row.locator("mark").first.inner_text() == "hazelnuts"
    assert await page.locator("[data-pane] article mark").first.inner_text() == "hazelnuts"
    await page.get_by_role("link", name="Let go").first.click()
    await in_pane(page, 24)
    assert await page.locator("mark").count() == 0
