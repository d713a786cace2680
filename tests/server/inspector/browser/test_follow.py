"""A page that follows a running agent: rows come as they are saved, whoever is killed in between."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page

from locus.memory.backends import sqlite_checkpointer
from tests.server.inspector.browser.conftest import visits
from tests.server.inspector.browser.visits import Visit
from tests.server.inspector.browser.writer import saves
from tests.server.inspector.serving import inspecting
from tests.server.running import ROOT

pytestmark = pytest.mark.asyncio(loop_scope="session")
THREAD = "watched"


@contextmanager
def writer(path: Path, count: int) -> Iterator[Iterator[int]]:
    """An agent in a process of its own; the numbers of its checkpoints. It is killed at the end, whatever it does."""
    command = [sys.executable, "-m", "tests.server.inspector.browser.writer", str(path), THREAD, str(count)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield map(int, process.stdout)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def written(path: Path, count: int) -> int:
    """Save so often, in this process; the number of the last checkpoint."""
    return [number async for number in saves(str(path), THREAD, count)][-1]


async def following(visit: Visit) -> Page:
    page = await visit.go("t", THREAD)
    await visit.press("F")
    await told(page, "Following")
    return page


async def told(page: Page, text: str) -> None:
    await page.locator("[data-follow-told]", has_text=text).wait_for()


async def row(page: Page, number: int) -> None:
    await page.locator(f".fresh [data-row][data-seq='{number}']").wait_for()


async def numbers_shown(page: Page) -> list[int]:
    found: list[int] = await page.evaluate("[...document.querySelectorAll('[data-row]')].map(row => +row.dataset.seq)")
    return found


async def test_rows_come_from_a_writer_that_is_killed_and_resumed(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "watched.db"
    first = await written(path, 2)
    with inspecting(path) as served:
        async with visits(browser) as begin:
            visit = await begin(served)
            page = await following(visit)
            with writer(path, 10_000) as numbers:
                for number in numbers:
                    if number >= first + 3:
                        break
                await row(page, first + 3)
            last = await written(path, 3)  # the one that takes its place
            await row(page, last)
            assert await numbers_shown(page) == list(range(last, 0, -1))
            assert await page.locator("[data-latest]").count() == 1
            await visit.said("new checkpoint")
            # New rows are rows: they are walked, opened and compared like the others.
            await visit.press("j", "Enter")
            await page.get_by_role("heading", name=f"Checkpoint #{last}", exact=True).wait_for()


async def test_it_goes_on_after_the_server_was_away(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "watched.db"
    first = await written(path, 2)
    async with visits(browser) as begin:
        with inspecting(path) as served:
            visit = await begin(served)
            page = await following(visit)
            await row(page, await written(path, 1))
        await told(page, "Disconnected")
        last = await written(path, 2)
        with inspecting(path, port=served.port, sessions=served.sessions):
            await row(page, last)
            await told(page, "Following")
            assert await numbers_shown(page) == list(range(last, 0, -1))
            # It is also taken up again by the page that comes next.
            await page.reload()
            await told(page, "Following")
            await visit.press("F")
            await told(page, "Following is off")
            assert await page.locator("a[data-follow]").get_attribute("aria-pressed") == "false"
            await page.reload()
            assert await page.locator("a[data-follow]").get_attribute("aria-pressed") == "false"
    assert last == first + 3


async def test_a_fork_says_what_it_is_a_fork_of(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "watched.db"
    await written(path, 3)
    with inspecting(path) as served:
        async with visits(browser) as begin:
            page = await following(await begin(served))
            async with sqlite_checkpointer(path) as handle:
                oldest = (await handle.history(THREAD))[-1]
                state = await handle.load(THREAD, oldest.checkpoint_id)
                assert state is not None
                await handle.save(state, THREAD, metadata={"<b>line": "b</b>"})
            link = page.locator(".fresh a[data-open]")
            await link.wait_for()
            assert await link.get_attribute("aria-label") == "Checkpoint 4, fork of 1, latest"
            assert "<b>line=b</b>" in await page.locator(".fresh").inner_text()


async def test_it_says_when_checkpoints_were_deleted(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "watched.db"
    await written(path, 2)
    with inspecting(path) as served:
        async with visits(browser) as begin:
            page = await following(await begin(served))
            async with sqlite_checkpointer(path) as handle:
                await handle.delete(THREAD)
            await told(page, "Checkpoints were deleted")


async def test_it_is_ended_by_its_button_and_by_leaving(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "watched.db"
    await written(path, 2)
    with inspecting(path) as served:
        async with visits(browser) as begin:
            visit = await begin(served)
            page = await following(visit)
            button = page.locator("a[data-follow]")
            assert await button.inner_text() == "Stop following"
            await button.click()
            await told(page, "Following is off")
            assert await button.inner_text() == "Follow"
            await button.click()
            await told(page, "Following")
            await visit.go("threads")
            await page.go_back()
            await page.locator("html[data-scripts]").wait_for(state="attached")
            assert await button.inner_text() == "Follow"
            await visit.go("t", THREAD)
            assert await button.inner_text() == "Follow"
